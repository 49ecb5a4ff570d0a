/* SPDX-License-Identifier: Apache-2.0 */
/* What stations and shards share as nodes: model, memory, worker, the server's life, what /ready and /metrics say.
 *
 *   sizes known --> server answers /health, /ready says "loading" --> hashes checked, role built --> "ready"
 *                                                                             |  POST /drain, SIGTERM
 *                                                                             v
 *                                                                         "draining": new frames get 503
 *
 * Thread  the role's routes run on one thread, the server's; /ready and /metrics on the HTTP thread look at what is
 * atomic, and at the texts under the lock. */
#ifndef COBORD_HOST_NODE_WORK_H
#define COBORD_HOST_NODE_WORK_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/node_about.h"
#include "host/node.h"
#include "host/node_memory.h"
#include "host/node_model.h"
#include "host/node_server.h"
#include "host/worker.h"

typedef struct NodeWork NodeWork;

typedef struct NodeWorkRole {
    const NodeRoute *routes; /* their context is the NodeWork */
    uint32_t route_count;
    /* The role's part of the sum, for its present range. */
    Error (*size)(NodeWork *w, NodeMemory *m, Why *why);
    /* Builds the role; the worker stands. Owner  nothing but memory of the arena and the scratch. */
    Error (*build)(NodeWork *w, Arena *arena, void *scratch, Why *why);
    /* "layers 0-14", "ids 0 to 6144". */
    void (*name_range)(const NodeWork *w, char out[NODE_ABOUT_RANGE_BYTES]);
    /* The object of /ready; lines of /metrics. */
    void (*describe)(const NodeWork *w, const NodeAbout *a, JsonWriter *out);
    void (*write_metrics)(const NodeWork *w, JsonWriter *out);
} NodeWorkRole;

typedef struct NodeWorkFigures {
    atomic_ullong calls, failures, compute_us;
    atomic_ullong weight_bytes, tiles, phase_loads, dropped_bytes;
} NodeWorkFigures;

struct NodeWork {
    Node *node;
    const NodeWorkRole *role;
    NodeModel model;
    NodeMemory memory;
    Worker worker;
    NodeServer *server;
    const Kernels *kernels;
    const Ops *ops;
    uint32_t threads, chunk, logit_rows;
    atomic_bool loaded, drained;
    NodeWorkFigures figures;
    NodeRequest *current; /* being computed; for the worker's cancelled() */
    pthread_mutex_t lock;
    char range[NODE_ABOUT_RANGE_BYTES];                                    /* under the lock */
    uint64_t loaded_total_bytes, loaded_pinned_bytes, loaded_weight_bytes; /* under the lock */
    bool loaded_resident;                                                  /* under the lock */
    uint64_t last_log_ns;
};

/* Opens, serves, ends. `w` is zero except for what the role put behind it. */
MUST_CHECK Error node_work_run(NodeWork *w, Node *node, const NodeWorkRole *role,
                               uint32_t threads_default, Why *why);

/* The role has another range now: its memory is given back and taken anew. Result  an error leaves it without any,
 * which only a wrong sum or a lack of memory can do; node_work_fits has looked before. */
MUST_CHECK Error node_work_rebuild(NodeWork *w, const NodeMemory *sum, Why *why);
/* Whether the role fits with its present range. */
MUST_CHECK Error node_work_fits(NodeWork *w, NodeMemory *sum, Why *why);

/* Refuses a request that comes too early or too late. true: it has its answer. */
bool node_work_refuses(NodeWork *w, NodeRequest *r);
/* Answers with an error and, when it is worth it, says so in the log. */
void node_work_fail(NodeWork *w, NodeRequest *r, const char *what, Error error, const Why *why);
/* Begins and ends the time that counts as computing. Result  of end: microseconds. */
uint64_t node_work_begin(NodeWork *w, NodeRequest *r);
uint32_t node_work_end(NodeWork *w, uint64_t begun_ns);

/* The answer to POST /configure: the new range is announced, or the old one stays. */
void node_work_configured(NodeWork *w, NodeRequest *r, Error error, const Why *why);
/* POST /drain. */
void node_work_drain(void *work, NodeRequest *r);

#endif
