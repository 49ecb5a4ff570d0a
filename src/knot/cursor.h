/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file forwards through a window, over a port of the host: small pieces in place, long ones
 * copied or skipped. Every length is compared with the bytes that are left before anything else
 * happens to it.
 *
 *   file   ........[ window ..at........ ]................ end
 *
 * The window is refilled from `at` when a piece crosses its end. */
#ifndef COBORD_KNOT_CURSOR_H
#define COBORD_KNOT_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

/* A file of the host. `read` fills all of out[bytes]; it is only asked for ranges inside
 * file_bytes. */
typedef struct CursorPort {
    Error (*read)(void *file, uint64_t offset, void *out, size_t bytes, Why *why);
    void *file;
    uint64_t file_bytes;
} CursorPort;

enum { CURSOR_WINDOW_BYTES = 128 << 10 };

typedef struct Cursor {
    const CursorPort *port;
    uint8_t *window;
    uint64_t window_start;
    size_t window_bytes; /* filled */
    uint64_t at;         /* in the file */
} Cursor;

/* Takes the window from `arena`. Errors  ERR_MEMORY. */
MUST_CHECK Error cursor_start(Cursor *c, const CursorPort *port, Arena *arena, Why *why);

/* Moves to a place in the file, which may be its end. */
void cursor_seek(Cursor *c, uint64_t offset);

static inline uint64_t cursor_left(const Cursor *c) { return c->port->file_bytes - c->at; }

/* The next `bytes` (at most CURSOR_WINDOW_BYTES) in place, valid until the next call. `what` names
 * them in an error. Errors  ERR_TRUNCATED, those of the port. */
MUST_CHECK Error cursor_take(Cursor *c, size_t bytes, const char *what, const uint8_t **out,
                             Why *why);
MUST_CHECK Error cursor_u32(Cursor *c, const char *what, uint32_t *out, Why *why);
MUST_CHECK Error cursor_u64(Cursor *c, const char *what, uint64_t *out, Why *why);
MUST_CHECK Error cursor_skip(Cursor *c, uint64_t bytes, const char *what, Why *why);
/* Any number of bytes into out. */
MUST_CHECK Error cursor_copy(Cursor *c, void *out, size_t bytes, const char *what, Why *why);

#endif
