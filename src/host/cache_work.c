/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cache_work.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/encode_file.h"
#include "host/file_writer.h"
#include "host/knot_file.h"
#include "host/stop.h"
#include "host/whole.h"

Error cache_work_name(CacheWork *w, const char *name)
{
    if (name != w->name) (void)snprintf(w->name, sizeof w->name, "%s", name);
    TRY(places_models(w->models, sizeof w->models, w->why));
    TRY(places_join(w->directory, sizeof w->directory, w->models, ".", name, ".pull", w->why));
    return places_join(w->knot, sizeof w->knot, w->models, "", name, ".knot", w->why);
}

int cache_work_try_lock(CacheWork *w)
{
    if (mkdir(w->directory, 0777) != 0 && errno != EEXIST) return -1;
    w->lock = whole_open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (w->lock < 0) return errno == ENOENT ? 1 : -1;
    struct stat ours, now;
    if (flock(w->lock, LOCK_EX | LOCK_NB) == 0) {
        /* The one before may have removed the directory between our open and our lock. */
        if (fstat(w->lock, &ours) == 0 && stat(w->directory, &now) == 0 &&
            ours.st_ino == now.st_ino)
            return 0;
        errno = EWOULDBLOCK;
    }
    int number = errno;
    (void)close(w->lock);
    w->lock = -1;
    errno = number;
    return number == EWOULDBLOCK || number == EINTR ? 1 : -1;
}

Error cache_work_lock(CacheWork *w)
{
    for (bool told = false;; told = true) {
        int taken = cache_work_try_lock(w);
        if (taken == 0) return OK;
        if (taken < 0) return places_system_error(errno, w->directory, w->why);
        if (stop_asked())
            return error_why(w->why, ERR_CANCELLED, "while another pull of %s was under way",
                             w->name);
        char line[256];
        (void)snprintf(line, sizeof line, "another cobord is at work on %s: waiting for it",
                       w->name);
        if (!told) tell_note(w->tell, line);
        struct timespec t = {0, 200000000};
        (void)nanosleep(&t, NULL);
    }
}

void cache_work_clean(const CacheWork *w)
{
    DIR *d = opendir(w->directory);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (strncmp(e->d_name, "model", 5) == 0 && strstr(e->d_name, ".gguf")) continue;
        char path[PLACES_PATH_BYTES + 256];
        (void)snprintf(path, sizeof path, "%s/%s", w->directory, e->d_name);
        places_remove(path);
    }
    (void)closedir(d);
}

void cache_work_unlock(CacheWork *w, bool done)
{
    if (w->lock < 0) return;
    cache_work_clean(w);
    if (done) places_remove(w->directory);
    else (void)rmdir(w->directory); /* stays when there is something to go on with */
    (void)close(w->lock);
    w->lock = -1;
}

Error cache_work_check_knot(const char *path, const Tell *tell, Why *why)
{
    KnotFile file;
    TRY(knot_file_open(path, &file, why));
    Error error = knot_file_verify_once(&file, path, tell, why);
    knot_file_close(&file);
    return error;
}

static Error cache_work_write_origin(const CacheWork *w, const char *origin)
{
    char temporary[PLACES_PATH_BYTES], path[PLACES_PATH_BYTES];
    TRY(places_join(temporary, sizeof temporary, w->directory, "", "from", "", w->why));
    TRY(places_join(path, sizeof path, w->models, "", w->name, ".from", w->why));
    FileWriter writer;
    TRY(file_writer_open(&writer, temporary, 0, w->why));
    Error error = file_writer_append(&writer, origin, strlen(origin), w->why);
    if (error == OK) error = file_writer_append(&writer, "\n", 1, w->why);
    if (error == OK) error = file_writer_commit(&writer, w->why);
    else file_writer_abandon(&writer);
    if (error != OK) return error;
    return rename(temporary, path) == 0 ? OK : places_system_error(errno, path, w->why);
}

Error cache_work_place(CacheWork *w, const char *built, const char *origin)
{
    char from[PLACES_PATH_BYTES + 16], to[PLACES_PATH_BYTES + 16];
    TRY(cache_work_check_knot(built, w->tell, w->why));
    (void)unlink(w->knot); /* a stale one must not be seen beside the new origin */
    TRY(cache_work_write_origin(w, origin));
    (void)snprintf(from, sizeof from, "%s.checked", built);
    (void)snprintf(to, sizeof to, "%s.checked", w->knot);
    (void)rename(from, to);
    if (rename(built, w->knot) != 0) return places_system_error(errno, w->knot, w->why);
    file_writer_sync_directory(w->knot);
    return OK;
}

Error cache_work_build(CacheWork *w, const char *gguf, const char *origin)
{
    char built[PLACES_PATH_BYTES];
    TRY(places_join(built, sizeof built, w->directory, "", "model.knot", "", w->why));
    TRY(encode_file(gguf, built, 2, w->tell, w->why));
    return cache_work_place(w, built, origin);
}

void cache_work_tidy(const char *name)
{
    char models[PLACES_PATH_BYTES], directory[PLACES_PATH_BYTES];
    if (places_models(models, sizeof models, NULL) == OK &&
        places_join(directory, sizeof directory, models, ".", name, ".pull", NULL) == OK)
        (void)rmdir(directory);
}

static Error cache_work_encode_run(CacheWork *w, const char *gguf_path, const char *name,
                                   const char *origin)
{
    TRY(cache_work_name(w, name));
    TRY(cache_work_lock(w));
    cache_work_clean(w);
    Error error = cache_work_build(w, gguf_path, origin);
    cache_work_unlock(w, true);
    return error;
}

Error cache_work_encode(const char *gguf_path, const char *name, const char *origin,
                        const Tell *tell, char *knot_path, size_t path_bytes, Why *why)
{
    Why own;
    CacheWork *w = calloc(1, sizeof *w);
    if (!w) return error_why(why, ERR_MEMORY, "no memory to encode %s", gguf_path);
    *w = (CacheWork){.tell = tell, .why = why ? why : &own, .lock = -1};
    Error error = cache_work_encode_run(w, gguf_path, name, origin);
    if (error == OK) (void)snprintf(knot_path, path_bytes, "%s", w->knot);
    free(w);
    return error;
}
