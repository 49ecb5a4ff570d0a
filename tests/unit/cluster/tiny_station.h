/* SPDX-License-Identifier: Apache-2.0 */
/* A station behind its service, and the other end of the wire: what the tests of stations over the
 * wire share. */
#ifndef COBORD_TESTS_TINY_STATION_H
#define COBORD_TESTS_TINY_STATION_H

#include "tiny_model.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "cluster/station_service.h"
#include "quant/numerics.h"

enum { CONTEXT = 192, ROWS = 24, SESSIONS = 6, BLOCKS = 12 };
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

static inline void node_open_station(Node *n, PhaseRange range, const NodeShape *shape)
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

static inline void node_open(Node *n, const TinyModel *model, PhaseRange range,
                             const NodeShape *shape)
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

static inline void node_close(Node *n)
{
    free(n->memory);
    free(n->service_memory);
    free(n->scratch);
}

static inline PhaseRange whole(const TinyModel *t)
{
    return (PhaseRange){0, t->hyper.layers * PHASES};
}

static inline Error compute(Node *n, const StationFrame *frame, Why *why)
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

static inline Body body_of(const ForwardTerms *terms, const Forward *f, const float *x,
                           const float *g)
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
static inline Error serve(Node *n, const Body *body, Body *answer, Why *why)
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

static inline void take_answer(const Node *n, const Forward *f, const Body *answer, float *x,
                               float *g, uint32_t *rows)
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
static inline Error send(Node *n, const Forward *f, float *x, float *g, uint32_t *rows, Why *why)
{
    Body body = body_of(&n->terms, f, x, g), answer;
    Error error = serve(n, &body, &answer, why);
    free(body.bytes);
    if (error != OK) return error;
    take_answer(n, f, &answer, x, g, rows);
    free(answer.bytes);
    return OK;
}

static inline void inputs(float *x, uint32_t rows, uint32_t seed)
{
    TinyMaker m = {.random = seed};
    for (uint32_t i = 0; i < rows * TINY_HIDDEN; i++)
        x[i] = (float)(tiny_random(&m) % 2001) * 1e-3f - 1.0f;
}

/* One sequence's rows from `position`; a row's numbers depend on seed and position alone. */
static inline void sequence_inputs(float *x, uint32_t seed, uint32_t position, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        inputs(x + (size_t)r * TINY_HIDDEN, 1, seed * 1000 + position + r);
}

static inline Error say(Node *n, uint64_t request, const ForwardSequence *q, uint32_t seed,
                        float *x, Why *why)
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

/* ---- What a refused body leaves behind ------------------------------------------------------- */

typedef struct Snapshot {
    uint32_t sessions, blocks, lengths[SESSIONS];
    uint64_t evictions;
} Snapshot;

static inline Snapshot snapshot(const Node *n)
{
    Snapshot s = {.sessions = station_service_sessions(n->service),
                  .blocks = station_blocks_free(n->station),
                  .evictions = station_service_evictions(n->service)};
    for (uint32_t i = 0; i < n->terms.sequences_max; i++)
        s.lengths[i] = station_length(n->station, i);
    return s;
}

static inline void refused(Node *n, const uint8_t *bytes, size_t count, Error wanted)
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
static inline void two_sessions(Node *n)
{
    static float x[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    assert_int_equal(say(n, 9, &(ForwardSequence){3, 0, 0, 0, 5}, 1, x, &why), OK);
    assert_int_equal(say(n, 10, &(ForwardSequence){4, 0, 0, 0, 2}, 2, x, &why), OK);
}

/* A field of the body, with CRC and hash made right again. */
static inline void refused_field(Node *n, const Body *body, size_t at, uint64_t value, size_t bytes,
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

#endif
