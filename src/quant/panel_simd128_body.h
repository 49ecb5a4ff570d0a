/* SPDX-License-Identifier: Apache-2.0 */
/* The panels of blocks, written once for kernels_simd128.c and kernels_relaxed.c. What differs is how weights meet
 * activations: *chains*, vectors in which the products of a row gather. Before it includes this file, each defines
 *
 *   SIMD128_CHAINS                    that all this is there
 *   chain_tile_chunks(type, tokens)   the shape of a tile
 *   chain_count(type)                 chains per 32 elements of a K type: one, or one for each half
 *   chain_start_32, chain_start_256   where chains begin: the zero point's share
 *   chains                            adds 32 elements
 *   chain_sum                         the sum that a chain of 32 elements holds
 *   chain_scale, chain_scaled         the scales of four rows as chains want them; scale k times the sum
 *
 * A tile is a few chunks x tokens. Two shapes are of use:
 *
 *   by lines    all four chunks at once: every byte of the panel once, in rising order. For one token, where memory is
 *               the bound: lines that are met four times, a quarter each time, come half as fast from memory.
 *   by chunks   one or two of them through all columns, then the next: elements are taken apart once for four tokens.
 *               For several, where arithmetic is the bound.
 *
 * Loops over lines, subs, blocks and chunks stay loops (ROLLED). Unrolled, V8 keeps far more vectors alive than there
 * are registers, and the speed falls to a third. Everything is inlined with constant type, chunks and tokens. Not a
 * header to include anywhere else. */
#ifndef COBORD_QUANT_PANEL_SIMD128_BODY_H
#define COBORD_QUANT_PANEL_SIMD128_BODY_H
#ifdef SIMD128_CHAINS /* nothing without the machine */

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* acc += one block. */
UNPACK_INLINE void block_32(BlockType type, const uint8_t *block, uint32_t chunk, Tokens a,
                            uint32_t chunks, uint32_t tokens, Sums *acc)
{
    Sums c;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t n = 0; n < chunks; n++) c.at[n][t] = chain_start_32(type, simd_token(a, t));
    chains(type, block + panel_head_bytes(type), chunk, a, chunks, tokens, &c, &c);
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        ChunkHalves h = simd_chunk_halves(type, block, chunk + n);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc->at[n][t] =
                simd_add_32(type, acc->at[n][t], h, chain_sum(type, c.at[n][t], simd_token(a, t)),
                            simd_token(a, t));
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* i += (scale k) c: scale n of the block, k of sub j. */
UNPACK_INLINE void add_chain(BlockType type, const uint8_t *pairs, uint32_t scale, uint32_t chunk,
                             uint32_t j, Tokens a, uint32_t chunks, uint32_t tokens, const Sums *c,
                             Sums *i)
{
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        v128_t s = chain_scale(type, simd_scale(type, pairs, scale, chunk + n));
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            v128_t k =
                wasm_v128_load32_splat(simd_token(a, t) + offsetof(Activation256, k_twice) + 4 * j);
            i->at[n][t] =
                wasm_i32x4_add(i->at[n][t], chain_scaled(type, c->at[n][t], wasm_i16x8_mul(s, k)));
        }
    }
}

/* i += sub j at `lines`. */
UNPACK_INLINE void add_sub(BlockType type, const uint8_t *lines, const uint8_t *pairs,
                           uint32_t chunk, uint32_t j, Tokens a, uint32_t chunks, uint32_t tokens,
                           Sums *i)
{
    uint32_t count = chain_count(type), scale = unpack_scale_count(type) == 8 ? j : 2 * j;
    Sums c[2];
    UNROLL
    for (uint32_t h = 0; h < count; h++) UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t n = 0; n < chunks; n++)
        c[h].at[n][t] = chain_start_256(type, simd_token(a, t), 2 * j + h);
    chains(type, lines, chunk, (Tokens){a.first + 32 * j, a.stride}, chunks, tokens, &c[0],
           &c[count - 1]);
    add_chain(type, pairs, scale, chunk, j, a, chunks, tokens, &c[0], i);
    if (count == 1) return;
    if (unpack_scale_count(type) == 16) scale++;
    add_chain(type, pairs, scale, chunk, j, a, chunks, tokens, &c[1], i);
}

/* acc += one block. */
UNPACK_INLINE void block_256(BlockType type, const uint8_t *block, uint32_t chunk, Tokens a,
                             uint32_t chunks, uint32_t tokens, Sums *acc)
{
    const uint8_t *pairs = simd_pairs(type, block), *lines = block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    Sums i;
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) UNROLL
    for (uint32_t t = 0; t < tokens; t++) i.at[n][t] = wasm_i32x4_splat(0);
    ROLLED
    for (uint32_t j = 0; j < 8; j++, lines += sub_bytes)
        add_sub(type, lines, pairs, chunk, j, a, chunks, tokens, &i);
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        ChunkHalves h = simd_chunk_halves(type, block, chunk + n);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc->at[n][t] = simd_add_256(type, acc->at[n][t], h, i.at[n][t], pairs, chunk + n,
                                         simd_token(a, t));
    }
}

/* ---- panels of blocks ------------------------------------------------------------------------ */

/* `chunks` chunks of the panel through all columns, then the next. */
UNPACK_INLINE void panel_tile(BlockType type, const uint8_t *panel, uint32_t cols, Tokens a,
                              uint32_t chunks, uint32_t tokens, float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    uint32_t blocks = cols / (is_256 ? 256 : 32);
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    ROLLED
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk += chunks) {
        Sums acc;
        UNROLL
        for (uint32_t n = 0; n < chunks; n++) UNROLL
        for (uint32_t t = 0; t < tokens; t++) acc.at[n][t] = wasm_i32x4_splat(0);
        ROLLED
        for (uint32_t b = 0; b < blocks; b++) {
            const uint8_t *block = panel + b * (size_t)panel_block_bytes(type);
            Tokens at = {a.first + b * step, a.stride};
            if (is_256) block_256(type, block, chunk, at, chunks, tokens, &acc);
            else block_32(type, block, chunk, at, chunks, tokens, &acc);
        }
        UNROLL
        for (uint32_t n = 0; n < chunks; n++) UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            wasm_v128_store(out + t * out_stride + CHUNK_ROWS * (chunk + n), acc.at[n][t]);
    }
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *activations, size_t stride, uint32_t tokens,
                                float *out, size_t out_stride)
{
    for (; tokens >= SIMD_TOKENS_MAX; tokens -= SIMD_TOKENS_MAX) {
        panel_tile(type, panel, cols, (Tokens){activations, stride},
                   chain_tile_chunks(type, SIMD_TOKENS_MAX), SIMD_TOKENS_MAX, out, out_stride);
        activations += SIMD_TOKENS_MAX * stride;
        out += SIMD_TOKENS_MAX * out_stride;
    }
    for (; tokens; tokens--, activations += stride, out += out_stride)
        panel_tile(type, panel, cols, (Tokens){activations, stride}, chain_tile_chunks(type, 1), 1,
                   out, out_stride);
}

#endif
#endif
