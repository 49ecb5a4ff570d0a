/* SPDX-License-Identifier: Apache-2.0 */
/* A warden and its stations on one machine share memory: a descriptor over a Unix socket instead of bytes.
 *
 *   station --"COBS", version, knot_id, key--> warden: same user? same key? same knot?
 *   station <--"COBS", version, wait---------- every second while memory is being filled
 *   station <--"COBS", version, what---------- the knot's own file, or its memory file, filled and sealed
 *             (with the descriptor)            (host/warden_levels.h: 2 MiB pages, never to change)
 *
 * Whatever is odd is a no, and the station goes to HTTP. The station trusts neither: it checks every tensor it uses. */
#ifndef COBORD_HOST_SHARE_H
#define COBORD_HOST_SHARE_H

#include "host/knot_store.h"
#include "host/warden_levels.h"

typedef enum ShareWhat { SHARE_NOTHING, SHARE_FILE, SHARE_MEMORY, SHARE_WAIT } ShareWhat;

typedef struct ShareOptions {
    const char *path; /* of the socket */
    const char *key;  /* NULL: none */
    uint64_t knot_id;
    WardenLevels *levels;
    KnotStore *store;
    const Tell *tell;
} ShareOptions;

typedef struct Share Share;

/* Listens, on a thread of its own. The socket file is this user's alone; what a dead warden left there is replaced.
 * Owner  share_close; the path is copied. Errors  ERR_IO, ERR_MEMORY, ERR_TOO_LARGE. */
MUST_CHECK Error share_open(const ShareOptions *options, Share **out, Why *why);
void share_close(Share *share);

/* The station's side; waits while the warden fills its memory, but not for one that is silent for
 * `silence_s`. Owner  *descriptor is the caller's.
 * Errors  ERR_UNREACHABLE, ERR_KEY (another user), ERR_NOT_AVAILABLE (it says no), ERR_FORMAT. */
MUST_CHECK Error share_ask(const char *path, const char *key, uint64_t knot_id, unsigned silence_s,
                           ShareWhat *what, int *descriptor, Why *why);

#endif
