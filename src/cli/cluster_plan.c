/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster_spread.h"
#include "host/cpu.h"
#include "host/file_writer.h"
#include "host/memory.h"
#include "host/probe.h"

static const uint64_t MEMORY_DEFAULT = (uint64_t)128 << 20;

/* With fewer rows at once a prompt passes all weights too often. */
enum { CHUNK_USEFUL = 16 };

/* A call's work at both ends beyond the bytes' way: HTTP, and a thread that wakes. */
static const double HTTP_US = 100;

/* ---- Who owns what */

static PlanRequest request_of(const Options *o, const OpenModel *model, const ClusterPlan *p)
{
    static ClusterNode nodes[CLUSTER_FILE_NODES_MAX];
    bool without_shards = options_given(o, OPTION_SHARDS) && !options_count(o, OPTION_SHARDS);
    return (PlanRequest){
        .knot = &model->file.knot,
        .hyper = &model->hyper,
        .memory_bytes =
            options_given(o, OPTION_MEMORY) ? options_count(o, OPTION_MEMORY) : MEMORY_DEFAULT,
        .process_bytes = p->process_bytes ? p->process_bytes : PLAN_PROCESS_BYTES,
        .stations = (uint32_t)options_count(o, OPTION_STATIONS),
        .shards = (uint32_t)options_count(o, OPTION_SHARDS),
        .embed = without_shards,
        .head = without_shards,
        .context = (uint32_t)options_count(o, OPTION_CONTEXT),
        .chunk = (uint32_t)options_count(o, OPTION_CHUNK),
        .frames = (uint32_t)options_count(o, OPTION_PIPELINE),
        .workers = p->threads ? p->threads : cpu_cores(),
        .replicas = (uint32_t)options_count(o, OPTION_REPLICAS),
        .wardens = options_switch(o, OPTION_WARDENS),
        .nodes = nodes,
        .cache = options_count(o, OPTION_CACHE_TYPE) ? CACHE_Q8_0 : CACHE_F16,
        .kernels = kernels_for(ISA_SCALAR),
        .ops = ops_for(ISA_SCALAR),
    };
}

static Error make_here(const Options *o, ClusterPlan *p, PlanRequest *request, Why *why)
{
    uint32_t workers = (uint32_t)options_count(o, OPTION_WORKERS);
    if (workers) {
        if (workers < 2)
            return error_why(why, ERR_RANGE, "%u workers; a station and a shard need at least 2",
                             workers);
        plan_split_workers(request->knot, request->hyper, workers, &request->stations,
                           &request->shards);
    }
    if (!request->stations) request->stations = PLAN_STATIONS_DEFAULT;
    if (!request->shards && !request->head) request->shards = PLAN_SHARDS_DEFAULT;
    if (options_text(o, OPTION_RANGES)) {
        request->ranges = p->ranges;
        TRY(phase_parse_ranges(options_text(o, OPTION_RANGES), request->hyper->layers, p->ranges,
                               PLAN_ROLES_MAX, &request->stations, why));
    }
    return plan_make(request, &p->plan, why);
}

static Error make_once(const Options *o, const OpenModel *model, uint32_t slots, ClusterPlan *p,
                       Why *why)
{
    PlanRequest request = request_of(o, model, p);
    request.sessions = request.logit_rows = slots;
    request.drafts = PLAN_DRAFTS_DEFAULT;
    if (!p->hosts.count) return make_here(o, p, &request, why);
    if (!options_given(o, OPTION_MEMORY)) request.memory_bytes = 0;
    return cluster_spread_make(p, &request, why);
}

static bool is_resident(const Plan *plan)
{
    for (uint32_t i = 0; i < plan->role_count; i++)
        if (plan->role[i].pinned_bytes < plan->role[i].weight_bytes) return false;
    return true;
}

/* A useful context and a useful chunk, or those that were asked for. */
static bool is_useful(const Options *o, const Hyper *hyper, const Plan *plan)
{
    uint32_t useful = hyper->context && hyper->context < PLAN_CONTEXT_USEFUL ? hyper->context
                                                                             : PLAN_CONTEXT_USEFUL;
    return (options_given(o, OPTION_CONTEXT) || plan->context >= useful) &&
           (options_given(o, OPTION_CHUNK) || plan->chunk >= CHUNK_USEFUL);
}

/* Without --slots: four conversations, or two, with which the weights stay resident; else four or two with
 * which they do not; else one. */
static Error make_with_slots(const Options *o, const OpenModel *model, ClusterPlan *p, Why *why)
{
    static const struct {
        uint32_t slots;
        bool resident;
    } choices[] = {{4, true}, {2, true}, {4, false}, {2, false}};
    if (options_given(o, OPTION_SLOTS))
        return make_once(o, model, (uint32_t)options_count(o, OPTION_SLOTS), p, why);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        Error error = make_once(o, model, choices[i].slots, p, why);
        if (error != OK && error != ERR_PLAN) return error;
        if (error != OK || !is_useful(o, &model->hyper, &p->plan)) continue;
        if (!choices[i].resident || is_resident(&p->plan)) return OK;
    }
    return make_once(o, model, 1, p, why);
}

/* ---- Names in the file */

static Error name_knot(ClusterPlan *p, const OpenModel *model, Why *why)
{
    char models[PLACES_PATH_BYTES], folder[PLACES_PATH_BYTES];
    char *real = realpath(model->path, NULL);
    const char *path = real ? real : model->path;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t folder_bytes = slash ? (size_t)(slash - path) : 0;
    Error error = OK;
    memcpy(folder, path, folder_bytes < sizeof folder ? folder_bytes : 0);
    folder[folder_bytes < sizeof folder ? folder_bytes : 0] = '\0';
    char *real_models =
        places_models(models, sizeof models, NULL) == OK ? realpath(models, NULL) : NULL;
    if (real_models && strcmp(folder, real_models) == 0) folder[0] = '\0'; /* each machine's own */
    if (strlen(base) >= sizeof p->knot_key || strlen(folder) >= sizeof p->store)
        error = error_why(why, ERR_TOO_LARGE, "the path of the model: %s", path);
    else {
        (void)snprintf(p->knot_key, sizeof p->knot_key, "%s", base);
        (void)snprintf(p->store, sizeof p->store, "%s", folder);
    }
    free(real_models);
    free(real);
    return error;
}

static Error list_places(ClusterPlan *p, Why *why)
{
    TRY(plan_cluster_places(&p->request, NULL, 0, &p->place_count, why));
    p->places = calloc(p->place_count, sizeof *p->places);
    p->addresses = calloc(p->place_count, sizeof *p->addresses);
    if (!p->places || !p->addresses) return error_why(why, ERR_MEMORY, "the list of nodes");
    return plan_cluster_places(&p->request, p->places, p->place_count, &p->place_count, why);
}

/* On this machine a file's nodes may be started from anywhere. On others a relative path is beside the cluster file. */
static Error name_key(ClusterPlan *p, const char *given, Why *why)
{
    char here[PLACES_PATH_BYTES];
    if (!given || given[0] == '/' || p->hosts.count || !getcwd(here, sizeof here)) {
        if (given && strlen(given) >= sizeof p->key_file)
            return error_why(why, ERR_TOO_LARGE, "the path of the key");
        (void)snprintf(p->key_file, sizeof p->key_file, "%s", given ? given : "");
        return OK;
    }
    return places_join(p->key_file, sizeof p->key_file, here, "", given, "", why);
}

Error cluster_plan_make(const Options *o, const char *model_name, const OpenModel *model,
                        const Hosts *hosts, ClusterPlan *p, Why *why)
{
    *p = (ClusterPlan){.process_bytes = p->process_bytes, .threads = p->threads};
    if (hosts) p->hosts = *hosts;
    TRY(make_with_slots(o, model, p, why));
    static const RowsElement elements[] = {ROWS_F32, ROWS_F16, ROWS_INT8};
    model_name_of(model_name, p->name);
    TRY(name_knot(p, model, why));
    TRY(name_key(p, options_text(o, OPTION_KEY_FILE), why));
    p->request = (PlanClusterRequest){
        .plan = &p->plan,
        .replicas = (uint32_t)options_count(o, OPTION_REPLICAS),
        .wardens = options_switch(o, OPTION_WARDENS),
        .warden_memory_bytes = options_count(o, OPTION_WARDEN_MEMORY),
        .shard_machine = p->role_machine + p->plan.request.stations,
        .model_name = p->name,
        .knot_key = p->knot_key,
        .store = p->store,
        .key_file = p->key_file,
        .element = elements[options_count(o, OPTION_ELEMENT)],
        .directory = "",
    };
    return list_places(p, why);
}

void cluster_plan_free(ClusterPlan *p)
{
    free(p->places);
    free(p->addresses);
    free(p->memory);
    p->places = NULL;
    p->addresses = NULL;
    p->memory = NULL;
    p->file.nodes = NULL;
}

/* ---- The price */

static void measure_here(ClusterPlan *p)
{
    CostMachine *m = &p->machine[0];
    uint64_t weights = 0;
    for (uint32_t i = 0; i < p->plan.role_count; i++) weights += p->plan.role[i].weight_bytes;
    double bandwidth = probe_bandwidth_gbs(), hop = probe_loopback_us();
    *m = (CostMachine){.bandwidth_gbs = bandwidth > 0 ? bandwidth : COST_BANDWIDTH_GBS,
                       .hop_us = hop > 0 ? hop + HTTP_US : COST_HOP_US,
                       .network_gbs = 10 * COST_NETWORK_GBS, /* loopback copies */
                       .memory_bytes = memory_allowed()};
    p->bandwidth_measured[0] = bandwidth > 0;
    p->hop_measured[0] = hop > 0;
    p->stream_is_cached[0] = memory_available() > weights;
    m->stream_gbs = p->stream_is_cached[0] ? m->bandwidth_gbs : COST_STREAM_GBS;
}

static void assume_host(ClusterPlan *p, uint32_t i)
{
    const HostEntry *e = &p->hosts.entry[i];
    p->machine[i] = (CostMachine){
        .bandwidth_gbs = e->speed_gbs > 0 ? e->speed_gbs : COST_BANDWIDTH_GBS,
        .stream_gbs = COST_STREAM_GBS,
        .hop_us = e->ping_us > 0 ? e->ping_us : COST_HOP_US,
        .network_gbs = COST_NETWORK_GBS,
        .memory_bytes = e->memory_bytes,
    };
    p->bandwidth_measured[i] = e->speed_gbs > 0;
    p->hop_measured[i] = e->ping_us > 0;
}

Error cluster_plan_price(ClusterPlan *p, Why *why)
{
    if (p->hosts.count) hosts_ping(&p->hosts);
    else measure_here(p);
    for (uint32_t i = 0; i < p->hosts.count; i++) assume_host(p, i);
    CostRequest request = {.plan = &p->plan,
                           .element = p->request.element,
                           .machine = p->machine,
                           .machines = p->hosts.count ? p->hosts.count : 1,
                           .role_machine = p->role_machine};
    return cost_of(&request, &p->cost, why);
}

/* ---- The file */

Error cluster_plan_address_hosts(ClusterPlan *p, uint16_t port_first, Why *why)
{
    uint32_t used[HOSTS_MAX] = {0};
    for (uint32_t i = 0; i < p->place_count; i++) {
        uint32_t machine = cluster_spread_machine(p, &p->places[i]);
        const HostEntry *e = &p->hosts.entry[machine];
        uint32_t port = (e->port ? e->port : port_first) + used[machine]++;
        if (port > UINT16_MAX)
            return error_why(why, ERR_RANGE, "%s needs port %u; give %s a lower one",
                             p->places[i].id, port, e->host);
        p->addresses[i] = (PlanAddress){.host = e->host, .port = (uint16_t)port};
    }
    return OK;
}

Error cluster_plan_file(ClusterPlan *p, Why *why)
{
    size_t bytes = plan_cluster_arena_bytes(p->place_count);
    p->memory = malloc(bytes);
    if (!p->memory) return error_why(why, ERR_MEMORY, "the list of nodes");
    Arena arena = arena_make(p->memory, bytes);
    return plan_cluster(&p->request, p->addresses, &arena, &p->file, why);
}

Error cluster_plan_write(const ClusterPlan *p, const char *path, Why *why)
{
    FileWriter writer;
    size_t bytes;
    char *text = malloc(CLUSTER_FILE_BYTES_MAX);
    if (!text) return error_why(why, ERR_MEMORY, "the text of the cluster file");
    Error error = cluster_file_write(&p->file, text, CLUSTER_FILE_BYTES_MAX, &bytes, why);
    if (error == OK) error = file_writer_open(&writer, path, bytes, why);
    if (error == OK) {
        error = file_writer_append(&writer, text, bytes, why);
        if (error == OK) error = file_writer_commit(&writer, why);
        else file_writer_abandon(&writer);
    }
    free(text);
    return error;
}
