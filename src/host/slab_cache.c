/* SPDX-License-Identifier: Apache-2.0 */
#include "host/slab_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/warden.h"
#include "host/clock.h"
#include "host/places.h"
#include "host/whole.h"

enum { NAME_BYTES = 128, RETRY_S = 60 };
enum { SLAB_NONE, SLAB_THERE, SLAB_WRITING, SLAB_DOOMED /* while it is written */ };

struct SlabCache {
    SlabCacheOptions options;
    char path[PLACES_PATH_BYTES], name[NAME_BYTES];
    int parent, directory; /* descriptors; the directory is locked */
    pthread_mutex_t lock;
    uint8_t *there; /* SLAB_.. of each */
    uint32_t count;
    uint64_t foreign_bytes; /* of wardens that are gone */
    uint32_t writing;       /* number of the next temporary file */
    bool warned;
    uint64_t closed_until_s; /* after a failed write */
    SlabCacheCounters counters;
};

/* --- names --- */

static void slab_name(char out[NAME_BYTES], uint32_t slab)
{
    (void)snprintf(out, NAME_BYTES, "%08u.slab", slab);
}

/* Only what a warden has made. */
static bool is_warden_name(const char *name)
{
    for (int i = 0; i < 16; i++)
        if (!strchr("0123456789abcdef", name[i]) || !name[i]) return false;
    return name[16] == '-';
}

/* A slab, or one that was being written. Anything else in the directory is of another program or version. */
static bool is_slab_name(const char *name)
{
    size_t digits = strspn(name + (name[0] == '.'), "0123456789");
    return digits &&
           strcmp(name + (name[0] == '.') + digits, name[0] == '.' ? ".part" : ".slab") == 0;
}

static bool slab_of(const char *name, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 8; i++) {
        if (name[i] < '0' || name[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(name[i] - '0');
    }
    return strcmp(name + 8, ".slab") == 0;
}

static uint64_t slab_bytes_of(const SlabCache *c, uint32_t slab)
{
    uint64_t end = c->options.index->knot.block_hashes.offset,
             at = (uint64_t)slab * WARDEN_SLAB_BYTES;
    if (at >= end) return 0;
    return end - at < WARDEN_SLAB_BYTES ? end - at : WARDEN_SLAB_BYTES;
}

/* --- directories of wardens that are gone --- */

/* Locks it, so that nobody uses it while it is counted or removed. Result  -1: it is in use. */
static int open_abandoned(int parent, const char *name)
{
    int fd = whole_open_at(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

typedef uint64_t (*EachFile)(int directory, const char *name, const struct stat *st);

static uint64_t for_each_file(int directory, EachFile each)
{
    uint64_t sum = 0;
    int again = whole_open_at(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d && again >= 0) (void)close(again);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (fstatat(directory, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            sum += each(directory, e->d_name, &st);
    }
    if (d) (void)closedir(d);
    return sum;
}

static uint64_t count_file(int directory, const char *name, const struct stat *st)
{
    (void)directory, (void)name;
    return (uint64_t)st->st_size;
}

static uint64_t remove_file(int directory, const char *name, const struct stat *st)
{
    return unlinkat(directory, name, 0) == 0 ? (uint64_t)st->st_size : 0;
}

/* Carries out `each` on all files of the directories of wardens that are gone. */
static uint64_t for_each_abandoned(SlabCache *c, EachFile each, bool remove)
{
    uint64_t sum = 0;
    int again = whole_open_at(c->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d && again >= 0) (void)close(again);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_warden_name(e->d_name) || strcmp(e->d_name, c->name) == 0) continue;
        int fd = open_abandoned(c->parent, e->d_name);
        if (fd < 0) continue;
        sum += for_each_file(fd, each);
        if (remove) (void)unlinkat(c->parent, e->d_name, AT_REMOVEDIR);
        (void)close(fd);
    }
    if (d) (void)closedir(d);
    return sum;
}

/* --- opening --- */

static bool over_cap(const SlabCache *c, uint64_t more)
{
    uint64_t held = c->counters.held_bytes + c->foreign_bytes + more;
    return c->options.bytes_max && held > c->options.bytes_max;
}

static void evict_abandoned(SlabCache *c)
{
    if (!c->foreign_bytes) return;
    (void)for_each_abandoned(c, remove_file, true);
    c->foreign_bytes = 0;
    c->counters.evictions++;
}

static void say_foreign(SlabCache *c, uint32_t foreign)
{
    char line[256];
    if (!foreign) return;
    (void)snprintf(line, sizeof line,
                   "%.120s/%.64s has %u files that are no slabs: they are left alone", c->path,
                   c->name, foreign);
    tell_note(c->options.tell, line);
}

/* What an earlier run left: whole slabs stay, half ones go. */
static void scan(SlabCache *c)
{
    int again = whole_open_at(c->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d && again >= 0) (void)close(again);
    uint32_t foreign = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        uint32_t slab;
        if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, ".."))) continue;
        bool whole = slab_of(e->d_name, &slab) && slab < c->count &&
                     fstatat(c->directory, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                     S_ISREG(st.st_mode) && (uint64_t)st.st_size == slab_bytes_of(c, slab);
        if (whole) {
            c->there[slab] = SLAB_THERE;
            c->counters.held_bytes += slab_bytes_of(c, slab);
        } else if (is_slab_name(e->d_name)) (void)unlinkat(c->directory, e->d_name, 0);
        else foreign++;
    }
    if (d) (void)closedir(d);
    say_foreign(c, foreign);
}

static void remove_slab(SlabCache *c, uint32_t slab)
{
    char name[NAME_BYTES];
    slab_name(name, slab);
    (void)unlinkat(c->directory, name, 0);
    c->counters.held_bytes -= c->there[slab] ? slab_bytes_of(c, slab) : 0;
    c->there[slab] = SLAB_NONE;
}

/* The cap may have become smaller since the last run. */
static void keep_cap(SlabCache *c)
{
    c->foreign_bytes = for_each_abandoned(c, count_file, false);
    if (over_cap(c, 0)) evict_abandoned(c);
    for (uint32_t i = c->count; i-- > 0 && over_cap(c, 0);)
        if (c->there[i]) {
            remove_slab(c, i);
            c->counters.evictions++;
        }
}

static Error open_directories(SlabCache *c, Why *why)
{
    const char *path = c->path;
    TRY(places_make_directory(path, 0777, why));
    c->parent = whole_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (c->parent < 0) return places_system_error(errno, path, why);
    if (mkdirat(c->parent, c->name, 0777) != 0 && errno != EEXIST)
        return places_system_error(errno, path, why);
    c->directory =
        whole_open_at(c->parent, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (c->directory < 0) return places_system_error(errno, path, why);
    if (flock(c->directory, LOCK_EX | LOCK_NB) != 0)
        return error_why(why, ERR_DUPLICATE, "%s/%s is another warden's", path, c->name);
    return OK;
}

Error slab_cache_open(const SlabCacheOptions *options, SlabCache **out, Why *why)
{
    SlabCache *c = calloc(1, sizeof *c);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a cache");
    c->options = *options;
    c->parent = c->directory = -1;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)snprintf(c->name, sizeof c->name, "%s", options->name);
    (void)snprintf(c->path, sizeof c->path, "%s", options->directory);
    c->options.name = c->options.directory = NULL; /* the caller's */
    c->count = (uint32_t)(options->index->knot.block_hashes.offset / WARDEN_SLAB_BYTES + 1);
    c->there = calloc(c->count, 1);
    Error e = c->there ? open_directories(c, why) : error_why(why, ERR_MEMORY, "a cache");
    if (e) {
        slab_cache_close(c);
        return e;
    }
    scan(c);
    keep_cap(c);
    *out = c;
    return OK;
}

void slab_cache_close(SlabCache *c)
{
    if (!c) return;
    if (c->directory >= 0) (void)close(c->directory);
    if (c->parent >= 0) (void)close(c->parent);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->there);
    free(c);
}

/* --- reading --- */

/* Exactly `bytes`, and nothing behind them. */
static bool read_whole(int directory, const char *name, uint64_t bytes, uint8_t *out)
{
    struct stat st;
    int fd = whole_open_at(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    bool good = fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes;
    good = good && whole_read(fd, 0, out, bytes);
    if (fd >= 0) (void)close(fd);
    return good;
}

static bool is_there(SlabCache *c, uint32_t slab)
{
    (void)pthread_mutex_lock(&c->lock);
    bool there = slab < c->count && c->there[slab] == SLAB_THERE;
    if (!there) c->counters.misses++;
    (void)pthread_mutex_unlock(&c->lock);
    return there;
}

bool slab_cache_get(SlabCache *c, uint32_t slab, uint64_t bytes, uint8_t *out)
{
    char name[NAME_BYTES];
    if (!is_there(c, slab)) return false;
    slab_name(name, slab);
    bool good = read_whole(c->directory, name, bytes, out) &&
                knot_index_check(c->options.index, (uint64_t)slab * WARDEN_SLAB_BYTES, bytes, out,
                                 NULL) == OK;
    (void)pthread_mutex_lock(&c->lock);
    if (good) c->counters.hits++;
    else c->counters.bad++;
    if (!good && c->there[slab] == SLAB_THERE) remove_slab(c, slab);
    (void)pthread_mutex_unlock(&c->lock);
    return good;
}

void slab_cache_forget(SlabCache *c, uint32_t slab)
{
    (void)pthread_mutex_lock(&c->lock);
    if (slab < c->count && c->there[slab] >= SLAB_WRITING) c->there[slab] = SLAB_DOOMED;
    else if (slab < c->count) remove_slab(c, slab);
    (void)pthread_mutex_unlock(&c->lock);
}

/* --- writing --- */

static bool wants(SlabCache *c, uint32_t slab, uint64_t bytes)
{
    if (slab >= c->count || c->there[slab]) return false;
    if (clock_now_s() < c->closed_until_s) return false;
    if (over_cap(c, bytes)) evict_abandoned(c);
    return !over_cap(c, bytes);
}

bool slab_cache_wants(SlabCache *c, uint32_t slab, uint64_t bytes)
{
    (void)pthread_mutex_lock(&c->lock);
    bool result = wants(c, slab, bytes);
    (void)pthread_mutex_unlock(&c->lock);
    return result;
}

/* Result  0, or the number of the system's error. */
static int write_file(const SlabCache *c, const char *temporary, const char *name, uint64_t bytes,
                      const uint8_t *data)
{
    int fd = whole_open_at(c->directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    int number = whole_write(fd, 0, data, bytes) && fsync(fd) == 0 ? 0 : errno;
    if (close(fd) != 0 && !number) number = errno;
    if (!number && renameat(c->directory, temporary, c->directory, name) != 0) number = errno;
    if (number) (void)unlinkat(c->directory, temporary, 0);
    else (void)fsync(c->directory);
    return number;
}

static void failed(SlabCache *c, int number)
{
    char line[256];
    c->closed_until_s = clock_now_s() + RETRY_S;
    c->counters.failures++;
    if (c->warned) return;
    c->warned = true;
    (void)snprintf(line, sizeof line, "the cache in %.120s keeps nothing new: %s", c->path,
                   strerror(number));
    tell_note(c->options.tell, line);
}

void slab_cache_put(SlabCache *c, uint32_t slab, uint64_t bytes, const uint8_t *data)
{
    char name[NAME_BYTES], temporary[NAME_BYTES];
    (void)pthread_mutex_lock(&c->lock);
    bool wanted = wants(c, slab, bytes);
    if (wanted) { /* counted before it is there, so that two writers keep the cap */
        c->there[slab] = SLAB_WRITING;
        c->counters.held_bytes += bytes;
    }
    (void)snprintf(temporary, sizeof temporary, ".%u.part", c->writing++);
    (void)pthread_mutex_unlock(&c->lock);
    if (!wanted) return;
    slab_name(name, slab);
    int number = write_file(c, temporary, name, bytes, data);
    (void)pthread_mutex_lock(&c->lock);
    if (number || c->there[slab] == SLAB_DOOMED) remove_slab(c, slab);
    else c->there[slab] = SLAB_THERE;
    if (number) failed(c, number);
    else {
        c->counters.writes++;
        c->warned = false;
    }
    (void)pthread_mutex_unlock(&c->lock);
}

SlabCacheCounters slab_cache_counters(SlabCache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    SlabCacheCounters result = c->counters;
    (void)pthread_mutex_unlock(&c->lock);
    return result;
}
