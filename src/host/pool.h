/* SPDX-License-Identifier: Apache-2.0 */
/* The compute pool behind base/parallel.h: the caller and workers - 1 threads share the items of
 * one job at a time.
 *
 *   items   | 0 ......... | ......... | ......... n |     each worker owns a part, takes from its front,
 *             ->       <-   ->     <-   ->       <-       and when it is done from the others' back
 *
 * Owning a part keeps each thread's stream of memory sequential; stealing makes up for threads that
 * the system runs elsewhere. The caller never waits for a thread to arrive, only for items that
 * somebody took to finish: a thread that comes late finds nothing to do. Waiting threads spin for
 * some 20 us (a job follows a job), then sleep and cost nothing. */
#ifndef COBORD_HOST_POOL_H
#define COBORD_HOST_POOL_H

#include "base/error.h"
#include "base/parallel.h"

typedef struct Pool Pool;

/* `workers` counts the caller: 1..PARALLEL_WORKERS_MAX; 1 starts no thread.
 * Errors  ERR_RANGE, ERR_MEMORY (no memory or no thread to be had). Owner  pool_stop. */
MUST_CHECK Error pool_start(uint32_t workers, Pool **out, Why *why);

/* Ends and joins the threads. `pool` may be NULL. */
void pool_stop(Pool *pool);

/* The port. One caller at a time, and not from inside a job: either is a broken promise and aborts. */
Parallel pool_parallel(Pool *pool);

#endif
