/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of themselves. A native coordinator asks every two seconds; here nobody is asked until
 * somebody wants to know: GET /ready and GET /cluster wait until every node has answered, or two seconds. */
#include <stdlib.h>
#include <string.h>

#include "hub.h"
#include "machine.h"
#include "reserve.h"
#include "serve/machine.h"

/* Each question is a request to every node, which has its price. */
enum { ASK_NS = 2000000000, REFRESH_MS = 5000 };

Error hub_watch_open(Hub *hub)
{
    HubWatch *w = &hub->watch;
    w->reports = calloc(hub->cluster.node_count, sizeof *w->reports);
    w->questions = calloc(HUB_QUESTIONS, sizeof *w->questions);
    w->opened_ns = machine_now_ns();
    return w->reports && w->questions ? OK
                                      : error_why(&hub->why, ERR_MEMORY, "no memory for reports");
}

/* ---- Who waits ---- */

static bool wants_reports(const HttpExchange *x)
{
    const char *path = http_exchange_path(x);
    return strcmp(path, "/ready") == 0 || strcmp(path, "/cluster") == 0;
}

bool hub_watch_takes(Hub *hub, HttpExchange *x)
{
    HubWatch *w = &hub->watch;
    if (!wants_reports(x) || w->waiting_count == HUB_WATCH_WAITING) return false;
    http_exchange_keep(x);
    w->waiting[w->waiting_count++] = x;
    if (!w->asks) w->next_node = 0;
    w->asks = true;
    return true;
}

static void answer_waiting(Hub *hub)
{
    HubWatch *w = &hub->watch;
    w->asks = false;
    w->answers = true;
    for (uint32_t i = 0; i < w->waiting_count; i++) {
        if (!http_exchange_gone(w->waiting[i])) serve_routes_request(hub->serve, w->waiting[i]);
        http_exchange_release(w->waiting[i]);
    }
    w->waiting_count = 0;
    w->answers = false;
    hub->again = true;
}

/* ---- Questions ---- */

static HubQuestion *find(HubWatch *w, uint32_t serial)
{
    for (uint32_t i = 0; i < HUB_QUESTIONS; i++)
        if (w->questions[i].serial == serial) return &w->questions[i];
    return NULL;
}

static bool any_open(const HubWatch *w)
{
    for (uint32_t i = 0; i < HUB_QUESTIONS; i++)
        if (w->questions[i].serial) return true;
    return false;
}

HubWishKind hub_watch_next(Hub *hub, uint64_t now_ns)
{
    HubWatch *w = &hub->watch;
    if (!w->asks) return HUB_REST;
    while (w->next_node < hub->cluster.node_count &&
           hub->cluster.nodes[w->next_node].role == CLUSTER_COORDINATOR)
        w->next_node++;
    HubQuestion *q = w->next_node < hub->cluster.node_count ? find(w, 0) : NULL;
    if (!q) {
        if (w->next_node == hub->cluster.node_count && !any_open(w)) answer_waiting(hub);
        return HUB_REST;
    }
    q->node = w->next_node++;
    q->serial = hub_calls_serial(hub);
    q->deadline_ns = now_ns + ASK_NS;
    hub->wish = (HubWish){.number = q->serial,
                          .wait_ms = (double)(ASK_NS / 1000000),
                          .text = hub_calls_head(hub, q->node, "GET ", "/ready")};
    return HUB_CALL;
}

uint8_t *hub_watch_room(Hub *hub, uint32_t serial, size_t *room)
{
    HubQuestion *q = serial ? find(&hub->watch, serial) : NULL;
    if (!q) return NULL;
    *room = sizeof q->answer;
    return q->answer;
}

bool hub_watch_answer(Hub *hub, uint32_t serial, unsigned status, size_t bytes)
{
    HubQuestion *q = serial ? find(&hub->watch, serial) : NULL;
    if (!q) return false;
    FleetReport *report = &hub->watch.reports[q->node];
    if (!status) fleet_miss(report, "no connection");
    else if (bytes > sizeof q->answer) fleet_miss(report, "a report that is too long");
    else fleet_hear(&hub->cluster, q->node, status, (const char *)q->answer, bytes, report);
    q->serial = 0;
    hub->again = true;
    return true;
}

uint64_t hub_watch_wake_ns(const Hub *hub)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < HUB_QUESTIONS; i++)
        if (hub->watch.questions[i].serial && hub->watch.questions[i].deadline_ns < wake)
            wake = hub->watch.questions[i].deadline_ns;
    return wake;
}

uint32_t hub_watch_late(Hub *hub, uint64_t now_ns)
{
    for (uint32_t i = 0; i < HUB_QUESTIONS; i++) {
        HubQuestion *q = &hub->watch.questions[i];
        uint32_t serial = q->serial;
        if (!serial || q->deadline_ns > now_ns) continue;
        fleet_miss(&hub->watch.reports[q->node], "no answer in time");
        q->serial = 0;
        return serial;
    }
    return 0;
}

/* ---- What is known ---- */

/* Whether some node of the range that begins at `*at` says that it is ready; the next range's node. */
static bool is_there(const Hub *hub, uint32_t *at)
{
    const ClusterFile *c = &hub->cluster;
    bool there = c->nodes[*at].role != CLUSTER_STATION && c->nodes[*at].role != CLUSTER_SHARD;
    do {
        const FleetReport *report = &hub->watch.reports[*at];
        there = there || (report->ready && !report->error[0]);
    } while (++*at < c->node_count && c->nodes[*at].is_replica);
    return there;
}

bool hub_watch_ready(const Hub *hub, Why *why)
{
    const ClusterFile *c = &hub->cluster;
    if (!pipeline_is_complete(hub->pipeline, why)) return false;
    for (uint32_t at = 0; hub->watch.answers && at < c->node_count;) {
        uint32_t first = at;
        const FleetReport *report = &hub->watch.reports[first];
        if (is_there(hub, &at)) continue;
        return error_why(why, ERR_UNREACHABLE, "%s: %s", c->nodes[first].id,
                         report->error[0]   ? report->error
                         : report->state[0] ? report->state
                                            : "not ready") == OK;
    }
    return true;
}

size_t hub_watch_describe(Hub *hub, char *out, size_t room)
{
    Why missing = {{0}};
    bool ready = hub_watch_ready(hub, &missing);
    const Fleet fleet = {.cluster = &hub->cluster,
                         .self = hub->self,
                         .version = hub->version,
                         .pipeline = hub->pipeline,
                         .reports = hub->watch.reports,
                         .chunk = pipeline_coordinator_config(&hub->config).chunk,
                         .frames = hub->config.frames,
                         .ready = ready,
                         .complete = ready,
                         .missing = missing.text,
                         .uptime_ms = (machine_now_ns() - hub->watch.opened_ns) / 1000000u,
                         .refresh_ms = REFRESH_MS,
                         .memory = {.budget_bytes = hub->budget_bytes,
                                    .need_bytes = reserve_bytes(),
                                    .resident_bytes = reserve_bytes(),
                                    .peak_bytes = reserve_bytes()}};
    return fleet_describe_room(&hub->cluster) <= room ? fleet_describe(&fleet, out, room) : 0;
}
