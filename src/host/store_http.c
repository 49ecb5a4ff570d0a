/* SPDX-License-Identifier: Apache-2.0 */
#include "host/store_http.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "host/clock.h"
#include "host/http_client.h"
#include "host/s3_answer.h"
#include "host/stop.h"

enum {
    STORE_HTTP_RETRIES = 5,
    STORE_HTTP_PAUSE_MS = 100,    /* then 200, 400, ..: a store that restarts is back within that */
    STORE_HTTP_CLIENTS_KEPT = 16, /* each with its open connections */
    STORE_HTTP_PIECE_BYTES = 8 << 20, /* what a retry costs at most */
    /* Smaller pieces are read here, where an error's text has room too. */
    STORE_HTTP_SMALL_BYTES = 2048,
    /* Of a try, and 2 ms for each KiB on top: half a megabyte a second. */
    STORE_HTTP_DEADLINE_MS = 8000,
    /* A signature with a time that is further off than a quarter of an hour is refused. */
    STORE_HTTP_CLOCK_OFF_S = 300,
};

struct StoreHttp {
    char name[S3_TEXT_BYTES], base[S3_PATH_BYTES];
    bool sign;
    S3Access access;
    pthread_mutex_t lock; /* of the clients */
    HttpClient *clients[STORE_HTTP_CLIENTS_KEPT];
    uint32_t client_count;
    atomic_ullong retries, jitter;
    atomic_llong clock_ahead_s; /* of the store's clock, as far as it minds */
};

/* One piece of one object. */
typedef struct StoreHttpPiece {
    const char *object;
    uint64_t offset, bytes;
    uint8_t *out;
    uint64_t total; /* bytes of the whole object, learned */
} StoreHttpPiece;

Error store_http_open(const char *name, const char *base, const S3Access *access, StoreHttp **out,
                      Why *why)
{
    StoreHttp *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for %s", name);
    if (strlen(name) >= sizeof s->name || strlen(base) >= sizeof s->base) {
        free(s);
        return error_why(why, ERR_USAGE, "the address of the store is too long");
    }
    memcpy(s->name, name, strlen(name));
    memcpy(s->base, base, strlen(base));
    s->sign = access != NULL;
    if (access) s->access = *access;
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return error_why(why, ERR_MEMORY, "no memory for %s", name);
    }
    *out = s;
    return OK;
}

void store_http_close(StoreHttp *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->client_count; i++) http_client_close(s->clients[i]);
    (void)pthread_mutex_destroy(&s->lock);
    s3_forget(&s->access);
    free(s);
}

uint64_t store_http_retries(const StoreHttp *s) { return atomic_load(&s->retries); }

/* --- clients: one for each thread that reads right now --- */

static Error store_http_borrow(StoreHttp *s, HttpClient **out, Why *why)
{
    *out = NULL;
    (void)pthread_mutex_lock(&s->lock);
    if (s->client_count) *out = s->clients[--s->client_count];
    (void)pthread_mutex_unlock(&s->lock);
    HttpClientOptions options = {.ca_file = s->access.ca_file[0] ? s->access.ca_file : NULL};
    return *out ? OK : http_client_open(&options, out, why);
}

static void store_http_return(StoreHttp *s, HttpClient *client)
{
    (void)pthread_mutex_lock(&s->lock);
    bool kept = s->client_count < STORE_HTTP_CLIENTS_KEPT;
    if (kept) s->clients[s->client_count++] = client;
    (void)pthread_mutex_unlock(&s->lock);
    if (!kept) http_client_close(client);
}

/* --- what an answer means --- */

/* Beyond the end: says where that is. */
static Error store_http_beyond(const StoreHttp *s, StoreHttpPiece *p, const HttpCall *call,
                               Why *why)
{
    p->total = call->range_bytes_total;
    return error_why(why, ERR_TRUNCATED, "%s/%s: no bytes %llu to %llu, it has %llu", s->name,
                     p->object, (unsigned long long)p->offset,
                     (unsigned long long)(p->offset + p->bytes), (unsigned long long)p->total);
}

/* A range was promised: is it ours, and all of it? ERR_AGAIN when not. */
static Error store_http_check_range(const StoreHttp *s, StoreHttpPiece *p, const HttpCall *call,
                                    Why *why)
{
    unsigned long long first = call->range_first, total = call->range_bytes_total;
    if (total == 0)
        return error_why(why, ERR_AGAIN, "%s/%s: an answer without a Content-Range", s->name,
                         p->object);
    if (first != p->offset)
        return error_why(why, ERR_AGAIN,
                         "%s/%s: asked for the bytes from %llu on, got those from %llu on", s->name,
                         p->object, (unsigned long long)p->offset, first);
    if (total < p->offset + p->bytes && call->answer_bytes == total - p->offset)
        return store_http_beyond(s, p, call, why); /* cut at its end, rightly */
    if (call->answer_bytes != p->bytes || total < p->offset + p->bytes)
        return error_why(why, ERR_AGAIN, "%s/%s: asked for %llu bytes, got %zu", s->name, p->object,
                         (unsigned long long)p->bytes, call->answer_bytes);
    p->total = total;
    return OK;
}

/* OK, ERR_AGAIN for what may pass, or the end of it. An answer of a status that we do not want may be cut: so
 * the status first. */
static Error store_http_judge(const StoreHttp *s, StoreHttpPiece *p, const HttpCall *call, Why *why)
{
    if (call->status == 416) return store_http_beyond(s, p, call, why);
    if (call->status >= 300)
        return s3_answer_refused(s->name, p->object, s->sign ? &s->access : NULL, call, why);
    if (call->error == ERR_MEMORY || call->error == ERR_CANCELLED)
        return error_why(why, call->error, "%s", call->why.text);
    if (call->error != OK && call->error != ERR_TOO_LARGE)
        return error_why(why, ERR_UNREACHABLE, "%s: %s", s->name, call->why.text);
    if (call->status == 200 && call->error == OK && p->offset == 0 &&
        call->answer_bytes == p->bytes) {
        p->total = p->bytes; /* all of it was asked for */
        return OK;
    }
    if (call->status != 206)
        return error_why(why, ERR_AGAIN, "%s/%s: asked for %llu bytes, got everything (HTTP %u)",
                         s->name, p->object, (unsigned long long)p->bytes, call->status);
    if (call->error == ERR_TOO_LARGE)
        return error_why(why, ERR_AGAIN, "%s/%s: asked for %llu bytes, got more", s->name,
                         p->object, (unsigned long long)p->bytes);
    return store_http_check_range(s, p, call, why);
}

/* --- one try --- */

static Error store_http_request(StoreHttp *s, HttpClient *client, const StoreHttpPiece *p,
                                HttpCall *call, Why *why)
{
    char url[HTTP_CLIENT_URL_BYTES_MAX], range[80];
    S3Lines lines;
    int n = snprintf(url, sizeof url, "%s/", s->base);
    if (!s3_encode_path(p->object, url + n, sizeof url - (size_t)n))
        return error_why(why, ERR_TOO_LARGE, "%s: the name of an object is too long", s->name);
    (void)snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)p->offset,
                   (unsigned long long)(p->offset + p->bytes - 1));
    S3Request request = {.method = "GET", .url = url, .range = range + strlen("Range: ")};
    TRY(s3_sign(&s->access, &request, time(NULL) + atomic_load(&s->clock_ahead_s), &lines, why));
    call->method = "GET";
    call->url = url;
    call->deadline_ms = STORE_HTTP_DEADLINE_MS + (uint32_t)(p->bytes / 512);
    const char *const wanted[] = {range, lines.date, lines.hash, lines.authorization, lines.token};
    size_t count = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i][0]) call->headers[count++] = wanted[i];
    http_client_run(client, call);
    memset(call->headers, 0, sizeof call->headers); /* they end with this function, and url too */
    call->url = NULL;
    return OK;
}

/* Whether a signature was refused by a store whose clock is another than the one it was made by: ours was set, or
 * goes wrong. From then on we sign by the store's. */
static bool store_http_learns_time(StoreHttp *s, const HttpCall *call)
{
    if (!s->sign || call->status != 403 || !call->date_s) return false;
    long long ahead = call->date_s - time(NULL), off = ahead - atomic_load(&s->clock_ahead_s);
    if (off > -STORE_HTTP_CLOCK_OFF_S && off < STORE_HTTP_CLOCK_OFF_S) return false;
    atomic_store(&s->clock_ahead_s, ahead);
    return true;
}

static Error store_http_try(StoreHttp *s, HttpClient *client, StoreHttpPiece *p, Why *why)
{
    uint8_t small[STORE_HTTP_SMALL_BYTES];
    bool is_small = p->bytes < sizeof small;
    HttpCall call = {.answer = is_small ? small : p->out,
                     .answer_room = is_small ? sizeof small : (size_t)p->bytes};
    TRY(store_http_request(s, client, p, &call, why));
    if (store_http_learns_time(s, &call)) TRY(store_http_request(s, client, p, &call, why));
    TRY(store_http_judge(s, p, &call, why));
    if (is_small) memcpy(p->out, small, (size_t)p->bytes);
    return OK;
}

/* --- tries --- */

/* 100 ms, 200, 400, 800, 1600, and up to half of that more, so that many readers do not come back at once. */
static void store_http_pause(StoreHttp *s, unsigned tries)
{
    uint64_t ms = (uint64_t)STORE_HTTP_PAUSE_MS << tries;
    uint64_t number = atomic_fetch_add(&s->jitter, 1) ^ clock_now_ns() << 20;
    ms += hash_mix64(number) % (ms / 2 + 1);
    for (; ms && !stop_asked(); ms -= ms < 50 ? ms : 50)
        (void)nanosleep(&(struct timespec){0, ms < 50 ? (long)ms * 1000000 : 50000000}, NULL);
}

static Error store_http_piece(StoreHttp *s, HttpClient *client, StoreHttpPiece *p, Why *why)
{
    for (unsigned tries = 0;; tries++) {
        Error error = store_http_try(s, client, p, why);
        bool again = error == ERR_AGAIN || error == ERR_UNREACHABLE;
        if (!again) return error;
        /* A node that ends still answers what it has taken on, but does not wait for a store to come back. */
        bool last = tries == STORE_HTTP_RETRIES || stop_asked();
        /* ERR_AGAIN: it answered, but not with what was asked for. */
        if (last) return error == ERR_AGAIN ? ERR_IO : error;
        atomic_fetch_add(&s->retries, 1);
        store_http_pause(s, tries);
    }
}

static Error store_http_pieces(StoreHttp *s, HttpClient *client, const char *object,
                               uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = bytes - done;
        if (piece > STORE_HTTP_PIECE_BYTES) piece = STORE_HTTP_PIECE_BYTES;
        StoreHttpPiece p = {
            .object = object, .offset = offset + done, .bytes = piece, .out = out + done};
        TRY(store_http_piece(s, client, &p, why));
        done += piece;
    }
    return OK;
}

Error store_http_read(StoreHttp *s, const char *object, uint64_t offset, uint64_t bytes,
                      uint8_t *out, Why *why)
{
    Why own;
    HttpClient *client;
    if (!why) why = &own;
    TRY(store_http_borrow(s, &client, why));
    Error error = store_http_pieces(s, client, object, offset, bytes, out, why);
    store_http_return(s, client);
    return error;
}

/* By a range of one byte, whose Content-Range tells: the same request as every other, and it shows whether the
 * server knows ranges. An empty object has no such byte. */
Error store_http_size(StoreHttp *s, const char *object, uint64_t *bytes, Why *why)
{
    Why own;
    HttpClient *client;
    uint8_t first;
    StoreHttpPiece p = {.object = object, .bytes = 1, .out = &first};
    if (!why) why = &own;
    TRY(store_http_borrow(s, &client, why));
    Error error = store_http_piece(s, client, &p, why);
    store_http_return(s, client);
    if (error == ERR_TRUNCATED && p.total == 0) error = OK;
    if (error == OK) *bytes = p.total;
    return error;
}
