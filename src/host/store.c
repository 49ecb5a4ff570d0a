/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of store an address names, what a good object name is, and the local directory. */
#include "host/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/locate.h"
#include "host/places.h"
#include "host/store_http.h"
#include "host/whole.h"

enum { STORE_OBJECT_BYTES_MAX = 512 };

struct Store {
    StoreHttp *http; /* NULL: a local directory */
    char directory[PLACES_PATH_BYTES];
    atomic_ullong reads, bytes, failures;
};

/* --- addresses --- */

static bool store_starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Copies without slashes at the end. */
static bool store_copy_base(const char *text, char *out, size_t room)
{
    size_t bytes = strlen(text);
    while (bytes && text[bytes - 1] == '/') bytes--;
    if (bytes >= room) return false;
    memcpy(out, text, bytes);
    out[bytes] = 0;
    return true;
}

static Error store_open_local(Store *s, const char *where, Why *why)
{
    struct stat state;
    const char *path = locate_file_path(where);
    if (strlen(path) >= sizeof s->directory)
        return error_why(why, ERR_USAGE, "the path of the store is too long");
    if (stat(path, &state) != 0)
        return error_why(why, ERR_USAGE, "the store %s: %s", path, strerror(errno));
    if (!S_ISDIR(state.st_mode))
        return error_why(why, ERR_USAGE, "the store %s is not a directory", path);
    memcpy(s->directory, path, strlen(path) + 1);
    return OK;
}

static Error store_open_web(Store *s, const char *where, Why *why)
{
    char base[S3_PATH_BYTES];
    const char *host = strstr(where, "://");
    host = host ? host + 3 : "";
    size_t host_bytes = strcspn(host, "/");
    if (host_bytes == 0 || strcspn(host, "?# ") < strlen(host))
        return error_why(why, ERR_USAGE, "the store's address is not http(s)://HOST/PATH");
    if (memchr(host, '@', host_bytes))
        return error_why(why, ERR_USAGE, "the store's address must not have a password in it");
    if (!store_copy_base(where, base, sizeof base))
        return error_why(why, ERR_USAGE, "the store's address is too long");
    return store_http_open(base, base, NULL, &s->http, why);
}

static Error store_open_s3(Store *s, const char *where, Why *why)
{
    char name[S3_TEXT_BYTES], base[S3_PATH_BYTES];
    S3Access access;
    if (!store_copy_base(where, name, sizeof name))
        return error_why(why, ERR_USAGE, "the store's address is too long");
    Error error = s3_access(&access, why);
    if (error == OK) error = s3_address(&access, name, base, sizeof base, why);
    if (error == OK) error = store_http_open(name, base, &access, &s->http, why);
    s3_forget(&access);
    return error;
}

static Error store_open_kind(Store *s, const char *where, Why *why)
{
    if (!where[0]) return error_why(why, ERR_USAGE, "the store has no address");
    if (store_starts(where, "s3:")) return store_open_s3(s, where, why);
    if (store_starts(where, "https://") || store_starts(where, "http://"))
        return store_open_web(s, where, why);
    const char *scheme = strstr(where, "://");
    if (scheme && !store_starts(where, "file:") && !memchr(where, '/', (size_t)(scheme - where)))
        return error_why(
            why, ERR_UNSUPPORTED,
            "a store is a directory, s3://BUCKET/PREFIX or https://HOST/PATH, not %.*s://",
            (int)(scheme - where), where);
    return store_open_local(s, where, why);
}

Error store_open(const char *where, Store **out, Why *why)
{
    Store *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a store");
    Error error = store_open_kind(s, where, why);
    if (error == OK) *out = s;
    else store_close(s);
    return error;
}

void store_close(Store *s)
{
    if (!s) return;
    store_http_close(s->http);
    free(s);
}

/* --- objects --- */

/* Names may come from another node: parts that are neither empty nor "." nor "..", no control characters. */
static Error store_check_object(const char *object, Why *why)
{
    size_t bytes = strnlen(object, STORE_OBJECT_BYTES_MAX + 1);
    bool good = bytes > 0 && bytes <= STORE_OBJECT_BYTES_MAX;
    for (const char *part = object; good && part;) {
        size_t n = strcspn(part, "/");
        bool dots = (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.');
        good = n > 0 && !dots;
        part = part[n] == '/' ? part + n + 1 : NULL;
    }
    for (size_t i = 0; good && i < bytes; i++)
        good = (unsigned char)object[i] >= ' ' && object[i] != 0x7f && object[i] != '\\';
    if (good) return OK;
    return error_why(why, ERR_USAGE, "%.*s is not the name of an object", 80, object);
}

static Error store_path(const Store *s, const char *object, char *path, size_t room, Why *why)
{
    int n = snprintf(path, room, "%s/%s", s->directory, object);
    return n > 0 && (size_t)n < room
               ? OK
               : error_why(why, ERR_TOO_LARGE, "the path of %s is too long", object);
}

/* A regular file: no pipe that would hold us. */
static Error store_open_file(const Store *s, const char *object, int *out, uint64_t *bytes,
                             Why *why)
{
    char path[PLACES_PATH_BYTES];
    struct stat state;
    TRY(store_path(s, object, path, sizeof path, why));
    int file = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (file < 0) return places_system_error(errno == ENOTDIR ? ENOENT : errno, path, why);
    Error error = OK;
    if (fstat(file, &state) != 0) error = places_system_error(errno, path, why);
    else if (!S_ISREG(state.st_mode))
        error = error_why(why, ERR_NOT_FOUND, "%s is not a regular file", path);
    if (error != OK) {
        (void)close(file);
        return error;
    }
    *bytes = (uint64_t)state.st_size;
    *out = file;
    return OK;
}

static Error store_read_local(const Store *s, const char *object, uint64_t offset, uint64_t bytes,
                              uint8_t *out, Why *why)
{
    int file = -1;
    uint64_t total;
    TRY(store_open_file(s, object, &file, &total, why));
    Error error = OK;
    if (offset > total || bytes > total - offset)
        error = error_why(why, ERR_TRUNCATED, "%s/%s: no bytes %llu to %llu, it has %llu",
                          s->directory, object, (unsigned long long)offset,
                          (unsigned long long)(offset + bytes), (unsigned long long)total);
    if (error == OK && !whole_read(file, offset, out, bytes))
        error = errno ? places_system_error(errno, object, why)
                      : error_why(why, ERR_TRUNCATED, "%s became shorter", object);
    (void)close(file);
    return error;
}

/* --- the store --- */

Error store_size(Store *s, const char *object, uint64_t *bytes, Why *why)
{
    TRY(store_check_object(object, why));
    if (s->http) return store_http_size(s->http, object, bytes, why);
    int file = -1;
    TRY(store_open_file(s, object, &file, bytes, why));
    (void)close(file);
    return OK;
}

Error store_read(Store *s, const char *object, uint64_t offset, uint64_t bytes, uint8_t *out,
                 Why *why)
{
    TRY(store_check_object(object, why));
    if (bytes > (uint64_t)INT64_MAX || offset > (uint64_t)INT64_MAX - bytes)
        return error_why(why, ERR_RANGE, "%s: a range beyond all bounds", object);
    if (bytes == 0) return OK;
    atomic_fetch_add(&s->reads, 1);
    Error error = s->http ? store_http_read(s->http, object, offset, bytes, out, why)
                          : store_read_local(s, object, offset, bytes, out, why);
    if (error == OK) atomic_fetch_add(&s->bytes, bytes);
    else atomic_fetch_add(&s->failures, 1);
    return error;
}

const char *store_local_path(Store *s, const char *object, char *path, size_t room)
{
    if (s->http || store_check_object(object, NULL) != OK) return NULL;
    return store_path(s, object, path, room, NULL) == OK ? path : NULL;
}

StoreCounters store_counters(const Store *s)
{
    return (StoreCounters){.reads = atomic_load(&s->reads),
                           .bytes = atomic_load(&s->bytes),
                           .retries = s->http ? store_http_retries(s->http) : 0,
                           .failures = atomic_load(&s->failures)};
}
