/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the weights is in memory at once while they are streamed; a plan and the node it is for choose alike.
 *
 *   window   | used, still to be dropped | the next tile, with a page at either end |
 *
 * Mappings move in pages of 2 MiB: whatever lies in one can touch a page more at either end. */
#ifndef COBORD_CLUSTER_WINDOW_H
#define COBORD_CLUSTER_WINDOW_H

#include <stdint.h>

#define WINDOW_PAGE_BYTES ((uint64_t)2 << 20)
#define WINDOW_EDGES_BYTES (2 * WINDOW_PAGE_BYTES)
/* For single embedding rows beside resident weights. */
#define WINDOW_ROWS_BYTES ((uint64_t)8 << 20)

/* A quarter of the budget, 10 to 64 MiB. */
uint64_t window_bytes(uint64_t budget_bytes);
/* The largest tile of a window. */
uint64_t window_tile_bytes(uint64_t window);
/* Of a role: not more than its weights, not less than its widest panel. */
uint64_t window_role_bytes(uint64_t window, uint64_t weight_bytes, uint64_t widest_panel_bytes);

#endif
