/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a knot, planning, building roles: everything that takes memory. */
#include "instance.h"

#include <string.h>

#include "reserve.h"

/* A tile is copied, not mapped: one that stays in the cache until it is read costs least. */
enum { TILE_BYTES_MAX = 512 * 1024 };

static uint64_t align_up(uint64_t bytes) { return (bytes + ARENA_ALIGN - 1) & ~(uint64_t)(ARENA_ALIGN - 1); }

/* `bytes` right behind what is kept, grown when they are not there yet; not kept themselves. */
static Error room_for(Instance *in, uint64_t bytes, uint8_t **out)
{
    if (!reserve_until(in->kept_end, bytes))
        return error_why(&in->why, ERR_MEMORY, "%llu bytes more than the module may have", (unsigned long long)bytes);
    *out = in->kept_end;
    return OK;
}

/* --- opening --- */

static void wish_for(Instance *in, uint64_t bytes, uint8_t *address)
{
    in->wish = (Wish){0, (uint32_t)bytes, address};
}

Error instance_open(Instance *in, uint64_t file_bytes)
{
    if (in->opened || in->operation != OPERATION_NONE)
        return error_why(&in->why, ERR_USAGE, "an instance opens one file");
    in->kept_end = reserve_start();
    in->file_bytes = file_bytes;
    in->operation = OPERATION_PROBE;
    uint64_t bytes = file_bytes < KNOT_PROBE_BYTES ? file_bytes : KNOT_PROBE_BYTES;
    TRY(room_for(in, bytes, &in->header));
    wish_for(in, bytes, in->header);
    return OK;
}

static Error parse_header(Instance *in)
{
    size_t kept = (size_t)align_up(knot_arena_bytes((size_t)in->header_bytes));
    uint8_t *tables = in->kept_end;
    Arena arena = arena_make(tables, kept);
    Arena scratch = arena_make(in->header + align_up(in->header_bytes), knot_scratch_bytes((size_t)in->header_bytes));
    TRY(knot_parse(in->header, (size_t)in->header_bytes, in->file_bytes, &arena, &scratch, &in->knot, &in->why));
    TRY(hyper_from_knot(&in->knot, &in->hyper, &in->why));
    in->kept_end = tables + align_up(arena.used);
    in->header = NULL;
    in->operation = OPERATION_NONE;
    in->opened = true;
    return OK;
}

/* The probe lies where the tables come: it moves behind them, or is read again when the header is longer. */
static Error place_header(Instance *in)
{
    TRY(knot_header_bytes(in->header, (size_t)in->wish.bytes, in->file_bytes, &in->header_bytes, &in->why));
    uint64_t kept = align_up(knot_arena_bytes((size_t)in->header_bytes));
    uint8_t *start;
    TRY(room_for(in, kept + align_up(in->header_bytes) + knot_scratch_bytes((size_t)in->header_bytes), &start));
    if (in->header_bytes <= in->wish.bytes) {
        memmove(start + kept, in->header, (size_t)in->header_bytes);
        in->header = start + kept;
        return parse_header(in);
    }
    in->header = start + kept;
    in->operation = OPERATION_HEADER;
    wish_for(in, in->header_bytes, in->header);
    return OK;
}

Error instance_header_came(Instance *in)
{
    return in->operation == OPERATION_PROBE ? place_header(in) : parse_header(in);
}

/* --- planning --- */

Error instance_plan(Instance *in, const PlanRequest *request, bool solo)
{
    if (!in->opened || in->built) return error_why(&in->why, ERR_USAGE, "a plan follows open and comes before build");
    PlanRequest r = *request;
    r.knot = &in->knot;
    r.hyper = &in->hyper;
    r.solo = solo;
    r.process_bytes = (uint64_t)(uintptr_t)in->kept_end;
    TRY(plan_make(&r, &in->plan, &in->why));
    if (in->plan.tile_bytes_max > TILE_BYTES_MAX) in->plan.tile_bytes_max = TILE_BYTES_MAX;
    in->planned = true;
    return OK;
}

/* --- building --- */

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bytes of the largest TILE that any role here wishes for, embedding rows and resident vectors included. */
static Error tile_bytes(Instance *in, uint64_t *out)
{
    const Plan *p = &in->plan;
    uint64_t most = (uint64_t)in->hyper.hidden * sizeof(float); /* vectors and single rows of any type */
    most = max_u64(most, (uint64_t)in->hyper.ffn * sizeof(float));
    most = max_u64(most, (uint64_t)in->hyper.heads * in->hyper.head_dim * sizeof(float));
    for (uint32_t i = in->role_first; i < in->role_last; i++) {
        uint64_t panel;
        if (i < p->request.stations) {
            StationConfig config = plan_station_config(p, i);
            StationSizes sizes;
            TRY(station_sizes(&config, &sizes, &in->why));
            panel = sizes.widest_panel_bytes;
        } else {
            ShardConfig config = plan_shard_config(p, i - p->request.stations);
            ShardSizes sizes;
            TRY(shard_sizes(&config, &sizes, &in->why));
            panel = sizes.widest_panel_bytes;
        }
        most = max_u64(most, panel);
    }
    /* A window has room for the widest phase, or for tiles of the largest size. */
    *out = align_up(max_u64(most, min_u64(p->tile_bytes_max, p->sum.window_bytes)));
    return OK;
}

static Error take_frame(Instance *in, Arena *arena)
{
    const Plan *p = &in->plan;
    size_t hidden = in->hyper.hidden, vocabulary = in->hyper.vocabulary;
    Frame *f = &in->frame;
    f->ids = arena_take_array(arena, p->chunk, sizeof *f->ids);
    f->x = arena_take_array(arena, p->chunk, hidden * sizeof(float));
    f->partial = arena_take_array(arena, p->chunk, hidden * sizeof(float));
    f->g = arena_take_array(arena, p->chunk, in->hyper.ffn * sizeof(float));
    f->hidden = arena_take_array(arena, p->logit_rows, hidden * sizeof(float));
    f->best = arena_take_array(arena, vocabulary, sizeof(SamplerCandidate));
    f->shard_best = arena_take_array(arena, vocabulary, sizeof(SamplerCandidate));
    f->merged = arena_take_array(arena, vocabulary, sizeof(SamplerCandidate));
    if (!f->ids || !f->x || !f->partial || !f->g || !f->hidden || !f->best || !f->shard_best || !f->merged)
        return error_why(&in->why, ERR_MEMORY, "the frames are larger than their sum");
    return OK;
}

static uint64_t frame_bytes(const Instance *in)
{
    const Plan *p = &in->plan;
    uint64_t floats = (uint64_t)p->chunk * (2u * in->hyper.hidden + in->hyper.ffn + 1) +
                      (uint64_t)p->logit_rows * in->hyper.hidden;
    return floats * sizeof(float) + 3 * (uint64_t)in->hyper.vocabulary * sizeof(SamplerCandidate) + 8 * ARENA_ALIGN;
}

static Error build_role(Instance *in, uint32_t role, Arena *arena, void *scratch)
{
    const Plan *p = &in->plan;
    if (role < p->request.stations) {
        StationConfig config = plan_station_config(p, role);
        return station_build(&config, arena, scratch, &in->station[role], &in->why);
    }
    ShardConfig config = plan_shard_config(p, role - p->request.stations);
    return shard_build(&config, arena, scratch, &in->shard[role], &in->why);
}

/* The plan's window is made for pages that are being dropped; here it is one tile, and the rest of it holds weights. */
static uint64_t pinned_bytes(const Instance *in)
{
    const Plan *p = &in->plan;
    if (!p->request.solo) return 0;
    uint64_t window = p->sum.window_bytes, spared = window > in->tile_bytes ? window - in->tile_bytes : 0;
    return min_u64(p->pinned_bytes + spared, in->knot.payload_bytes);
}

static uint64_t roles_bytes(const Instance *in)
{
    uint64_t sum = 0;
    for (uint32_t i = in->role_first; i < in->role_last; i++) {
        const PlanRole *r = &in->plan.role[i];
        sum += r->floor_bytes + r->cache_bytes + r->logits_bytes + 4 * ARENA_ALIGN;
    }
    return sum;
}

Error instance_build(Instance *in, uint32_t role_first, uint32_t role_last)
{
    const Plan *p = &in->plan;
    if (!in->planned || in->built) return error_why(&in->why, ERR_USAGE, "roles are built once, after the plan");
    if (role_first >= role_last || role_last > p->role_count)
        return error_why(&in->why, ERR_RANGE, "roles %u to %u of %u", role_first, role_last, p->role_count);
    in->role_first = role_first;
    in->role_last = role_last;
    uint64_t scratch_bytes = plan_scratch_bytes(p);
    TRY(tile_bytes(in, &in->tile_bytes));
    uint64_t bytes = frame_bytes(in) + roles_bytes(in) + align_up(scratch_bytes) + 2 * ARENA_ALIGN;
    in->pinned_bytes = pinned_bytes(in);
    uint8_t *memory;
    TRY(room_for(in, bytes + in->tile_bytes + in->pinned_bytes, &memory));
    Arena arena = arena_make(memory, (size_t)bytes);
    TRY(take_frame(in, &arena));
    void *scratch = arena_take_raw(&arena, (size_t)scratch_bytes);
    if (!scratch) return error_why(&in->why, ERR_MEMORY, "the scratch is larger than its sum");
    for (uint32_t i = role_first; i < role_last; i++) TRY(build_role(in, i, &arena, scratch));
    in->tile = memory + align_up(bytes);
    in->pinned = in->tile + in->tile_bytes;
    in->kept_end = in->pinned + in->pinned_bytes;
    in->built = true;
    in->operation = OPERATION_PIN;
    in->at_byte = 0;
    return OK;
}

Station *instance_station(const Instance *in, uint32_t station)
{
    return in->built && station < in->plan.request.stations ? in->station[station] : NULL;
}

Shard *instance_shard(const Instance *in, uint32_t shard)
{
    uint32_t stations = in->plan.request.stations;
    return in->built && shard < in->plan.role_count - stations ? in->shard[stations + shard] : NULL;
}
