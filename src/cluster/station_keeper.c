/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/station_keeper.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/min.h"
#include "knot/emit.h"
#include "quant/numerics.h"

enum { LOST_MAX = 64, FORMAT_VERSION = 1, HASH_AT = 56, WORD_BITS = 64 };

static const uint8_t magic[4] = {'C', 'S', 'E', 'S'};

/* What is kept of the session in one slot of the station. */
typedef struct Kept {
    uint64_t name; /* 0: nothing */
    uint32_t length;
    uint64_t *starts; /* a bit for each position that begins a row */
} Kept;

struct StationKeeper {
    StationKeeperTerms terms;
    Station *station;
    StationSessions *sessions;
    uint32_t row_positions; /* at most in a row */
    Kept *kept;             /* [sessions->count] */
    uint64_t lost[LOST_MAX], last_lost;
    uint32_t lost_count;
};

/* ---- Building ---- */

static size_t words(const StationKeeperTerms *t) { return t->context / WORD_BITS + 1; }

uint64_t station_keeper_bytes(const StationKeeperTerms *t, uint32_t sessions)
{
    return arena_bytes(sizeof(StationKeeper)) + arena_bytes(sessions * sizeof(Kept)) +
           arena_bytes(sessions * words(t) * sizeof(uint64_t)) + ARENA_ALIGN;
}

static Error find_row_positions(StationKeeper *k, Why *why)
{
    uint64_t position = station_position_bytes(k->station), most = k->terms.row_bytes_max;
    ASSERT(most > STATION_KEEPER_HEADER_BYTES);
    uint64_t fit = position ? (most - STATION_KEEPER_HEADER_BYTES) / position : k->terms.context;
    k->row_positions = (uint32_t)min_u64(fit, k->terms.context);
    if (k->row_positions) return OK;
    return error_why(why, ERR_CAPACITY, "a position takes %llu bytes, a row has %llu",
                     (unsigned long long)position, (unsigned long long)most);
}

Error station_keeper_build(const StationKeeperTerms *terms, Station *station,
                           StationSessions *sessions, Arena *arena, StationKeeper **out, Why *why)
{
    StationKeeper *k = ARENA_NEW(arena, StationKeeper, 1);
    if (!k) return error_why(why, ERR_MEMORY, "no memory for a keeper of sessions");
    k->terms = *terms;
    k->station = station;
    k->sessions = sessions;
    k->kept = ARENA_NEW(arena, Kept, sessions->count);
    uint64_t *starts = ARENA_NEW(arena, uint64_t, sessions->count *words(terms));
    if (!k->kept || !starts)
        return error_why(why, ERR_MEMORY, "no memory for a keeper of sessions");
    for (uint32_t i = 0; i < sessions->count; i++) k->kept[i].starts = starts + i * words(terms);
    *out = k;
    return find_row_positions(k, why);
}

void station_keeper_key(uint64_t session, char out[STATION_KEEPER_KEY_BYTES])
{
    Emit e = emit_make(out, STATION_KEEPER_KEY_BYTES - 1);
    emit_text(&e, "session/");
    emit_hex64(&e, session);
    out[e.used] = '\0';
}

/* ---- Cuts ---- */

static bool begins(const Kept *p, uint32_t position)
{
    return p->starts[position / WORD_BITS] >> (position % WORD_BITS) & 1;
}

static void mark_start(Kept *p, uint32_t position)
{
    p->starts[position / WORD_BITS] |= (uint64_t)1 << (position % WORD_BITS);
}

/* Forgets the rows from `number` on. */
static void cut_to(Kept *p, uint32_t number)
{
    for (uint32_t i = number; i < p->length; i++)
        p->starts[i / WORD_BITS] &= ~((uint64_t)1 << (i % WORD_BITS));
    p->length = number;
}

static void forget(const StationKeeper *k, Kept *p)
{
    memset(p->starts, 0, words(&k->terms) * sizeof *p->starts);
    p->name = 0;
    p->length = 0;
}

/* Of the row that has the position. */
static uint32_t row_start(const Kept *p, uint32_t position)
{
    while (position && !begins(p, position)) position--;
    return position;
}

bool station_keeper_cut(StationKeeper *k, StationKeeperRow *out)
{
    for (uint32_t i = 0; i < k->sessions->count; i++) {
        Kept *p = &k->kept[i];
        const StationSession *s = &k->sessions->slots[i];
        bool same = p->name == s->name;
        if (!p->length || (same && s->kept >= p->length)) continue;
        *out = (StationKeeperRow){.session = p->name, .number = same ? row_start(p, s->kept) : 0};
        if (same) cut_to(p, out->number);
        else forget(k, p);
        return true;
    }
    return false;
}

/* ---- Rows ---- */

static uint64_t row_hash(const uint8_t *row, uint64_t bytes)
{
    HashStream64 hash;
    hash_stream64_start(&hash);
    hash_stream64_update(&hash, row, HASH_AT);
    hash_stream64_update(&hash, row + STATION_KEEPER_HEADER_BYTES,
                         (size_t)(bytes - STATION_KEEPER_HEADER_BYTES));
    return hash_stream64_end(&hash);
}

static void write_terms(const StationKeeper *k, uint8_t *row)
{
    memcpy(row, magic, 4);
    bytes_store32(row + 4, FORMAT_VERSION);
    bytes_store64(row + 8, k->terms.knot_id);
    bytes_store32(row + 16, NUMERICS_VERSION);
    bytes_store32(row + 20, k->terms.cache == CACHE_Q8_0);
    bytes_store32(row + 24, k->terms.range.first);
    bytes_store32(row + 28, k->terms.range.last);
}

static uint32_t make_row(const StationKeeper *k, uint32_t slot, uint32_t first, uint32_t count,
                         uint8_t *row)
{
    const StationSession *s = &k->sessions->slots[slot];
    uint64_t bytes = STATION_KEEPER_HEADER_BYTES + count * station_position_bytes(k->station);
    write_terms(k, row);
    bytes_store64(row + 32, s->name);
    bytes_store64(row + 40, s->request);
    bytes_store32(row + 48, first);
    bytes_store32(row + 52, count);
    station_save(k->station, slot, first, count, row + STATION_KEEPER_HEADER_BYTES);
    bytes_store64(row + HASH_AT, row_hash(row, bytes));
    return (uint32_t)bytes;
}

bool station_keeper_put(StationKeeper *k, uint8_t *out, StationKeeperRow *row)
{
    for (uint32_t i = 0; i < k->sessions->count; i++) {
        StationSession *s = &k->sessions->slots[i];
        Kept *p = &k->kept[i];
        uint32_t length = s->name ? station_length(k->station, i) : 0;
        if (length <= p->length) continue;
        uint32_t first = p->length, count = min_u32(length - first, k->row_positions);
        *row = (StationKeeperRow){s->name, first, make_row(k, i, first, count, out)};
        p->name = s->name;
        mark_start(p, first);
        p->length = s->kept = first + count;
        return true;
    }
    return false;
}

/* ---- Back ---- */

static Error check_row(const StationKeeper *k, const uint8_t *row, uint64_t bytes, Why *why)
{
    uint8_t wanted[STATION_KEEPER_HEADER_BYTES];
    if (bytes < STATION_KEEPER_HEADER_BYTES || memcmp(row, magic, 4) != 0)
        return error_why(why, ERR_FORMAT, "a row of %llu bytes is no row of a session",
                         (unsigned long long)bytes);
    write_terms(k, wanted);
    if (memcmp(row, wanted, 32) != 0)
        return error_why(why, ERR_UNSUPPORTED,
                         "session %llx is of another knot, range or cache type",
                         (unsigned long long)bytes_load64(row + 32));
    if (bytes != STATION_KEEPER_HEADER_BYTES +
                     bytes_load32(row + 52) * station_position_bytes(k->station) ||
        row_hash(row, bytes) != bytes_load64(row + HASH_AT))
        return error_why(why, ERR_CHECKSUM, "session %llx, row %u",
                         (unsigned long long)bytes_load64(row + 32), bytes_load32(row + 48));
    return OK;
}

static Error take_row(StationKeeper *k, const uint8_t *row, uint64_t bytes, Why *why)
{
    uint32_t slot, first = bytes_load32(row + 48), count = bytes_load32(row + 52);
    uint64_t name = bytes_load64(row + 32);
    TRY(check_row(k, row, bytes, why));
    if (!name || !count)
        return error_why(why, ERR_FORMAT, "session %llx, %u positions", (unsigned long long)name,
                         count);
    TRY(station_sessions_restore(k->sessions, name, bytes_load64(row + 40), &slot, why));
    TRY(station_restore(k->station, slot, first, count, row + STATION_KEEPER_HEADER_BYTES, why));
    Kept *p = &k->kept[slot];
    p->name = name;
    mark_start(p, first);
    p->length = k->sessions->slots[slot].kept = first + count;
    return OK;
}

/* The session goes, with what was taken of it. */
static void lose(StationKeeper *k, uint64_t name)
{
    for (uint32_t i = 0; i < k->sessions->count; i++)
        if (k->kept[i].name == name) forget(k, &k->kept[i]);
    (void)station_sessions_drop(k->sessions, name);
    k->last_lost = name;
    if (k->lost_count < LOST_MAX) k->lost[k->lost_count++] = name;
}

Error station_keeper_restore(StationKeeper *k, const uint8_t *row, uint64_t bytes, Why *why)
{
    uint64_t name = bytes >= STATION_KEEPER_HEADER_BYTES ? bytes_load64(row + 32) : 0;
    if (name && name == k->last_lost) return OK; /* the rest of one that was complained about */
    Error error = take_row(k, row, bytes, why);
    if (error != OK && name) lose(k, name);
    return error;
}

bool station_keeper_lost(StationKeeper *k, uint64_t *session)
{
    if (!k->lost_count) return false;
    *session = k->lost[--k->lost_count];
    return true;
}
