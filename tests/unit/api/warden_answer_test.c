/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a warden without the reading: what it refuses, which hash a piece has, and that a client
 * takes the frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../wire/small_tensors.h"
#include "api/warden_answer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "quant/numerics.h"

enum { ROW_BYTES = 68, EMBEDDING_ROWS = 50 };

static KnotIndex x;
static uint8_t memory[1 << 18], row_hashes[8 * EMBEDDING_ROWS],
    embedding[EMBEDDING_ROWS * ROW_BYTES];
static WardenServing shard, layer;
static Why why;

static int setup(void **state)
{
    (void)state;
    if (!small_tensors_make(&x.knot, memory, sizeof memory)) return -1;
    for (size_t i = 0; i < sizeof embedding; i++) embedding[i] = (uint8_t)(i * 31 + i / 68);
    for (uint32_t i = 0; i < EMBEDDING_ROWS; i++)
        bytes_store64(row_hashes + 8 * i, hash_xxh64(embedding + i * ROW_BYTES, ROW_BYTES));
    x.row_hashes = row_hashes;
    x.knot.embedding_row_hashes.bytes = sizeof row_hashes;
    shard = (WardenServing){{x.knot.id, true, 10, 30}, &x, &x.knot.tensors[0]};
    layer = (WardenServing){{x.knot.id, false, 0, 4}, &x, NULL};
    return 0;
}

static void finds_the_vocabulary(void **state)
{
    (void)state;
    const KnotTensor *t;
    uint32_t row_bytes;
    assert_int_equal(warden_answer_find_vocab(&x, 30, &t, &row_bytes, &why), OK);
    assert_ptr_equal(t, &x.knot.tensors[0]);
    assert_int_equal(row_bytes, ROW_BYTES);
    assert_int_equal(warden_answer_find_vocab(&x, 51, &t, &row_bytes, &why), ERR_RANGE);
    KnotIndex bare = x;
    bare.knot.embedding_row_hashes.bytes = 0;
    assert_int_equal(warden_answer_find_vocab(&bare, 30, &t, &row_bytes, &why), ERR_FORMAT);
    assert_true(warden_answer_row_is_right(&x, 7, embedding + 7 * ROW_BYTES, ROW_BYTES));
    assert_false(warden_answer_row_is_right(&x, 8, embedding + 7 * ROW_BYTES, ROW_BYTES));
    assert_false(warden_answer_row_is_right(&x, 50, embedding, ROW_BYTES));
}

static void refuses_what_is_not_its_own_or_too_much(void **state)
{
    (void)state;
    static AwfrPiece many[AWFR_PIECES_MAX];
    uint32_t rows;
    AwfrPiece row = {.tensor = &x.knot.tensors[0], .row_first = 10, .row_count = 1},
              other = {.tensor = &x.knot.tensors[0], .row_first = 30, .row_count = 1},
              matrix = {.tensor = &x.knot.tensors[2], .row_count = 40};
    assert_int_equal(warden_answer_check(&shard, &row, 1, &rows, &why), OK);
    assert_int_equal(rows, 1);
    assert_int_equal(warden_answer_check(&shard, &other, 1, &rows, &why), ERR_RANGE);
    assert_int_equal(warden_answer_check(&shard, &matrix, 1, &rows, &why), ERR_RANGE);
    assert_int_equal(warden_answer_check(&layer, &matrix, 1, &rows, &why), OK);
    assert_int_equal(rows, 0);
    KnotTensor wide = x.knot.tensors[0];
    KnotIndex large = x;
    wide.cols = 4096;
    large.knot.tensors = &wide;
    WardenServing w = {shard.identity, &large, &wide};
    for (uint32_t i = 0; i < 513; i++)
        many[i] = (AwfrPiece){.tensor = &wide, .row_first = 10, .row_count = 1};
    assert_int_equal(warden_answer_check(&w, many, 512, &rows, &why), OK); /* 8 MiB as float32 */
    assert_int_equal(warden_answer_check(&w, many, 513, &rows, &why), ERR_TOO_LARGE);
    assert_int_equal(warden_answer_check_size(5, 4, &why), ERR_TOO_LARGE);
    assert_int_equal(warden_answer_check_size(4, 4, &why), OK);
}

/* One row as it is stored, one as float32; the reader of the other side takes both. */
static void a_client_takes_the_frame(void **state)
{
    (void)state;
    AwfrPiece p[2] =
        {{.tensor = &x.knot.tensors[0], .row_first = 12, .row_count = 1},
         {.tensor = &x.knot.tensors[0], .row_first = 13, .row_count = 1, .as_f32 = true}},
              got[2];
    WardenSizes sizes;
    uint8_t body[4096] = {0};
    uint32_t count;
    FrameHead head;
    assert_int_equal(warden_answer_lay_out(p, 2, &sizes, &why), OK);
    assert_int_equal(sizes.payload_bytes, 128 + 64 * 4);
    uint8_t *payload = body + sizes.header_bytes;
    memcpy(payload + p[0].at, embedding + 12 * ROW_BYTES, ROW_BYTES);
    memset(payload + p[1].at, 7, 64 * 4);
    for (int i = 0; i < 2; i++) warden_answer_hash(&shard, &p[i], payload + p[i].at);
    assert_int_equal(p[0].hash_kind, AWFR_HASH_EMBEDDING_ROW);
    assert_int_equal(p[1].hash_kind, AWFR_HASH_PIECE);
    warden_answer_write_head(&shard, p, 2, 77, body);
    AwfrTerms terms = {.identity = {x.knot.id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &x.knot,
                       .pieces_max = 2,
                       .payload_bytes_max = sizeof body};
    assert_int_equal(awfr_read(FRAME_TENSORS_ANSWER, body, sizes.header_bytes + sizes.payload_bytes,
                               &terms, got, &count, &head, &why),
                     OK);
    assert_int_equal(count, 2);
    assert_int_equal(head.request_id, 77);
    assert_true(got[1].as_f32);
    for (int i = 0; i < 2; i++)
        assert_int_equal(awfr_check_piece(&got[i], payload + got[i].at, &why), OK);
}

static void reads_requests_of_its_knot(void **state)
{
    (void)state;
    AwfrPiece p = {.tensor = &x.knot.tensors[0], .row_first = 12, .row_count = 1};
    uint64_t bytes, request_id;
    uint32_t count;
    uint8_t body[512];
    AwfrTerms terms = {.identity = {x.knot.id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &x.knot};
    assert_int_equal(awfr_lay_out(&p, 1, &bytes, &why), OK);
    size_t size = awfr_header_size(&p, 1);
    assert_true(size <= sizeof body);
    awfr_write(FRAME_TENSORS, &terms, 9, &p, 1, body);
    static AwfrPiece room[AWFR_PIECES_MAX];
    assert_int_equal(warden_answer_read(&shard, body, size, room, &count, &request_id, &why), OK);
    assert_int_equal(count, 1);
    assert_int_equal(request_id, 9);
    assert_int_equal(room[0].row_first, 12);
    WardenServing stranger = shard;
    stranger.identity.knot_id++;
    assert_int_equal(warden_answer_read(&stranger, body, size, room, &count, &request_id, &why),
                     ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_vocabulary),
        cmocka_unit_test(refuses_what_is_not_its_own_or_too_much),
        cmocka_unit_test(a_client_takes_the_frame),
        cmocka_unit_test(reads_requests_of_its_knot),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
