/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/shard.h"

#include <string.h>

typedef enum ShardWork { WORK_NONE, WORK_EMBED, WORK_LOGITS } ShardWork;

struct Shard {
    ShardConfig config;
    const KnotTensor *embedding, *head;
    uint64_t embedding_row_bytes, head_unit_bytes; /* a panel, or a row in the layout `rows` */
    uint32_t head_unit_rows;
    float *logits; /* [rows_max][slice] */
    uint8_t *activations;
    size_t activation_stride;
    uint8_t *panel;
    size_t panel_bytes;

    ShardWork work;
    const uint32_t *ids;
    uint32_t id_count, id_at;
    float *partial;
    uint32_t rows, row_at; /* hidden rows; next head row, from id_first */
};

Error shard_range(uint32_t vocabulary, uint32_t count, uint32_t index, uint32_t *id_first,
                  uint32_t *id_last, Why *why)
{
    if (!count || count > vocabulary || count > SHARDS_MAX || index >= count)
        return error_why(why, ERR_RANGE, "%u shards for a vocabulary of %u; 1 to %u are possible",
                         count, vocabulary, vocabulary < SHARDS_MAX ? vocabulary : SHARDS_MAX);
    uint32_t size = vocabulary / count, more = vocabulary % count;
    *id_first = index * size + (index < more ? index : more);
    *id_last = *id_first + size + (index < more);
    return OK;
}

static uint32_t slice(const ShardConfig *c) { return c->id_last - c->id_first; }

/* The parts of a shard that follow from the knot. */
static Error resolve(const ShardConfig *c, Shard *s, Why *why)
{
    *s = (Shard){.config = *c};
    if (c->id_first >= c->id_last || c->id_last > c->hyper->vocabulary)
        return error_why(why, ERR_RANGE, "ids %u to %u of a vocabulary of %u", c->id_first,
                         c->id_last, c->hyper->vocabulary);
    if (!c->rows_max || c->rows_max > SHARD_ROWS_MAX || !c->workers ||
        c->workers > PARALLEL_WORKERS_MAX)
        return error_why(why, ERR_RANGE, "%u rows, %u threads for a shard", c->rows_max,
                         c->workers);
    s->embedding = knot_find(c->knot, "token_embd_weight");
    if (!s->embedding) return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    s->head = knot_head(c->knot);
    if (s->embedding->layout != LAYOUT_ROWS)
        return error_why(why, ERR_FORMAT, "token_embd_weight has layout %s; embeddings are rows",
                         layout_name(s->embedding->layout));
    if (s->head->cols != c->hyper->hidden || s->head->rows < c->hyper->vocabulary ||
        s->embedding->cols != c->hyper->hidden || s->embedding->rows < c->hyper->vocabulary)
        return error_why(why, ERR_SHAPE, "%s is %u x %u; at least %u x %u are needed",
                         s->head->name, s->head->rows, s->head->cols, c->hyper->vocabulary,
                         c->hyper->hidden);
    TRY(block_row_bytes(s->embedding->type, s->embedding->cols, &s->embedding_row_bytes, why));
    s->head_unit_rows = knot_unit_rows(s->head);
    TRY(s->head_unit_rows > 1
            ? layout_panel_bytes(s->head->type, s->head->cols, &s->head_unit_bytes, why)
            : block_row_bytes(s->head->type, s->head->cols, &s->head_unit_bytes, why));
    s->activation_stride =
        kernels_activation_row_bytes(kernels_activation_form(s->head->type), s->head->cols);
    if (!s->activation_stride)
        return error_why(why, ERR_SHAPE, "%s: %u columns do not fit its type", s->head->name,
                         s->head->cols);
    s->panel_bytes = kernels_matmul_scratch_bytes(s->head->type, s->head->layout, s->head->cols);
    return OK;
}

Error shard_sizes(const ShardConfig *c, ShardSizes *out, Why *why)
{
    Shard s;
    TRY(resolve(c, &s, why));
    uint64_t units = (slice(c) + 2u * s.head_unit_rows - 2) / s.head_unit_rows;
    uint64_t panel = s.head_unit_bytes * PANEL_ROWS / s.head_unit_rows;
    *out = (ShardSizes){
        .floor_bytes = arena_bytes(sizeof(Shard)) + ARENA_ALIGN,
        .logits_bytes = arena_bytes((size_t)c->rows_max * slice(c) * sizeof(float)),
        .scratch_bytes = arena_bytes(c->rows_max * s.activation_stride) +
                         arena_bytes(c->workers * s.panel_bytes) + ARENA_ALIGN,
        .widest_panel_bytes = panel,
        .weight_bytes = units * s.head_unit_bytes,
    };
    return OK;
}

Error shard_build(const ShardConfig *c, Arena *arena, void *scratch, Shard **out, Why *why)
{
    Shard *s = ARENA_NEW(arena, Shard, 1);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a shard");
    TRY(resolve(c, s, why));
    s->logits = arena_take_raw(arena, (size_t)c->rows_max * slice(c) * sizeof(float));
    ShardSizes sizes;
    TRY(shard_sizes(c, &sizes, why));
    Arena lent = arena_make(scratch, (size_t)sizes.scratch_bytes);
    s->activations = arena_take_raw(&lent, c->rows_max * s->activation_stride);
    s->panel = arena_take_raw(&lent, c->workers * s->panel_bytes);
    if (!s->logits || !s->activations || !s->panel)
        return error_why(why, ERR_MEMORY, "no memory for the logits of a shard");
    *out = s;
    return OK;
}

/* --- Embedding --- */

static bool owns(const Shard *s, uint32_t id)
{
    return id >= s->config.id_first && id < s->config.id_last;
}

static void embed_skip_foreign(Shard *s)
{
    while (s->id_at < s->id_count && !owns(s, s->ids[s->id_at])) s->id_at++;
    if (s->id_at == s->id_count) s->work = WORK_NONE;
}

Error shard_begin_embed(Shard *s, const uint32_t *ids, uint32_t count, float *partial, Why *why)
{
    s->work = WORK_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= s->config.hyper->vocabulary)
            return error_why(why, ERR_RANGE, "token %u at index %u; ids are 0 to %u", ids[i], i,
                             s->config.hyper->vocabulary - 1);
    memset(partial, 0, (size_t)count * s->config.hyper->hidden * sizeof(float));
    s->work = WORK_EMBED;
    s->ids = ids;
    s->id_count = count;
    s->id_at = 0;
    s->partial = partial;
    embed_skip_foreign(s);
    return OK;
}

static float *embed_row(const Shard *s)
{
    return s->partial + (size_t)s->id_at * s->config.hyper->hidden;
}

/* The row is in its place: scales it. */
static Error embed_finish(Shard *s, Why *why)
{
    const Hyper *h = s->config.hyper;
    float *out = embed_row(s);
    bool finite = true;
    for (uint32_t i = 0; i < h->hidden; i++) {
        out[i] *= h->embedding_scale;
        finite &= out[i] - out[i] == 0;
    }
    if (!finite)
        return error_why(why, ERR_NOT_FINITE, "tensor %s: row %u is not finite", s->embedding->name,
                         s->ids[s->id_at]);
    s->id_at++;
    embed_skip_foreign(s);
    return OK;
}

static Error embed_give(Shard *s, const uint8_t *row, Why *why)
{
    TRY(block_dequantize_row(s->embedding->type, row, s->config.hyper->hidden, embed_row(s), why));
    return embed_finish(s, why);
}

uint32_t shard_wanted_rows(const Shard *s, uint32_t *rows, uint32_t room)
{
    uint32_t count = 0;
    if (s->work != WORK_EMBED) return 0;
    for (uint32_t i = s->id_at; i < s->id_count; i++) {
        if (!owns(s, s->ids[i])) continue;
        if (count < room) rows[count] = s->ids[i];
        count++;
    }
    return count;
}

/* --- Logits --- */

Error shard_begin_logits(Shard *s, const float *hidden, uint32_t rows, Why *why)
{
    s->work = WORK_NONE;
    if (rows > s->config.rows_max)
        return error_why(why, ERR_CAPACITY, "%u rows; a shard takes %u at once", rows,
                         s->config.rows_max);
    ActivationForm form = kernels_activation_form(s->head->type);
    for (uint32_t r = 0; r < rows; r++)
        s->config.kernels->quantize[form](hidden + (size_t)r * s->head->cols, s->head->cols,
                                          s->activations + r * s->activation_stride);
    s->rows = rows;
    s->row_at = 0;
    if (rows) s->work = WORK_LOGITS;
    return OK;
}

static void wish_head(const Shard *s, ShardWish *wish)
{
    uint32_t first = s->config.id_first + s->row_at, left = s->config.id_last - first;
    uint32_t unit = s->head_unit_rows, in_unit = first % unit;
    uint64_t units =
        s->config.tile_bytes_max ? s->config.tile_bytes_max / s->head_unit_bytes : UINT32_MAX;
    if (unit == 1 && units > PANEL_ROWS) units -= units % PANEL_ROWS;
    if (!units) units = 1;
    uint64_t rows = units * unit - in_unit;
    wish->tensor = s->head;
    wish->row_first = first;
    wish->row_count = rows < left ? (uint32_t)rows : left;
    wish->offset = s->head->offset + first / unit * s->head_unit_bytes;
    wish->bytes = (in_unit + wish->row_count + unit - 1) / unit * s->head_unit_bytes;
}

static Error check_logits(const Shard *s, const ShardWish *wish, Why *why)
{
    for (uint32_t r = 0; r < s->rows; r++) {
        const float *row = shard_logits(s, r) + s->row_at;
        for (uint32_t i = 0; i < wish->row_count; i++)
            if (row[i] - row[i] != 0)
                return error_why(why, ERR_NOT_FINITE,
                                 "output head, tensor %s: the logit of id %u is not finite",
                                 s->head->name, wish->row_first + i);
    }
    return OK;
}

static Error logits_give(Shard *s, const uint8_t *tile, const Parallel *parallel, Why *why)
{
    ShardWish wish;
    wish_head(s, &wish);
    MatmulTile job = {
        .type = s->head->type,
        .layout = s->head->layout,
        .cols = s->head->cols,
        .tile = tile,
        .row_first = wish.row_first,
        .row_count = wish.row_count,
        .activations = s->activations,
        .activation_stride = s->activation_stride,
        .tokens = s->rows,
        .out = s->logits + s->row_at,
        .out_stride = slice(&s->config),
        .scratch = s->panel,
        .scratch_bytes_per_worker = s->panel_bytes,
    };
    kernels_matmul(s->config.kernels, &job, parallel);
    TRY(check_logits(s, &wish, why));
    s->row_at += wish.row_count;
    if (s->row_at == slice(&s->config)) s->work = WORK_NONE;
    return OK;
}

/* --- Wishes --- */

void shard_next(Shard *s, ShardWish *wish)
{
    *wish = (ShardWish){.kind = s->work == WORK_NONE ? SHARD_DONE : SHARD_TILE};
    if (s->work == WORK_LOGITS) wish_head(s, wish);
    if (s->work != WORK_EMBED) return;
    wish->tensor = s->embedding;
    wish->row_first = s->ids[s->id_at];
    wish->row_count = 1;
    wish->offset = s->embedding->offset + wish->row_first * s->embedding_row_bytes;
    wish->bytes = s->embedding_row_bytes;
}

Error shard_give(Shard *s, const uint8_t *tile, const Parallel *parallel, Why *why)
{
    ASSERT(s->work != WORK_NONE);
    Error error =
        s->work == WORK_EMBED ? embed_give(s, tile, why) : logits_give(s, tile, parallel, why);
    if (error != OK) s->work = WORK_NONE;
    return error;
}

/* --- Results --- */

uint32_t shard_id_first(const Shard *s) { return s->config.id_first; }

const float *shard_logits(const Shard *s, uint32_t row)
{
    return s->logits + (size_t)row * slice(&s->config);
}

void shard_mask(Shard *s, uint32_t row, const uint32_t *mask, uint32_t bit_first)
{
    sampler_mask(mask, bit_first, s->logits + (size_t)row * slice(&s->config), slice(&s->config));
}

void shard_adjust(Shard *s, uint32_t row, const SamplerParams *p, const SamplerSeen *seen,
                  uint32_t seen_count)
{
    sampler_adjust(p, seen, seen_count, s->config.id_first,
                   s->logits + (size_t)row * slice(&s->config), slice(&s->config));
}

uint32_t shard_top(const Shard *s, uint32_t row, uint32_t k, SamplerCandidate *out, LogSum *sum,
                   float scale)
{
    const float *logits = shard_logits(s, row);
    if (sum) logsum_add(sum, logits, slice(&s->config), scale);
    return out ? sampler_top(logits, slice(&s->config), s->config.id_first, k, out) : 0;
}

void shard_merge(float *into, const float *partial, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] += partial[i];
}
