/* SPDX-License-Identifier: Apache-2.0 */
/* A knot's header from outside. What is accepted must hold what the header file promises. */
#include <stdlib.h>
#include <string.h>

#include "knot/knot.h"

static void fuzz_check(const Knot *k)
{
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        if (t->offset > k->payload_bytes || t->bytes > k->payload_bytes - t->offset) abort();
        if (knot_find(k, t->name) != t) abort();
    }
    KnotSection s = k->tokenizer;
    if (s.offset > k->payload_bytes || s.bytes > k->payload_bytes - s.offset) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t header = 0;
    Why why;
    Knot knot;
    if (knot_header_bytes(data, size, size, &header, &why) != OK || header > size || header > 65536)
        return 0;
    size_t n = (size_t)header, tables = knot_arena_bytes(n), scratch = knot_scratch_bytes(n);
    uint8_t *a = malloc(tables), *b = malloc(scratch);
    Arena table_arena = arena_make(a, tables), scratch_arena = arena_make(b, scratch);
    Error e = knot_parse(data, n, size, &table_arena, &scratch_arena, &knot, &why);
    if (e == ERR_MEMORY) abort(); /* the sizes surely suffice */
    if (e == OK) fuzz_check(&knot);
    free(a);
    free(b);
    return 0;
}
