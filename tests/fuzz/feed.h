/* SPDX-License-Identifier: Apache-2.0 */
/* An input as a row of choices: a target takes numbers and texts from it, and builds from them what it tries. When
 * it is used up, every number is 0 and every text empty, so that each input means something and short ones mean
 * little. */
#ifndef COBORD_TESTS_FEED_H
#define COBORD_TESTS_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) ((condition) ? (void)0 : abort())

typedef struct Feed {
    const uint8_t *at;
    size_t left;
} Feed;

static inline uint8_t feed_u8(Feed *f)
{
    if (!f->left) return 0;
    f->left--;
    return *f->at++;
}

/* 0 .. n - 1; n up to 256. */
static inline uint32_t feed_below(Feed *f, uint32_t n) { return feed_u8(f) % n; }

static inline uint64_t feed_bits(Feed *f, int bytes)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (uint64_t)feed_u8(f) << 8 * i;
    return n;
}
static inline uint32_t feed_u32(Feed *f) { return (uint32_t)feed_bits(f, 4); }
static inline uint64_t feed_u64(Feed *f) { return feed_bits(f, 8); }

/* The next bytes, at most `most`, as many as a byte of the input says (255: all). Not ended. */
static inline const uint8_t *feed_span(Feed *f, size_t most, size_t *bytes)
{
    size_t n = feed_u8(f);
    if (n == 255 || n > f->left) n = f->left;
    *bytes = n < most ? n : most;
    const uint8_t *at = f->at;
    f->at += *bytes;
    f->left -= *bytes;
    return at;
}

/* The same as a C string, in a block of its exact size. Owner  free. */
static inline char *feed_text(Feed *f, size_t most)
{
    size_t bytes;
    const uint8_t *at = feed_span(f, most, &bytes);
    char *text = malloc(bytes + 1);
    CHECK(text);
    if (bytes) memcpy(text, at, bytes);
    text[bytes] = '\0';
    return text;
}

/* A copy of what is left, in a block of its exact size, so that a sanitizer sees the first byte read beyond it. */
static inline uint8_t *feed_rest(Feed *f, size_t *bytes)
{
    uint8_t *copy = malloc(f->left ? f->left : 1);
    CHECK(copy);
    if (f->left) memcpy(copy, f->at, f->left);
    *bytes = f->left;
    f->left = 0;
    return copy;
}

#endif
