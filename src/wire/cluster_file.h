/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster file: who is in a cluster, what each owns, where it listens (docs/format/cluster.md).
 *
 *   nodes   coordinator | station, its replicas, station, .. | shard, its replicas, .. | wardens
 *
 * A file that was read has passed every check of that page: ranges meet end to end, no id and no
 * address twice, wardens exist and cover. */
#ifndef COBORD_WIRE_CLUSTER_FILE_H
#define COBORD_WIRE_CLUSTER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/ops.h"
#include "model/phase.h"
#include "wire/rows.h"

enum {
    CLUSTER_FILE_VERSION = 1,
    CLUSTER_FILE_BYTES_MAX = 1 << 20,
    CLUSTER_FILE_NODES_MAX = 1024,
    CLUSTER_FILE_ID_BYTES = 24, /* "shard-warden-9999", NUL included */
    CLUSTER_FILE_HOST_BYTES_MAX = 253,
    CLUSTER_FILE_TEXT_BYTES_MAX = 511,
    CLUSTER_FILE_SOCKET_BYTES_MAX = 107, /* of a Unix address */
    CLUSTER_FILE_PIPELINE_MAX = 64
};
#define CLUSTER_FILE_NONE UINT32_MAX

typedef enum ClusterRole {
    CLUSTER_COORDINATOR,
    CLUSTER_STATION,
    CLUSTER_SHARD,
    CLUSTER_LAYER_WARDEN,
    CLUSTER_SHARD_WARDEN,
    CLUSTER_ROLES
} ClusterRole;

typedef struct ClusterNode {
    ClusterRole role;
    char id[CLUSTER_FILE_ID_BYTES];
    const char *host; /* IPv6 without brackets */
    uint16_t port;
    PhaseRange range;           /* stations, layer wardens */
    uint32_t id_first, id_last; /* shards, shard wardens */
    uint32_t part;              /* number of the range within its role; replicas share it */
    bool is_replica;
    bool embed, head;     /* stations; replicas as their station */
    uint32_t warden;      /* index of a node, or CLUSTER_FILE_NONE; replicas as their node */
    const char *cache;    /* wardens: where goes what does not fit their memory; "": nowhere */
    uint64_t cache_bytes; /* at most there; 0: no limit */
    const char *socket;   /* wardens: path of the Unix socket; "": none */
} ClusterNode;

typedef struct ClusterFile {
    const char *model_name, *knot_key, *store;
    uint64_t knot_id;
    uint32_t layers, vocabulary;
    uint64_t memory_bytes, warden_memory_bytes;
    uint32_t context, chunk, sessions;
    uint32_t pipeline; /* frames under way; as many as stations when the file says 0 */
    CacheType cache;
    RowsElement element;
    const char *key_file;                           /* "": none */
    const char *tls_certificate, *tls_key, *tls_ca; /* paths; "": none, and then plain HTTP */
    ClusterNode *nodes;                             /* in the order of the drawing */
    uint32_t node_count;
    uint32_t parts[CLUSTER_ROLES]; /* ranges of a role, replicas not counted */
} ClusterFile;

/* A size that surely suffices to parse a file of so many bytes. */
size_t cluster_file_arena_bytes(size_t text_bytes);

/* Owner  everything in `out` is in `arena`; `text` is not needed afterwards.
 * Errors  ERR_FORMAT (JSON, a member's type, an unknown member), ERR_UNSUPPORTED (version), ERR_RANGE,
 * ERR_DUPLICATE, ERR_NOT_FOUND (a warden), ERR_USAGE (a bound), ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error cluster_file_parse(const char *text, size_t bytes, Arena *arena, ClusterFile *out,
                                    Why *why);

/* What holds between members, for files made by a plan: cluster_file_parse has done it.
 * Errors  ERR_RANGE, ERR_DUPLICATE, ERR_NOT_FOUND. */
MUST_CHECK Error cluster_file_check(const ClusterFile *c, Why *why);

/* Writes a checked file as JSON. Errors  ERR_CAPACITY. */
MUST_CHECK Error cluster_file_write(const ClusterFile *c, char *out, size_t room, size_t *bytes,
                                    Why *why);

/* NULL when there is none. */
const ClusterNode *cluster_file_find(const ClusterFile *c, const char *id);
/* The node that has part `part` of a role as its first: index into nodes, or CLUSTER_FILE_NONE. Its
 * replicas follow it. */
uint32_t cluster_file_part(const ClusterFile *c, ClusterRole role, uint32_t part);

const char *cluster_file_role_name(ClusterRole role); /* "station", "layer-warden", ... */
bool cluster_file_is_warden(ClusterRole role);        /* of either kind */
/* "station-3": role and number. Errors  ERR_FORMAT. */
MUST_CHECK Error cluster_file_parse_id(const char *text, size_t bytes, ClusterRole *role,
                                       uint32_t *number, Why *why);
/* "station-3" into out; `number` is at most 9999. */
void cluster_file_make_id(ClusterRole role, uint32_t number, char out[CLUSTER_FILE_ID_BYTES]);
/* "HOST:PORT" or "[IPv6]:PORT": where the host is in `text`, and the port. Errors  ERR_FORMAT. */
MUST_CHECK Error cluster_file_parse_address(const char *text, size_t bytes, size_t *host_at,
                                            size_t *host_bytes, uint16_t *port, Why *why);

#endif
