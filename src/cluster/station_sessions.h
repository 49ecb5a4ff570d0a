/* SPDX-License-Identifier: Apache-2.0 */
/* Which session of the wire has which slot of a station. A station counts its sessions from 0; the
 * wire has 64-bit names, request ids that rise, and copies.
 *
 *   name not in the table --position 0, or a parent--> slot taken --admitted frames--> ..
 *        ^                                               |
 *        '--------- drop, or made room for another ------'
 *
 * A copy shares its parent's cache blocks until one of them writes (cache.h). Copies are made
 * here, so the sequences that go on to the station do not fork.
 *
 * A frame is looked at as a whole before anything changes: either all of it is admitted or nothing.
 *
 * Limits  tables are searched from end to end: at most STATION_SESSIONS_MAX slots. */
#ifndef COBORD_CLUSTER_STATION_SESSIONS_H
#define COBORD_CLUSTER_STATION_SESSIONS_H

#include "base/arena.h"
#include "cluster/station.h"
#include "wire/forward.h"

typedef struct StationSession {
    uint64_t name;    /* 0: the slot is free */
    uint64_t request; /* of the last frame that was admitted */
    uint64_t used;    /* that frame's number, of this station */
    uint64_t named;   /* number of the last frame, admitted or not, that names it ... */
    uint64_t copied;  /* ... and that makes it a copy */
    uint32_t kept;    /* positions that are as they were when the keeper last looked (station_keeper.h) */
} StationSession;

typedef struct StationSessions {
    Station *station;
    StationSession *slots;
    uint32_t count; /* of slots */
    uint32_t known;
    uint64_t frame; /* number of the frame being looked at */
    uint64_t evictions;
} StationSessions;

uint64_t station_sessions_bytes(uint32_t count);
/* Errors  ERR_MEMORY. */
MUST_CHECK Error station_sessions_build(StationSessions *s, Station *station, uint32_t count,
                                        Arena *arena);

/* Gives each sequence of the frame its slot, evicts for it, and makes the copies.
 * Shapes  out[f->sequence_count]. `f` has passed forward_check.
 * Errors  ERR_SUPERSEDED, ERR_SESSION, ERR_POSITION, ERR_RANGE (a copy of a copy), ERR_CAPACITY;
 * then
 *         nothing has changed. */
MUST_CHECK Error station_sessions_admit(StationSessions *s, const Forward *f, StationSequence *out,
                                        Why *why);
/* Result  false when it is not known. */
bool station_sessions_drop(StationSessions *s, uint64_t name);
void station_sessions_drop_all(StationSessions *s);
/* Gives a session that was kept elsewhere a slot, or finds the one it has. Errors  ERR_CAPACITY. */
MUST_CHECK Error station_sessions_restore(StationSessions *s, uint64_t name, uint64_t request,
                                          uint32_t *slot, Why *why);

#endif
