/* SPDX-License-Identifier: Apache-2.0 */
/* Where knots are kept for many machines: a folder, an S3-compatible store and what our keys may do there, or a web
 * server. Deadlines of a few seconds, nothing is tried twice. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "host/disk.h"
#include "host/http_client.h"
#include "host/knot_store.h"
#include "host/locate.h"
#include "host/places.h"
#include "host/s3_rights.h"
#include "serve/machine.h"

enum { STORE_MS = 3000, CLOCK_S_MAX = 60, S3_CLOCK_S_MAX = 600 };

/* ---- S3 */

static void say_clock(Doctor *d, const S3Rights *r)
{
    int64_t off = r->own_date_s - r->date_s;
    int64_t far = off < 0 ? -off : off;
    if (!r->date_s) return;
    doctor_say(d,
               far > S3_CLOCK_S_MAX ? DOCTOR_PROBLEM
               : far > CLOCK_S_MAX  ? DOCTOR_WARNING
                                    : DOCTOR_OK,
               "its clock",
               far > CLOCK_S_MAX ? "Set the time of this machine (or the store's)." : NULL,
               "ours is %" PRId64 " s %s; signatures hold within 15 minutes", far,
               off < 0 ? "behind" : "ahead");
}

static const char *const right_names[S3_RIGHTS] = {"list", "write", "read", "delete"};

/* Right by right: what it is called at S3 and R2, what goes on without it. Reading is all that serving needs. */
static void say_right(Doctor *d, const S3Rights *r, S3Right right)
{
    static const char *const actions[S3_RIGHTS] = {"s3:ListBucket", "s3:PutObject", "s3:GetObject",
                                                   "s3:DeleteObject"};
    static const char *const without[S3_RIGHTS] = {
        "serving goes on without it; a file that is missing then looks like one that is refused",
        "serving needs no more than reading; cobord deploy cannot upload",
        "no node can read a model there", "the probe stays, and old models too"};
    char advice[400];
    Error error = r->errors[right];
    if (error == OK) {
        doctor_say(d, DOCTOR_OK, right_names[right], NULL, "allowed");
        return;
    }
    if (error == ERR_AGAIN) {
        doctor_say(d, DOCTOR_OK, right_names[right], NULL, "not tried: nothing was written");
        return;
    }
    if (error != ERR_KEY)
        (void)snprintf(advice, sizeof advice,
                       "Check that the bucket exists, and its endpoint "
                       "(COBORD_S3_ENDPOINT).");
    else
        (void)snprintf(advice, sizeof advice,
                       "Give the key %s (R2: a token with Object %s) if it is to; or check "
                       "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
                       actions[right],
                       right == S3_RIGHT_READ || right == S3_RIGHT_LIST ? "Read" : "Read & Write");
    doctor_say(d,
               right == S3_RIGHT_READ || error == ERR_NOT_FOUND ? DOCTOR_PROBLEM : DOCTOR_WARNING,
               right_names[right], advice, "%s: %s; %s", error == ERR_KEY ? "refused" : "failed",
               r->whys[right].text, without[right]);
    if (right == S3_RIGHT_DELETE)
        doctor_say(d, DOCTOR_WARNING, "probe", "Delete it by hand.", "%s was left there",
                   r->object);
}

static void say_unreachable(Doctor *d, const char *where, Error error, const Why *why)
{
    doctor_say(d, DOCTOR_PROBLEM, "address",
               error == ERR_USAGE ? "See the variables in: cobord help settings"
                                  : "Check the address (COBORD_S3_ENDPOINT), the network, and for "
                                    "https the certificates (AWS_CA_BUNDLE).",
               "%s: %s", where, why->text);
}

static void check_s3_rights(Doctor *d, const S3Access *access, const char *store)
{
    S3Rights *r = calloc(1, sizeof *r);
    Why why = {{0}};
    Error error = r ? s3_rights_try(access, store, STORE_MS, r, &why)
                    : error_why(&why, ERR_MEMORY, "no memory");
    if (error != OK) say_unreachable(d, store, error, &why);
    else {
        doctor_say(d, DOCTOR_OK, "address", NULL, "%s answers in %.3g ms", access->endpoint,
                   r->microseconds / 1e3);
        if (!access->key_id[0])
            doctor_say(d, DOCTOR_WARNING, "keys",
                       "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
                       "none are set: only what is public can be read");
        for (unsigned right = 0; right < S3_RIGHTS; right++) say_right(d, r, (S3Right)right);
        say_clock(d, r);
    }
    free(r);
}

static void say_object(Doctor *d, const char *object, Error error, uint64_t bytes, const Why *why)
{
    char size[DOCTOR_SIZE_BYTES];
    if (error == OK)
        doctor_say(d, DOCTOR_OK, "model", NULL, "%s, %s", object, doctor_size(bytes, size));
    else
        doctor_say(d, DOCTOR_PROBLEM, "model",
                   error == ERR_NOT_FOUND ? "Copy the .knot file there, under that name."
                                          : "Check the address and the keys.",
                   "%s", why->text);
}

static void check_s3_object(Doctor *d, const S3Access *access, const char *store,
                            const char *object, bool clock)
{
    char where[S3_PATH_BYTES];
    uint64_t bytes = 0;
    Why why = {{0}};
    S3Rights *r = calloc(1, sizeof *r);
    size_t end = strlen(store);
    while (end && store[end - 1] == '/') end--;
    (void)snprintf(where, sizeof where, "%.*s/%s", (int)end, store, object);
    Error error = r ? s3_rights_size(access, where, STORE_MS, &bytes, r, &why)
                    : error_why(&why, ERR_MEMORY, "no memory");
    say_object(d, where, error, bytes, &why);
    if (r && clock) say_clock(d, r);
    free(r);
}

/* ---- Web servers */

static Error ask_web(const char *url, HttpCall *call, Why *why)
{
    HttpClient *client;
    HttpClientOptions options = {.connect_ms = STORE_MS};
    *call = (HttpCall){.method = "HEAD", .url = url, .deadline_ms = STORE_MS};
    TRY(http_client_open(&options, &client, why));
    http_client_run(client, call);
    http_client_close(client);
    if (call->error != OK) *why = call->why;
    return call->error;
}

static void check_web(Doctor *d, const char *store, const char *object)
{
    char url[HTTP_CLIENT_URL_BYTES_MAX];
    HttpCall call;
    Why why = {{0}};
    size_t end = strlen(store);
    while (end && store[end - 1] == '/') end--;
    (void)snprintf(url, sizeof url, "%.*s/%s", (int)(end < 1200 ? end : 1200), store,
                   object ? object : "");
    Store *known = NULL; /* asks nobody: a password in the address, say, is refused */
    Error error = store_open(store, &known, &why);
    store_close(known);
    if (error == OK) error = ask_web(url, &call, &why);
    if (error != OK)
        doctor_say(d, DOCTOR_PROBLEM, "address", "Check the address and the network.", "%s",
                   why.text);
    else
        doctor_say(d, DOCTOR_OK, "address", NULL, "answers in %.3g ms (HTTP %u)",
                   call.microseconds / 1e3, call.status);
    if (error != OK || !object) return;
    if (call.status != 200)
        error = error_why(&why, call.status == 404 ? ERR_NOT_FOUND : ERR_IO, "%s: HTTP %u", url,
                          call.status);
    say_object(d, url, error, call.range_bytes_total, &why);
}

/* ---- Folders */

static void check_folder(Doctor *d, const char *folder, const char *object)
{
    Disk disk;
    Why why = {{0}};
    char path[PLACES_PATH_BYTES], free_text[DOCTOR_SIZE_BYTES];
    Error error = disk_look(folder, &disk, &why);
    if (error == OK && access(folder, R_OK | X_OK) != 0)
        error = error_why(&why, ERR_IO, "%s may not be read", folder);
    if (error != OK) {
        doctor_say(d, DOCTOR_PROBLEM, "folder", "Check the path and its rights.", "%s", why.text);
        return;
    }
    doctor_say(d, DOCTOR_OK, "folder", NULL, "%s (%s, %s free) can be read", folder, disk.name,
               doctor_size(disk.free_bytes, free_text));
    bool writes = disk_try_write(folder, &why) == OK;
    doctor_say(d, DOCTOR_OK, "write", NULL, "%s",
               writes ? "allowed" : "not allowed, which serving does not need");
    if (!object) return;
    Store *store = NULL;
    uint64_t bytes = 0;
    error = store_open(folder, &store, &why);
    if (error == OK) error = store_size(store, object, &bytes, &why);
    store_close(store);
    (void)snprintf(path, sizeof path, "%s/%s", folder, object);
    say_object(d, path, error, bytes, &why);
}

/* ---- */

/* `rights`: try them all, with an object of our own; else only look at `object`. */
static void check_place(Doctor *d, const char *store, const char *object, bool rights)
{
    S3Access access;
    Why why = {{0}};
    doctor_area(d, "Store");
    if (strncmp(store, "s3:", 3) == 0) {
        Error error = s3_access(&access, &why);
        if (error != OK) say_unreachable(d, store, error, &why);
        else if (rights) check_s3_rights(d, &access, store);
        if (error == OK && object) check_s3_object(d, &access, store, object, !rights);
        s3_forget(&access);
    } else if (strncmp(store, "http://", 7) == 0 || strncmp(store, "https://", 8) == 0)
        check_web(d, store, object);
    else if (strstr(store, "://") && strncmp(store, "file:", 5) != 0)
        doctor_say(d, DOCTOR_PROBLEM, "address",
                   "Give a directory, s3://BUCKET/PREFIX or https://HOST/PATH.",
                   "%s is no store that Cobord knows", store);
    else check_folder(d, locate_file_path(store), object);
}

void doctor_check_store(Doctor *d, const char *store, const char *model)
{
    char object[PLACES_NAME_BYTES + 8];
    if (model && !strchr(model, '/')) (void)snprintf(object, sizeof object, "%.150s.knot", model);
    check_place(d, store, model && !strchr(model, '/') ? object : NULL, true);
}

/* Of the cluster file: its knot alone is looked for, and nothing is written. */
void doctor_check_cluster_store(Doctor *d)
{
    Node node = {.cluster = d->cluster, .cluster_path = d->cluster_path};
    KnotStore knot;
    char directory[NODE_PATH_BYTES];
    Why why = {{0}};
    const char *store = d->cluster->store;
    bool local = !strstr(locate_file_path(store), "://");
    Error error = local ? node_path(d->cluster_path, locate_file_path(store), directory, &why) : OK;
    if (error == OK) error = knot_store_open(&node, &knot, &why);
    if (error != OK) {
        doctor_area(d, "Store");
        doctor_say(d, DOCTOR_PROBLEM, "address", "Mend \"store\" in the cluster file.", "%s",
                   why.text);
        return;
    }
    check_place(d, local ? directory : store, knot.object, false);
    knot_store_close(&knot);
}
