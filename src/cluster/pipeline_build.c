/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline's memory, and what it takes from the cluster file. One function lays everything out: for a sum
 * without memory first, then in place. */
#include "cluster/pipeline_state.h"
#include "quant/numerics.h"

enum { CHUNK_DEFAULT = 64, FRAMES_MAX = CLUSTER_FILE_PIPELINE_MAX };

static uint32_t parts(const PipelineConfig *c, ClusterRole role) { return c->cluster->parts[role]; }

/* Frames through the stations at once. */
static uint32_t spread_of(const PipelineConfig *c)
{
    uint32_t frames = c->frames ? c->frames : parts(c, CLUSTER_STATION);
    return frames < FRAMES_MAX ? frames : FRAMES_MAX;
}

CoordinatorConfig pipeline_coordinator_config(const PipelineConfig *c)
{
    return (CoordinatorConfig){.vocabulary = c->hyper->vocabulary,
                               .context = c->cluster->context,
                               .chunk = c->cluster->chunk ? c->cluster->chunk : CHUNK_DEFAULT,
                               .slots = c->slots,
                               .logit_rows = c->logit_rows,
                               .drafts = c->drafts,
                               .hidden = c->hyper->hidden,
                               .frames = spread_of(c) + 1, /* one more gets its rows meanwhile */
                               .spread = spread_of(c)};
}

/* ---- What the cluster file says ---- */

static FrameIdentity identity_of(const PipelineConfig *c, FrameCache cache)
{
    return (FrameIdentity){c->cluster->knot_id, NUMERICS_VERSION, cache};
}

ShardTerms pipeline_build_shard_terms(const Pipeline *p, uint32_t id_first, uint32_t id_last)
{
    const PipelineConfig *c = &p->config;
    return (ShardTerms){
        .identity = identity_of(c, FRAME_CACHE_NONE),
        .hyper = c->hyper,
        .id_first = id_first,
        .id_last = id_last,
        .rows_max = p->chunk > c->logit_rows ? p->chunk : c->logit_rows,
        .payload_bytes_max = UINT64_MAX,
    };
}

static void set_terms(const Pipeline *p, ClusterRole role, const ClusterNode *node, Range *r)
{
    const PipelineConfig *c = &p->config;
    if (role == CLUSTER_STATION)
        r->terms.forward =
            (ForwardTerms){.identity = identity_of(c, frame_cache(c->cluster->cache)),
                           .hyper = c->hyper,
                           .range = node->range,
                           .rows_max = p->chunk,
                           .sequences_max = c->slots,
                           .context = c->cluster->context};
    else r->terms.shard = pipeline_build_shard_terms(p, node->id_first, node->id_last);
}

static Range range_of(const Pipeline *p, ClusterRole role, uint32_t part)
{
    const ClusterFile *file = p->config.cluster;
    Range r = {.first = cluster_file_part(file, role, part), .count = 1};
    r.active = r.first;
    for (uint32_t i = r.first + 1; i < file->node_count; i++, r.count++)
        if (file->nodes[i].role != role || file->nodes[i].part != part) break;
    set_terms(p, role, &file->nodes[r.first], &r);
    return r;
}

static Error check_parts(const PipelineConfig *c, ClusterRole role, Why *why)
{
    for (uint32_t i = 0; i < parts(c, role); i++)
        if (cluster_file_part(c->cluster, role, i) == CLUSTER_FILE_NONE)
            return error_why(why, ERR_NOT_FOUND, "%s %u is not in the cluster",
                             cluster_file_role_name(role), i);
    return OK;
}

/* Every stage has somebody to ask. */
static Error check_stages(const PipelineConfig *c, Why *why)
{
    const ClusterFile *f = c->cluster;
    uint32_t stations = parts(c, CLUSTER_STATION), shards = parts(c, CLUSTER_SHARD);
    if (!stations) return error_why(why, ERR_UNSUPPORTED, "a cluster without stations");
    TRY(check_parts(c, CLUSTER_STATION, why));
    TRY(check_parts(c, CLUSTER_SHARD, why));
    bool embed = f->nodes[cluster_file_part(f, CLUSTER_STATION, 0)].embed,
         head = f->nodes[cluster_file_part(f, CLUSTER_STATION, stations - 1)].head;
    if (shards || (embed && head)) return OK;
    return error_why(why, ERR_UNSUPPORTED, "a cluster without shards, and no station has the %s",
                     embed ? "head" : "embedding");
}

static Error check(const PipelineConfig *c, Why *why)
{
    const ClusterFile *f = c->cluster;
    CoordinatorConfig coordinator = pipeline_coordinator_config(c);
    if (f->layers != c->hyper->layers || f->vocabulary != c->hyper->vocabulary)
        return error_why(why, ERR_RANGE,
                         "the cluster has %u layers and %u ids, the model %u and %u", f->layers,
                         f->vocabulary, c->hyper->layers, c->hyper->vocabulary);
    TRY(check_stages(c, why));
    if (!c->slots || c->slots > f->sessions || c->slots > FORWARD_SEQUENCES_MAX)
        return error_why(why, ERR_RANGE, "%u conversations; the cluster's stations hold %u",
                         c->slots, f->sessions);
    if (!c->logit_rows || c->logit_rows > FRAME_ROWS_MAX || coordinator.chunk > FRAME_ROWS_MAX ||
        f->context > FORWARD_CONTEXT_MAX || c->frames > FRAMES_MAX)
        return error_why(why, ERR_RANGE, "%u rows, %u with logits, a context of %u, %u frames",
                         coordinator.chunk, c->logit_rows, f->context, c->frames);
    return OK;
}

static Error take_ranges(Pipeline *p, Why *why)
{
    for (uint32_t i = 0; i < p->stations + pipeline_ends_first(p); i++) {
        bool station = i < p->stations;
        Range *r = &p->ranges[i];
        *r = range_of(p, station ? CLUSTER_STATION : CLUSTER_SHARD, station ? i : i - p->stations);
        if (r->count > RANGE_NODES_MAX)
            return error_why(why, ERR_RANGE, "range %u has %u nodes, at most %u are possible", i,
                             r->count, (unsigned)RANGE_NODES_MAX);
        for (uint32_t n = 0; n < r->count; n++) p->nodes[r->first + n].range = i;
    }
    pipeline_ends_take(p);
    return OK;
}

/* ---- Laying out ---- */

typedef struct Memory {
    Arena *arena; /* NULL: the sum alone */
    uint64_t bytes;
    bool full;
} Memory;

static void *take(Memory *l, uint64_t count, size_t size)
{
    uint64_t bytes = count * size;
    l->bytes += arena_bytes((size_t)bytes);
    if (!l->arena) return NULL;
    void *memory = arena_take_raw(l->arena, (size_t)bytes);
    l->full |= !memory;
    return memory;
}

static uint64_t buffer_bytes(const Pipeline *p)
{
    const PipelineConfig *c = &p->config;
    Forward largest = {.sequence_count = c->slots};
    uint64_t most = (uint64_t)p->chunk * c->hyper->hidden * sizeof(float);
    for (uint32_t i = 0; i < p->stations; i++) {
        const ClusterNode *node =
            &c->cluster->nodes[cluster_file_part(c->cluster, CLUSTER_STATION, i)];
        ForwardTerms terms = {.hyper = c->hyper, .range = node->range};
        uint64_t bytes = forward_answer_payload_bytes(&terms, p->element, p->chunk);
        most = bytes > most ? bytes : most;
    }
    most += forward_answer_header_size(&largest);
    return most > FRAME_ERROR_ROOM ? most : FRAME_ERROR_ROOM;
}

static void lay_frame(const Pipeline *p, Memory *l, Frame *f)
{
    const PipelineConfig *c = &p->config;
    uint32_t any = 0;
    Forward largest = {.sequence_count = c->slots, .wanted = &any, .wanted_count = p->chunk};
    f->ids = take(l, p->chunk, sizeof *f->ids);
    f->sequences = take(l, c->slots, sizeof *f->sequences);
    f->wanted = take(l, p->chunk, sizeof *f->wanted);
    f->round = take(l, c->logit_rows, sizeof *f->round);
    f->row = take(l, c->logit_rows, sizeof *f->row);
    f->header = take(l, 1, forward_header_size(&largest));
    f->asks = take(l, p->shards, sizeof *f->asks);
    for (int i = 0; i < 2; i++) f->buffer[i] = take(l, 1, p->buffer_bytes);
    f->area = arena_make(take(l, 1, p->area_bytes), p->area_bytes);
}

static void lay_frames(Pipeline *p, Memory *l)
{
    p->frames = take(l, p->frame_count, sizeof *p->frames);
    for (uint32_t i = 0; i < p->frame_count; i++) {
        Frame f = {.number = i};
        lay_frame(p, l, &f);
        if (p->frames) p->frames[i] = f;
    }
}

static void lay_calls(Pipeline *p, Memory *l)
{
    p->calls_max = pipeline_calls_count(p);
    p->calls = take(l, p->calls_max, sizeof *p->calls);
    p->ready = take(l, p->calls_max, sizeof *p->ready);
    p->cancels = take(l, p->calls_max, sizeof *p->cancels);
    for (uint32_t i = 0; p->calls && i < p->calls_max; i++)
        p->calls[i] = (Call){.state = CALL_FREE};
}

static void lay_slots(Pipeline *p, Memory *l)
{
    uint32_t slots = p->config.slots;
    p->sessions = take(l, slots, sizeof *p->sessions);
    p->used = take(l, slots, sizeof *p->used);
    p->forget = take(l, slots, sizeof *p->forget);
    p->slot_replays = take(l, slots, sizeof *p->slot_replays);
    p->drops = take(l, slots, sizeof *p->drops);
    p->costs = take(l, pipeline_costs_count(p), sizeof *p->costs);
    p->row = take(l, p->config.hyper->hidden, sizeof *p->row);
    p->events_max = 2 * slots;
    p->events = take(l, p->events_max, sizeof *p->events);
    for (uint32_t i = 0; !l->full && l->arena && i < slots; i++) {
        p->sessions[i] = pipeline_session_id(p);
        p->used[i] = p->forget[i] = false;
        p->slot_replays[i] = 0;
        pipeline_costs_forget(p, i);
    }
}

static void lay_nodes(Pipeline *p, Memory *l)
{
    uint32_t nodes = p->config.cluster->node_count + 1;
    p->nodes = take(l, nodes, sizeof *p->nodes);
    p->ranges = take(l, p->stations + p->shards, sizeof *p->ranges);
    for (uint32_t i = 0; i < nodes; i++) {
        Node n = {.range = NONE};
        n.health_answer = take(l, 1, FRAME_ERROR_ROOM);
        n.drop_answer = take(l, 1, FRAME_ERROR_ROOM);
        if (p->nodes) p->nodes[i] = n;
    }
}

static void lay(Pipeline *p, Memory *l)
{
    uint32_t vocabulary = p->config.hyper->vocabulary;
    lay_nodes(p, l);
    lay_frames(p, l);
    lay_calls(p, l);
    lay_slots(p, l);
    p->order = take(l, p->frame_count, sizeof *p->order);
    p->best = take(l, vocabulary, sizeof *p->best);
    p->merged = take(l, vocabulary, sizeof *p->merged);
}

static void set_sizes(Pipeline *p, const PipelineConfig *c)
{
    CoordinatorConfig coordinator = pipeline_coordinator_config(c);
    *p = (Pipeline){.config = *c,
                    .element = c->cluster->element,
                    .chunk = coordinator.chunk,
                    .frame_count = coordinator.frames,
                    .stations = parts(c, CLUSTER_STATION),
                    .twins = 1,
                    .patience_ns = (c->patience_ms ? c->patience_ms : 30000) * MS};
    pipeline_ends_count(p);
    for (uint32_t i = 0; i < c->cluster->node_count; i++) {
        const ClusterNode *n = &c->cluster->nodes[i];
        if (n->is_replica && (n->role == CLUSTER_SHARD || n->embed || n->head)) p->twins = TWINS;
    }
    uint64_t embed = pipeline_embed_area_bytes(p), logits = pipeline_logits_area_bytes(p);
    p->buffer_bytes = (size_t)buffer_bytes(p);
    p->area_bytes = (size_t)(embed > logits ? embed : logits) + ARENA_ALIGN;
}

uint64_t pipeline_bytes(const PipelineConfig *config)
{
    Pipeline p;
    Memory sum = {0};
    if (check(config, NULL) != OK) return 0;
    set_sizes(&p, config);
    lay(&p, &sum);
    return sum.bytes + arena_bytes(sizeof p) + ARENA_ALIGN;
}

Error pipeline_build(const PipelineConfig *config, Coordinator *coordinator, Arena *arena,
                     Pipeline **out, Why *why)
{
    TRY(check(config, why));
    Pipeline *p = ARENA_NEW(arena, Pipeline, 1);
    if (!p) return error_why(why, ERR_MEMORY, "no memory for the pipeline");
    set_sizes(p, config);
    p->coordinator = coordinator;
    Memory in_place = {.arena = arena};
    lay(p, &in_place);
    if (in_place.full) return error_why(why, ERR_MEMORY, "no memory for the pipeline's frames");
    TRY(take_ranges(p, why));
    *out = p;
    return OK;
}
