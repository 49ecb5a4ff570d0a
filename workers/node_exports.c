/* SPDX-License-Identifier: Apache-2.0 */
/* What JavaScript sees of a node: docs/format/workers.md. */
#include <string.h>

#include "node.h"
#include "node_loop.h"

#define EXPORT(name) __attribute__((export_name("node_" #name)))
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* nothing in C calls these */

static char text[NODE_TEXT_BYTES + 1];
static char head[NODE_TEXT_BYTES + 1]; /* of the request, which points into it */

EXPORT(text) char *node_exports_text(uint32_t bytes)
{
    return bytes <= NODE_TEXT_BYTES ? text : NULL;
}

EXPORT(open) Error node_exports_open(uint32_t kind, uint32_t bytes)
{
    if (bytes > NODE_TEXT_BYTES) return ERR_TOO_LARGE;
    return node_open_start(node_self(), kind, text, bytes);
}

EXPORT(request) Error node_exports_request(uint32_t bytes)
{
    if (bytes > NODE_TEXT_BYTES) return ERR_TOO_LARGE;
    if (node_self()->loop.stage != NODE_IDLE) return ERR_USAGE;
    memcpy(head, text, bytes);
    head[bytes] = '\0';
    return node_take_request(node_self(), head);
}

EXPORT(body_max) uint32_t node_exports_body_max(void) { return node_body_limit(node_self()); }
EXPORT(body) uint8_t *node_exports_body(uint32_t bytes)
{
    return node_body_room(node_self(), bytes);
}

EXPORT(next) NodeWishKind node_exports_next(double now_ms)
{
    return node_step(node_self(), (uint64_t)now_ms);
}
EXPORT(more) uint32_t node_exports_more(void) { return node_has_more(node_self()); }

EXPORT(answer) void node_exports_answer(uint32_t status, double bytes)
{
    node_came(node_self(), status, (uint64_t)bytes);
}
EXPORT(failed) void node_exports_failed(uint32_t bytes)
{
    text[bytes < NODE_TEXT_BYTES ? bytes : NODE_TEXT_BYTES] = '\0';
    node_came_not(node_self(), text);
}
EXPORT(gone) void node_exports_gone(void) { node_self()->request.gone = true; }
EXPORT(full) NodeWishKind node_exports_full(void) { return node_full_wish(node_self())->kind; }
EXPORT(failed_open) uint32_t node_exports_failed_open(void) { return node_self()->loop.failed; }
EXPORT(why) const char *node_exports_why(void) { return node_self()->open_why.text; }

/* ---- The wish ---- */

static const NodeWish *wish(void) { return node_wish(node_self()); }
static uint32_t length(const char *s) { return s ? (uint32_t)strlen(s) : 0; }
EXPORT(wish_offset) double node_exports_wish_offset(void) { return (double)wish()->offset; }
EXPORT(wish_address) uint8_t *node_exports_wish_address(void) { return wish()->address; }
EXPORT(wish_bytes) uint32_t node_exports_wish_bytes(void) { return wish()->bytes; }
EXPORT(wish_text) const char *node_exports_wish_text(void) { return wish()->text; }
EXPORT(wish_text_bytes) uint32_t node_exports_wish_text_bytes(void) { return length(wish()->text); }
EXPORT(wish_answer) uint8_t *node_exports_wish_answer(void) { return wish()->answer; }
EXPORT(wish_room) uint32_t node_exports_wish_room(void) { return wish()->answer_bytes; }
EXPORT(wish_status) uint32_t node_exports_wish_status(void) { return wish()->status; }
EXPORT(wish_seconds) uint32_t node_exports_wish_seconds(void) { return wish()->seconds; }
EXPORT(wish_allow) const char *node_exports_wish_allow(void) { return wish()->allow; }
EXPORT(wish_allow_bytes) uint32_t node_exports_wish_allow_bytes(void)
{
    return length(wish()->allow);
}
