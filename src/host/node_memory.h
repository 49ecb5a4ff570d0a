/* SPDX-License-Identifier: Apache-2.0 */
/* What a station or shard takes of this machine's memory: the sum, made before anything is taken, and the memory
 * itself.
 *
 *   process + floor + activations + frames + logits + attention cache + window <= budget
 *                                                                  \_ or all its weights; else the
 *                                                                     beginning of them beside it
 *
 * frames: rows of the frame under way, bodies on their way in, answers on their way out. */
#ifndef COBORD_HOST_NODE_MEMORY_H
#define COBORD_HOST_NODE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "cluster/node_sizes.h"

typedef struct NodeMemory {
    /* By the role: */
    NodeSizes sizes;
    uint64_t rows_window_bytes; /* for single rows from elsewhere when the weights are resident */
    /* Measured by node_memory_choose when it is 0: a node that gets another range has the old one in
     * memory then, and keeps the figure of its start. */
    uint64_t process_bytes;
    /* By node_memory_choose: */
    bool resident;         /* nothing is streamed */
    uint64_t window_bytes; /* streamed weights in memory at once */
    uint64_t tile_bytes_max;
    uint64_t pinned_bytes; /* from weights_first on */
    uint64_t total_bytes;
    /* By node_memory_take: */
    void *map;
    size_t map_bytes;
} NodeMemory;

/* `budget_bytes` is the cluster file's; what the machine has is asked here.
 * Errors  ERR_PLAN: "station-3 needs 131.0 MiB (the sum), may take 128.0 MiB", or that the machine has less. */
MUST_CHECK Error node_memory_choose(NodeMemory *m, const char *id, uint64_t budget_bytes, Why *why);

/* Of all bodies at once. */
uint64_t node_memory_bodies_bytes(const NodeMemory *m);

/* Floor, cache, logits, service, then the scratch, which is `*scratch`. Errors  ERR_MEMORY. */
MUST_CHECK Error node_memory_take(NodeMemory *m, Arena *arena, void **scratch, Why *why);
void node_memory_give_back(NodeMemory *m);

#endif
