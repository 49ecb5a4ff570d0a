/* SPDX-License-Identifier: Apache-2.0 */
/* Stations and shards as processes: memory of their own, filled with rubbish before they start, requests one
 * at a time, bytes in and a status and bytes out. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/numerics.h"
#include "wire/node_error.h"

enum { AT_REQUEST_ID = 32, GUARD_BYTES = 64, GUARD = 0x5a, RUBBISH = 0xff, WORKERS = 1 };

static FrameIdentity identity(const Sim *s, FrameCache cache)
{
    return (FrameIdentity){s->cluster.knot_id, NUMERICS_VERSION, cache};
}

/* Rubbish, NaN for who reads it as floats, and behind the end what must stay as it is. */
static Arena fresh_memory(SimNode *n, uint64_t bytes, uint64_t scratch_bytes)
{
    n->memory_bytes = (size_t)bytes;
    n->memory = malloc(n->memory_bytes + GUARD_BYTES);
    n->scratch = malloc((size_t)scratch_bytes + 1);
    ASSERT(n->memory && n->scratch);
    memset(n->memory, RUBBISH, n->memory_bytes);
    memset((uint8_t *)n->memory + n->memory_bytes, GUARD, GUARD_BYTES);
    memset(n->scratch, RUBBISH, (size_t)scratch_bytes);
    return arena_make(n->memory, n->memory_bytes);
}

static void must(Error error, const Why *why)
{
    if (error != OK) fprintf(stderr, "sim: %s: %s\n", error_text(error), why->text);
    ASSERT(error == OK);
}

void sim_nodes_open_station(Sim *s, SimNode *n, PhaseRange range, uint32_t rows, uint32_t sessions)
{
    const SimScenario *p = &s->plan;
    Why why = {{0}};
    StationSizes sizes;
    n->blocks = sessions * ((p->context + 63) / 64);
    StationConfig config = {.knot = &s->model->knot,
                            .hyper = &s->model->hyper,
                            .range = range,
                            .cache = p->cache,
                            .rows_max = rows,
                            .sessions_max = sessions,
                            .context = p->context,
                            .blocks = n->blocks,
                            .workers = WORKERS,
                            .tile_bytes_max = p->tile_bytes,
                            .kernels = kernels_for(n->isa),
                            .ops = ops_for(n->isa)};
    ForwardTerms terms = {.identity = identity(s, frame_cache(p->cache)),
                          .hyper = &s->model->hyper,
                          .range = range,
                          .rows_max = rows,
                          .sequences_max = sessions,
                          .context = p->context};
    must(station_sizes(&config, &sizes, &why), &why);
    Arena arena = fresh_memory(
        n, sizes.floor_bytes + sizes.cache_bytes + station_service_bytes(&terms) + ARENA_ALIGN,
        sizes.scratch_bytes);
    must(station_build(&config, &arena, n->scratch, &n->station, &why), &why);
    must(station_service_build(&terms, n->station, &arena, &n->station_service, &why), &why);
    for (uint32_t i = 0; i < station_floor_count(n->station); i++) {
        float *to;
        const KnotTensor *v = station_floor_tensor(n->station, i, &to);
        memcpy(to, s->model->payload + v->offset, v->cols * sizeof(float));
    }
}

void sim_nodes_open_shard(Sim *s, SimNode *n, uint32_t id_first, uint32_t id_last, uint32_t rows)
{
    Why why = {{0}};
    ShardSizes sizes;
    ShardConfig config = {.knot = &s->model->knot,
                          .hyper = &s->model->hyper,
                          .id_first = id_first,
                          .id_last = id_last,
                          .rows_max = rows,
                          .workers = WORKERS,
                          .tile_bytes_max = s->plan.tile_bytes,
                          .kernels = kernels_for(n->isa)};
    ShardServiceConfig service = {.terms = {.identity = identity(s, FRAME_CACHE_NONE),
                                            .hyper = &s->model->hyper,
                                            .id_first = id_first,
                                            .id_last = id_last,
                                            .rows_max = rows},
                                  .logit_rows_max = rows};
    service.terms.payload_bytes_max = shard_service_payload_bytes_max(&service);
    must(shard_sizes(&config, &sizes, &why), &why);
    Arena arena = fresh_memory(
        n, sizes.floor_bytes + sizes.logits_bytes + shard_service_bytes(&service) + ARENA_ALIGN,
        sizes.scratch_bytes);
    must(shard_build(&config, &arena, n->scratch, &n->shard, &why), &why);
    must(shard_service_build(&service, n->shard, &arena, &n->shard_service, &why), &why);
}

/* A process that has died: its memory is not even readable. */
void sim_nodes_close(SimNode *n)
{
    const uint8_t *guard = n->memory ? (const uint8_t *)n->memory + n->memory_bytes : NULL;
    for (int i = 0; guard && i < GUARD_BYTES; i++) ASSERT(guard[i] == GUARD);
    free(n->memory);
    free(n->scratch);
    n->memory = n->scratch = NULL;
    n->station = NULL;
    n->station_service = NULL;
    n->shard = NULL;
    n->shard_service = NULL;
}

/* --- Work --- */

Error sim_nodes_drive_station(Sim *s, SimNode *n, const StationFrame *frame, Why *why)
{
    TRY(station_begin(n->station, frame, &parallel_serial, why));
    for (;;) {
        StationWish wish;
        station_next(n->station, &wish);
        if (wish.kind == STATION_DONE) return OK;
        if (wish.kind != STATION_TILE) continue;
        TRY(station_give(n->station, s->model->payload + wish.offset, &parallel_serial, why));
    }
}

Error sim_nodes_drive_shard(Sim *s, SimNode *n, Why *why)
{
    ShardWish wish;
    for (shard_next(n->shard, &wish); wish.kind != SHARD_DONE; shard_next(n->shard, &wish))
        TRY(shard_give(n->shard, s->model->payload + wish.offset, &parallel_serial, why));
    return OK;
}

static Error forward(Sim *s, SimNode *n, const SimEvent *e, uint8_t **answer, size_t *bytes,
                     Why *why)
{
    StationFrame frame;
    TRY(station_service_read(n->station_service, e->bytes, e->count, &frame, why));
    Error error = sim_nodes_drive_station(s, n, &frame, why);
    if (error != OK) {
        station_service_end(n->station_service);
        return error;
    }
    size_t room = station_service_answer_bytes(n->station_service);
    *answer = malloc(room);
    return station_service_write(n->station_service, 7, *answer, room, bytes, why);
}

static Error shard_work(Sim *s, SimNode *n, const SimEvent *e, uint8_t **answer, size_t *bytes,
                        Why *why)
{
    ShardServiceKind kind = e->path == PIPELINE_EMBED ? SHARD_SERVICE_EMBED : SHARD_SERVICE_LOGITS;
    TRY(shard_service_begin(n->shard_service, kind, e->bytes, e->count, why));
    TRY(sim_nodes_drive_shard(s, n, why));
    size_t room = shard_service_answer_bytes(n->shard_service);
    *answer = malloc(room);
    return shard_service_write(n->shard_service, *answer, room, bytes, why);
}

/* --break fence: every frame looks as if it were the newest. */
static Error forward_unfenced(Sim *s, SimNode *n, const SimEvent *e, uint8_t **answer,
                              size_t *bytes, Why *why)
{
    FrameHead head;
    FrameIdentity mine = identity(s, frame_cache(s->plan.cache));
    if (frame_open(e->bytes, e->count, FRAME_FORWARD, &mine, &head, why) != OK)
        return forward(s, n, e, answer, bytes, why);
    uint64_t id = bytes_load64(e->bytes + AT_REQUEST_ID);
    bytes_store64(e->bytes + AT_REQUEST_ID, ++n->last_request | UINT64_C(1) << 63);
    frame_seal(e->bytes);
    Error error = forward(s, n, e, answer, bytes, why);
    if (error != OK) return error;
    bytes_store64(*answer + AT_REQUEST_ID, id);
    frame_seal(*answer);
    return OK;
}

static Error work(Sim *s, SimNode *n, const SimEvent *e, uint8_t **answer, size_t *bytes, Why *why)
{
    if (e->path == PIPELINE_FORWARD && n->station)
        return s->broken == SIM_BREAK_FENCE ? forward_unfenced(s, n, e, answer, bytes, why)
                                            : forward(s, n, e, answer, bytes, why);
    if (n->role == CLUSTER_STATION && (e->path == PIPELINE_EMBED || e->path == PIPELINE_LOGITS))
        n = &s->ends[n - s->nodes];
    if ((e->path == PIPELINE_EMBED || e->path == PIPELINE_LOGITS) && n->shard)
        return shard_work(s, n, e, answer, bytes, why);
    if (e->path == PIPELINE_DROP && n->station)
        return station_service_drop(n->station_service, e->session)
                   ? OK
                   : error_why(why, ERR_NOT_FOUND, "no session of that name");
    return error_why(why, ERR_NOT_FOUND, "no such path");
}

unsigned sim_nodes_answer(Sim *s, SimNode *n, const SimEvent *e, uint8_t **answer, size_t *bytes)
{
    Why why = {{0}};
    *answer = NULL;
    *bytes = 0;
    Error error = work(s, n, e, answer, bytes, &why);
    if (error == OK) return 200;
    s->counts->superseded += error == ERR_SUPERSEDED;
    free(*answer);
    *answer = malloc(NODE_ERROR_BYTES_MAX);
    *bytes = node_error_write(error, &why, (char *)*answer);
    return node_error_status(error);
}

/* --- Lives --- */

const char *sim_nodes_name(const Sim *s, uint32_t node)
{
    return node == PIPELINE_OWN ? "own" : s->cluster.nodes[node].id;
}

/* Another instruction set in each life, where the CPU has it: bits are the same with all. */
static Isa choose_isa(const Sim *s, uint32_t node, uint64_t life)
{
    Isa usable[3] = {ISA_SCALAR};
    uint32_t count = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) usable[count++] = ISA_AVX2;
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        usable[count++] = ISA_AVX512;
#endif
    SimRandom r = {s->seed ^ (uint64_t)node << 32 ^ life << 40};
    Isa isa = usable[sim_random_below(&r, count)];
    return kernels_for(isa) && ops_for(isa) ? isa : ISA_SCALAR;
}

static void open_node(Sim *s, uint32_t node)
{
    SimNode *n = &s->nodes[node];
    const ClusterNode *c = &s->cluster.nodes[node];
    *n = (SimNode){.role = c->role, .part = c->part, .alive = true, .life = n->life + 1};
    n->isa = choose_isa(s, node, n->life);
    s->ends[node] = (SimNode){.role = CLUSTER_SHARD, .isa = n->isa};
    if (c->embed || c->head)
        sim_nodes_open_shard(s, &s->ends[node], 0, SIM_VOCABULARY, s->plan.chunk);
    if (c->role == CLUSTER_STATION)
        sim_nodes_open_station(s, n, c->range, s->plan.chunk, s->plan.sessions);
    else if (c->role == CLUSTER_SHARD)
        sim_nodes_open_shard(s, n, c->id_first, c->id_last, s->plan.chunk);
}

void sim_nodes_kill(Sim *s, uint32_t node, bool silent)
{
    SimNode *n = &s->nodes[node];
    sim_nodes_close(n);
    sim_nodes_close(&s->ends[node]);
    *n = (SimNode){.role = n->role, .part = n->part, .life = n->life + 1, .silent = silent};
}

void sim_nodes_revive(Sim *s, uint32_t node)
{
    if (!s->nodes[node].alive) open_node(s, node);
}

void sim_nodes_start(Sim *s)
{
    for (uint32_t i = 0; i < s->cluster.node_count; i++) open_node(s, i);
    for (uint32_t i = 0; i < s->plan.shards; i++) {
        s->own[i] = (SimNode){.role = CLUSTER_SHARD, .part = i, .alive = true};
        sim_nodes_open_shard(s, &s->own[i], s->plan.id_first[i], s->plan.id_last[i], s->plan.chunk);
    }
    SimNode *all = sim_nodes_own(s, PIPELINE_ALL_IDS);
    *all = (SimNode){.role = CLUSTER_SHARD, .alive = true};
    sim_nodes_open_shard(s, all, 0, SIM_VOCABULARY, s->plan.chunk);
}

SimNode *sim_nodes_own(Sim *s, uint32_t part)
{
    return &s->own[part == PIPELINE_ALL_IDS ? SIM_SHARDS_MAX : part];
}

void sim_nodes_stop(Sim *s)
{
    for (uint32_t i = 0; i < s->cluster.node_count; i++) {
        sim_nodes_close(&s->nodes[i]);
        sim_nodes_close(&s->ends[i]);
    }
    for (uint32_t i = 0; i <= SIM_SHARDS_MAX; i++) sim_nodes_close(&s->own[i]);
}

/* Every conversation was forgotten: no station holds one, unless it could not know better. */
void sim_nodes_check_end(Sim *s)
{
    for (uint32_t i = 0; i < s->cluster.node_count; i++) {
        const SimNode *n = &s->nodes[i];
        if (!n->station) continue;
        uint32_t sessions = station_service_sessions(n->station_service);
        if (sessions && !n->may_keep && !s->restarted)
            sim_fail(s, "%s holds %u sessions that nobody wants", s->cluster.nodes[i].id, sessions);
        if (!sessions && station_blocks_free(n->station) != n->blocks)
            sim_fail(s, "%s: %u of %u cache blocks are free, and there is no session",
                     s->cluster.nodes[i].id, station_blocks_free(n->station), n->blocks);
    }
}
