/* SPDX-License-Identifier: Apache-2.0 */
#include "api/digest.h"

#include <string.h>

enum { BLOCK_BYTES = 64, ROUNDS = 64, LENGTH_BYTES = 8 };

/* The first 32 bits behind the point of the cube roots of the first 64 primes. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, unsigned by) { return x >> by | x << (32 - by); }

static uint32_t read_word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void write_word(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(word >> (24 - 8 * i));
}

/* The block's 16 words, and 48 made of them. */
static void spread(const uint8_t *block, uint32_t words[ROUNDS])
{
    for (int i = 0; i < 16; i++) words[i] = read_word(block + 4 * i);
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + words[i - 7] +
                   (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
}

static void take_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t words[ROUNDS], s[8];
    spread(block, words);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t e = s[4], a = s[0],
                 first = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) +
                         ((e & s[5]) ^ (~e & s[6])) + constants[i] + words[i],
                 second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) +
                          ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void digest_sha256(const void *bytes, size_t count, uint8_t out[DIGEST_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *at = bytes;
    size_t left = count;
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, at += BLOCK_BYTES) take_block(state, at);
    uint8_t end[2 * BLOCK_BYTES] = {0};
    if (left) memcpy(end, at, left);
    end[left] = 0x80;
    size_t bytes_of_end = left + 1 + LENGTH_BYTES > BLOCK_BYTES ? 2 * BLOCK_BYTES : BLOCK_BYTES;
    uint64_t bits = (uint64_t)count * 8;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        end[bytes_of_end - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (size_t i = 0; i < bytes_of_end; i += BLOCK_BYTES) take_block(state, end + i);
    for (int i = 0; i < 8; i++) write_word(out + 4 * i, state[i]);
}

/* Without a branch before the last word is in it. */
bool digest_equals(const uint8_t a[DIGEST_BYTES], const uint8_t b[DIGEST_BYTES])
{
    uint64_t x[4], y[4];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    volatile uint64_t differs = (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]);
    return !differs;
}

void digest_to_hex(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * DIGEST_BYTES] = '\0';
}

static int value_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool digest_from_hex(const char *text, size_t bytes, uint8_t out[DIGEST_BYTES])
{
    if (bytes != 2 * DIGEST_BYTES) return false;
    for (int i = 0; i < DIGEST_BYTES; i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
