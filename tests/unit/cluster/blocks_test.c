/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over a stretch of weights: every byte that is found is the right one, and each block
 * behind the pinned ones is read once a pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "cluster/blocks.h"
#include "knot/knot.h"

#define BLOCK ((uint64_t)KNOT_HASH_BLOCK_BYTES)
static const uint64_t PAYLOAD = 21 * BLOCK + 12345; /* what has hashes */

static uint8_t byte_at(uint64_t offset) { return (uint8_t)(offset ^ offset >> 8 ^ offset >> 16); }

static void fill(uint8_t *to, uint64_t offset, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) to[i] = byte_at(offset + i);
}

static Blocks make(uint64_t first, uint64_t pinned, uint64_t window)
{
    Blocks b = {.memory = malloc((size_t)(pinned + window)),
                .first = first,
                .pinned_bytes = pinned,
                .window_bytes = window,
                .end = PAYLOAD};
    fill(b.memory, first, pinned);
    return b;
}

static void check(const uint8_t *at, uint64_t offset, uint64_t bytes)
{
    assert_non_null(at);
    assert_int_equal(at[0], byte_at(offset));
    assert_int_equal(at[bytes / 2], byte_at(offset + bytes / 2));
    assert_int_equal(at[bytes - 1], byte_at(offset + bytes - 1));
}

/* Result  bytes read. */
static uint64_t bring(Blocks *b, uint64_t offset, uint64_t bytes, uint64_t until)
{
    uint64_t read_bytes = 0;
    while (!blocks_at(b, offset, bytes)) {
        BlocksRead read = blocks_need(b, offset, bytes, until);
        assert_int_equal(read.offset % BLOCK, 0);
        assert_true(read.offset + read.bytes == PAYLOAD || read.bytes % BLOCK == 0);
        assert_true(read.to >= b->memory + b->pinned_bytes);
        assert_true(read.to + read.bytes <= b->memory + b->pinned_bytes + b->window_bytes);
        fill(read.to, read.offset, read.bytes);
        read_bytes += read.bytes;
        blocks_came(b, &read);
    }
    check(blocks_at(b, offset, bytes), offset, bytes);
    return read_bytes;
}

/* From `first` to `last` in tiles of at most `tile` bytes, with a hole here and there. */
static uint64_t pass(Blocks *b, uint64_t first, uint64_t last, uint64_t tile, bool ahead)
{
    uint64_t sum = 0, hole = 640;
    for (uint64_t at = first; at < last;) {
        uint64_t bytes = last - at < tile ? last - at : tile;
        sum += bring(b, at, bytes, ahead ? last : at + bytes);
        at += bytes;
        if (last - at > hole) at += hole;
    }
    return sum;
}

static void each_block_once_a_pass(void **state)
{
    (void)state;
    static const uint64_t pins[] = {0, 1, 4, 9}, windows[] = {4, 5, 8};
    for (size_t p = 0; p < 4; p++)
        for (size_t w = 0; w < 3; w++)
            for (uint64_t tile = 1000; tile <= (windows[w] - 2) * BLOCK; tile = tile * 3 + 77)
                for (int ahead = 0; ahead < 2; ahead++) {
                    uint64_t first = 3 * BLOCK + 4096, last = 20 * BLOCK + 99, stretch = 18 * BLOCK;
                    Blocks b = make(3 * BLOCK, pins[p] * BLOCK, windows[w] * BLOCK);
                    uint64_t wanted = stretch - pins[p] * BLOCK;
                    assert_int_equal(pass(&b, first, last, tile, ahead), wanted);
                    assert_int_equal(pass(&b, first, last, tile, ahead), wanted);
                    free(b.memory);
                }
}

static void all_pinned_reads_nothing(void **state)
{
    (void)state;
    uint64_t first = 2 * BLOCK, pinned = PAYLOAD - first;
    Blocks b = make(first, pinned, 2 * BLOCK);
    assert_int_equal(pass(&b, first + 1, PAYLOAD, 5 * BLOCK, false), 0);
    assert_null(blocks_at(&b, first - 1, 2));
    free(b.memory);
}

static void the_last_block_is_shorter(void **state)
{
    (void)state;
    Blocks b = make(0, 0, 3 * BLOCK);
    assert_int_equal(bring(&b, PAYLOAD - 10, 10, PAYLOAD), 12345);
    assert_null(blocks_at(&b, PAYLOAD - 10, 11));
    assert_int_equal(blocks_ceiling(PAYLOAD - 1, PAYLOAD), PAYLOAD);
    free(b.memory);
}

static void back_and_lent(void **state)
{
    (void)state;
    Blocks b = make(4 * BLOCK, 2 * BLOCK, 4 * BLOCK);
    assert_int_equal(bring(&b, 8 * BLOCK, 3 * BLOCK, 0), 3 * BLOCK);
    assert_int_equal(bring(&b, 9 * BLOCK + 5, BLOCK, 0), 0);         /* inside */
    assert_int_equal(bring(&b, 7 * BLOCK + 5, BLOCK, 0), 2 * BLOCK); /* before it */
    assert_int_equal(bring(&b, BLOCK, 10, 0), BLOCK);                /* before the pinned */
    assert_int_equal(bring(&b, 5 * BLOCK, 2 * BLOCK, 0), BLOCK);     /* across their end */
    blocks_lend(&b)[0] = 0;
    assert_null(blocks_at(&b, 6 * BLOCK, 1));
    check(blocks_at(&b, 4 * BLOCK, 2 * BLOCK), 4 * BLOCK, 2 * BLOCK);
    free(b.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_once_a_pass),
        cmocka_unit_test(all_pinned_reads_nothing),
        cmocka_unit_test(the_last_block_is_shorter),
        cmocka_unit_test(back_and_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
