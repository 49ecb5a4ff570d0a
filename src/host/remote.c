/* SPDX-License-Identifier: Apache-2.0 */
#include "host/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "api/metrics.h"
#include "cluster/plan_cluster.h"
#include "host/clock.h"
#include "host/memory.h"
#include "host/ports.h"
#include "host/remote_state.h"

/* What one call under way takes in the HTTP client, and what the API takes beside its answers. */
enum {
    CALL_BYTES = 16 << 10,
    CALLS_AT_ONCE_BYTES = 128 << 10, /* buffers of one connection that works */
    API_BYTES = 4 << 20,
    API_ANSWER_BYTES = 64 << 10,
    WAIT_MS_MAX = 250, /* a signal is noticed by then */
    CLOSE_MS = 300
};

/* ---- Opening ---- */

/* Two coordinators may ask the same stations, and begin in the same second: the clock would give their
 * sessions the same names, and each would go on in the other's. */
static uint32_t make_nonce(void)
{
    uint32_t nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) nonce = (uint32_t)time(NULL);
    return nonce;
}

static PipelineConfig pipeline_config(const RemoteOptions *o)
{
    const ClusterFile *c = o->cluster;
    uint32_t ids = plan_cluster_ids_most(c, o->hyper->vocabulary);
    return (PipelineConfig){
        .cluster = c,
        .hyper = o->hyper,
        .slots = c->sessions,
        .logit_rows = plan_logit_rows(c->sessions, PLAN_DRAFTS_DEFAULT, c->sessions, ids, false,
                                      c->memory_bytes),
        .drafts = o->drafts,
        .frames = c->pipeline ? c->pipeline : c->parts[CLUSTER_STATION],
        .nonce = make_nonce(),
    };
}

static uint64_t pipeline_memory_bytes(const PipelineConfig *config)
{
    CoordinatorConfig coordinator = pipeline_coordinator_config(config);
    return pipeline_bytes(config) + coordinator_bytes(&coordinator) + 4 * ARENA_ALIGN;
}

/* The budget bounds the peak: what stands already, what is taken here, and what calls and answers
 * take while they last. */
static Error check_memory(Remote *r, Why *why)
{
    const ClusterFile *c = r->options.cluster;
    uint64_t process = memory_resident(), pipeline = pipeline_memory_bytes(&r->config),
             own = r->own.memory_bytes + r->own.window_bytes,
             connections = (uint64_t)c->node_count * CALL_BYTES +
                           (uint64_t)(c->parts[CLUSTER_STATION] + c->parts[CLUSTER_SHARD]) *
                               CALLS_AT_ONCE_BYTES,
             api = API_BYTES + (uint64_t)c->sessions * API_ANSWER_BYTES + r->description_room +
                   REMOTE_REPORTS_AT_ONCE * sizeof(RemoteQuestion);
    r->need_bytes = process + pipeline + own + connections + api;
    if (r->need_bytes <= c->memory_bytes) return OK;
#define MIB(x) (unsigned)((x) >> 20), (unsigned)(((x) & 0xfffff) * 10 >> 20)
    return error_why(why, ERR_PLAN,
                     "%s: process with tokenizer %u.%u + frames %u.%u (%u of %u rows) + a shard's "
                     "work %u.%u + connections %u.%u + API %u.%u = %u.%u MiB, more than the %u.%u "
                     "MiB allowed",
                     r->options.self->id, MIB(process), MIB(pipeline), r->config.frames, c->chunk,
                     MIB(own), MIB(connections), MIB(api), MIB(r->need_bytes),
                     MIB(c->memory_bytes));
#undef MIB
}

static Error take_memory(Remote *r, Why *why)
{
    CoordinatorConfig coordinator = pipeline_coordinator_config(&r->config);
    r->memory_bytes = (size_t)pipeline_memory_bytes(&r->config);
    r->memory = mmap(NULL, r->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->memory == MAP_FAILED) {
        r->memory = NULL;
        return error_why(why, ERR_MEMORY, "%zu bytes for frames", r->memory_bytes);
    }
    Arena arena = arena_make(r->memory, r->memory_bytes);
    TRY(coordinator_build(&coordinator, &arena, &r->coordinator, why));
    TRY(pipeline_build(&r->config, r->coordinator, &arena, &r->pipeline, why));
    r->calls = calloc(pipeline_calls_max(r->pipeline), sizeof *r->calls);
    r->names = calloc(r->config.slots, sizeof *r->names);
    r->reports = calloc(r->options.cluster->node_count, sizeof *r->reports);
    r->said = calloc(r->options.cluster->node_count, sizeof *r->said);
    r->questions = calloc(REMOTE_REPORTS_AT_ONCE, sizeof *r->questions);
    r->description = malloc(r->description_room);
    if (r->calls && r->names && r->reports && r->said && r->questions && r->description) return OK;
    return error_why(why, ERR_MEMORY, "no memory for calls");
}

static Error open_parts(Remote *r, Why *why)
{
    HttpClientOptions client = {
        .key = r->options.key, .ca_file = r->options.ca_file, .direct = true};
    r->description_room = fleet_describe_room(r->options.cluster);
    TRY(remote_own_size(r, why));
    TRY(check_memory(r, why));
    TRY(take_memory(r, why));
    pace_start(&r->pace, r->coordinator);
    return http_client_open(&client, &r->client, why);
}

Error remote_open(const RemoteOptions *options, Remote **out, Why *why)
{
    Remote *r = calloc(1, sizeof *r);
    if (!r) return error_why(why, ERR_MEMORY, "no memory for the coordinator");
    r->options = *options;
    r->config = pipeline_config(options);
    r->opened_ns = clock_now_ns();
    r->own.part = CLUSTER_FILE_NONE;
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->own.lock, NULL);
    pthread_cond_init(&r->own.news, NULL);
    (void)snprintf(r->missing.text, sizeof r->missing.text, "no node was asked yet");
    Error error = open_parts(r, why);
    if (error == OK) *out = r;
    else remote_close(r);
    return error;
}

/* ---- Calls ---- */

void remote_url(const Remote *r, uint32_t node, const char *path, char out[REMOTE_URL_BYTES])
{
    const ClusterFile *c = r->options.cluster;
    const ClusterNode *n = &c->nodes[node];
    char place[PORTS_TEXT_BYTES];
    int bytes = snprintf(out, REMOTE_URL_BYTES, "http%s://%s%s", c->tls_certificate[0] ? "s" : "",
                         ports_text(n->host, n->port, place), path);
    ASSERT(bytes > 0 && bytes < REMOTE_URL_BYTES);
}

static void start_http(Remote *r, const PipelineCall *asked, uint64_t now_ns)
{
    static const char *const paths[] = {[PIPELINE_EMBED] = "/embed",
                                        [PIPELINE_FORWARD] = "/forward",
                                        [PIPELINE_LOGITS] = "/logits",
                                        [PIPELINE_HEALTH] = "/health"};
    RemoteCall *call = &r->calls[asked->call];
    char path[64];
    if (asked->path == PIPELINE_DROP)
        (void)snprintf(path, sizeof path, "/sessions/%llu", (unsigned long long)asked->session);
    else (void)snprintf(path, sizeof path, "%s", paths[asked->path]);
    uint64_t left_ns = asked->deadline_ns > now_ns ? asked->deadline_ns - now_ns : 0,
             left_ms = left_ns / 1000000 + 1;
    ASSERT(!call->busy);
    call->busy = true;
    call->asked = *asked;
    remote_url(r, asked->node, path, call->url);
    remote_trace_call(r, call);
    call->http = (HttpCall){
        .method = asked->path == PIPELINE_DROP     ? "DELETE"
                  : asked->path == PIPELINE_HEALTH ? "GET"
                                                   : "POST",
        .url = call->url,
        .parts = {asked->parts[0], asked->parts[1]},
        .part_bytes = {asked->part_bytes[0], asked->part_bytes[1]},
        .deadline_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX,
        .answer = asked->answer_room ? asked->answer : NULL,
        .answer_room = asked->answer_room,
        .tag = call,
    };
    if (call->trace.trace_id[0]) call->http.headers[0] = call->trace_line;
    http_client_start(r->client, &call->http);
}

/* How long the slowest station takes decides how many rows a frame has. */
static void keep_pace(Remote *r)
{
    uint32_t rows;
    uint64_t slowest_ns, ended = pipeline_frame_time(r->pipeline, &rows, &slowest_ns);
    if (ended == r->frames_ended) return;
    uint64_t frames = ended - r->frames_ended, work_ns = r->work.ns / frames;
    r->work.frame_ns = r->work.frame_ns ? (7 * r->work.frame_ns + work_ns) / 8 : work_ns;
    r->work.ns = 0;
    r->frames_ended = ended;
    pace_keep(&r->pace, r->coordinator, rows, slowest_ns);
}

static void end_http(Remote *r, RemoteCall *call, uint64_t now_ns)
{
    PipelineAnswer answer = {.error = call->http.error,
                             .status = call->http.status,
                             .bytes = call->http.answer_bytes,
                             .why = call->http.why};
    remote_trace_ended(r, call);
    call->busy = false;
    pipeline_answer(r->pipeline, call->asked.call, &answer, now_ns);
}

static void start_calls(Remote *r)
{
    PipelineCall asked;
    uint32_t number;
    for (uint64_t now; now = clock_now_ns(), pipeline_next_call(r->pipeline, now, &asked);) {
        if (asked.node != PIPELINE_OWN) {
            start_http(r, &asked, now);
            continue;
        }
        r->calls[asked.call].asked = asked;
        remote_own_start(r, &r->calls[asked.call]);
    }
    while (pipeline_next_cancel(r->pipeline, &number)) {
        RemoteCall *call = &r->calls[number];
        if (call->busy) http_client_cancel(r->client, &call->http);
        else remote_own_cancel(r, call);
    }
}

/* Result  whether there was any. */
static bool end_own_calls(Remote *r)
{
    bool any = false;
    for (RemoteCall *call; (call = remote_own_take(r)) != NULL; any = true)
        pipeline_answer(r->pipeline, call->asked.call, &call->answer, clock_now_ns());
    return any;
}

static void end_call(Remote *r, HttpCall *http)
{
    for (uint32_t i = 0; i < REMOTE_REPORTS_AT_ONCE; i++)
        if (http == &r->questions[i].http) {
            remote_watch_take(r, &r->questions[i], clock_now_ns());
            return;
        }
    end_http(r, http->tag, clock_now_ns());
}

/* ---- The engine ---- */

/* At most one with an error, since there is one `why`. */
static void take_events(Remote *r, Why *why)
{
    r->event_count = 0;
    while (r->event_count < REMOTE_EVENTS_MAX) {
        CoordinatorEvent *event = &r->events[r->event_count];
        Why about = {{0}};
        if (!pipeline_next_event(r->pipeline, event, &about)) break;
        r->event_count++;
        if (event->error == OK) continue;
        *why = about;
        break;
    }
}

static int wait_ms(const Remote *r, uint64_t now_ns)
{
    uint64_t wake = pipeline_wake_ns(r->pipeline), watch = remote_watch_wake_ns(r);
    if (watch < wake) wake = watch;
    if (wake <= now_ns) return 0;
    uint64_t ms = (wake - now_ns) / 1000000 + 1;
    return ms < WAIT_MS_MAX ? (int)ms : WAIT_MS_MAX;
}

/* Between two waits this thread works: on a frame, unless none is under way. */
static HttpCall *wait_for_call(Remote *r, uint64_t now_ns)
{
    uint64_t begin_ns = clock_now_ns();
    bool works = r->work.since_ns && pipeline_is_busy(r->pipeline); /* since it has waited once */
    r->work.ns = works ? r->work.ns + begin_ns - r->work.since_ns : 0;
    HttpCall *ended = http_client_wait(r->client, wait_ms(r, now_ns));
    r->work.since_ns = clock_now_ns();
    return ended;
}

static bool step(void *engine, const CoordinatorEvent **events, uint32_t *count, Why *why)
{
    Remote *r = engine;
    for (;;) {
        uint64_t now = clock_now_ns();
        pipeline_advance(r->pipeline, now);
        start_calls(r);
        keep_pace(r);
        remote_watch_tick(r, now);
        take_events(r, why);
        *events = r->events;
        *count = r->event_count;
        if (r->event_count) return true;
        HttpCall *ended = wait_for_call(r, now);
        if (ended) end_call(r, ended);
        else if (!end_own_calls(r)) return true;
    }
}

static void wake(void *engine) { http_client_wake(((Remote *)engine)->client); }

static void forget(void *engine, uint32_t slot)
{
    pipeline_forget(((Remote *)engine)->pipeline, slot);
}

static bool degraded(void *engine, uint32_t slot)
{
    return pipeline_is_degraded(((Remote *)engine)->pipeline, slot);
}

static bool ready(void *engine, Why *why)
{
    Remote *r = engine;
    if (r->ready) return true;
    pthread_mutex_lock(&r->lock);
    *why = r->missing;
    pthread_mutex_unlock(&r->lock);
    return false;
}

static uint32_t hops(void *engine, uint32_t slot, AnswerHop *out, uint32_t room)
{
    const Remote *r = engine;
    const ClusterFile *c = r->options.cluster;
    uint32_t count = 0;
    for (uint32_t i = 0; i <= c->node_count && count < room; i++) {
        bool own = i == c->node_count;
        const PipelineCost *cost = pipeline_cost(r->pipeline, slot, own ? PIPELINE_OWN : i);
        if (!cost->calls) continue;
        out[count++] = (AnswerHop){.node = own ? r->options.self->id : c->nodes[i].id,
                                   .calls = cost->calls,
                                   .us = cost->ns / 1000,
                                   .bytes_sent = own ? 0 : cost->bytes_sent,
                                   .bytes_received = own ? 0 : cost->bytes_received};
    }
    return count;
}

static void begin_hops(void *engine, uint32_t slot)
{
    pipeline_costs_forget(((Remote *)engine)->pipeline, slot);
}

static size_t describe(void *engine, char *out, size_t room)
{
    Remote *r = engine;
    pthread_mutex_lock(&r->lock);
    size_t bytes = r->description_bytes <= room ? r->description_bytes : 0;
    if (bytes) memcpy(out, r->description, bytes);
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

static void metrics(void *engine, JsonWriter *w)
{
    const Remote *r = engine;
    fleet_metrics(r->options.cluster, r->pipeline, w);
    metrics_write_count(w, "cobord_own_rows_calls_total",
                        "Calls for a shard's rows that were answered from the own store.",
                        r->own.calls);
}

uint64_t remote_need_bytes(const Remote *r) { return r->need_bytes; }

ServeEngine remote_engine(Remote *r)
{
    return (ServeEngine){.engine = r,
                         .coordinator = r->coordinator,
                         .step = step,
                         .wake = wake,
                         .forget = forget,
                         .degraded = degraded,
                         .ready = ready,
                         .hops = hops,
                         .begin_hops = begin_hops,
                         .begin_trace = remote_trace_begin,
                         .describe = describe,
                         .metrics = metrics,
                         .metrics_bytes = fleet_metrics_bytes(r->options.cluster) + 512};
}

size_t remote_form_bytes(const Remote *r)
{
    const ClusterFile *c = r->options.cluster;
    uint64_t taken = r->need_bytes, weights = r->own.weight_bytes_max;
    if (!r->options.path && taken + weights <= c->memory_bytes) taken += weights;
    return (size_t)plan_form_bytes(r->options.hyper->vocabulary, c->sessions,
                                   (c->memory_bytes - taken) / 2);
}

/* ---- The end ---- */

/* Whatever still listens frees its caches now and not when it needs the room. */
static void forget_all(Remote *r)
{
    uint64_t end = clock_now_ns() + CLOSE_MS * 1000000ull;
    for (uint32_t i = 0; i < r->config.slots; i++)
        if (!coordinator_is_active(r->coordinator, i) &&
            !coordinator_is_under_way(r->coordinator, i))
            pipeline_forget(r->pipeline, i);
    for (uint64_t now; now = clock_now_ns(), now < end;) {
        uint32_t busy = 0;
        pipeline_advance(r->pipeline, now);
        start_calls(r);
        for (uint32_t i = 0; i < pipeline_calls_max(r->pipeline); i++)
            busy += r->calls[i].busy && r->calls[i].asked.path == PIPELINE_DROP;
        if (!busy) return;
        HttpCall *ended = http_client_wait(r->client, (int)((end - now) / 1000000));
        if (ended) end_call(r, ended);
    }
}

void remote_close(Remote *r)
{
    if (!r) return;
    if (r->client) forget_all(r);
    remote_own_close(r);
    http_client_close(r->client);
    if (r->memory) munmap(r->memory, r->memory_bytes);
    pthread_mutex_destroy(&r->lock);
    free(r->calls);
    free(r->names);
    free(r->reports);
    free(r->said);
    free(r->questions);
    free(r->description);
    free(r);
}
