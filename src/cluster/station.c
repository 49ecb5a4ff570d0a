/* SPDX-License-Identifier: Apache-2.0 */
/* Building a station, checking its frames, and the order of its wishes. The arithmetic is in
 * station_compute.c. */
#include "cluster/station_state.h"

#include "base/max.h"

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static uint32_t layer_first_of(const StationConfig *c) { return phase_layer(c->range.first); }
static uint32_t layer_last_of(const StationConfig *c)
{
    return (c->range.last + PHASES - 1) / PHASES;
}
static uint32_t attn_layers(const StationConfig *c)
{
    return layer_last_of(c) - (c->range.first + PHASES - 1) / PHASES;
}

static CacheConfig cache_config(const StationConfig *c)
{
    return (CacheConfig){c->cache,  attn_layers(c),  c->hyper->kv_heads, c->hyper->head_dim,
                         c->blocks, c->sessions_max, c->context};
}

static Error check_config(const StationConfig *c, Why *why)
{
    if (c->range.first >= c->range.last || c->range.last > c->hyper->layers * PHASES)
        return error_why(why, ERR_RANGE, "phases %u to %u are not a range of this model",
                         c->range.first, c->range.last);
    if (!c->rows_max || c->rows_max > STATION_ROWS_MAX)
        return error_why(why, ERR_RANGE, "a chunk of %u rows; 1 to %u are possible", c->rows_max,
                         STATION_ROWS_MAX);
    if (!c->sessions_max || c->sessions_max > STATION_SESSIONS_MAX)
        return error_why(why, ERR_RANGE, "%u sessions; 1 to %u are possible", c->sessions_max,
                         STATION_SESSIONS_MAX);
    if (!c->context || c->context > STATION_CONTEXT_MAX)
        return error_why(why, ERR_RANGE, "a context of %u; 1 to %u are possible", c->context,
                         STATION_CONTEXT_MAX);
    if (!ops_cache_block_bytes(c->cache, c->hyper->kv_heads, c->hyper->head_dim))
        return error_why(why, ERR_SHAPE, "heads of %u do not fit the cache type",
                         c->hyper->head_dim);
    if (!c->workers || c->workers > PARALLEL_WORKERS_MAX)
        return error_why(why, ERR_RANGE, "%u threads; 1 to %u are possible", c->workers,
                         PARALLEL_WORKERS_MAX);
    return OK;
}

/* --- The floor: vectors that stay resident --- */

/* Without an arena only counts bytes; with one also places the vectors. */
typedef struct FloorSum {
    Arena *arena;
    FloorTensor *list; /* NULL while counting */
    uint32_t count;
    uint64_t bytes;
    Error error;
} FloorSum;

static float *floor_add(FloorSum *sum, const KnotTensor *tensor)
{
    if (!tensor) return NULL;
    sum->bytes += arena_bytes((size_t)tensor->cols * sizeof(float));
    float *to = NULL;
    if (sum->list) {
        to = ARENA_NEW(sum->arena, float, tensor->cols);
        if (!to) sum->error = ERR_MEMORY;
        sum->list[sum->count] = (FloorTensor){tensor, to};
    }
    sum->count++;
    return to;
}

static Error floor_layer(const StationConfig *c, uint32_t layer, FloorSum *sum, LayerFloor *out,
                         Why *why)
{
    LayerNorms norms;
    TRY(phase_layer_norms(c->knot, c->hyper, layer, &norms, why));
    PhaseBound base = phase_bound(layer, PHASE_ATTN);
    bool attn = base >= c->range.first && base < c->range.last;
    bool down = base + PHASE_FFN_DOWN >= c->range.first && base + PHASE_FFN_DOWN < c->range.last;
    if (attn) {
        out->attn_norm = floor_add(sum, norms.attn);
        out->q_norm = floor_add(sum, norms.q);
        out->k_norm = floor_add(sum, norms.k);
        out->post_attn_norm = floor_add(sum, norms.post_attn);
    }
    out->ffn_norm = floor_add(sum, norms.ffn);
    if (down) out->post_ffn_norm = floor_add(sum, norms.post_ffn);
    return sum->error;
}

static Error floor_biases(const PhasePlan *plan, PhaseBound phase, FloorSum *sum, LayerFloor *out)
{
    for (uint32_t m = 0; m < plan->count; m++)
        out->bias[phase_of(phase)][m] = floor_add(sum, plan->matrix[m].bias);
    return sum->error;
}

/* The exit station's; NULL for the others. */
static Error output_norm_of(const StationConfig *c, const KnotTensor **out, Why *why)
{
    *out = NULL;
    if (c->range.last < c->hyper->layers * PHASES) return OK;
    const KnotTensor *t = knot_find(c->knot, "output_norm_weight");
    if (!t) return error_why(why, ERR_MISSING_TENSOR, "output_norm_weight is missing");
    if (t->rows != 1 || t->cols != c->hyper->hidden)
        return error_why(why, ERR_SHAPE, "output_norm_weight has %u x %u elements; %u are needed",
                         t->rows, t->cols, c->hyper->hidden);
    *out = t;
    return OK;
}

static Error phase_plan(const StationConfig *c, PhaseBound phase, PhasePlan *out, Why *why)
{
    *out = (PhasePlan){0};
    TRY(phase_matrices(c->knot, c->hyper, phase_layer(phase), phase_of(phase), out->matrix,
                       &out->count, why));
    for (uint32_t m = 0; m < out->count; m++) out->bytes += out->matrix[m].weight->bytes;
    return OK;
}

/* --- Sizes --- */

/* What the widest matrix of the range asks of the buffers. */
typedef struct Widths {
    size_t activation, panel;
    uint64_t panel_tile, weights;
} Widths;

static Error widths_of(const StationConfig *c, Widths *w, Why *why)
{
    *w = (Widths){0};
    for (PhaseBound p = c->range.first; p < c->range.last; p++) {
        PhasePlan plan;
        TRY(phase_plan(c, p, &plan, why));
        w->weights += plan.bytes;
        for (uint32_t m = 0; m < plan.count; m++) {
            const KnotTensor *t = plan.matrix[m].weight;
            uint64_t panel;
            TRY(layout_panel_bytes(t->type, t->cols, &panel, why));
            if (panel > w->panel_tile) w->panel_tile = panel;
            w->panel =
                max_size(w->panel, kernels_matmul_scratch_bytes(t->type, t->layout, t->cols));
            size_t row = kernels_activation_row_bytes(kernels_activation_form(t->type), t->cols);
            if (!row)
                return error_why(why, ERR_SHAPE, "%s: %u columns do not fit its type", t->name,
                                 t->cols);
            bool residual = station_wants_residual(phase_of(p), m);
            w->activation = max_size(w->activation, residual ? 2 * row : row);
        }
    }
    return OK;
}

static bool has_local_layers(const Hyper *h) { return h->window && h->window_pattern; }

/* Takes every buffer from `arena`; with a NULL arena only sums. Returns the bytes. */
static uint64_t buffers_take(const StationConfig *c, const Widths *w, Arena *arena,
                             StationBuffers *b)
{
    const Hyper *h = c->hyper;
    uint32_t rows = c->rows_max, heads = h->heads * h->head_dim, kv = h->kv_heads * h->head_dim;
    *b = (StationBuffers){.panel_bytes = w->panel};
    b->at_k = max_u32(heads, h->hidden);
    b->at_v = b->at_k + kv;
    b->at_attended = b->at_v + kv;
    b->parts = (h->ffn + STATION_PART_COLUMNS - 1) / STATION_PART_COLUMNS;
    b->work_stride = max_u32(b->at_attended + heads, h->ffn);
    uint32_t together = rows < OPS_ATTENTION_ROWS_MAX ? rows : OPS_ATTENTION_ROWS_MAX;
    b->attention_floats =
        ops_attention_rows_scratch_floats(together, h->heads / h->kv_heads, h->head_dim);
    uint32_t half = h->rope_dim / 2, tables = has_local_layers(h) ? 2 : 1;
    uint64_t sum = 0;
#define TAKE(field, type, count)                                                     \
    do {                                                                             \
        sum += arena_bytes((size_t)(count) * sizeof(type));                          \
        if (arena) b->field = arena_take_raw(arena, (size_t)(count) * sizeof(type)); \
    } while (0)
    TAKE(activations, uint8_t, (size_t)rows * w->activation);
    TAKE(work, float, rows * b->work_stride);
    for (uint32_t i = 0; i < tables; i++) {
        TAKE(cosine[i], float, (size_t)rows *half);
        TAKE(sine[i], float, (size_t)rows *half);
    }
    TAKE(blocks, const uint8_t *, c->blocks + rows);
    TAKE(row_sequence, uint32_t, rows);
    TAKE(row_position, uint32_t, rows);
    TAKE(sequence_row, uint32_t, rows);
    TAKE(sequence_block, uint32_t, rows);
    TAKE(group_row, uint32_t, rows + 1);
    TAKE(finite, uint8_t, (size_t)rows * b->parts);
    TAKE(normed, float, (size_t)c->workers * h->hidden);
    TAKE(missed, float, (size_t)c->workers * h->hidden);
    TAKE(attention, float, (size_t)c->workers * b->attention_floats);
    TAKE(panel, uint8_t, (size_t)c->workers * w->panel);
#undef TAKE
    return sum + ARENA_ALIGN;
}

static Error floor_sum(const StationConfig *c, FloorSum *sum, Why *why)
{
    for (uint32_t l = layer_first_of(c); l < layer_last_of(c); l++) {
        LayerFloor ignored = {0};
        TRY(floor_layer(c, l, sum, &ignored, why));
    }
    for (PhaseBound p = c->range.first; p < c->range.last; p++) {
        PhasePlan plan;
        LayerFloor ignored = {0};
        TRY(phase_plan(c, p, &plan, why));
        TRY(floor_biases(&plan, p, sum, &ignored));
    }
    floor_add(sum, knot_find(c->knot, "rope_freqs_weight"));
    const KnotTensor *norm;
    TRY(output_norm_of(c, &norm, why));
    floor_add(sum, norm);
    return OK;
}

Error station_sizes(const StationConfig *c, StationSizes *out, Why *why)
{
    TRY(check_config(c, why));
    Widths w;
    TRY(widths_of(c, &w, why));
    FloorSum floor = {0};
    TRY(floor_sum(c, &floor, why));
    CacheConfig cache = cache_config(c);
    StationBuffers unused;
    uint32_t layers = layer_last_of(c) - layer_first_of(c), phases = c->range.last - c->range.first;
    *out = (StationSizes){
        .floor_bytes = floor.bytes + arena_bytes(sizeof(Station)) +
                       arena_bytes(layers * sizeof(LayerFloor)) +
                       arena_bytes(phases * sizeof(PhasePlan)) +
                       arena_bytes(floor.count * sizeof(FloorTensor)) +
                       2 * arena_bytes(c->hyper->rope_dim / 2 * sizeof(double)) +
                       arena_bytes(c->sessions_max * sizeof(uint32_t)) + cache_table_bytes(&cache) +
                       ARENA_ALIGN,
        .cache_bytes = cache_memory_bytes(&cache),
        .scratch_bytes = buffers_take(c, &w, NULL, &unused),
        .widest_panel_bytes = w.panel_tile,
        .weight_bytes = w.weights,
    };
    return OK;
}

/* --- Building --- */

static Error build_floor(Station *s, Arena *arena, Why *why)
{
    const StationConfig *c = &s->config;
    FloorSum count = {0};
    TRY(floor_sum(c, &count, why));
    s->floor = ARENA_NEW(arena, FloorTensor, count.count);
    if (!s->floor) return ERR_MEMORY;
    FloorSum sum = {.arena = arena, .list = s->floor};
    for (uint32_t l = s->layer_first; l < s->layer_last; l++)
        TRY(floor_layer(c, l, &sum, &s->layers[l - s->layer_first], why));
    for (PhaseBound p = c->range.first; p < c->range.last; p++) {
        PhasePlan *plan = &s->phases[p - c->range.first];
        TRY(phase_plan(c, p, plan, why));
        TRY(floor_biases(plan, p, &sum, &s->layers[phase_layer(p) - s->layer_first]));
    }
    s->rope_factors = floor_add(&sum, knot_find(c->knot, "rope_freqs_weight"));
    const KnotTensor *norm;
    TRY(output_norm_of(c, &norm, why));
    s->output_norm = floor_add(&sum, norm);
    s->floor_count = sum.count;
    return sum.error;
}

static Error build_parts(Station *s, Arena *arena, void *scratch, Why *why)
{
    const StationConfig *c = &s->config;
    s->layer_first = layer_first_of(c);
    s->layer_last = layer_last_of(c);
    s->attn_first = s->layer_last - attn_layers(c);
    s->rotated = c->hyper->rope_dim / 2;
    s->layers = ARENA_NEW(arena, LayerFloor, s->layer_last - s->layer_first);
    s->phases = ARENA_NEW(arena, PhasePlan, c->range.last - c->range.first);
    s->frequencies[0] = ARENA_NEW(arena, double, s->rotated);
    s->frequencies[1] = ARENA_NEW(arena, double, s->rotated);
    s->marks = ARENA_NEW(arena, uint32_t, c->sessions_max);
    if (!s->layers || !s->phases || !s->frequencies[0] || !s->frequencies[1] || !s->marks)
        return ERR_MEMORY;
    TRY(build_floor(s, arena, why));
    CacheConfig cache = cache_config(c);
    TRY(cache_build(&s->cache, &cache, arena));
    Widths w;
    TRY(widths_of(c, &w, why));
    StationSizes sizes;
    TRY(station_sizes(c, &sizes, why));
    Arena lent = arena_make(scratch, (size_t)sizes.scratch_bytes);
    buffers_take(c, &w, &lent, &s->b);
    return OK;
}

Error station_build(const StationConfig *c, Arena *arena, void *scratch, Station **out, Why *why)
{
    TRY(check_config(c, why));
    Station *s = ARENA_NEW(arena, Station, 1);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a station");
    s->config = *c;
    Error error = build_parts(s, arena, scratch, why);
    if (error == ERR_MEMORY)
        return error_why(why, ERR_MEMORY, "no memory for a station's floor and cache");
    *out = s;
    return error;
}

uint32_t station_floor_count(const Station *s) { return s->floor_count; }

const KnotTensor *station_floor_tensor(const Station *s, uint32_t i, float **to)
{
    *to = s->floor[i].to;
    return s->floor[i].tensor;
}

/* --- Frames --- */

static Error check_fork(const Station *s, uint32_t from, uint32_t to, uint32_t length, Why *why)
{
    uint32_t sessions = s->config.sessions_max;
    if (from >= sessions || to >= sessions || from == to)
        return error_why(why, ERR_SESSION, "session %u as a copy of %u, of %u sessions", to, from,
                         sessions);
    if (length > s->cache.lengths[from])
        return error_why(why, ERR_POSITION, "%u positions of session %u, which has %u", length,
                         from, s->cache.lengths[from]);
    return OK;
}

static Error check_sequence(Station *s, const StationSequence *q, Why *why)
{
    if (q->session >= s->config.sessions_max)
        return error_why(why, ERR_SESSION, "session %u of %u", q->session, s->config.sessions_max);
    if (s->marks[q->session] == s->mark)
        return error_why(why, ERR_DUPLICATE, "session %u is named twice in one frame", q->session);
    s->marks[q->session] = s->mark;
    uint32_t length = s->cache.lengths[q->session];
    if (q->forks) TRY(check_fork(s, q->parent, q->session, q->position, why));
    if (!q->forks && q->position > length)
        return error_why(why, ERR_POSITION, "session %u: position %u, expected %u", q->session,
                         q->position, length);
    if (q->rows > s->config.context || q->position > s->config.context - q->rows)
        return error_why(why, ERR_CAPACITY, "positions %u to %u exceed the context of %u",
                         q->position, q->position + q->rows, s->config.context);
    return OK;
}

/* Each fork looks for its parent among the other forks: they are few. */
static Error check_parents(const Station *s, const StationFrame *frame, Why *why)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++) {
        const StationSequence *q = &frame->sequences[i];
        if (!q->forks || s->marks[q->parent] != s->mark) continue;
        for (uint32_t j = 0; j < frame->sequence_count; j++)
            if (frame->sequences[j].forks && frame->sequences[j].session == q->parent)
                return error_why(why, ERR_RANGE,
                                 "session %u: its parent %u becomes a copy in the same frame",
                                 q->session, q->parent);
    }
    return OK;
}

static Error check_frame(Station *s, const StationFrame *frame, Why *why)
{
    if (frame->rows > s->config.rows_max || frame->sequence_count > s->config.rows_max)
        return error_why(why, ERR_CAPACITY, "%u rows in a frame; at most %u", frame->rows,
                         s->config.rows_max);
    if (++s->mark == 0) return error_why(why, ERR_INTERNAL, "too many frames");
    uint64_t rows = 0;
    for (uint32_t i = 0; i < frame->sequence_count; i++) {
        TRY(check_sequence(s, &frame->sequences[i], why));
        rows += frame->sequences[i].rows;
    }
    TRY(check_parents(s, frame, why));
    if (rows != frame->rows)
        return error_why(why, ERR_RANGE, "sequences with %llu rows in a frame of %u",
                         (unsigned long long)rows, frame->rows);
    for (uint32_t i = 0; frame->wanted && i < frame->wanted_count; i++)
        if (frame->wanted[i] >= frame->rows || (i && frame->wanted[i] <= frame->wanted[i - 1]))
            return error_why(why, ERR_RANGE, "wanted row %u of %u", frame->wanted[i], frame->rows);
    for (uint32_t r = 0; r < frame->rows; r++)
        if (!s->config.ops->all_finite(frame->x + (size_t)r * s->config.hyper->hidden,
                                       s->config.hyper->hidden))
            return error_why(why, ERR_NOT_FINITE, "row %u of the frame is not finite", r);
    return OK;
}

static void cut_sessions(Station *s)
{
    for (uint32_t i = 0; i < s->frame.sequence_count; i++)
        cache_truncate(&s->cache, s->frame.sequences[i].session, s->frame.sequences[i].position);
}

/* All old positions are given up before any fork takes blocks, so that the order does not
 * matter. */
static Error fork_sessions(Station *s, Why *why)
{
    const StationSequence *q = s->frame.sequences;
    for (uint32_t i = 0; i < s->frame.sequence_count; i++)
        if (q[i].forks) cache_truncate(&s->cache, q[i].session, 0);
    for (uint32_t i = 0; i < s->frame.sequence_count; i++)
        if (q[i].forks) TRY(cache_fork(&s->cache, q[i].parent, q[i].session, q[i].position, why));
    return OK;
}

static Error reserve_sessions(Station *s, Why *why)
{
    for (uint32_t i = 0; i < s->frame.sequence_count; i++) {
        const StationSequence *q = &s->frame.sequences[i];
        TRY(cache_reserve(&s->cache, q->session, q->position + q->rows, why));
    }
    return OK;
}

/* Which sequence a row belongs to, and where it is in it. */
static void map_rows(Station *s)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < s->frame.sequence_count; i++) {
        s->b.sequence_row[i] = row;
        for (uint32_t r = 0; r < s->frame.sequences[i].rows; r++) {
            s->b.row_position[row] = s->frame.sequences[i].position + r;
            s->b.row_sequence[row++] = i;
        }
    }
    station_compute_groups(s);
}

Error station_begin(Station *s, const StationFrame *frame, const Parallel *parallel, Why *why)
{
    s->step = STEP_IDLE;
    TRY(check_frame(s, frame, why));
    s->frame = *frame;
    Error error = fork_sessions(s, why);
    cut_sessions(s);
    if (error == OK) error = reserve_sessions(s, why);
    if (error != OK) {
        cut_sessions(s);
        return error;
    }
    if (!frame->rows) return OK;
    map_rows(s);
    station_compute_rope(s, parallel);
    s->phase = s->config.range.first;
    s->step = STEP_LOAD;
    return OK;
}

/* --- Wishes --- */

static uint32_t rows_of_tile(const Station *s, const KnotTensor *t, uint64_t unit_bytes,
                             uint32_t unit_rows)
{
    uint32_t left = t->rows - s->row;
    if (!s->config.tile_bytes_max) return left;
    uint64_t units = s->config.tile_bytes_max / unit_bytes;
    uint64_t rows = units ? units * unit_rows : unit_rows;
    if (unit_rows == 1 && rows > PANEL_ROWS) rows -= rows % PANEL_ROWS;
    return rows < left ? (uint32_t)rows : left;
}

static void wish_tile(Station *s, StationWish *wish)
{
    const KnotTensor *t = station_plan(s)->matrix[s->matrix].weight;
    uint64_t unit = 0;
    uint32_t unit_rows = knot_unit_rows(t);
    /* checked when the station was built */
    Error error = unit_rows == 1 ? block_row_bytes(t->type, t->cols, &unit, NULL)
                                 : layout_panel_bytes(t->type, t->cols, &unit, NULL);
    ASSERT(error == OK);
    wish->tensor = t;
    wish->row_first = s->row;
    wish->row_count = rows_of_tile(s, t, unit, unit_rows);
    wish->offset = t->offset + s->row / unit_rows * unit;
    wish->bytes = (wish->row_count + unit_rows - 1) / unit_rows * unit;
}

void station_next(Station *s, StationWish *wish)
{
    *wish = (StationWish){.kind = STATION_DONE, .phase = s->phase};
    switch (s->step) {
    case STEP_IDLE: return;
    case STEP_LOAD:
        wish->kind = STATION_LOAD;
        wish->offset = station_plan(s)->matrix[0].weight->offset;
        wish->bytes = station_plan(s)->bytes;
        s->matrix = s->row = 0;
        s->form = -1;
        s->step = STEP_TILE;
        return;
    case STEP_TILE:
        wish->kind = STATION_TILE;
        wish_tile(s, wish);
        return;
    case STEP_EVICT:
        wish->kind = STATION_EVICT;
        s->step = ++s->phase < s->config.range.last ? STEP_LOAD : STEP_IDLE;
        return;
    }
}

Error station_give(Station *s, const uint8_t *tile, const Parallel *parallel, Why *why)
{
    ASSERT(s->step == STEP_TILE);
    StationWish wish;
    wish_tile(s, &wish);
    station_compute_tile(s, tile, wish.row_count, parallel);
    s->row += wish.row_count;
    if (s->row < wish.tensor->rows) return OK;
    Error error = station_compute_matrix_end(s, parallel, why);
    if (error != OK) {
        cut_sessions(s);
        s->step = STEP_IDLE;
        return error;
    }
    s->row = 0;
    if (++s->matrix == station_plan(s)->count) s->step = STEP_EVICT;
    return OK;
}

bool station_drops_unwanted(const Station *s)
{
    PhaseBound end = phase_bound(s->config.hyper->layers, PHASE_ATTN);
    return s->config.range.last == end && s->config.range.first <= end - PHASES;
}

void station_norm_output(const Station *s, const float *x, float *out)
{
    ASSERT(s->output_norm);
    s->config.ops->rms_norm(x, s->output_norm, s->config.hyper->hidden,
                            s->config.hyper->norm_epsilon, out);
}

uint32_t station_length(const Station *s, uint32_t session) { return s->cache.lengths[session]; }

uint64_t station_position_bytes(const Station *s) { return cache_position_bytes(&s->cache); }

void station_save(const Station *s, uint32_t session, uint32_t first, uint32_t count, uint8_t *out)
{
    ASSERT(first <= s->cache.lengths[session] && count <= s->cache.lengths[session] - first);
    for (uint32_t i = 0; i < count; i++, out += cache_position_bytes(&s->cache))
        cache_get_position(&s->cache, session, first + i, out);
}

Error station_restore(Station *s, uint32_t session, uint32_t first, uint32_t count,
                      const uint8_t *in, Why *why)
{
    if (first != s->cache.lengths[session])
        return error_why(why, ERR_POSITION, "positions from %u on, the session has %u", first,
                         s->cache.lengths[session]);
    if (count > s->config.context || first > s->config.context - count)
        return error_why(why, ERR_CAPACITY, "positions %u to %u exceed the context of %u", first,
                         first + count, s->config.context);
    TRY(cache_reserve(&s->cache, session, first + count, why));
    for (uint32_t i = 0; i < count; i++, in += cache_position_bytes(&s->cache))
        cache_put_position(&s->cache, session, first + i, in);
    return OK;
}

void station_truncate(Station *s, uint32_t session, uint32_t length)
{
    if (session < s->config.sessions_max) cache_truncate(&s->cache, session, length);
}

Error station_fork(Station *s, uint32_t from, uint32_t to, uint32_t length, Why *why)
{
    TRY(check_fork(s, from, to, length, why));
    return cache_fork(&s->cache, from, to, length, why);
}

uint32_t station_blocks_free(const Station *s) { return cache_blocks_free(&s->cache); }
