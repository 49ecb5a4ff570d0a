/* SPDX-License-Identifier: Apache-2.0 */
/* AWFR frames: pieces of tensors, whole panels, hashes, hostile bytes. */
#include "hostile.h"
#include "small_tensors.h"

#include "wire/awfr.h"

enum { PIECES = 6 };
static Knot knot;
static uint8_t memory[1 << 18];
static AwfrTerms terms;
static AwfrPiece pieces[PIECES], got[AWFR_PIECES_MAX];
static uint32_t got_count;
static FrameHead head;
static uint8_t header[FRAME_HEADER_BYTES_MAX];
static uint8_t payload[1 << 14];
static size_t header_bytes;
static uint64_t payload_bytes;

static Error read_request(const uint8_t *h, size_t n, Why *why)
{
    return awfr_read(FRAME_TENSORS, h, n, &terms, got, &got_count, &head, why);
}
static Error read_answer(const uint8_t *h, size_t n, Why *why)
{
    return awfr_read(FRAME_TENSORS_ANSWER, h, n, &terms, got, &got_count, &head, why);
}

static void write_frame(FrameKind kind)
{
    for (int i = 0; i < PIECES; i++)
        if (kind == FRAME_TENSORS) pieces[i].hash_kind = AWFR_HASH_NONE;
    header_bytes = awfr_header_size(pieces, PIECES);
    awfr_write(kind, &terms, 5, pieces, PIECES, header);
}

static int setup(void **state)
{
    (void)state;
    assert_true(small_tensors_make(&knot, memory, sizeof memory));
    const KnotTensor *embd = &knot.tensors[0], *norm = &knot.tensors[1], *up = &knot.tensors[2];
    terms = (AwfrTerms){.identity = {HOSTILE_KNOT, 1, FRAME_CACHE_NONE},
                        .knot = &knot,
                        .pieces_max = PIECES,
                        .payload_bytes_max = sizeof payload};
    pieces[0] = (AwfrPiece){embd, 3, 1, AWFR_HASH_EMBEDDING_ROW, 0, 0, 0, false};
    pieces[1] = (AwfrPiece){embd, 49, 1, AWFR_HASH_EMBEDDING_ROW, 0, 0, 0, false};
    pieces[2] = (AwfrPiece){norm, 0, 1, AWFR_HASH_TENSOR, 0, 0, 0, false};
    pieces[3] = (AwfrPiece){up, 16, 24, AWFR_HASH_PIECE,
                            0,  0,  0,  false}; /* to the end, 8 rows in the last */
    pieces[4] = (AwfrPiece){up, 0, 16, AWFR_HASH_PIECE, 0, 0, 0, false};
    pieces[5] = (AwfrPiece){embd, 0, 50, AWFR_HASH_TENSOR, 0, 0, 0, false};
    assert_int_equal(awfr_lay_out(pieces, PIECES, &payload_bytes, &hostile_why), OK);
    memset(payload, 0, sizeof payload);
    for (int i = 0; i < PIECES; i++) {
        for (uint64_t b = 0; b < pieces[i].bytes; b++)
            payload[pieces[i].at + b] = (uint8_t)(b * 31 + 1);
        pieces[i].hash = hash_xxh64(payload + pieces[i].at, pieces[i].bytes);
    }
    write_frame(FRAME_TENSORS_ANSWER);
    return 0;
}

static void test_layout(void **state)
{
    (void)state;
    assert_int_equal(pieces[0].bytes, 68);
    assert_int_equal(pieces[1].at, 128);
    assert_int_equal(pieces[2].bytes, 256);
    assert_int_equal(pieces[3].bytes, 2 * pieces[4].bytes); /* padding rows are there */
    for (int i = 0; i < PIECES; i++) assert_int_equal(pieces[i].at % 64, 0);
    assert_int_equal(payload_bytes, pieces[5].at + 3400);
    assert_int_equal(header_bytes, 576); /* 64 + 3 names * 64 + 6 pieces * 48 = 544 */
}

static void test_round_trip(void **state)
{
    (void)state;
    assert_int_equal(read_answer(header, header_bytes, &hostile_why), OK);
    assert_int_equal(got_count, PIECES);
    assert_int_equal(head.payload_bytes, payload_bytes);
    for (int i = 0; i < PIECES; i++) {
        assert_ptr_equal(got[i].tensor, pieces[i].tensor);
        assert_int_equal(got[i].row_first, pieces[i].row_first);
        assert_int_equal(got[i].row_count, pieces[i].row_count);
        assert_int_equal(got[i].hash_kind, pieces[i].hash_kind);
        assert_int_equal(got[i].at, pieces[i].at);
        assert_int_equal(awfr_check_piece(&got[i], payload + got[i].at, NULL), OK);
    }
    assert_int_equal(awfr_check_gaps(got, got_count, payload, NULL), OK);
    assert_int_equal(awfr_check_answer(pieces, PIECES, got, got_count, NULL), OK);
    got[4].row_count = 1;
    assert_int_equal(awfr_check_answer(pieces, PIECES, got, got_count, NULL), ERR_FORMAT);
    assert_int_equal(awfr_check_answer(pieces, PIECES - 1, got, got_count, NULL), ERR_FORMAT);
}

static void test_request(void **state)
{
    (void)state;
    write_frame(FRAME_TENSORS);
    assert_int_equal(read_request(header, header_bytes, &hostile_why), OK);
    assert_int_equal(head.payload_bytes, 0);
    assert_int_equal(frame_check_payload(&head, NULL, 0, NULL), OK);
    assert_int_equal(hostile_set(read_request, header, 64 + 3 * 64 + 6, 1, 2), ERR_FORMAT);
    assert_int_equal(hostile_set(read_request, header, 64 + 3 * 64 + 32, 1, 8), ERR_FORMAT);
    hostile_cut(read_request, header, header_bytes);
    hostile_flip(read_request, header, header_bytes);
    hostile_any(read_request, header, header_bytes);
    hostile_handshake(read_request, header);
}

static void test_poison(void **state)
{
    (void)state;
    assert_int_equal(read_answer(header, header_bytes, &hostile_why), OK);
    for (uint64_t bit = 0; bit < got[4].bytes * 8; bit += 11) {
        payload[got[4].at + bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(awfr_check_piece(&got[4], payload + got[4].at, &hostile_why),
                         ERR_CHECKSUM);
        assert_non_null(strstr(hostile_why.text, "blk_0_ffn_up_weight"));
        payload[got[4].at + bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    payload[68] = 1;
    assert_int_equal(awfr_check_gaps(got, got_count, payload, NULL), ERR_FORMAT);
}

/* One embedding row may come as float32, with the sender's own hash and in an answer only. */
static void test_f32_row(void **state)
{
    (void)state;
    enum { P1 = 64 + 3 * 64 + 48 };
    pieces[1].as_f32 = true;
    pieces[1].hash_kind = AWFR_HASH_PIECE;
    assert_int_equal(awfr_lay_out(pieces, PIECES, &payload_bytes, &hostile_why), OK);
    assert_int_equal(pieces[1].bytes, 64 * 4);
    for (int i = 0; i < PIECES; i++)
        pieces[i].hash = hash_xxh64(payload + pieces[i].at, pieces[i].bytes);
    write_frame(FRAME_TENSORS_ANSWER);
    assert_int_equal(read_answer(header, header_bytes, &hostile_why), OK);
    assert_true(got[1].as_f32);
    assert_false(got[0].as_f32);
    assert_int_equal(got[1].bytes, 64 * 4);
    assert_int_equal(awfr_check_piece(&got[1], payload + got[1].at, NULL), OK);
    assert_int_equal(awfr_check_answer(pieces, PIECES, got, got_count, NULL), OK);
    assert_int_equal(hostile_set(read_answer, header, P1 + 6, AWFR_HASH_EMBEDDING_ROW, 2),
                     ERR_FORMAT);
    assert_int_equal(hostile_set(read_answer, header, P1 + 20, 2, 4), ERR_TYPE); /* one row only */
    assert_int_equal(hostile_set(read_answer, header, P1 + 24, 68, 8), ERR_SHAPE);
    assert_int_equal(hostile_set(read_answer, header, P1 + 3 * 48 + 4, 0, 1),
                     ERR_TYPE); /* not a matrix */
    assert_int_equal(hostile_set(read_request, header, P1 + 4, 0, 1), ERR_FORMAT); /* an answer */
    hostile_cut(read_answer, header, header_bytes);
    hostile_flip(read_answer, header, header_bytes);
    hostile_any(read_answer, header, header_bytes);
    pieces[1].as_f32 = false;
    assert_int_equal(awfr_lay_out(pieces, PIECES, &payload_bytes, &hostile_why), OK);
    write_frame(FRAME_TENSORS);
    assert_int_equal(hostile_set(read_request, header, P1 + 4, 0, 1),
                     ERR_TYPE); /* nobody asks for it */
}

static void test_hostile(void **state)
{
    (void)state;
    hostile_cut(read_answer, header, header_bytes);
    hostile_flip(read_answer, header, header_bytes);
    hostile_any(read_answer, header, header_bytes);
    hostile_handshake(read_answer, header);
}

static Error set(size_t at, uint64_t value, size_t bytes)
{
    return hostile_set(read_answer, header, at, value, bytes);
}

static void test_fields(void **state)
{
    (void)state;
    enum { P = 64 + 3 * 64, P3 = P + 3 * 48, P4 = P + 4 * 48 };
    assert_int_equal(set(56, 0, 4), ERR_FORMAT);
    assert_int_equal(set(56, AWFR_NAMES_MAX + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(56, 7, 4), ERR_FORMAT); /* more names than pieces */
    assert_int_equal(set(60, 0, 4), ERR_FORMAT);
    assert_int_equal(set(60, PIECES + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(60, UINT32_MAX, 4), ERR_TOO_LARGE);
    assert_int_equal(set(64, 'x', 1), ERR_MISSING_TENSOR);
    assert_int_equal(set(64 + 63, 'x', 1), ERR_FORMAT); /* behind the name's NUL */
    assert_int_equal(set(P, 3, 4), ERR_RANGE);
    assert_int_equal(set(P + 4, 2, 1), ERR_TYPE);
    assert_int_equal(set(P + 5, 1, 1), ERR_TYPE);
    assert_int_equal(set(P + 6, 0, 2), ERR_FORMAT);
    assert_int_equal(set(P + 6, AWFR_HASH_TENSOR, 2), ERR_FORMAT); /* one row of 50 */
    assert_int_equal(set(P + 6, AWFR_HASH_PIECE, 2), OK);
    assert_int_equal(set(P + 6, 4, 2), ERR_FORMAT);
    assert_int_equal(set(P3 + 6, AWFR_HASH_EMBEDDING_ROW, 2), ERR_FORMAT);
    assert_int_equal(set(P + 8, 51, 4), ERR_SHAPE);
    assert_int_equal(set(P + 12, 32, 4), ERR_SHAPE);
    assert_int_equal(set(P + 16, 49, 4), OK);
    assert_int_equal(set(P + 16, 50, 4), ERR_RANGE);
    assert_int_equal(set(P + 16, UINT32_MAX, 4), ERR_RANGE);
    assert_int_equal(set(P + 20, 0, 4), ERR_RANGE);
    assert_int_equal(set(P + 20, 48, 4), ERR_RANGE);
    assert_int_equal(set(P + 20, UINT32_MAX, 4), ERR_RANGE);
    assert_int_equal(set(P3 + 16, 8, 4), ERR_RANGE);  /* cuts a panel */
    assert_int_equal(set(P3 + 20, 23, 4), ERR_RANGE); /* cuts the last */
    assert_int_equal(set(P4 + 16, 24, 4), ERR_RANGE);
    assert_int_equal(set(P + 24, 69, 8), ERR_SHAPE);
    assert_int_equal(set(P + 40, 1, 8), ERR_FORMAT);
    assert_int_equal(set(40, payload_bytes + 1, 8), ERR_FORMAT);
    assert_int_equal(set(40, sizeof payload + 1, 8), ERR_TOO_LARGE);
    assert_int_equal(set(48, 1, 8), ERR_FORMAT);
    memcpy(header + 64 + 64, header + 64, 64);
    frame_seal(header);
    assert_int_equal(read_answer(header, header_bytes, &hostile_why), ERR_DUPLICATE);
}

static void test_many(void **state)
{
    (void)state;
    static AwfrPiece many[AWFR_PIECES_MAX];
    for (uint32_t i = 0; i < AWFR_PIECES_MAX; i++)
        many[i] = (AwfrPiece){&knot.tensors[0], i % 50, 1, AWFR_HASH_NONE, 0, 0, 0, false};
    terms.pieces_max = AWFR_PIECES_MAX;
    assert_int_equal(awfr_lay_out(many, AWFR_PIECES_MAX, &payload_bytes, NULL), OK);
    awfr_write(FRAME_TENSORS, &terms, 1, many, AWFR_PIECES_MAX, header);
    assert_int_equal(read_request(header, awfr_header_size(many, AWFR_PIECES_MAX), NULL), OK);
    assert_int_equal(got_count, AWFR_PIECES_MAX);
    assert_int_equal(got[AWFR_PIECES_MAX - 1].row_first, (AWFR_PIECES_MAX - 1) % 50);
    terms.pieces_max--;
    assert_int_equal(read_request(header, awfr_header_size(many, AWFR_PIECES_MAX), NULL),
                     ERR_TOO_LARGE);
    many[0].row_count = 51;
    assert_int_equal(awfr_lay_out(many, 1, &payload_bytes, NULL), ERR_RANGE);
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_layout), TEST(test_round_trip), TEST(test_request), TEST(test_f32_row),
        TEST(test_poison), TEST(test_hostile),    TEST(test_fields),  TEST(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
