/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of themselves (GET /ready), what of it a person is told, and whether requests can be
 * answered.
 *
 *   start   every node is asked, again after half a second --> a table --> each range has a node that
 *           is ready: complete
 *   later   every node is asked every two seconds, for figures; whether a range has a node is then
 *           the pipeline's to say, which sees every call */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/log.h"
#include "host/memory.h"
#include "host/remote_state.h"

enum { TICK_NS = 1000000000, START_TICK_NS = 100000000, START_PAUSE_NS = 500000000 };
enum { LOOK_NS = 50000000 };
enum { TOLD_AGAIN_S = 10, NAMES_BYTES = WHY_MAX - 110 };

static const ClusterFile *cluster_of(const Remote *r) { return r->options.cluster; }

static bool is_worker(const ClusterNode *n)
{
    return n->role == CLUSTER_STATION || n->role == CLUSTER_SHARD;
}

void remote_watch_range(const Remote *r, uint32_t node, char out[REMOTE_RANGE_BYTES])
{
    const ClusterNode *n = &cluster_of(r)->nodes[node];
    char range[PHASE_RANGE_TEXT_MAX];
    if (n->role == CLUSTER_STATION || n->role == CLUSTER_LAYER_WARDEN)
        (void)snprintf(out, REMOTE_RANGE_BYTES, "layers %s",
                       phase_range_text(n->range, cluster_of(r)->layers, range));
    else if (n->role == CLUSTER_COORDINATOR) out[0] = '\0';
    else (void)snprintf(out, REMOTE_RANGE_BYTES, "ids %u-%u", n->id_first, n->id_last);
}

/* ---- Reading a report ---- */

/* What the client says, without the address in front. */
static void note_error(const RemoteQuestion *q, FleetReport *report)
{
    size_t url = strlen(q->url);
    const char *text = q->http.why.text;
    if (strncmp(text, q->url, url) == 0 && text[url] == ':') text += url + 1;
    while (*text == ' ') text++;
    fleet_miss(report, text);
}

void remote_watch_take(Remote *r, RemoteQuestion *q, uint64_t now_ns)
{
    RemoteReport *report = &r->reports[q->node];
    FleetReport *said = &r->said[q->node];
    q->busy = false;
    if (q->http.error != OK) note_error(q, said);
    else
        fleet_hear(cluster_of(r), q->node, q->http.status, (const char *)q->answer,
                   q->http.answer_bytes, said);
    report->due_ns =
        now_ns + (r->complete_once ? REMOTE_REPORT_PAUSE_S * 1000000000ull : START_PAUSE_NS);
    if (!r->complete_once) r->tick_ns = r->look_ns = 0;
}

/* ---- Asking ---- */

static RemoteQuestion *free_question(Remote *r)
{
    for (uint32_t i = 0; i < REMOTE_REPORTS_AT_ONCE; i++)
        if (!r->questions[i].busy) return &r->questions[i];
    return NULL;
}

static void ask(Remote *r, RemoteQuestion *q, uint32_t node)
{
    q->busy = true;
    q->node = node;
    r->reports[node].due_ns = UINT64_MAX;
    remote_url(r, node, "/ready", q->url);
    q->http = (HttpCall){.method = "GET",
                         .url = q->url,
                         .deadline_ms = REMOTE_REPORT_DEADLINE_MS,
                         .answer = q->answer,
                         .answer_room = sizeof q->answer};
    http_client_start(r->client, &q->http);
}

static void ask_those_due(Remote *r, uint64_t now_ns)
{
    uint32_t nodes = cluster_of(r)->node_count;
    for (uint32_t i = 0; i < nodes; i++) {
        uint32_t node = (r->next_report + i) % nodes;
        if (r->reports[node].due_ns > now_ns) continue;
        if (cluster_of(r)->nodes[node].role == CLUSTER_COORDINATOR) {
            r->reports[node].due_ns = UINT64_MAX;
            continue;
        }
        RemoteQuestion *q = free_question(r);
        if (!q) {
            r->next_report = node;
            return;
        }
        ask(r, q, node);
    }
}

uint64_t remote_watch_wake_ns(const Remote *r)
{
    uint64_t wake = r->tick_ns;
    for (uint32_t i = 0; i < cluster_of(r)->node_count; i++)
        if (r->reports[i].due_ns < wake) wake = r->reports[i].due_ns;
    return wake;
}

/* ---- Whether every range has a node ---- */

/* At the start: it has said that it is ready. Later: as the pipeline sees it. */
static bool is_there(const Remote *r, uint32_t node)
{
    PipelineNode known = {0};
    if (!r->complete_once) return r->said[node].ready && !r->said[node].error[0];
    pipeline_node(r->pipeline, node, &known);
    return known.state != PIPELINE_DOWN;
}

/* The first node of the next range of stations or shards that nobody is there for, from `at` on; node_count: none. */
static uint32_t next_missing(const Remote *r, uint32_t *at)
{
    const ClusterFile *c = cluster_of(r);
    while (*at < c->node_count) {
        uint32_t first = *at;
        bool there = !is_worker(&c->nodes[first]);
        do {
            there = there || is_there(r, *at);
        } while (++*at < c->node_count && c->nodes[*at].is_replica);
        if (!there) return first;
    }
    return c->node_count;
}

static const char *reason_of(const Remote *r, uint32_t node, PipelineNode *known)
{
    const FleetReport *report = &r->said[node];
    pipeline_node(r->pipeline, node, known);
    if (r->complete_once) return known->last_error[0] ? known->last_error : "no answer";
    return !report->asked     ? "not asked yet"
           : report->error[0] ? report->error
           : report->state[0] ? report->state
                              : "not ready";
}

/* Every missing range and why; when that is too long, why of the first only. Of more ranges than there is room for,
 * their count. Result  whether there are none. */
static bool name_missing(const Remote *r, Why *why)
{
    uint32_t nodes = cluster_of(r)->node_count, at = 0, cut = 0;
    uint32_t first = next_missing(r, &at), count = 0;
    char names[NAMES_BYTES] = "", full[WHY_MAX] = "";
    size_t used = 0, used_full = 0;
    PipelineNode known;
    for (uint32_t node = first; node < nodes; node = next_missing(r, &at), count++) {
        char range[REMOTE_RANGE_BYTES], name[REMOTE_RANGE_BYTES + CLUSTER_FILE_ID_BYTES + 8];
        remote_watch_range(r, node, range);
        size_t bytes = (size_t)snprintf(name, sizeof name, "%s%s (%s)", count ? "; " : "",
                                        cluster_of(r)->nodes[node].id, range);
        if (used_full < sizeof full)
            used_full += (size_t)snprintf(full + used_full, sizeof full - used_full, "%s: %s", name,
                                          reason_of(r, node, &known));
        if (cut || used + bytes >= sizeof names) cut++;
        else memcpy(names + used, name, bytes + 1), used += bytes;
    }
    if (!count) return true;
    char more[32] = "";
    if (cut) (void)snprintf(more, sizeof more, "; and %u more", cut);
    if (used_full < sizeof full) (void)snprintf(why->text, sizeof why->text, "%s", full);
    else
        (void)snprintf(why->text, sizeof why->text, "%s%s: the first: %s", names, more,
                       reason_of(r, first, &known));
    return false;
}

/* Whether only shards are missing, whose rows this process can read itself. */
static bool can_stand_in(const Remote *r)
{
    const ClusterFile *c = cluster_of(r);
    bool complete = r->options.path != NULL && r->own.failures == 0;
    for (uint32_t i = 0; complete && i < c->node_count;) {
        bool up = c->nodes[i].role != CLUSTER_STATION;
        do {
            PipelineNode known = {0};
            if (!up) pipeline_node(r->pipeline, i, &known);
            up |= known.state == PIPELINE_UP;
            i++;
        } while (i < c->node_count && c->nodes[i].is_replica);
        complete = up;
    }
    return complete;
}

/* After the lines of the nodes that are its cause. */
static void tell_completeness(Remote *r, uint64_t now_ns)
{
    if (r->complete && !r->complete_told) {
        log_say(LOG_INFO, "the cluster is complete, %llu s after the start",
                (unsigned long long)(now_ns - r->opened_ns) / 1000000000u);
    } else if (!r->complete && r->table_shown &&
               (r->complete_told || now_ns - r->told_ns > TOLD_AGAIN_S * 1000000000ull)) {
        log_say(LOG_ERROR, "the cluster is not complete: %s%s", r->missing.text,
                r->ready ? "; its rows are read here" : "");
        r->told_ns = now_ns;
    }
    r->complete_told = r->complete;
}

static void look_at_readiness(Remote *r)
{
    Why why = {{0}};
    bool complete = !r->complete_once || pipeline_is_complete(r->pipeline, &why);
    if (!complete || !r->complete_once) complete = name_missing(r, &why) && complete;
    if (!complete) {
        pthread_mutex_lock(&r->lock);
        r->missing = why;
        pthread_mutex_unlock(&r->lock);
    }
    r->ready = complete || (r->complete_once && can_stand_in(r));
    r->complete_once |= complete;
    r->complete = complete;
}

/* ---- Lines for a person ---- */

/* Fits 80 columns behind the id that `cobord up` puts in front. */
static void show_row(const Remote *r, uint32_t node)
{
    const ClusterNode *n = &cluster_of(r)->nodes[node];
    const FleetReport *p = &r->said[node];
    char range[REMOTE_RANGE_BYTES], address[64], state[FLEET_ERROR_BYTES + 64];
    remote_watch_range(r, node, range);
    (void)snprintf(address, sizeof address, "%s:%u", n->host, (unsigned)n->port);
    if (p->error[0]) (void)snprintf(state, sizeof state, "%s", p->error);
    else if (p->memory.budget_bytes)
        (void)snprintf(state, sizeof state, "%s %llu/%llu", p->state,
                       (unsigned long long)p->memory.need_bytes >> 20,
                       (unsigned long long)p->memory.budget_bytes >> 20);
    else (void)snprintf(state, sizeof state, "%s", p->state);
    if (log_is_json()) log_say(LOG_INFO, "%s at %s, %s: %s", n->id, address, range, state);
    else fprintf(stderr, " %-14s %-15s %-17s %s\n", n->id, address, range, state);
}

static void show_table(Remote *r)
{
    const ClusterFile *c = cluster_of(r);
    for (uint32_t i = 0; i < c->node_count; i++)
        if (!r->said[i].asked && c->nodes[i].role != CLUSTER_COORDINATOR) return;
    r->table_shown = true;
    if (!log_wants(LOG_INFO)) return;
    log_say(LOG_INFO, "%s: the cluster's nodes, MiB planned/allowed", r->options.self->id);
    for (uint32_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].role != CLUSTER_COORDINATOR) show_row(r, i);
}

/* Failures with node, range and cause, a line a second and node at most. */
static void tell_changes(Remote *r, uint32_t node)
{
    RemoteReport *p = &r->reports[node];
    PipelineNode known;
    char range[REMOTE_RANGE_BYTES];
    const char *id = cluster_of(r)->nodes[node].id;
    pipeline_node(r->pipeline, node, &known);
    remote_watch_range(r, node, range);
    if (known.state == PIPELINE_DOWN && p->logged_state == PIPELINE_UP)
        log_say(LOG_ERROR, "%s (%s) is lost: %s", id, range, known.last_error);
    else if (known.state == PIPELINE_UP && p->logged_state == PIPELINE_DOWN &&
             known.failures > p->logged_failures)
        log_say(LOG_ERROR, "%s (%s) is back; a call failed meanwhile: %s", id, range,
                known.last_error);
    else if (known.state == PIPELINE_UP && p->logged_state == PIPELINE_DOWN)
        log_say(LOG_INFO, "%s (%s) is back", id, range);
    else if (known.failures > p->logged_failures) /* also of one that was back for a moment */
        log_say(LOG_ERROR, "%s (%s): a call failed: %s", id, range, known.last_error);
    if (known.state != PIPELINE_UNKNOWN) p->logged_state = known.state;
    p->logged_failures = known.failures;
}

static void tell_all_changes(Remote *r)
{
    for (uint32_t i = 0; r->complete_once && i < cluster_of(r)->node_count; i++)
        if (is_worker(&cluster_of(r)->nodes[i])) tell_changes(r, i);
}

static size_t describe(const Remote *r, uint64_t now_ns, char *out, size_t room)
{
    const Fleet fleet = {.cluster = cluster_of(r),
                         .self = r->options.self,
                         .version = r->options.version,
                         .pipeline = r->pipeline,
                         .reports = r->said,
                         .chunk = pipeline_coordinator_config(&r->config).chunk,
                         .frames = r->config.frames,
                         .ready = r->ready,
                         .complete = r->complete,
                         .missing = r->missing.text,
                         .uptime_ms = (now_ns - r->opened_ns) / 1000000u,
                         .refresh_ms = TICK_NS / 1000000,
                         .own_calls = r->own.calls,
                         .own_us = (uint32_t)(r->work.frame_ns / 1000),
                         .memory = {.budget_bytes = cluster_of(r)->memory_bytes,
                                    .need_bytes = r->need_bytes,
                                    .resident_bytes = memory_resident(),
                                    .peak_bytes = memory_peak()}};
    return fleet_describe(&fleet, out, room);
}

static void take_snapshot(Remote *r, uint64_t now_ns)
{
    char *text = malloc(r->description_room);
    if (!text) return;
    size_t bytes = describe(r, now_ns, text, r->description_room);
    pthread_mutex_lock(&r->lock);
    char *old = r->description;
    r->description = text;
    r->description_bytes = bytes;
    pthread_mutex_unlock(&r->lock);
    free(old);
}

void remote_watch_tick(Remote *r, uint64_t now_ns)
{
    ask_those_due(r, now_ns);
    if (now_ns >= r->look_ns) {
        r->look_ns = now_ns + LOOK_NS;
        look_at_readiness(r);
    }
    if (now_ns < r->tick_ns) return;
    r->tick_ns = now_ns + (r->complete_once ? TICK_NS : START_TICK_NS);
    if (!r->table_shown) show_table(r);
    tell_all_changes(r);
    tell_completeness(r, now_ns);
    take_snapshot(r, now_ns);
}
