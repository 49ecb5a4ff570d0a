/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes against published values, whole and in pieces.
 * Source  the figures for seed 0 in xxHash 0.8's own sanity check (xsum_sanity_check.c): input byte i is
 *         the top byte of 2654435761 * 11400714785074694797^i mod 2^64. "a": the test of the Python
 *         package xxhash 4.1.0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

typedef struct Vector {
    size_t length;
    uint64_t hash;
} Vector;

static const Vector xxh64_vectors[] = {
    {0, 0xef46db3751d8e999u},  {1, 0xe934a84adb052768u},   {4, 0x9136a0dca57457eeu},
    {14, 0x8282dcc4994e35c8u}, {222, 0xb641ae8cb691c174u},
};

/* One length for every way that XXH3 takes through its input. */
static const Vector xxh3_vectors[] = {
    {0, 0x2d06800538d394c2u},    {1, 0xc44bdff4074eecdbu},    {6, 0x27b56a84cd2d7325u},
    {12, 0xa713daf0dfbb77e7u},   {24, 0xa3fe70bf9d3510ebu},   {48, 0x397da259ecba1f11u},
    {80, 0xbcdefbbb2c47c90au},   {195, 0xcd94217ee362ec3au},  {403, 0xcdeb804d65c6dea4u},
    {512, 0x617e49599013cb6bu},  {2048, 0xdd59e2c3a5f038e0u}, {2240, 0x6e73a90539cf2948u},
    {2367, 0xcb37aeb9e5d361edu},
};

enum { INPUT_BYTES = 2367 };
static uint8_t input[INPUT_BYTES];

static int fill_input(void **state)
{
    (void)state;
    uint64_t x = 2654435761u;
    for (size_t i = 0; i < INPUT_BYTES; i++) {
        input[i] = (uint8_t)(x >> 56);
        x *= 11400714785074694797u;
    }
    return 0;
}

static uint64_t xxh64_in_pieces(const uint8_t *bytes, size_t length, size_t piece)
{
    HashStream64 s;
    hash_stream64_start(&s);
    for (size_t i = 0; i < length; i += piece)
        hash_stream64_update(&s, bytes + i, length - i < piece ? length - i : piece);
    return hash_stream64_end(&s);
}

static uint64_t xxh3_in_pieces(const uint8_t *bytes, size_t length, size_t piece)
{
    HashStream3 s;
    hash_stream3_start(&s);
    for (size_t i = 0; i < length; i += piece)
        hash_stream3_update(&s, bytes + i, length - i < piece ? length - i : piece);
    return hash_stream3_end(&s);
}

static const size_t pieces[] = {1, 7, 31, 32, 33, 255, 256, 257, 1024, INPUT_BYTES};
enum { PIECES = sizeof pieces / sizeof *pieces };

static void xxh64_published_values(void **state)
{
    (void)state;
    assert_true(hash_xxh64("a", 1) == 15154266338359012955u);
    for (size_t i = 0; i < sizeof xxh64_vectors / sizeof *xxh64_vectors; i++) {
        const Vector *v = &xxh64_vectors[i];
        assert_true(hash_xxh64(input, v->length) == v->hash);
        for (size_t p = 0; p < PIECES; p++)
            assert_true(xxh64_in_pieces(input, v->length, pieces[p]) == v->hash);
    }
}

static void xxh3_published_values(void **state)
{
    (void)state;
    assert_true(xxh3_in_pieces((const uint8_t *)"a", 1, 1) == 16629034431890738719u);
    for (size_t i = 0; i < sizeof xxh3_vectors / sizeof *xxh3_vectors; i++) {
        const Vector *v = &xxh3_vectors[i];
        for (size_t p = 0; p < PIECES; p++)
            assert_true(xxh3_in_pieces(input, v->length, pieces[p]) == v->hash);
    }
}

static void ending_leaves_the_stream_usable(void **state)
{
    (void)state;
    HashStream64 s64;
    HashStream3 s3;
    hash_stream64_start(&s64);
    hash_stream3_start(&s3);
    hash_stream64_update(&s64, input, 100);
    hash_stream3_update(&s3, input, 100);
    uint64_t middle64 = hash_stream64_end(&s64), middle3 = hash_stream3_end(&s3);
    assert_true(middle64 == hash_stream64_end(&s64));
    assert_true(middle3 == hash_stream3_end(&s3));
    hash_stream64_update(&s64, input + 100, 122);
    hash_stream3_update(&s3, input + 100, 303);
    assert_true(hash_stream64_end(&s64) == 0xb641ae8cb691c174u);
    assert_true(hash_stream3_end(&s3) == 0xcdeb804d65c6dea4u);
}

static void nothing_may_be_hashed(void **state)
{
    (void)state;
    HashStream64 s64;
    HashStream3 s3;
    hash_stream64_start(&s64);
    hash_stream3_start(&s3);
    hash_stream64_update(&s64, NULL, 0);
    hash_stream3_update(&s3, NULL, 0);
    assert_true(hash_stream64_end(&s64) == xxh64_vectors[0].hash);
    assert_true(hash_stream3_end(&s3) == xxh3_vectors[0].hash);
}

/* Hashes of files must not depend on where a buffer starts. */
static void alignment_does_not_matter(void **state)
{
    (void)state;
    uint8_t *buffer = malloc(600);
    assert_non_null(buffer);
    for (size_t skew = 0; skew < 16; skew++) {
        memcpy(buffer + skew, input, 512);
        assert_true(hash_xxh64(buffer + skew, 222) == 0xb641ae8cb691c174u);
        assert_true(xxh3_in_pieces(buffer + skew, 512, 512) == 0x617e49599013cb6bu);
    }
    free(buffer);
}

/* It is a bijection: no two small keys meet, and neighbours land in different buckets of a small table. */
static void mix_spreads_neighbours(void **state)
{
    (void)state;
    uint8_t used[4096] = {0};
    size_t buckets = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t bucket = hash_mix64(i) & 4095;
        buckets += !used[bucket];
        used[bucket] = 1;
    }
    assert_in_range(buckets, 2400, 2780); /* random: 4096 * (1 - 1/e) = 2589 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh64_published_values),
        cmocka_unit_test(xxh3_published_values),
        cmocka_unit_test(ending_leaves_the_stream_usable),
        cmocka_unit_test(nothing_may_be_hashed),
        cmocka_unit_test(alignment_does_not_matter),
        cmocka_unit_test(mix_spreads_neighbours),
    };
    return cmocka_run_group_tests(tests, fill_input, NULL);
}
