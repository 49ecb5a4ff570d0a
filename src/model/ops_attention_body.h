/* SPDX-License-Identifier: Apache-2.0 */
/* Part of ops_body.h: attention of one key/value head for one or several rows, block by block, online softmax.
 *
 * "Queries" are the rows' heads of this group, row-major: query i is head i % group of row i / group. Scratch:
 *
 *   expanded [64][dim]          a block's keys, then its values, as floats (few queries do without)
 *   packed   [tiles][dim][TILE] the queries, so that a tile's next coefficients lie together
 *   weights  [queries][64]      scores, then weights
 *   m, l, c  [queries]          running maximum, running sum, this block's correction
 *
 * The bits of a query depend on nothing but itself and what it sees: which tile it is in, or who shares it, decides
 * only what is computed beside it. A position that a query does not see is never multiplied into its output. */
#ifndef COBORD_MODEL_OPS_ATTENTION_BODY_H
#define COBORD_MODEL_OPS_ATTENTION_BODY_H
#ifdef OPS_LANES /* nothing without the machine */

/* How the keys or values that a tile reads are stored: expanded, or as in the cache. Reading bytes without expanding
 * them first pays where one instruction turns 16 of them into integers, and nowhere else. */
#ifdef OPS_READS_BYTES
enum { OPS_FLOATS, OPS_HALVES, OPS_BYTES, OPS_SOURCES };
#else
enum { OPS_FLOATS, OPS_HALVES, OPS_SOURCES, OPS_BYTES = OPS_FLOATS };
#endif

typedef struct OpsSide {
    const void *data;
    const float *scale; /* OPS_BYTES only */
} OpsSide;

typedef struct OpsAttention {
    const AttentionRows *job;
    uint32_t group, dim, queries, tile; /* tile: queries per tile, OPS_TILE at most */
    uint32_t block_last;
    float *expanded, *packed, *weights, *m, *l, *correction;
} OpsAttention;

/* What one row sees of one block: first..last, or nothing when first > last. */
typedef struct OpsSpan {
    uint32_t first, last;
} OpsSpan;

static OpsSpan ops_attention_span(const AttentionRows *job, uint32_t row, uint32_t block)
{
    uint32_t base = block * OPS_POSITIONS, position = job->row.position + row, first = job->row.position_first;
    if (job->window && position + 1 - first > job->window) first = position + 1 - job->window;
    OpsSpan none = {1, 0};
    if (position < base || first >= base + OPS_POSITIONS) return none;
    uint32_t last = position - base;
    return (OpsSpan){first > base ? first - base : 0, last < OPS_POSITIONS - 1 ? last : OPS_POSITIONS - 1};
}

OPS_INLINE Vec ops_key_load(OpsSide k, uint32_t d, uint32_t p, const int source)
{
    size_t at = (size_t)d * OPS_POSITIONS + p;
    if (source == OPS_FLOATS) return ops_vec_load((const float *)k.data + at);
    if (source == OPS_HALVES) return OPS_VEC_FROM_F16((const uint16_t *)k.data + at);
    return ops_vec_load(k.scale + (size_t)(d / OPS_SCALE_DIMS) * OPS_POSITIONS + p) *
           OPS_VEC_FROM_BYTES((const int8_t *)k.data + at);
}

OPS_INLINE Vec ops_value_load(OpsSide v, size_t at, const int source)
{
    if (source == OPS_FLOATS) return ops_vec_load((const float *)v.data + at);
    if (source == OPS_HALVES) return OPS_VEC_FROM_F16((const uint16_t *)v.data + at);
    return ops_vec_all(v.scale[at / OPS_SCALE_DIMS]) * OPS_VEC_FROM_BYTES((const int8_t *)v.data + at);
}

/* What the memory should fetch while something else is computed: a kernel touches one line of it per line of its own.
 * The hardware would start anew at every block, and the arithmetic leaves it no time to get ahead. */
OPS_INLINE void ops_fetch(const uint8_t *ahead, size_t element, const int source)
{
    __builtin_prefetch(ahead + (source == OPS_HALVES ? 2 * element : element));
}

/* scores[i][p] = scale * sum over d of q[d][i] * k[d][p], for i < n and all p of the block. */
OPS_INLINE void ops_score_tile(OpsSide k, const float *q, uint32_t dim, float scale, float *scores,
                               const uint8_t *ahead, const int n, const int source)
{
    for (uint32_t p = 0; p < OPS_POSITIONS; p += OPS_SCORE_VECTORS * OPS_LANES) {
        Vec sum[OPS_TILE][OPS_SCORE_VECTORS] = {{{0}}};
        for (uint32_t d = 0; d < dim; d++) {
            Vec key[OPS_SCORE_VECTORS];
            OPS_UNROLL
            for (int v = 0; v < OPS_SCORE_VECTORS; v++)
                key[v] = ops_key_load(k, d, p + (uint32_t)v * OPS_LANES, source);
            OPS_UNROLL
            for (int v = 0; v < OPS_SCORE_VECTORS; v += 32 / OPS_LANES)
                ops_fetch(ahead, (size_t)d * OPS_POSITIONS + p + v * OPS_LANES, source);
            OPS_UNROLL
            for (int i = 0; i < n; i++) {
                Vec a = ops_vec_all(q[d * OPS_TILE + i]);
                OPS_UNROLL
                for (int v = 0; v < OPS_SCORE_VECTORS; v++) sum[i][v] = sum[i][v] + a * key[v];
            }
        }
        OPS_UNROLL
        for (int i = 0; i < n; i++) {
            OPS_UNROLL
            for (int v = 0; v < OPS_SCORE_VECTORS; v++)
                ops_vec_store(scores + i * OPS_POSITIONS + p + v * OPS_LANES, sum[i][v] * ops_vec_all(scale));
        }
    }
}

/* out[i][d] += weight[i][p] * v[p][d] for p = first..last in order, for `vectors` vectors of dims from `d`. */
OPS_INLINE void ops_value_columns(OpsSide values, const float *weights, uint32_t dim, uint32_t d,
                                  OpsSpan span, float *const *out, const uint8_t *ahead, const int n,
                                  const int source, const int vectors)
{
    Vec sum[OPS_TILE][OPS_VALUE_VECTORS];
    OPS_UNROLL
    for (int i = 0; i < n; i++) {
        OPS_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = ops_vec_load(out[i] + d + v * OPS_LANES);
    }
    for (uint32_t p = span.first; p <= span.last; p++) {
        Vec value[OPS_VALUE_VECTORS];
        OPS_UNROLL
        for (int v = 0; v < vectors; v++)
            value[v] = ops_value_load(values, (size_t)p * dim + d + (size_t)v * OPS_LANES, source);
        OPS_UNROLL
        for (int v = 0; v < vectors; v += 32 / OPS_LANES)
            ops_fetch(ahead, (size_t)p * dim + d + v * OPS_LANES, source);
        OPS_UNROLL
        for (int i = 0; i < n; i++) {
            Vec w = ops_vec_all(weights[i * OPS_POSITIONS + p]);
            OPS_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] = sum[i][v] + w * value[v];
        }
    }
    OPS_UNROLL
    for (int i = 0; i < n; i++) {
        OPS_UNROLL
        for (int v = 0; v < vectors; v++) ops_vec_store(out[i] + d + v * OPS_LANES, sum[i][v]);
    }
}

OPS_INLINE void ops_value_tile(OpsSide values, const float *weights, uint32_t dim, OpsSpan span,
                               float *const *out, const uint8_t *ahead, const int n, const int source)
{
    uint32_t d = 0;
    for (; d + OPS_VALUE_VECTORS * OPS_LANES <= dim; d += OPS_VALUE_VECTORS * OPS_LANES)
        ops_value_columns(values, weights, dim, d, span, out, ahead, n, source, OPS_VALUE_VECTORS);
    for (; d < dim; d += OPS_LANES) ops_value_columns(values, weights, dim, d, span, out, ahead, n, source, 1);
}

typedef void (*OpsScore)(OpsSide k, const float *q, uint32_t dim, float scale, float *scores,
                         const uint8_t *ahead);
typedef void (*OpsValue)(OpsSide values, const float *weights, uint32_t dim, OpsSpan span,
                         float *const *out, const uint8_t *ahead);

/* One function per number of queries and source, so that every inner loop is straight code over registers. */
#define OPS_INSTANCE(n, source)                                                                                \
    static void ops_score_##n##_##source(OpsSide k, const float *q, uint32_t dim, float scale,             \
                                         float *scores, const uint8_t *ahead)                                  \
    {                                                                                                          \
        ops_score_tile(k, q, dim, scale, scores, ahead, n, source);                                            \
    }                                                                                                          \
    static void ops_value_##n##_##source(OpsSide values, const float *weights, uint32_t dim, OpsSpan span, \
                                         float *const *out, const uint8_t *ahead)                              \
    {                                                                                                          \
        ops_value_tile(values, weights, dim, span, out, ahead, n, source);                                     \
    }
#ifdef OPS_READS_BYTES
#define OPS_INSTANCES(n) OPS_INSTANCE(n, 0) OPS_INSTANCE(n, 1) OPS_INSTANCE(n, 2)
#define OPS_ROWS(kind) OPS_ROW(kind, 0), OPS_ROW(kind, 1), OPS_ROW(kind, 2)
#else
#define OPS_INSTANCES(n) OPS_INSTANCE(n, 0) OPS_INSTANCE(n, 1)
#define OPS_ROWS(kind) OPS_ROW(kind, 0), OPS_ROW(kind, 1)
#endif
OPS_INSTANCES(1)
OPS_INSTANCES(2)
OPS_INSTANCES(3)
OPS_INSTANCES(4)
#if OPS_TILE > 4
OPS_INSTANCES(5)
OPS_INSTANCES(6)
#endif

#if OPS_TILE > 4
#define OPS_ROW(kind, source)                                                                           \
    {NULL,                    ops_##kind##_1_##source, ops_##kind##_2_##source, ops_##kind##_3_##source, \
     ops_##kind##_4_##source, ops_##kind##_5_##source, ops_##kind##_6_##source}
#else
#define OPS_ROW(kind, source) \
    {NULL, ops_##kind##_1_##source, ops_##kind##_2_##source, ops_##kind##_3_##source, ops_##kind##_4_##source}
#endif
static const OpsScore OPS_SCORE[OPS_SOURCES][OPS_TILE + 1] = {OPS_ROWS(score)};
static const OpsValue OPS_VALUE[OPS_SOURCES][OPS_TILE + 1] = {OPS_ROWS(value)};

static float *ops_attention_out(const OpsAttention *a, uint32_t query)
{
    const AttentionRows *job = a->job;
    return job->row.out + query / a->group * job->out_stride + (size_t)(query % a->group) * a->dim;
}

static void ops_attention_start(OpsAttention *a)
{
    const AttentionRows *job = a->job;
    for (uint32_t i = 0; i < a->queries; i++) {
        const float *q = job->row.q + i / a->group * job->q_stride + (size_t)(i % a->group) * a->dim;
        float *packed = a->packed + (size_t)(i / a->tile) * a->dim * OPS_TILE + i % a->tile;
        for (uint32_t d = 0; d < a->dim; d++) packed[d * OPS_TILE] = q[d];
        memset(ops_attention_out(a, i), 0, a->dim * sizeof(float));
        a->m[i] = -__builtin_inff();
        a->l[i] = 0;
    }
}

/* Scores to weights of one query: the maximum so far, what it does to what was summed before, the sum. */
static void ops_attention_soften(OpsAttention *a, uint32_t query, OpsSpan span)
{
    float *w = a->weights + (size_t)query * OPS_POSITIONS, lane[OPS_SUM_LANES], position[OPS_LANES];
    const Vec nothing = ops_vec_all(-__builtin_inff());
    Vec most = nothing, sum[OPS_SUM_VECTORS] = {{0}};
    for (int j = 0; j < OPS_LANES; j++) position[j] = (float)j;
    for (uint32_t p = 0; p < OPS_POSITIONS; p += OPS_LANES) {
        Vec at = ops_vec_load(position) + ops_vec_all((float)p);
        VecInt seen =
            (VecInt)(at >= ops_vec_all((float)span.first)) & (VecInt)(at <= ops_vec_all((float)span.last));
        Vec s = ops_vec_pick(seen, ops_vec_load(w + p), nothing);
        ops_vec_store(w + p, s);
        most = ops_vec_max(s, most);
    }
    float m = a->m[query], before = m;
    ops_vec_store(lane, most);
    for (int j = 0; j < OPS_LANES; j++) m = lane[j] > m ? lane[j] : m;
    for (uint32_t p = 0; p < OPS_POSITIONS; p += OPS_SUM_LANES) {
        OPS_UNROLL
        for (int v = 0; v < OPS_SUM_VECTORS; v++) {
            Vec e = ops_vec_exp(ops_vec_load(w + p + v * OPS_LANES) - ops_vec_all(m));
            ops_vec_store(w + p + v * OPS_LANES, e);
            sum[v] = sum[v] + e;
        }
    }
    for (int v = 0; v < OPS_SUM_VECTORS; v++) ops_vec_store(lane + v * OPS_LANES, sum[v]);
    Vec correction = before == m ? ops_vec_all(1.0f) : ops_vec_exp(ops_vec_all(before - m));
    a->correction[query] = correction[0];
    a->l[query] = a->l[query] * correction[0] + ops_sum_tree(lane);
    a->m[query] = m;
}

static void ops_attention_correct(OpsAttention *a, uint32_t query)
{
    float c = a->correction[query], *out = ops_attention_out(a, query);
    if (c == 1.0f) return;
    for (uint32_t d = 0; d < a->dim; d += OPS_LANES)
        ops_vec_store(out + d, ops_vec_load(out + d) * ops_vec_all(c));
}

/* Values into a tile's outputs. What all of its queries see goes together; ragged ends, which only neighbouring rows
 * and windows have, go query by query, still in order of positions. */
static void ops_attention_values(OpsAttention *a, uint32_t first, uint32_t n, uint32_t block,
                                 OpsSide values, int source, const uint8_t *ahead)
{
    OpsSpan span[OPS_TILE], all = {0, OPS_POSITIONS - 1};
    float *out[OPS_TILE];
    const float *w = a->weights + (size_t)first * OPS_POSITIONS;
    for (uint32_t i = 0; i < n; i++) {
        span[i] = ops_attention_span(a->job, (first + i) / a->group, block);
        out[i] = ops_attention_out(a, first + i);
        if (span[i].first > all.first) all.first = span[i].first;
        if (span[i].last < all.last) all.last = span[i].last;
    }
    if (all.first > all.last) { /* nothing in common */
        for (uint32_t i = 0; i < n; i++)
            if (span[i].first <= span[i].last)
                OPS_VALUE[source][1](values, w + i * OPS_POSITIONS, a->dim, span[i], &out[i], ahead);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (span[i].first < all.first)
            OPS_VALUE[source][1](values, w + i * OPS_POSITIONS, a->dim, (OpsSpan){span[i].first, all.first - 1},
                                 &out[i], ahead);
    OPS_VALUE[source][n](values, w, a->dim, all, out, ahead);
    for (uint32_t i = 0; i < n; i++)
        if (span[i].last > all.last)
            OPS_VALUE[source][1](values, w + i * OPS_POSITIONS, a->dim, (OpsSpan){all.last + 1, span[i].last},
                                 &out[i], ahead);
}

/* The queries that see anything of a block: rows' spans rise with the row, so they are neighbours. */
static OpsSpan ops_attention_active(const OpsAttention *a, uint32_t block)
{
    uint32_t first = 0, last = a->job->rows - 1;
    while (first < last) {
        OpsSpan s = ops_attention_span(a->job, first, block);
        if (s.first <= s.last) break;
        first++;
    }
    while (last > first) {
        OpsSpan s = ops_attention_span(a->job, last, block);
        if (s.first <= s.last) break;
        last--;
    }
    return (OpsSpan){first * a->group, (last + 1) * a->group - 1};
}

static OpsSide ops_attention_keys(OpsAttention *a, const OpsBlock *b, int source)
{
    if (source != OPS_FLOATS) return (OpsSide){b->k, b->k_scale};
    if (a->job->row.cache == CACHE_F16)
        ops_cache_expand_f16(b->k, a->expanded, (size_t)a->dim * OPS_POSITIONS);
    else
        ops_cache_expand_k8(b->k, b->k_scale, a->expanded, a->dim);
    return (OpsSide){a->expanded, NULL};
}

static OpsSide ops_attention_block_values(OpsAttention *a, const OpsBlock *b, int source, OpsSpan seen)
{
    if (source != OPS_FLOATS) return (OpsSide){b->v, b->v_scale};
    size_t at = (size_t)seen.first * a->dim, count = (size_t)(seen.last + 1 - seen.first) * a->dim;
    if (a->job->row.cache == CACHE_F16)
        ops_cache_expand_f16(b->v + 2 * at, a->expanded + at, count);
    else
        ops_cache_expand_v8(b->v, b->v_scale, a->expanded, a->dim, seen.first, seen.last);
    return (OpsSide){a->expanded, NULL};
}

static void ops_attention_block(OpsAttention *a, uint32_t block)
{
    const AttentionJob *row = &a->job->row;
    OpsBlock b = ops_cache_block(row->cache, row->blocks[block], row->kv_heads, row->kv_head, a->dim);
    uint32_t after = block < a->block_last ? block + 1 : block;
    OpsBlock next = ops_cache_block(row->cache, row->blocks[after], row->kv_heads, row->kv_head, a->dim);
    int source = OPS_FLOATS; /* pays once a block is read by more than two tiles */
    if (row->cache == CACHE_F16 && a->queries <= 2 * OPS_TILE) source = OPS_HALVES;
    if (row->cache == CACHE_Q8_0 && a->queries <= OPS_TILE) source = OPS_BYTES;
    OpsSpan active = ops_attention_active(a, block);
    uint32_t tile_first = active.first / a->tile, tile_last = active.last / a->tile;
    OpsSide keys = ops_attention_keys(a, &b, source);
    for (uint32_t t = tile_first; t <= tile_last; t++) {
        uint32_t first = t * a->tile, n = a->queries - first < a->tile ? a->queries - first : a->tile;
        OPS_SCORE[source][n](keys, a->packed + (size_t)t * a->dim * OPS_TILE, a->dim, row->scale,
                             a->weights + (size_t)first * OPS_POSITIONS, b.v);
    }
    OpsSpan seen = {OPS_POSITIONS, 0};
    for (uint32_t i = active.first; i <= active.last; i++) {
        OpsSpan span = ops_attention_span(a->job, i / a->group, block);
        if (span.first < seen.first) seen.first = span.first;
        if (span.last > seen.last) seen.last = span.last;
        ops_attention_soften(a, i, span);
        ops_attention_correct(a, i);
    }
    OpsSide values = ops_attention_block_values(a, &b, source, seen);
    for (uint32_t t = tile_first; t <= tile_last; t++) {
        uint32_t first = t * a->tile, n = a->queries - first < a->tile ? a->queries - first : a->tile;
        ops_attention_values(a, first, n, block, values, source, next.k);
    }
}

static void ops_attention_rows(const AttentionRows *job)
{
    OpsAttention a = {.job = job, .group = job->row.group_heads, .dim = job->row.head_dim};
    a.queries = a.group * job->rows;
    uint32_t tiles = (a.queries + OPS_TILE - 1) / OPS_TILE;
    a.tile = (a.queries + tiles - 1) / tiles; /* 7 queries are 4 and 3, not 6 and 1 */
    a.expanded = job->row.scratch;
    a.packed = a.expanded + (size_t)OPS_POSITIONS * a.dim;
    a.weights = a.packed + (size_t)tiles * a.dim * OPS_TILE;
    a.m = a.weights + (size_t)a.queries * OPS_POSITIONS;
    a.l = a.m + a.queries;
    a.correction = a.l + a.queries;
    ops_attention_start(&a);
    a.block_last = (job->row.position + job->rows - 1) / OPS_POSITIONS;
    for (uint32_t b = job->row.position_first / OPS_POSITIONS; b <= a.block_last; b++)
        ops_attention_block(&a, b);
    for (uint32_t i = 0; i < a.queries; i++) {
        float *out = ops_attention_out(&a, i);
        for (uint32_t d = 0; d < a.dim; d += OPS_LANES)
            ops_vec_store(out + d, ops_vec_load(out + d) / ops_vec_all(a.l[i]));
    }
}

static void ops_attention(const AttentionJob *job)
{
    AttentionRows rows = {.row = *job, .rows = 1};
    ops_attention_rows(&rows);
}

#endif
#endif
