/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a node that has no file to map: whole hash blocks of the payload in memory, the
 * beginning for good and the rest as they are needed.
 *
 *   memory   | pinned                    | window                     |
 *   payload  first .. first + pinned      held.first .. held.last      .. stretch's end
 *
 * A pass goes over the stretch front to back. What it needs next is read to the window; a block
 * that the last need and the next share is moved to the window's front, not read again, so a pass
 * reads each block behind the pinned ones once. A need that begins in the pinned bytes finds its
 * rest right behind them. */
#ifndef COBORD_CLUSTER_BLOCKS_H
#define COBORD_CLUSTER_BLOCKS_H

#include <stdint.h>

#include "base/error.h"

typedef struct Blocks {
    uint8_t *memory;                /* [pinned_bytes + window_bytes] */
    uint64_t first;                 /* of the payload: where the pinned bytes begin; whole blocks */
    uint64_t pinned_bytes;          /* whole blocks, or to the end */
    uint64_t window_bytes;          /* whole blocks */
    uint64_t end;                   /* of what has hashes: the last block ends there */
    uint64_t held_first, held_last; /* in the window */
} Blocks;

/* Where whole blocks around a range begin and end. */
uint64_t blocks_floor(uint64_t offset);
uint64_t blocks_ceiling(uint64_t offset, uint64_t end);

/* The bytes, or NULL when they are not all here. */
const uint8_t *blocks_at(const Blocks *b, uint64_t offset, uint64_t bytes);

/* What has to be read, so that blocks_at has [offset, offset + bytes): whole blocks, to `to`; more
 * of them than it takes, up to `until`, as the window has room; perhaps none, when they only had
 * to move. The window must have room for the blocks around them. What it held elsewhere is gone. */
typedef struct BlocksRead {
    uint64_t offset;
    uint64_t bytes;
    uint8_t *to;
} BlocksRead;
BlocksRead blocks_need(Blocks *b, uint64_t offset, uint64_t bytes, uint64_t until);
/* They came, and are what the hashes say. */
void blocks_came(Blocks *b, const BlocksRead *read);

/* The window as memory for something else; what it held is gone. */
uint8_t *blocks_lend(Blocks *b);

#endif
