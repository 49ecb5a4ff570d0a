/* SPDX-License-Identifier: Apache-2.0 */
/* A canonical version 1 header for a stale file (docs/format/knot.md, section 7). The payload is
 * right in both, only the header in front of it leads one byte too far. */
#ifndef COBORD_KNOT_REPAIR_H
#define COBORD_KNOT_REPAIR_H

#include "base/arena.h"
#include "knot/knot.h"

typedef struct Repair {
    uint8_t *header; /* to write, then the payload follows */
    size_t header_bytes;
    uint64_t payload_from; /* in the stale file, to its end */
    uint64_t payload_bytes;
} Repair;

size_t repair_arena_bytes(size_t header_bytes);

/* `header` are the stale file's first knot_header_bytes. The repaired file's ranges are checked
 * before anything is written. Errors  ERR_USAGE for a file that is not stale, those of knot_parse
 * for one that is damaged besides. Owner  `arena`. */
MUST_CHECK Error repair_plan(const uint8_t *header, size_t header_bytes, uint64_t file_bytes,
                             Arena *arena, Repair *out, Why *why);

#endif
