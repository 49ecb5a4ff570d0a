/* SPDX-License-Identifier: Apache-2.0 */
/* A station over the wire gives the bits of the direct calls, and a body that is refused has changed
 * nothing: no session, no block, no request id. */
#include "tiny_model.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "cluster/station_service.h"
#include "quant/numerics.h"

enum { CONTEXT = 192, ROWS = 24, SESSIONS = 6, BLOCKS = 12, NODES_MAX = 6 };
#define KNOT_ID 0x1122334455667788u

typedef struct Node {
    const TinyModel *model;
    ForwardTerms terms;
    Station *station;
    StationService *service;
    void *memory, *service_memory, *scratch;
} Node;

typedef struct NodeShape {
    CacheType cache;
    uint32_t sessions, blocks;
} NodeShape;

static const NodeShape usual = {CACHE_F16, SESSIONS, BLOCKS};

static void node_open_station(Node *n, PhaseRange range, const NodeShape *shape)
{
    Why why = {{0}};
    StationSizes sizes;
    StationConfig config = {.knot = &n->model->knot,
                            .hyper = &n->model->hyper,
                            .range = range,
                            .cache = shape->cache,
                            .rows_max = ROWS,
                            .sessions_max = shape->sessions,
                            .context = CONTEXT,
                            .blocks = shape->blocks,
                            .workers = 1,
                            .kernels = kernels_for(ISA_SCALAR),
                            .ops = ops_for(ISA_SCALAR)};
    assert_int_equal(station_sizes(&config, &sizes, &why), OK);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.cache_bytes);
    n->memory = malloc(bytes);
    n->scratch = malloc((size_t)sizes.scratch_bytes);
    memset(n->memory, 0xff, bytes);
    Arena arena = arena_make(n->memory, bytes);
    assert_int_equal(station_build(&config, &arena, n->scratch, &n->station, &why), OK);
    for (uint32_t f = 0; f < station_floor_count(n->station); f++) {
        float *to;
        const KnotTensor *v = station_floor_tensor(n->station, f, &to);
        memcpy(to, n->model->payload + v->offset, v->cols * sizeof(float));
    }
}

static void node_open(Node *n, const TinyModel *model, PhaseRange range, const NodeShape *shape)
{
    Why why = {{0}};
    *n = (Node){.model = model};
    node_open_station(n, range, shape);
    n->terms = (ForwardTerms){.identity = {KNOT_ID, NUMERICS_VERSION, frame_cache(shape->cache)},
                              .hyper = &model->hyper,
                              .range = range,
                              .rows_max = ROWS,
                              .sequences_max = shape->sessions,
                              .context = CONTEXT};
    size_t bytes = (size_t)station_service_bytes(&n->terms);
    n->service_memory = malloc(bytes);
    memset(n->service_memory, 0xff, bytes);
    Arena arena = arena_make(n->service_memory, bytes);
    assert_int_equal(station_service_build(&n->terms, n->station, &arena, &n->service, &why), OK);
}

static void node_close(Node *n)
{
    free(n->memory);
    free(n->service_memory);
    free(n->scratch);
}

static PhaseRange whole(const TinyModel *t) { return (PhaseRange){0, t->hyper.layers * PHASES}; }

static Error compute(Node *n, const StationFrame *frame, Why *why)
{
    TRY(station_begin(n->station, frame, &parallel_serial, why));
    for (;;) {
        StationWish wish;
        station_next(n->station, &wish);
        if (wish.kind == STATION_DONE) return OK;
        if (wish.kind == STATION_TILE)
            TRY(station_give(n->station, n->model->payload + wish.offset, &parallel_serial, why));
    }
}

/* ---- The other end of the wire --------------------------------------------------------------- */

typedef struct Body {
    uint8_t *bytes;
    size_t count;
} Body;

static Body body_of(const ForwardTerms *terms, const Forward *f, const float *x, const float *g)
{
    Why why = {{0}};
    size_t header = forward_header_size(f);
    size_t payload = (size_t)forward_payload_bytes(terms, f->element, f->rows);
    Body b = {malloc(header + payload), header + payload};
    uint32_t hidden = terms->hyper->hidden;
    assert_int_equal(rows_write(f->element, x, f->rows, hidden, b.bytes + header, &why), OK);
    uint32_t g_width = forward_g_width(terms->hyper, terms->range.first);
    if (g_width)
        assert_int_equal(rows_write(f->element, g, f->rows, g_width,
                                    b.bytes + header + forward_g_at(terms, f->element, f->rows),
                                    &why),
                         OK);
    forward_write(f, terms, hash_xxh64(b.bytes + header, payload), b.bytes);
    assert_true(b.count <= station_service_body_bytes_max(terms));
    return b;
}

/* As a host does it. `answer` is malloc'd, of exactly its size. */
static Error serve(Node *n, const Body *body, Body *answer, Why *why)
{
    StationFrame frame;
    TRY(station_service_read(n->service, body->bytes, body->count, &frame, why));
    Error error = compute(n, &frame, why);
    if (error != OK) {
        station_service_end(n->service);
        return error;
    }
    size_t room = station_service_answer_bytes(n->service);
    assert_true(room <= station_service_answer_bytes_max(&n->terms));
    answer->bytes = malloc(room);
    assert_int_equal(
        station_service_write(n->service, 77, answer->bytes, room - 1, &answer->count, why),
        ERR_CAPACITY);
    error = station_service_write(n->service, 77, answer->bytes, room, &answer->count, why);
    if (error != OK) free(answer->bytes);
    else assert_int_equal(answer->count, room);
    return error;
}

static void take_answer(const Node *n, const Forward *f, const Body *answer, float *x, float *g,
                        uint32_t *rows)
{
    Why why = {{0}};
    ForwardAnswer a;
    FrameHead head;
    Error error = forward_read_answer(answer->bytes, answer->count, f, &n->terms, &a, &head, &why);
    if (error != OK) fail_msg("answer: %s", why.text);
    const uint8_t *payload = answer->bytes + head.header_bytes;
    assert_int_equal(frame_check_payload(&head, payload, answer->count - head.header_bytes, &why),
                     OK);
    uint32_t hidden = n->terms.hyper->hidden;
    assert_int_equal(a.compute_us, 77);
    assert_int_equal(rows_read(f->element, payload, a.rows, hidden, x, &why), OK);
    uint32_t g_width = forward_g_width(n->terms.hyper, n->terms.range.last);
    if (g_width)
        assert_int_equal(rows_read(f->element, payload + rows_bytes(f->element, a.rows, hidden),
                                   a.rows, g_width, g, &why),
                         OK);
    *rows = a.rows;
}

/* x and g: in and out. */
static Error send(Node *n, const Forward *f, float *x, float *g, uint32_t *rows, Why *why)
{
    Body body = body_of(&n->terms, f, x, g), answer;
    Error error = serve(n, &body, &answer, why);
    free(body.bytes);
    if (error != OK) return error;
    take_answer(n, f, &answer, x, g, rows);
    free(answer.bytes);
    return OK;
}

static void inputs(float *x, uint32_t rows, uint32_t seed)
{
    TinyMaker m = {.random = seed};
    for (uint32_t i = 0; i < rows * TINY_HIDDEN; i++)
        x[i] = (float)(tiny_random(&m) % 2001) * 1e-3f - 1.0f;
}

/* One sequence's rows from `position`; a row's numbers depend on seed and position alone. */
static void sequence_inputs(float *x, uint32_t seed, uint32_t position, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        inputs(x + (size_t)r * TINY_HIDDEN, 1, seed * 1000 + position + r);
}

static Error say(Node *n, uint64_t request, const ForwardSequence *q, uint32_t seed, float *x,
                 Why *why)
{
    static float g[ROWS * TINY_FFN];
    uint32_t rows;
    Forward f = {.request_id = request,
                 .mode = FORWARD_PREFILL,
                 .element = ROWS_F32,
                 .rows = q->rows,
                 .sequences = q,
                 .sequence_count = 1};
    sequence_inputs(x, seed, q->position, q->rows);
    return send(n, &f, x, g, &rows, why);
}

/* ---- The same bits --------------------------------------------------------------------------- */

typedef struct Step {
    uint32_t rows, count;
    ForwardSequence sequences[4];
    StationSequence slots[4]; /* the same for the direct calls */
    bool some;
    uint32_t wanted[4], wanted_count;
} Step;

/* Chunks, a batch, an empty sequence, one cut back, wanted rows, none wanted, nothing at all. */
static const Step steps[] = {
    {8, 2, {{9, 0, 0, 0, 3}, {7, 0, 0, 0, 5}}, {{0, 0, 3}, {1, 0, 5}}, false, {0}, 0},
    {6,
     4,
     {{7, 0, 0, 5, 1}, {9, 0, 0, 3, 1}, {5, 0, 0, 0, 4}, {6, 0, 0, 0, 0}},
     {{1, 5, 1}, {0, 3, 1}, {2, 0, 4}, {3, 0, 0}},
     true,
     {0, 1, 5},
     3},
    {4, 1, {{9, 0, 0, 2, 4}}, {{0, 2, 4}}, false, {0}, 0},
    {3, 1, {{5, 0, 0, 4, 3}}, {{2, 4, 3}}, true, {0}, 0},
    {2, 2, {{9, 0, 0, 6, 1}, {5, 0, 0, 7, 1}}, {{0, 6, 1}, {2, 7, 1}}, false, {0}, 0},
    {0, 0, {{0}}, {{0}}, false, {0}, 0},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

static uint32_t direct_rows(const Node *n, const Step *step)
{
    bool drops = step->some && station_drops_unwanted(n->station);
    return drops ? step->wanted_count : step->rows;
}

/* What the element does to rows on their way. */
static void through(RowsElement element, float *x, uint32_t rows, uint32_t width)
{
    Why why = {{0}};
    size_t bytes = (size_t)rows_bytes(element, rows, width);
    uint8_t *wire = malloc(bytes ? bytes : 1);
    assert_int_equal(rows_write(element, x, rows, width, wire, &why), OK);
    assert_int_equal(rows_read(element, wire, rows, width, x, &why), OK);
    free(wire);
}

static void direct(Node *n, const Step *step, RowsElement element, float *x, float *g)
{
    Why why = {{0}};
    uint32_t rows = direct_rows(n, step);
    through(element, x, step->rows, TINY_HIDDEN);
    if (forward_g_width(&n->model->hyper, n->terms.range.first))
        through(element, g, step->rows, TINY_FFN);
    StationFrame frame = {x,
                          g,
                          step->rows,
                          step->slots,
                          step->count,
                          step->some ? step->wanted : NULL,
                          step->wanted_count};
    if (compute(n, &frame, &why) != OK) fail_msg("direct: %s", why.text);
    if (n->terms.range.last == whole(n->model).last)
        for (uint32_t r = 0; r < rows; r++) {
            float normed[TINY_HIDDEN];
            station_norm_output(n->station, x + r * TINY_HIDDEN, normed);
            memcpy(x + r * TINY_HIDDEN, normed, sizeof normed);
        }
    through(element, x, rows, TINY_HIDDEN);
    if (forward_g_width(&n->model->hyper, n->terms.range.last)) through(element, g, rows, TINY_FFN);
}

static void over_the_wire(Node *n, const Step *step, uint64_t request, RowsElement element,
                          float *x, float *g)
{
    Why why = {{0}};
    uint32_t rows;
    Forward f = {.request_id = request,
                 .mode = FORWARD_PREFILL,
                 .element = element,
                 .rows = step->rows,
                 .sequences = step->sequences,
                 .sequence_count = step->count,
                 .wanted = step->some ? step->wanted : NULL,
                 .wanted_count = step->wanted_count};
    if (send(n, &f, x, g, &rows, &why) != OK) fail_msg("wire: %s", why.text);
    assert_int_equal(rows, direct_rows(n, step));
}

static void run_line(const TinyModel *t, const char *text, RowsElement element, CacheType cache)
{
    static float want_x[ROWS * TINY_HIDDEN], want_g[ROWS * TINY_FFN], x[ROWS * TINY_HIDDEN],
        g[ROWS * TINY_FFN];
    Why why = {{0}};
    PhaseRange ranges[NODES_MAX];
    Node wire[NODES_MAX], plain[NODES_MAX];
    uint32_t count;
    NodeShape shape = {cache, SESSIONS, BLOCKS};
    assert_int_equal(phase_parse_ranges(text, TINY_LAYERS, ranges, NODES_MAX, &count, &why), OK);
    for (uint32_t i = 0; i < count; i++) {
        node_open(&wire[i], t, ranges[i], &shape);
        node_open(&plain[i], t, ranges[i], &shape);
    }
    for (uint32_t s = 0; s < STEPS; s++) {
        inputs(x, steps[s].rows, 40 + s);
        memcpy(want_x, x, sizeof x);
        for (uint32_t i = 0; i < count; i++) {
            over_the_wire(&wire[i], &steps[s], s + 1, element, x, g);
            direct(&plain[i], &steps[s], element, want_x, want_g);
            uint32_t rows = direct_rows(&plain[i], &steps[s]);
            assert_memory_equal(x, want_x, rows * TINY_HIDDEN * sizeof(float));
            if (forward_g_width(&t->hyper, ranges[i].last))
                assert_memory_equal(g, want_g, rows * TINY_FFN * sizeof(float));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(station_service_sessions(wire[i].service), 4);
        assert_int_equal(station_blocks_free(wire[i].station),
                         station_blocks_free(plain[i].station));
        node_close(&wire[i]);
        node_close(&plain[i]);
    }
}

static void answers_have_the_bits_of_direct_calls(void **state)
{
    (void)state;
    static const char *const cuts[] = {"0-3", "0-1.ffn_up,1.ffn_up-3",
                                       "0-1,1-2.ffn_down,2.ffn_down-end",
                                       "0-1.ffn_gate,1.ffn_gate-1.ffn_up,1.ffn_up-end"};
    TinyModel t;
    tiny_make(&t, true, NULL);
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
        for (int e = ROWS_F32; e <= ROWS_INT8; e++)
            run_line(&t, cuts[c], (RowsElement)e, CACHE_F16);
    run_line(&t, cuts[2], ROWS_F32, CACHE_Q8_0);
    tiny_free(&t);
}

/* ---- What a refused body leaves behind ------------------------------------------------------- */

typedef struct Snapshot {
    uint32_t sessions, blocks, lengths[SESSIONS];
    uint64_t evictions;
} Snapshot;

static Snapshot snapshot(const Node *n)
{
    Snapshot s = {.sessions = station_service_sessions(n->service),
                  .blocks = station_blocks_free(n->station),
                  .evictions = station_service_evictions(n->service)};
    for (uint32_t i = 0; i < n->terms.sequences_max; i++)
        s.lengths[i] = station_length(n->station, i);
    return s;
}

static void refused(Node *n, const uint8_t *bytes, size_t count, Error wanted)
{
    Why why = {{0}};
    StationFrame frame = {0};
    Snapshot before = snapshot(n);
    uint8_t *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    Error error = station_service_read(n->service, copy, count, &frame, &why);
    free(copy);
    if (error == OK || (wanted != OK && error != wanted))
        fail_msg("%d (%s) where %d was expected", error, why.text, wanted);
    Snapshot after = snapshot(n);
    assert_memory_equal(&before, &after, sizeof before);
}

/* Two sessions, 3 and 4, of 5 and 2 positions, by request 10. */
static void two_sessions(Node *n)
{
    static float x[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    assert_int_equal(say(n, 9, &(ForwardSequence){3, 0, 0, 0, 5}, 1, x, &why), OK);
    assert_int_equal(say(n, 10, &(ForwardSequence){4, 0, 0, 0, 2}, 2, x, &why), OK);
}

/* Session 3 goes on as if nothing had been: request 11 is accepted, and its bits are those of a
 * station that saw nothing else. */
static void goes_on(Node *n)
{
    static float got[ROWS * TINY_HIDDEN], want[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    Node fresh;
    if (say(n, 11, &(ForwardSequence){3, 0, 0, 5, 2}, 1, got, &why) != OK) fail_msg("%s", why.text);
    node_open(&fresh, n->model, n->terms.range, &usual);
    assert_int_equal(say(&fresh, 1, &(ForwardSequence){3, 0, 0, 0, 7}, 1, want, &why), OK);
    assert_memory_equal(got, want + 5 * TINY_HIDDEN, 2 * TINY_HIDDEN * sizeof(float));
    node_close(&fresh);
}

static void damaged_bodies_change_nothing(void **state)
{
    (void)state;
    static float x[2 * TINY_HIDDEN], g[2 * TINY_FFN];
    static const ForwardSequence q[] = {{3, 0, 0, 5, 1}, {8, 0, 0, 0, 1}};
    static const uint32_t wanted[] = {1};
    TinyModel t;
    Node n;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 2}, &usual); /* attn and ffn_gate of layer 0 */
    two_sessions(&n);
    Forward f = {99, FORWARD_DECODE, ROWS_INT8, 2, q, 2, wanted, 1};
    inputs(x, 2, 5);
    Body body = body_of(&n.terms, &f, x, g);
    size_t header = forward_header_size(&f);
    for (size_t cut = 0; cut < body.count; cut++) refused(&n, body.bytes, cut, ERR_TRUNCATED);
    for (size_t i = 0; i < body.count; i++) {
        body.bytes[i] ^= (uint8_t)(1u << i % 8);
        refused(&n, body.bytes, body.count, i < 12 ? OK : i < 16 || i < header ? ERR_CHECKSUM : OK);
        body.bytes[i] ^= (uint8_t)(1u << i % 8);
    }
    Body more = {malloc(body.count + 1), body.count + 1};
    memcpy(more.bytes, body.bytes, body.count);
    more.bytes[body.count] = 0;
    refused(&n, more.bytes, more.count, ERR_FORMAT);
    free(more.bytes);
    free(body.bytes);
    goes_on(&n);
    node_close(&n);
    tiny_free(&t);
}

/* A field of the body, with CRC and hash made right again. */
static void refused_field(Node *n, const Body *body, size_t at, uint64_t value, size_t bytes,
                          Error wanted)
{
    uint8_t *copy = malloc(body->count);
    memcpy(copy, body->bytes, body->count);
    memcpy(copy + at, &value, bytes);
    uint32_t header = bytes_load32(body->bytes + 8);
    frame_put_payload_hash(copy, hash_xxh64(copy + header, body->count - header));
    frame_seal(copy);
    refused(n, copy, body->count, wanted);
    free(copy);
}

static void wrong_fields_change_nothing(void **state)
{
    (void)state;
    static float x[2 * TINY_HIDDEN], g[2 * TINY_FFN];
    static const ForwardSequence q[] = {{3, 0, 0, 5, 1}, {8, 0, 0, 0, 1}};
    TinyModel t;
    Node n;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 2}, &usual);
    two_sessions(&n);
    Forward f = {99, FORWARD_PREFILL, ROWS_F32, 2, q, 2, NULL, 0};
    inputs(x, 2, 5);
    Body b = body_of(&n.terms, &f, x, g);
    uint32_t header = forward_header_size(&f);
    refused_field(&n, &b, 4, 2, 2, ERR_UNSUPPORTED);  /* version */
    refused_field(&n, &b, 16, 1, 8, ERR_UNSUPPORTED); /* knot */
    refused_field(&n, &b, 24, 9, 2, ERR_UNSUPPORTED); /* numerics */
    refused_field(&n, &b, 26, 2, 2, ERR_UNSUPPORTED); /* cache type */
    refused_field(&n, &b, 60, 3, 4, ERR_UNSUPPORTED); /* range */
    refused_field(&n, &b, 0, 0x4b4e4f54, 4, ERR_FORMAT);
    refused_field(&n, &b, 6, 3, 2, ERR_FORMAT); /* an embed */
    refused_field(&n, &b, 64, 9, 1, ERR_RANGE); /* mode */
    refused_field(&n, &b, 65, 9, 1, ERR_TYPE);
    refused_field(&n, &b, 66, 2, 2, ERR_FORMAT); /* flags */
    refused_field(&n, &b, 68, ROWS + 1, 4, ERR_TOO_LARGE);
    refused_field(&n, &b, 72, 8, 4, ERR_SHAPE);
    refused_field(&n, &b, 80, SESSIONS + 1, 4, ERR_TOO_LARGE);
    refused_field(&n, &b, 96 + 24, 2, 4, ERR_SHAPE); /* rows do not add up */
    refused_field(&n, &b, 96 + 20, CONTEXT, 4, ERR_RANGE);
    refused_field(&n, &b, 96 + 32, 3, 8, ERR_DUPLICATE);
    refused_field(&n, &b, header, 0x7fc00000, 4, ERR_NOT_FINITE);
    refused_field(&n, &b, 96 + 20, 6, 4, ERR_POSITION);
    refused_field(&n, &b, 96, 77, 8, ERR_SESSION);
    refused_field(&n, &b, 32, 9, 8, ERR_SUPERSEDED);
    refused_field(&n, &b, 32, 0, 8, ERR_SUPERSEDED);
    free(b.bytes);
    goes_on(&n);
    node_close(&n);
    tiny_free(&t);
}

static void errors_say_what_was_expected(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &usual); /* attn alone: a frame without g */
    two_sessions(&n);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 6, 1}, 1, x, &why), ERR_POSITION);
    assert_string_equal(why.text, "session 3: position 6, expected 5");
    assert_int_equal(say(&n, 11, &(ForwardSequence){5, 0, 0, 1, 1}, 1, x, &why), ERR_SESSION);
    assert_non_null(strstr(why.text, "session 5 is not known"));
    assert_int_equal(say(&n, 9, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), ERR_SUPERSEDED);
    assert_non_null(strstr(why.text, "request 9 comes after request 9"));
    node_close(&n);
    tiny_free(&t);
}

/* ---- Request ids ----------------------------------------------------------------------------- */

/* A frame is held up, its retry overtakes it, a rejected draft is cut away: the late twin is refused
 * and its rows are nowhere. */
static void late_twins_are_refused(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 2}, &usual);
    two_sessions(&n);
    static const ForwardSequence old[] = {{6, 0, 0, 0, 1}, {3, 0, 0, 4, 2}};
    Forward late = {11, FORWARD_VERIFY, ROWS_F32, 3, old, 2, NULL, 0};
    inputs(x, 3, 66);
    Body twin = body_of(&n.terms, &late, x, g);
    refused_field(&n, &twin, 32, 9, 8, ERR_SUPERSEDED); /* the id of the frame before */
    Body answer;
    assert_int_equal(serve(&n, &twin, &answer, &why), OK);
    free(answer.bytes);
    refused(&n, twin.bytes, twin.count, ERR_SUPERSEDED); /* the same bytes again */
    assert_int_equal(say(&n, 12, &(ForwardSequence){3, 0, 0, 4, 1}, 1, x, &why), OK);
    refused(&n, twin.bytes, twin.count, ERR_SUPERSEDED);
    assert_int_equal(say(&n, 13, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), OK);
    float got[TINY_HIDDEN];
    memcpy(got, x, sizeof got);
    Node fresh;
    node_open(&fresh, &t, (PhaseRange){0, 2}, &usual);
    assert_int_equal(say(&fresh, 1, &(ForwardSequence){3, 0, 0, 0, 6}, 1, x, &why), OK);
    assert_memory_equal(got, x + 5 * TINY_HIDDEN, sizeof got);
    free(twin.bytes);
    node_close(&fresh);
    node_close(&n);
    tiny_free(&t);
}

/* A refused frame's id does not count, also when only one of its sequences was at fault. */
static void ids_of_refused_frames_do_not_count(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    static const ForwardSequence q[] = {{4, 0, 0, 2, 1}, {3, 0, 0, 9, 1}};
    TinyModel t;
    Node n;
    Why why = {{0}};
    uint32_t rows;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &usual);
    two_sessions(&n);
    Forward f = {500, FORWARD_DECODE, ROWS_F32, 2, q, 2, NULL, 0};
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), ERR_POSITION);
    assert_int_equal(say(&n, 11, &(ForwardSequence){4, 0, 0, 2, 1}, 2, x, &why), OK);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), OK);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 6, 1}, 1, x, &why), ERR_SUPERSEDED);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Sessions come and go -------------------------------------------------------------------- */

static void least_recent_sessions_make_room(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    uint32_t rows;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 3, 6});
    for (uint64_t s = 1; s <= 3; s++)
        assert_int_equal(say(&n, s, &(ForwardSequence){s, 0, 0, 0, 2}, 1, x, &why), OK);
    assert_int_equal(say(&n, 4, &(ForwardSequence){1, 0, 0, 2, 1}, 1, x, &why), OK);
    assert_int_equal(say(&n, 5, &(ForwardSequence){9, 0, 0, 0, 1}, 1, x, &why), OK); /* for 2 */
    assert_int_equal(station_service_sessions(n.service), 3);
    assert_int_equal(station_service_evictions(n.service), 1);
    assert_int_equal(say(&n, 6, &(ForwardSequence){2, 0, 0, 2, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 6, &(ForwardSequence){1, 0, 0, 3, 1}, 1, x, &why), OK);
    /* The least recent, 3, is named by the frame itself: 9 goes. */
    static const ForwardSequence q[] = {{3, 0, 0, 2, 1}, {12, 0, 0, 0, 1}};
    Forward f = {7, FORWARD_DECODE, ROWS_F32, 2, q, 2, NULL, 0};
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), OK);
    assert_int_equal(say(&n, 8, &(ForwardSequence){9, 0, 0, 1, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 8, &(ForwardSequence){1, 0, 0, 4, 1}, 1, x, &why), OK);
    /* An evicted session starts anew, with any request id. */
    assert_int_equal(say(&n, 1, &(ForwardSequence){2, 0, 0, 0, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* Blocks run out before slots do: what others left behind goes, what the frame needs stays. */
static void sessions_make_room_for_blocks(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, SESSIONS, 3});
    for (uint64_t s = 1; s <= 3; s++)
        assert_int_equal(say(&n, s, &(ForwardSequence){s, 0, 0, 0, 1}, 1, x, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 0);
    assert_int_equal(say(&n, 4, &(ForwardSequence){4, 0, 0, 0, 1}, 1, x, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 3);
    uint64_t request = 5;
    for (uint32_t at = 1; at < CONTEXT - ROWS; at += ROWS)
        assert_int_equal(say(&n, request++, &(ForwardSequence){4, 0, 0, at, ROWS}, 1, x, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 1);
    assert_int_equal(station_service_evictions(n.service), 3);
    /* A copy of 169 positions needs 3 blocks more, and its parent cannot go. */
    Snapshot before = snapshot(&n);
    assert_int_equal(say(&n, request, &(ForwardSequence){5, 4, 169, 169, 1}, 1, x, &why),
                     ERR_CAPACITY);
    assert_non_null(strstr(why.text, "3 blocks of 64 positions wanted, 0 can"));
    Snapshot after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(say(&n, request, &(ForwardSequence){4, 0, 0, 169, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

static void dropped_sessions_are_gone(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &usual);
    two_sessions(&n);
    assert_false(station_service_drop(n.service, 5));
    assert_false(station_service_drop(n.service, 0));
    assert_true(station_service_drop(n.service, 3));
    assert_false(station_service_drop(n.service, 3));
    assert_int_equal(station_service_sessions(n.service), 1);
    assert_int_equal(station_blocks_free(n.station), BLOCKS - 1);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 11, &(ForwardSequence){4, 0, 0, 2, 1}, 2, x, &why), OK);
    assert_int_equal(say(&n, 1, &(ForwardSequence){3, 0, 0, 0, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static Error ask(Node *n, uint64_t request, const ForwardSequence *q, uint32_t count, Why *why)
{
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    uint32_t rows = 0, got;
    for (uint32_t i = 0; i < count; i++) rows += q[i].rows;
    Forward f = {request, FORWARD_PREFILL, ROWS_F32, rows, q, count, NULL, 0};
    inputs(x, rows, (uint32_t)request);
    return send(n, &f, x, g, &got, why);
}

/* Four chunks of 20 positions of session 1: two blocks of cache. */
static void long_session(Node *n)
{
    static float x[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    for (uint32_t at = 0; at < 80; at += 20)
        assert_int_equal(say(n, at + 1, &(ForwardSequence){1, 0, 0, at, 20}, 3, x, &why), OK);
}

static void copies_have_the_bits_of_a_replay(void **state)
{
    (void)state;
    static const CacheType caches[] = {CACHE_F16, CACHE_Q8_0};
    static float got[ROWS * TINY_HIDDEN], want[ROWS * TINY_HIDDEN];
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (int c = 0; c < 2; c++) {
        Node n, fresh;
        NodeShape shape = {caches[c], SESSIONS, BLOCKS};
        node_open(&n, &t, whole(&t), &shape);
        node_open(&fresh, &t, whole(&t), &shape);
        long_session(&n);
        long_session(&fresh);
        /* The copy goes its own way from 70; the parent goes on from 80, unchanged. */
        assert_int_equal(say(&n, 90, &(ForwardSequence){2, 1, 75, 70, 4}, 8, got, &why), OK);
        assert_int_equal(say(&fresh, 90, &(ForwardSequence){1, 0, 0, 70, 4}, 8, want, &why), OK);
        assert_memory_equal(got, want, 4 * TINY_HIDDEN * sizeof(float));
        node_close(&fresh);
        node_open(&fresh, &t, whole(&t), &shape);
        long_session(&fresh);
        assert_int_equal(say(&n, 91, &(ForwardSequence){1, 0, 0, 80, 4}, 3, got, &why), OK);
        assert_int_equal(say(&fresh, 91, &(ForwardSequence){1, 0, 0, 80, 4}, 3, want, &why), OK);
        assert_memory_equal(got, want, 4 * TINY_HIDDEN * sizeof(float));
        /* Over a session that held something else. */
        assert_int_equal(say(&n, 92, &(ForwardSequence){2, 1, 82, 81, 3}, 3, got, &why), OK);
        assert_memory_equal(got, want + TINY_HIDDEN, 3 * TINY_HIDDEN * sizeof(float));
        node_close(&fresh);
        node_close(&n);
    }
    tiny_free(&t);
}

static void copies_are_made_before_rows(void **state)
{
    (void)state;
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 4, 8});
    long_session(&n);
    /* The parent is cut to 10 in the frame that copies its 80; two copies at once. */
    static const ForwardSequence q[] = {{1, 0, 0, 10, 1}, {2, 1, 80, 80, 1}, {3, 1, 64, 64, 0}};
    assert_int_equal(ask(&n, 100, q, 3, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 3);
    assert_int_equal(station_blocks_free(n.station), 8 - 1 - 2 - 1);
    static const ForwardSequence next[] = {{1, 0, 0, 11, 1}, {2, 0, 0, 81, 1}, {3, 0, 0, 64, 1}};
    assert_int_equal(ask(&n, 101, next, 3, &why), OK);
    /* A copy of nothing is a new session. */
    static const ForwardSequence none[] = {{3, 2, 5, 0, 1}};
    assert_int_equal(ask(&n, 102, none, 1, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 8 - 1 - 2 - 1);
    node_close(&n);
    tiny_free(&t);
}

static void wrong_copies_are_refused(void **state)
{
    (void)state;
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 2, 8});
    long_session(&n);
    Snapshot before = snapshot(&n);
    static const ForwardSequence unknown[] = {{2, 9, 4, 4, 1}}, longer[] = {{2, 1, 81, 80, 1}},
                                 chain[] = {{2, 1, 4, 4, 1}, {1, 2, 4, 4, 1}};
    assert_int_equal(ask(&n, 100, unknown, 1, &why), ERR_SESSION);
    assert_non_null(strstr(why.text, "its parent 9 is not known"));
    assert_int_equal(ask(&n, 100, longer, 1, &why), ERR_POSITION);
    assert_non_null(strstr(why.text, "81 positions of its parent 1, which has 80"));
    assert_int_equal(ask(&n, 100, chain, 2, &why), ERR_RANGE);
    Snapshot after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    static const ForwardSequence two[] = {{2, 1, 4, 4, 1}, {3, 1, 4, 4, 1}};
    assert_int_equal(ask(&n, 100, two, 2, &why), ERR_CAPACITY); /* and the parent must stay */
    after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(ask(&n, 100, two, 1, &why), OK);
    assert_int_equal(ask(&n, 101, chain, 2, &why), ERR_RANGE);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Failures after the frame was accepted --------------------------------------------------- */

static void failed_frames_end_at_their_positions(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    static const ForwardSequence q[] = {{3, 0, 0, 4, 2}, {4, 0, 0, 2, 1}};
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 2}, &usual);
    two_sessions(&n);
    Forward f = {11, FORWARD_VERIFY, ROWS_F32, 3, q, 2, NULL, 0};
    inputs(x, 3, 1);
    Body body = body_of(&n.terms, &f, x, g);
    StationFrame frame;
    assert_int_equal(station_service_read(n.service, body.bytes, body.count, &frame, &why), OK);
    assert_int_equal(compute(&n, &frame, &why), OK);
    station_service_end(n.service); /* the answer could not be sent */
    assert_int_equal(station_length(n.station, 0), 4);
    assert_int_equal(station_length(n.station, 1), 2);
    refused(&n, body.bytes, body.count, ERR_SUPERSEDED);
    free(body.bytes);
    assert_int_equal(say(&n, 12, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), ERR_POSITION);
    assert_int_equal(say(&n, 12, &(ForwardSequence){3, 0, 0, 4, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* Scales so large that x is beyond f16, but finite. */
static void answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    static const ForwardSequence q[] = {{3, 0, 0, 0, 2}};
    TinyModel t;
    Node n;
    Why why = {{0}};
    uint32_t rows;
    tiny_make(&t, false, NULL);
    const KnotTensor *w = knot_find(&t.knot, "blk_0_attn_output_weight");
    for (uint64_t at = 0; at < w->bytes; at += 18) {
        t.payload[w->offset + at] = 0xff;
        t.payload[w->offset + at + 1] = 0x7b; /* 65504 */
    }
    node_open(&n, &t, (PhaseRange){0, 1}, &usual);
    Forward f = {5, FORWARD_PREFILL, ROWS_F16, 2, q, 1, NULL, 0};
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), ERR_NOT_FINITE);
    assert_non_null(strstr(why.text, "too large for f16"));
    assert_int_equal(station_length(n.station, 0), 0);
    f.request_id = 6;
    f.element = ROWS_F32;
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Anything, against a model --------------------------------------------------------------- */

enum { NAMES = 9 };
typedef struct Known {
    bool there;
    uint32_t length;
    uint64_t request, used;
} Known;

/* What the rules of docs/format/frame.md say about one sequence without a parent. */
static Error expected(const Known *known, const ForwardSequence *q, uint64_t request)
{
    const Known *k = &known[q->session];
    if (k->there && request <= k->request) return ERR_SUPERSEDED;
    if (!k->there) return q->position > 0 ? ERR_SESSION : OK;
    return q->position > k->length ? ERR_POSITION : OK;
}

static uint32_t known_blocks(const Known *known)
{
    uint32_t blocks = 0;
    for (int i = 1; i < NAMES; i++) blocks += known[i].there ? (known[i].length + 63) / 64 : 0;
    return blocks;
}

static int known_count(const Known *known)
{
    int count = 0;
    for (int i = 1; i < NAMES; i++) count += known[i].there;
    return count;
}

/* The frame has passed: in the model too, one other session goes after the other. */
static void known_take(Known *known, const ForwardSequence *q, uint64_t request, uint64_t now,
                       int slots, uint32_t blocks)
{
    for (;;) {
        Known after[NAMES];
        memcpy(after, known, sizeof after);
        after[q->session] = (Known){true, q->position + q->rows, request, now};
        if (known_count(after) <= slots && known_blocks(after) <= blocks) {
            memcpy(known, after, sizeof after);
            return;
        }
        int best = 0;
        for (int i = 1; i < NAMES; i++)
            if (known[i].there && i != (int)q->session &&
                (!best || known[i].used < known[best].used))
                best = i;
        assert_int_not_equal(best, 0);
        known[best].there = false;
    }
}

static void random_frames_follow_the_rules(void **state)
{
    (void)state;
    enum { SLOTS = 4, FEW = 6, FRAMES = 1500 };
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    TinyMaker random = {.random = 4242};
    Known known[NAMES] = {{0}};
    int outcomes[4] = {0};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, SLOTS, FEW});
    for (uint64_t i = 1; i <= FRAMES; i++) {
        Why why = {{0}};
        ForwardSequence q = {1 + tiny_random(&random) % (NAMES - 1), 0, 0, 0, 0};
        uint32_t length = known[q.session].there ? known[q.session].length : 0;
        q.position = tiny_random(&random) % 4 ? length : tiny_random(&random) % (length + 3);
        q.rows = tiny_random(&random) % 9;
        if (q.position + q.rows > CONTEXT) q.position = 0;
        uint64_t request = tiny_random(&random) % 8 ? 10 * i : 10 * (i - tiny_random(&random) % i);
        Error want = expected(known, &q, request), got = say(&n, request, &q, 1, x, &why);
        if (got != want) fail_msg("frame %d: %d, expected %d: %s", (int)i, got, want, why.text);
        if (want == OK) known_take(known, &q, request, i, SLOTS, FEW);
        outcomes[want == OK ? 0 : want == ERR_SUPERSEDED ? 1 : want == ERR_SESSION ? 2 : 3]++;
        assert_int_equal(station_service_sessions(n.service), known_count(known));
        assert_int_equal(FEW - station_blocks_free(n.station), known_blocks(known));
    }
    for (int i = 0; i < 4; i++) assert_true(outcomes[i] > 10);
    node_close(&n);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_the_bits_of_direct_calls),
        cmocka_unit_test(damaged_bodies_change_nothing),
        cmocka_unit_test(wrong_fields_change_nothing),
        cmocka_unit_test(errors_say_what_was_expected),
        cmocka_unit_test(late_twins_are_refused),
        cmocka_unit_test(ids_of_refused_frames_do_not_count),
        cmocka_unit_test(least_recent_sessions_make_room),
        cmocka_unit_test(sessions_make_room_for_blocks),
        cmocka_unit_test(dropped_sessions_are_gone),
        cmocka_unit_test(copies_have_the_bits_of_a_replay),
        cmocka_unit_test(copies_are_made_before_rows),
        cmocka_unit_test(wrong_copies_are_refused),
        cmocka_unit_test(failed_frames_end_at_their_positions),
        cmocka_unit_test(answers_that_do_not_fit_are_refused),
        cmocka_unit_test(random_frames_follow_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
