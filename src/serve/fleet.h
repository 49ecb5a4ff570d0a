/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator knows of the cluster's nodes: what each says of itself in GET /ready, beside what the
 * pipeline sees of it, and all of it as the text of GET /cluster.
 *
 *   fleet.c           a node's answer --> its report
 *   fleet_describe.c  reports, pipeline --> members of the object of GET /cluster
 *   fleet_whole.c     the same members of one process with every role */
#ifndef COBORD_SERVE_FLEET_H
#define COBORD_SERVE_FLEET_H

#include "api/memory_about.h"
#include "api/json_writer.h"
#include "cluster/pipeline.h"
#include "cluster/plan.h"

enum { FLEET_REPORT_BYTES = 8 << 10, FLEET_ERROR_BYTES = 160 }; /* of an answer, at most */

/* What a node last said of itself. */
typedef struct FleetReport {
    bool asked; /* once at least, whatever came of it */
    bool heard; /* the last time */
    bool ready;
    char state[16], version[32], owns[64];
    char error[FLEET_ERROR_BYTES]; /* why it is not heard, or not fit for this cluster */
    MemoryAbout memory;
    bool has_weights, weights_resident;
    uint64_t weight_bytes, pinned_bytes;
    bool has_hits; /* a warden: of its memory, and of its disk or database */
    uint64_t hits, misses, cached_bytes, l2_hits, l2_misses, store_bytes;
} FleetReport;

/* Of GET /ready: a status and a body, or none because of `why`. `error` of the report is empty when the node is fit. */
void fleet_hear(const ClusterFile *c, uint32_t node, unsigned status, const char *body,
                size_t bytes, FleetReport *report);
void fleet_miss(FleetReport *report, const char *why);

typedef struct Fleet {
    const ClusterFile *cluster;
    const ClusterNode *self; /* the coordinator */
    const char *version;     /* of the program */
    const Pipeline *pipeline;
    const FleetReport *reports; /* [node_count] */
    uint32_t chunk, frames;
    bool ready, complete;
    const char *missing; /* when it is not complete */
    uint64_t uptime_ms, own_calls;
    uint32_t refresh_ms; /* how often it is worth asking */
    uint32_t own_us;     /* the coordinator's own work on a frame, about; 0: not known */
    MemoryAbout memory;  /* of the coordinator */
} Fleet;

/* Lines of GET /metrics about stations and shards, at most fleet_metrics_bytes. Thread  any. */
size_t fleet_metrics_bytes(const ClusterFile *c);
void fleet_metrics(const ClusterFile *c, const Pipeline *p, JsonWriter *w);

size_t fleet_describe_room(const ClusterFile *c);
/* Members of the object of GET /cluster. */
size_t fleet_describe(const Fleet *fleet, char *out, size_t room);

/* ---- One process with every role */

/* What a step takes, about, of as many rows as the last. */
typedef struct FleetWholeTimes {
    uint64_t steps;
    uint32_t rows, embed_us, own_us;
    const uint32_t *role_us; /* of the plan's roles */
} FleetWholeTimes;

typedef struct FleetWhole {
    const Plan *plan;
    const char *model, *version;
    uint64_t knot_id, uptime_ms;
    MemoryAbout memory;
    FleetWholeTimes times;
} FleetWhole;

/* As fleet_describe. Result  0: it does not fit. */
size_t fleet_whole_describe(const FleetWhole *whole, char *out, size_t room);

#endif
