/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to a plan over one or several machines, its price, and its cluster file: what `plan`
 * shows and `up` starts.
 *
 *   --hosts none      two stations and eight shards, or what --stations, --shards, --workers, --ranges say, all here
 *   --hosts given     memory of a process = --memory, or the smallest machine's memory / its processes
 *                     a station and a shard each, and more as far as its memory goes until nothing is streamed
 *                     layers and ids by speed within what the processes of a machine can keep
 *   the coordinator is on the first machine */
#ifndef COBORD_CLI_CLUSTER_PLAN_H
#define COBORD_CLI_CLUSTER_PLAN_H

#include "cli/hosts.h"
#include "cli/model_name.h"
#include "cli/options.h"
#include "cluster/cost.h"
#include "cluster/plan_cluster.h"
#include "host/open_model.h"
#include "host/places.h"

/* Options of a verb that plans a cluster. */
#define CLUSTER_PLAN_OPTIONS                                                                    \
    OPTION_STATIONS, OPTION_SHARDS, OPTION_RANGES, OPTION_MEMORY, OPTION_CONTEXT, OPTION_SLOTS, \
        OPTION_CHUNK, OPTION_CACHE_TYPE, OPTION_ELEMENT, OPTION_PIPELINE, OPTION_REPLICAS,      \
        OPTION_WARDENS, OPTION_WARDEN_MEMORY, OPTION_KEY_FILE, OPTION_LISTEN

typedef struct ClusterPlan {
    /* Set by who plans for other processes than the program's own; they outlive cluster_plan_make. */
    uint64_t process_bytes; /* 0: PLAN_PROCESS_BYTES */
    uint32_t threads;       /* of a process; 0: one a core of this machine */
    Hosts hosts;
    PhaseRange ranges[PLAN_ROLES_MAX];
    uint32_t id_ends[PLAN_ROLES_MAX];
    Plan plan;
    char key_file[PLACES_PATH_BYTES];
    uint32_t role_machine[PLAN_ROLES_MAX]; /* of stations, then shards; 0 without hosts */
    CostMachine machine[HOSTS_MAX];
    bool bandwidth_measured[HOSTS_MAX], hop_measured[HOSTS_MAX], stream_is_cached[HOSTS_MAX];
    Cost cost;
    PlanClusterRequest request;
    char name[MODEL_NAME_BYTES], store[CLUSTER_FILE_TEXT_BYTES_MAX + 1],
        knot_key[CLUSTER_FILE_TEXT_BYTES_MAX + 1];
    PlanPlace *places;
    PlanAddress *addresses; /* [place_count]: to be filled before cluster_plan_file */
    uint32_t place_count;
    void *memory;
    ClusterFile file; /* nodes NULL before cluster_plan_file */
} ClusterPlan;

/* Plans. `hosts` NULL: this machine. Owner  the model outlives it; cluster_plan_free, also after an error.
 * Errors  ERR_PLAN (the Why is the sum), ERR_RANGE, ERR_USAGE, ERR_MEMORY. */
MUST_CHECK Error cluster_plan_make(const Options *o, const char *model_name, const OpenModel *model,
                                   const Hosts *hosts, ClusterPlan *out, Why *why);
/* Measures what is cheap to measure here, and fills machine and cost. */
MUST_CHECK Error cluster_plan_price(ClusterPlan *p, Why *why);
/* Addresses of --hosts: the coordinator at the first's port (or --listen's), the others from there on.
 * Owner  they borrow from p->hosts. */
MUST_CHECK Error cluster_plan_address_hosts(ClusterPlan *p, uint16_t port_first, Why *why);
MUST_CHECK Error cluster_plan_file(ClusterPlan *p, Why *why);
/* Writes the cluster file: temporary name, rename. Errors  ERR_IO, ERR_NO_SPACE, ERR_CAPACITY, ERR_MEMORY. */
MUST_CHECK Error cluster_plan_write(const ClusterPlan *p, const char *path, Why *why);
void cluster_plan_free(ClusterPlan *p);

#endif
