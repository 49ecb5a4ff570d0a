/* SPDX-License-Identifier: Apache-2.0 */
#include "host/s3_rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/s3_upload_state.h"
#include "serve/machine.h"

enum { S3_RIGHTS_ANSWER_BYTES = 64 << 10 };

static const char s3_rights_text[] = "cobord doctor\n";

typedef struct S3RightsWork {
    S3Upload upload; /* whose requests and answers these are like */
    S3Rights *out;
    uint32_t deadline_ms;
    char prefix[S3_PATH_BYTES];
} S3RightsWork;

/* One request; result: what the store makes of it. */
static Error s3_rights_ask(S3RightsWork *w, const char *method, const char *url, const char *query,
                           bool with_body, Why *why)
{
    S3Upload *u = &w->upload;
    char hash[S3_HASH_BYTES];
    size_t bytes = sizeof s3_rights_text - 1;
    if (with_body) s3_hash(s3_rights_text, bytes, hash);
    TRY(s3_upload_prepare(u, method, url, query, with_body ? hash : NULL, &u->call, why));
    HttpCall *http = &u->call.http;
    http->parts[0] = with_body ? s3_rights_text : NULL;
    http->part_bytes[0] = with_body ? bytes : 0;
    http->answer = u->answer;
    http->answer_room = S3_RIGHTS_ANSWER_BYTES;
    http->deadline_ms = w->deadline_ms;
    http_client_run(u->client, http);
    if (http->date_s) {
        w->out->date_s = http->date_s;
        w->out->own_date_s = time(NULL);
    }
    if (http->status) w->out->microseconds = http->microseconds;
    if (http->certificate_until_s) w->out->certificate_until_s = http->certificate_until_s;
    return s3_upload_judge(u, &u->call, why);
}

static Error s3_rights_read(S3RightsWork *w, bool written, Why *why)
{
    S3Upload *u = &w->upload;
    size_t bytes = sizeof s3_rights_text - 1;
    Error error = s3_rights_ask(w, "GET", u->object, "", false, why);
    if (!written && error == ERR_NOT_FOUND) return OK; /* who may not read is not told so much */
    if (error != OK || !written) return error;
    if (u->call.http.answer_bytes == bytes && memcmp(u->answer, s3_rights_text, bytes) == 0)
        return OK;
    return error_why(why, ERR_CHECKSUM, "%s: it came back with other bytes", w->out->object);
}

static void s3_rights_run(S3RightsWork *w)
{
    S3Rights *o = w->out;
    char query[3 * S3_PATH_BYTES + 48];
    Error *errors = o->errors;
    (void)snprintf(query, sizeof query, "list-type=2&max-keys=1&prefix=%s", w->prefix);
    errors[S3_RIGHT_LIST] =
        s3_rights_ask(w, "GET", w->upload.bucket, query, false, &o->whys[S3_RIGHT_LIST]);
    if (!w->upload.call.http.status) return; /* nobody there */
    errors[S3_RIGHT_WRITE] =
        s3_rights_ask(w, "PUT", w->upload.object, "", true, &o->whys[S3_RIGHT_WRITE]);
    bool written = errors[S3_RIGHT_WRITE] == OK;
    errors[S3_RIGHT_READ] = s3_rights_read(w, written, &o->whys[S3_RIGHT_READ]);
    errors[S3_RIGHT_DELETE] =
        written ? s3_rights_ask(w, "DELETE", w->upload.object, "", false, &o->whys[S3_RIGHT_DELETE])
                : error_why(&o->whys[S3_RIGHT_DELETE], ERR_AGAIN, "not tried");
}

/* s3://BUCKET/PREFIX: addresses of the bucket and of an object that nobody else has. */
static Error s3_rights_place(S3RightsWork *w, const char *where, Why *why)
{
    S3Upload *u = &w->upload;
    size_t bytes = strlen(where);
    while (bytes && where[bytes - 1] == '/') bytes--;
    const char *name = where + strlen("s3://"), *slash = memchr(name, '/', strlen(name));
    size_t bucket = slash && slash < where + bytes ? (size_t)(slash - where) : bytes;
    int n = snprintf(w->out->object, sizeof w->out->object, "%.*s/.cobord-doctor-%016llx",
                     (int)bytes, where, (unsigned long long)machine_random());
    if (n < 0 || (size_t)n >= sizeof w->out->object || bucket >= sizeof u->store)
        return error_why(why, ERR_USAGE, "the store's address is too long");
    (void)snprintf(u->store, sizeof u->store, "%.*s", (int)bucket, where);
    (void)snprintf(u->key, sizeof u->key, "%s", w->out->object + bucket + 1);
    char prefix[S3_PATH_BYTES];
    (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(strlen(u->key) - 31), u->key);
    if (!s3_encode_value(prefix, w->prefix, sizeof w->prefix))
        return error_why(why, ERR_USAGE, "the store's address is too long");
    TRY(s3_address(u->access, u->store, u->bucket, sizeof u->bucket, why));
    return s3_address(u->access, w->out->object, u->object, sizeof u->object, why);
}

static Error s3_rights_open(S3RightsWork *w, Why *why)
{
    S3Upload *u = &w->upload;
    HttpClientOptions options = {.ca_file = u->access->ca_file[0] ? u->access->ca_file : NULL,
                                 .connect_ms = w->deadline_ms,
                                 .certificates = true};
    u->answer = malloc(S3_RIGHTS_ANSWER_BYTES);
    if (!u->answer) return error_why(why, ERR_MEMORY, "an answer of %s", u->store);
    return http_client_open(&options, &u->client, why);
}

static void s3_rights_close(S3RightsWork *w)
{
    if (!w) return;
    http_client_close(w->upload.client);
    free(w->upload.answer);
    free(w);
}

static Error s3_rights_make(const S3Access *access, uint32_t deadline_ms, S3Rights *out,
                            S3RightsWork **work, Why *why)
{
    S3RightsWork *w = calloc(1, sizeof *w);
    if (!w) return error_why(why, ERR_MEMORY, "a look at the store");
    *out = (S3Rights){.date_s = 0};
    w->upload.access = access;
    w->upload.where = w->upload.store;
    w->out = out;
    w->deadline_ms = deadline_ms;
    Error error = s3_rights_open(w, why);
    if (error == OK) *work = w;
    else s3_rights_close(w);
    return error;
}

Error s3_rights_try(const S3Access *access, const char *where, uint32_t deadline_ms, S3Rights *out,
                    Why *why)
{
    S3RightsWork *w = NULL;
    TRY(s3_rights_make(access, deadline_ms, out, &w, why));
    Error error = s3_rights_place(w, where, why);
    if (error == OK) s3_rights_run(w);
    if (error == OK && !w->upload.call.http.status) {
        error = out->errors[S3_RIGHT_LIST];
        *why = out->whys[S3_RIGHT_LIST];
    }
    s3_rights_close(w);
    return error;
}

Error s3_rights_size(const S3Access *access, const char *object, uint32_t deadline_ms,
                     uint64_t *bytes, S3Rights *out, Why *why)
{
    S3RightsWork *w = NULL;
    TRY(s3_rights_make(access, deadline_ms, out, &w, why));
    S3Upload *u = &w->upload;
    (void)snprintf(out->object, sizeof out->object, "%s", object);
    u->where = out->object;
    Error error = s3_address(access, object, u->object, sizeof u->object, why);
    if (error == OK) error = s3_rights_ask(w, "HEAD", u->object, "", false, why);
    *bytes = u->call.http.range_bytes_total;
    s3_rights_close(w);
    return error;
}
