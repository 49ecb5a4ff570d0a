/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in one thread for the tests of the pipeline: real stations and shards behind their services, a
 * clock that is a number, and a fault that the test makes of each call.
 *
 *   rig_run: advance, take calls, let time pass to the next end of a call or the next wake, answer */
#ifndef COBORD_TESTS_PIPELINE_RIG_H
#define COBORD_TESTS_PIPELINE_RIG_H

#include "tiny_model.h"

#include "cluster/pipeline.h"
#include "cluster/shard_service.h"
#include "cluster/station_service.h"
#include "quant/numerics.h"
#include "wire/node_error.h"

enum {
    RIG_NODES_MAX = 24,
    RIG_SLOTS_MAX = 8,
    RIG_CONTEXT = 192,
    RIG_LOGIT_ROWS = 4,
    RIG_CALLS_MAX = 256,
    RIG_TOKENS_MAX = RIG_CONTEXT + 1,
    RIG_PATHS = 5
};
#define RIG_MS ((uint64_t)1000000)
#define RIG_KNOT_ID 0x1122334455667788u

typedef struct RigNode {
    Station *station;
    StationService *station_service;
    Shard *shard;
    ShardService *shard_service;
    void *memory, *service_memory, *scratch;
    bool dead, frozen;
} RigNode;

/* What becomes of a call. */
typedef enum RigFate {
    RIG_WELL,
    RIG_LOSE_REQUEST, /* nothing arrives; ends at the deadline */
    RIG_LOSE_ANSWER,  /* the node did its work; the connection breaks */
    RIG_REFUSED,      /* the connection, at once */
    RIG_CORRUPT_REQUEST,
    RIG_CORRUPT_ANSWER,
    RIG_CUT_ANSWER,
    RIG_BUSY,    /* 503 */
    RIG_FOREIGN, /* 409, the handshake */
    RIG_LOCKED,  /* 401: our key is another */
    RIG_LOST,    /* 410: it knows no session */
    RIG_SLOW,    /* ten times as long */
    RIG_LATE     /* lost, and arrives behind the next call of the same path */
} RigFate;

typedef struct RigCall {
    PipelineCall call;
    PipelineAnswer answer;
    uint64_t due_ns;
} RigCall;

typedef struct Rig Rig;
struct Rig {
    TinyModel *model;
    ClusterFile file;
    ClusterNode nodes[RIG_NODES_MAX];
    RigNode node[RIG_NODES_MAX];
    RigNode end[RIG_NODES_MAX]; /* what a station has of a shard */
    RigNode own[RIG_NODES_MAX]; /* [shards], the last: all ids */
    bool own_is_there;
    void *pipeline_memory, *coordinator_memory;
    Coordinator *coordinator;
    Pipeline *pipeline;
    uint64_t now_ns, latency_ns[RIG_PATHS];
    RigCall out[RIG_CALLS_MAX];
    uint32_t out_count;
    uint32_t made[RIG_PATHS], most_at_once[RIG_NODES_MAX];
    uint64_t forward_first_ns, forward_last_ns; /* when the first began and the last ended */
    RigFate (*fate)(Rig *rig, const PipelineCall *call);
    void (*tick)(Rig *rig); /* before each step; NULL: nothing */
    int script;             /* the test's */
    uint32_t script_node;
    uint64_t script_ns;
    uint8_t *late; /* a body that arrives too late */
    size_t late_bytes;
    uint32_t late_node;
    Error late_error;
    bool ended[RIG_SLOTS_MAX];
    Error error[RIG_SLOTS_MAX];
    Why why[RIG_SLOTS_MAX];
};

typedef struct RigShape {
    const char *stations; /* ranges */
    uint32_t shards, replicas_of_stations, replicas_of_shards, frames, chunk, slots;
    RowsElement element;
    bool embed, head; /* at the first, at the last station */
} RigShape;

/* ---- Nodes ---- */

static inline void rig_open_station(Rig *rig, RigNode *n, PhaseRange range)
{
    Why why = {{0}};
    StationSizes sizes;
    uint32_t slots = rig->file.sessions;
    StationConfig config = {.knot = &rig->model->knot,
                            .hyper = &rig->model->hyper,
                            .range = range,
                            .rows_max = rig->file.chunk,
                            .sessions_max = slots,
                            .context = RIG_CONTEXT,
                            .blocks = slots * RIG_CONTEXT / 64,
                            .workers = 1,
                            .kernels = kernels_for(ISA_SCALAR),
                            .ops = ops_for(ISA_SCALAR)};
    ForwardTerms terms = {.identity = {RIG_KNOT_ID, NUMERICS_VERSION, FRAME_CACHE_F16},
                          .hyper = config.hyper,
                          .range = range,
                          .rows_max = config.rows_max,
                          .sequences_max = slots,
                          .context = RIG_CONTEXT};
    assert_int_equal(station_sizes(&config, &sizes, &why), OK);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.cache_bytes),
           service = (size_t)station_service_bytes(&terms);
    n->memory = malloc(bytes);
    n->scratch = malloc((size_t)sizes.scratch_bytes);
    n->service_memory = malloc(service);
    Arena arena = arena_make(n->memory, bytes), lent = arena_make(n->service_memory, service);
    assert_int_equal(station_build(&config, &arena, n->scratch, &n->station, &why), OK);
    for (uint32_t f = 0; f < station_floor_count(n->station); f++) {
        float *to;
        const KnotTensor *v = station_floor_tensor(n->station, f, &to);
        memcpy(to, rig->model->payload + v->offset, v->cols * sizeof(float));
    }
    assert_int_equal(station_service_build(&terms, n->station, &lent, &n->station_service, &why),
                     OK);
}

static inline void rig_open_shard(Rig *rig, RigNode *n, uint32_t first, uint32_t last)
{
    Why why = {{0}};
    ShardSizes sizes;
    ShardConfig config = {.knot = &rig->model->knot,
                          .hyper = &rig->model->hyper,
                          .id_first = first,
                          .id_last = last,
                          .rows_max = RIG_LOGIT_ROWS,
                          .workers = 1,
                          .kernels = kernels_for(ISA_SCALAR)};
    ShardServiceConfig terms = {
        .terms = {.identity = {RIG_KNOT_ID, NUMERICS_VERSION, FRAME_CACHE_NONE},
                  .hyper = config.hyper,
                  .id_first = first,
                  .id_last = last,
                  .rows_max = rig->file.chunk},
        .logit_rows_max = RIG_LOGIT_ROWS};
    terms.terms.payload_bytes_max = shard_service_payload_bytes_max(&terms);
    assert_int_equal(shard_sizes(&config, &sizes, &why), OK);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.logits_bytes),
           service = (size_t)shard_service_bytes(&terms);
    n->memory = malloc(bytes);
    n->scratch = malloc((size_t)sizes.scratch_bytes);
    n->service_memory = malloc(service);
    Arena arena = arena_make(n->memory, bytes), lent = arena_make(n->service_memory, service);
    assert_int_equal(shard_build(&config, &arena, n->scratch, &n->shard, &why), OK);
    assert_int_equal(shard_service_build(&terms, n->shard, &lent, &n->shard_service, &why), OK);
}

static inline void rig_close_node(RigNode *n)
{
    free(n->memory);
    free(n->service_memory);
    free(n->scratch);
    *n = (RigNode){0};
}

static inline void rig_open_node(Rig *rig, uint32_t i)
{
    const ClusterNode *c = &rig->nodes[i];
    if (c->role == CLUSTER_STATION) rig_open_station(rig, &rig->node[i], c->range);
    if (c->embed || c->head) rig_open_shard(rig, &rig->end[i], 0, TINY_VOCABULARY);
    if (c->role == CLUSTER_SHARD) rig_open_shard(rig, &rig->node[i], c->id_first, c->id_last);
}

/* As a process that was killed and started again. */
static inline void rig_restart(Rig *rig, uint32_t i)
{
    rig_close_node(&rig->node[i]);
    rig_close_node(&rig->end[i]);
    rig_open_node(rig, i);
}

/* ---- The cluster ---- */

static inline void rig_add(Rig *rig, ClusterNode node, uint32_t *number)
{
    assert_true(rig->file.node_count < RIG_NODES_MAX);
    cluster_file_make_id(node.role, (*number)++, node.id);
    node.host = "10.0.0.1";
    node.port = (uint16_t)(9000 + rig->file.node_count);
    node.warden = CLUSTER_FILE_NONE;
    node.cache = node.socket = "";
    rig->nodes[rig->file.node_count++] = node;
}

static inline void rig_make_file(Rig *rig, const RigShape *shape)
{
    PhaseRange ranges[16];
    uint32_t stations, number = 0;
    rig->file = (ClusterFile){.model_name = "tiny",
                              .knot_id = RIG_KNOT_ID,
                              .layers = TINY_LAYERS,
                              .vocabulary = TINY_VOCABULARY,
                              .context = RIG_CONTEXT,
                              .chunk = shape->chunk,
                              .sessions = shape->slots,
                              .element = shape->element ? shape->element : ROWS_F32,
                              .nodes = rig->nodes};
    rig_add(rig, (ClusterNode){.role = CLUSTER_COORDINATOR}, &number);
    assert_int_equal(phase_parse_ranges(shape->stations, TINY_LAYERS, ranges, 16, &stations, NULL),
                     OK);
    number = 0;
    for (uint32_t i = 0; i < stations; i++)
        for (uint32_t r = 0; r <= shape->replicas_of_stations; r++)
            rig_add(rig,
                    (ClusterNode){.role = CLUSTER_STATION,
                                  .range = ranges[i],
                                  .part = i,
                                  .is_replica = r > 0,
                                  .embed = shape->embed && i == 0,
                                  .head = shape->head && i + 1 == stations},
                    &number);
    number = 0;
    for (uint32_t i = 0; i < shape->shards; i++)
        for (uint32_t r = 0; r <= shape->replicas_of_shards; r++) {
            ClusterNode node = {.role = CLUSTER_SHARD, .part = i, .is_replica = r > 0};
            assert_int_equal(
                shard_range(TINY_VOCABULARY, shape->shards, i, &node.id_first, &node.id_last, NULL),
                OK);
            rig_add(rig, node, &number);
        }
    rig->file.parts[CLUSTER_COORDINATOR] = 1;
    rig->file.parts[CLUSTER_STATION] = stations;
    rig->file.parts[CLUSTER_SHARD] = shape->shards;
}

static inline void rig_open_pipeline(Rig *rig, const RigShape *shape)
{
    Why why = {{0}};
    PipelineConfig config = {.cluster = &rig->file,
                             .hyper = &rig->model->hyper,
                             .slots = shape->slots,
                             .logit_rows = RIG_LOGIT_ROWS,
                             .frames = shape->frames,
                             .nonce = 1700000000};
    CoordinatorConfig coordinator = pipeline_coordinator_config(&config);
    size_t bytes = (size_t)coordinator_bytes(&coordinator),
           pipeline_size = (size_t)pipeline_bytes(&config);
    rig->coordinator_memory = malloc(bytes);
    rig->pipeline_memory = malloc(pipeline_size);
    memset(rig->pipeline_memory, 0xff, pipeline_size);
    Arena arena = arena_make(rig->coordinator_memory, bytes),
          other = arena_make(rig->pipeline_memory, pipeline_size);
    assert_int_equal(coordinator_build(&coordinator, &arena, &rig->coordinator, &why), OK);
    if (pipeline_build(&config, rig->coordinator, &other, &rig->pipeline, &why) != OK)
        fail_msg("pipeline: %s", why.text);
    assert_true(pipeline_calls_max(rig->pipeline) <= RIG_CALLS_MAX);
}

static inline void rig_open(Rig *rig, TinyModel *model, const RigShape *shape)
{
    *rig = (Rig){.model = model, .own_is_there = true, .now_ns = 1000 * RIG_MS};
    for (int i = 0; i < RIG_PATHS; i++) rig->latency_ns[i] = RIG_MS;
    rig_make_file(rig, shape);
    for (uint32_t i = 0; i < rig->file.node_count; i++) rig_open_node(rig, i);
    for (uint32_t i = 0; i < shape->shards; i++) {
        const ClusterNode *n = &rig->nodes[cluster_file_part(&rig->file, CLUSTER_SHARD, i)];
        rig_open_shard(rig, &rig->own[i], n->id_first, n->id_last);
    }
    if (shape->embed || shape->head)
        rig_open_shard(rig, &rig->own[RIG_NODES_MAX - 1], 0, TINY_VOCABULARY);
    rig_open_pipeline(rig, shape);
}

static inline void rig_close(Rig *rig)
{
    for (uint32_t i = 0; i < RIG_NODES_MAX; i++) {
        rig_close_node(&rig->node[i]);
        rig_close_node(&rig->end[i]);
        rig_close_node(&rig->own[i]);
    }
    free(rig->late);
    free(rig->pipeline_memory);
    free(rig->coordinator_memory);
}

/* ---- Calls ---- */

static inline Error rig_forward(Rig *rig, RigNode *n, const uint8_t *body, size_t bytes,
                                uint8_t *out, size_t room, size_t *used, Why *why)
{
    StationFrame frame;
    TRY(station_service_read(n->station_service, body, bytes, &frame, why));
    Error error = station_begin(n->station, &frame, &parallel_serial, why);
    StationWish wish = {.kind = STATION_LOAD};
    while (error == OK && wish.kind != STATION_DONE) {
        station_next(n->station, &wish);
        if (wish.kind == STATION_TILE)
            error =
                station_give(n->station, rig->model->payload + wish.offset, &parallel_serial, why);
    }
    if (error != OK) station_service_end(n->station_service);
    if (error != OK) return error;
    assert_true(station_service_answer_bytes(n->station_service) <= room);
    return station_service_write(n->station_service, 5, out, room, used, why);
}

static inline Error rig_shard(Rig *rig, RigNode *n, PipelinePath path, const uint8_t *body,
                              size_t bytes, uint8_t *out, size_t room, size_t *used, Why *why)
{
    ShardServiceKind kind = path == PIPELINE_EMBED ? SHARD_SERVICE_EMBED : SHARD_SERVICE_LOGITS;
    TRY(shard_service_begin(n->shard_service, kind, body, bytes, why));
    ShardWish wish;
    for (shard_next(n->shard, &wish); wish.kind != SHARD_DONE; shard_next(n->shard, &wish))
        TRY(shard_give(n->shard, rig->model->payload + wish.offset, &parallel_serial, why));
    assert_true(shard_service_answer_bytes(n->shard_service) <= room);
    return shard_service_write(n->shard_service, out, room, used, why);
}

static inline RigNode *rig_node_of(Rig *rig, const PipelineCall *c)
{
    bool ids = c->path == PIPELINE_EMBED || c->path == PIPELINE_LOGITS;
    if (c->node == PIPELINE_OWN && c->part == PIPELINE_ALL_IDS)
        return &rig->own[RIG_NODES_MAX - 1];
    if (c->node == PIPELINE_OWN) return &rig->own[c->part];
    assert_int_equal(c->part, rig->nodes[c->node].part);
    return ids && rig->nodes[c->node].role == CLUSTER_STATION ? &rig->end[c->node]
                                                              : &rig->node[c->node];
}

/* A body's way through a node. */
static inline Error rig_work(Rig *rig, const PipelineCall *c, const uint8_t *body, size_t bytes,
                             PipelineAnswer *answer)
{
    RigNode *n = rig_node_of(rig, c);
    Error error = OK;
    switch (c->path) {
    case PIPELINE_FORWARD:
        error = rig_forward(rig, n, body, bytes, c->answer, c->answer_room, &answer->bytes,
                            &answer->why);
        break;
    case PIPELINE_EMBED:
    case PIPELINE_LOGITS:
        error = rig_shard(rig, n, c->path, body, bytes, c->answer, c->answer_room, &answer->bytes,
                          &answer->why);
        break;
    case PIPELINE_DROP:
        if (n->station_service) (void)station_service_drop(n->station_service, c->session);
        break;
    case PIPELINE_HEALTH: break;
    }
    return error;
}

static inline void rig_say_error(const PipelineCall *c, Error error, PipelineAnswer *answer)
{
    char text[NODE_ERROR_BYTES_MAX];
    answer->status = node_error_status(error);
    answer->bytes = node_error_write(error, &answer->why, text);
    assert_true(c->path >= PIPELINE_DROP || answer->bytes <= c->answer_room);
    if (answer->bytes > c->answer_room) answer->bytes = c->answer_room;
    if (answer->bytes) memcpy(c->answer, text, answer->bytes);
}

static inline uint8_t *rig_body(const PipelineCall *c, size_t *bytes)
{
    *bytes = c->part_bytes[0] + c->part_bytes[1];
    uint8_t *body = malloc(*bytes + 1);
    if (c->part_bytes[0]) memcpy(body, c->parts[0], c->part_bytes[0]);
    if (c->part_bytes[1]) memcpy(body + c->part_bytes[0], c->parts[1], c->part_bytes[1]);
    return body;
}

static inline void rig_deliver_late(Rig *rig, const PipelineCall *c)
{
    static uint8_t nowhere[1 << 20];
    if (!rig->late || c->path != PIPELINE_FORWARD || c->node != rig->late_node) return;
    PipelineCall late = *c;
    PipelineAnswer ignored = {.error = OK};
    late.answer = nowhere;
    late.answer_room = sizeof nowhere;
    rig->late_error = rig_work(rig, &late, rig->late, rig->late_bytes, &ignored);
    free(rig->late);
    rig->late = NULL;
}

static inline void rig_unreachable(RigCall *out, const char *text)
{
    out->answer.error = error_why(&out->answer.why, ERR_UNREACHABLE, "%s", text);
}

static inline void rig_carry_out(Rig *rig, RigCall *out, RigFate fate)
{
    const PipelineCall *c = &out->call;
    PipelineAnswer *a = &out->answer;
    size_t bytes;
    uint8_t *body = rig_body(c, &bytes);
    if (fate == RIG_CORRUPT_REQUEST) body[bytes / 2] ^= 4;
    Error error = rig_work(rig, c, body, bytes, a);
    free(body);
    a->status = 200;
    if (error != OK) rig_say_error(c, error, a);
    if (fate == RIG_CORRUPT_ANSWER) c->answer[a->bytes - 1] ^= 16;
    if (fate == RIG_CUT_ANSWER) a->bytes /= 2;
    if (fate == RIG_LOSE_ANSWER) rig_unreachable(out, "the connection broke off");
    rig_deliver_late(rig, c);
}

static inline void rig_start(Rig *rig, const PipelineCall *call)
{
    RigCall *out = &rig->out[rig->out_count++];
    bool own = call->node == PIPELINE_OWN;
    RigNode *n = own ? NULL : &rig->node[call->node];
    RigFate fate = rig->fate ? rig->fate(rig, call) : RIG_WELL;
    *out = (RigCall){.call = *call, .due_ns = rig->now_ns + rig->latency_ns[call->path]};
    rig->made[call->path]++;
    if (call->path == PIPELINE_FORWARD && !rig->forward_first_ns)
        rig->forward_first_ns = rig->now_ns;
    if ((n && n->dead) || fate == RIG_REFUSED || (own && !rig->own_is_there)) {
        rig_unreachable(out, "connection refused");
        out->due_ns = rig->now_ns + 1000;
    } else if ((n && n->frozen) || fate == RIG_LOSE_REQUEST || fate == RIG_LATE) {
        rig_unreachable(out, "no answer in time");
        out->due_ns = call->deadline_ns;
        if (fate == RIG_LATE) rig->late = rig_body(call, &rig->late_bytes);
        if (fate == RIG_LATE) rig->late_node = call->node;
    } else if (fate == RIG_BUSY || fate == RIG_FOREIGN) {
        rig_say_error(call, fate == RIG_BUSY ? ERR_AGAIN : ERR_UNSUPPORTED, &out->answer);
    } else if (fate == RIG_LOCKED) {
        (void)snprintf(out->answer.why.text, WHY_MAX, "the key is another");
        rig_say_error(call, ERR_KEY, &out->answer);
    } else if (fate == RIG_LOST) {
        (void)snprintf(out->answer.why.text, WHY_MAX, "the session is not known here");
        rig_say_error(call, ERR_SESSION, &out->answer);
    } else {
        rig_carry_out(rig, out, fate);
        if (fate == RIG_SLOW) out->due_ns += 9 * rig->latency_ns[call->path];
    }
}

static inline void rig_finish(Rig *rig, uint32_t index)
{
    RigCall done = rig->out[index];
    rig->out[index] = rig->out[--rig->out_count];
    if (done.call.path == PIPELINE_FORWARD) rig->forward_last_ns = rig->now_ns;
    pipeline_answer(rig->pipeline, done.call.call, &done.answer, rig->now_ns);
}

static inline void rig_cancel(Rig *rig, uint32_t call)
{
    for (uint32_t i = 0; i < rig->out_count; i++)
        if (rig->out[i].call.call == call) {
            rig->out[i].answer = (PipelineAnswer){.error = ERR_CANCELLED};
            rig_finish(rig, i);
            return;
        }
    fail_msg("call %u is not under way", call);
}

/* ---- Time ---- */

static inline void rig_take_events(Rig *rig)
{
    CoordinatorEvent event;
    Why why;
    while (pipeline_next_event(rig->pipeline, &event, &why))
        if (event.ended) {
            rig->ended[event.slot] = true;
            rig->error[event.slot] = event.error;
            rig->why[event.slot] = why;
        }
}

static inline void rig_count_at_once(Rig *rig)
{
    uint32_t at_once[RIG_NODES_MAX] = {0};
    for (uint32_t i = 0; i < rig->out_count; i++) {
        const PipelineCall *c = &rig->out[i].call;
        if (c->path != PIPELINE_FORWARD) continue;
        if (++at_once[c->node] > rig->most_at_once[c->node])
            rig->most_at_once[c->node] = at_once[c->node];
    }
}

/* One round. Result  false when time would have to pass beyond `until_ns`. */
static inline bool rig_step(Rig *rig, uint64_t until_ns)
{
    PipelineCall call;
    uint32_t cancelled;
    if (rig->tick) rig->tick(rig);
    pipeline_advance(rig->pipeline, rig->now_ns);
    rig_take_events(rig);
    pipeline_advance(rig->pipeline, rig->now_ns);
    rig_take_events(rig);
    while (pipeline_next_cancel(rig->pipeline, &cancelled)) rig_cancel(rig, cancelled);
    while (pipeline_next_call(rig->pipeline, rig->now_ns, &call)) rig_start(rig, &call);
    rig_count_at_once(rig);
    uint64_t next = pipeline_wake_ns(rig->pipeline);
    for (uint32_t i = 0; i < rig->out_count; i++)
        if (rig->out[i].due_ns < next) next = rig->out[i].due_ns;
    if (next > until_ns) {
        rig->now_ns = until_ns > rig->now_ns ? until_ns : rig->now_ns;
        return false;
    }
    if (next > rig->now_ns) rig->now_ns = next;
    for (uint32_t i = 0; i < rig->out_count;)
        if (rig->out[i].due_ns <= rig->now_ns) rig_finish(rig, i);
        else i++;
    return true;
}

/* Until nothing is to be done; fails when that takes longer than `ms`. */
static inline void rig_run(Rig *rig, uint64_t ms)
{
    uint64_t until = rig->now_ns + ms * RIG_MS;
    uint32_t steps = 0;
    while (pipeline_is_busy(rig->pipeline)) {
        if (!rig_step(rig, until) && pipeline_is_busy(rig->pipeline))
            fail_msg("still busy after %llu ms", (unsigned long long)ms);
        if (++steps > 1000000) fail_msg("steps without time");
    }
    rig_take_events(rig);
}

static inline void rig_pass(Rig *rig, uint64_t ms)
{
    uint64_t until = rig->now_ns + ms * RIG_MS;
    uint32_t steps = 0;
    while (rig_step(rig, until))
        if (++steps > 1000000) fail_msg("steps without time");
}

/* ---- The oracle: one conversation alone, no wire, no pipeline ---- */

typedef struct RigTalk {
    uint32_t prompt[RIG_TOKENS_MAX], prompt_count, tokens_max;
    SamplerParams params;
} RigTalk;

static inline void rig_solo_frame(Rig *rig, RigNode *station, RigNode *shard, Coordinator *c,
                                  CoordinatorFrame *f)
{
    static float x[256 * TINY_HIDDEN], g[256 * TINY_FFN], normed[TINY_HIDDEN];
    static SamplerCandidate best[TINY_VOCABULARY];
    ShardWish wish;
    assert_int_equal(shard_begin_embed(shard->shard, f->ids, f->rows, x, NULL), OK);
    for (shard_next(shard->shard, &wish); wish.kind != SHARD_DONE; shard_next(shard->shard, &wish))
        assert_int_equal(
            shard_give(shard->shard, rig->model->payload + wish.offset, &parallel_serial, NULL),
            OK);
    StationFrame frame = {.x = x,
                          .g = g,
                          .rows = f->rows,
                          .sequences = f->sequences,
                          .sequence_count = f->sequence_count};
    assert_int_equal(station_begin(station->station, &frame, &parallel_serial, NULL), OK);
    for (StationWish w = {.kind = STATION_LOAD}; w.kind != STATION_DONE;) {
        station_next(station->station, &w);
        if (w.kind == STATION_TILE)
            assert_int_equal(station_give(station->station, rig->model->payload + w.offset,
                                          &parallel_serial, NULL),
                             OK);
    }
    for (uint32_t i = 0; i < f->pick_count; i++) {
        CoordinatorPick *pick = &f->picks[i];
        station_norm_output(station->station, x + (size_t)pick->row * TINY_HIDDEN, normed);
        assert_int_equal(shard_begin_logits(shard->shard, normed, 1, NULL), OK);
        for (shard_next(shard->shard, &wish); wish.kind != SHARD_DONE;
             shard_next(shard->shard, &wish))
            assert_int_equal(
                shard_give(shard->shard, rig->model->payload + wish.offset, &parallel_serial, NULL),
                OK);
        shard_adjust(shard->shard, 0, pick->params, pick->seen, pick->seen_count);
        while (!pick->picked) {
            LogSum sum;
            logsum_start(&sum);
            uint32_t count = shard_top(shard->shard, 0, pick->k, best,
                                       pick->wants_sum ? &sum : NULL, pick->sum_scale);
            assert_int_equal(coordinator_give_top(c, pick, best, count, count == TINY_VOCABULARY,
                                                  pick->wants_sum ? &sum : NULL, 0, NULL),
                             OK);
        }
    }
}

/* What `talk` says when it is alone: prompt and answer. */
static inline uint32_t rig_solo(TinyModel *model, const RigTalk *talk, uint32_t *tokens)
{
    Rig *rig = calloc(1, sizeof *rig);
    RigNode station = {0}, shard = {0};
    Coordinator *c;
    CoordinatorFrame *frame;
    uint32_t count;
    rig->model = model;
    rig->file = (ClusterFile){.chunk = 256, .sessions = 1};
    rig_open_station(rig, &station, (PhaseRange){0, TINY_LAYERS * PHASES});
    rig_open_shard(rig, &shard, 0, TINY_VOCABULARY);
    CoordinatorConfig config = {TINY_VOCABULARY, RIG_CONTEXT, 256, 1, 1, 1, 0, 0, 0};
    size_t bytes = (size_t)coordinator_bytes(&config);
    void *memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    assert_int_equal(coordinator_start(c, 0, talk->prompt, talk->prompt_count, talk->tokens_max,
                                       &talk->params, NULL),
                     OK);
    while (coordinator_frame(c, &frame)) {
        rig_solo_frame(rig, &station, &shard, c, frame);
        coordinator_end_frame(c, frame, &count);
    }
    const uint32_t *said = coordinator_tokens(c, 0, &count);
    memcpy(tokens, said, count * sizeof *tokens);
    rig_close_node(&station);
    rig_close_node(&shard);
    free(memory);
    free(rig);
    return count;
}

#endif
