/* SPDX-License-Identifier: Apache-2.0 */
#include "host/places.h"

#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *cache, *hub, *hub_token;
} places;

void places_set(const char *cache, const char *hub, const char *hub_token)
{
    places.cache = cache;
    places.hub = hub;
    places.hub_token = hub_token;
}

const char *places_hub(void) { return places.hub; }
const char *places_hub_token(void) { return places.hub_token; }

Error places_system_error(int number, const char *path, Why *why)
{
    Error error = ERR_IO;
    if (number == ENOSPC || number == EDQUOT || number == EFBIG) error = ERR_NO_SPACE;
    else if (number == ENOENT || number == ENOTDIR) error = ERR_NOT_FOUND;
    else if (number == ENOMEM) error = ERR_MEMORY;
    return error_why(why, error, "%s: %s", path, strerror(number));
}

void places_state(char *out, size_t out_bytes, const char *name)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/') n = snprintf(out, out_bytes, "%s/cobord/%s", state, name);
    else if (home && *home) n = snprintf(out, out_bytes, "%s/.local/state/cobord/%s", home, name);
    if (n < 0 || (size_t)n >= out_bytes) *out = '\0';
}

Error places_join(char *out, size_t out_bytes, const char *directory, const char *prefix,
                  const char *name, const char *suffix, Why *why)
{
    int n = snprintf(out, out_bytes, "%s/%s%s%s", directory, prefix, name, suffix);
    if (n < 0 || (size_t)n >= out_bytes)
        return error_why(why, ERR_TOO_LARGE, "the path %.*s... is over %zu bytes", 60, directory,
                         out_bytes);
    return OK;
}

Error places_make_directory(const char *path, unsigned mode, Why *why)
{
    char part[PLACES_PATH_BYTES];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof part)
        return error_why(why, ERR_TOO_LARGE, "the path of a directory has 1 to %zu bytes",
                         sizeof part - 1);
    memcpy(part, path, bytes + 1);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != 0) continue;
        char end = *p;
        *p = 0;
        int number = mkdir(part, mode) == 0 || errno == EEXIST ? 0 : errno;
        if (number && !(end && access(part, F_OK) == 0)) { /* a read-only root is no obstacle */
            if (number == ENOENT || number == ENOTDIR)
                return error_why(why, ERR_IO, "cannot make the directory %s: %s", part,
                                 strerror(number));
            return places_system_error(number, part, why);
        }
        *p = end;
        if (!end) return OK;
    }
}

Error places_models_path(char *out, size_t out_bytes, Why *why)
{
    const char *cache = places.cache ? places.cache : getenv("COBORD_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && cache[0]) n = snprintf(out, out_bytes, "%s/models", cache);
    else if (xdg && xdg[0] == '/') n = snprintf(out, out_bytes, "%s/cobord/models", xdg);
    else if (home && home[0] == '/') n = snprintf(out, out_bytes, "%s/.cache/cobord/models", home);
    else
        return error_why(
            why, ERR_IO,
            "no place for models: neither COBORD_CACHE nor HOME is set. Set COBORD_CACHE.");
    if (n < 0 || (size_t)n + 512 >= out_bytes)
        return error_why(why, ERR_TOO_LARGE, "the path of the cache directory is too long");
    return OK;
}

Error places_models(char *out, size_t out_bytes, Why *why)
{
    TRY(places_models_path(out, out_bytes, why));
    TRY(places_make_directory(out, 0777, why));
    struct stat state;
    if (stat(out, &state) != 0) return places_system_error(errno, out, why);
    if (!S_ISDIR(state.st_mode)) return error_why(why, ERR_IO, "%s: not a directory", out);
    if (access(out, R_OK | X_OK) != 0) return places_system_error(errno, out, why);
    return OK;
}

bool places_model_name(const char *file, char name[PLACES_NAME_BYTES])
{
    size_t n = strlen(file);
    if (file[0] == '.' || n < 6 || n - 5 >= PLACES_NAME_BYTES) return false;
    if (strcmp(file + n - 5, ".knot") != 0) return false;
    memcpy(name, file, n - 5);
    name[n - 5] = 0;
    return true;
}

static int places_remove_one(const char *path, const struct stat *state, int type, struct FTW *at)
{
    (void)state;
    (void)type;
    (void)at;
    (void)remove(path); /* what cannot be removed stays, and the walk goes on */
    return 0;
}

void places_remove(const char *path)
{
    (void)nftw(path, places_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *places_fault(const char *path, int number)
{
    struct stat about;
    bool link = lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
    bool dangles = (number == ENOENT || number == EEXIST) && link && stat(path, &about) != 0;
    return dangles ? "a link to a file that is not there" : strerror(number);
}
