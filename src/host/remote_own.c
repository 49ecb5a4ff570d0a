/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's work in the coordinator: when no node of a range answers, its rows are read from the knot on
 * this machine. The call's bytes go through the same code as on a shard, so the answer has the same bits.
 *
 *   body --> the part's Shard, built when another part stood there --> tiles of the file --> answer
 *
 * A thread of its own does it: one call at a time, the engine thread is woken when one has ended.
 * Memory for the largest part is reserved at the start and touched by the first call; weights stay
 * within the window. The file's hashes are checked before the first use, once per file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/clock.h"
#include "host/log.h"
#include "host/remote_state.h"
#include "quant/numerics.h"
#include "wire/node_error.h"

enum { WINDOW_BYTES = 8 << 20, TILE_BYTES = 2 << 20 };
static const uint64_t FAILED_PAUSE_NS = 5000000000;

static const ClusterNode *part_node(const Remote *r, uint32_t part)
{
    if (part == PIPELINE_ALL_IDS) return &r->own.whole;
    uint32_t index = cluster_file_part(r->options.cluster, CLUSTER_SHARD, part);
    return index == CLUSTER_FILE_NONE ? NULL : &r->options.cluster->nodes[index];
}

static uint32_t threads_of(const Remote *r) { return r->options.threads ? r->options.threads : 1; }

static ShardConfig shard_config(const Remote *r, const ClusterNode *n)
{
    return (ShardConfig){
        .knot = &r->options.file->knot,
        .hyper = r->options.hyper,
        .id_first = n->id_first,
        .id_last = n->id_last,
        .rows_max = r->config.logit_rows,
        .workers = threads_of(r),
        .tile_bytes_max = TILE_BYTES,
        .kernels = r->options.kernels,
    };
}

static ShardServiceConfig service_config(const Remote *r, const ClusterNode *n)
{
    ShardServiceConfig config = {
        .terms = {.identity = {.knot_id = r->options.cluster->knot_id,
                               .numerics = NUMERICS_VERSION,
                               .cache = FRAME_CACHE_NONE},
                  .hyper = r->options.hyper,
                  .id_first = n->id_first,
                  .id_last = n->id_last,
                  .rows_max = pipeline_coordinator_config(&r->config).chunk},
        .logit_rows_max = r->config.logit_rows};
    config.terms.payload_bytes_max = shard_service_payload_bytes_max(&config);
    return config;
}

static Error size_part(Remote *r, uint32_t part, Why *why)
{
    RemoteOwn *own = &r->own;
    const ClusterNode *n = part_node(r, part);
    ShardConfig shard = shard_config(r, n);
    ShardServiceConfig service = service_config(r, n);
    ShardSizes sizes;
    TRY(shard_sizes(&shard, &sizes, why));
    uint64_t bytes =
        sizes.floor_bytes + sizes.logits_bytes + shard_service_bytes(&service) + 8 * ARENA_ALIGN;
    if (sizes.scratch_bytes > own->scratch_bytes) own->scratch_bytes = sizes.scratch_bytes;
    if (bytes > own->memory_bytes) own->memory_bytes = bytes;
    if (sizes.weight_bytes > own->weight_bytes_max) own->weight_bytes_max = sizes.weight_bytes;
    own->window_bytes = WINDOW_BYTES;
    return OK;
}

/* What a station keeps of the vocabulary is all of it. Fetched under a name of its own, and from the store: wardens of
 * layers have none of it. */
static bool make_whole(Remote *r)
{
    const ClusterFile *c = r->options.cluster;
    bool any = false;
    for (uint32_t i = 0; i < c->node_count; i++) any |= c->nodes[i].embed || c->nodes[i].head;
    r->own.whole = (ClusterNode){.role = CLUSTER_SHARD,
                                 .id = "coordinator-0-ids",
                                 .host = r->options.self->host,
                                 .id_last = c->vocabulary,
                                 .warden = CLUSTER_FILE_NONE,
                                 .cache = "",
                                 .socket = ""};
    return any;
}

Error remote_own_size(Remote *r, Why *why)
{
    RemoteOwn *own = &r->own;
    for (uint32_t part = 0; part < r->options.cluster->parts[CLUSTER_SHARD]; part++)
        TRY(size_part(r, part, why));
    if (make_whole(r)) TRY(size_part(r, PIPELINE_ALL_IDS, why));
    own->memory_bytes += own->scratch_bytes + ARENA_ALIGN;
    return OK;
}

static Error take_memory(RemoteOwn *own, Why *why)
{
    if (own->memory) return OK;
    own->memory = mmap(NULL, (size_t)own->memory_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (own->memory != MAP_FAILED) return OK;
    own->memory = NULL;
    return error_why(why, ERR_MEMORY, "no memory for a shard's work");
}

static Error start_worker(Remote *r, const KnotFile *file, Why *why)
{
    RemoteOwn *own = &r->own;
    TRY(take_memory(own, why));
    TRY(worker_start(&own->worker, file, 0, own->window_bytes, threads_of(r), why));
    own->started = true;
    return OK;
}

static void let_go(RemoteOwn *own)
{
    if (own->started) worker_stop(&own->worker);
    if (own->slice) slice_close(own->slice);
    own->started = false;
    own->slice = NULL;
    own->part = CLUSTER_FILE_NONE;
}

/* The rows of a part from its warden or the store. They may end up in memory: only when the budget has that
 * room beside everything else. */
static Error fetch_part(Remote *r, const ClusterNode *n, Why *why)
{
    RemoteOwn *own = &r->own;
    ShardConfig config = shard_config(r, n);
    ShardSizes sizes;
    let_go(own);
    if (!r->options.node)
        return error_why(why, ERR_NOT_AVAILABLE, "the knot is not on the coordinator's machine");
    TRY(shard_sizes(&config, &sizes, why));
    if (r->need_bytes + sizes.weight_bytes > r->options.cluster->memory_bytes)
        return error_why(why, ERR_PLAN, "%llu bytes of weights have no room in the coordinator",
                         (unsigned long long)sizes.weight_bytes);
    own->shadow = *r->options.node;
    own->shadow.self = n;
    TRY(slice_open(&own->shadow, &own->slice, why));
    TRY(slice_fill(own->slice, n, why));
    return start_worker(r, slice_file(own->slice), why);
}

/* The weights: of the local file once and for all, else of one part. */
static Error open_weights(Remote *r, uint32_t part, const ClusterNode *n, Why *why)
{
    RemoteOwn *own = &r->own;
    if (!r->options.path) return own->part == part ? OK : fetch_part(r, n, why);
    if (own->started) return OK;
    TRY(knot_file_verify_once(r->options.file, r->options.path, NULL, why));
    return start_worker(r, r->options.file, why);
}

static Error build(Remote *r, uint32_t part, Why *why)
{
    RemoteOwn *own = &r->own;
    const ClusterNode *n = part_node(r, part);
    if (!n) return error_why(why, ERR_NOT_FOUND, "shard range %u", part);
    TRY(open_weights(r, part, n, why));
    if (own->part == part) return OK;
    ShardConfig shard = shard_config(r, n);
    ShardServiceConfig service = service_config(r, n);
    Arena arena = arena_make(own->memory, (size_t)own->memory_bytes);
    void *scratch = arena_take_raw(&arena, (size_t)own->scratch_bytes);
    own->part = CLUSTER_FILE_NONE;
    if (!scratch) return error_why(why, ERR_MEMORY, "no room for a shard's work");
    TRY(shard_build(&shard, &arena, scratch, &own->shard, why));
    TRY(shard_service_build(&service, own->shard, &arena, &own->service, why));
    own->part = part;
    return OK;
}

static Error carry_out(Remote *r, const PipelineCall *call, const uint8_t *body, size_t bytes,
                       size_t *answer_bytes, Why *why)
{
    RemoteOwn *own = &r->own;
    ShardServiceKind kind =
        call->path == PIPELINE_EMBED ? SHARD_SERVICE_EMBED : SHARD_SERVICE_LOGITS;
    TRY(shard_service_begin(own->service, kind, body, bytes, why));
    TRY(own->slice ? slice_run_shard(own->slice, &own->worker, own->shard, why)
                   : worker_run_shard(&own->worker, own->shard, why));
    return shard_service_write(own->service, call->answer, call->answer_room, answer_bytes, why);
}

/* The service reads one body: the parts are put together. */
static Error answer_body(Remote *r, const PipelineCall *call, size_t *answer_bytes, Why *why)
{
    size_t bytes = call->part_bytes[0] + call->part_bytes[1];
    uint8_t *body = malloc(bytes + 1);
    if (!body) return error_why(why, ERR_MEMORY, "no memory for a shard's work");
    if (call->part_bytes[0]) memcpy(body, call->parts[0], call->part_bytes[0]);
    if (call->part_bytes[1])
        memcpy(body + call->part_bytes[0], call->parts[1], call->part_bytes[1]);
    Error error = carry_out(r, call, body, bytes, answer_bytes, why);
    weights_drop(&r->own.worker.weights);
    free(body);
    return error;
}

static void say_failed(const Remote *r, uint32_t part, Error error, const Why *why)
{
    const ClusterNode *n = part_node(r, part);
    log_say(LOG_ERROR, "%s: rows %u-%u from the own store: %s: %s", r->options.self->id,
            n ? n->id_first : 0, n ? n->id_last : 0, error_text(error), why->text);
}

/* What failed for seconds just now is not tried for every frame. */
static Error try_part(Remote *r, uint32_t part, Why *why)
{
    RemoteOwn *own = &r->own;
    if (own->failed != OK && clock_now_ns() < own->failed_until_ns) {
        *why = own->why;
        return own->failed;
    }
    own->failed = build(r, part, why);
    own->why = *why;
    own->failed_until_ns = clock_now_ns() + FAILED_PAUSE_NS;
    return own->failed;
}

static void answer_call(Remote *r, const PipelineCall *call, PipelineAnswer *answer)
{
    RemoteOwn *own = &r->own;
    Why why = {{0}};
    own->calls++;
    *answer = (PipelineAnswer){.status = 200};
    Error error = try_part(r, call->part, &why);
    if (error == OK) error = answer_body(r, call, &answer->bytes, &why);
    if (error == OK) return;
    if (!own->failures++) say_failed(r, call->part, error, &why);
    answer->bytes = 0;
    answer->status = node_error_status(error);
    if (call->answer_room >= NODE_ERROR_BYTES_MAX)
        answer->bytes = node_error_write(error, &why, (char *)call->answer);
}

/* ---- The thread ---- */

static RemoteCall *find(Remote *r, RemoteOwnState state)
{
    uint32_t calls = pipeline_calls_max(r->pipeline);
    for (uint32_t i = 0; i < calls; i++)
        if (r->calls[i].own == state) return &r->calls[i];
    return NULL;
}

static void *work(void *remote)
{
    Remote *r = remote;
    RemoteOwn *own = &r->own;
    pthread_mutex_lock(&own->lock);
    while (!own->closing) {
        RemoteCall *call = find(r, REMOTE_OWN_WAITS);
        if (!call) {
            pthread_cond_wait(&own->news, &own->lock);
            continue;
        }
        PipelineAnswer answer;
        call->own = REMOTE_OWN_WORKS;
        pthread_mutex_unlock(&own->lock);
        answer_call(r, &call->asked, &answer);
        pthread_mutex_lock(&own->lock);
        call->answer = answer;
        call->own = REMOTE_OWN_DONE;
        http_client_wake(r->client);
    }
    pthread_mutex_unlock(&own->lock);
    return NULL;
}

void remote_own_start(Remote *r, RemoteCall *call)
{
    RemoteOwn *own = &r->own;
    if (!own->has_thread) own->has_thread = pthread_create(&own->thread, NULL, work, r) == 0;
    pthread_mutex_lock(&own->lock);
    call->own = REMOTE_OWN_WAITS;
    if (!own->has_thread) {
        call->answer = (PipelineAnswer){.error = ERR_UNREACHABLE};
        call->own = REMOTE_OWN_DONE;
        http_client_wake(r->client);
    }
    pthread_cond_signal(&own->news);
    pthread_mutex_unlock(&own->lock);
}

RemoteCall *remote_own_take(Remote *r)
{
    pthread_mutex_lock(&r->own.lock);
    RemoteCall *call = find(r, REMOTE_OWN_DONE);
    if (call) call->own = REMOTE_OWN_NONE;
    pthread_mutex_unlock(&r->own.lock);
    return call;
}

void remote_own_cancel(Remote *r, RemoteCall *call)
{
    pthread_mutex_lock(&r->own.lock);
    if (call->own == REMOTE_OWN_WAITS) {
        call->answer = (PipelineAnswer){.error = ERR_CANCELLED};
        call->own = REMOTE_OWN_DONE;
        http_client_wake(r->client);
    }
    pthread_mutex_unlock(&r->own.lock);
}

void remote_own_close(Remote *r)
{
    RemoteOwn *own = &r->own;
    pthread_mutex_lock(&own->lock);
    own->closing = true;
    pthread_cond_signal(&own->news);
    pthread_mutex_unlock(&own->lock);
    if (own->has_thread) pthread_join(own->thread, NULL);
    let_go(own);
    if (own->memory) munmap(own->memory, (size_t)own->memory_bytes);
    pthread_mutex_destroy(&own->lock);
    pthread_cond_destroy(&own->news);
}
