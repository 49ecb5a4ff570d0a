/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/isolate.h"

#include "base/max.h"
#include "base/min.h"
#include "cluster/blocks.h"

static const uint64_t WINDOW_MIN = (uint64_t)1 << 20, WINDOW_MAX = (uint64_t)8 << 20;

uint64_t isolate_index_bytes(const Knot *k, uint64_t header_bytes)
{
    uint64_t kept =
        arena_bytes((size_t)header_bytes) + arena_bytes(knot_arena_bytes((size_t)header_bytes));
    uint64_t hashes = arena_bytes((size_t)k->embedding_row_hashes.bytes) +
                      arena_bytes((size_t)k->block_hashes.bytes) +
                      arena_bytes((size_t)k->tensor_hashes.bytes);
    return kept + hashes + 8 * ARENA_ALIGN;
}

static uint64_t frames_bytes(const NodeSizes *s)
{
    return s->service_bytes + s->body_bytes_max + s->answer_bytes_max;
}

static uint64_t base_bytes(const IsolateRequest *r)
{
    const NodeSizes *s = &r->sizes;
    return r->fixed_bytes + r->index_bytes + s->floor_bytes + s->scratch_bytes + s->logits_bytes +
           s->cache_bytes + r->keeper_bytes + frames_bytes(s) + 16 * ARENA_ALIGN;
}

static uint64_t whole_blocks(uint64_t bytes)
{
    return (bytes + KNOT_HASH_BLOCK_BYTES - 1) / KNOT_HASH_BLOCK_BYTES * KNOT_HASH_BLOCK_BYTES;
}

/* Without any weights: a vector of the floor, a saved row, embedding rows. */
static uint64_t window_least(const IsolateRequest *r, bool rows_stay)
{
    uint64_t bytes = 2 * KNOT_HASH_BLOCK_BYTES;
    const KnotTensor *t = knot_find(r->knot, "token_embd_weight");
    if (r->keeper_bytes) bytes = max_u64(bytes, ISOLATE_ROW_BYTES_MAX);
    if (r->embeds && !rows_stay && t)
        bytes = max_u64(bytes, ISOLATE_ROWS_AT_ONCE * ((uint64_t)t->cols * sizeof(float) + 256));
    return whole_blocks(bytes);
}

/* An eighth of the budget, room for the widest panel wherever it lies, not more than the
 * weights. */
static uint64_t window_streaming(const IsolateRequest *r, uint64_t stretch)
{
    uint64_t edges = 2 * KNOT_HASH_BLOCK_BYTES,
             eighth = min_u64(WINDOW_MAX, max_u64(WINDOW_MIN, r->budget_bytes / 8));
    uint64_t bytes = max_u64(eighth, whole_blocks(r->sizes.widest_panel_bytes) + edges);
    return max_u64(min_u64(bytes, whole_blocks(stretch)), window_least(r, false));
}

static void find_stretches(const IsolateRequest *r, Isolate *out)
{
    uint64_t end = r->knot->block_hashes.offset;
    const KnotTensor *t = knot_find(r->knot, "token_embd_weight");
    if (r->sizes.weights_last > r->sizes.weights_first) {
        out->first = blocks_floor(r->sizes.weights_first);
        out->last = blocks_ceiling(r->sizes.weights_last, end);
    }
    if (!r->embeds || !t) return;
    out->rows_first = blocks_floor(knot_row_offset(t, r->id_first));
    out->rows_last = blocks_ceiling(knot_rows_end(t, r->id_last), end);
}

static Error refuse(const IsolateRequest *r, const Isolate *o, Why *why)
{
    const NodeSizes *s = &r->sizes;
#define MIB(x) (unsigned)((x) >> 20), (unsigned)(((x) & 0xfffff) * 10 >> 20)
    return error_why(
        why, ERR_PLAN,
        "%s needs %u.%u MiB (module %u.%u + index %u.%u + floor %u.%u + window %u.%u + activations "
        "%u.%u + frames %u.%u + logits %u.%u + attention cache %u.%u), may take %u.%u MiB",
        r->id, MIB(o->total_bytes), MIB(r->fixed_bytes), MIB(r->index_bytes), MIB(s->floor_bytes),
        MIB(o->window_bytes), MIB(s->scratch_bytes), MIB(frames_bytes(s)), MIB(s->logits_bytes),
        MIB(s->cache_bytes), MIB(r->budget_bytes));
#undef MIB
}

/* Everything stays, with or without the embedding rows. */
static bool choose_resident(const IsolateRequest *r, Isolate *o)
{
    uint64_t stretch = o->last - o->first, rows = o->rows_last - o->rows_first,
             base = base_bytes(r);
    if (r->pinned_bytes < stretch) return false;
    o->resident = true;
    o->pinned_bytes = stretch;
    o->window_bytes = window_least(r, true);
    o->total_bytes = base + o->window_bytes + stretch + rows;
    if (o->total_bytes <= r->budget_bytes) return true;
    o->rows_first = o->rows_last = 0;
    o->window_bytes = window_least(r, false);
    o->total_bytes = base + o->window_bytes + stretch;
    if (o->total_bytes <= r->budget_bytes) return true;
    o->resident = false;
    return false;
}

Error isolate_choose(const IsolateRequest *r, Isolate *out, Why *why)
{
    *out = (Isolate){0};
    find_stretches(r, out);
    if (choose_resident(r, out)) return OK;
    uint64_t stretch = out->last - out->first;
    out->rows_first = out->rows_last = 0;
    out->window_bytes = window_streaming(r, stretch);
    out->total_bytes = base_bytes(r) + out->window_bytes;
    if (out->total_bytes > r->budget_bytes) return refuse(r, out, why);
    uint64_t fits = min_u64(r->budget_bytes - out->total_bytes, r->pinned_bytes);
    out->pinned_bytes = min_u64(fits / KNOT_HASH_BLOCK_BYTES * KNOT_HASH_BLOCK_BYTES, stretch);
    out->tile_bytes_max = out->window_bytes - 2 * KNOT_HASH_BLOCK_BYTES;
    out->pass_bytes = stretch - out->pinned_bytes;
    out->total_bytes += out->pinned_bytes;
    return OK;
}
