/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/blocks.h"

#include <string.h>

#include "base/max.h"
#include "base/min.h"
#include "knot/knot.h"

uint64_t blocks_floor(uint64_t offset)
{
    return offset / KNOT_HASH_BLOCK_BYTES * KNOT_HASH_BLOCK_BYTES;
}

uint64_t blocks_ceiling(uint64_t offset, uint64_t end)
{
    return min_u64(blocks_floor(offset + KNOT_HASH_BLOCK_BYTES - 1), end);
}

static uint64_t pinned_last(const Blocks *b) { return b->first + b->pinned_bytes; }

static bool is_held(const Blocks *b, uint64_t first, uint64_t last)
{
    return first >= b->held_first && last <= b->held_last;
}

static const uint8_t *held_at(const Blocks *b, uint64_t offset)
{
    return b->memory + b->pinned_bytes + (offset - b->held_first);
}

const uint8_t *blocks_at(const Blocks *b, uint64_t offset, uint64_t bytes)
{
    uint64_t last = offset + bytes, border = pinned_last(b);
    if (offset < b->first || offset >= border)
        return is_held(b, offset, last) ? held_at(b, offset) : NULL;
    bool joined = b->held_first == border && last <= b->held_last;
    return last <= border || joined ? b->memory + (offset - b->first) : NULL;
}

/* Blocks from `first` on that the window has move to its front. */
static void keep_from(Blocks *b, uint64_t first)
{
    if (first < b->held_first || first >= b->held_last) {
        b->held_first = b->held_last = first;
        return;
    }
    uint8_t *window = b->memory + b->pinned_bytes;
    memmove(window, window + (first - b->held_first), (size_t)(b->held_last - first));
    b->held_first = first;
}

BlocksRead blocks_need(Blocks *b, uint64_t offset, uint64_t bytes, uint64_t until)
{
    uint64_t last = blocks_ceiling(offset + bytes, b->end), border = pinned_last(b);
    uint64_t first = offset >= b->first && offset < border ? border : blocks_floor(offset);
    keep_from(b, first);
    uint64_t room = first + b->window_bytes;
    ASSERT(last <= room);
    last = max_u64(last, min_u64(blocks_ceiling(until, b->end), blocks_floor(room)));
    last = max_u64(last, b->held_last);
    return (BlocksRead){b->held_last, last - b->held_last,
                        b->memory + b->pinned_bytes + (b->held_last - first)};
}

void blocks_came(Blocks *b, const BlocksRead *read)
{
    ASSERT(read->offset == b->held_last);
    b->held_last += read->bytes;
}

uint8_t *blocks_lend(Blocks *b)
{
    b->held_first = b->held_last = 0;
    return b->memory + b->pinned_bytes;
}
