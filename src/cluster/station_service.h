/* SPDX-License-Identifier: Apache-2.0 */
/* A station's side of the wire: the bytes of a request to a frame, a frame's result to the bytes of
 * the answer. Who carries out the frame's wishes is the host.
 *
 *   body --station_service_read--> StationFrame --host: station_begin, tiles--> x, g
 *                                                   |                             |
 *                        station_service_end(error)-+        station_service_write--> answer
 *
 * Sessions have 64-bit names; the service keeps the table of which of them has which slot of the
 * station. When slots or cache blocks run out, the least recently used sessions that the frame does
 * not name make room: their coordinator hears 410 and replays. So what a coordinator that is gone
 * has left behind never keeps another one out.
 *
 * Invariants
 *   1. Request ids of a session rise. A frame that comes late (a lower or equal id: the network kept it, and a
 *      retry took its place) is ERR_SUPERSEDED and changes nothing, so that no old row can
 *      overwrite a new one.
 *   2. A frame that is refused has changed no session.
 *   3. After a frame that failed in the station every session of it ends at its sequence's position. */
#ifndef COBORD_CLUSTER_STATION_SERVICE_H
#define COBORD_CLUSTER_STATION_SERVICE_H

#include "base/arena.h"
#include "cluster/station.h"
#include "wire/forward.h"

typedef struct StationService StationService;

/* `terms`: the station's own facts; rows_max and sequences_max are the station's rows and
 * sessions. */
uint64_t station_service_bytes(const ForwardTerms *terms);
/* The largest body that can be a request, and the largest answer. */
uint64_t station_service_body_bytes_max(const ForwardTerms *terms);
uint64_t station_service_answer_bytes_max(const ForwardTerms *terms);
/* Owner  the station, the arena and terms->hyper outlive it. Thread  that of the station. */
MUST_CHECK Error station_service_build(const ForwardTerms *terms, Station *station, Arena *arena,
                                       StationService **out, Why *why);

/* Reads a whole body: header and payload. Forks (a parent session) are made here; they share the
 * parent's cache blocks. The frame is to be given to
 * station_begin; its floats belong to the service and hold the result afterwards. A frame that is
 * still under way ends here.
 * Errors  those of forward_read, frame_check_payload, rows_read; ERR_SESSION, ERR_POSITION,
 *         ERR_SUPERSEDED, ERR_DUPLICATE, ERR_CAPACITY (slots, blocks). */
MUST_CHECK Error station_service_read(StationService *s, const uint8_t *body, size_t bytes,
                                      StationFrame *frame, Why *why);
/* The station failed or was given up: nothing is written, the frame's sessions end at their
 * positions. */
void station_service_end(StationService *s);
/* The answer's room, known once the request was read. */
size_t station_service_answer_bytes(const StationService *s);
/* Once per frame. Errors  ERR_NOT_FINITE: names the row; as station_service_end. ERR_CAPACITY
 * (`room`): nothing was made. */
MUST_CHECK Error station_service_write(StationService *s, uint32_t compute_us, uint8_t *out,
                                       size_t room, size_t *bytes, Why *why);

/* Frees a session. Result  false when it is not known. */
bool station_service_drop(StationService *s, uint64_t session);
uint32_t station_service_sessions(const StationService *s);
/* The table itself, for who keeps sessions elsewhere. */
struct StationSessions;
struct StationSessions *station_service_table(StationService *s);
/* Sessions that had to make room since the start. */
uint64_t station_service_evictions(const StationService *s);

#endif
