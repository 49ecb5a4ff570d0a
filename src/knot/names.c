/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/names.h"

#include <string.h>

#include "base/hash.h"

static uint32_t names_slots(uint32_t room)
{
    uint32_t slots = 8;
    while (slots / 2 < room) slots *= 2;
    return slots;
}

size_t names_bytes(uint32_t room)
{
    return arena_bytes((size_t)names_slots(room) * sizeof(NamesEntry));
}

Error names_make(Names *out, uint32_t room, Arena *arena, Why *why)
{
    ASSERT(room <= 1u << 30);
    uint32_t slots = names_slots(room);
    *out = (Names){ARENA_NEW(arena, NamesEntry, slots), slots - 1, room, 0};
    return out->slots ? OK : error_why(why, ERR_MEMORY, "a table of %u names", room);
}

static NamesEntry *names_slot(const Names *n, const void *text, size_t bytes)
{
    uint32_t at = (uint32_t)hash_xxh64(text, bytes) & n->mask;
    while (n->slots[at].text &&
           (n->slots[at].bytes != bytes || memcmp(n->slots[at].text, text, bytes) != 0))
        at = (at + 1) & n->mask;
    return &n->slots[at];
}

uint32_t names_find(const Names *n, const void *text, size_t bytes)
{
    const NamesEntry *e = names_slot(n, text, bytes);
    return e->text ? e->value : NAMES_NONE;
}

bool names_put(Names *n, const void *text, size_t bytes, uint32_t value)
{
    NamesEntry *e = names_slot(n, text, bytes);
    if (e->text) return false;
    ASSERT(n->count < n->room && bytes <= UINT32_MAX);
    *e = (NamesEntry){text, (uint32_t)bytes, value};
    n->count++;
    return true;
}
