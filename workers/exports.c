/* SPDX-License-Identifier: Apache-2.0 */
/* What JavaScript sees of the module: numbers in, numbers out. Addresses are byte offsets into the memory that the
 * module exports; 64-bit numbers are BigInt. No function blocks, allocates or calls out; the module has no imports.
 *
 *   cobord_open(file bytes)  loop              loop: while ((kind = cobord_next()) != DONE) copy what the wish says
 *   cobord_plan(...)
 *   cobord_build(first, last) loop
 *   per chunk:  ids at cobord_ids()
 *               cobord_embed_start(n); per shard: cobord_embed(shard, n) loop cobord_embed_merge(n)
 *               per station: cobord_forward(station, session, position, n) loop
 *               cobord_norm(row, n); per shard: cobord_logits(shard, n) loop
 *               cobord_top_start(); per shard: cobord_top(shard, row, k) ; cobord_hash(shard, row)
 *
 * Calls that can fail return an error's number, 0 for none; cobord_why() and cobord_error_text() have the words. */
#include <string.h>

#include "base/hash.h"
#include "reserve.h"
#include "step.h"

#define EXPORT(name) __attribute__((export_name("cobord_" #name)))
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* nothing in C calls these */

static Instance instance;

static Error report(Error error)
{
    instance.error = error;
    return error;
}
static void fresh(void) { instance.why.text[0] = 0; }

/* --- errors --- */

EXPORT(error) Error exports_error(void) { return instance.error; }
EXPORT(why) const char *exports_why(void) { return instance.why.text; }
EXPORT(error_text) const char *exports_error_text(Error error) { return error_text(error); }

/* --- opening, planning, building --- */

EXPORT(open) Error exports_open(uint64_t file_bytes)
{
    fresh();
    return report(instance_open(&instance, file_bytes));
}

/* NULL after the last. Which of them this module has, cobord_plan says. */
EXPORT(isa_name) const char *exports_isa_name(uint32_t isa)
{
    return isa < ISAS ? kernels_isa_name((Isa)isa) : NULL;
}

/* 0 for `stations`, `shards`, `context`, `chunk`, `logit_rows` and `sessions` means that the plan chooses. */
EXPORT(plan)
Error exports_plan(uint64_t memory_bytes, uint32_t stations, uint32_t shards, uint32_t context, uint32_t chunk,
                   uint32_t logit_rows, uint32_t sessions, uint32_t cache, uint32_t isa, uint32_t solo)
{
    fresh();
    const Kernels *kernels = kernels_for((Isa)isa);
    const Ops *ops = ops_for((Isa)isa);
    if (!kernels || !ops)
        return report(error_why(&instance.why, ERR_NOT_AVAILABLE, "instruction set %s is not in this module",
                                kernels_isa_name((Isa)isa)));
    if (cache > CACHE_Q8_0)
        return report(error_why(&instance.why, ERR_USAGE, "attention cache type %u; 0 is f16, 1 is q8_0", cache));
    PlanRequest request = {
        .memory_bytes = memory_bytes, .stations = stations ? stations : 2, .shards = shards ? shards : 8,
        .context = context, .chunk = chunk, .logit_rows = logit_rows, .sessions = sessions, .workers = 1,
        .cache = (CacheType)cache, .kernels = kernels, .ops = ops,
    };
    return report(instance_plan(&instance, &request, solo != 0));
}

EXPORT(build) Error exports_build(uint32_t role_first, uint32_t role_last)
{
    fresh();
    return report(instance_build(&instance, role_first, role_last));
}

/* --- facts --- */

#define FIGURES(X)                                                                                            \
    X(memory_bytes, reserve_bytes())                                                                          \
    X(layers, instance.hyper.layers)                                                                          \
    X(hidden, instance.hyper.hidden)                                                                          \
    X(ffn, instance.hyper.ffn)                                                                                \
    X(vocabulary, instance.hyper.vocabulary)                                                                  \
    X(stations, instance.plan.request.stations)                                                               \
    X(shards, instance.plan.request.shards)                                                                   \
    X(roles, instance.plan.role_count)                                                                        \
    X(chunk, instance.plan.chunk)                                                                             \
    X(context, instance.plan.context)                                                                         \
    X(logit_rows, instance.plan.logit_rows)                                                                   \
    X(plan_bytes, instance.plan.sum.total_bytes)                                                              \
    X(tile_bytes, instance.tile_bytes)                                                                        \
    X(pinned_bytes, instance.pinned_bytes)                                                                    \
    X(file_bytes, instance.knot.file_bytes)

enum {
#define FIGURE_ENTRY(name, value) FIGURE_##name,
    FIGURES(FIGURE_ENTRY)
#undef FIGURE_ENTRY
    FIGURE_COUNT
};

/* NULL after the last. */
EXPORT(figure_name) const char *exports_figure_name(uint32_t i)
{
    static const char *const names[FIGURE_COUNT] = {
#define FIGURE_ENTRY(name, value) #name,
        FIGURES(FIGURE_ENTRY)
#undef FIGURE_ENTRY
    };
    return i < FIGURE_COUNT ? names[i] : NULL;
}

EXPORT(figure) double exports_figure(uint32_t i)
{
    switch (i) {
#define FIGURE_ENTRY(name, value) \
    case FIGURE_##name: return (double)(value);
        FIGURES(FIGURE_ENTRY)
#undef FIGURE_ENTRY
    default: return 0;
    }
}

EXPORT(knot_id) uint64_t exports_knot_id(void) { return instance.knot.id; }

/* --- the loop --- */

EXPORT(next) WishKind exports_next(void)
{
    WishKind kind;
    if (report(step_next(&instance, &kind)) != OK) return WISH_FAILED;
    return kind;
}
EXPORT(wish_offset) uint64_t exports_wish_offset(void) { return instance.wish.offset; }
EXPORT(wish_bytes) uint32_t exports_wish_bytes(void) { return instance.wish.bytes; }
EXPORT(wish_address) uint8_t *exports_wish_address(void) { return instance.wish.address; }

/* --- a chunk --- */

EXPORT(ids) uint32_t *exports_ids(void) { return instance.frame.ids; }
EXPORT(x) float *exports_x(void) { return instance.frame.x; }
EXPORT(g) float *exports_g(void) { return instance.frame.g; }
EXPORT(partial) float *exports_partial(void) { return instance.frame.partial; }
EXPORT(hidden) float *exports_hidden(void) { return instance.frame.hidden; }

/* Rows first .. first + count - 1 lie within `most`. */
static Error check_rows(uint32_t first, uint32_t count, uint32_t most)
{
    if (!instance.built) return error_why(&instance.why, ERR_USAGE, "nothing is built yet");
    if (first <= most && count <= most - first) return OK;
    return error_why(&instance.why, ERR_CAPACITY, "rows %u and %u more; there is room for %u", first, count, most);
}

EXPORT(embed_start) Error exports_embed_start(uint32_t rows)
{
    fresh();
    TRY(report(check_rows(0, rows, instance.plan.chunk)));
    memset(instance.frame.x, 0, (size_t)rows * instance.hyper.hidden * sizeof(float));
    return OK;
}
EXPORT(embed) Error exports_embed(uint32_t shard, uint32_t rows)
{
    fresh();
    return report(step_begin_embed(&instance, shard, rows));
}
EXPORT(embed_merge) Error exports_embed_merge(uint32_t rows)
{
    fresh();
    TRY(report(check_rows(0, rows, instance.plan.chunk)));
    shard_merge(instance.frame.x, instance.frame.partial, (size_t)rows * instance.hyper.hidden);
    return OK;
}

EXPORT(forward) Error exports_forward(uint32_t station, uint32_t session, uint32_t position, uint32_t rows)
{
    fresh();
    return report(step_begin_forward(&instance, station, session, position, rows));
}

/* Output norm of rows row_first.. of x into hidden; the last station's work. */
EXPORT(norm) Error exports_norm(uint32_t row_first, uint32_t rows)
{
    fresh();
    TRY(report(check_rows(row_first, rows, instance.plan.chunk)));
    TRY(report(check_rows(0, rows, instance.plan.logit_rows)));
    const Station *last = instance_station(&instance, instance.plan.request.stations - 1);
    if (!last) return report(error_why(&instance.why, ERR_NOT_FOUND, "the last station is not in this instance"));
    size_t hidden = instance.hyper.hidden;
    for (size_t r = 0; r < rows; r++)
        station_norm_output(last, instance.frame.x + (row_first + r) * hidden, instance.frame.hidden + r * hidden);
    return OK;
}

EXPORT(logits) Error exports_logits(uint32_t shard, uint32_t rows)
{
    fresh();
    return report(step_begin_logits(&instance, shard, rows));
}

/* --- the best of all shards --- */

static Error find_shard(uint32_t shard, uint32_t row, Shard **out)
{
    TRY(check_rows(row, 1, instance.plan.logit_rows));
    *out = instance_shard(&instance, shard);
    return *out ? OK : error_why(&instance.why, ERR_NOT_FOUND, "shard %u is not in this instance", shard);
}

EXPORT(top_start) void exports_top_start(void)
{
    instance.best_count = 0;
    logsum_start(&instance.sum);
}

/* Merges the shard's k best of `row` into those so far, and its sum of exponentials. */
EXPORT(top) Error exports_top(uint32_t shard, uint32_t row, uint32_t k)
{
    fresh();
    Shard *s;
    TRY(report(find_shard(shard, row, &s)));
    if (k > instance.hyper.vocabulary) k = instance.hyper.vocabulary;
    Frame *f = &instance.frame;
    uint32_t more = shard_top(s, row, k, f->shard_best, &instance.sum, 1);
    instance.best_count = sampler_merge(f->best, instance.best_count, f->shard_best, more, k, f->merged);
    return OK;
}
EXPORT(top_count) uint32_t exports_top_count(void) { return instance.best_count; }
EXPORT(top_id) uint32_t exports_top_id(uint32_t i)
{
    return i < instance.best_count ? instance.frame.best[i].id : 0;
}
EXPORT(top_logit) float exports_top_logit(uint32_t i)
{
    return i < instance.best_count ? instance.frame.best[i].logit : 0;
}
EXPORT(top_log_sum) double exports_top_log_sum(void) { return logsum_log(&instance.sum); }

/* --- XXH3-64 over logits --- */

EXPORT(hash_start) void exports_hash_start(void) { hash_stream3_start(&instance.hash); }
EXPORT(hash) Error exports_hash(uint32_t shard, uint32_t row)
{
    fresh();
    Shard *s;
    TRY(report(find_shard(shard, row, &s)));
    const PlanRole *role = &instance.plan.role[instance.plan.request.stations + shard];
    hash_stream3_update(&instance.hash, shard_logits(s, row), (role->id_last - role->id_first) * sizeof(float));
    return OK;
}
EXPORT(hash_end) uint64_t exports_hash_end(void) { return hash_stream3_end(&instance.hash); }
