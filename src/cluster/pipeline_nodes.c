/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each node, and the calls that no frame asked for.
 *
 *   UNKNOWN, UP --a call failed, or two healths were missed--> DOWN --its health was heard--> UP
 *
 * DOWN and locked: it refused our key, which its health does not look at. In place of its health a session that
 * nobody has is dropped: whoever answers anything but 401 has our key by now. When all nodes of a range are locked,
 * its frames are refused at once.
 *
 * DOWN: its health is asked for after 50 ms, then after twice as long each time, up to 2 s; only a call that
 * succeeds sets that back, so that a node that is alive but of no use is not asked in a loop. Who
 * is DOWN gets no call: a frozen process costs its three seconds once. */
#include "cluster/pipeline_state.h"

static const uint64_t BACKOFF_MIN_NS = 50 * MS, BACKOFF_MAX_NS = 2000 * MS, HEALTH_NS = 1000 * MS,
                      CALL_NS = 2000 * MS, FIRST_CALL_NS = 120000 * MS,
                      FORGIVEN_NS = 5000 * MS; /* more than two failures of a node take */
enum { MISSES_MAX = 2, USUAL_SHARE = 8, BUDGET_TIMES = 8 };

/* ---- Times ---- */

static uint32_t class_of(uint32_t rows)
{
    uint32_t c = 0;
    for (; rows; rows >>= 1) c++;
    return c < ROW_CLASSES ? c : ROW_CLASSES - 1;
}

static void learn_usual(uint64_t *usual, uint64_t took_ns)
{
    if (!took_ns) took_ns = 1;
    *usual = *usual ? (*usual * (USUAL_SHARE - 1) + took_ns) / USUAL_SHARE : took_ns;
}

uint64_t pipeline_nodes_usual_ns(const Pipeline *p, uint32_t node, PipelinePath path, uint32_t rows)
{
    return pipeline_node_of(p, node)->usual_ns[path][class_of(rows)];
}

/* The usual time of the nearest smaller call, longer by the rows; else that of a larger one. */
static uint64_t guess_usual(const Node *n, PipelinePath path, uint32_t rows)
{
    uint32_t c = class_of(rows);
    for (uint32_t less = 0; less <= c; less++)
        if (n->usual_ns[path][c - less]) return n->usual_ns[path][c - less] << less;
    for (uint32_t more = c + 1; more < ROW_CLASSES; more++)
        if (n->usual_ns[path][more]) return n->usual_ns[path][more];
    return 0;
}

uint64_t pipeline_nodes_budget_ns(const Pipeline *p, uint32_t node, PipelinePath path,
                                  uint32_t rows)
{
    if (path == PIPELINE_HEALTH) return HEALTH_NS;
    if (path == PIPELINE_DROP) return CALL_NS;
    const Node *n = pipeline_node_of(p, node);
    uint64_t usual = guess_usual(n, path, rows);
    if (usual && path != PIPELINE_FORWARD && n->range < p->stations) /* it waits behind a frame */
        usual += guess_usual(n, PIPELINE_FORWARD, p->chunk);
    uint64_t budget = CALL_NS + BUDGET_TIMES * usual;
    return usual && budget < FIRST_CALL_NS ? budget : FIRST_CALL_NS;
}

static uint32_t us_of(uint64_t ns)
{
    return ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX;
}

void pipeline_nodes_add_time(Times *t, uint64_t ns)
{
    t->us[t->next] = us_of(ns);
    t->next = (t->next + 1) % NODE_TIMES;
    if (t->count < NODE_TIMES) t->count++;
}

static uint32_t percentile(const Times *t, uint32_t percent)
{
    uint32_t sorted[NODE_TIMES], count = 0;
    for (uint32_t i = 0; i < t->count; i++, count++) {
        uint32_t at = count;
        for (; at && sorted[at - 1] > t->us[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = t->us[i];
    }
    return count ? sorted[(count - 1) * percent / 100] : 0;
}

void pipeline_nodes_time_stages(Pipeline *p, const Frame *f)
{
    for (uint32_t i = 0; i < NODE_KINDS; i++) {
        uint64_t end = i + 1 < NODE_KINDS ? f->begun_ns[i + 1] : p->now_ns;
        learn_usual(&p->stage_ns[i][class_of(f->work->rows)], end - f->begun_ns[i]);
    }
}

void pipeline_stages(const Pipeline *p, PipelineStages *out)
{
    *out = (PipelineStages){.frames = p->frames_ended, .rows = p->last_rows};
    for (uint32_t i = 0; i < NODE_KINDS; i++)
        out->us[i] = us_of(p->stage_ns[i][class_of(p->last_rows)]);
}

/* ---- States ---- */

static void update_range(Pipeline *p, const Node *n)
{
    if (n->range == NONE) return;
    Range *r = &p->ranges[n->range];
    uint64_t since = r->none_since_ns ? r->none_since_ns : p->now_ns ? p->now_ns : 1;
    for (uint32_t i = 0; i < r->count; i++)
        if (p->nodes[r->first + i].state != PIPELINE_DOWN) since = 0;
    r->none_since_ns = since;
    if (n->range < p->stations) pipeline_ends_follow(p, r);
}

bool pipeline_nodes_usable(const Pipeline *p, uint32_t node)
{
    return pipeline_node_of(p, node)->state != PIPELINE_DOWN;
}

void pipeline_nodes_heard(Pipeline *p, uint32_t node)
{
    Node *n = pipeline_node_of(p, node);
    n->state = PIPELINE_UP;
    n->gone = n->locked = false;
    n->misses = 0;
    n->health_ns = p->now_ns + HEALTH_NS;
    update_range(p, n);
    p->again = true;
}

void pipeline_nodes_succeeded(Pipeline *p, const Ended *e)
{
    Node *n = pipeline_node_of(p, e->call->node);
    n->backoff_ns = 0;
    n->failed_in_a_row = 0;
    pipeline_costs_hop(p, e);
    if (e->call->path == PIPELINE_FORWARD || n->range >= p->stations)
        pipeline_nodes_add_time(&n->whole,
                                e->took_ns); /* of stations what their compute is part of */
    learn_usual(&n->usual_ns[e->call->path][class_of(e->rows)], e->took_ns);
    if (e->call->path <= PIPELINE_LOGITS)
        n->hops[e->call->path] =
            (PipelineHop){.rows = e->rows,
                          .bytes_sent = e->call->part_bytes[0] + e->call->part_bytes[1],
                          .bytes_received = e->bytes};
    pipeline_nodes_heard(p, e->call->node);
}

static void set_down(Pipeline *p, Node *n)
{
    n->backoff_ns = n->backoff_ns ? 2 * n->backoff_ns : BACKOFF_MIN_NS;
    if (n->backoff_ns > BACKOFF_MAX_NS) n->backoff_ns = BACKOFF_MAX_NS;
    n->health_ns = p->now_ns + n->backoff_ns;
    n->state = PIPELINE_DOWN;
    update_range(p, n);
    p->again = true;
}

static void keep_why(Node *n, Error error, const Why *why)
{
    Error kept =
        error_why(&n->last, error, "%s", why && why->text[0] ? why->text : error_text(error));
    ASSERT(kept == error);
}

void pipeline_nodes_disappoints(Pipeline *p, uint32_t node)
{
    Node *n = pipeline_node_of(p, node);
    n->failed_in_a_row++;
    n->failed_ns = p->now_ns;
}

uint32_t pipeline_nodes_held_against(const Pipeline *p, uint32_t node)
{
    const Node *n = &p->nodes[node];
    return p->now_ns - n->failed_ns < FORGIVEN_NS ? n->failed_in_a_row : 0;
}

void pipeline_nodes_failed(Pipeline *p, uint32_t node, Error error, const Why *why)
{
    Node *n = pipeline_node_of(p, node);
    pipeline_count(&n->counts.failures, 1);
    pipeline_nodes_disappoints(p, node);
    /* A call from before that fails otherwise says nothing of our key. */
    if (!n->locked || error == ERR_KEY) keep_why(n, error, why);
    n->locked |= error == ERR_KEY;
    n->gone |= n->locked;
    if (node != PIPELINE_OWN && n->state != PIPELINE_DOWN) set_down(p, n);
}

bool pipeline_nodes_locked(const Pipeline *p, const Range *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (!p->nodes[r->first + i].locked) return false;
    return true;
}

Error pipeline_nodes_name(const Pipeline *p, uint32_t node, Error error, const Why *what, Why *out)
{
    const char *text = what && what->text[0] ? what->text : error_text(error);
    if (node == PIPELINE_OWN) return error_why(out, error, "%s", text);
    const ClusterNode *n = &p->config.cluster->nodes[node];
    return error_why(out, error, "%s at %s port %u: %s", n->id, n->host, (unsigned)n->port, text);
}

Error pipeline_nodes_explain(const Pipeline *p, const Range *r, Why *why)
{
    const ClusterNode *node = &p->config.cluster->nodes[r->active];
    const char *last = p->nodes[r->active].last.text;
    return error_why(why, ERR_UNREACHABLE, "%s at %s port %u, and %u other nodes of its range: %s",
                     node->id, node->host, (unsigned)node->port, r->count - 1,
                     *last ? last : "no answer");
}

/* ---- Health ---- */

static void ask_health(Pipeline *p, uint32_t node)
{
    PipelineCall call = {.call = pipeline_calls_of_health(p, node),
                         .node = node,
                         .part = p->config.cluster->nodes[node].part,
                         .path = PIPELINE_HEALTH,
                         .answer = p->nodes[node].health_answer,
                         .answer_room = FRAME_ERROR_ROOM};
    p->nodes[node].health_ns = UINT64_MAX; /* until it has ended */
    if (pipeline_calls_is_free(p, call.call)) pipeline_calls_make(p, &call, 0);
}

/* Whether it takes our key now. A session that it is being told to forget says as much. */
static void knock(Pipeline *p, uint32_t node)
{
    PipelineCall call = {.call = pipeline_calls_of_drop(p, node),
                         .node = node,
                         .part = p->config.cluster->nodes[node].part,
                         .path = PIPELINE_DROP,
                         .answer = p->nodes[node].drop_answer,
                         .answer_room = FRAME_ERROR_ROOM};
    p->nodes[node].health_ns = UINT64_MAX; /* until it has ended */
    if (pipeline_calls_is_free(p, call.call)) pipeline_calls_make(p, &call, 0);
}

void pipeline_nodes_drop_ended(Pipeline *p, const Ended *e)
{
    Node *n = pipeline_node_of(p, e->call->node);
    if (!n->locked) return;
    if (e->error == OK) {
        pipeline_nodes_heard(p, e->call->node);
        return;
    }
    keep_why(n, e->error, &e->why);
    set_down(p, n);
}

void pipeline_nodes_health_ended(Pipeline *p, const Ended *e)
{
    Node *n = pipeline_node_of(p, e->call->node);
    if (n->locked) { /* it was asked before that was known */
        n->health_ns = p->now_ns + n->backoff_ns;
        return;
    }
    if (e->error == OK) {
        pipeline_nodes_heard(p, e->call->node);
        return;
    }
    n->misses++;
    n->health_ns = p->now_ns;
    keep_why(n, e->error, &e->why);
    if (n->state == PIPELINE_DOWN) n->gone = true;
    else if (n->misses < MISSES_MAX) return;
    n->gone = true;
    pipeline_count(&n->counts.failures, n->state != PIPELINE_DOWN);
    set_down(p, n);
    pipeline_calls_cancel_node(p, e->call->node);
}

/* ---- Sessions that nobody needs any more ---- */

void pipeline_nodes_drop(Pipeline *p, uint64_t session)
{
    p->drops[p->drops_made++ % p->config.slots] = session;
}

/* One after the other; who is too far behind, or DOWN, forgets the least recently used by itself. */
static void ask_drop(Pipeline *p, uint32_t node)
{
    Node *n = &p->nodes[node];
    uint64_t kept = p->drops_made < p->config.slots ? p->drops_made : p->config.slots;
    if (n->drops < p->drops_made - kept) n->drops = p->drops_made - kept;
    if (n->state == PIPELINE_DOWN) n->drops = p->drops_made;
    if (n->drops == p->drops_made) return;
    PipelineCall call = {.call = pipeline_calls_of_drop(p, node),
                         .node = node,
                         .part = p->config.cluster->nodes[node].part,
                         .path = PIPELINE_DROP,
                         .session = p->drops[n->drops % p->config.slots],
                         .answer = n->drop_answer,
                         .answer_room = FRAME_ERROR_ROOM};
    if (!pipeline_calls_is_free(p, call.call)) return;
    n->drops++;
    pipeline_calls_make(p, &call, 0);
}

void pipeline_nodes_step(Pipeline *p)
{
    for (uint32_t i = 0; i < p->config.cluster->node_count; i++) {
        if (p->nodes[i].range == NONE) continue;
        if (p->nodes[i].health_ns <= p->now_ns) (p->nodes[i].locked ? knock : ask_health)(p, i);
        if (p->nodes[i].range < p->stations) ask_drop(p, i);
    }
}

uint64_t pipeline_nodes_wake_ns(const Pipeline *p)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < p->config.cluster->node_count; i++)
        if (p->nodes[i].range != NONE && p->nodes[i].health_ns < wake) wake = p->nodes[i].health_ns;
    return wake;
}

/* ---- Told ---- */

void pipeline_node(const Pipeline *p, uint32_t node, PipelineNode *out)
{
    const Node *n = &p->nodes[node];
    *out = (PipelineNode){
        .state = n->state,
        .active = n->range != NONE && p->ranges[n->range].active == node,
        .calls = n->counts.calls,
        .failures = n->counts.failures,
        .hedges = n->counts.hedges,
        .replays = n->counts.replays,
        .bytes_sent = n->counts.bytes_sent,
        .bytes_received = n->counts.bytes_received,
        .p50_us = percentile(&n->whole, 50),
        .p95_us = percentile(&n->whole, 95),
        .compute_p50_us = percentile(&n->compute, 50),
        .compute_p95_us = percentile(&n->compute, 95),
    };
    for (uint32_t i = 0; i < NODE_KINDS; i++) {
        out->hops[i] = n->hops[i];
        out->hops[i].us = us_of(n->usual_ns[i][class_of(n->hops[i].rows)]);
    }
    for (size_t i = 0; i + 1 < sizeof out->last_error && n->last.text[i]; i++)
        out->last_error[i] = n->last.text[i];
}

bool pipeline_is_complete(const Pipeline *p, Why *why)
{
    uint32_t missing = 0;
    const char *first = "", *last = "";
    for (uint32_t i = 0; i < p->stations + pipeline_ends_first(p); i++) {
        if (!p->ranges[i].none_since_ns) continue;
        if (missing++) continue;
        first = p->config.cluster->nodes[p->ranges[i].first].id;
        last = p->nodes[p->ranges[i].active].last.text;
    }
    if (missing == 1)
        return error_why(why, ERR_UNREACHABLE, "the range of %s has no node%s%s", first,
                         *last ? ": " : "", last) == OK;
    return !missing ||
           error_why(why, ERR_UNREACHABLE, "%u ranges have no node: that of %s and others", missing,
                     first) == OK;
}
