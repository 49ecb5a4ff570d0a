/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a station's sessions elsewhere, in rows that are appended to (docs/format/workers.md,
 * section 6): what an instance that may be gone at any time does, so that its sessions are not.
 *
 *   session 7   | row 0: positions 0..39 | row 40: 40..48 | row 49 | row 50 |         numbered by first position
 *
 *   a frame was admitted and computed --> cuts, before the answer --> puts, after it
 *
 * A session that was cut below what is kept loses the rows from there on (the row that has the cut
 * too: its beginning is appended again) before anybody hears of it. Appending can wait: a row that
 * never comes makes the session shorter, which its coordinator sees; a row that stays too long
 * would make it wrong.
 *
 * Thread  the station's. */
#ifndef COBORD_CLUSTER_STATION_KEEPER_H
#define COBORD_CLUSTER_STATION_KEEPER_H

#include "cluster/station_sessions.h"

enum { STATION_KEEPER_HEADER_BYTES = 64, STATION_KEEPER_KEY_BYTES = 28 };

typedef struct StationKeeper StationKeeper;

typedef struct StationKeeperTerms {
    uint64_t knot_id;
    CacheType cache;
    PhaseRange range;
    uint32_t context;
    uint64_t row_bytes_max; /* of a row, header included */
} StationKeeperTerms;

uint64_t station_keeper_bytes(const StationKeeperTerms *terms, uint32_t sessions);
/* Owner  station and sessions outlive it. Errors  ERR_MEMORY; ERR_CAPACITY (a position is larger
 * than a row). */
MUST_CHECK Error station_keeper_build(const StationKeeperTerms *terms, Station *station,
                                      StationSessions *sessions, Arena *arena, StationKeeper **out,
                                      Why *why);

/* A row, or the rows of a session from a number on. */
typedef struct StationKeeperRow {
    uint64_t session;
    uint32_t number;
    uint32_t bytes; /* put */
} StationKeeperRow;

/* "session/0011223344556677" */
void station_keeper_key(uint64_t session, char out[STATION_KEEPER_KEY_BYTES]);

/* The next rows that must go. Result  false: none is left. */
bool station_keeper_cut(StationKeeper *k, StationKeeperRow *out);
/* After the cuts: the next row to write, made in `out`. Shapes  out[row_bytes_max]. Result  false:
 * none is left. */
bool station_keeper_put(StationKeeper *k, uint8_t *out, StationKeeperRow *row);

/* Takes a row back; rows come in the order of their keys and numbers. One that is of no use is
 * left out, and its session with it: its name is then in the list of station_keeper_lost.
 * Errors  ERR_FORMAT, ERR_UNSUPPORTED (another knot, range, cache type), ERR_CHECKSUM,
 * ERR_POSITION (a gap), ERR_CAPACITY. */
MUST_CHECK Error station_keeper_restore(StationKeeper *k, const uint8_t *row, uint64_t bytes,
                                        Why *why);
/* The name of a session whose rows are of no use, to be deleted whole. Result  false: none is
 * left. */
bool station_keeper_lost(StationKeeper *k, uint64_t *session);

#endif
