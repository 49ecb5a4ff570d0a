/* SPDX-License-Identifier: Apache-2.0 */
/* One node of a cluster file as this process: `cobord node --cluster FILE --id station-0`.
 *
 *   node_run:  find the id --> bind its address --> read key and certificate --> the role's function
 *              (node_roles, node.c): opens what it needs, serves until SIGTERM, returns
 *
 * The address is bound before anything is read, so that a port in use is known at once. */
#ifndef COBORD_HOST_NODE_H
#define COBORD_HOST_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/access.h"
#include "host/key.h"
#include "host/listen.h"
#include "host/tell.h"
#include "quant/kernels.h"
#include "wire/cluster_file.h"

enum { NODE_PATH_BYTES = 4096, NODE_LINE_BYTES = 512 };

typedef struct NodeOptions {
    uint32_t threads; /* 0: a station all cores, a shard 1 */
    bool isa_given;
    Isa isa;
    const char *version; /* of the program */
    uint32_t drain_s;    /* after a signal, how long what is under way may take */
    const Tell *tell;
    uint32_t queue_max; /* of a coordinator: answers that may wait */
    /* Of a coordinator: tokens guessed at most for a slot in a frame; 0: none. */
    uint32_t drafts;
    const char *draft; /* of a coordinator: who guesses for it (host/draft_model.h); NULL: nobody */
    uint64_t draft_memory_bytes; /* 0: three quarters of what its plan leaves of the budget */
    const char *journal;         /* of a coordinator; NULL: beside the cluster file; "none": none */
    const char *certificate_file, *certificate_key_file; /* of a coordinator's API, in place of the
                                                          * file's; NULL: those of the file */
    Access access;                                       /* to a coordinator's API */
} NodeOptions;

/* What every role starts with. */
typedef struct Node {
    const ClusterFile *cluster;
    const char *cluster_path;
    const ClusterNode *self;
    const NodeOptions *options;
    Listen listen;   /* a role that takes the socket sets fd to -1 */
    const char *key; /* NULL: none */
    const char *certificate_file, *certificate_key_file; /* NULL: no TLS */
} Node;

/* Serves until a signal asks for the end. Errors  ERR_NOT_FOUND (the id), ERR_NOT_AVAILABLE (the role is not built in),
 * those of listen_open, key_read and the role; the Why names the node where the fault is not in the file. */
MUST_CHECK Error node_run(const ClusterFile *cluster, const char *cluster_path, const char *id,
                          const NodeOptions *options, Why *why);

/* A path of the cluster file: as it is when it is absolute, else beside the cluster file. Errors  ERR_TOO_LARGE. */
MUST_CHECK Error node_path(const char *cluster_path, const char *path, char out[NODE_PATH_BYTES],
                           Why *why);

/* Reads a cluster file. Owner  *memory holds it: free. Errors  ERR_IO, ERR_NOT_FOUND, ERR_TOO_LARGE, those of
 * cluster_file_parse. */
MUST_CHECK Error node_read_cluster(const char *path, ClusterFile *out, void **memory, Why *why);

/* "station-0: layers 0-14 on http://127.0.0.1:9000": `what` is "layers 0-14". To standard output, at once; warns about
 * an address beyond this machine without a key. */
void node_announce(const Node *node, const char *what);
/* "cobord: station-0 (layers 0-14): WHAT: why" to standard error. */
void node_log(const Node *node, const char *range, const char *what, Error error, const Why *why);

#endif
