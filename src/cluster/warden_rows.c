/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/warden_rows.h"

#include <string.h>

#define NONE UINT32_MAX

typedef struct Slot {
    uint32_t newer, older, id;
} Slot;

struct WardenRows {
    WardenRowsConfig config;
    uint32_t *slot_of; /* NONE: not there */
    Slot *slots;
    uint8_t *rows;
    uint32_t room, used;            /* slots; [0, used) have been given out */
    uint32_t newest, oldest, spare; /* spare: chained by `older` */
    WardenRowsCounters counters;
};

static uint32_t ids_of(const WardenRowsConfig *c) { return c->id_last - c->id_first; }

static uint64_t table_bytes(const WardenRowsConfig *c)
{
    return arena_bytes(sizeof(WardenRows)) + arena_bytes(ids_of(c) * sizeof(uint32_t)) +
           (uint64_t)4 * ARENA_ALIGN;
}

static uint32_t room_of(const WardenRowsConfig *c)
{
    uint64_t table = table_bytes(c);
    if (c->budget_bytes <= table) return 0;
    uint64_t room = (c->budget_bytes - table) / (c->row_bytes + sizeof(Slot));
    return room < ids_of(c) ? (uint32_t)room : ids_of(c);
}

uint64_t warden_rows_bytes(const WardenRowsConfig *c)
{
    return table_bytes(c) + room_of(c) * ((uint64_t)c->row_bytes + sizeof(Slot));
}

Error warden_rows_build(const WardenRowsConfig *config, Arena *arena, WardenRows **out, Why *why)
{
    ASSERT(config->id_first < config->id_last && config->row_bytes);
    uint32_t room = room_of(config), ids = ids_of(config);
    WardenRows *w = ARENA_NEW(arena, WardenRows, 1);
    if (!w) return error_why(why, ERR_MEMORY, "no memory for the rows of a warden");
    *w = (WardenRows){
        .config = *config, .room = room, .newest = NONE, .oldest = NONE, .spare = NONE};
    w->slot_of = arena_take_raw(arena, ids * sizeof *w->slot_of);
    w->slots = arena_take_raw(arena, room * sizeof *w->slots);
    w->rows = arena_take_raw(arena, (size_t)room * config->row_bytes);
    if (!w->slot_of || !w->slots || !w->rows)
        return error_why(why, ERR_MEMORY, "no memory for the rows of a warden");
    memset(w->slot_of, 0xff, ids * sizeof *w->slot_of);
    *out = w;
    return OK;
}

uint32_t warden_rows_room(const WardenRows *w) { return w->room; }

static uint32_t *slot_at(const WardenRows *w, uint32_t id)
{
    ASSERT(id >= w->config.id_first && id < w->config.id_last);
    return &w->slot_of[id - w->config.id_first];
}

static uint8_t *row_at(const WardenRows *w, uint32_t slot)
{
    return w->rows + (size_t)slot * w->config.row_bytes;
}

static void unlink_slot(WardenRows *w, uint32_t slot)
{
    Slot *s = &w->slots[slot];
    if (s->newer == NONE) w->newest = s->older;
    else w->slots[s->newer].older = s->older;
    if (s->older == NONE) w->oldest = s->newer;
    else w->slots[s->older].newer = s->newer;
}

static void link_newest(WardenRows *w, uint32_t slot)
{
    Slot *s = &w->slots[slot];
    s->newer = NONE;
    s->older = w->newest;
    if (w->newest == NONE) w->oldest = slot;
    else w->slots[w->newest].newer = slot;
    w->newest = slot;
}

bool warden_rows_has(const WardenRows *w, uint32_t id) { return *slot_at(w, id) != NONE; }

const uint8_t *warden_rows_get(WardenRows *w, uint32_t id)
{
    uint32_t slot = *slot_at(w, id);
    if (slot == NONE) {
        w->counters.misses++;
        return NULL;
    }
    w->counters.hits++;
    unlink_slot(w, slot);
    link_newest(w, slot);
    return row_at(w, slot);
}

/* Takes a row out; its slot is the caller's. */
static uint32_t take_out(WardenRows *w, uint32_t slot)
{
    unlink_slot(w, slot);
    *slot_at(w, w->slots[slot].id) = NONE;
    w->counters.held_bytes -= w->config.row_bytes;
    return slot;
}

static uint32_t take_slot(WardenRows *w)
{
    if (w->spare != NONE) {
        uint32_t slot = w->spare;
        w->spare = w->slots[slot].older;
        return slot;
    }
    if (w->used < w->room) return w->used++;
    w->counters.evictions++;
    return take_out(w, w->oldest);
}

void warden_rows_put(WardenRows *w, uint32_t id, const uint8_t *row)
{
    uint32_t slot = *slot_at(w, id);
    if (!w->room) return;
    if (slot == NONE) {
        slot = take_slot(w);
        w->slots[slot].id = id;
        *slot_at(w, id) = slot;
        w->counters.held_bytes += w->config.row_bytes;
    } else unlink_slot(w, slot);
    link_newest(w, slot);
    memcpy(row_at(w, slot), row, w->config.row_bytes);
}

bool warden_rows_forget(WardenRows *w, uint32_t id, bool bad)
{
    uint32_t slot = *slot_at(w, id);
    if (bad) w->counters.bad++;
    else w->counters.invalidations++;
    if (slot == NONE) return false;
    w->slots[take_out(w, slot)].older = w->spare;
    w->spare = slot;
    return true;
}

WardenRowsCounters warden_rows_counters(const WardenRows *w) { return w->counters; }
