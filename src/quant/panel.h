/* SPDX-License-Identifier: Apache-2.0 */
/* What a block of 16 rows looks like in x16.1 (docs/format/layout.md, section 2). Private to this room.
 *
 *   | head: d, minimum, pairs of scales | lines of 32 elements | lines of the next 32 | ..  */
#ifndef COBORD_QUANT_PANEL_H
#define COBORD_QUANT_PANEL_H

#include "quant/layout.h"
#include "quant/unpack.h"

enum { LINE_BYTES = 64, HALVES_BYTES = 32, PAIR_BYTES = 32 };

/* The lines that carry 32 elements: one-bit, two-bit and nibble lines in this order, each 0 or all of its kind. */
typedef struct PanelLines {
    uint32_t bit_lines, crumb_lines, nibble_lines, byte_lines; /* counts: 0/1, 0/2, 0/4, 0/8 */
    uint32_t bit_shift, crumb_shift;                           /* where their bits sit in an element */
} PanelLines;

UNPACK_INLINE PanelLines panel_lines(BlockType type)
{
    switch (type) {
    case BLOCK_Q8_0: return (PanelLines){0, 0, 0, 8, 0, 0};
    case BLOCK_Q5_0:
    case BLOCK_Q5_1:
    case BLOCK_Q5_K: return (PanelLines){1, 0, 4, 0, 4, 0};
    case BLOCK_Q6_K: return (PanelLines){0, 2, 4, 0, 0, 4};
    case BLOCK_Q2_K: return (PanelLines){0, 2, 0, 0, 0, 0};
    case BLOCK_Q3_K: return (PanelLines){1, 2, 0, 0, 2, 0};
    default: return (PanelLines){0, 0, 4, 0, 0, 0}; /* Q4_0 Q4_1 Q4_K */
    }
}
UNPACK_INLINE uint32_t panel_lines_count(PanelLines k)
{
    return k.bit_lines + k.crumb_lines + k.nibble_lines + k.byte_lines;
}

/* Bytes before the first line. */
UNPACK_INLINE uint32_t panel_head_bytes(BlockType type)
{
    uint32_t pairs = unpack_scale_count(type) / 2;
    if (type == BLOCK_Q4_K || type == BLOCK_Q5_K) pairs *= 2; /* scales, then mins */
    return HALVES_BYTES * (unpack_has_min(type) ? 2u : 1u) + PAIR_BYTES * pairs;
}

/* Bytes that 16 rows of one block take: 16 GGUF blocks, and 4 bytes a row more where packed scales become bytes.
 * Spelled out, because kernels need a constant. */
UNPACK_INLINE uint32_t panel_block_bytes(BlockType type)
{
    switch (type) {
    case BLOCK_F32: return 64;
    case BLOCK_F16:
    case BLOCK_BF16: return 32;
    default: break;
    }
    uint32_t subs = unpack_scale_count(type) ? 8 : 1;
    return panel_head_bytes(type) + subs * panel_lines_count(panel_lines(type)) * LINE_BYTES;
}

#endif
