/* SPDX-License-Identifier: Apache-2.0 */
/* A knot of three tensors, enough for AWFR frames: a panelled matrix whose last panel is not full, an
 * embedding, and a vector. Made by knot_parse, so that lookups work as in a real one. */
#ifndef COBORD_TESTS_SMALL_TENSORS_H
#define COBORD_TESTS_SMALL_TENSORS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "knot/knot.h"

/* Fills `knot` with memory that is never freed before the test ends. Result  false when it cannot. */
static inline _Bool small_tensors_make(Knot *knot, void *memory, size_t memory_bytes)
{
    static const char json[] =
        "{\"model\":{\"architecture\":\"qwen2\",\"name\":\"t\",\"layers\":1},\"tensors\":["
        "{\"name\":\"token_embd_weight\",\"type\":\"Q8_0\",\"shape\":[50,64],\"offset\":0,\"length\":3400},"
        "{\"name\":\"output_norm_weight\",\"type\":\"F32\",\"shape\":[64],\"offset\":3400,\"length\":256},"
        "{\"name\":\"blk_0_ffn_up_weight\",\"type\":\"Q8_0\",\"shape\":[40,64],\"offset\":3656,\"length\":2720}]}";
    size_t meta = sizeof json - 1, align = (10 + meta + 3) & ~(size_t)3;
    uint8_t header[1024] = {'K', 'N', 'O', 'T', 1, 0};
    uint32_t length = (uint32_t)meta;
    memcpy(header + 6, &length, 4);
    memcpy(header + 10, json, meta);
    header[align] = 0x40;
    Arena arena = arena_make(memory, memory_bytes / 2);
    Arena scratch = arena_make((uint8_t *)memory + memory_bytes / 2, memory_bytes / 2);
    if (knot_parse(header, align + 1, align + 1 + 6376, &arena, &scratch, knot, NULL) != OK)
        return 0;
    /* as an encoder would lay it out */
    KnotTensor *up = &knot->tensors[2];
    up->layout = LAYOUT_X16;
    return layout_tensor_bytes(up->type, up->layout, up->rows, up->cols, &up->bytes, NULL) == OK;
}

#endif
