/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of a cluster: a ServeEngine whose frames go through other processes.
 *
 *   serve's engine thread:  step --> pipeline_advance --> calls --> HTTP client --> nodes
 *                             ^      events                             |
 *                             '-- one answer, a wake, or time has passed --'
 *
 * One thread owns the pipeline, the client and everything behind them; others may only wake it, and look at a
 * snapshot that is made once a second: whether every range has a node, and the text of GET /cluster.
 *
 *   remote.c           opening, memory, step
 *   remote_own.c       calls that this process answers itself, from the knot, when no node of a shard does
 *   remote_watch.c     what nodes say of themselves, asked for every two seconds; lines for a person; what they
 *                      say and GET /cluster: serve/fleet.h
 *   remote_run.c       the role: a node of the cluster file with OpenAI's API
 *
 * Limits  cluster->memory_bytes, as a sum that is made before anything is taken. */
#ifndef COBORD_HOST_REMOTE_H
#define COBORD_HOST_REMOTE_H

#include "host/knot_file.h"
#include "host/node.h"
#include "quant/kernels.h"
#include "serve/serve.h"
#include "wire/cluster_file.h"

typedef struct RemoteOptions {
    /* Through which a shard's rows are fetched when the knot is not on this machine. */
    const Node *node;
    const ClusterFile *cluster;
    const ClusterNode *self;   /* the coordinator */
    const char *key, *ca_file; /* NULL: none */
    const char *version;       /* of the program */
    const KnotFile *file;      /* header and tokenizer at least */
    const char *path;          /* of the whole knot on this machine; NULL: it is not here */
    const Hyper *hyper;
    uint32_t threads; /* of its own shard work; 0: 1 */
    uint32_t drafts;  /* guesses of a slot in a frame, at most; 0: none */
    const Kernels *kernels;
} RemoteOptions;

typedef struct Remote Remote;

/* Owner  remote_close; what the options point to outlives it.
 * Errors  ERR_PLAN (the sum), ERR_MEMORY, ERR_RANGE, those of http_client_open. */
MUST_CHECK Error remote_open(const RemoteOptions *options, Remote **out, Why *why);
/* Tells the stations which attention caches are not needed any more, if they listen. */
void remote_close(Remote *r);

ServeEngine remote_engine(Remote *r);
/* What answers with a form may take beside the sum, and beside what the coordinator may have to read of a shard. */
size_t remote_form_bytes(const Remote *r);
/* The sum that was made of what it takes, the whole process counted. */
uint64_t remote_need_bytes(const Remote *r);

/* The role: serves until a signal asks for the end. Errors  those of node_model_open, of the tokenizer, of
 * remote_open and api_server_open. */
MUST_CHECK Error remote_run(Node *node, Why *why);

#endif
