/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a station, phase by phase, over the rows of a frame.
 *
 *   attn       h = norm(x);  q k v = W h + b;  rope;  cache;  attended = attention;  x += norm?(Wo attended)
 *   ffn_gate   g = Wg norm(x)
 *   ffn_up     g = act(g) * (Wu norm(x))
 *   ffn_down   x += norm?(Wd g)
 *
 * Work is fanned out over rows (norms, quantization), over groups of rows x kv head (attention) or
 * over weight panels (products); every item writes its own floats only. */
#include "cluster/station_state.h"

#include <string.h>

static float *work_row(const Station *s, uint32_t row)
{
    return s->b.work + (size_t)row * s->b.work_stride;
}
static float *x_row(const Station *s, uint32_t row)
{
    return s->frame.x + (size_t)row * s->config.hyper->hidden;
}
static float *g_row(const Station *s, uint32_t row)
{
    return s->frame.g + (size_t)row * s->config.hyper->ffn;
}
static bool is_local(const Station *s)
{
    return hyper_layer_is_local(s->config.hyper, phase_layer(s->phase));
}

/* --- Rope --- */

static void rope_row(void *argument, uint32_t row, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    for (int t = 0; t < 2; t++)
        if (s->b.cosine[t])
            ops_rope_position(s->frequencies[t], s->rotated, s->magnitude[t],
                              s->b.row_position[row], s->b.cosine[t] + (size_t)row * s->rotated,
                              s->b.sine[t] + (size_t)row * s->rotated);
}

void station_compute_rope(Station *s, const Parallel *parallel)
{
    if (!s->rope_ready) { /* the factors are part of the floor, so they arrive after building */
        ops_rope_frequencies(s->config.hyper, false, s->rope_factors, s->frequencies[0],
                             &s->magnitude[0]);
        ops_rope_frequencies(s->config.hyper, true, NULL, s->frequencies[1], &s->magnitude[1]);
        s->rope_ready = true;
    }
    parallel_run(parallel, rope_row, s, s->frame.rows);
}

/* --- Inputs of a matrix --- */

/* A stretch of a row of g: rows as wide as the FFN are shared out, so that one row keeps every
 * worker busy. */
typedef struct StationPart {
    uint32_t row, first, count;
} StationPart;

static StationPart station_part(const Station *s, uint32_t item)
{
    uint32_t row = item / s->b.parts, first = item % s->b.parts * STATION_PART_COLUMNS;
    uint32_t left = s->config.hyper->ffn - first;
    return (StationPart){row, first, left < STATION_PART_COLUMNS ? left : STATION_PART_COLUMNS};
}

/* The float row that the current matrix multiplies; norms go through the worker's own buffer. */
static const float *input_row(Station *s, uint32_t row, uint32_t worker)
{
    const Hyper *h = s->config.hyper;
    Phase phase = phase_of(s->phase);
    if (phase == PHASE_FFN_DOWN) return g_row(s, row);
    if (phase == PHASE_ATTN && s->matrix == MATRIX_OUTPUT)
        return work_row(s, row) + s->b.at_attended;
    float *normed = s->b.normed + (size_t)worker * h->hidden;
    const float *weight =
        phase == PHASE_ATTN ? station_layer(s)->attn_norm : station_layer(s)->ffn_norm;
    s->config.ops->rms_norm(x_row(s, row), weight, h->hidden, h->norm_epsilon, normed);
    return normed;
}

static uint8_t *activation_row(const Station *s, uint32_t row)
{
    return s->b.activations + (size_t)row * s->b.activation_stride;
}

static void quantize_row(void *argument, uint32_t row, uint32_t worker)
{
    Station *s = argument;
    uint32_t cols = station_plan(s)->matrix[s->matrix].cols;
    s->config.kernels->quantize[s->form](input_row(s, row, worker), cols, activation_row(s, row));
}

/* One part of a row of g: blocks are quantized on their own, and a part is whole blocks and whole
 * units of memory. */
static void quantize_part(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    StationPart part = station_part(s, item);
    size_t offset =
        part.first ? kernels_activation_row_bytes((ActivationForm)s->form, part.first) : 0;
    s->config.kernels->quantize[s->form](g_row(s, part.row) + part.first, part.count,
                                         activation_row(s, part.row) + offset);
}

/* What the quantized row missed: x - restored, into the worker's second buffer, quantized in its
 * turn. */
static void residual_input_row(void *argument, uint32_t row, uint32_t worker)
{
    Station *s = argument;
    uint32_t cols = station_plan(s)->matrix[s->matrix].cols;
    const float *x = input_row(s, row, worker);
    float *missed = s->b.missed + (size_t)worker * s->config.hyper->hidden;
    kernels_activation_restore((ActivationForm)s->form, activation_row(s, row), cols, missed);
    for (uint32_t i = 0; i < cols; i++) missed[i] = x[i] - missed[i];
    s->config.kernels->quantize[s->form](missed, cols, activation_row(s, s->frame.rows + row));
}

/* q, k and v have the same input, gate and up are phases of their own. */
static bool input_changes(const Station *s)
{
    return s->matrix == 0 || (phase_of(s->phase) == PHASE_ATTN && s->matrix == MATRIX_OUTPUT);
}

static void quantize_input(Station *s, const PhaseMatrix *m, const Parallel *parallel)
{
    if (s->row > 0) return;
    int form = (int)kernels_activation_form(m->weight->type);
    bool residual = station_wants_residual(phase_of(s->phase), s->matrix);
    if (form != s->form || input_changes(s)) {
        s->form = form;
        s->has_residual = false;
        s->b.activation_stride = kernels_activation_row_bytes((ActivationForm)form, m->cols);
        bool wide = phase_of(s->phase) == PHASE_FFN_DOWN;
        parallel_run(parallel, wide ? quantize_part : quantize_row, s,
                     s->frame.rows * (wide ? s->b.parts : 1));
    }
    if (residual && !s->has_residual) parallel_run(parallel, residual_input_row, s, s->frame.rows);
    s->has_residual |= residual;
}

/* --- Products --- */

static float *product_place(Station *s, size_t *stride)
{
    *stride = s->b.work_stride;
    switch (phase_of(s->phase)) {
    case PHASE_ATTN:
        if (s->matrix == MATRIX_K) return s->b.work + s->b.at_k;
        if (s->matrix == MATRIX_V) return s->b.work + s->b.at_v;
        return s->b.work;
    case PHASE_FFN_GATE: *stride = s->config.hyper->ffn; return s->frame.g;
    default: return s->b.work;
    }
}

/* place += W residual, by way of the attended heads' place, which is free until q, k and v are
 * complete. */
static void add_residual_product(Station *s, MatmulTile *job, const Parallel *parallel)
{
    float *place = job->out, *product = s->b.work + s->b.at_attended;
    job->activations = activation_row(s, s->frame.rows);
    job->out = product;
    kernels_matmul(s->config.kernels, job, parallel);
    for (uint32_t r = 0; r < s->frame.rows; r++)
        s->config.ops->add(place + r * job->out_stride, product + r * job->out_stride,
                           job->row_count);
}

static void bias_row(void *argument, uint32_t row, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    size_t stride;
    float *place = product_place(s, &stride);
    const float *bias = station_layer(s)->bias[phase_of(s->phase)][s->matrix];
    s->config.ops->add(place + row * stride + s->row, bias + s->row, s->tile_rows);
}

void station_compute_tile(Station *s, const uint8_t *tile, uint32_t row_count,
                          const Parallel *parallel)
{
    const PhaseMatrix *m = &station_plan(s)->matrix[s->matrix];
    quantize_input(s, m, parallel);
    size_t stride;
    float *place = product_place(s, &stride);
    MatmulTile job = {
        .type = m->weight->type,
        .layout = m->weight->layout,
        .cols = m->cols,
        .tile = tile,
        .row_first = s->row,
        .row_count = row_count,
        .activations = s->b.activations,
        .activation_stride = s->b.activation_stride,
        .tokens = s->frame.rows,
        .out = place + s->row,
        .out_stride = stride,
        .scratch = s->b.panel,
        .scratch_bytes_per_worker = s->b.panel_bytes,
    };
    kernels_matmul(s->config.kernels, &job, parallel);
    if (s->has_residual && station_wants_residual(phase_of(s->phase), s->matrix))
        add_residual_product(s, &job, parallel);
    s->tile_rows = row_count;
    if (station_layer(s)->bias[phase_of(s->phase)][s->matrix])
        parallel_run(parallel, bias_row, s, s->frame.rows);
}

/* Looks at the verdicts that the items of a step left per row. */
static Error check_finite(const Station *s, uint32_t parts, Why *why)
{
    const PhasePlan *plan = &s->phases[s->phase - s->config.range.first];
    for (uint32_t i = 0; i < s->frame.rows * parts; i++)
        if (!s->b.finite[i])
            return error_why(
                why, ERR_NOT_FINITE,
                "layer %u, phase %s, tensor %s: a number is not finite, or too large for the cache, at position %u",
                phase_layer(s->phase), phase_name(phase_of(s->phase)),
                plan->matrix[s->matrix].weight->name, s->b.row_position[i / parts]);
    return OK;
}

/* --- Attention --- */

static void heads_norm_and_rope(Station *s, float *heads, uint32_t count, const float *norm,
                                const float *cosine, const float *sine)
{
    const Hyper *h = s->config.hyper;
    for (uint32_t i = 0; i < count; i++) {
        float *head = heads + (size_t)i * h->head_dim;
        if (norm) s->config.ops->rms_norm(head, norm, h->head_dim, h->norm_epsilon, head);
        s->config.ops->rope(h->rope_kind, head, cosine, sine, h->rope_dim);
    }
}

static void rotate_row(void *argument, uint32_t row, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    const Hyper *h = s->config.hyper;
    int table = is_local(s);
    const float *cosine = s->b.cosine[table] + (size_t)row * s->rotated;
    const float *sine = s->b.sine[table] + (size_t)row * s->rotated;
    float *q = work_row(s, row);
    heads_norm_and_rope(s, q, h->heads, station_layer(s)->q_norm, cosine, sine);
    heads_norm_and_rope(s, q + s->b.at_k, h->kv_heads, station_layer(s)->k_norm, cosine, sine);
}

/* All rows of one sequence: two rows of one block share cache lines, so a sequence is one item. */
static void store_sequence(void *argument, uint32_t sequence, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    const Hyper *h = s->config.hyper;
    const StationSequence *q = &s->frame.sequences[sequence];
    uint32_t layer = phase_layer(s->phase) - s->attn_first;
    for (uint32_t i = 0; i < q->rows; i++) {
        uint32_t position = q->position + i, row = s->b.sequence_row[sequence] + i;
        const float *work = work_row(s, row);
        uint8_t *block =
            cache_block(&s->cache, q->session, position / CACHE_BLOCK_POSITIONS, layer);
        s->b.finite[row] = s->config.ops->cache_store(
            s->config.cache, block, position % CACHE_BLOCK_POSITIONS, h->kv_heads, h->head_dim,
            work + s->b.at_k, work + s->b.at_v);
    }
}

static void list_blocks(Station *s)
{
    uint32_t layer = phase_layer(s->phase) - s->attn_first, at = 0;
    for (uint32_t i = 0; i < s->frame.sequence_count; i++) {
        const StationSequence *q = &s->frame.sequences[i];
        s->b.sequence_block[i] = at;
        uint32_t blocks = cache_blocks_for(q->position + q->rows);
        for (uint32_t b = 0; b < blocks; b++)
            s->b.blocks[at++] = cache_block(&s->cache, q->session, b, layer);
    }
}

/* One kv head for one group of rows. */
static void attend(void *argument, uint32_t item, uint32_t worker)
{
    Station *s = argument;
    const Hyper *h = s->config.hyper;
    uint32_t group = item / h->kv_heads, kv_head = item % h->kv_heads,
             heads = h->heads / h->kv_heads;
    uint32_t row = s->b.group_row[group], position = s->b.row_position[row];
    float *work = work_row(s, row);
    size_t first = (size_t)kv_head * heads * h->head_dim;
    uint32_t window = is_local(s) ? h->window : 0;
    AttentionRows job = {
        .row =
            {
                .q = work + first,
                .group_heads = heads,
                .kv_head = kv_head,
                .kv_heads = h->kv_heads,
                .head_dim = h->head_dim,
                .blocks = s->b.blocks + s->b.sequence_block[s->b.row_sequence[row]],
                .position_first = window && position >= window ? position - window + 1 : 0,
                .position = position,
                .scale = h->attention_scale,
                .cache = s->config.cache,
                .out = work + s->b.at_attended + first,
                .scratch = s->b.attention + worker * s->b.attention_floats,
            },
        .rows = s->b.group_row[group + 1] - row,
        .window = window,
        .q_stride = s->b.work_stride,
        .out_stride = s->b.work_stride,
    };
    s->config.ops->attention_rows(&job);
}

void station_compute_groups(Station *s)
{
    s->b.groups = 0;
    for (uint32_t row = 0; row < s->frame.rows; row++) {
        bool follows = row > 0 && s->b.row_sequence[row] == s->b.row_sequence[row - 1] &&
                       s->b.row_position[row] == s->b.row_position[row - 1] + 1;
        if (!follows || row - s->b.group_row[s->b.groups - 1] == OPS_ATTENTION_ROWS_MAX)
            s->b.group_row[s->b.groups++] = row;
    }
    s->b.group_row[s->b.groups] = s->frame.rows;
}

/* In the last layer, once every key and value is stored: the rows that nobody asked for end
 * here. */
static void drop_unwanted(Station *s)
{
    const Hyper *h = s->config.hyper;
    if (!s->frame.wanted || !station_drops_unwanted(s) || phase_layer(s->phase) + 1 < h->layers)
        return;
    for (uint32_t i = 0; i < s->frame.wanted_count; i++) {
        uint32_t row = s->frame.wanted[i]; /* at or after i, since they ascend */
        if (row == i) continue;
        memcpy(x_row(s, i), x_row(s, row), h->hidden * sizeof(float));
        memcpy(work_row(s, i), work_row(s, row), h->heads * h->head_dim * sizeof(float));
        s->b.row_sequence[i] = s->b.row_sequence[row];
        s->b.row_position[i] = s->b.row_position[row];
    }
    s->frame.rows = s->frame.wanted_count;
    station_compute_groups(s);
}

static Error attention_all(Station *s, const Parallel *parallel, Why *why)
{
    parallel_run(parallel, rotate_row, s, s->frame.rows);
    parallel_run(parallel, store_sequence, s, s->frame.sequence_count);
    TRY(check_finite(s, 1, why));
    list_blocks(s);
    drop_unwanted(s);
    parallel_run(parallel, attend, s, s->b.groups * s->config.hyper->kv_heads);
    return OK;
}

/* --- Ends of matrices --- */

/* x += product, through the post norm where the model has one. */
static void residual_row(void *argument, uint32_t row, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    const Hyper *h = s->config.hyper;
    float *product = work_row(s, row), *x = x_row(s, row);
    const float *norm = phase_of(s->phase) == PHASE_ATTN ? station_layer(s)->post_attn_norm
                                                         : station_layer(s)->post_ffn_norm;
    if (norm) s->config.ops->rms_norm(product, norm, h->hidden, h->norm_epsilon, product);
    s->config.ops->add(x, product, h->hidden);
    s->b.finite[row] = s->config.ops->all_finite(x, h->hidden);
}

static void gate_part(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    Station *s = argument;
    const Hyper *h = s->config.hyper;
    StationPart part = station_part(s, item);
    float *g = g_row(s, part.row) + part.first;
    if (phase_of(s->phase) == PHASE_FFN_UP)
        s->config.ops->gate(h->gate, g, work_row(s, part.row) + part.first, part.count);
    s->b.finite[item] = s->config.ops->all_finite(g, part.count);
}

Error station_compute_matrix_end(Station *s, const Parallel *parallel, Why *why)
{
    Phase phase = phase_of(s->phase);
    if (phase == PHASE_ATTN && s->matrix != MATRIX_OUTPUT) {
        return s->matrix == MATRIX_V ? attention_all(s, parallel, why) : OK;
    }
    bool ffn = phase == PHASE_FFN_GATE || phase == PHASE_FFN_UP;
    uint32_t parts = ffn ? s->b.parts : 1;
    parallel_run(parallel, ffn ? gate_part : residual_row, s, s->frame.rows * parts);
    return check_finite(s, parts, why);
}
