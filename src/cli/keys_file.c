/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/json_writer.h"
#include "host/access.h"
#include "host/file_writer.h"
#include "host/whole.h"

enum { ENTRY_BYTES_MAX = 320 };

/* ---- Reading ---- */

static void directory_of(const char *path, char out[PLACES_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    int bytes = slash ? (int)(slash - path) : 1;
    (void)snprintf(out, PLACES_PATH_BYTES, "%.*s", slash && !bytes ? 1 : bytes, slash ? path : ".");
}

static Error lock_directory(KeysFile *f, Why *why)
{
    char directory[PLACES_PATH_BYTES];
    directory_of(f->path, directory);
    f->lock = whole_open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (f->lock < 0 || flock(f->lock, LOCK_EX) != 0)
        return places_system_error(errno, directory, why);
    return OK;
}

/* A link stays one: what it leads to is changed. */
static Error find(KeysFile *f, const char *path, Why *why)
{
    struct stat about;
    bool linked = lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
    if (strlen(path) >= sizeof f->path)
        return error_why(why, ERR_TOO_LARGE, "the path of the file of keys");
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    if (!linked) return OK;
    char *real = realpath(path, NULL);
    if (!real) return error_why(why, ERR_IO, "%s: %s", path, places_fault(path, errno));
    bool fits = strlen(real) < sizeof f->path;
    if (fits) (void)snprintf(f->path, sizeof f->path, "%s", real);
    free(real);
    return fits ? OK : error_why(why, ERR_TOO_LARGE, "the path of the file of keys");
}

static Error parse(KeysFile *f, const char *text, size_t bytes, Why *why)
{
    Why about = {{0}};
    size_t room = keys_bytes(bytes);
    f->memory = malloc(room);
    if (!f->memory) return error_why(why, ERR_MEMORY, "no memory for the keys");
    Arena arena = arena_make(f->memory, room);
    Error error = keys_parse(text, bytes, &arena, &f->keys, &about);
    return error == OK ? OK : error_why(why, error, "%s: %s", f->path, about.text);
}

Error keys_file_open(const char *path, KeysFile *f, Why *why)
{
    char *text;
    size_t bytes;
    Why warning;
    *f = (KeysFile){.lock = -1};
    TRY(find(f, path, why));
    TRY(lock_directory(f, why));
    struct stat about;
    f->exists = lstat(f->path, &about) == 0; /* whoever had the lock before may have made it */
    if (!f->exists) return OK;
    TRY(access_read_file(f->path, &text, &bytes, &warning, why));
    Error error = parse(f, text, bytes, why);
    explicit_bzero(text, bytes);
    free(text);
    return error;
}

void keys_file_close(KeysFile *f)
{
    if (f->lock >= 0) close(f->lock);
    free(f->memory);
}

/* ---- Writing ---- */

static void write_limit(JsonWriter *w, const char *name, uint32_t limit)
{
    if (limit) json_writer_member_u64(w, name, limit);
}

static void write_entry(JsonWriter *w, bool first, const KeysEntry *entry, const uint8_t *digest)
{
    char hex[DIGEST_HEX_BYTES];
    digest_to_hex(digest, hex);
    json_writer_raw(w, first ? "\n  {" : ",\n  {");
    json_writer_member_text(w, "name", entry->name);
    json_writer_member_text(w, "sha256", hex);
    write_limit(w, "requests_per_minute", entry->limits.requests_per_minute);
    write_limit(w, "tokens_per_minute", entry->limits.tokens_per_minute);
    write_limit(w, "concurrent", entry->limits.concurrent);
    if (entry->admin) json_writer_member_bool(w, "admin", true);
    json_writer_raw(w, "}");
}

static JsonWriter write_text(const KeysFile *f, uint32_t without, const KeysEntry *added,
                             const uint8_t *digest)
{
    size_t room = ((size_t)f->keys.count + 2) * ENTRY_BYTES_MAX;
    char *text = malloc(room);
    JsonWriter w = json_writer_make(text, text ? room : 0);
    bool first = true;
    json_writer_raw(&w, "{\"keys\": [");
    for (uint32_t i = 0; i < f->keys.count; i++) {
        if (i == without) continue;
        write_entry(&w, first, &f->keys.entries[i], f->keys.digests[i]);
        first = false;
    }
    if (added) write_entry(&w, first, added, digest);
    json_writer_raw(&w, "\n]}\n");
    return w;
}

/* Its owner stays, where that is allowed; nobody else may read it. */
static void keep_owner(int fd, const KeysFile *f)
{
    struct stat about;
    if (f->exists && stat(f->path, &about) == 0 && fchown(fd, about.st_uid, about.st_gid) != 0)
        errno = 0;
}

static Error replace(const KeysFile *f, const JsonWriter *text, Why *why)
{
    FileWriter w;
    TRY(file_writer_open_private(&w, f->path, why));
    keep_owner(w.descriptor, f);
    Error error = file_writer_append(&w, text->bytes, text->used, why);
    if (error == OK) error = file_writer_commit(&w, why);
    else file_writer_abandon(&w);
    return error;
}

Error keys_file_write(const KeysFile *f, uint32_t without, const KeysEntry *added,
                      const uint8_t *digest, Why *why)
{
    JsonWriter w = write_text(f, without, added, digest);
    Error error = OK;
    if (!w.bytes || w.full) error = error_why(why, ERR_MEMORY, "no memory for the keys");
    else if (added && f->keys.count >= KEYS_MAX)
        error = error_why(why, ERR_TOO_LARGE, "%s has %d keys, as many as there may be", f->path,
                          KEYS_MAX);
    if (error == OK) error = replace(f, &w, why);
    free(w.bytes);
    return error;
}
