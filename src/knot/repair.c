/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/repair.h"

#include <string.h>

#include "base/bytes.h"

enum { FIXED_BYTES = 10 };

static size_t repair_json_bytes(const uint8_t *header)
{
    size_t bytes = bytes_load32(header + 6);
    while (bytes && header[FIXED_BYTES + bytes - 1] == ' ') bytes--;
    return bytes;
}

static Error repair_check(const Repair *r, Arena *arena, Why *why)
{
    size_t tables = knot_arena_bytes(r->header_bytes),
           scratch = knot_scratch_bytes(r->header_bytes);
    void *a = arena_take(arena, tables), *b = arena_take(arena, scratch);
    if (!a || !b) return error_why(why, ERR_MEMORY, "a header of %zu bytes", r->header_bytes);
    Arena table_arena = arena_make(a, tables), scratch_arena = arena_make(b, scratch);
    Knot knot;
    return knot_parse(r->header, r->header_bytes, r->header_bytes + r->payload_bytes, &table_arena,
                      &scratch_arena, &knot, why);
}

size_t repair_arena_bytes(size_t header_bytes)
{
    return header_bytes + knot_arena_bytes(header_bytes) + knot_scratch_bytes(header_bytes) + 1024;
}

Error repair_plan(const uint8_t *header, size_t header_bytes, uint64_t file_bytes, Arena *arena,
                  Repair *out, Why *why)
{
    uint64_t need = 0;
    TRY(knot_header_bytes(header, header_bytes, file_bytes, &need, why));
    if (need > header_bytes)
        return error_why(why, ERR_TRUNCATED, "the header needs %llu bytes, %zu are here",
                         (unsigned long long)need, header_bytes);
    if (!knot_is_stale(header, header_bytes))
        return error_why(
            why, ERR_USAGE,
            "the file is not stale, there is nothing to repair. See: cobord verify FILE.");
    size_t json = repair_json_bytes(header);
    out->header_bytes = (size_t)knot_header_end(json);
    out->header = arena_take(arena, out->header_bytes);
    if (!out->header) return error_why(why, ERR_MEMORY, "a header of %zu bytes", out->header_bytes);
    memcpy(out->header, header, FIXED_BYTES + json);
    bytes_store32(out->header + 6, (uint32_t)json);
    out->header[out->header_bytes - 1] = 0x40;
    out->payload_from = FIXED_BYTES + 1 + (uint64_t)bytes_load32(header + 6);
    out->payload_bytes = file_bytes - out->payload_from;
    return repair_check(out, arena, why);
}
