/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/ranges.h"

#include <stdbool.h>

static void ranges_sift(Range *r, size_t root, size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && r[child + 1].offset > r[child].offset) child++;
        if (r[root].offset >= r[child].offset) return;
        Range swap = r[root];
        r[root] = r[child];
        r[child] = swap;
    }
}

static bool ranges_sorted(const Range *r, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (r[i].offset < r[i - 1].offset) return false;
    return true;
}

void ranges_sort(Range *r, size_t count)
{
    if (ranges_sorted(r, count)) return;
    for (size_t i = count / 2; i-- > 0;) ranges_sift(r, i, count);
    for (size_t last = count; last-- > 1;) {
        Range swap = r[0];
        r[0] = r[last];
        r[last] = swap;
        ranges_sift(r, 0, last);
    }
}

Error ranges_check(const Range *r, size_t count, uint64_t hole_max, uint64_t end, Why *why)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (r[i].offset < at)
            return error_why(why, ERR_RANGE, "%s at offset %llu overlaps %s", r[i].name,
                             (unsigned long long)r[i].offset, i ? r[i - 1].name : "the header");
        if (r[i].offset - at > hole_max)
            return error_why(why, ERR_RANGE, "%llu bytes that belong to nothing stand before %s",
                             (unsigned long long)(r[i].offset - at), r[i].name);
        if (r[i].offset > end || r[i].bytes > end - r[i].offset)
            return error_why(
                why, ERR_TRUNCATED, "%s needs bytes %llu to %llu of the payload, which has %llu",
                r[i].name, (unsigned long long)r[i].offset,
                (unsigned long long)(r[i].offset + r[i].bytes), (unsigned long long)end);
        at = r[i].offset + r[i].bytes;
    }
    if (at == end) return OK;
    return error_why(why, ERR_FORMAT, "%llu bytes that belong to nothing stand at the end",
                     (unsigned long long)(end - at));
}
