/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/window.h"

#include "base/max.h"
#include "base/min.h"

static const uint64_t WINDOW_BYTES_MIN = (uint64_t)10 << 20;
static const uint64_t WINDOW_BYTES_MAX = (uint64_t)64 << 20;

uint64_t window_bytes(uint64_t budget_bytes)
{
    uint64_t quarter = budget_bytes / 4 / WINDOW_PAGE_BYTES * WINDOW_PAGE_BYTES;
    return max_u64(WINDOW_BYTES_MIN, min_u64(WINDOW_BYTES_MAX, quarter));
}

uint64_t window_tile_bytes(uint64_t window) { return window / 2 - WINDOW_EDGES_BYTES; }

uint64_t window_role_bytes(uint64_t window, uint64_t weight_bytes, uint64_t widest_panel_bytes)
{
    return max_u64(min_u64(window, weight_bytes + WINDOW_EDGES_BYTES),
                   widest_panel_bytes + WINDOW_EDGES_BYTES);
}
