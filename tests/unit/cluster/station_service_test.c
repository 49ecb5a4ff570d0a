/* SPDX-License-Identifier: Apache-2.0 */
/* A station over the wire gives the bits of the direct calls, and a body that is refused has changed
 * nothing: no session, no block, no request id. */
#include "tiny_station.h"

enum { NODES_MAX = 6 };

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
    {8, 2, {{9, 0, 0, 0, 3}, {7, 0, 0, 0, 5}}, {{0, 0, 3, 0, 0}, {1, 0, 5, 0, 0}}, false, {0}, 0},
    {6,
     4,
     {{7, 0, 0, 5, 1}, {9, 0, 0, 3, 1}, {5, 0, 0, 0, 4}, {6, 0, 0, 0, 0}},
     {{1, 5, 1, 0, 0}, {0, 3, 1, 0, 0}, {2, 0, 4, 0, 0}, {3, 0, 0, 0, 0}},
     true,
     {0, 1, 5},
     3},
    {4, 1, {{9, 0, 0, 2, 4}}, {{0, 2, 4, 0, 0}}, false, {0}, 0},
    {3, 1, {{5, 0, 0, 4, 3}}, {{2, 4, 3, 0, 0}}, true, {0}, 0},
    {2, 2, {{9, 0, 0, 6, 1}, {5, 0, 0, 7, 1}}, {{0, 6, 1, 0, 0}, {2, 7, 1, 0, 0}}, false, {0}, 0},
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

/* ---- Refused bodies -------------------------------------------------------------------------- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_the_bits_of_direct_calls),
        cmocka_unit_test(damaged_bodies_change_nothing),
        cmocka_unit_test(wrong_fields_change_nothing),
        cmocka_unit_test(errors_say_what_was_expected),
        cmocka_unit_test(failed_frames_end_at_their_positions),
        cmocka_unit_test(answers_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
