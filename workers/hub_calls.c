/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of serve: the pipeline's calls become wishes. A call has a serial number of its own, since
 * JavaScript may still bring the answer of one that was given up while the pipeline uses its number again. */
#include <string.h>

#include "api/metrics.h"
#include "hub.h"
#include "serve/machine.h"

enum { MS = 1000000 };
#define INVOCATION_NS_MAX (600 * 1000000000ull) /* platforms end an alarm after fifteen minutes */

/* ---- Calls ---- */

typedef struct Text {
    char *out;
    size_t used, room;
} Text;

static void add(Text *t, const char *text)
{
    size_t bytes = strlen(text);
    ASSERT(bytes < t->room - t->used);
    memcpy(t->out + t->used, text, bytes + 1);
    t->used += bytes;
}

static void add_number(Text *t, uint64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    add(t, digits + at);
}

/* "station-0" is reached by the binding STATION_0, when there is one. */
static void add_binding(Text *t, const char *id)
{
    size_t from = t->used;
    add(t, id);
    for (char *c = t->out + from; *c; c++) {
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        if (*c == '-') *c = '_';
    }
}

static const char *path_of(PipelinePath path)
{
    static const char *const paths[] = {[PIPELINE_EMBED] = "/embed",
                                        [PIPELINE_FORWARD] = "/forward",
                                        [PIPELINE_LOGITS] = "/logits",
                                        [PIPELINE_DROP] = "/sessions/",
                                        [PIPELINE_HEALTH] = "/health"};
    return paths[path];
}

uint32_t hub_calls_serial(Hub *hub)
{
    if (++hub->invocation_calls > hub->invocation_calls_most)
        hub->invocation_calls_most = hub->invocation_calls;
    return ++hub->serials;
}

/* "METHOD URL\nBINDING\nname: value\n.." */
const char *hub_calls_head(Hub *hub, uint32_t number, const char *method, const char *path)
{
    Text t = {hub->head, 0, HUB_HEAD_BYTES};
    const ClusterNode *node = &hub->cluster.nodes[number];
    bool plain = !strchr(node->host, ':');
    add(&t, method);
    add(&t, hub->cluster.tls_certificate[0] ? "https://" : "http://");
    add(&t, plain ? "" : "[");
    add(&t, node->host);
    add(&t, plain ? ":" : "]:");
    add_number(&t, node->port);
    add(&t, path);
    add(&t, "\n");
    add_binding(&t, node->id);
    add(&t, "\n");
    if (*method == 'P') add(&t, "content-type: application/octet-stream\n");
    if (hub->key[0]) {
        add(&t, "authorization: Bearer ");
        add(&t, hub->key);
        add(&t, "\n");
    }
    return t.out;
}

/* A span below that of the first answer that the call is for. */
static void add_trace(Hub *hub, const PipelineCall *asked)
{
    char line[TRACE_PARENT_BYTES];
    uint32_t slot;
    Text t = {hub->head, strlen(hub->head), HUB_HEAD_BYTES};
    if (!pipeline_call_slots(hub->pipeline, asked->call, &slot, 1)) return;
    if (!hub->traces[slot].trace_id[0]) return;
    Trace span = trace_below(&hub->traces[slot], machine_random());
    trace_write(&span, line);
    add(&t, "traceparent: ");
    add(&t, line);
    add(&t, "\n");
}

static void begin_trace(void *engine, uint32_t slot, const HttpRecord *record)
{
    ((Hub *)engine)->traces[slot] = record->trace;
}

static const char *write_head(Hub *hub, const PipelineCall *asked)
{
    char path[40];
    Text t = {path, 0, sizeof path};
    add(&t, path_of(asked->path));
    if (asked->path == PIPELINE_DROP) add_number(&t, asked->session);
    const char *method = asked->path == PIPELINE_DROP     ? "DELETE "
                         : asked->path == PIPELINE_HEALTH ? "GET "
                                                          : "POST ";
    const char *head = hub_calls_head(hub, asked->node, method, path);
    add_trace(hub, asked);
    return head;
}

void hub_invocation(Hub *hub, uint32_t calls)
{
    hub->invocations++;
    hub->invocation_ns = machine_now_ns();
    hub->invocation_calls = calls;
}

static HubWishKind wish_for_call(Hub *hub, const PipelineCall *asked, uint64_t now_ns)
{
    HubCall *call = &hub->calls[asked->call];
    ASSERT(!call->serial);
    *call = (HubCall){.asked = *asked, .serial = hub_calls_serial(hub)};
    uint64_t left_ns = asked->deadline_ns > now_ns ? asked->deadline_ns - now_ns : 0;
    hub->wish = (HubWish){.number = call->serial,
                          .wait_ms = (double)(left_ns / MS + 1),
                          .text = write_head(hub, asked),
                          .parts = {asked->parts[0], asked->parts[1]},
                          .part_bytes = {asked->part_bytes[0], asked->part_bytes[1]}};
    return HUB_CALL;
}

static void end(Hub *hub, HubCall *call, const PipelineAnswer *answer)
{
    call->serial = 0;
    hub->again = true;
    pipeline_answer(hub->pipeline, call->asked.call, answer, machine_now_ns());
}

static void give_up(Hub *hub, HubCall *call, const PipelineAnswer *answer)
{
    hub->cancels[hub->cancel_count++] = call->serial;
    end(hub, call, answer);
}

static HubCall *find(const Hub *hub, uint32_t serial)
{
    for (uint32_t i = 0; i < pipeline_calls_max(hub->pipeline); i++)
        if (serial && hub->calls[i].serial == serial) return &hub->calls[i];
    return NULL;
}

uint32_t hub_calls_out(const Hub *hub)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < pipeline_calls_max(hub->pipeline); i++)
        out += hub->calls[i].serial != 0;
    return out;
}

uint64_t hub_calls_wake_ns(const Hub *hub)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < pipeline_calls_max(hub->pipeline); i++)
        if (hub->calls[i].serial && hub->calls[i].asked.deadline_ns < wake)
            wake = hub->calls[i].asked.deadline_ns;
    return wake;
}

void hub_calls_expire(Hub *hub, uint64_t now_ns)
{
    for (uint32_t i = 0; i < pipeline_calls_max(hub->pipeline); i++) {
        HubCall *call = &hub->calls[i];
        if (!call->serial || call->asked.deadline_ns > now_ns) continue;
        PipelineAnswer late = {0};
        late.error = error_why(&late.why, ERR_UNREACHABLE, "no answer in time");
        give_up(hub, call, &late);
    }
}

uint8_t *hub_answer_room(Hub *hub, uint32_t serial, size_t *room)
{
    const HubCall *call = find(hub, serial);
    if (!call) return hub_watch_room(hub, serial, room);
    *room = call->asked.answer_room;
    return call->asked.answer;
}

void hub_answer(Hub *hub, uint32_t serial, unsigned status, size_t bytes)
{
    HubCall *call = find(hub, serial);
    PipelineAnswer answer = {.status = status, .bytes = bytes};
    if (hub_watch_answer(hub, serial, status, bytes) || !call) return;
    if (!status) answer.error = error_why(&answer.why, ERR_UNREACHABLE, "no connection");
    else if (bytes > call->asked.answer_room)
        answer.error = error_why(&answer.why, ERR_TOO_LARGE, "an answer of more than %zu bytes",
                                 call->asked.answer_room);
    if (answer.error != OK) answer.bytes = 0;
    end(hub, call, &answer);
}

/* Its rows are in no store of this process. */
static void refuse_own(Hub *hub, const PipelineCall *asked)
{
    PipelineAnswer none = {0};
    none.error = error_why(&none.why, ERR_NOT_AVAILABLE, "the coordinator has no rows of its own");
    hub->again = true;
    pipeline_answer(hub->pipeline, asked->call, &none, machine_now_ns());
}

HubWishKind hub_calls_next(Hub *hub, uint64_t now_ns)
{
    PipelineCall asked;
    uint32_t number;
    while (pipeline_next_cancel(hub->pipeline, &number)) {
        PipelineAnswer cancelled = {.error = ERR_CANCELLED};
        if (hub->calls[number].serial) give_up(hub, &hub->calls[number], &cancelled);
    }
    if ((number = hub_watch_late(hub, now_ns)) != 0) {
        hub->wish = (HubWish){.number = number};
        return HUB_CANCEL;
    }
    if (hub->cancel_count) {
        hub->wish = (HubWish){.number = hub->cancels[--hub->cancel_count]};
        return HUB_CANCEL;
    }
    if (hub->invocation_calls >= hub->subrequests_max ||
        now_ns - hub->invocation_ns > INVOCATION_NS_MAX)
        return HUB_HAND_OVER;
    while (pipeline_next_call(hub->pipeline, now_ns, &asked)) {
        if (asked.node != PIPELINE_OWN) return wish_for_call(hub, &asked, now_ns);
        refuse_own(hub, &asked);
    }
    return hub_watch_next(hub, now_ns);
}

/* ---- The engine ---- */

/* At most one with an error, since there is one `why`. */
static uint32_t take_events(Hub *hub, Why *why)
{
    uint32_t count = 0;
    while (count < HUB_EVENTS_MAX) {
        CoordinatorEvent *event = &hub->events[count];
        Why about = {{0}};
        if (!pipeline_next_event(hub->pipeline, event, &about)) break;
        count++;
        if (event->error == OK) continue;
        *why = about;
        break;
    }
    return count;
}

/* How long the slowest station takes decides how many rows a frame has. */
static void keep_pace(Hub *hub)
{
    uint32_t rows;
    uint64_t slowest_ns, ended = pipeline_frame_time(hub->pipeline, &rows, &slowest_ns);
    if (ended == hub->frames_ended) return;
    hub->frames_ended = ended;
    pace_keep(&hub->pace, hub->coordinator, rows, slowest_ns);
}

/* Never waits: calls go out between two steps. */
static bool step(void *engine, const CoordinatorEvent **events, uint32_t *count, Why *why)
{
    Hub *hub = engine;
    pipeline_advance(hub->pipeline, machine_now_ns());
    keep_pace(hub);
    *events = hub->events;
    *count = take_events(hub, why);
    return *count > 0;
}

static void forget(void *engine, uint32_t slot)
{
    pipeline_forget(((Hub *)engine)->pipeline, slot);
}

static bool degraded(void *engine, uint32_t slot)
{
    return pipeline_is_degraded(((Hub *)engine)->pipeline, slot);
}

static bool ready(void *engine, Why *why) { return hub_watch_ready(engine, why); }

static size_t describe(void *engine, char *out, size_t room)
{
    return hub_watch_describe(engine, out, room);
}

static uint32_t hops(void *engine, uint32_t slot, AnswerHop *out, uint32_t room)
{
    const Hub *hub = engine;
    uint32_t count = 0;
    for (uint32_t i = 0; i < hub->cluster.node_count && count < room; i++) {
        const PipelineCost *cost = pipeline_cost(hub->pipeline, slot, i);
        if (!cost->calls) continue;
        out[count++] = (AnswerHop){.node = hub->cluster.nodes[i].id,
                                   .calls = cost->calls,
                                   .us = cost->ns / 1000,
                                   .bytes_sent = cost->bytes_sent,
                                   .bytes_received = cost->bytes_received};
    }
    return count;
}

static void begin_hops(void *engine, uint32_t slot)
{
    pipeline_costs_forget(((Hub *)engine)->pipeline, slot);
}

static void metrics(void *engine, JsonWriter *w)
{
    const Hub *hub = engine;
    fleet_metrics(&hub->cluster, hub->pipeline, w);
    metrics_write_count(w, "cobord_invocations_total", "invocations that made calls to nodes",
                        hub->invocations);
    metrics_write_gauge(w, "cobord_invocation_calls_max", "most calls that one of them made",
                        hub->invocation_calls_most);
}

ServeEngine hub_engine(Hub *hub)
{
    return (ServeEngine){.engine = hub,
                         .coordinator = hub->coordinator,
                         .step = step,
                         .forget = forget,
                         .degraded = degraded,
                         .ready = ready,
                         .hops = hops,
                         .begin_hops = begin_hops,
                         .begin_trace = begin_trace,

                         .describe = describe,
                         .metrics = metrics,
                         .metrics_bytes = fleet_metrics_bytes(&hub->cluster) + 512};
}
