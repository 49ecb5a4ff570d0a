/* SPDX-License-Identifier: Apache-2.0 */
/* Forward frames: round trips, every field at its limit and one over, hostile bytes. */
#include "hostile.h"

#include <stdio.h>

#include "wire/forward.h"

enum { HIDDEN = 48, FFN = 80, ROWS = 9, CONTEXT = 100 };

static const Hyper hyper = {.layers = 6, .hidden = HIDDEN, .ffn = FFN, .vocabulary = 1000};
static ForwardTerms terms;
static ForwardSequence sequences[FORWARD_SEQUENCES_MAX], got_sequences[FORWARD_SEQUENCES_MAX];
static uint32_t wanted[FRAME_ROWS_MAX], got_wanted[FRAME_ROWS_MAX];
static Forward frame, got;
static FrameHead head;
static ForwardAnswer answer, got_answer;
static uint8_t header[FRAME_HEADER_BYTES_MAX], answer_header[FRAME_HEADER_BYTES_MAX];
static size_t header_bytes, answer_bytes;

static Error read_frame(const uint8_t *bytes, size_t n, Why *why)
{
    return forward_read(bytes, n, &terms, got_sequences, got_wanted, &got, &head, why);
}

static Error read_answer(const uint8_t *bytes, size_t n, Why *why)
{
    return forward_read_answer(bytes, n, &frame, &terms, &got_answer, &head, why);
}

static int setup(void **state)
{
    (void)state;
    terms = (ForwardTerms){.identity = {HOSTILE_KNOT, 1, FRAME_CACHE_F16},
                           .hyper = &hyper,
                           .range = {phase_bound(1, PHASE_FFN_UP), phase_bound(3, PHASE_FFN_DOWN)},
                           .rows_max = ROWS,
                           .sequences_max = 4,
                           .context = CONTEXT};
    sequences[0] = (ForwardSequence){.session = 7, .position = 40, .rows = 1};
    sequences[1] = (ForwardSequence){
        .session = UINT64_MAX, .parent = 7, .parent_length = 30, .position = 30, .rows = 5};
    sequences[2] = (ForwardSequence){.session = 9, .position = CONTEXT - 3, .rows = 3};
    sequences[3] = (ForwardSequence){.session = 11, .position = CONTEXT, .rows = 0};
    wanted[0] = 0, wanted[1] = 5, wanted[2] = 8;
    frame = (Forward){.request_id = 0xfeedbeefcafe,
                      .mode = FORWARD_PREFILL,
                      .element = ROWS_F32,
                      .rows = ROWS,
                      .sequences = sequences,
                      .sequence_count = 4,
                      .wanted = wanted,
                      .wanted_count = 3};
    answer = (ForwardAnswer){.only_wanted = true, .rows = 3, .compute_us = 1234};
    header_bytes = forward_header_size(&frame);
    answer_bytes = forward_answer_header_size(&frame);
    forward_write(&frame, &terms, 77, header);
    forward_write_answer(&answer, &frame, &terms, 88, answer_header);
    return 0;
}

static void test_round_trip(void **state)
{
    (void)state;
    uint32_t size = 0;
    assert_int_equal(frame_header_bytes(header, FRAME_PREFIX_BYTES, FRAME_FORWARD, &size, NULL),
                     OK);
    assert_int_equal(size, header_bytes);
    assert_int_equal(read_frame(header, header_bytes, &hostile_why), OK);
    assert_int_equal(got.request_id, frame.request_id);
    assert_int_equal(got.rows, ROWS);
    assert_int_equal(got.mode, FORWARD_PREFILL);
    assert_int_equal(got.sequence_count, 4);
    assert_memory_equal(got_sequences, sequences, 4 * sizeof *sequences);
    assert_int_equal(got.wanted_count, 3);
    assert_memory_equal(got.wanted, wanted, 12);
    assert_int_equal(head.payload_hash, 77);
    assert_int_equal(head.payload_bytes, ROWS * (HIDDEN + FFN) * 4);
    assert_int_equal(read_answer(answer_header, answer_bytes, &hostile_why), OK);
    assert_true(got_answer.only_wanted);
    assert_int_equal(got_answer.compute_us, 1234);
    assert_int_equal(head.payload_bytes, 3 * (HIDDEN + FFN) * 4);
}

/* Which cuts carry g, going in and coming out. */
static void test_g_at_cuts(void **state)
{
    (void)state;
    frame.element = ROWS_INT8;
    for (int first = 0; first < 4; first++)
        for (int last = 0; last < 4; last++) {
            terms.range = (PhaseRange){phase_bound(1, (Phase)first), phase_bound(2, (Phase)last)};
            forward_write(&frame, &terms, 0, header);
            assert_int_equal(read_frame(header, header_bytes, &hostile_why), OK);
            assert_int_equal(head.payload_bytes, ROWS * (HIDDEN + 4 + (first >= 2 ? FFN + 4 : 0)));
            forward_write_answer(&answer, &frame, &terms, 0, answer_header);
            assert_int_equal(read_answer(answer_header, answer_bytes, &hostile_why), OK);
            assert_int_equal(head.payload_bytes, 3 * (HIDDEN + 4 + (last >= 2 ? FFN + 4 : 0)));
        }
    assert_int_equal(forward_g_at(&terms, ROWS_INT8, 3), 3 * (HIDDEN + 4));
}

static void test_zero_rows(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 3; count++) {
        for (uint32_t i = 0; i < count; i++) sequences[i].rows = 0;
        frame.rows = 0, frame.sequence_count = count, frame.wanted_count = 0;
        frame.wanted = count & 1 ? wanted : NULL;
        forward_write(&frame, &terms, hash_xxh64(NULL, 0), header);
        assert_int_equal(read_frame(header, forward_header_size(&frame), &hostile_why), OK);
        assert_int_equal(head.payload_bytes, 0);
        assert_int_equal(frame_check_payload(&head, NULL, 0, NULL), OK);
        assert_int_equal(got.wanted == NULL, !(count & 1));
    }
}

static void test_largest(void **state)
{
    (void)state;
    terms.rows_max = FRAME_ROWS_MAX, terms.sequences_max = FORWARD_SEQUENCES_MAX;
    terms.context = FORWARD_CONTEXT_MAX;
    for (uint32_t i = 0; i < FORWARD_SEQUENCES_MAX; i++)
        sequences[i] =
            (ForwardSequence){.session = i + 1, .position = FORWARD_CONTEXT_MAX - 4, .rows = 4};
    for (uint32_t i = 0; i < FRAME_ROWS_MAX; i++) wanted[i] = i;
    frame.rows = FRAME_ROWS_MAX, frame.sequence_count = FORWARD_SEQUENCES_MAX;
    frame.wanted_count = FRAME_ROWS_MAX;
    forward_write(&frame, &terms, 0, header);
    assert_int_equal(read_frame(header, forward_header_size(&frame), &hostile_why), OK);
    assert_memory_equal(got_sequences, sequences, sizeof sequences);
    terms.rows_max--;
    assert_int_equal(read_frame(header, forward_header_size(&frame), &hostile_why), ERR_TOO_LARGE);
    terms.rows_max++, terms.sequences_max--;
    assert_int_equal(read_frame(header, forward_header_size(&frame), &hostile_why), ERR_TOO_LARGE);
}

static Error set(size_t at, uint64_t value, size_t bytes)
{
    return hostile_set(read_frame, header, at, value, bytes);
}

static void test_fields(void **state)
{
    (void)state;
    assert_int_equal(set(56, 5, 4), ERR_UNSUPPORTED); /* range: both are named */
    assert_non_null(strstr(hostile_why.text, "layer 1 ffn_gate"));
    assert_non_null(strstr(hostile_why.text, "layer 1 ffn_up"));
    assert_int_equal(set(60, UINT32_MAX, 4), ERR_UNSUPPORTED);
    assert_int_equal(set(64, 0, 1), ERR_RANGE);
    assert_int_equal(set(64, 3, 1), OK);
    assert_int_equal(set(64, 4, 1), ERR_RANGE);
    assert_int_equal(set(64, FORWARD_DECODE, 1), ERR_RANGE); /* has a sequence of 5 rows */
    assert_int_equal(set(65, 0, 1), ERR_TYPE);
    assert_int_equal(set(65, 4, 1), ERR_TYPE);
    assert_int_equal(set(65, ROWS_F16, 1), ERR_FORMAT); /* another payload */
    assert_int_equal(set(66, 0, 2), ERR_TOO_LARGE);
    assert_int_equal(set(66, 3, 2), ERR_FORMAT);
    assert_int_equal(set(68, ROWS + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(68, UINT32_MAX, 4), ERR_TOO_LARGE);
    assert_int_equal(set(72, HIDDEN + 1, 4), ERR_SHAPE);
    assert_int_equal(set(76, 0, 4), ERR_SHAPE);
    assert_int_equal(set(80, 5, 4), ERR_TOO_LARGE);
    assert_int_equal(set(80, 0x80000000, 4), ERR_TOO_LARGE);
    assert_int_equal(set(84, ROWS + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(88, 1, 8), ERR_FORMAT);
    assert_int_equal(set(40, 1, 8), ERR_FORMAT);
    assert_int_equal(set(26, 2, 2), ERR_UNSUPPORTED);
    assert_non_null(strstr(hostile_why.text, "(q8_0)"));
    assert_non_null(strstr(hostile_why.text, "(f16)"));
}

static void test_sequences(void **state)
{
    (void)state;
    enum { S1 = 96 + 32, S2 = 96 + 64, WANTED = 96 + 128 };
    assert_int_equal(set(S1, 0, 8), ERR_RANGE);
    assert_int_equal(set(S1, 9, 8), ERR_DUPLICATE);
    assert_int_equal(set(S1 + 8, UINT64_MAX, 8), ERR_RANGE); /* its own parent */
    assert_int_equal(set(S1 + 8, 0, 8), ERR_RANGE);          /* a length without a parent */
    assert_int_equal(set(S1 + 16, 0, 4), ERR_RANGE);
    assert_int_equal(set(S1 + 16, 29, 4), ERR_RANGE); /* position 30 */
    assert_int_equal(set(S1 + 16, CONTEXT, 4), OK);
    assert_int_equal(set(S1 + 16, CONTEXT + 1, 4), ERR_RANGE);
    assert_int_equal(set(S1 + 20, 31, 4), ERR_RANGE);
    assert_int_equal(set(S1 + 20, 0, 4), OK);
    assert_int_equal(set(S1 + 24, 4, 4), ERR_SHAPE);
    assert_int_equal(set(S1 + 24, UINT32_MAX, 4), ERR_RANGE);
    assert_int_equal(set(S1 + 28, 1, 4), ERR_FORMAT);
    assert_int_equal(set(S2 + 20, CONTEXT - 2, 4), ERR_RANGE);
    assert_int_equal(set(S2 + 20, UINT32_MAX, 4), ERR_RANGE);
    assert_int_equal(set(WANTED + 4, 0, 4), ERR_RANGE);
    assert_int_equal(set(WANTED + 8, 9, 4), ERR_RANGE);
    assert_int_equal(set(WANTED + 12, 1, 4), ERR_FORMAT); /* what fills the header */
}

static void test_answer_fields(void **state)
{
    (void)state;
    HostileRead r = read_answer;
    const uint8_t *h = answer_header;
    assert_int_equal(hostile_set(r, h, 32, 1, 8), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 60, 1, 4), ERR_UNSUPPORTED);
    assert_int_equal(hostile_set(r, h, 64, 2, 1), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 65, 2, 1), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 66, 0, 2), ERR_FORMAT); /* all rows: 9, it has 3 */
    assert_int_equal(hostile_set(r, h, 66, 2, 2), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 68, 4, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 72, 4, 4), ERR_SHAPE);
    assert_int_equal(hostile_set(r, h, 80, 3, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 84, UINT32_MAX, 4), OK); /* a measurement */
    assert_int_equal(hostile_set(r, h, 88, 1, 1), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 96, 8, 8), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 96 + 8, 42, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(r, h, 96 + 12, 1, 4), ERR_FORMAT);
    frame.wanted = NULL;
    assert_int_equal(read_answer(h, answer_bytes, &hostile_why), ERR_FORMAT);
}

static void test_hostile(void **state)
{
    (void)state;
    hostile_cut(read_frame, header, header_bytes);
    hostile_flip(read_frame, header, header_bytes);
    hostile_any(read_frame, header, header_bytes);
    hostile_handshake(read_frame, header);
    hostile_cut(read_answer, answer_header, answer_bytes);
    hostile_flip(read_answer, answer_header, answer_bytes);
    hostile_any(read_answer, answer_header, answer_bytes);
    hostile_handshake(read_answer, answer_header);
}

static void test_prefix(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 64, 127, 129, 0x7fffffc0};
    uint32_t size;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes_store32(header + 8, bad[i]);
        assert_int_not_equal(frame_header_bytes(header, 16, FRAME_FORWARD, &size, NULL), OK);
    }
    bytes_store32(header + 8, FRAME_HEADER_BYTES_MAX);
    assert_int_equal(frame_header_bytes(header, 16, FRAME_FORWARD, &size, NULL), OK);
    bytes_store32(header + 8, FRAME_HEADER_BYTES_MAX + 64);
    assert_int_equal(frame_header_bytes(header, 16, FRAME_FORWARD, &size, NULL), ERR_TOO_LARGE);
}

static void test_payload(void **state)
{
    (void)state;
    uint8_t payload[100];
    for (int i = 0; i < 100; i++) payload[i] = (uint8_t)(i * 7);
    FrameHead h = {.payload_bytes = 100, .payload_hash = hash_xxh64(payload, 100)};
    assert_int_equal(frame_check_payload(&h, payload, 100, NULL), OK);
    assert_int_equal(frame_check_payload(&h, payload, 99, NULL), ERR_TRUNCATED);
    assert_int_equal(frame_check_payload(&h, payload, 101, NULL), ERR_FORMAT);
    for (int bit = 0; bit < 800; bit++) {
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(frame_check_payload(&h, payload, 100, NULL), ERR_CHECKSUM);
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip), TEST(test_g_at_cuts), TEST(test_zero_rows),     TEST(test_largest),
        TEST(test_fields),     TEST(test_sequences), TEST(test_answer_fields), TEST(test_hostile),
        TEST(test_prefix),     TEST(test_payload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
