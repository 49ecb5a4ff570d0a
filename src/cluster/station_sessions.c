/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/station_sessions.h"

#include "base/min.h"
#include "cluster/cache.h"

enum { NOWHERE = UINT32_MAX };

uint64_t station_sessions_bytes(uint32_t count)
{
    return arena_bytes((size_t)count * sizeof(StationSession));
}

Error station_sessions_build(StationSessions *s, Station *station, uint32_t count, Arena *arena)
{
    *s = (StationSessions){.station = station, .count = count};
    s->slots = ARENA_NEW(arena, StationSession, count);
    return s->slots ? OK : ERR_MEMORY;
}

static uint32_t find(const StationSessions *s, uint64_t name)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->slots[i].name == name) return i;
    return NOWHERE;
}

static uint32_t held_blocks(const StationSessions *s, uint32_t slot)
{
    return cache_blocks_for(station_length(s->station, slot));
}

/* --- Whether the frame may pass: marks the slots it names, changes nothing else --- */

/* Slots of sessions into out[].session, NOWHERE for new ones. */
static void find_slots(StationSessions *s, const Forward *f, StationSequence *out)
{
    s->frame++;
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const ForwardSequence *q = &f->sequences[i];
        uint32_t slot = find(s, q->session), parent = q->parent ? find(s, q->parent) : NOWHERE;
        out[i] = (StationSequence){.session = slot, .position = q->position, .rows = q->rows};
        if (slot != NOWHERE) s->slots[slot].named = s->frame;
        if (slot != NOWHERE && q->parent) s->slots[slot].copied = s->frame;
        if (parent != NOWHERE) s->slots[parent].named = s->frame;
    }
}

static Error check_parent(const StationSessions *s, const ForwardSequence *q, Why *why)
{
    unsigned long long name = q->session, parent_name = q->parent;
    uint32_t parent = find(s, q->parent);
    if (parent == NOWHERE)
        return error_why(why, ERR_SESSION, "session %llu: its parent %llu is not known here", name,
                         parent_name);
    if (s->slots[parent].copied == s->frame)
        return error_why(why, ERR_RANGE,
                         "session %llu: its parent %llu becomes a copy in the same frame", name,
                         parent_name);
    uint32_t length = station_length(s->station, parent);
    if (q->parent_length > length)
        return error_why(why, ERR_POSITION,
                         "session %llu: %u positions of its parent %llu, which has %u", name,
                         q->parent_length, parent_name, length);
    return OK;
}

static Error check_sequence(const StationSessions *s, const ForwardSequence *q, uint32_t slot,
                            uint64_t request, Why *why)
{
    unsigned long long name = q->session;
    if (slot != NOWHERE && request <= s->slots[slot].request)
        return error_why(why, ERR_SUPERSEDED, "session %llu: request %llu comes after request %llu",
                         name, (unsigned long long)request,
                         (unsigned long long)s->slots[slot].request);
    if (q->parent) return check_parent(s, q, why);
    if (slot == NOWHERE && q->position > 0)
        return error_why(why, ERR_SESSION, "session %llu is not known here, and position is %u",
                         name, q->position);
    uint32_t length = slot == NOWHERE ? 0 : station_length(s->station, slot);
    if (q->position > length)
        return error_why(why, ERR_POSITION, "session %llu: position %u, expected %u", name,
                         q->position, length);
    return OK;
}

/* --- Room: slots and blocks that the frame lacks --- */

typedef struct Room {
    uint32_t slots, blocks;                     /* that must become free */
    uint32_t evictable_slots, evictable_blocks; /* of sessions that the frame does not name */
} Room;

static uint32_t lack(uint64_t need, uint64_t have)
{
    return need > have ? (uint32_t)(need - have) : 0;
}

/* Two moments need blocks: the copies, when the other sessions still have theirs, and the rows.
 * Shared blocks are charged to each session that lists them (cache.h), so lengths say all. */
static Room room_of(const StationSessions *s, const Forward *f, const StationSequence *places)
{
    Room room = {0};
    uint64_t free = station_blocks_free(s->station), fresh = 0;
    uint64_t copies = 0, copies_have = free, rows = 0, rows_have = free;
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const ForwardSequence *q = &f->sequences[i];
        bool known = places[i].session != NOWHERE;
        uint32_t held = known ? held_blocks(s, places[i].session) : 0;
        fresh += !known;
        rows += cache_blocks_for(q->position + q->rows);
        rows_have += held;
        if (!q->parent) continue;
        copies += cache_blocks_for(q->position);
        copies_have += held;
    }
    uint32_t for_rows = lack(rows, rows_have), for_copies = lack(copies, copies_have);
    room.slots = lack(fresh, s->count - s->known);
    room.blocks = for_rows > for_copies ? for_rows : for_copies;
    for (uint32_t i = 0; i < s->count; i++) {
        if (!s->slots[i].name || s->slots[i].named == s->frame) continue;
        room.evictable_slots++;
        room.evictable_blocks += held_blocks(s, i);
    }
    return room;
}

static Error check_room(const StationSessions *s, const Room *room, Why *why)
{
    if (room->slots > room->evictable_slots)
        return error_why(why, ERR_CAPACITY,
                         "%u sessions too many for this frame and those it names: %u at once",
                         room->slots - room->evictable_slots, s->count);
    if (room->blocks > room->evictable_blocks)
        return error_why(why, ERR_CAPACITY,
                         "the attention cache is full: %u blocks of %u positions wanted, %u can "
                         "become free",
                         room->blocks, (unsigned)CACHE_BLOCK_POSITIONS, room->evictable_blocks);
    return OK;
}

/* --- What changes --- */

static void forget(StationSessions *s, uint32_t slot)
{
    station_truncate(s->station, slot, 0);
    s->slots[slot] = (StationSession){0};
    s->known--;
}

static uint32_t least_recent(const StationSessions *s)
{
    uint32_t best = NOWHERE;
    for (uint32_t i = 0; i < s->count; i++) {
        if (!s->slots[i].name || s->slots[i].named == s->frame) continue;
        if (best == NOWHERE || s->slots[i].used < s->slots[best].used) best = i;
    }
    return best;
}

static void evict(StationSessions *s, const Room *room)
{
    for (uint32_t slots = 0, blocks = 0; slots < room->slots || blocks < room->blocks; slots++) {
        uint32_t slot = least_recent(s);
        ASSERT(slot != NOWHERE); /* check_room has counted them */
        blocks += held_blocks(s, slot);
        forget(s, slot);
        s->evictions++;
    }
}

/* Copies give their old blocks back before any copy takes new ones. */
static void take_slots(StationSessions *s, const Forward *f, StationSequence *out)
{
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        if (out[i].session == NOWHERE) {
            out[i].session = find(s, 0);
            s->known++;
        }
        StationSession *slot = &s->slots[out[i].session];
        slot->name = f->sequences[i].session;
        slot->request = f->request_id;
        slot->used = s->frame;
        slot->kept = f->sequences[i].parent ? 0 : min_u32(slot->kept, out[i].position);
        if (f->sequences[i].parent) station_truncate(s->station, out[i].session, 0);
    }
}

/* Positions from `position` to parent_length would be cut at once, so they are left out. */
static Error copy_parents(StationSessions *s, const Forward *f, const StationSequence *places,
                          Why *why)
{
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const ForwardSequence *q = &f->sequences[i];
        if (!q->parent) continue;
        uint32_t parent = find(s, q->parent);
        s->slots[parent].used = s->frame;
        TRY(station_fork(s->station, parent, places[i].session, q->position, why));
    }
    return OK;
}

Error station_sessions_admit(StationSessions *s, const Forward *f, StationSequence *out, Why *why)
{
    ASSERT(f->sequence_count <= s->count);
    find_slots(s, f, out);
    for (uint32_t i = 0; i < f->sequence_count; i++)
        TRY(check_sequence(s, &f->sequences[i], out[i].session, f->request_id, why));
    Room room = room_of(s, f, out);
    TRY(check_room(s, &room, why));
    evict(s, &room);
    take_slots(s, f, out);
    Error error = copy_parents(s, f, out, why);
    ASSERT(error == OK); /* the room was there */
    return OK;
}

bool station_sessions_drop(StationSessions *s, uint64_t name)
{
    uint32_t slot = name ? find(s, name) : NOWHERE;
    if (slot == NOWHERE) return false;
    forget(s, slot);
    return true;
}

void station_sessions_drop_all(StationSessions *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->slots[i].name) forget(s, i);
}

Error station_sessions_restore(StationSessions *s, uint64_t name, uint64_t request, uint32_t *slot,
                               Why *why)
{
    *slot = find(s, name);
    if (*slot == NOWHERE) {
        *slot = find(s, 0);
        if (*slot == NOWHERE)
            return error_why(why, ERR_CAPACITY, "session %llu is one more than %u",
                             (unsigned long long)name, s->count);
        s->slots[*slot].name = name;
        s->known++;
    }
    s->slots[*slot].request = request;
    s->slots[*slot].used = ++s->frame;
    return OK;
}
