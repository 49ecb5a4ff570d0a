/* SPDX-License-Identifier: Apache-2.0 */
/* A file that may be a stale knot. A repaired header must be accepted, and must not be stale. */
#include <stdlib.h>

#include "knot/repair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t header = 0;
    Why why;
    Repair r;
    if (knot_header_bytes(data, size, size, &header, &why) != OK || header > size || header > 65536)
        return 0;
    size_t room = repair_arena_bytes((size_t)header);
    uint8_t *memory = malloc(room);
    Arena arena = arena_make(memory, room);
    Error e = repair_plan(data, (size_t)header, size, &arena, &r, &why);
    if (e == ERR_MEMORY) abort();
    if (e == OK && knot_is_stale(r.header, r.header_bytes)) abort();
    if (e == OK && r.payload_from + r.payload_bytes != size) abort();
    free(memory);
    return 0;
}
