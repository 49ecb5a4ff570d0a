/* SPDX-License-Identifier: Apache-2.0 */
/* What every frame has to survive: cut at each byte, each bit flipped, and each field changed with the
 * CRC made right again. Frames are read from heap blocks of exactly their size, so that a sanitizer
 * sees one byte too many. */
#ifndef COBORD_TESTS_HOSTILE_H
#define COBORD_TESTS_HOSTILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/frame.h"

/* Reads a header with whatever reader the test has. */
typedef Error (*HostileRead)(const uint8_t *header, size_t bytes, Why *why);

static Why hostile_why;

static inline Error hostile_read(HostileRead read, const uint8_t *header, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, header, bytes);
    Error e = read(copy, bytes, &hostile_why);
    free(copy);
    return e;
}

static inline void hostile_cut(HostileRead read, const uint8_t *header, size_t bytes)
{
    assert_int_equal(hostile_read(read, header, bytes), OK);
    for (size_t n = 0; n < bytes; n++)
        assert_int_equal(hostile_read(read, header, n), ERR_TRUNCATED);
}

/* Every single flipped bit is found out. */
static inline void hostile_flip(HostileRead read, const uint8_t *header, size_t bytes)
{
    uint8_t *copy = malloc(bytes);
    memcpy(copy, header, bytes);
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(read(copy, bytes, &hostile_why), OK);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(copy);
}

/* The header with `bytes` bytes at `at` replaced, and a right CRC. */
static inline Error hostile_set(HostileRead read, const uint8_t *header, size_t at, uint64_t value,
                                size_t value_bytes)
{
    size_t bytes = bytes_load32(header + 8);
    uint8_t *copy = malloc(bytes);
    memcpy(copy, header, bytes);
    memcpy(copy + at, &value, value_bytes);
    frame_seal(copy);
    Error e = read(copy, bytes, &hostile_why);
    free(copy);
    return e;
}

/* With the CRC made right, a changed byte is refused or means something else: it never hurts. Bytes
 * 8 to 15 are left alone: sealing needs them. */
static inline void hostile_any(HostileRead read, const uint8_t *header, size_t bytes)
{
    static const uint8_t values[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    for (size_t at = 0; at < bytes; at++)
        for (size_t v = 0; v < sizeof values && (at < 8 || at >= 16); v++)
            (void)hostile_set(read, header, at, values[v], 1);
}

/* The handshake of section 1: the error has both values. */
static inline void hostile_handshake(HostileRead read, const uint8_t *header)
{
    assert_int_equal(hostile_set(read, header, 4, 2, 2), ERR_UNSUPPORTED);
    assert_non_null(strstr(hostile_why.text, "version 2, this node 1"));
    assert_int_equal(hostile_set(read, header, 16, 0xabcdef0123456789, 8), ERR_UNSUPPORTED);
    assert_non_null(strstr(hostile_why.text, "abcdef0123456789"));
    assert_non_null(strstr(hostile_why.text, "1122334455667788"));
    assert_int_equal(hostile_set(read, header, 24, 9, 2), ERR_UNSUPPORTED);
    assert_non_null(strstr(hostile_why.text, "numerics version 9, this node 1"));
    assert_int_equal(hostile_set(read, header, 0, 0x20544547, 4), ERR_FORMAT);
    assert_non_null(strstr(hostile_why.text, "\"GET \""));
    assert_int_equal(hostile_set(read, header, 6, 99, 2), ERR_FORMAT);
    assert_int_equal(hostile_set(read, header, 28, 1, 4), ERR_FORMAT);
}

#define HOSTILE_KNOT 0x1122334455667788u

#endif
