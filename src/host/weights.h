/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a local knot, used in place: a tile is an address in the mapping. What lies beyond the
 * pinned range is dropped behind a cursor, in whole pages of 2 MiB, so that resident weights never
 * exceed the window.
 *
 *   payload  | pinned ........ | dropped | touched [first, last) | not yet touched
 *                                         \_ the last tile, and those before it while the window
 *                                            has room
 *
 * The pinned range is a prefix of the payload, or what weights_pin says: a node's own share, or the beginning of it. */
#ifndef COBORD_HOST_WEIGHTS_H
#define COBORD_HOST_WEIGHTS_H

#include "host/knot_file.h"

typedef struct WeightsCounters {
    uint64_t phase_loads, phase_evictions;
    uint64_t tiles, bytes; /* handed out */
    uint64_t dropped_bytes;
    uint64_t resident_bytes, resident_bytes_max; /* streamed weights in memory, whole pages */
} WeightsCounters;

typedef struct Weights {
    const KnotFile *file;
    uint64_t pinned_first, pinned_last; /* of the payload, half open */
    uint64_t window_bytes; /* streamed pages in memory at most; a single tile may need more */
    uint64_t touched_first, touched_last; /* file offsets of whole 2 MiB pages */
    uint64_t used_first; /* [used_first, touched_first): used, still to be dropped */
    WeightsCounters counters;
} Weights;

void weights_start(Weights *w, const KnotFile *file, uint64_t pinned_bytes, uint64_t window_bytes);

/* Pins [first, last) of the payload instead. Before the first tile. */
void weights_pin(Weights *w, uint64_t first, uint64_t last);

/* The bytes of a tile: valid until the next call. Ranges come from the knot's checked tensors. */
const uint8_t *weights_tile(Weights *w, uint64_t offset, uint64_t bytes);

/* Drops what was used and is out of the window's first half by now. Dropping takes a call and an interrupt to the other
 * processors, so weights_tile leaves it to whoever has time; the next tile does it at the latest.
 * Thread  any, while no other function of `w` runs. */
void weights_settle(Weights *w);
static inline bool weights_unsettled(const Weights *w) { return w->used_first < w->touched_first; }

/* Drops every streamed page. */
void weights_drop(Weights *w);

/* Bookkeeping of phases; evicting drops nothing by itself, since a tile that needs room does. */
void weights_phase_loaded(Weights *w);
void weights_phase_evicted(Weights *w);

#endif
