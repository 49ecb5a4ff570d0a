/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges that must tile a payload: a sorted sweep finds overlaps, holes and ends that do not
 * meet. */
#ifndef COBORD_KNOT_RANGES_H
#define COBORD_KNOT_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct Range {
    uint64_t offset, bytes;
    const char *name;
} Range;

/* Sorts by offset, O(n log n), in place, without memory. */
void ranges_sort(Range *ranges, size_t count);

/* For sorted ranges: no two share a byte, the hole before each is at most hole_max, and the last
 * ends at `end`. Errors  ERR_RANGE (names the two), ERR_TRUNCATED when the last goes beyond `end`,
 * ERR_FORMAT when bytes are left over. */
MUST_CHECK Error ranges_check(const Range *ranges, size_t count, uint64_t hole_max, uint64_t end,
                              Why *why);

#endif
