/* SPDX-License-Identifier: Apache-2.0 */
/* Parts under way, some at once on connections of their own:
 *
 *   IDLE --read, hash; the store has it--> IDLE
 *     |                '--else start--> BUSY --answered--> IDLE
 *     |                                  | broken, late, 5xx, nothing sent for a minute
 *     '<--6 tries: the end of it--- PAUSED (100 ms, 200, ..), then BUSY again
 *
 * The bytes that are hashed are those that are sent: each slot has a buffer of its own, whatever becomes of
 * the file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "host/clock.h"
#include "host/places.h"
#include "host/s3_upload_state.h"
#include "host/stop.h"
#include "host/whole.h"

enum {
    SLOT_STILL_MS = 60000, /* a connection on which nothing moves */
    SLOT_LOOK_MS = 200,
    SLOT_ANSWER_BYTES = 4096,
    SLOT_SLOWEST_BYTES_PER_MS = 8
};

typedef enum SlotState { SLOT_IDLE, SLOT_BUSY, SLOT_PAUSED } SlotState;

typedef struct Slot {
    SlotState state;
    S3Call call;
    uint32_t part;
    unsigned tries;
    uint64_t again_ms;              /* PAUSED */
    uint64_t moved_ms, moved_bytes; /* BUSY: when, and how many had left by then */
    uint8_t *bytes;
    char hash[S3_HASH_BYTES];
    uint8_t answer[SLOT_ANSWER_BYTES];
} Slot;

typedef struct Sending {
    S3Upload *u;
    Slot slots[S3_UPLOAD_AT_ONCE];
    uint32_t next, sent;
} Sending;

uint64_t s3_parts_bytes(const S3Upload *u, uint32_t part)
{
    uint64_t offset = part * u->part_bytes;
    return u->bytes - offset < u->part_bytes ? u->bytes - offset : u->part_bytes;
}

static bool is_md5(const char *etag)
{
    return strlen(etag) == 32 && strspn(etag, "0123456789abcdefABCDEF") == 32;
}

bool s3_parts_is_there(const S3Upload *u, uint32_t part)
{
    const S3Part *p = &u->parts[part];
    char hex[33];
    if (p->listed_bytes != s3_parts_bytes(u, part)) return false;
    if (!is_md5(p->listed_etag)) return p->is_sent && p->listed_etag[0];
    for (int i = 0; i < 16; i++) (void)snprintf(hex + 2 * i, 3, "%02x", p->md5[i]);
    return strcasecmp(hex, p->listed_etag) == 0;
}

static Error read_part(S3Upload *u, Slot *s, Why *why)
{
    uint64_t bytes = s3_parts_bytes(u, s->part);
    S3Part *p = &u->parts[s->part];
    if (!whole_read(u->file, s->part * u->part_bytes, s->bytes, bytes))
        return errno ? places_system_error(errno, "the file", why)
                     : error_why(why, ERR_TRUNCATED, "the file became shorter");
    ASSERT(gnutls_hash_fast(GNUTLS_DIG_MD5, s->bytes, bytes, p->md5) == 0);
    p->is_hashed = true;
    return OK;
}

static Error start(S3Upload *u, Slot *s, Why *why)
{
    char query[S3_ID_BYTES + 48];
    uint64_t bytes = s3_parts_bytes(u, s->part);
    (void)snprintf(query, sizeof query, "partNumber=%u&uploadId=%s", s->part + 1, u->id);
    TRY(s3_upload_prepare(u, "PUT", u->object, query, s->hash, &s->call, why));
    HttpCall *http = &s->call.http;
    http->parts[0] = s->bytes;
    http->part_bytes[0] = bytes;
    http->answer = s->answer;
    http->answer_room = sizeof s->answer;
    http->deadline_ms = 2 * SLOT_STILL_MS + (uint32_t)(bytes / SLOT_SLOWEST_BYTES_PER_MS);
    http->tag = s;
    s->state = SLOT_BUSY;
    s->moved_bytes = 0;
    s->moved_ms = clock_now_ms();
    http_client_start(u->client, http);
    return OK;
}

/* The next part that the store does not have goes to an idle slot. */
static Error fill(Sending *g, Slot *s, Why *why)
{
    S3Upload *u = g->u;
    while (g->next < u->part_count) {
        s->part = g->next++;
        if (u->parts[s->part].is_hashed && s3_parts_is_there(u, s->part)) continue;
        TRY(read_part(u, s, why));
        if (!s3_parts_is_there(u, s->part)) {
            s3_hash(s->bytes, s3_parts_bytes(u, s->part), s->hash);
            s->tries = 0;
            g->sent++;
            return start(u, s, why);
        }
        u->sent_bytes += s3_parts_bytes(u, s->part);
        u->report->bytes_found += s3_parts_bytes(u, s->part);
        tell_step(u->tell, "upload", u->sent_bytes, u->bytes);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s", u->where);
    }
    return OK;
}

static Error ended(S3Upload *u, Slot *s, Why *why)
{
    Error error = s3_upload_judge(u, &s->call, why);
    s->state = SLOT_IDLE;
    if (error == OK) {
        u->sent_bytes += s3_parts_bytes(u, s->part);
        u->parts[s->part].is_sent = true;
        return OK;
    }
    if (error != ERR_UNREACHABLE || ++s->tries == S3_TRIES) return error;
    u->report->retries++;
    s->state = SLOT_PAUSED;
    s->again_ms = clock_now_ms() + s3_upload_pause_ms(s->tries - 1);
    return OK;
}

/* A connection on which nothing has moved for long is given up. */
static void watch(S3Upload *u, Slot *s, uint64_t now)
{
    if (s->call.http.sent_bytes != s->moved_bytes) {
        s->moved_bytes = s->call.http.sent_bytes;
        s->moved_ms = now;
    }
    if (now - s->moved_ms > SLOT_STILL_MS) http_client_cancel(u->client, &s->call.http);
}

static Error look(Sending *g, bool *busy, Why *why)
{
    S3Upload *u = g->u;
    uint64_t now = clock_now_ms(), under_way = 0;
    *busy = false;
    for (int i = 0; i < S3_UPLOAD_AT_ONCE; i++) {
        Slot *s = &g->slots[i];
        if (s->state == SLOT_BUSY) watch(u, s, now);
        if (s->state == SLOT_PAUSED && now >= s->again_ms) TRY(start(u, s, why));
        if (s->state == SLOT_IDLE) TRY(fill(g, s, why));
        if (s->state != SLOT_IDLE) *busy = true;
        if (s->state == SLOT_BUSY) under_way += s->call.http.sent_bytes;
    }
    if (*busy) tell_step(u->tell, "upload", u->sent_bytes + under_way, u->bytes);
    return OK;
}

static Error run(Sending *g, Why *why)
{
    for (bool busy = true;;) {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s", g->u->where);
        TRY(look(g, &busy, why));
        if (!busy) return OK;
        HttpCall *call = http_client_wait(g->u->client, SLOT_LOOK_MS);
        if (call) TRY(ended(g->u, call->tag, why));
    }
}

/* Calls that are still under way are forgotten: their answers would come into freed memory. */
static void give_up(Sending *g)
{
    for (int i = 0; i < S3_UPLOAD_AT_ONCE; i++)
        if (g->slots[i].state == SLOT_BUSY)
            http_client_cancel(g->u->client, &g->slots[i].call.http);
    while (http_client_wait(g->u->client, 0)) continue;
}

Error s3_parts_send(S3Upload *u, uint32_t *sent, Why *why)
{
    Sending *g = calloc(1, sizeof *g);
    uint8_t *bytes = malloc(S3_UPLOAD_AT_ONCE * u->part_bytes);
    Error error = g && bytes ? OK : error_why(why, ERR_MEMORY, "the parts of %s", u->where);
    if (error == OK) {
        g->u = u;
        for (int i = 0; i < S3_UPLOAD_AT_ONCE; i++) g->slots[i].bytes = bytes + i * u->part_bytes;
        error = run(g, why);
        give_up(g);
        *sent = g->sent;
    }
    free(bytes);
    free(g);
    return error;
}
