/* SPDX-License-Identifier: Apache-2.0 */
/* A node's memory: one stretch that is taken from its beginning on. */
#include <string.h>

#include "base/arena.h"
#include "node.h"
#include "reserve.h"

static uint8_t *reserve_more(Node *n, uint64_t bytes)
{
    if (!n->memory.start) n->memory.start = n->memory.end = reserve_start();
    return reserve_until(n->memory.end, bytes) ? n->memory.end : NULL;
}

void *node_lend(Node *n, uint64_t bytes) { return reserve_more(n, bytes); }

void *node_take(Node *n, uint64_t bytes)
{
    uint64_t whole = (bytes + ARENA_ALIGN - 1) & ~(uint64_t)(ARENA_ALIGN - 1);
    uint8_t *memory = reserve_more(n, whole);
    if (!memory) return NULL;
    n->memory.end = memory + whole;
    return memset(memory, 0, (size_t)whole);
}

uint64_t node_taken(void)
{
    const Node *n = node_self();
    return n->memory.start ? (uint64_t)(uintptr_t)n->memory.end : reserve_bytes();
}

uint8_t *node_mark(const Node *n) { return n->memory.end; }

void node_give_back(Node *n, uint8_t *mark) { n->memory.end = mark; }
