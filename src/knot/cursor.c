/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/cursor.h"

#include <string.h>

#include "base/bytes.h"

Error cursor_start(Cursor *c, const CursorPort *port, Arena *arena, Why *why)
{
    *c = (Cursor){port, arena_take(arena, CURSOR_WINDOW_BYTES), 0, 0, 0};
    return c->window ? OK
                     : error_why(why, ERR_MEMORY, "a reading window of %u bytes",
                                 (unsigned)CURSOR_WINDOW_BYTES);
}

void cursor_seek(Cursor *c, uint64_t offset)
{
    ASSERT(offset <= c->port->file_bytes);
    c->at = offset;
}

static Error cursor_check(const Cursor *c, uint64_t bytes, const char *what, Why *why)
{
    if (bytes <= cursor_left(c)) return OK;
    return error_why(
        why, ERR_TRUNCATED, "%s at byte %llu claims %llu bytes, the file has %llu left", what,
        (unsigned long long)c->at, (unsigned long long)bytes, (unsigned long long)cursor_left(c));
}

Error cursor_take(Cursor *c, size_t bytes, const char *what, const uint8_t **out, Why *why)
{
    ASSERT(bytes <= CURSOR_WINDOW_BYTES);
    TRY(cursor_check(c, bytes, what, why));
    bool inside = c->at >= c->window_start && c->at - c->window_start <= c->window_bytes &&
                  bytes <= c->window_bytes - (size_t)(c->at - c->window_start);
    if (!inside) {
        uint64_t left = cursor_left(c);
        size_t fill = left < CURSOR_WINDOW_BYTES ? (size_t)left : CURSOR_WINDOW_BYTES;
        c->window_bytes = 0;
        TRY(c->port->read(c->port->file, c->at, c->window, fill, why));
        c->window_start = c->at;
        c->window_bytes = fill;
    }
    *out = c->window + (c->at - c->window_start);
    c->at += bytes;
    return OK;
}

Error cursor_u32(Cursor *c, const char *what, uint32_t *out, Why *why)
{
    const uint8_t *p = NULL;
    TRY(cursor_take(c, 4, what, &p, why));
    *out = bytes_load32(p);
    return OK;
}

Error cursor_u64(Cursor *c, const char *what, uint64_t *out, Why *why)
{
    const uint8_t *p = NULL;
    TRY(cursor_take(c, 8, what, &p, why));
    *out = bytes_load64(p);
    return OK;
}

Error cursor_skip(Cursor *c, uint64_t bytes, const char *what, Why *why)
{
    TRY(cursor_check(c, bytes, what, why));
    c->at += bytes;
    return OK;
}

Error cursor_copy(Cursor *c, void *out, size_t bytes, const char *what, Why *why)
{
    TRY(cursor_check(c, bytes, what, why));
    for (uint8_t *to = out; bytes;) {
        size_t piece = bytes < CURSOR_WINDOW_BYTES ? bytes : CURSOR_WINDOW_BYTES;
        const uint8_t *p = NULL;
        TRY(cursor_take(c, piece, what, &p, why));
        memcpy(to, p, piece);
        to += piece;
        bytes -= piece;
    }
    return OK;
}
