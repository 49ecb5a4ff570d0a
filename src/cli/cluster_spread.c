/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_spread.h"

#include "cluster/plan_cut.h"

static const uint64_t MEBIBYTE = (uint64_t)1 << 20;
static const uint64_t MEMORY_UNKNOWN = (uint64_t)128 << 20;

/* The coordinator, a station and a shard; a station and a shard. */
static uint64_t processes_min(uint32_t machine) { return machine == 0 ? 3 : 2; }

/* ---- Memory and processes */

static uint64_t choose_memory(const Hosts *hosts)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < hosts->count; i++) {
        uint64_t memory = hosts->entry[i].memory_bytes / processes_min(i) / MEBIBYTE * MEBIBYTE;
        if (memory && memory < least) least = memory;
    }
    return least == UINT64_MAX ? MEMORY_UNKNOWN : least;
}

/* workers[i]: stations and shards of machine i. */
static Error count_workers(const Hosts *hosts, uint64_t memory, uint32_t *workers, Why *why)
{
    for (uint32_t i = 0; i < hosts->count; i++) {
        const HostEntry *e = &hosts->entry[i];
        uint64_t count = e->memory_bytes ? e->memory_bytes / memory : processes_min(i);
        if (count < processes_min(i))
            return error_why(
                why, ERR_PLAN,
                "%s: %llu MiB hold %llu processes of %llu MiB, fewer than the %llu it needs "
                "(%sa station and a shard)",
                e->host, (unsigned long long)(e->memory_bytes / MEBIBYTE),
                (unsigned long long)count, (unsigned long long)(memory / MEBIBYTE),
                (unsigned long long)processes_min(i), i == 0 ? "the coordinator, " : "");
        count -= processes_min(i) - 2; /* the coordinator's */
        workers[i] = count < PLAN_CUT_MAX ? (uint32_t)count : PLAN_CUT_MAX;
    }
    return OK;
}

/* ---- Which machine */

/* `count` roles in a row over the machines, by their numbers of workers, neighbours together. */
static void spread(const uint32_t *workers, uint32_t machines, uint32_t count, uint32_t *machine)
{
    uint64_t all = 0, before = 0;
    uint32_t m = 0;
    for (uint32_t i = 0; i < machines; i++) all += workers[i];
    for (uint32_t i = 0; i < count; i++) {
        /* the middle of role i, as a share of all workers: (2 i + 1) / (2 count) */
        while (m + 1 < machines && (before + workers[m]) * 2 * count <= (2 * i + 1) * all)
            before += workers[m++];
        machine[i] = m;
    }
}

uint32_t cluster_spread_machine(const ClusterPlan *p, const PlanPlace *place)
{
    const PlanRequest *r = &p->plan.request;
    uint32_t first = 0;
    if (place->role == CLUSTER_STATION || place->role == CLUSTER_LAYER_WARDEN)
        first = p->role_machine[place->part];
    if (place->role == CLUSTER_SHARD) first = p->role_machine[r->stations + place->part];
    if (place->role == CLUSTER_SHARD_WARDEN)
        first = p->role_machine[r->stations + plan_cluster_warden_shard(&p->request, place->part)];
    return (first + place->replica) % p->hosts.count;
}

/* ---- Cutting */

static double speed_of(const Hosts *hosts, uint32_t machine)
{
    double speed = hosts->entry[machine].speed_gbs, sum = 0;
    uint32_t known = 0;
    if (speed > 0) return speed;
    for (uint32_t i = 0; i < hosts->count; i++) { /* like the average of the others */
        sum += hosts->entry[i].speed_gbs;
        known += hosts->entry[i].speed_gbs > 0;
    }
    return known ? sum / known : 1;
}

static uint64_t head_bytes(const Plan *plan)
{
    const KnotTensor *head = knot_head(plan->request.knot);
    return head ? head->bytes : 0;
}

/* Roles first .. first + count - 1: each gets a part of its machine's speed, and the room that the even plan leaves it
 * for weights and caches. */
static void shares(const ClusterPlan *p, uint32_t first, uint32_t count, PlanCutShare *out)
{
    uint32_t together[HOSTS_MAX] = {0};
    for (uint32_t i = first; i < first + count; i++) together[p->role_machine[i]]++;
    for (uint32_t i = 0; i < count; i++) {
        const PlanRole *role = &p->plan.role[first + i];
        uint32_t machine = p->role_machine[first + i];
        uint64_t needs = plan_role_fixed_bytes(role);
        uint64_t memory = p->plan.request.memory_bytes;
        if (role->head) needs += head_bytes(&p->plan); /* no layers in its place */
        out[i] = (PlanCutShare){.speed = speed_of(&p->hosts, machine) / together[machine],
                                .bytes_room = memory > needs ? memory - needs : 0};
    }
}

static Error cut(ClusterPlan *p, PlanRequest *request, Why *why)
{
    static PlanCutShare share[PLAN_ROLES_MAX];
    uint32_t stations = request->stations, shards = request->shards;
    shares(p, 0, stations, share);
    uint64_t head = 0, cache = 0;
    for (uint32_t i = 0; i < stations; i++) cache += p->plan.role[i].cache_bytes;
    TRY(plan_cut_phases(request->knot, request->hyper, cache / request->hyper->layers, share,
                        stations, p->ranges, why));
    request->ranges = p->ranges;
    if (!shards) return OK;
    for (uint32_t i = 0; i < shards; i++) head += p->plan.role[stations + i].weight_bytes;
    shares(p, stations, shards, share);
    TRY(plan_cut_ids(request->hyper->vocabulary, head / request->hyper->vocabulary, share, shards,
                     p->id_ends, why));
    request->id_ends = p->id_ends;
    return OK;
}

static uint64_t streamed_bytes(const Plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->role_count; i++)
        bytes += plan->role[i].weight_bytes - plan->role[i].pinned_bytes;
    return bytes;
}

/* With these workers on each machine. */
static Error make_with(ClusterPlan *p, PlanRequest *request, const uint32_t *workers,
                       uint32_t stations, uint32_t shards, Why *why)
{
    request->ranges = NULL;
    request->id_ends = NULL;
    request->stations = stations;
    request->shards = shards;
    if (stations > PLAN_CUT_MAX || shards > PLAN_CUT_MAX - stations)
        return error_why(why, ERR_RANGE, "%u stations and %u shards; together at most %d", stations,
                         shards, PLAN_CUT_MAX);
    spread(workers, p->hosts.count, stations, p->role_machine);
    spread(workers, p->hosts.count, shards, p->role_machine + stations);
    TRY(plan_make(request, &p->plan, why));
    TRY(cut(p, request, why));
    return plan_make(request, &p->plan, why);
}

typedef struct Spread {
    uint32_t workers[HOSTS_MAX], stations, shards;
} Spread;

/* At most `each` processes on a machine. Result  false: that is all they can have. */
static bool spread_of(const ClusterPlan *p, const PlanRequest *request, const uint32_t *most,
                      uint32_t each, Spread *out)
{
    uint32_t all = 0;
    bool more = false;
    for (uint32_t i = 0; i < p->hosts.count; i++) {
        out->workers[i] = most[i] < each ? most[i] : each;
        more |= most[i] > each;
        all += out->workers[i];
    }
    out->stations = out->shards = p->hosts.count;
    if (each > 2)
        plan_split_workers(request->knot, request->hyper, all, &out->stations, &out->shards);
    return more && all < PLAN_CUT_MAX;
}

/* A station and a shard on each machine; more of both, as far as memory goes, until nothing is streamed:
 * each one more is a call more for every token. When something always is: the plan with the least. */
static Error make_growing(ClusterPlan *p, PlanRequest *request, const uint32_t *most, Why *why)
{
    Spread now, best = {.stations = 0};
    uint64_t least = UINT64_MAX;
    Error error = OK;
    bool more = true;
    for (uint32_t each = 2; more && least > 0; each += each / 4 + 1) {
        more = spread_of(p, request, most, each, &now);
        error = make_with(p, request, now.workers, now.stations, now.shards, why);
        if (error != OK && error != ERR_PLAN) return error;
        if (error != OK || streamed_bytes(&p->plan) >= least) continue;
        least = streamed_bytes(&p->plan);
        best = now;
    }
    if (!best.stations) return error;
    return make_with(p, request, best.workers, best.stations, best.shards, why);
}

Error cluster_spread_make(ClusterPlan *p, PlanRequest *request, Why *why)
{
    uint32_t most[HOSTS_MAX];
    if (!request->memory_bytes) request->memory_bytes = choose_memory(&p->hosts);
    TRY(count_workers(&p->hosts, request->memory_bytes, most, why));
    bool wants_shards = !request->head;
    if (!request->stations && !request->shards && wants_shards)
        return make_growing(p, request, most, why);
    return make_with(p, request, most, request->stations ? request->stations : p->hosts.count,
                     request->shards || !wants_shards ? request->shards : p->hosts.count, why);
}
