/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/plan.h"

#include "base/max.h"
#include "base/min.h"
#include "cluster/cache.h"
#include "cluster/pipeline.h"
#include "cluster/plan_role.h"
#include "cluster/window.h"
#include "knot/emit.h"

Error plan_station_range(uint32_t layers, uint32_t count, uint32_t index, PhaseRange *out, Why *why)
{
    uint32_t phases = layers * PHASES;
    if (!count || count > phases || index >= count)
        return error_why(why, ERR_RANGE, "%u stations for %u layers; 1 to %u are possible", count,
                         layers, phases);
    uint32_t unit = count <= layers ? PHASES : 1, units = phases / unit;
    uint32_t size = units / count, more = units % count;
    uint32_t first = index * size + min_u32(index, more);
    *out = (PhaseRange){first * unit, (first + size + (index < more)) * unit};
    return OK;
}

StationConfig plan_station_config(const Plan *plan, uint32_t station)
{
    const PlanRequest *r = &plan->request;
    return (StationConfig){
        .knot = r->knot,
        .hyper = r->hyper,
        .range = plan->role[station].range,
        .cache = r->cache,
        .rows_max = plan->chunk,
        .sessions_max = r->sessions,
        .context = plan->context,
        .blocks = r->sessions * cache_blocks_for(plan->context),
        .workers = r->workers,
        .tile_bytes_max = plan->tile_bytes_max,
        .kernels = r->kernels,
        .ops = r->ops,
    };
}

CoordinatorConfig plan_coordinator_config(const Plan *plan)
{
    const PlanRequest *r = &plan->request;
    return (CoordinatorConfig){.vocabulary = r->hyper->vocabulary,
                               .context = plan->context,
                               .chunk = plan->chunk,
                               .slots = r->sessions,
                               .logit_rows = plan->logit_rows,
                               .drafts = r->drafts,
                               .hidden = r->hyper->hidden};
}

/* A station at an end of the line that keeps the embedding or the head. */
static Error cut_ends(Plan *plan, Why *why)
{
    const PlanRequest *r = &plan->request;
    if (!r->stations || (r->solo && (r->embed || r->head)))
        return error_why(why, ERR_RANGE, "%u stations for the embedding and the head", r->stations);
    if (!r->shards && !(r->embed && r->head))
        return error_why(why, ERR_RANGE, "no shards, and no station that keeps the %s",
                         r->embed ? "head" : "embedding");
    PlanRole *first = &plan->role[0], *last = &plan->role[r->stations - 1];
    first->embed = r->embed;
    last->head = r->head;
    if (r->embed) first->id_last = r->hyper->vocabulary;
    if (r->head) last->id_last = r->hyper->vocabulary;
    return OK;
}

static Error cut_roles(Plan *plan, Why *why)
{
    const PlanRequest *r = &plan->request;
    if (r->stations > PLAN_ROLES_MAX || r->shards > PLAN_ROLES_MAX - r->stations)
        return error_why(why, ERR_RANGE, "%u stations and %u shards; together at most %u",
                         r->stations, r->shards, PLAN_ROLES_MAX);
    plan->role_count = r->stations + r->shards;
    for (uint32_t i = 0; i < r->stations; i++) {
        PlanRole *role = &plan->role[i];
        *role = (PlanRole){0};
        if (r->ranges) role->range = r->ranges[i];
        else TRY(plan_station_range(r->hyper->layers, r->stations, i, &role->range, why));
    }
    TRY(cut_ends(plan, why));
    for (uint32_t i = 0; i < r->shards; i++) {
        PlanRole *role = &plan->role[r->stations + i];
        *role = (PlanRole){.is_shard = true};
        if (r->id_ends) {
            role->id_first = i ? r->id_ends[i - 1] : 0;
            role->id_last = r->id_ends[i];
        } else {
            TRY(shard_range(r->hyper->vocabulary, r->shards, i, &role->id_first, &role->id_last,
                            why));
        }
    }
    return OK;
}

/* --- Sizes for one choice of context, chunk and tile --- */

/* The buffers of a chunk between the roles: x, a partial, g, the hidden rows that ask for logits; in
 * a solo process also candidates and the coordinator. */
static uint64_t frame_bytes(const Plan *plan)
{
    const Hyper *h = plan->request.hyper;
    uint64_t floats =
        (uint64_t)plan->chunk * (2u * h->hidden + h->ffn) + (uint64_t)plan->logit_rows * h->hidden;
    uint64_t bytes = floats * sizeof(float) + 8 * ARENA_ALIGN;
    if (!plan->request.solo) return bytes;
    CoordinatorConfig coordinator = plan_coordinator_config(plan);
    return bytes + 3 * (uint64_t)h->vocabulary * sizeof(SamplerCandidate) +
           coordinator_bytes(&coordinator);
}

/* ---- The coordinator of a cluster */

static void total_role(PlanRole *role)
{
    role->total_bytes = role->process_bytes + role->floor_bytes + role->window_bytes +
                        role->scratch_bytes + role->frame_bytes + role->logits_bytes +
                        role->cache_bytes + role->form_bytes + role->pinned_bytes;
}

/* As serve/serve_form.c takes them: the vocabulary's tree, more of it while it is built; one grammar being made; masks
 * and grammars of answers. Real vocabularies take 30 to 40 bytes a token, and 90 to 95 once. */
uint64_t plan_form_bytes(uint32_t vocabulary, uint32_t sessions, uint64_t room)
{
    const uint64_t tree = 44, building = 112, making = 16 << 20, answer = 4 << 20;
    uint64_t least = max_u64(vocabulary * building, vocabulary * tree + making) + answer / 2;
    uint64_t most = max_u64(least, vocabulary * tree + making + sessions * answer);
    return room < least ? 0 : min_u64(room, most);
}

/* A cut inside a layer's FFN takes g along. */
static bool is_cut_inside_ffn(const Plan *plan)
{
    for (uint32_t i = 0; i + 1 < plan->request.stations; i++) {
        Phase phase = phase_of(plan->role[i].range.last);
        if (phase == PHASE_FFN_UP || phase == PHASE_FFN_DOWN) return true;
    }
    return false;
}

/* As host/remote.c counts them. */
enum {
    TOKEN_BYTES = 40,             /* of the tokenizer's tables, for each token */
    ANSWER_BYTES = 64 << 10,      /* of a conversation at the API */
    NODE_BYTES = 20 << 10,        /* a call under way, and what is known of the node */
    CONNECTION_BYTES = 128 << 10, /* buffers of one that works */
    API_BYTES = (4 << 20) + (256 << 10),
    OWN_WINDOW_BYTES = 8 << 20 /* of its own store */
};

static uint32_t plan_frames(const Plan *plan)
{
    uint32_t frames = plan->request.frames ? plan->request.frames : plan->request.stations;
    return min_u32(frames, CLUSTER_FILE_PIPELINE_MAX);
}

static uint32_t plan_nodes(const Plan *plan)
{
    const PlanRequest *r = &plan->request;
    uint32_t roles = r->stations + r->shards;
    uint32_t nodes = 1 + roles * (r->replicas + 1) + (r->wardens ? roles : 0);
    return min_u32(nodes, CLUSTER_FILE_NODES_MAX);
}

/* The nodes as far as the pipeline looks at them: coordinator, each range with its replicas, wardens. */
static void fill_nodes(const Plan *plan, ClusterFile *file)
{
    const PlanRequest *r = &plan->request;
    uint32_t at = 0;
    file->nodes = r->nodes;
    file->node_count = plan_nodes(plan);
    file->parts[CLUSTER_STATION] = r->stations;
    file->parts[CLUSTER_SHARD] = r->shards;
    r->nodes[at++] = (ClusterNode){.role = CLUSTER_COORDINATOR};
    for (uint32_t i = 0; i < plan->role_count; i++)
        for (uint32_t replica = 0; replica <= r->replicas && at < file->node_count; replica++) {
            const PlanRole *role = &plan->role[i];
            r->nodes[at++] = (ClusterNode){.role = role->is_shard ? CLUSTER_SHARD : CLUSTER_STATION,
                                           .range = role->range,
                                           .id_first = role->id_first,
                                           .id_last = role->id_last,
                                           .part = role->is_shard ? i - r->stations : i,
                                           .is_replica = replica > 0,
                                           .embed = role->embed,
                                           .head = role->head};
        }
    while (at < file->node_count) r->nodes[at++] = (ClusterNode){.role = CLUSTER_LAYER_WARDEN};
}

static uint64_t pipeline_exact_bytes(const Plan *plan)
{
    const PlanRequest *r = &plan->request;
    ClusterFile file = {.layers = r->hyper->layers,
                        .vocabulary = r->hyper->vocabulary,
                        .context = plan->context,
                        .chunk = plan->chunk,
                        .sessions = r->sessions,
                        .element = ROWS_F32, /* the largest */
                        .cache = r->cache};
    fill_nodes(plan, &file);
    PipelineConfig config = {.cluster = &file,
                             .hyper = r->hyper,
                             .slots = r->sessions,
                             .logit_rows = plan->logit_rows,
                             .drafts = r->drafts,
                             .frames = plan_frames(plan)};
    CoordinatorConfig coordinator = pipeline_coordinator_config(&config);
    return pipeline_bytes(&config) + coordinator_bytes(&coordinator) + 4 * ARENA_ALIGN;
}

/* Frames under way and the one that gets its rows, each with rows out and in and the candidates of all
 * shards. */
static uint64_t pipeline_about_bytes(const Plan *plan)
{
    const PlanRequest *r = &plan->request;
    uint64_t frames = plan_frames(plan) + 1, vocabulary = r->hyper->vocabulary;
    uint64_t row = 2u * r->hyper->hidden + (is_cut_inside_ffn(plan) ? 2u * r->hyper->ffn : 0);
    uint64_t picks = (uint64_t)plan->logit_rows * 3 * r->hyper->hidden;
    CoordinatorConfig coordinator = plan_coordinator_config(plan);
    coordinator.frames = (uint32_t)frames;
    return frames * ((plan->chunk * row + picks) * sizeof(float) +
                     vocabulary * sizeof(SamplerCandidate) + NODE_BYTES) +
           2 * vocabulary * sizeof(SamplerCandidate) + coordinator_bytes(&coordinator);
}

static void size_coordinator(Plan *plan)
{
    const PlanRequest *r = &plan->request;
    PlanRole *role = &plan->coordinator;
    *role = (PlanRole){.process_bytes = r->process_bytes};
    role->floor_bytes = r->knot->tokenizer.bytes + (uint64_t)r->hyper->vocabulary * TOKEN_BYTES;
    role->window_bytes = OWN_WINDOW_BYTES;
    role->scratch_bytes = plan_role_own_bytes(plan);
    role->frame_bytes = (r->nodes ? pipeline_exact_bytes(plan) : pipeline_about_bytes(plan)) +
                        (uint64_t)plan_nodes(plan) * NODE_BYTES +
                        (uint64_t)plan->role_count * CONNECTION_BYTES + API_BYTES +
                        (uint64_t)r->sessions * ANSWER_BYTES;
    total_role(role);
}

uint64_t plan_scratch_bytes(const Plan *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->role_count; i++)
        most = max_u64(most, plan->role[i].scratch_bytes);
    return most;
}

static void add_role(PlanRole *sum, const PlanRole *role)
{
    sum->floor_bytes += role->floor_bytes;
    sum->cache_bytes += role->cache_bytes;
    sum->logits_bytes += role->logits_bytes;
    sum->weight_bytes += role->weight_bytes;
    sum->window_bytes = max_u64(sum->window_bytes, role->window_bytes);
    sum->scratch_bytes = max_u64(sum->scratch_bytes, role->scratch_bytes);
}

/* Fills every role and the sum; the largest process is what the budget is compared with. */
static Error size_roles(Plan *plan, uint64_t *largest, Why *why)
{
    const PlanRequest *r = &plan->request;
    plan->sum = (PlanRole){.process_bytes = r->process_bytes};
    *largest = 0;
    for (uint32_t i = 0; i < plan->role_count; i++) {
        PlanRole *role = &plan->role[i];
        TRY(plan_role_size(plan, i, role, why));
        add_role(&plan->sum, role);
        role->frame_bytes = 0;
        if (r->solo) continue;
        role->process_bytes = r->process_bytes;
        role->frame_bytes = plan_role_frame_bytes(plan, role);
        total_role(role);
        *largest = max_u64(*largest, role->total_bytes);
    }
    plan->sum.scratch_bytes += frame_bytes(plan);
    if (r->forms)
        plan->sum.form_bytes =
            plan_form_bytes(r->hyper->vocabulary, r->sessions, r->memory_bytes / 4);
    total_role(&plan->sum);
    if (r->solo) {
        *largest = plan->sum.total_bytes;
        return OK;
    }
    size_coordinator(plan);
    *largest = max_u64(*largest, plan->coordinator.total_bytes);
    return OK;
}

/* --- Choosing --- */

void plan_role_name(const Plan *plan, const PlanRole *role, char out[PLAN_ROLE_NAME_BYTES])
{
    Emit e = emit_make(out, PLAN_ROLE_NAME_BYTES - 1);
    uint32_t number = role == &plan->coordinator ? 0 : (uint32_t)(role - plan->role);
    if (role->is_shard) number -= plan->request.stations;
    emit_text(&e, role == &plan->coordinator ? "coordinator-"
                  : role->is_shard           ? "shard-"
                                             : "station-");
    emit_u64(&e, number);
    out[e.used] = '\0';
}

static const PlanRole *largest_role(const Plan *plan)
{
    if (plan->request.solo) return &plan->sum;
    const PlanRole *best = &plan->coordinator;
    for (uint32_t i = 0; i < plan->role_count; i++)
        if (plan->role[i].total_bytes > best->total_bytes) best = &plan->role[i];
    return best;
}

static unsigned mib(uint64_t bytes) { return (unsigned)(bytes >> 20); }
static unsigned tenth(uint64_t bytes) { return (unsigned)((bytes & 0xfffff) * 10 >> 20); }

static Error refuse(const Plan *plan, Why *why)
{
    const PlanRole *w = largest_role(plan);
    char name[PLAN_ROLE_NAME_BYTES] = "";
    if (!plan->request.solo) plan_role_name(plan, w, name);
#define M(x) mib(x), tenth(x)
    return error_why(
        why, ERR_PLAN,
        "%s%sprocess %u.%u + floor %u.%u + window %u.%u + activations %u.%u (chunk %u) + logits %u.%u + "
        "attention cache %u.%u (context %u) = %u.%u MiB, more than the %u.%u MiB allowed",
        name, name[0] ? ": " : "", M(w->process_bytes), M(w->floor_bytes), M(w->window_bytes),
        M(w->scratch_bytes + w->frame_bytes), plan->chunk, M(w->logits_bytes), M(w->cache_bytes),
        plan->context, M(w->total_bytes), M(plan->request.memory_bytes));
#undef M
}

/* What a role has in place of a window when nothing is streamed. */
static uint64_t resident_window_bytes(const PlanRole *role)
{
    return WINDOW_EDGES_BYTES + (plan_role_has_embedding(role) ? WINDOW_ROWS_BYTES : 0);
}

uint64_t plan_role_fixed_bytes(const PlanRole *role)
{
    return role->process_bytes + role->floor_bytes + role->scratch_bytes + role->frame_bytes +
           role->logits_bytes + resident_window_bytes(role);
}

static uint64_t resident_bytes(const PlanRole *role)
{
    return plan_role_fixed_bytes(role) + role->cache_bytes + role->weight_bytes;
}

/* `resident`: without streaming anything. */
static Error fits(Plan *plan, bool resident, bool *yes, Why *why)
{
    uint64_t largest;
    TRY(size_roles(plan, &largest, why));
    for (uint32_t i = 0; resident && i < plan->role_count; i++)
        largest = max_u64(largest, resident_bytes(&plan->role[i]));
    *yes = largest <= plan->request.memory_bytes;
    return OK;
}

/* One a station, but no more than half the coordinator's budget holds. */
static Error choose_frames(Plan *plan, Why *why)
{
    uint32_t chunk = plan->chunk;
    uint64_t largest;
    if (!chunk) plan->chunk = 1;
    plan->request.frames = min_u32(plan->request.stations, CLUSTER_FILE_PIPELINE_MAX);
    TRY(size_roles(plan, &largest, why));
    while (plan->coordinator.total_bytes > plan->request.memory_bytes / 2 &&
           plan->request.frames > 2) {
        plan->request.frames /= 2;
        TRY(size_roles(plan, &largest, why));
    }
    plan->chunk = chunk;
    return OK;
}

uint32_t plan_logit_rows(uint32_t wanted, uint32_t drafts, uint32_t sessions, uint32_t ids,
                         bool solo, uint64_t memory_bytes)
{
    const uint64_t answer = 12; /* of an id, wire/shard_frames.h */
    uint64_t row = (uint64_t)max_u32(ids, 1) * sizeof(float);
    uint64_t draft_row = solo ? row : row / sizeof(float) * (sizeof(float) + answer);
    uint64_t most = max_u64(memory_bytes / 8 / row, 1);
    uint64_t draft_rows = min_u64((uint64_t)sessions * drafts, max_u32(PLAN_DRAFT_ROWS, drafts));
    draft_rows = min_u64(draft_rows, memory_bytes / 24 / draft_row);
    if (!solo && draft_rows < drafts)
        draft_rows = 0; /* a node with a wide slice and little memory */
    uint64_t rows = min_u64(max_u32(wanted, 1), most) + draft_rows;
    return (uint32_t)min_u64(rows, SHARD_ROWS_MAX);
}

static void choose_logit_rows(Plan *plan)
{
    const PlanRequest *r = &plan->request;
    uint32_t ids = r->hyper->vocabulary;
    if (!r->solo && !r->head) ids = (ids + r->shards - 1) / r->shards;
    if (r->ids_most) ids = r->ids_most;
    plan->logit_rows =
        plan_logit_rows(r->logit_rows, r->drafts, r->sessions, ids, r->solo, r->memory_bytes);
}

/* The largest chunk of 2^n rows whose activations take at most a quarter of what is free. */
static Error halve_chunk_solo(Plan *plan, Why *why)
{
    for (plan->chunk = PLAN_CHUNK_DEFAULT_MAX; plan->chunk > 1; plan->chunk /= 2) {
        uint64_t largest;
        TRY(size_roles(plan, &largest, why));
        uint64_t others = plan->sum.total_bytes - plan->sum.scratch_bytes;
        uint64_t free_bytes =
            others < plan->request.memory_bytes ? plan->request.memory_bytes - others : 0;
        if (plan->sum.scratch_bytes <= free_bytes / 4) return OK;
    }
    return OK;
}

/* As without drafts: those are worth a shorter context, but not slower prompts. */
static Error choose_chunk_solo(Plan *plan, Why *why)
{
    uint32_t rows = plan->logit_rows, drafts = plan->request.drafts;
    plan->request.drafts = 0;
    choose_logit_rows(plan);
    Error error = halve_chunk_solo(plan, why);
    plan->logit_rows = rows;
    plan->request.drafts = drafts;
    return error;
}

static const PlanRole *any_role(const Plan *plan, uint32_t i)
{
    return i < plan->role_count ? &plan->role[i] : &plan->coordinator;
}

/* The same in each process: what more rows take beyond one row's. */
static Error choose_chunk_cluster(Plan *plan, Why *why)
{
    uint64_t one[PLAN_ROLES_MAX + 1], largest, budget = plan->request.memory_bytes;
    plan->chunk = 1;
    TRY(size_roles(plan, &largest, why));
    for (uint32_t i = 0; i <= plan->role_count; i++) one[i] = any_role(plan, i)->total_bytes;
    for (plan->chunk = PLAN_CHUNK_DEFAULT_MAX; plan->chunk > 1; plan->chunk /= 2) {
        bool fits_all = true;
        TRY(size_roles(plan, &largest, why));
        for (uint32_t i = 0; i <= plan->role_count; i++) {
            uint64_t free_bytes = one[i] < budget ? budget - one[i] : 0;
            fits_all &= any_role(plan, i)->total_bytes - one[i] <= free_bytes / 4;
        }
        if (fits_all) return OK;
    }
    return OK;
}

static Error choose_chunk(Plan *plan, Why *why)
{
    return plan->request.solo ? choose_chunk_solo(plan, why) : choose_chunk_cluster(plan, why);
}

/* Bisects on multiples of 64 positions. In a cluster the weights stay resident where they can, as long as a
 * useful context is left. */
static Error choose_context(Plan *plan, uint32_t limit, Why *why)
{
    bool resident = false;
    plan->context = min_u32(limit, PLAN_CONTEXT_USEFUL);
    if (!plan->request.solo) TRY(fits(plan, true, &resident, why));
    uint32_t low = 1, high = (limit + CACHE_BLOCK_POSITIONS - 1) / CACHE_BLOCK_POSITIONS;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        bool yes;
        plan->context = min_u32(middle * CACHE_BLOCK_POSITIONS, limit);
        TRY(fits(plan, resident, &yes, why));
        if (yes) low = middle;
        else high = middle - 1;
    }
    plan->context = min_u32(low * CACHE_BLOCK_POSITIONS, limit);
    return OK;
}

static void choose_window(Plan *plan)
{
    plan->window_bytes = window_bytes(plan->request.memory_bytes);
    plan->tile_bytes_max = window_tile_bytes(plan->window_bytes);
}

/* What is left in a node holds weights: all of them, or their beginning. */
static void pin_role(const PlanRequest *r, PlanRole *role)
{
    uint64_t streaming = role->total_bytes + WINDOW_EDGES_BYTES;
    if (resident_bytes(role) <= r->memory_bytes) {
        role->window_bytes = resident_window_bytes(role);
        role->pinned_bytes = role->weight_bytes;
    } else if (streaming < r->memory_bytes) {
        role->window_bytes += WINDOW_EDGES_BYTES;
        role->pinned_bytes = min_u64(r->memory_bytes - streaming, role->weight_bytes);
    }
    total_role(role);
}

/* The same in one process: a prefix of the payload. */
static void pin_solo(Plan *plan)
{
    const PlanRequest *r = &plan->request;
    uint64_t free_bytes = r->memory_bytes - plan->sum.total_bytes;
    plan->resident = r->knot->payload_bytes <= free_bytes + plan->sum.window_bytes;
    if (plan->resident) {
        plan->tile_bytes_max = 0;
        plan->sum.window_bytes = plan->window_bytes = 0;
        plan->sum.pinned_bytes = r->knot->payload_bytes;
    } else {
        plan->sum.pinned_bytes =
            free_bytes > WINDOW_PAGE_BYTES ? free_bytes - WINDOW_PAGE_BYTES : 0;
    }
    plan->pinned_bytes = plan->sum.pinned_bytes;
    total_role(&plan->sum);
}

static void choose_pinned(Plan *plan)
{
    if (plan->request.solo) {
        pin_solo(plan);
        return;
    }
    for (uint32_t i = 0; i < plan->role_count; i++) pin_role(&plan->request, &plan->role[i]);
}

/* The other half of what is left is for what requests take while they arrive. */
static void choose_forms(Plan *plan)
{
    const PlanRequest *r = &plan->request;
    PlanRole *role = &plan->coordinator;
    if (r->solo) return;
    role->form_bytes = plan_form_bytes(r->hyper->vocabulary, r->sessions,
                                       (r->memory_bytes - role->total_bytes) / 2);
    total_role(role);
}

static Error make(const PlanRequest *request, Plan *plan, Why *why)
{
    plan->request = *request;
    if (!request->sessions) plan->request.sessions = 1;
    if (request->context > STATION_CONTEXT_MAX || plan->request.sessions > STATION_SESSIONS_MAX)
        return error_why(why, ERR_RANGE, "a context of %u for %u sequences; at most %u for %u",
                         request->context, plan->request.sessions, STATION_CONTEXT_MAX,
                         STATION_SESSIONS_MAX);
    plan->resident = false;
    plan->pinned_bytes = 0;
    TRY(cut_roles(plan, why));
    if (request->hyper->context && request->context > request->hyper->context)
        return error_why(why, ERR_RANGE, "a context of %u; the model was trained for %u positions",
                         request->context, request->hyper->context);
    uint32_t trained = request->hyper->context ? request->hyper->context : PLAN_CONTEXT_DEFAULT_MAX;
    uint32_t limit = min_u32(trained, PLAN_CONTEXT_DEFAULT_MAX);
    choose_window(plan);
    choose_logit_rows(plan);
    plan->context = request->context ? request->context : min_u32(limit, CACHE_BLOCK_POSITIONS);
    plan->chunk = request->chunk;
    if (!request->frames && !request->solo) TRY(choose_frames(plan, why));
    if (!plan->chunk) TRY(choose_chunk(plan, why));
    if (!request->context) TRY(choose_context(plan, limit, why));
    bool yes;
    TRY(fits(plan, false, &yes, why));
    if (!yes) return refuse(plan, why);
    choose_pinned(plan);
    choose_forms(plan);
    return OK;
}

/* A model that has no room beside drafts, or beside answers with a form, is served without them. */
Error plan_make(const PlanRequest *request, Plan *plan, Why *why)
{
    PlanRequest without = *request;
    Error error = make(request, plan, why);
    if (error != ERR_PLAN || !request->solo) return error;
    without.drafts = 0;
    if (request->drafts) error = make(&without, plan, why);
    if (error != ERR_PLAN || !request->forms) return error;
    without.forms = false;
    return make(&without, plan, why);
}

void plan_split_workers(const Knot *knot, const Hyper *hyper, uint32_t workers, uint32_t *stations,
                        uint32_t *shards)
{
    const KnotTensor *head = knot_head(knot);
    uint64_t head_bytes = head ? head->bytes : 0, all = 0;
    for (uint32_t i = 0; i < knot->tensor_count; i++)
        if (knot->tensors[i].name[0] == 'b') all += knot->tensors[i].bytes; /* blk_... */
    uint64_t share = all + head_bytes ? head_bytes * workers / (all + head_bytes) : 1;
    *shards = share < 1 ? 1 : share >= workers ? workers - (workers > 1) : (uint32_t)share;
    *stations = workers > *shards ? workers - *shards : 1;
    *stations = min_u32(*stations, hyper->layers * PHASES);
}
