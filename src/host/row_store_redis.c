/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in Redis or Valkey, over one kept connection: every call is one pipelined round trip with one deadline.
 *
 *   get      GETRANGE key 0 value_bytes      one byte more than a value has: a longer one shows, and is not loaded
 *   write    DEL key ..., SETEX key 24h value
 *
 * GETRANGE instead of MGET, since MGET would bring whatever somebody put there, gigabytes of it. Answers are read
 * by a loop of our own, which bounds an answer's bytes and the time for all of them.
 *
 * A connection that fails is dropped and made anew at the next call, at the earliest after a pause that doubles
 * from 0.5 s to 32 s; until then every row is a miss, without a wait. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <sys/socket.h>

#include "host/clock.h"
#include "host/row_store_backend.h"

enum {
    ROW_STORE_REDIS_CONNECT_MS = 300,
    ROW_STORE_REDIS_CALL_MS = 700,    /* a whole call: all commands and all answers */
    ROW_STORE_REDIS_SLACK = 64 << 10, /* of an unread answer's bytes, over a value's */
    ROW_STORE_REDIS_PAUSE_MS = 500,
    ROW_STORE_REDIS_PAUSE_MS_MAX = 32000,
    ROW_STORE_REDIS_HOST_BYTES = 256
};

typedef struct RowStoreRedis {
    char host[ROW_STORE_REDIS_HOST_BYTES];
    int port, db;
    redisContext *connection; /* NULL: none now */
    int64_t retry_ms;         /* not before */
    int64_t pause_ms;
    size_t answer_bytes_max;
} RowStoreRedis;

static int64_t row_store_redis_now_ms(void) { return (int64_t)clock_now_ms(); }

/* --- the connection --- */

static Error row_store_redis_drop(RowStoreRedis *r, Why *why, const char *what)
{
    Error error = error_why(why, ERR_UNREACHABLE, "redis %s:%d: %s", r->host, r->port, what);
    if (r->connection) redisFree(r->connection);
    r->connection = NULL;
    int64_t now = row_store_redis_now_ms();
    /* A fraction that differs from process to process, so that they do not come back all at once. */
    int64_t jitter = (now ^ (int64_t)getpid() * 7919) % (r->pause_ms / 4 + 1);
    r->retry_ms = now + r->pause_ms + jitter;
    r->pause_ms *= 2;
    if (r->pause_ms > ROW_STORE_REDIS_PAUSE_MS_MAX) r->pause_ms = ROW_STORE_REDIS_PAUSE_MS_MAX;
    return error;
}

static struct timeval row_store_redis_timeval(int64_t ms)
{
    if (ms < 1) ms = 1;
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static bool row_store_redis_set_timeout(redisContext *c, int64_t deadline_ms)
{
    int64_t left = deadline_ms - row_store_redis_now_ms();
    struct timeval t = row_store_redis_timeval(left);
    return left > 0 && redisSetTimeout(c, t) == REDIS_OK;
}

/* The next answer, or NULL with why the connection is of no use any more. */
static redisReply *row_store_redis_answer(RowStoreRedis *r, int64_t deadline_ms, const char **what)
{
    redisContext *c = r->connection;
    for (;;) {
        void *reply = NULL;
        /* No command of ours is answered by an array, and hiredis would make room for any number of elements. */
        *what = "an answer to another question";
        if (c->reader->len > c->reader->pos && c->reader->buf[c->reader->pos] == '*') return NULL;
        *what = c->errstr;
        if (redisGetReplyFromReader(c, &reply) != REDIS_OK) return NULL;
        if (reply) return reply;
        *what = "an answer that is far too long";
        if (c->reader->len - c->reader->pos > r->answer_bytes_max) return NULL;
        *what = "no answer in time";
        if (!row_store_redis_set_timeout(c, deadline_ms)) return NULL;
        if (redisBufferRead(c) == REDIS_OK) continue;
        if (errno != EAGAIN) *what = c->errstr;
        return NULL;
    }
}

static Error row_store_redis_send(RowStoreRedis *r, int64_t deadline_ms, Why *why)
{
    for (int done = 0; !done;) {
        if (!row_store_redis_set_timeout(r->connection, deadline_ms))
            return row_store_redis_drop(r, why, "commands were not taken in time");
        if (redisBufferWrite(r->connection, &done) != REDIS_OK)
            return row_store_redis_drop(r, why, r->connection->errstr);
    }
    return OK;
}

/* One command whose answer must be +OK. */
static Error row_store_redis_command(RowStoreRedis *r, int count, const char **words,
                                     int64_t deadline_ms, Why *why)
{
    const char *what = NULL;
    if (redisAppendCommandArgv(r->connection, count, words, NULL) != REDIS_OK)
        return row_store_redis_drop(r, why, r->connection->errstr);
    TRY(row_store_redis_send(r, deadline_ms, why));
    redisReply *reply = row_store_redis_answer(r, deadline_ms, &what);
    if (!reply) return row_store_redis_drop(r, why, what);
    bool fine = reply->type == REDIS_REPLY_STATUS;
    const char *answer = reply->type == REDIS_REPLY_ERROR ? reply->str : "a strange answer";
    char text[96]; /* only the first word: the rest may repeat the password */
    (void)snprintf(text, sizeof text, "%s was refused: %.*s", words[0],
                   reply->type == REDIS_REPLY_ERROR ? (int)strcspn(answer, " ") : 40, answer);
    freeReplyObject(reply);
    return fine ? OK : row_store_redis_drop(r, why, text);
}

static Error row_store_redis_greet(RowStoreRedis *r, int64_t deadline_ms, Why *why)
{
    const char *password = getenv("COBORD_REDIS_PASSWORD");
    char db[16];
    (void)snprintf(db, sizeof db, "%d", r->db);
    if (password && password[0])
        TRY(row_store_redis_command(r, 2, (const char *[]){"AUTH", password}, deadline_ms, why));
    if (r->db) TRY(row_store_redis_command(r, 2, (const char *[]){"SELECT", db}, deadline_ms, why));
    return OK;
}

static Error row_store_redis_connect(RowStoreRedis *r, Why *why)
{
    if (r->connection) return OK;
    if (row_store_redis_now_ms() < r->retry_ms)
        return error_why(why, ERR_UNREACHABLE, "redis %s:%d: not reachable a moment ago", r->host,
                         r->port);
    r->connection = redisConnectWithTimeout(r->host, r->port,
                                            row_store_redis_timeval(ROW_STORE_REDIS_CONNECT_MS));
    if (!r->connection) return row_store_redis_drop(r, why, "no memory");
    if (r->connection->err) return row_store_redis_drop(r, why, r->connection->errstr);
    (void)redisEnableKeepAlive(r->connection);
    return row_store_redis_greet(r, row_store_redis_now_ms() + ROW_STORE_REDIS_CALL_MS, why);
}

/* A server that went away while the connection was idle has left a hang-up in it: found before the call, so that a
 * restart costs no call. */
static Error row_store_redis_ready(RowStoreRedis *r, Why *why)
{
    char byte;
    if (r->connection) {
        ssize_t n = recv(r->connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n >= 0) { /* the end, or an answer that nobody asked for */
            redisFree(r->connection);
            r->connection = NULL;
        }
    }
    return row_store_redis_connect(r, why);
}

/* --- calls --- */

static Error row_store_redis_append(RowStoreRedis *r, int count, const char **words,
                                    const size_t *bytes, Why *why)
{
    if (redisAppendCommandArgv(r->connection, count, words, bytes) == REDIS_OK) return OK;
    return row_store_redis_drop(r, why, r->connection->errstr);
}

static void row_store_redis_take(const redisReply *reply, uint32_t index, RowTake take,
                                 void *context)
{
    if (reply->type != REDIS_REPLY_STRING) take(context, index, NULL, SIZE_MAX);
    else if (reply->len) take(context, index, (const uint8_t *)reply->str, (size_t)reply->len);
}

/* Errors of the server itself, not of the key: then no value is to blame. */
static bool row_store_redis_is_refusal(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9) != 0;
}

static Error row_store_redis_get(RowBackend *b, const RowKey *keys, uint32_t count, RowTake take,
                                 void *context, Why *why)
{
    RowStoreRedis *r = b->state;
    TRY(row_store_redis_ready(r, why));
    int64_t deadline = row_store_redis_now_ms() + ROW_STORE_REDIS_CALL_MS;
    char last[24];
    (void)snprintf(last, sizeof last, "%zu", b->value_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const char *words[] = {"GETRANGE", keys[i].text, "0", last};
        TRY(row_store_redis_append(r, 4, words, NULL, why));
    }
    TRY(row_store_redis_send(r, deadline, why));
    Error error = OK;
    for (uint32_t i = 0; i < count; i++) {
        const char *what = NULL;
        redisReply *reply = row_store_redis_answer(r, deadline, &what);
        if (!reply) return row_store_redis_drop(r, why, what);
        if (!row_store_redis_is_refusal(reply)) row_store_redis_take(reply, i, take, context);
        else error = error_why(why, ERR_IO, "redis %s:%d: %s", r->host, r->port, reply->str);
        freeReplyObject(reply);
    }
    r->pause_ms = ROW_STORE_REDIS_PAUSE_MS;
    return error;
}

static Error row_store_redis_write_all(RowBackend *b, const RowKey *deleted, uint32_t delete_count,
                                       const RowKey *put, const uint8_t *values, uint32_t put_count,
                                       Why *why)
{
    RowStoreRedis *r = b->state;
    char ttl[16];
    (void)snprintf(ttl, sizeof ttl, "%d", ROW_VALUE_TTL_S);
    for (uint32_t i = 0; i < delete_count; i++)
        TRY(row_store_redis_append(r, 2, (const char *[]){"DEL", deleted[i].text}, NULL, why));
    for (uint32_t i = 0; i < put_count; i++) {
        const char *words[] = {"SETEX", put[i].text, ttl,
                               (const char *)values + i * b->value_bytes};
        size_t bytes[] = {5, strlen(put[i].text), strlen(ttl), b->value_bytes};
        TRY(row_store_redis_append(r, 4, words, bytes, why));
    }
    return OK;
}

static Error row_store_redis_write(RowBackend *b, const RowKey *deleted, uint32_t delete_count,
                                   const RowKey *put, const uint8_t *values, uint32_t put_count,
                                   Why *why)
{
    RowStoreRedis *r = b->state;
    TRY(row_store_redis_ready(r, why));
    int64_t deadline = row_store_redis_now_ms() + ROW_STORE_REDIS_CALL_MS;
    TRY(row_store_redis_write_all(b, deleted, delete_count, put, values, put_count, why));
    TRY(row_store_redis_send(r, deadline, why));
    Error error = OK;
    for (uint32_t i = 0; i < delete_count + put_count; i++) {
        const char *what = NULL;
        redisReply *reply = row_store_redis_answer(r, deadline, &what);
        if (!reply) return row_store_redis_drop(r, why, what);
        if (reply->type == REDIS_REPLY_ERROR)
            error = error_why(why, ERR_IO, "redis %s:%d: %s", r->host, r->port, reply->str);
        freeReplyObject(reply);
    }
    r->pause_ms = ROW_STORE_REDIS_PAUSE_MS;
    return error;
}

static void row_store_redis_close(RowBackend *b)
{
    RowStoreRedis *r = b->state;
    if (r->connection) redisFree(r->connection);
    free(r);
}

/* --- the address --- */

static bool row_store_redis_number(const char **at, int most, int *out)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    long value = strtol(*at, &end, 10);
    *at = end;
    *out = (int)value;
    return value >= 0 && value <= most;
}

/* HOST, HOST:PORT, [IPV6]:PORT, each with /DB. */
static bool row_store_redis_parse(const char *where, RowStoreRedis *r)
{
    bool bracket = *where == '[';
    const char *host = where + bracket, *at = host + strcspn(host, bracket ? "]" : ":/");
    size_t bytes = (size_t)(at - host);
    if (bytes == 0 || bytes >= sizeof r->host || (bracket && *at++ != ']')) return false;
    memcpy(r->host, host, bytes);
    r->port = 6379;
    r->db = 0;
    if (*at == ':' && (at++, !row_store_redis_number(&at, 65535, &r->port))) return false;
    if (*at == '/' && at[1] && (at++, !row_store_redis_number(&at, 1 << 20, &r->db))) return false;
    if (*at == '/') at++;
    return *at == 0 && r->port > 0;
}

Error row_store_redis_open(const char *where, RowBackend *out, Why *why)
{
    if (strchr(where, '@'))
        return error_why(why, ERR_USAGE,
                         "redis: the password belongs into COBORD_REDIS_PASSWORD, not into the "
                         "address");
    RowStoreRedis *r = calloc(1, sizeof *r);
    if (!r) return error_why(why, ERR_MEMORY, "no memory for redis");
    if (!row_store_redis_parse(where, r)) {
        free(r);
        return error_why(why, ERR_USAGE, "redis://%s is not redis://HOST:PORT[/DB]", where);
    }
    r->pause_ms = ROW_STORE_REDIS_PAUSE_MS;
    r->answer_bytes_max = out->value_bytes + ROW_STORE_REDIS_SLACK;
    *out = (RowBackend){.state = r,
                        .value_bytes = out->value_bytes,
                        .get = row_store_redis_get,
                        .write = row_store_redis_write,
                        .close = row_store_redis_close};
    return OK;
}
