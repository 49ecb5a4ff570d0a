/* SPDX-License-Identifier: Apache-2.0 */
#include "host/access.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/cors.h"
#include "api/keys.h"
#include "host/key.h"
#include "host/places.h"
#include "host/whole.h"

/* ---- The file ---- */

static Error read_all(int fd, const char *path, char *text, size_t room, size_t *bytes, Why *why)
{
    ssize_t n = whole_rest(fd, text, room);
    if (n < 0) return error_why(why, ERR_IO, "%s: %s", path, strerror(errno));
    *bytes = (size_t)n;
    if (*bytes < room) return OK;
    return error_why(why, ERR_TOO_LARGE, "%s: more than %d bytes", path, KEYS_TEXT_BYTES_MAX);
}

static Error look_at(int fd, const char *path, Why *warning, Why *why)
{
    struct stat about;
    if (fstat(fd, &about) != 0) return error_why(why, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return error_why(why, ERR_FORMAT, "%s: it is no regular file", path);
    if (key_is_open_to_others(&about))
        return error_why(warning, OK, "others may read %s: chmod 600 keeps its keys secret", path);
    return OK;
}

Error access_read_file(const char *path, char **text, size_t *bytes, Why *warning, Why *why)
{
    *text = NULL;
    *bytes = 0;
    *warning = (Why){{0}};
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return error_why(why, ERR_IO, "%s: %s", path, places_fault(path, errno));
    Error error = look_at(fd, path, warning, why);
    size_t room = KEYS_TEXT_BYTES_MAX + 1;
    if (error == OK && !(*text = malloc(room)))
        error = error_why(why, ERR_MEMORY, "no memory for %s", path);
    if (error == OK) error = read_all(fd, path, *text, room, bytes, why);
    close(fd);
    if (error == OK) return OK;
    free(*text);
    *text = NULL;
    return error;
}

/* ---- What is in it ---- */

static Error named(const char *path, Error error, const Why *about, Why *why)
{
    return error == OK ? OK : error_why(why, error, "%s: %s", path, about->text);
}

static Error check_keys(const char *text, size_t bytes, Why *why)
{
    Keys keys;
    void *memory = malloc(keys_bytes(bytes));
    if (!memory) return error_why(why, ERR_MEMORY, "no memory for the keys");
    Arena arena = arena_make(memory, keys_bytes(bytes));
    Error error = keys_parse(text, bytes, &arena, &keys, why);
    free(memory);
    return error;
}

Error access_check(const Access *a, Why *warning, Why *why)
{
    char *text;
    size_t bytes;
    Why about = {{0}};
    *warning = (Why){{0}};
    if (a->cors) TRY(cors_check(a->cors, why));
    if (!a->keys_file) return OK;
    TRY(access_read_file(a->keys_file, &text, &bytes, warning, why));
    Error error = check_keys(text, bytes, &about);
    explicit_bzero(text, bytes);
    free(text);
    return named(a->keys_file, error, &about, why);
}

Error access_load(const Access *a, Serve *serve, Why *warning, Why *why)
{
    char *text;
    size_t bytes;
    Why about = {{0}};
    TRY(access_read_file(a->keys_file, &text, &bytes, warning, why));
    Error error = serve_load_keys(serve, text, bytes, &about);
    explicit_bzero(text, bytes);
    free(text);
    return named(a->keys_file, error, &about, why);
}
