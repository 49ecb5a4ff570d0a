/* SPDX-License-Identifier: Apache-2.0 */
/* The port through which pure code fans out: the host passes a pool of threads, or `parallel_serial`.
 * Items are independent: results never depend on who runs one, or in which order. */
#ifndef COBORD_BASE_PARALLEL_H
#define COBORD_BASE_PARALLEL_H

#include <stdint.h>

/* Runs item 0 <= item < items on worker 0 <= worker < workers; two items never run on one worker
 * at once, so `worker` indexes scratch memory. */
typedef void (*ParallelJob)(void *argument, uint32_t item, uint32_t worker);

typedef struct Parallel {
    void (*run)(void *pool, ParallelJob job, void *argument, uint32_t items);
    void *pool;
    uint32_t workers; /* 1..PARALLEL_WORKERS_MAX */
} Parallel;

enum { PARALLEL_WORKERS_MAX = 64 };

/* Returns when every item has run. */
static inline void parallel_run(const Parallel *p, ParallelJob job, void *argument, uint32_t items)
{
    p->run(p->pool, job, argument, items);
}

/* One worker: the caller itself, items in order. */
extern const Parallel parallel_serial;

#endif
