/* SPDX-License-Identifier: Apache-2.0 */
/* Work on one model of the cache: a directory models/.NAME.pull, locked by whoever works on NAME, and what turns
 * a GGUF file in it into a verified knot under its final name. Downloads are pull.h's. */
#ifndef COBORD_HOST_CACHE_WORK_H
#define COBORD_HOST_CACHE_WORK_H

#include <stdbool.h>

#include "host/places.h"
#include "host/tell.h"

typedef struct CacheWork {
    const Tell *tell; /* stages "encode", "verify" */
    Why *why;         /* not NULL */
    char name[PLACES_NAME_BYTES];
    char models[PLACES_PATH_BYTES];
    char directory[PLACES_PATH_BYTES]; /* models/.NAME.pull */
    char knot[PLACES_PATH_BYTES];      /* models/NAME.knot */
    int lock;                          /* -1: not held */
} CacheWork;

/* Sets the name and the paths. Errors  those of places.h. */
MUST_CHECK Error cache_work_name(CacheWork *w, const char *name);

/* Takes the directory: 0 taken, 1 held by another, -1 failed (errno). */
int cache_work_try_lock(CacheWork *w);
/* Waits for whoever has it, and says so once. Errors  ERR_CANCELLED, those of places_system_error. */
MUST_CHECK Error cache_work_lock(CacheWork *w);
/* Removes all but partial downloads and their tags. */
void cache_work_clean(const CacheWork *w);
/* `done`: with all in it; else the directory stays when there is something to go on with. */
void cache_work_unlock(CacheWork *w, bool done);

/* Opens a knot and checks all of it, once per file. Errors  those of knot_file.h. */
MUST_CHECK Error cache_work_check_knot(const char *path, const Tell *tell, Why *why);
/* Moves `built`, which is complete, to its name, and the note that it was checked with it; writes NAME.from. */
MUST_CHECK Error cache_work_place(CacheWork *w, const char *built, const char *origin);
/* Encodes a GGUF file and places the knot. Errors  those of encode_file and knot_file. */
MUST_CHECK Error cache_work_build(CacheWork *w, const char *gguf, const char *origin);

/* What a process that was killed at the very end left: an empty directory. */
void cache_work_tidy(const char *name);

/* All of it for a GGUF file that stays where it is. `origin` is written beside the knot. */
MUST_CHECK Error cache_work_encode(const char *gguf_path, const char *name, const char *origin,
                                   const Tell *tell, char *knot_path, size_t path_bytes, Why *why);

#endif
