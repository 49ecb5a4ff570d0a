/* SPDX-License-Identifier: Apache-2.0 */
/* How many rows a frame may have, so that whoever waits for its end (a client that left, a signal, another
 * conversation) waits for about a second, or for as long as the weights take to pass by.
 *
 *   time of a frame = time of a pass + rows * time of a row; both are learned from the frames that
 *   end: the fastest one is the pass. */
#ifndef COBORD_CLUSTER_PACE_H
#define COBORD_CLUSTER_PACE_H

#include "cluster/coordinator.h"

typedef struct Pace {
    uint64_t pass_ns; /* the fastest frame: what a pass costs whatever its rows */
} Pace;

void pace_start(Pace *pace, Coordinator *coordinator);
/* A frame of `rows` rows took so long: the coordinator's next ones have as many as fit. */
void pace_keep(Pace *pace, Coordinator *coordinator, uint32_t rows, uint64_t frame_ns);

#endif
