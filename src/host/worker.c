/* SPDX-License-Identifier: Apache-2.0 */
#include "host/worker.h"

#include "host/stop.h"

typedef struct WithDrop {
    Worker *worker;
    ParallelJob job;
    void *argument;
    uint32_t items;
} WithDrop;

static void item_or_drop(void *context, uint32_t item, uint32_t worker)
{
    WithDrop *both = context;
    if (item < both->items) both->job(both->argument, item, worker);
    else weights_settle(&both->worker->weights);
}

static void run_with_drop(void *context, ParallelJob job, void *argument, uint32_t items)
{
    Worker *w = context;
    WithDrop both = {w, job, argument, items};
    if (weights_unsettled(&w->weights)) parallel_run(&w->pooled, item_or_drop, &both, items + 1);
    else parallel_run(&w->pooled, job, argument, items);
}

static bool stopped(void *context)
{
    (void)context;
    return stop_asked();
}

Error worker_start(Worker *w, const KnotFile *file, uint64_t pinned_bytes, uint64_t window_bytes,
                   uint32_t threads, Why *why)
{
    *w = (Worker){.cancelled = stopped};
    weights_start(&w->weights, file, pinned_bytes, window_bytes);
    TRY(pool_start(threads, &w->pool, why));
    w->pooled = pool_parallel(w->pool);
    w->parallel = (Parallel){run_with_drop, w, w->pooled.workers};
    return OK;
}

void worker_set_cancel(Worker *w, bool (*cancelled)(void *context), void *context)
{
    w->cancelled = cancelled ? cancelled : stopped;
    w->cancel_context = context;
}

void worker_stop(Worker *w)
{
    pool_stop(w->pool);
    w->pool = NULL;
}

Error worker_read_floor(Worker *w, Station *s, Why *why)
{
    for (uint32_t i = 0; i < station_floor_count(s); i++) {
        float *to;
        const KnotTensor *t = station_floor_tensor(s, i, &to);
        TRY(block_dequantize_row(t->type, weights_tile(&w->weights, t->offset, t->bytes), t->cols,
                                 to, why));
    }
    return knot_file_intact(w->weights.file, why);
}

static Error check_cancelled(const Worker *w, Why *why)
{
    return w->cancelled(w->cancel_context) ? error_why(why, ERR_CANCELLED, "stopped") : OK;
}

Error worker_run_station(Worker *w, Station *s, const StationFrame *frame, Why *why)
{
    TRY(station_begin(s, frame, &w->parallel, why));
    for (;;) {
        StationWish wish;
        station_next(s, &wish);
        switch (wish.kind) {
        case STATION_LOAD: weights_phase_loaded(&w->weights); break;
        case STATION_TILE:
            TRY(check_cancelled(w, why));
            TRY(station_give(s, weights_tile(&w->weights, wish.offset, wish.bytes), &w->parallel,
                             why));
            break;
        case STATION_EVICT: weights_phase_evicted(&w->weights); break;
        case STATION_DONE: return knot_file_intact(w->weights.file, why);
        }
    }
}

Error worker_run_shard(Worker *w, Shard *s, Why *why)
{
    ShardWish wish;
    for (shard_next(s, &wish); wish.kind != SHARD_DONE; shard_next(s, &wish))
        TRY(shard_give(s, weights_tile(&w->weights, wish.offset, wish.bytes), &w->parallel, why));
    return knot_file_intact(w->weights.file, why);
}
