/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/clock.h"
#include "host/cpu.h"
#include "host/folios.h"
#include "host/memory.h"
#include "cluster/pace.h"
#include "host/worker.h"

/* Heap, stacks and page tables that come after the process was measured. */
static const uint64_t SLACK_BYTES = (uint64_t)3 << 20;

/* Written by the engine's thread, read by any. */
typedef struct Laps {
    atomic_ullong steps;
    atomic_uint rows, embed_us, own_us;
    atomic_uint role_us[PLAN_ROLES_MAX];
    /* the engine thread's: when the last lap ended, 0: none is measured; whether the step is like the one before */
    uint64_t ended_ns;
    bool alike;
} Laps;

struct Engine {
    const OpenModel *model;
    Plan plan;
    PhaseRange *ranges;
    Worker worker;
    void *memory;
    size_t memory_bytes;
    Station **stations;
    Shard **shards;
    Coordinator *coordinator;
    float *x, *partial, *g;                       /* [chunk] rows */
    float *hidden;                                /* [logit_rows][hidden] after the output norm */
    SamplerCandidate *best, *shard_best, *merged; /* [vocabulary] each */
    const float **slices;
    uint32_t *slice_lengths;
    EngineCost *costs; /* [sessions] */
    Laps laps;
    uint32_t passes;
    double large_pages;
    bool paced;
    Pace pace;
};

/* --- Times --- */

static void begin_laps(Engine *e, uint64_t now_ns, uint32_t rows)
{
    Laps *l = &e->laps;
    l->ended_ns = now_ns;
    l->alike = l->rows == rows;
    l->rows = rows;
    l->steps++;
}

/* Result  the time. */
static uint64_t end_lap(Engine *e, atomic_uint *us)
{
    Laps *l = &e->laps;
    uint64_t now_ns = clock_now_ns();
    if (!l->ended_ns) return now_ns;
    uint32_t took_us = (uint32_t)((now_ns - l->ended_ns) / 1000), usual_us = *us;
    *us = l->alike && usual_us ? (7 * usual_us + took_us) / 8 : took_us;
    l->ended_ns = now_ns;
    return now_ns;
}

void engine_times(const Engine *e, EngineTimes *out)
{
    const Laps *l = &e->laps;
    *out = (EngineTimes){
        .steps = l->steps, .rows = l->rows, .embed_us = l->embed_us, .own_us = l->own_us};
    for (uint32_t i = 0; i < e->plan.role_count; i++) out->role_us[i] = l->role_us[i];
}

/* --- Opening --- */

static Error choose_isa(const EngineOptions *o, Isa *isa, Why *why)
{
    *isa = o->isa_given ? o->isa : cpu_best();
    if (!cpu_has(*isa) || !kernels_for(*isa) || !ops_for(*isa))
        return error_why(why, ERR_NOT_AVAILABLE,
                         "instruction set %s: this machine or this build lacks it",
                         kernels_isa_name(*isa));
    return OK;
}

static Error read_ranges(Engine *e, const EngineOptions *o, PlanRequest *request, Why *why)
{
    if (!o->ranges) return OK;
    e->ranges = calloc(PLAN_ROLES_MAX, sizeof *e->ranges);
    if (!e->ranges) return ERR_MEMORY;
    request->ranges = e->ranges;
    return phase_parse_ranges(o->ranges, e->model->hyper.layers, e->ranges, PLAN_ROLES_MAX,
                              &request->stations, why);
}

static Error make_plan(Engine *e, const EngineOptions *o, Why *why)
{
    Isa isa;
    TRY(choose_isa(o, &isa, why));
    PlanRequest request = {
        .knot = &e->model->file.knot,
        .hyper = &e->model->hyper,
        .solo = true,
        .memory_bytes = o->memory_bytes ? o->memory_bytes : memory_allowed(),
        .process_bytes = memory_resident() + SLACK_BYTES,
        .stations = o->stations ? o->stations : PLAN_STATIONS_DEFAULT,
        .shards = o->shards ? o->shards : PLAN_SHARDS_DEFAULT,
        .context = o->context,
        .chunk = o->chunk,
        .logit_rows = o->logit_rows,
        .drafts = o->drafts,
        .sessions = o->sessions,
        .forms = o->forms,
        .workers = o->threads ? o->threads : cpu_cores(),
        .cache = o->cache,
        .kernels = kernels_for(isa),
        .ops = ops_for(isa),
    };
    TRY(read_ranges(e, o, &request, why));
    return plan_make(&request, &e->plan, why);
}

static uint64_t engine_memory_bytes(const Plan *p)
{
    const PlanRole *s = &p->sum;
    return s->floor_bytes + s->scratch_bytes + s->logits_bytes + s->cache_bytes +
           (uint64_t)p->role_count * 4 * ARENA_ALIGN + (1 << 16);
}

static Error take_memory(Engine *e, Arena *arena, Why *why)
{
    e->memory_bytes = (size_t)engine_memory_bytes(&e->plan);
    e->memory = mmap(NULL, e->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (e->memory == MAP_FAILED) {
        e->memory = NULL;
        return error_why(why, ERR_MEMORY, "%llu bytes for caches and activations",
                         (unsigned long long)e->memory_bytes);
    }
    if (e->plan.resident) madvise(e->memory, e->memory_bytes, MADV_HUGEPAGE);
    *arena = arena_make(e->memory, e->memory_bytes);
    return OK;
}

static Error take_buffers(Engine *e, Arena *arena, Why *why)
{
    const Plan *p = &e->plan;
    const Hyper *h = p->request.hyper;
    e->stations = ARENA_NEW(arena, Station *, p->request.stations);
    e->shards = ARENA_NEW(arena, Shard *, p->request.shards);
    e->costs = ARENA_NEW(arena, EngineCost, p->request.sessions);
    e->slices = ARENA_NEW(arena, const float *, p->request.shards);
    e->slice_lengths = ARENA_NEW(arena, uint32_t, p->request.shards);
    e->x = arena_take_raw(arena, (size_t)p->chunk * h->hidden * sizeof(float));
    e->partial = arena_take_raw(arena, (size_t)p->chunk * h->hidden * sizeof(float));
    e->g = arena_take_raw(arena, (size_t)p->chunk * h->ffn * sizeof(float));
    e->hidden = arena_take_raw(arena, (size_t)p->logit_rows * h->hidden * sizeof(float));
    e->best = arena_take_raw(arena, h->vocabulary * sizeof(SamplerCandidate));
    e->shard_best = arena_take_raw(arena, h->vocabulary * sizeof(SamplerCandidate));
    e->merged = arena_take_raw(arena, h->vocabulary * sizeof(SamplerCandidate));
    if (!e->stations || !e->shards || !e->costs || !e->slices || !e->slice_lengths || !e->x ||
        !e->partial || !e->g || !e->hidden || !e->best || !e->shard_best || !e->merged)
        return error_why(why, ERR_MEMORY, "the plan's sum is too small for the frames");
    return OK;
}

/* The scratch is shared: the largest of the roles, taken once. */
static Error build_roles(Engine *e, Arena *arena, Why *why)
{
    const Plan *p = &e->plan;
    void *scratch = arena_take_raw(arena, (size_t)plan_scratch_bytes(p));
    if (!scratch) return error_why(why, ERR_MEMORY, "the plan's sum is too small for the scratch");
    for (uint32_t i = 0; i < p->request.stations; i++) {
        StationConfig config = plan_station_config(p, i);
        TRY(station_build(&config, arena, scratch, &e->stations[i], why));
    }
    for (uint32_t i = 0; i < p->request.shards; i++) {
        ShardConfig config = plan_shard_config(p, i);
        TRY(shard_build(&config, arena, scratch, &e->shards[i], why));
        e->slice_lengths[i] = config.id_last - config.id_first;
    }
    CoordinatorConfig config = plan_coordinator_config(p);
    return coordinator_build(&config, arena, &e->coordinator, why);
}

static Error open_parts(Engine *e, const EngineOptions *options, Why *why)
{
    TRY(make_plan(e, options, why));
    Arena arena;
    TRY(take_memory(e, &arena, why));
    TRY(take_buffers(e, &arena, why));
    TRY(build_roles(e, &arena, why));
    e->large_pages = e->plan.resident ? -1 : folios_large_share(&e->model->file);
    TRY(worker_start(&e->worker, &e->model->file, e->plan.pinned_bytes, e->plan.sum.window_bytes,
                     e->plan.request.workers, why));
    for (uint32_t i = 0; i < e->plan.request.stations; i++)
        TRY(worker_read_floor(&e->worker, e->stations[i], why));
    weights_drop(&e->worker.weights);
    e->worker.weights.counters = (WeightsCounters){0};
    return OK;
}

Error engine_open(const OpenModel *model, const EngineOptions *options, Engine **out, Why *why)
{
    Engine *e = calloc(1, sizeof *e);
    if (!e) return error_why(why, ERR_MEMORY, "no memory for the engine");
    e->model = model;
    Error error = open_parts(e, options, why);
    if (error == OK) *out = e;
    else engine_close(e);
    return error;
}

void engine_close(Engine *e)
{
    if (!e) return;
    worker_stop(&e->worker);
    if (e->memory) munmap(e->memory, e->memory_bytes);
    free(e->ranges);
    free(e);
}

const Plan *engine_plan(const Engine *e) { return &e->plan; }
const WeightsCounters *engine_counters(const Engine *e) { return &e->worker.weights.counters; }
Isa engine_isa(const Engine *e) { return e->plan.request.kernels->isa; }
uint64_t engine_memory_left(const Engine *e)
{
    uint64_t resident = memory_resident(), budget = e->plan.request.memory_bytes;
    return resident < budget ? budget - resident : 0;
}

uint32_t engine_passes(const Engine *e) { return e->passes; }
double engine_large_pages(const Engine *e) { return e->large_pages; }

/* --- Carrying out wishes --- */

static Error embed(Engine *e, const uint32_t *ids, uint32_t rows, Why *why)
{
    size_t floats = (size_t)rows * e->plan.request.hyper->hidden;
    memset(e->x, 0, floats * sizeof(float));
    for (uint32_t i = 0; i < e->plan.request.shards; i++) {
        TRY(shard_begin_embed(e->shards[i], ids, rows, e->partial, why));
        TRY(worker_run_shard(&e->worker, e->shards[i], why));
        shard_merge(e->x, e->partial, floats);
    }
    return OK;
}

static Error forward_frame(Engine *e, const StationFrame *frame, Why *why)
{
    for (uint32_t i = 0; i < e->plan.request.stations; i++) {
        TRY(worker_run_station(&e->worker, e->stations[i], frame, why));
        end_lap(e, &e->laps.role_us[i]);
    }
    e->passes++;
    return OK;
}

static Error forward(Engine *e, uint32_t position, uint32_t rows, Why *why)
{
    StationSequence sequence = {.session = 0, .position = position, .rows = rows};
    StationFrame frame = {
        .x = e->x, .g = e->g, .rows = rows, .sequences = &sequence, .sequence_count = 1};
    return forward_frame(e, &frame, why);
}

/* The output norm of one row of x into row `to` of the head's input. */
static void norm_row(Engine *e, uint32_t row, uint32_t to)
{
    uint32_t hidden = e->plan.request.hyper->hidden;
    const Station *exit_station = e->stations[e->plan.request.stations - 1];
    station_norm_output(exit_station, e->x + (size_t)row * hidden, e->hidden + (size_t)to * hidden);
}

/* Logits of the head's input rows on every shard. */
static Error head(Engine *e, uint32_t rows, Why *why)
{
    for (uint32_t i = 0; i < e->plan.request.shards; i++) {
        TRY(shard_begin_logits(e->shards[i], e->hidden, rows, why));
        TRY(worker_run_shard(&e->worker, e->shards[i], why));
        end_lap(e, &e->laps.role_us[e->plan.request.stations + i]);
    }
    return OK;
}

/* The k best of all shards into e->best, and the sum of exponentials. */
static uint32_t top(Engine *e, uint32_t row, uint32_t k, LogSum *sum, float scale)
{
    uint32_t count = 0;
    if (sum) logsum_start(sum);
    for (uint32_t i = 0; i < e->plan.request.shards; i++) {
        uint32_t more = shard_top(e->shards[i], row, k, e->shard_best, sum, scale);
        count = sampler_merge(e->best, count, e->shard_best, more, k, e->merged);
    }
    return count;
}

/* --- Answers --- */

/* The adjusted logit of one id: that of the shard that has it. */
static float logit_of(const Engine *e, uint32_t row, uint32_t id)
{
    uint32_t shard = 0;
    while (id - shard_id_first(e->shards[shard]) >= e->slice_lengths[shard]) shard++;
    return shard_logits(e->shards[shard], row)[id - shard_id_first(e->shards[shard])];
}

static Error pick_token(Engine *e, uint32_t row, CoordinatorPick *pick, Why *why)
{
    if (pick->picked) return OK; /* behind a draft that was wrong */
    for (uint32_t i = 0; pick->mask && i < e->plan.request.shards; i++)
        shard_mask(e->shards[i], row, pick->mask, shard_id_first(e->shards[i]));
    for (uint32_t i = 0; i < e->plan.request.shards; i++)
        shard_adjust(e->shards[i], row, pick->params, pick->seen, pick->seen_count);
    while (!pick->picked) {
        LogSum sum;
        uint32_t count = top(e, row, pick->k, pick->wants_sum ? &sum : NULL, pick->sum_scale);
        bool complete = count == e->plan.request.hyper->vocabulary;
        TRY(coordinator_give_top(e->coordinator, pick, e->best, count, complete,
                                 pick->wants_sum ? &sum : NULL,
                                 pick->wants_id ? logit_of(e, row, pick->id) : 0, why));
    }
    return OK;
}

/* Nothing of the frame can fail any more. */
static void give_pool(Engine *e, const CoordinatorFrame *frame, uint32_t pool, bool dropped)
{
    const CoordinatorPool *p = &frame->pools[pool];
    for (uint32_t i = p->first; i < p->first + p->count; i++) {
        norm_row(e, dropped ? i : frame->wanted[i], 0);
        coordinator_give_hidden(e->coordinator, p->slot, e->hidden);
    }
}

static Error carry_out(Engine *e, CoordinatorFrame *frame, Why *why)
{
    TRY(embed(e, frame->ids, frame->rows, why));
    end_lap(e, &e->laps.embed_us);
    StationFrame rows = {.x = e->x,
                         .g = e->g,
                         .rows = frame->rows,
                         .sequences = frame->sequences,
                         .sequence_count = frame->sequence_count,
                         .wanted = frame->wanted,
                         .wanted_count = frame->wanted_count};
    TRY(forward_frame(e, &rows, why));
    bool dropped = station_drops_unwanted(e->stations[e->plan.request.stations - 1]);
    for (uint32_t i = 0; i < frame->pick_count; i++)
        norm_row(e, dropped ? frame->picks[i].wanted : frame->picks[i].row, i);
    TRY(head(e, frame->pick_count, why));
    for (uint32_t i = 0; i < frame->pick_count; i++) TRY(pick_token(e, i, &frame->picks[i], why));
    for (uint32_t i = 0; i < frame->pool_count; i++) give_pool(e, frame, i, dropped);
    return OK;
}

static void count_cost(Engine *e, const CoordinatorFrame *frame, uint64_t ns)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++) {
        EngineCost *c = &e->costs[frame->sequences[i].session];
        c->frames++;
        c->ns += ns;
    }
}

EngineCost *engine_cost(Engine *e, uint32_t slot)
{
    ASSERT(slot < e->plan.request.sessions);
    return &e->costs[slot];
}

bool engine_step(Engine *e, const CoordinatorEvent **events, uint32_t *count, Why *why)
{
    CoordinatorFrame *frame;
    *count = 0;
    if (!coordinator_frame(e->coordinator, &frame)) return false;
    uint64_t start_ns = clock_now_ns();
    uint32_t rows = frame->rows;
    begin_laps(e, start_ns, rows);
    Error error = carry_out(e, frame, why);
    uint64_t took_ns = end_lap(e, &e->laps.own_us) - start_ns;
    e->laps.ended_ns = 0;
    count_cost(e, frame, took_ns);
    *events = error == OK ? coordinator_end_frame(e->coordinator, frame, count)
                          : coordinator_fail_frame(e->coordinator, frame, error, count);
    if (e->paced) pace_keep(&e->pace, e->coordinator, rows, took_ns);
    return true;
}

void engine_set_cancel(Engine *e, bool (*cancelled)(void *context), void *context)
{
    worker_set_cancel(&e->worker, cancelled, context);
}

void engine_keep_pace(Engine *e)
{
    e->paced = true;
    pace_start(&e->pace, e->coordinator);
}

Error engine_ready(const Engine *e, Why *why) { return knot_file_intact(&e->model->file, why); }

Coordinator *engine_coordinator(Engine *e) { return e->coordinator; }

/* --- Scores --- */

static void visit_row(Engine *e, uint32_t row, uint32_t position, uint32_t k, EngineVisit visit,
                      void *context)
{
    LogSum sum;
    uint32_t count = top(e, row, k, &sum, 1);
    for (uint32_t i = 0; i < e->plan.request.shards; i++)
        e->slices[i] = shard_logits(e->shards[i], row);
    EnginePosition p = {
        .position = position,
        .top = e->best,
        .top_count = count,
        .log_sum = logsum_log(&sum),
        .slices = e->slices,
        .slice_lengths = e->slice_lengths,
        .slice_count = e->plan.request.shards,
    };
    visit(context, &p);
}

Error engine_score(Engine *e, const uint32_t *ids, uint32_t count, uint32_t k, EngineVisit visit,
                   void *context, Why *why)
{
    if (count > e->plan.context)
        return error_why(why, ERR_CAPACITY, "%u tokens exceed the context of %u", count,
                         e->plan.context);
    for (uint32_t at = 0; at < count;) {
        uint32_t rows = count - at < e->plan.chunk ? count - at : e->plan.chunk;
        TRY(embed(e, ids + at, rows, why));
        TRY(forward(e, at, rows, why));
        for (uint32_t r = 0; r < rows;) {
            uint32_t some = rows - r < e->plan.logit_rows ? rows - r : e->plan.logit_rows;
            for (uint32_t i = 0; i < some; i++) norm_row(e, r + i, i);
            TRY(head(e, some, why));
            for (uint32_t i = 0; i < some; i++) visit_row(e, i, at + r + i, k, visit, context);
            r += some;
        }
        at += rows;
    }
    return OK;
}

/* --- Measurements --- */

Error engine_forward(Engine *e, const uint32_t *ids, uint32_t count, uint32_t position, Why *why)
{
    for (uint32_t at = 0; at < count;) {
        uint32_t rows = count - at < e->plan.chunk ? count - at : e->plan.chunk, last = rows - 1;
        StationSequence sequence = {.session = 0, .position = position + at, .rows = rows};
        StationFrame frame = {.x = e->x,
                              .g = e->g,
                              .rows = rows,
                              .sequences = &sequence,
                              .sequence_count = 1,
                              .wanted = &last,
                              .wanted_count = at + rows == count};
        TRY(embed(e, ids + at, rows, why));
        TRY(forward_frame(e, &frame, why));
        at += rows;
    }
    return OK;
}

Error engine_batch(Engine *e, uint32_t *ids, uint32_t count, uint32_t position, Why *why)
{
    StationSequence sequences[STATION_SESSIONS_MAX];
    const Plan *p = &e->plan;
    if (count > p->request.sessions || count > p->chunk || count > p->logit_rows)
        return error_why(why, ERR_CAPACITY, "%u sequences at once; the plan has room for %u", count,
                         p->request.sessions);
    for (uint32_t i = 0; i < count; i++)
        sequences[i] = (StationSequence){.session = i, .position = position, .rows = 1};
    TRY(embed(e, ids, count, why));
    StationFrame frame = {
        .x = e->x, .g = e->g, .rows = count, .sequences = sequences, .sequence_count = count};
    TRY(forward_frame(e, &frame, why));
    for (uint32_t i = 0; i < count; i++) norm_row(e, i, i);
    TRY(head(e, count, why));
    for (uint32_t i = 0; i < count; i++) {
        top(e, i, 1, NULL, 1);
        ids[i] = e->best[0].id;
    }
    return OK;
}

typedef struct ReadJob {
    const uint8_t *bytes;
    uint64_t sums[PARALLEL_WORKERS_MAX][8]; /* a cache line each */
} ReadJob;

enum { READ_ITEM_BYTES = 1 << 18 };

static void read_item(void *argument, uint32_t item, uint32_t worker)
{
    ReadJob *job = argument;
    const uint8_t *p = job->bytes + (uint64_t)item * READ_ITEM_BYTES;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < READ_ITEM_BYTES; i += 64)
        for (size_t lane = 0; lane < 8; lane++) {
            uint64_t v;
            memcpy(&v, p + i + 8 * lane, sizeof v);
            sum[lane] += v;
        }
    for (size_t lane = 0; lane < 8; lane++) job->sums[worker][lane] += sum[lane];
}

uint64_t engine_read_weights(Engine *e, uint64_t *sum)
{
    static const uint64_t step = (uint64_t)4 << 20;
    uint64_t end = e->model->file.knot.payload_bytes / READ_ITEM_BYTES * READ_ITEM_BYTES;
    ReadJob job = {0};
    for (uint64_t at = 0; at < end; at += step) {
        uint64_t bytes = end - at < step ? end - at : step;
        job.bytes = weights_tile(&e->worker.weights, at, bytes);
        parallel_run(&e->worker.parallel, read_item, &job, (uint32_t)(bytes / READ_ITEM_BYTES));
    }
    for (size_t w = 0; w < PARALLEL_WORKERS_MAX; w++)
        for (size_t lane = 0; lane < 8; lane++) *sum += job.sums[w][lane];
    return end;
}
