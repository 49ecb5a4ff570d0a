/* SPDX-License-Identifier: Apache-2.0 */
/* What carries out the wishes of stations and shards on this machine: one mapped knot, its window, one pool.
 * Shared by the engine (every role in one process) and a node (one role).
 * Owner  a worker stays where it was started: its port points to it.
 * Thread  one at a time; the pool's threads come and go inside a call. */
#ifndef COBORD_HOST_WORKER_H
#define COBORD_HOST_WORKER_H

#include <stdbool.h>

#include "cluster/shard.h"
#include "cluster/station.h"
#include "host/pool.h"
#include "host/weights.h"

typedef struct Worker {
    Weights weights;
    Pool *pool;
    Parallel pooled;   /* the pool's port */
    Parallel parallel; /* the same with one item more when used weights are to be dropped */
    /* Asked between two tiles of a station; stop_asked unless somebody sets another. */
    bool (*cancelled)(void *context);
    void *cancel_context;
} Worker;

/* Starts `threads` threads. Owner  the file outlives it; worker_stop. Errors  ERR_MEMORY. */
MUST_CHECK Error worker_start(Worker *w, const KnotFile *file, uint64_t pinned_bytes,
                              uint64_t window_bytes, uint32_t threads, Why *why);
void worker_stop(Worker *w);
void worker_set_cancel(Worker *w, bool (*cancelled)(void *context),
                       void *context); /* NULL: stop_asked */

/* Reads a station's resident vectors. Errors  ERR_TYPE, those of knot_file_intact. */
MUST_CHECK Error worker_read_floor(Worker *w, Station *s, Why *why);
/* Takes a frame through a station. Errors  those of station_begin and station_give, ERR_CANCELLED, those of
 * knot_file_intact: what is in the station's cache then is not to be used any more. */
MUST_CHECK Error worker_run_station(Worker *w, Station *s, const StationFrame *frame, Why *why);
/* Carries out what was begun on a shard. Errors  those of shard_give and knot_file_intact. */
MUST_CHECK Error worker_run_shard(Worker *w, Shard *s, Why *why);

#endif
