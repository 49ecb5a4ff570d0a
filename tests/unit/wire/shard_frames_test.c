/* SPDX-License-Identifier: Apache-2.0 */
/* Embed and logits frames: round trips over several shards, limits, hostile bytes. */
#include "hostile.h"

#include <math.h>

#include "wire/shard_frames.h"

enum { WIDTH = 12, COUNT = 7, ROWS = 3, FIRST = 100, LAST = 140, VOCABULARY = 300 };

static const Hyper hyper = {.layers = 2, .hidden = WIDTH, .vocabulary = VOCABULARY};
static ShardTerms terms;
static FrameHead head;
static const uint32_t ids[COUNT] = {100, 5, 139, 299, 100, 140, 99};
static uint8_t header[FRAME_HEADER_BYTES_MAX], answer[FRAME_HEADER_BYTES_MAX];
static _Alignas(8) uint8_t payload[1 << 16];
static EmbedRequest embed, got_embed;
static LogitsRow rows[ROWS], got_rows[ROWS];
static LogitsRequest logits, got_logits;
static LogitsResult results[ROWS], got_results[ROWS];
static const SamplerSeen seen[] = {{3, 1}, {100, 2}, {120, 1}, {139, 9}, {140, 4}};
static const SamplerBias bias[] = {{139, -100.0f}, {7, 1.0f}, {101, 2.5f}};
static uint32_t mask[(VOCABULARY + 31) / 32];
static SamplerCandidate candidates[2][LAST - FIRST];
static float slice[LAST - FIRST], hidden[ROWS * WIDTH], back[ROWS * WIDTH];

static Error read_embed(const uint8_t *h, size_t n, Why *why)
{
    return shard_frames_read_embed(h, n, &terms, &got_embed, &head, why);
}
static Error read_embed_answer(const uint8_t *h, size_t n, Why *why)
{
    return shard_frames_read_embed_answer(h, n, &embed, &terms, ids, &head, why);
}
static Error read_logits(const uint8_t *h, size_t n, Why *why)
{
    return shard_frames_read_logits(h, n, &terms, got_rows, &got_logits, &head, why);
}
static Error read_logits_answer(const uint8_t *h, size_t n, Why *why)
{
    return shard_frames_read_logits_answer(h, n, &logits, &terms, got_results, &head, why);
}

static void setup_logits(void)
{
    for (uint32_t i = 0; i < ROWS; i++) rows[i] = (LogitsRow){.k = i, .repetition_penalty = 1.0f};
    rows[1] = (LogitsRow){.k = VOCABULARY,
                          .wants_sum = true,
                          .sum_scale = 0.5f,
                          .repetition_penalty = 1.3f,
                          .presence_penalty = -100.0f,
                          .frequency_penalty = 100.0f,
                          .seen = seen,
                          .seen_count = 5,
                          .bias = bias,
                          .bias_count = 3};
    rows[2].wants_slice = true;
    rows[2].mask = mask;
    rows[0].wants_id = rows[2].wants_id = true;
    rows[0].id = FIRST - 1; /* another shard's */
    rows[2].id = LAST - 1;
    for (uint32_t id = 0; id < VOCABULARY; id++) mask[id / 32] |= (uint32_t)(id % 7 < 3) << id % 32;
    logits = (LogitsRequest){.request_id = 3, .element = ROWS_F32, .rows = ROWS, .row = rows};
    for (uint32_t i = 0; i < LAST - FIRST; i++) {
        slice[i] = (float)i - 7.0f;
        candidates[0][i] = (SamplerCandidate){FIRST + i, -(float)(i / 2)}; /* ties by id */
    }
    slice[3] = -INFINITY;
    candidates[1][0] = (SamplerCandidate){LAST - 1, 32.0f};
    candidates[1][1] = (SamplerCandidate){LAST - 2, 31.0f};
    memset(results, 0, sizeof results);
    results[1] = (LogitsResult){.candidates = candidates[0], .candidate_count = LAST - FIRST};
    logsum_start(&results[1].sum);
    logsum_add(&results[1].sum, slice, LAST - FIRST, 0.5f);
    results[2] = (LogitsResult){
        .candidates = candidates[1], .candidate_count = 2, .slice = slice, .id_logit = 32.0f};
    for (int i = 0; i < ROWS * WIDTH; i++) hidden[i] = (float)i * 0.25f;
}

static int setup(void **state)
{
    (void)state;
    terms = (ShardTerms){.identity = {HOSTILE_KNOT, 1, FRAME_CACHE_NONE},
                         .hyper = &hyper,
                         .id_first = FIRST,
                         .id_last = LAST,
                         .rows_max = COUNT,
                         .payload_bytes_max = sizeof payload};
    embed =
        (EmbedRequest){.request_id = 9, .element = ROWS_F32, .form = EMBED_SPARSE, .count = COUNT};
    setup_logits();
    return 0;
}

static void value_of(uint32_t id, float *row)
{
    for (uint32_t c = 0; c < WIDTH; c++) row[c] = (float)id + (float)c / 16.0f;
    row[1] = -0.0f;
}

/* All shards of a cut vocabulary, in any order, one twice: the sum. */
static void embed_all(EmbedForm form, RowsElement element)
{
    static const uint32_t cuts[] = {0, 99, 100, 140, 140, 300};
    static const int order[] = {2, 4, 0, 2, 1, 3};
    float into[COUNT * WIDTH] = {0}, partial[COUNT * WIDTH];
    embed.form = form, embed.element = element;
    for (int o = 0; o < 6; o++) {
        terms.id_first = cuts[order[o]], terms.id_last = cuts[order[o] + 1];
        memset(partial, 0, sizeof partial);
        for (uint32_t i = 0; i < COUNT; i++)
            if (ids[i] >= terms.id_first && ids[i] < terms.id_last)
                value_of(ids[i], partial + i * WIDTH);
        ShardFrameSize size = shard_frames_size_embed_answer(&embed, &terms, ids);
        assert_int_equal(shard_frames_write_embed_answer(&embed, &terms, ids, partial, answer,
                                                         payload, &hostile_why),
                         OK);
        assert_int_equal(read_embed_answer(answer, size.header_bytes, &hostile_why), OK);
        assert_int_equal(head.payload_bytes, size.payload_bytes);
        assert_int_equal(shard_frames_take_embed(&embed, &head, &terms, ids, payload,
                                                 size.payload_bytes, into, &hostile_why),
                         OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        float want[WIDTH];
        value_of(ids[i], want);
        want[1] = 0.0f;
        for (uint32_t c = 0; c < WIDTH; c++)
            assert_true(fabsf(into[i * WIDTH + c] - want[c]) <= (element == ROWS_F32 ? 0 : 1.2f));
        assert_false(signbit(into[i * WIDTH + 1]));
    }
}

static void test_embed_forms(void **state)
{
    (void)state;
    for (int form = EMBED_DENSE; form <= EMBED_SPARSE; form++)
        for (int e = ROWS_F32; e <= ROWS_INT8; e++) embed_all((EmbedForm)form, (RowsElement)e);
}

static void test_embed_request(void **state)
{
    (void)state;
    uint32_t got[COUNT];
    ShardFrameSize size = shard_frames_size_embed(&embed);
    shard_frames_write_embed(&embed, &terms, ids, header);
    assert_int_equal(read_embed(header, size.header_bytes, &hostile_why), OK);
    assert_int_equal(got_embed.count, COUNT);
    assert_int_equal(got_embed.form, EMBED_SPARSE);
    memcpy(payload, ids, sizeof ids);
    assert_int_equal(
        shard_frames_take_ids(&got_embed, &head, &terms, payload, sizeof ids, got, NULL), OK);
    assert_memory_equal(got, ids, sizeof ids);
    bytes_store32(payload + 8, VOCABULARY);
    head.payload_hash = hash_xxh64(payload, sizeof ids);
    assert_int_equal(
        shard_frames_take_ids(&got_embed, &head, &terms, payload, sizeof ids, got, NULL),
        ERR_RANGE);
    hostile_cut(read_embed, header, size.header_bytes);
    hostile_flip(read_embed, header, size.header_bytes);
    hostile_any(read_embed, header, size.header_bytes);
    hostile_handshake(read_embed, header);
    assert_int_equal(hostile_set(read_embed, header, 26, 1, 2), ERR_UNSUPPORTED);
    assert_int_equal(hostile_set(read_embed, header, 56, 101, 4), ERR_UNSUPPORTED);
    assert_non_null(strstr(hostile_why.text, "ids 101 to 140, this node has 100 to 140"));
    assert_int_equal(hostile_set(read_embed, header, 64, COUNT + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(hostile_set(read_embed, header, 64, COUNT - 1, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(read_embed, header, 68, 4, 1), ERR_TYPE);
    assert_int_equal(hostile_set(read_embed, header, 69, 3, 1), ERR_FORMAT);
    assert_int_equal(hostile_set(read_embed, header, 69, 0, 1), ERR_FORMAT);
    assert_int_equal(hostile_set(read_embed, header, 72, WIDTH - 1, 4), ERR_SHAPE);
    assert_int_equal(hostile_set(read_embed, header, 76, 1, 4), ERR_FORMAT);
    terms.payload_bytes_max = 27;
    assert_int_equal(read_embed(header, size.header_bytes, &hostile_why), ERR_TOO_LARGE);
}

static void test_embed_answer_hostile(void **state)
{
    (void)state;
    float partial[COUNT * WIDTH] = {0};
    ShardFrameSize size = shard_frames_size_embed_answer(&embed, &terms, ids);
    assert_int_equal(
        shard_frames_write_embed_answer(&embed, &terms, ids, partial, answer, payload, NULL), OK);
    assert_int_equal(size.payload_bytes, 3 * WIDTH * 4);
    hostile_cut(read_embed_answer, answer, size.header_bytes);
    hostile_flip(read_embed_answer, answer, size.header_bytes);
    hostile_any(read_embed_answer, answer, size.header_bytes);
    hostile_handshake(read_embed_answer, answer);
    assert_int_equal(hostile_set(read_embed_answer, answer, 80, 1, 4), ERR_FORMAT); /* not its id */
    assert_int_equal(hostile_set(read_embed_answer, answer, 84, 0, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(read_embed_answer, answer, 76, 2, 4), ERR_FORMAT);
    partial[2 * WIDTH] = NAN;
    assert_int_equal(
        shard_frames_write_embed_answer(&embed, &terms, ids, partial, answer, payload, NULL),
        ERR_NOT_FINITE);
}

static ShardFrameSize write_logits(void)
{
    ShardFrameSize size = shard_frames_size_logits(&logits, &terms);
    assert_int_equal(
        shard_frames_write_logits(&logits, &terms, hidden, header, payload, &hostile_why), OK);
    assert_int_equal(read_logits(header, size.header_bytes, &hostile_why), OK);
    assert_int_equal(head.payload_bytes, size.payload_bytes);
    return size;
}

static Error take_logits(uint64_t bytes)
{
    head.payload_hash = hash_xxh64(payload, bytes);
    return shard_frames_take_logits(&got_logits, &head, &terms, payload, bytes, back, &hostile_why);
}

static void test_logits_request(void **state)
{
    (void)state;
    ShardFrameSize size = write_logits();
    assert_int_equal(size.payload_bytes,
                     ROWS * WIDTH * 4 + (3 + 2) * 8 + 8 + 4); /* those of the range */
    assert_int_equal(take_logits(size.payload_bytes), OK);
    assert_memory_equal(hidden, back, sizeof hidden);
    assert_int_equal(got_rows[1].seen_count, 3);
    assert_memory_equal(got_rows[1].seen, seen + 1, 3 * sizeof *seen);
    assert_int_equal(got_rows[1].bias_count, 2);
    assert_int_equal(got_rows[1].bias[1].id, 101);
    assert_true(got_rows[1].repetition_penalty == 1.3f && got_rows[1].sum_scale == 0.5f);
    assert_true(got_rows[2].wants_slice && !got_rows[1].wants_slice && got_rows[1].wants_sum);
    assert_int_equal(got_rows[1].k, VOCABULARY);
    assert_true(!got_rows[0].mask && !got_rows[1].mask && got_rows[2].mask);
    for (uint32_t id = FIRST; id < FIRST + 64; id++)
        assert_int_equal(got_rows[2].mask[(id - FIRST) / 32] >> (id - FIRST) % 32 & 1,
                         id < LAST && id % 7 < 3);
    assert_true(!got_rows[0].wants_id && !got_rows[1].wants_id && got_rows[2].wants_id);
    assert_int_equal(got_rows[2].id, LAST - 1);
    bytes_store32(payload + size.payload_bytes - 4, LAST);
    assert_int_equal(take_logits(size.payload_bytes), ERR_RANGE);
    (void)write_logits();
    payload[size.payload_bytes - 5] |= 1; /* behind the range's last id */
    assert_int_equal(take_logits(size.payload_bytes), ERR_FORMAT);
    (void)write_logits();
    hostile_cut(read_logits, header, size.header_bytes);
    hostile_flip(read_logits, header, size.header_bytes);
    hostile_any(read_logits, header, size.header_bytes);
    hostile_handshake(read_logits, header);
}

static Error set_float(size_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return hostile_set(read_logits, header, at, bits, 4);
}

static void test_logits_fields(void **state)
{
    (void)state;
    enum { R0 = 96, R1 = 96 + 32 };
    HostileRead r = read_logits;
    (void)write_logits();
    assert_int_equal(hostile_set(r, header, 64, COUNT + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(hostile_set(r, header, 64, COUNT, 4), ERR_FORMAT); /* beyond the header */
    assert_int_equal(hostile_set(r, header, R1, VOCABULARY + 1, 4), ERR_RANGE);
    assert_int_equal(set_float(R1 + 4, 0.0f), ERR_RANGE);
    assert_int_equal(set_float(R1 + 4, NAN), ERR_RANGE);
    assert_int_equal(set_float(R1 + 4, INFINITY), ERR_RANGE);
    assert_int_equal(set_float(R0 + 4, 1.0f), ERR_RANGE); /* not wanted there */
    assert_int_equal(set_float(R1 + 8, 0.01f), OK);
    assert_int_equal(set_float(R1 + 8, 100.0f), OK);
    assert_int_equal(set_float(R1 + 8, nextafterf(0.01f, 0)), ERR_RANGE);
    assert_int_equal(set_float(R1 + 8, nextafterf(100.0f, 200)), ERR_RANGE);
    assert_int_equal(set_float(R1 + 12, nextafterf(-100.0f, -200)), ERR_RANGE);
    assert_int_equal(set_float(R1 + 16, nextafterf(100.0f, 200)), ERR_RANGE);
    assert_int_equal(set_float(R1 + 16, NAN), ERR_RANGE);
    assert_int_equal(hostile_set(r, header, R1 + 20, LAST - FIRST + 1, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, header, R1 + 20, LAST - FIRST, 4), ERR_FORMAT); /* payload */
    assert_int_equal(hostile_set(r, header, R1 + 20, UINT32_MAX, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, header, R1 + 24, SAMPLER_BIAS_MAX + 1, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, header, R1 + 28, 17, 4), ERR_FORMAT); /* not known */
    assert_int_equal(hostile_set(r, header, R1 + 28, 9, 4),
                     ERR_FORMAT); /* an id that is not there */
    assert_int_equal(hostile_set(r, header, R1 + 28, 5, 4),
                     ERR_FORMAT); /* a mask that is not there */
    assert_int_equal(hostile_set(r, header, 76, 1, 4), ERR_FORMAT);
}

static void test_logits_pairs(void **state)
{
    (void)state;
    uint64_t bytes = write_logits().payload_bytes;
    uint8_t *pairs = payload + ROWS * WIDTH * 4;
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {
        {0, FIRST - 1}, {16, LAST}, {8, 100},         {8, 139},        {4, 0}, /* seen */
        {24, LAST},     {32, 0},    {28, 0x7fc00000}, {36, 0x49742401} /* bias: ids, NaN, 1,000,000.06 */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t kept = bytes_load32(pairs + bad[i].at);
        bytes_store32(pairs + bad[i].at, bad[i].value);
        assert_int_equal(take_logits(bytes), ERR_RANGE);
        bytes_store32(pairs + bad[i].at, kept);
    }
    assert_int_equal(take_logits(bytes), OK);
}

static ShardFrameSize write_answer(void)
{
    ShardFrameSize size = shard_frames_size_logits_answer(&logits, &terms);
    shard_frames_write_logits_answer(&logits, &terms, results, answer, payload);
    assert_int_equal(read_logits_answer(answer, size.header_bytes, &hostile_why), OK);
    return size;
}

static Error take_answer(uint64_t bytes)
{
    head.payload_hash = hash_xxh64(payload, bytes);
    return shard_frames_take_logits_answer(&head, &logits, &terms, payload, bytes, got_results,
                                           &hostile_why);
}

static void test_logits_answer(void **state)
{
    (void)state;
    ShardFrameSize size = write_answer();
    assert_int_equal(take_answer(size.payload_bytes), OK);
    assert_int_equal(got_results[0].candidate_count, 0);
    assert_int_equal(got_results[1].candidate_count, LAST - FIRST);
    assert_memory_equal(got_results[1].candidates, candidates[0], sizeof candidates[0]);
    assert_memory_equal(&got_results[1].sum, &results[1].sum, sizeof(LogSum));
    assert_null(got_results[1].slice);
    assert_memory_equal(got_results[2].candidates, candidates[1], 16);
    assert_memory_equal(got_results[2].slice, slice, sizeof slice);
    assert_true(got_results[2].id_logit == 32.0f && got_results[0].id_logit == 0);
    bytes_store32(payload + size.payload_bytes - 4, 0x7fc00000);
    assert_int_equal(take_answer(size.payload_bytes), ERR_NOT_FINITE);
    hostile_cut(read_logits_answer, answer, size.header_bytes);
    hostile_flip(read_logits_answer, answer, size.header_bytes);
    hostile_any(read_logits_answer, answer, size.header_bytes);
    hostile_handshake(read_logits_answer, answer);
}

static void test_logits_sum(void **state)
{
    (void)state;
    enum { R0 = 96, R1 = 96 + 48 };
    HostileRead r = read_logits_answer;
    (void)write_answer();
    uint64_t most = (uint64_t)(LAST - FIRST) * UINT32_MAX;
    for (size_t limb = 0; limb < 4; limb++) {
        assert_int_equal(hostile_set(r, answer, R1 + 8 + 8 * limb, most, 8), OK);
        assert_int_equal(hostile_set(r, answer, R1 + 8 + 8 * limb, most + 1, 8), ERR_RANGE);
    }
    assert_int_equal(hostile_set(r, answer, R1 + 40, 1 << 30, 4), OK);
    assert_int_equal(hostile_set(r, answer, R1 + 40, (1 << 30) + 1, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, answer, R1 + 40, 0xc0000000, 4), OK);
    assert_int_equal(hostile_set(r, answer, R1 + 40, 0xbfffffff, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, answer, R1 + 40, 0x80000000, 4),
                     ERR_RANGE); /* limbs are not 0 */
    assert_int_equal(hostile_set(r, answer, R1 + 44, 2, 4), ERR_RANGE);
    assert_int_equal(hostile_set(r, answer, R0 + 8, 1, 4), ERR_FORMAT); /* not wanted */
    assert_int_equal(hostile_set(r, answer, R1, 39, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(r, answer, R1 + 4, 3, 4), ERR_FORMAT);
    assert_int_equal(hostile_set(r, answer, 68, 1, 4), ERR_FORMAT);
    logsum_start(&results[1].sum); /* of a shard whose ids are all forbidden */
    (void)write_answer();
    assert_int_equal(got_results[1].sum.top, INT32_MIN);
}

static void test_logits_candidates(void **state)
{
    (void)state;
    uint64_t bytes = write_answer().payload_bytes;
    static const struct {
        size_t at;
        uint32_t value;
        Error want;
    } bad[] = {{0, FIRST - 1, ERR_RANGE},
               {0, LAST, ERR_RANGE},
               {8, FIRST, ERR_FORMAT},
               {4, 0x7fc00000, ERR_NOT_FINITE},
               {4, 0x7f800000, ERR_NOT_FINITE},
               {12, 0x3f800000, ERR_FORMAT},
               {40 * 8 + 16, 0x7f800000, ERR_NOT_FINITE}}; /* the slice */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t kept = bytes_load32(payload + bad[i].at);
        bytes_store32(payload + bad[i].at, bad[i].value);
        assert_int_equal(take_answer(bytes), bad[i].want);
        bytes_store32(payload + bad[i].at, kept);
    }
    assert_int_equal(take_answer(bytes), OK);
}

/* A result that was made at its place in the payload, and a shard without ids. */
static void test_logits_in_place(void **state)
{
    (void)state;
    memcpy(payload, candidates[0], sizeof candidates[0]);
    results[1].candidates = (const SamplerCandidate *)payload;
    assert_int_equal(take_answer(write_answer().payload_bytes), OK);
    assert_memory_equal(got_results[1].candidates, candidates[0], sizeof candidates[0]);
    terms.id_first = terms.id_last;
    for (int i = 0; i < ROWS; i++) results[i].candidate_count = 0;
    logsum_start(&results[1].sum);
    assert_int_equal(write_answer().payload_bytes, 0);
    assert_int_equal(take_answer(0), OK);
    logits.rows = 0;
    assert_int_equal(take_answer(write_answer().payload_bytes), OK);
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_embed_forms),     TEST(test_embed_request), TEST(test_embed_answer_hostile),
        TEST(test_logits_request),  TEST(test_logits_fields), TEST(test_logits_pairs),
        TEST(test_logits_answer),   TEST(test_logits_sum),    TEST(test_logits_candidates),
        TEST(test_logits_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
