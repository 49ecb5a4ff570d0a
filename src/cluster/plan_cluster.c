/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/plan_cluster.h"

#include <string.h>

#include "knot/emit.h"

enum { PATH_BYTES = CLUSTER_FILE_TEXT_BYTES_MAX + 1 };

/* Below it a warden would have room for no more than a tile on its way. */
static const uint64_t WARDEN_HELD_BYTES_MIN = (uint64_t)8 << 20;

static uint64_t plan_cluster_held(const PlanClusterRequest *r)
{
    uint64_t process = r->plan->request.process_bytes;
    return r->warden_memory_bytes > process ? r->warden_memory_bytes - process : 0;
}

/* ---- Shard wardens: neighbours on one machine, as many as fit, at least one. */

static uint32_t plan_cluster_group_end(const PlanClusterRequest *r, uint32_t first)
{
    const PlanRequest *p = &r->plan->request;
    const PlanRole *shards = r->plan->role + p->stations;
    uint64_t bytes = shards[first].weight_bytes;
    uint32_t last = first + 1;
    for (; last < p->shards; last++) {
        bool moved = r->shard_machine && r->shard_machine[last] != r->shard_machine[first];
        bytes += shards[last].weight_bytes;
        if (moved || bytes > plan_cluster_held(r)) break;
    }
    return last;
}

/* The group that a shard is in. */
static uint32_t plan_cluster_group_of(const PlanClusterRequest *r, uint32_t shard)
{
    uint32_t group = 0;
    for (uint32_t end = plan_cluster_group_end(r, 0); end <= shard; group++)
        end = plan_cluster_group_end(r, end);
    return group;
}

uint32_t plan_cluster_warden_shard(const PlanClusterRequest *r, uint32_t warden)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < warden; i++) first = plan_cluster_group_end(r, first);
    return first;
}

PlanWarden plan_cluster_warden(const PlanClusterRequest *r, const PlanPlace *place)
{
    const PlanRequest *p = &r->plan->request;
    const PlanRole *shards = r->plan->role + p->stations;
    PlanWarden w = {.process_bytes = p->process_bytes};
    if (place->role == CLUSTER_LAYER_WARDEN) {
        w.range = r->plan->role[place->part].range;
        w.weight_bytes = r->plan->role[place->part].weight_bytes;
    } else {
        uint32_t first = plan_cluster_warden_shard(r, place->part);
        uint32_t last = plan_cluster_group_end(r, first);
        w.id_first = shards[first].id_first;
        w.id_last = shards[last - 1].id_last;
        for (uint32_t i = first; i < last; i++) w.weight_bytes += shards[i].weight_bytes;
    }
    uint64_t room = plan_cluster_held(r);
    w.held_bytes = w.weight_bytes < room ? w.weight_bytes : room;
    w.total_bytes = w.process_bytes + w.held_bytes;
    return w;
}

/* ---- Places */

typedef struct PlaceList {
    PlanPlace *out;
    uint32_t room, count;
} PlaceList;

static Error plan_cluster_add(PlaceList *list, ClusterRole role, uint32_t part, uint32_t replica,
                              uint32_t number, Why *why)
{
    if (list->count == CLUSTER_FILE_NODES_MAX || number > 9999)
        return error_why(why, ERR_RANGE, "more than %d nodes", CLUSTER_FILE_NODES_MAX);
    uint32_t i = list->count++;
    if (!list->out) return OK;
    if (i >= list->room) return error_why(why, ERR_CAPACITY, "room for %u places", list->room);
    list->out[i] = (PlanPlace){.role = role, .part = part, .replica = replica};
    cluster_file_make_id(role, number, list->out[i].id);
    return OK;
}

static Error plan_cluster_add_parts(const PlanClusterRequest *r, PlaceList *list, ClusterRole role,
                                    uint32_t parts, Why *why)
{
    for (uint32_t part = 0; part < parts; part++)
        for (uint32_t replica = 0; replica <= r->replicas; replica++)
            TRY(plan_cluster_add(list, role, part, replica, parts * replica + part, why));
    return OK;
}

static Error plan_cluster_add_wardens(const PlanClusterRequest *r, PlaceList *list, Why *why)
{
    const PlanRequest *p = &r->plan->request;
    if (plan_cluster_held(r) < WARDEN_HELD_BYTES_MIN)
        return error_why(
            why, ERR_PLAN,
            "warden: process %llu MiB + weights at least %llu MiB, more than the %llu MiB "
            "allowed. Give more with --warden-memory.",
            (unsigned long long)p->process_bytes >> 20,
            (unsigned long long)WARDEN_HELD_BYTES_MIN >> 20,
            (unsigned long long)r->warden_memory_bytes >> 20);
    for (uint32_t i = 0; i < p->stations; i++)
        TRY(plan_cluster_add(list, CLUSTER_LAYER_WARDEN, i, 0, i, why));
    uint32_t group = 0;
    for (uint32_t first = 0; first < p->shards; group++) {
        TRY(plan_cluster_add(list, CLUSTER_SHARD_WARDEN, group, 0, group, why));
        first = plan_cluster_group_end(r, first);
    }
    return OK;
}

Error plan_cluster_places(const PlanClusterRequest *r, PlanPlace *out, uint32_t room,
                          uint32_t *count, Why *why)
{
    const PlanRequest *p = &r->plan->request;
    PlaceList list = {.out = out, .room = room};
    ASSERT(!p->solo);
    if (r->replicas > PLAN_CLUSTER_REPLICAS_MAX)
        return error_why(why, ERR_RANGE, "%u replicas, at most %d", r->replicas,
                         PLAN_CLUSTER_REPLICAS_MAX);
    TRY(plan_cluster_add(&list, CLUSTER_COORDINATOR, 0, 0, 0, why));
    TRY(plan_cluster_add_parts(r, &list, CLUSTER_STATION, p->stations, why));
    TRY(plan_cluster_add_parts(r, &list, CLUSTER_SHARD, p->shards, why));
    if (r->wardens) TRY(plan_cluster_add_wardens(r, &list, why));
    *count = list.count;
    return OK;
}

/* ---- The file */

size_t plan_cluster_arena_bytes(uint32_t places)
{
    size_t each = sizeof(PlanPlace) + sizeof(ClusterNode) + 2 * arena_bytes(PATH_BYTES);
    return places * each + 8 * ARENA_ALIGN;
}

/* PREFIX DIRECTORY ID SUFFIX; "" when there is no directory. */
static const char *plan_cluster_path(const PlanClusterRequest *r, const char *prefix,
                                     const char *id, const char *suffix, Arena *arena)
{
    if (!r->directory[0]) return "";
    char *text = arena_take(arena, PATH_BYTES);
    if (!text) return NULL;
    Emit e = emit_make(text, PATH_BYTES - 1);
    emit_text(&e, prefix);
    emit_text(&e, r->directory);
    emit_text(&e, id);
    emit_text(&e, suffix);
    return emit_fits(&e) ? text : NULL;
}

static Error plan_cluster_warden_paths(const PlanClusterRequest *r, ClusterNode *n, Arena *arena,
                                       Why *why)
{
    bool layers = n->role == CLUSTER_LAYER_WARDEN;
    n->socket = plan_cluster_path(r, "", n->id, ".socket", arena);
    n->cache = layers ? plan_cluster_path(r, "dir:", n->id, ".cache", arena)
                      : plan_cluster_path(r, "sqlite:", n->id, ".rows", arena);
    if (!n->socket || !n->cache)
        return error_why(why, ERR_TOO_LARGE, "the path of the directory: %s", r->directory);
    if (strlen(n->socket) > CLUSTER_FILE_SOCKET_BYTES_MAX) n->socket = ""; /* too long for one */
    return OK;
}

static void plan_cluster_node(const PlanClusterRequest *r, const PlanPlace *place, uint32_t wardens,
                              ClusterNode *n)
{
    const PlanRequest *p = &r->plan->request;
    *n = (ClusterNode){.role = place->role,
                       .part = place->part,
                       .is_replica = place->replica > 0,
                       .warden = CLUSTER_FILE_NONE,
                       .cache = "",
                       .socket = ""};
    memcpy(n->id, place->id, sizeof n->id);
    if (n->role == CLUSTER_STATION) {
        n->range = r->plan->role[n->part].range;
        n->embed = r->plan->role[n->part].embed;
        n->head = r->plan->role[n->part].head;
    }
    if (n->role == CLUSTER_SHARD) {
        n->id_first = r->plan->role[p->stations + n->part].id_first;
        n->id_last = r->plan->role[p->stations + n->part].id_last;
    }
    if (cluster_file_is_warden(n->role)) {
        PlanWarden warden = plan_cluster_warden(r, place);
        n->range = warden.range;
        n->id_first = warden.id_first;
        n->id_last = warden.id_last;
    }
    if (!r->wardens) return;
    if (n->role == CLUSTER_STATION) n->warden = wardens + n->part;
    if (n->role == CLUSTER_SHARD)
        n->warden = wardens + p->stations + plan_cluster_group_of(r, n->part);
}

static void plan_cluster_facts(const PlanClusterRequest *r, ClusterFile *out)
{
    const Plan *plan = r->plan;
    const PlanRequest *p = &plan->request;
    *out = (ClusterFile){
        .model_name = r->model_name,
        .knot_key = r->knot_key,
        .store = r->store,
        .knot_id = p->knot->id,
        .layers = p->hyper->layers,
        .vocabulary = p->hyper->vocabulary,
        .memory_bytes = p->memory_bytes,
        .warden_memory_bytes = r->warden_memory_bytes,
        .context = plan->context,
        .chunk = plan->chunk,
        .sessions = p->sessions,
        .pipeline = p->frames ? p->frames : p->stations,
        .cache = p->cache,
        .element = r->element,
        .key_file = r->key_file,
        .tls_certificate = "",
        .tls_key = "",
        .tls_ca = "",
    };
    if (out->pipeline > CLUSTER_FILE_PIPELINE_MAX) out->pipeline = CLUSTER_FILE_PIPELINE_MAX;
}

Error plan_cluster(const PlanClusterRequest *r, const PlanAddress *address, Arena *arena,
                   ClusterFile *out, Why *why)
{
    uint32_t count, wardens;
    TRY(plan_cluster_places(r, NULL, 0, &count, why));
    PlanPlace *places = ARENA_NEW(arena, PlanPlace, count);
    ClusterNode *nodes = ARENA_NEW(arena, ClusterNode, count);
    if (!places || !nodes) return error_why(why, ERR_MEMORY, "%u nodes", count);
    TRY(plan_cluster_places(r, places, count, &count, why));
    plan_cluster_facts(r, out);
    wardens = 1 + (r->plan->request.stations + r->plan->request.shards) * (r->replicas + 1);
    for (uint32_t i = 0; i < count; i++) {
        plan_cluster_node(r, &places[i], wardens, &nodes[i]);
        nodes[i].host = address[i].host;
        nodes[i].port = address[i].port;
        if (!nodes[i].is_replica) out->parts[nodes[i].role]++;
        if (i >= wardens) TRY(plan_cluster_warden_paths(r, &nodes[i], arena, why));
    }
    out->nodes = nodes;
    out->node_count = count;
    return cluster_file_check(out, why);
}

uint32_t plan_cluster_ids_most(const ClusterFile *c, uint32_t vocabulary)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        if (n->role == CLUSTER_STATION && n->head) return vocabulary;
        if (n->role == CLUSTER_SHARD && n->id_last - n->id_first > most)
            most = n->id_last - n->id_first;
    }
    return most;
}
