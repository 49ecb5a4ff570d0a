/* SPDX-License-Identifier: Apache-2.0 */
/* What JavaScript sees of the coordinator: docs/format/workers.md, section 8. */
#include <stdlib.h>
#include <string.h>

#include "hub.h"
#include "machine.h"
#include "streams.h"

#define EXPORT(name) __attribute__((export_name("coordinator_" #name)))
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* nothing in C calls these */

enum { TEXT_BYTES_MAX = 2 << 20 };

static Hub hub;
static char *text;

/* ---- In ---- */

/* Room for a text that the next call takes; 0: too long, or no memory. */
EXPORT(text) char *exported_text(uint32_t bytes)
{
    free(text);
    text = bytes <= TEXT_BYTES_MAX ? malloc(bytes + 1) : NULL;
    return text;
}

EXPORT(chance) uint8_t *exported_chance(void) { return machine_chance(); }

/* Before a request: its key's limits go by it. */
EXPORT(time) void exported_time(double now_ms) { machine_set_time(now_ms); }

EXPORT(settings) Error exported_settings(uint32_t bytes) { return hub_settings(&hub, text, bytes); }
EXPORT(keys) Error exported_keys(uint32_t bytes) { return hub_keys(&hub, text, bytes); }
EXPORT(open) Error exported_open(uint32_t bytes) { return hub_open(&hub, text, bytes); }
EXPORT(is_open) uint32_t exported_is_open(void) { return hub.stage == HUB_OPEN; }

EXPORT(request) uint32_t exported_request(uint32_t bytes) { return hub_request(&hub, text, bytes); }
EXPORT(body) uint8_t *exported_body(uint32_t number, uint32_t bytes)
{
    return hub_body(&hub, number, bytes);
}
EXPORT(body_end) void exported_body_end(uint32_t number) { hub_body_end(&hub, number); }
EXPORT(gone) void exported_gone(uint32_t number) { hub_gone(&hub, number); }
EXPORT(written) void exported_written(uint32_t number) { hub_written(&hub, number); }

/* The text is a row's key, and behind it its bytes. */
EXPORT(row) void exported_row(uint32_t key_bytes, uint32_t number, uint32_t bytes)
{
    char key[STREAMS_KEY_BYTES];
    if (!text || key_bytes >= sizeof key || key_bytes > bytes) return;
    memcpy(key, text, key_bytes);
    key[key_bytes] = '\0';
    streams_restore(key, number, (const uint8_t *)text + key_bytes, bytes - key_bytes);
}

EXPORT(invocation) void exported_invocation(uint32_t calls) { hub_invocation(&hub, calls); }
EXPORT(read_came) void exported_read_came(uint32_t fine) { hub_read_came(&hub, fine); }

static size_t answer_room;

/* Where the answer of a call goes; 0: it is not wanted any more. */
EXPORT(answer_address) uint8_t *exported_answer_address(uint32_t call)
{
    answer_room = 0;
    return hub_answer_room(&hub, call, &answer_room);
}
EXPORT(answer_room) uint32_t exported_answer_room(void) { return answer_room; }
EXPORT(answer) void exported_answer(uint32_t call, uint32_t status, uint32_t bytes)
{
    hub_answer(&hub, call, status, bytes);
}

/* ---- Out ---- */

EXPORT(next) HubWishKind exported_next(double now_ms) { return hub_next(&hub, now_ms); }
EXPORT(wish_number) uint32_t exported_wish_number(void) { return hub.wish.number; }
EXPORT(wish_offset) double exported_wish_offset(void) { return hub.wish.offset; }
EXPORT(wish_wait_ms) double exported_wish_wait_ms(void) { return hub.wish.wait_ms; }
EXPORT(wish_text) const char *exported_wish_text(void) { return hub.wish.text; }
EXPORT(wish_allow) const char *exported_wish_allow(void) { return hub.wish.allow; }
EXPORT(wish_headers) const char *exported_wish_headers(void) { return hub.wish.headers; }
EXPORT(wish_status) uint32_t exported_wish_status(void) { return hub.wish.status; }
EXPORT(wish_retry_s) uint32_t exported_wish_retry_s(void) { return hub.wish.retry_s; }
EXPORT(wish_part) const uint8_t *exported_wish_part(uint32_t i)
{
    return i < 2 ? hub.wish.parts[i] : NULL;
}
EXPORT(wish_part_bytes) uint32_t exported_wish_part_bytes(uint32_t i)
{
    return i < 2 ? hub.wish.part_bytes[i] : 0;
}
EXPORT(wish_address) uint8_t *exported_wish_address(void) { return hub.wish.address; }
EXPORT(wish_room) uint32_t exported_wish_room(void) { return hub.wish.room; }
