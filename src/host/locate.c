/* SPDX-License-Identifier: Apache-2.0 */
#include "host/locate.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "host/cache_work.h"
#include "host/near.h"
#include "host/places.h"
#include "host/whole.h"
#include "host/zoo.h"
#include "knot/foreign.h"
#include "knot/gguf.h"
#include "knot/knot.h"

enum { LOCATE_STEM_BYTES = 96 };

static bool locate_starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool locate_ends(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

const char *locate_file_path(const char *model)
{
    if (!locate_starts(model, "file:")) return model;
    model += 5;
    if (locate_starts(model, "//localhost/")) return model + 11;
    return locate_starts(model, "///") ? model + 2 : model;
}

/* What may stand in a file name of the cache; never a leading dot. */
static bool locate_name_char(char c) { return isalnum((unsigned char)c) || strchr("-._", c); }

bool locate_is_name(const char *text)
{
    size_t n = 0;
    while (text[n] && locate_name_char(text[n])) n++;
    return n > 0 && text[n] == 0 && n < PLACES_NAME_BYTES && text[0] != '.' && text[0] != '-';
}

/* "stem-HASH": readable, and different for different sources. */
static void locate_make_name(const char *source, char *out, size_t out_bytes)
{
    char stem[LOCATE_STEM_BYTES];
    const char *base = strrchr(source, '/');
    base = base ? base + 1 : source;
    size_t n = 0;
    for (const char *p = base; *p && *p != '?' && *p != '#' && n < sizeof stem - 1; p++)
        stem[n++] = locate_name_char(*p) ? *p : '-';
    stem[n] = 0;
    if (locate_ends(stem, ".gguf") || locate_ends(stem, ".knot")) stem[n - 5] = 0;
    if (!stem[0] || stem[0] == '.' || stem[0] == '-') (void)snprintf(stem, sizeof stem, "model");
    (void)snprintf(out, out_bytes, "%s-%08x", stem, (unsigned)hash_xxh64(source, strlen(source)));
}

Error locate_kind(const char *model, LocateKind *kind, char *name, size_t name_bytes, Why *why)
{
    name[0] = 0;
    if (!model[0])
        return error_why(why, ERR_USAGE, "the name of the model is empty. See: cobord list.");
    bool hub = locate_starts(model, "hf:"), s3 = locate_starts(model, "s3:"),
         web = s3 || locate_starts(model, "https:") || locate_starts(model, "http:");
    if (hub || web) {
        const char *slash = strchr(model, '/');
        const char *second = slash ? strchr(slash + 1, '/') : NULL;
        if (!second || !second[1] || (web && (second != slash + 1 || !strchr(second + 1, '/'))))
            return error_why(why, ERR_USAGE, "%s is not %s.", model,
                             hub  ? "hf:OWNER/REPOSITORY/FILE"
                             : s3 ? "s3://BUCKET/KEY"
                                  : "an address of a file");
        *kind = LOCATE_URL;
        locate_make_name(model, name, name_bytes);
        return OK;
    }
    if (zoo_find(model)) {
        *kind = LOCATE_ZOO;
        (void)snprintf(name, name_bytes, "%s", model);
        return OK;
    }
    const char *path = locate_file_path(model);
    bool file = path != model || locate_names_file(model);
    if (file || !locate_is_name(model) || access(model, F_OK) == 0) {
        *kind = LOCATE_PATH;
        return OK;
    }
    *kind = LOCATE_CACHED;
    (void)snprintf(name, name_bytes, "%s", model);
    return OK;
}

/* ---- Names that are none ---- */

Error locate_unknown(const char *model, Why *why)
{
    const char *near = near_model(model);
    if (near)
        return error_why(why, ERR_NOT_FOUND,
                         "there is neither a file nor a model of this name: %s. Did you mean %s?",
                         model, near);
    return error_why(why, ERR_NOT_FOUND,
                     "there is neither a file nor a model of this name: %s. See `cobord list`",
                     model);
}

/* ---- GGUF files by path ---- */

static Error locate_state_add(HashStream64 *hash, const char *path, Why *why)
{
    struct stat state;
    if (stat(path, &state) != 0) return places_system_error(errno, path, why);
    int64_t numbers[4] = {(int64_t)state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec,
                          (int64_t)state.st_ino};
    hash_stream64_update(hash, numbers, sizeof numbers);
    return OK;
}

unsigned locate_parts(const char *path, unsigned *part)
{
    uint32_t parts = 0;
    bool split = gguf_split_name(path, strlen(path), part, &parts);
    return split && parts <= GGUF_FILES_MAX ? parts : 0;
}

Error locate_part_name(const char *path, unsigned part, char *out, size_t out_bytes, Why *why)
{
    size_t stem = strlen(path) - GGUF_SPLIT_BYTES;
    int used = snprintf(out, out_bytes, "%.*s-%05u%s", (int)stem, path, part, path + stem + 6);
    return used > 0 && (size_t)used < out_bytes
               ? OK
               : error_why(why, ERR_TOO_LARGE, "the name of a part is too long");
}

/* Size, time of change and inode of all parts, as 16 digits. */
static Error locate_state(const char *path, char *out, size_t out_bytes, Why *why)
{
    HashStream64 hash;
    hash_stream64_start(&hash);
    unsigned part, parts = locate_parts(path, &part);
    if (parts == 0) TRY(locate_state_add(&hash, path, why));
    for (unsigned i = 1; i <= parts; i++) {
        char name[PLACES_PATH_BYTES];
        TRY(locate_part_name(path, i, name, sizeof name, why));
        TRY(locate_state_add(&hash, name, why));
    }
    (void)snprintf(out, out_bytes, "%016llx", (unsigned long long)hash_stream64_end(&hash));
    return OK;
}

/* Whether the cache holds this very file: "ORIGIN\nSTATE\n" in NAME.from. */
static bool locate_is_current(const char *models, const char *name, const char *origin)
{
    char path[PLACES_PATH_BYTES], text[PLACES_PATH_BYTES + 64];
    if (places_join(path, sizeof path, models, "", name, ".from", NULL) != OK) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[n] = 0;
    size_t m = strlen(origin);
    return n == m + 1 && memcmp(text, origin, m) == 0 && text[m] == '\n';
}

/* A knot in the cache that another version of this program made is made again. */
static bool locate_is_readable(const char *path, const Tell *tell)
{
    uint8_t head[16];
    uint64_t bytes;
    Why why = {{0}};
    char line[PLACES_PATH_BYTES + WHY_MAX + 32];
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = file >= 0 ? whole_rest(file, head, sizeof head) : -1;
    if (file >= 0) (void)close(file);
    if (n < 0) return false;
    Error error = knot_header_bytes(head, (size_t)n, UINT64_MAX, &bytes, &why);
    (void)snprintf(line, sizeof line, "%s: %s; making it again", path, why.text);
    if (error != OK) tell_note(tell, line);
    return error == OK;
}

static Error locate_gguf(const char *given, const Tell *tell, char *path, size_t path_bytes,
                         Why *why)
{
    char real[PATH_MAX], state[24], models[PLACES_PATH_BYTES], name[PLACES_NAME_BYTES],
        origin[PATH_MAX + 32];
    if (!realpath(given, real)) return places_system_error(errno, given, why);
    TRY(locate_state(real, state, sizeof state, why));
    TRY(places_models(models, sizeof models, why));
    locate_make_name(real, name, sizeof name);
    (void)snprintf(origin, sizeof origin, "%s\n%s", real, state);
    TRY(places_join(path, path_bytes, models, "", name, ".knot", why));
    if (locate_is_current(models, name, origin) && locate_is_readable(path, tell)) {
        cache_work_tidy(name);
        return OK;
    }
    return cache_work_encode(real, name, origin, tell, path, path_bytes, why);
}

bool locate_names_file(const char *model)
{
    return strchr(model, '/') || locate_ends(model, ".gguf") || locate_ends(model, ".knot");
}

static Error locate_path(const char *given, const Tell *tell, char *path, size_t path_bytes,
                         Why *why)
{
    struct stat state;
    uint8_t head[512];
    if (stat(given, &state) != 0) {
        bool name = errno == ENOENT && !locate_names_file(given);
        return name ? locate_unknown(given, why) : places_system_error(errno, given, why);
    }
    if (S_ISDIR(state.st_mode))
        return error_why(why, ERR_FORMAT, "%s is a directory. Give the .gguf or .knot file in it.",
                         given);
    if (!S_ISREG(state.st_mode))
        return error_why(why, ERR_FORMAT, "%s is not a regular file. Copy it to one first.", given);
    int file = whole_open(given, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return places_system_error(errno, given, why);
    ssize_t n = whole_rest(file, head, sizeof head);
    int number = errno;
    (void)close(file);
    if (n < 0) return places_system_error(number, given, why);
    if (n >= 4 && memcmp(head, "GGUF", 4) == 0)
        return locate_gguf(given, tell, path, path_bytes, why);
    if (n >= 4 && memcmp(head, "KNOT", 4) == 0) {
        int length = snprintf(path, path_bytes, "%s", given);
        return length < (int)path_bytes ? OK
                                        : error_why(why, ERR_TOO_LARGE, "the path is too long");
    }
    const char *kind = foreign_kind(head, (size_t)n);
    if (!kind) return error_why(why, ERR_FORMAT, "%s is neither a GGUF nor a knot file", given);
    return error_why(why, ERR_FORMAT, "%s is %s. %s", given, kind, foreign_advice(head, (size_t)n));
}

/* ---- */

static Error locate_missing(const char *model, LocateKind kind, Why *why)
{
    if (kind == LOCATE_CACHED) return locate_unknown(model, why);
    return error_why(why, ERR_NOT_FOUND, "%s is not here yet: run `cobord pull %s`", model, model);
}

Error locate_model(const char *model, const Tell *tell, char *path, size_t path_bytes, Why *why)
{
    LocateKind kind;
    char name[PLACES_NAME_BYTES], models[PLACES_PATH_BYTES];
    TRY(locate_kind(model, &kind, name, sizeof name, why));
    if (kind == LOCATE_PATH)
        return locate_path(locate_file_path(model), tell, path, path_bytes, why);
    TRY(places_models(models, sizeof models, why));
    TRY(places_join(path, path_bytes, models, "", name, ".knot", why));
    if (access(path, R_OK) == 0) return OK;
    if (errno != ENOENT) return places_system_error(errno, path, why);
    return locate_missing(model, kind, why);
}

Error locate_file(const char *name, char *path, size_t path_bytes, Why *why)
{
    if (access(name, F_OK) != 0 && !strchr(name, '/'))
        return locate_model(name, NULL, path, path_bytes, why);
    if (strlen(name) >= path_bytes)
        return error_why(why, ERR_TOO_LARGE, "a path of %zu bytes", strlen(name));
    memcpy(path, name, strlen(name) + 1);
    return OK;
}
