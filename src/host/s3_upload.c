/* SPDX-License-Identifier: Apache-2.0 */
#include "host/s3_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/hash.h"
#include "host/clock.h"
#include "host/places.h"
#include "host/s3_answer.h"
#include "host/s3_upload_state.h"
#include "host/stop.h"
#include "host/whole.h"

enum { PAUSE_MS = 100, CONNECT_MS = 10000, ROUNDS = 3 };

uint64_t s3_upload_part_bytes(uint64_t bytes)
{
    uint64_t part = S3_UPLOAD_PART_BYTES;
    while (bytes / part >= S3_UPLOAD_PARTS_MAX) part *= 2;
    return part;
}

/* ---- One call */

Error s3_upload_prepare(const S3Upload *u, const char *method, const char *url, const char *query,
                        const char *body_hash, S3Call *call, Why *why)
{
    S3Request request = {.method = method, .url = url, .query = query, .body_hash = body_hash};
    TRY(s3_sign(u->access, &request, time(NULL), &call->lines, why));
    int n = snprintf(call->url, sizeof call->url, "%s%s%s", url, query[0] ? "?" : "", query);
    if (n < 0 || (size_t)n >= sizeof call->url)
        return error_why(why, ERR_TOO_LARGE, "%s: the address is too long", u->where);
    call->http = (HttpCall){.method = method, .url = call->url};
    const S3Lines *l = &call->lines;
    const char *const lines[] = {l->date, l->hash, l->authorization, l->token};
    for (size_t i = 0, n_lines = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (lines[i][0]) call->http.headers[n_lines++] = lines[i];
    return OK;
}

static S3Span answer_of(const HttpCall *http)
{
    const char *text = (const char *)http->answer;
    return (S3Span){text, text ? text + http->answer_bytes : text};
}

/* Completing answers 200 before it knows, and then with an error. */
static Error hidden_error(const S3Upload *u, const HttpCall *http, Why *why)
{
    char code[80];
    S3Span all = answer_of(http), in;
    if (!all.at || !s3_answer_next(&all, "Error", &in) ||
        !s3_answer_text(in, "Code", code, sizeof code))
        return OK;
    bool may_pass = strcmp(code, "InternalError") == 0 || strcmp(code, "SlowDown") == 0 ||
                    strcmp(code, "ServiceUnavailable") == 0;
    return error_why(why, may_pass ? ERR_UNREACHABLE : ERR_IO, "%s: %s", u->where, code);
}

Error s3_upload_judge(const S3Upload *u, const S3Call *call, Why *why)
{
    const HttpCall *http = &call->http;
    if (http->status >= 300) return s3_answer_refused(u->where, u->key, u->access, http, why);
    if (http->error == ERR_MEMORY) return error_why(why, ERR_MEMORY, "%s", http->why.text);
    if (http->error != OK)
        return error_why(why, ERR_UNREACHABLE, "%s: %s", u->where,
                         http->error == ERR_CANCELLED ? "nothing moved for a minute"
                                                      : http->why.text);
    return hidden_error(u, http, why);
}

uint64_t s3_upload_pause_ms(unsigned tries)
{
    uint64_t ms = (uint64_t)PAUSE_MS << tries;
    return ms + hash_mix64(clock_now_ns()) % (ms / 2 + 1);
}

static void pause_before(unsigned tries)
{
    for (uint64_t end = clock_now_ms() + s3_upload_pause_ms(tries);
         clock_now_ms() < end && !stop_asked();)
        (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
}

typedef struct Ask {
    const char *method, *url, *query;
    const void *body;
    size_t body_bytes;
    uint32_t deadline_ms;
} Ask;

/* With tries; the answer is in u->answer. `tries` says how many went before the last one. */
static Error ask(S3Upload *u, const Ask *a, unsigned *tries, Why *why)
{
    char hash[S3_HASH_BYTES];
    if (a->body) s3_hash(a->body, a->body_bytes, hash);
    for (*tries = 0;;) {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s", u->where);
        TRY(s3_upload_prepare(u, a->method, a->url, a->query, a->body ? hash : NULL, &u->call,
                              why));
        HttpCall *http = &u->call.http;
        http->parts[0] = a->body;
        http->part_bytes[0] = a->body_bytes;
        http->answer = u->answer;
        http->answer_room = S3_ANSWER_BYTES;
        http->deadline_ms = a->deadline_ms ? a->deadline_ms : S3_CALL_MS;
        http_client_run(u->client, http);
        Error error = s3_upload_judge(u, &u->call, why);
        if (error != ERR_UNREACHABLE || *tries + 1 == S3_TRIES) return error;
        u->report->retries++;
        pause_before((*tries)++);
    }
}

/* ---- Which upload */

static Error take_id(S3Upload *u, S3Span span, Why *why)
{
    char id[S3_ID_BYTES];
    if (s3_answer_text(span, "UploadId", id, sizeof id) && id[0] &&
        s3_encode_value(id, u->id, sizeof u->id))
        return OK;
    return error_why(why, ERR_IO, "%s: the store began an upload and did not say which", u->where);
}

/* The latest one of our object that was not completed. */
static Error find_upload(S3Upload *u, Why *why)
{
    char query[3 * S3_PATH_BYTES + 24], prefix[3 * S3_PATH_BYTES], key[S3_PATH_BYTES], when[40],
        latest[40] = "";
    unsigned tries;
    S3Span rest, one;
    if (!s3_encode_value(u->key, prefix, sizeof prefix))
        return error_why(why, ERR_TOO_LARGE, "%s: the name is too long", u->where);
    (void)snprintf(query, sizeof query, "prefix=%s&uploads=", prefix);
    TRY(ask(u, &(Ask){.method = "GET", .url = u->bucket, .query = query}, &tries, why));
    rest = answer_of(&u->call.http);
    while (s3_answer_next(&rest, "Upload", &one)) {
        if (!s3_answer_text(one, "Key", key, sizeof key) || strcmp(key, u->key) != 0) continue;
        if (!s3_answer_text(one, "Initiated", when, sizeof when)) when[0] = '\0';
        if (u->is_found && strcmp(when, latest) <= 0) continue;
        TRY(take_id(u, one, why));
        memcpy(latest, when, sizeof latest);
        u->is_found = true;
    }
    return OK;
}

static Error begin_upload(S3Upload *u, Why *why)
{
    unsigned tries;
    u->is_found = false;
    for (uint32_t i = 0; i < u->part_count; i++) u->parts[i].listed_bytes = 0;
    TRY(ask(
        u,
        &(Ask){
            .method = "POST", .url = u->object, .query = "uploads=", .body = "", .body_bytes = 0},
        &tries, why));
    return take_id(u, answer_of(&u->call.http), why);
}

/* ---- Its parts */

static void take_part(S3Upload *u, S3Span one)
{
    uint64_t number, bytes;
    char etag[S3_ETAG_BYTES];
    if (!s3_answer_number(one, "PartNumber", &number) || !s3_answer_number(one, "Size", &bytes) ||
        number < 1 || number > u->part_count)
        return;
    if (!s3_answer_text(one, "ETag", etag, sizeof etag)) etag[0] = '\0';
    S3Part *p = &u->parts[number - 1];
    p->listed_bytes = bytes;
    memcpy(p->listed_etag, etag, sizeof etag);
}

static Error list_parts(S3Upload *u, Why *why)
{
    char query[S3_ID_BYTES + 80], truncated[8];
    uint64_t marker = 0, next;
    unsigned tries;
    for (uint32_t i = 0; i < u->part_count; i++) u->parts[i].listed_bytes = 0;
    for (;;) {
        (void)snprintf(query, sizeof query, "max-parts=1000&part-number-marker=%llu&uploadId=%s",
                       (unsigned long long)marker, u->id);
        TRY(ask(u, &(Ask){.method = "GET", .url = u->object, .query = query}, &tries, why));
        S3Span all = answer_of(&u->call.http), rest = all, one;
        while (s3_answer_next(&rest, "Part", &one)) take_part(u, one);
        if (!s3_answer_text(all, "IsTruncated", truncated, sizeof truncated) ||
            strcmp(truncated, "true") != 0)
            return OK;
        if (!s3_answer_number(all, "NextPartNumberMarker", &next) || next <= marker)
            return error_why(why, ERR_IO, "%s: a list of parts that does not go on", u->where);
        marker = next;
    }
}

static void note_found(const S3Upload *u)
{
    char line[80];
    uint32_t there = 0;
    for (uint32_t i = 0; i < u->part_count; i++) there += u->parts[i].listed_bytes != 0;
    (void)snprintf(line, sizeof line, "cobord: an upload that was begun goes on: %u of %u parts",
                   there, u->part_count);
    if (there) tell_note(u->tell, line);
}

static Error send_all(S3Upload *u, Why *why)
{
    uint32_t sent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        TRY(list_parts(u, why));
        if (round == 0 && u->is_found) note_found(u);
        u->sent_bytes = 0;
        for (uint32_t i = 0; i < u->part_count; i++)
            if (u->parts[i].is_hashed && s3_parts_is_there(u, i))
                u->sent_bytes += s3_parts_bytes(u, i);
        TRY(s3_parts_send(u, &sent, why));
        if (!sent) return OK;
    }
    return error_why(why, ERR_CHECKSUM,
                     "%s: the store keeps other bytes than those that it was sent, %u times",
                     u->where, ROUNDS);
}

/* ---- The end */

/* The ETag of an object of parts: MD5 of their MD5s, and their number. */
static void whole_etag(const S3Upload *u, char *out, size_t room)
{
    gnutls_hash_hd_t state;
    uint8_t digest[16];
    ASSERT(gnutls_hash_init(&state, GNUTLS_DIG_MD5) == 0);
    for (uint32_t i = 0; i < u->part_count; i++)
        ASSERT(gnutls_hash(state, u->parts[i].md5, sizeof u->parts[i].md5) == 0);
    gnutls_hash_deinit(state, digest);
    for (int i = 0; i < 16; i++) (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    (void)snprintf(out + 32, room - 32, "-%u", u->part_count);
}

static Error list_text(const S3Upload *u, char **out, size_t *bytes, Why *why)
{
    static const char begin[] = "<CompleteMultipartUpload>", end[] = "</CompleteMultipartUpload>";
    size_t room = sizeof begin + sizeof end + u->part_count * (S3_ETAG_BYTES + 80ul);
    char *text = malloc(room);
    if (!text) return error_why(why, ERR_MEMORY, "the list of parts");
    size_t used = (size_t)snprintf(text, room, "%s", begin);
    for (uint32_t i = 0; i < u->part_count; i++)
        used +=
            (size_t)snprintf(text + used, room - used,
                             "<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
                             i + 1, u->parts[i].listed_etag);
    used += (size_t)snprintf(text + used, room - used, "%s", end);
    *out = text;
    *bytes = used;
    return OK;
}

/* An answer that was lost: the upload is gone, and the object there. */
static Error is_complete(S3Upload *u, Why *why)
{
    unsigned tries;
    TRY(ask(u, &(Ask){.method = "HEAD", .url = u->object, .query = ""}, &tries, why));
    if (u->call.http.range_bytes_total == u->bytes) return OK;
    return error_why(why, ERR_NOT_FOUND, "%s: it was completed by somebody else", u->where);
}

static Error complete(S3Upload *u, Why *why)
{
    char query[S3_ID_BYTES + 16], ours[48], theirs[S3_ETAG_BYTES], *text = NULL;
    size_t bytes = 0;
    unsigned tries;
    (void)snprintf(query, sizeof query, "uploadId=%s", u->id);
    TRY(list_text(u, &text, &bytes, why));
    Error error = ask(u,
                      &(Ask){.method = "POST",
                             .url = u->object,
                             .query = query,
                             .body = text,
                             .body_bytes = bytes,
                             .deadline_ms = S3_COMPLETE_MS},
                      &tries, why);
    free(text);
    if (error == ERR_NOT_FOUND && tries) return is_complete(u, why);
    TRY(error);
    whole_etag(u, ours, sizeof ours);
    if (!s3_answer_text(answer_of(&u->call.http), "ETag", theirs, sizeof theirs)) return OK;
    bool comparable = strlen(theirs) == strlen(ours) && theirs[32] == '-';
    if (!comparable || strcasecmp(ours, theirs) == 0) return OK;
    return error_why(why, ERR_CHECKSUM, "%s: its ETag is %s, and that of the file %s", u->where,
                     theirs, ours);
}

static Error send_and_complete(S3Upload *u, Why *why)
{
    TRY(send_all(u, why));
    return complete(u, why);
}

/* An upload that was found may be gone by now, completed or dropped by somebody: then a new one. */
static Error upload(S3Upload *u, Why *why)
{
    TRY(find_upload(u, why));
    if (!u->is_found) TRY(begin_upload(u, why));
    bool was_found = u->is_found;
    Error error = send_and_complete(u, why);
    if (error != ERR_NOT_FOUND || !was_found) return error;
    u->report->bytes_found = 0;
    TRY(begin_upload(u, why));
    return send_and_complete(u, why);
}

/* ---- Opening */

static Error open_file(S3Upload *u, const char *path, Why *why)
{
    struct stat state;
    u->file = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (u->file < 0 || fstat(u->file, &state) != 0) return places_system_error(errno, path, why);
    if (!S_ISREG(state.st_mode) || state.st_size == 0)
        return error_why(why, ERR_USAGE, "%s is empty, or no regular file", path);
    u->bytes = (uint64_t)state.st_size;
    u->part_bytes = s3_upload_part_bytes(u->bytes);
    u->part_count = (uint32_t)((u->bytes + u->part_bytes - 1) / u->part_bytes);
    u->report->bytes = u->bytes;
    u->report->parts = u->part_count;
    return OK;
}

/* s3://BUCKET/KEY: address of the bucket, of the object, and the key alone. */
static Error open_place(S3Upload *u, Why *why)
{
    const char *name = u->where + strlen("s3://"), *slash;
    if (strncmp(u->where, "s3://", 5) != 0 || !(slash = strchr(name, '/')) || !slash[1] ||
        (size_t)(slash - u->where) >= sizeof u->store || strlen(slash) >= sizeof u->key)
        return error_why(why, ERR_USAGE, "%s is not s3://BUCKET/KEY", u->where);
    (void)snprintf(u->store, sizeof u->store, "%.*s", (int)(slash - u->where), u->where);
    (void)snprintf(u->key, sizeof u->key, "%s", slash + 1);
    TRY(s3_address(u->access, u->store, u->bucket, sizeof u->bucket, why));
    return s3_address(u->access, u->where, u->object, sizeof u->object, why);
}

static Error open_client(S3Upload *u, Why *why)
{
    HttpClientOptions options = {.ca_file = u->access->ca_file[0] ? u->access->ca_file : NULL,
                                 .connect_ms = CONNECT_MS};
    u->parts = calloc(u->part_count, sizeof *u->parts);
    u->answer = malloc(S3_ANSWER_BYTES);
    if (!u->parts || !u->answer) return error_why(why, ERR_MEMORY, "an upload to %s", u->where);
    return http_client_open(&options, &u->client, why);
}

Error s3_upload(const S3Access *access, const char *where, const char *path, const Tell *tell,
                S3UploadReport *report, Why *why)
{
    S3UploadReport own;
    Why own_why;
    if (!why) why = &own_why;
    S3Upload *u = calloc(1, sizeof *u);
    if (!u) return error_why(why, ERR_MEMORY, "an upload to %s", where);
    u->access = access;
    u->where = where;
    u->file = -1;
    u->tell = tell;
    u->report = report ? report : &own;
    *u->report = (S3UploadReport){0};
    Error error = open_place(u, why);
    if (error == OK) error = open_file(u, path, why);
    if (error == OK) error = open_client(u, why);
    if (error == OK) error = upload(u, why);
    http_client_close(u->client);
    if (u->file >= 0) (void)close(u->file);
    free(u->answer);
    free(u->parts);
    free(u);
    return error;
}
