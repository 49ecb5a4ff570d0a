/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on their way, as a host would carry them out, through a network that does not.
 *
 *   sim_network_call --ARRIVAL (once, twice or never; bytes perhaps turned or cut)--> node's queue
 *                                                     --WORK--> the node's answer
 *                  <--ANSWER (or never)--------------------------
 *   the first of answer, DEADLINE and the pipeline's cancel ends the call; what comes later goes to nobody
 *
 * A request that has left cannot be called back: after a cancel or a deadline its node may still work for it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { AT_ID = 32, AT_HASH = 48, AT_SEQUENCES = 96, LOGITS_ROW_BYTES = 32, AT_LOGITS_ROWS = 64 };

const char *sim_network_path(PipelinePath path)
{
    static const char *const names[] = {"embed", "forward", "logits", "drop", "health"};
    return names[path];
}

static uint64_t body_hash(const PipelineCall *c)
{
    uint64_t hash = 0;
    for (int i = 0; i < 2; i++)
        if (c->part_bytes[i]) hash = hash_mix64(hash) ^ hash_xxh64(c->parts[i], c->part_bytes[i]);
    return hash;
}

static bool is_calm(const Sim *s) { return s->now_ns >= s->plan.calm_ns; }

/* Whether a fault of so many in 10,000 happens now. */
static bool happens(Sim *s, uint32_t per_10000)
{
    return !is_calm(s) && sim_random_chance(&s->random, per_10000);
}

static uint64_t way_ns(Sim *s)
{
    uint64_t jitter = is_calm(s) ? s->plan.jitter_ns / 8 : s->plan.jitter_ns;
    return s->plan.delay_ns + sim_random_between(&s->random, 0, jitter);
}

/* Turns one to three bits, or cuts the end off. With --break hash a payload's bit is turned and all sums are
 * made right again. */
static void damage(Sim *s, SimEvent *e, PipelinePath path)
{
    if (!e->count || path >= PIPELINE_DROP) return;
    bool corrupt = happens(s, s->plan.corrupt), cut = happens(s, s->plan.cut_short);
    if (!corrupt && !cut) return;
    s->counts->corrupted++;
    s->nodes[e->node].may_keep = true;
    sim_log(s, "damage to %s %llu (%s)", sim_network_path(path), (unsigned long long)e->number,
            cut ? "cut short" : "bits");
    if (cut) {
        e->count = sim_random_below(&s->random, (uint32_t)e->count);
        return;
    }
    uint32_t header = e->count >= FRAME_HEADER_BYTES_MIN ? bytes_load32(e->bytes + 8) : 0;
    if (s->broken == SIM_BREAK_HASH && header && header < e->count && e->status <= 200) {
        /* The sign of a number of the first row, whatever it is. */
        e->bytes[header + 4 * sim_random_below(&s->random, 4) + 3] ^= 0x80;
        bytes_store64(e->bytes + AT_HASH, hash_xxh64(e->bytes + header, e->count - header));
        frame_seal(e->bytes);
        return;
    }
    for (uint32_t n = 1 + sim_random_below(&s->random, 3); n; n--) {
        uint32_t at = sim_random_below(&s->random, (uint32_t)e->count);
        e->bytes[at] ^= (uint8_t)(1u << sim_random_below(&s->random, 8));
    }
}

/* --- What every request must be like --- */

/* Each hidden row that shards get is one that the oracle has seen, but those behind wrong guesses. */
static void check_hidden(Sim *s, const PipelineCall *c)
{
    const uint8_t *header = c->parts[0];
    uint32_t rows = bytes_load32(header + AT_LOGITS_ROWS);
    const uint8_t *row = c->part_bytes[1] ? c->parts[1] : header + bytes_load32(header + 8);
    for (uint32_t i = 0; i < rows; i++) {
        bool unknown = s->plan.drafts && sim_rows_may_be_unknown(s, c->call, i);
        s->counts->rows += !unknown;
        if (!unknown && !sim_solo_knows_row(s, row + (size_t)i * SIM_HIDDEN * sizeof(float)))
            sim_fail(s, "row %u of logits request %llu is a hidden state that no request has alone",
                     i, (unsigned long long)bytes_load64(header + AT_ID));
    }
}

static void check_forward(Sim *s, const PipelineCall *c)
{
    uint64_t id = bytes_load64(c->parts[0] + AT_ID), *last = &s->part_request[c->part];
    if (id <= *last || id >> 32 != s->nonce)
        sim_fail(s, "station part %u gets request id %llx after %llx", c->part,
                 (unsigned long long)id, (unsigned long long)*last);
    *last = id;
    for (uint32_t i = 0; i < s->call_count; i++)
        if (s->calls[i].open && i != c->call && s->calls[i].call.path == PIPELINE_FORWARD &&
            s->calls[i].call.part == c->part)
            sim_fail(s, "station part %u has two calls at once", c->part);
}

static void check_call(Sim *s, const PipelineCall *c)
{
    ASSERT(c->call < s->call_count);
    if (s->calls[c->call].open) sim_fail(s, "call %u is made while it is open", c->call);
    if (c->deadline_ns <= s->now_ns) sim_fail(s, "call %u is too late from the start", c->call);
    if (c->node != PIPELINE_OWN) {
        const ClusterNode *n = &s->cluster.nodes[c->node];
        bool to_station = c->path == PIPELINE_FORWARD || c->path == PIPELINE_DROP;
        bool to_shard = c->path == PIPELINE_EMBED || c->path == PIPELINE_LOGITS;
        bool at_end = c->path == PIPELINE_EMBED ? s->plan.embed : s->plan.head,
             has_it = c->path == PIPELINE_EMBED ? n->embed : n->head;
        if (c->node >= s->cluster.node_count || n->part != c->part ||
            (to_station && n->role != CLUSTER_STATION) ||
            (to_shard && (at_end ? !has_it : n->role != CLUSTER_SHARD)))
            sim_fail(s, "call %u goes to the wrong node", c->call);
    }
    if (c->path == PIPELINE_FORWARD) check_forward(s, c);
    if (c->path == PIPELINE_LOGITS && !s->plan.own_is_broken) check_hidden(s, c);
}

/* --- There --- */

static void post(Sim *s, const PipelineCall *c, uint64_t number, uint64_t at_ns)
{
    SimEvent *e = sim_clock_add(s, SIM_ARRIVAL, at_ns);
    e->node = c->node;
    e->part = c->part;
    e->call = c->call;
    e->number = number;
    e->path = c->path;
    e->session = c->session;
    e->count = c->part_bytes[0] + c->part_bytes[1];
    e->bytes = malloc(e->count + 1);
    for (int i = 0; i < 2; i++)
        if (c->part_bytes[i])
            memcpy(e->bytes + (i ? c->part_bytes[0] : 0), c->parts[i], c->part_bytes[i]);
    if (c->node != PIPELINE_OWN) damage(s, e, c->path);
}

/* A request that never gets there: its connection breaks, or nobody ever hears of it. */
static void lose(Sim *s, const PipelineCall *c, uint64_t number)
{
    bool breaks = sim_random_below(&s->random, 2);
    s->counts->dropped++;
    sim_log(s, "lost: request %llu%s", (unsigned long long)number,
            breaks ? ", and it is seen" : "");
    if (!breaks) return;
    SimEvent *e = sim_clock_add(s, SIM_ANSWER, s->now_ns + way_ns(s));
    e->node = c->node;
    e->call = c->call;
    e->number = number;
    e->path = c->path;
    e->error = ERR_UNREACHABLE;
}

void sim_network_call(Sim *s, const PipelineCall *c)
{
    check_call(s, c);
    if (s->failed) return;
    uint64_t number = ++s->numbers;
    s->calls[c->call] = (SimCall){true, number, body_hash(c), *c};
    s->counts->calls++;
    s->counts->own += c->node == PIPELINE_OWN;
    sim_log(s, "call %llu: %s to %s", (unsigned long long)number, sim_network_path(c->path),
            sim_nodes_name(s, c->node));
    SimEvent *deadline = sim_clock_add(s, SIM_DEADLINE, c->deadline_ns);
    deadline->call = c->call;
    deadline->number = number;
    if (c->node != PIPELINE_OWN && happens(s, s->plan.drop)) {
        lose(s, c, number);
        return;
    }
    uint64_t at = s->now_ns + (c->node == PIPELINE_OWN ? SIM_US : way_ns(s));
    post(s, c, number, at);
    if (c->node != PIPELINE_OWN && happens(s, s->plan.twice)) {
        s->counts->doubled++;
        uint32_t most = sim_random_below(&s->random, 2) ? 20 : 400;
        post(s, c, number, at + way_ns(s) * (1 + sim_random_below(&s->random, most)));
    }
}

/* --- At the node --- */

static SimNode *node_of(Sim *s, const SimEvent *e)
{
    return e->node == PIPELINE_OWN ? sim_nodes_own(s, e->part) : &s->nodes[e->node];
}

static void move(Sim *s, const SimEvent *e, SimEventKind kind, uint64_t at_ns)
{
    SimEvent next = *e;
    next.kind = kind;
    sim_clock_postpone(s, &next, at_ns);
}

static void send_answer(Sim *s, SimEvent *e, Error error, unsigned status)
{
    SimNode *n = e->node == PIPELINE_OWN ? NULL : &s->nodes[e->node];
    if (n && (n->cut_until_ns > s->now_ns || happens(s, s->plan.drop))) {
        s->counts->dropped++;
        sim_log(s, "lost: answer %llu", (unsigned long long)e->number);
        free(e->bytes);
        return;
    }
    e->error = error;
    e->status = status;
    if (n) damage(s, e, e->path);
    move(s, e, SIM_ANSWER, s->now_ns + (n ? way_ns(s) : SIM_US));
}

/* No answer of a node: its way is closed. */
static void refuse(Sim *s, SimEvent *e)
{
    free(e->bytes);
    e->bytes = NULL;
    e->count = 0;
    send_answer(s, e, ERR_UNREACHABLE, 0);
}

static void say(Sim *s, SimEvent *e, unsigned status, const char *text)
{
    free(e->bytes);
    e->count = strlen(text);
    e->bytes = malloc(e->count + 1);
    ASSERT(e->bytes);
    memcpy(e->bytes, text, e->count);
    send_answer(s, e, OK, status);
}

static bool caller_has_left(const Sim *s, const SimEvent *e)
{
    for (uint32_t i = 0; i < s->call_count; i++)
        if (s->calls[i].open && s->calls[i].number == e->number) return false;
    return true;
}

/* Faults that wait for the so many-th request begin right after this one has come. */
static void count_request(Sim *s, const SimEvent *e)
{
    if (e->node == PIPELINE_OWN || e->path > PIPELINE_LOGITS || is_calm(s)) return;
    s->came[0]++;
    s->came[e->node]++;
    for (uint32_t i = 0; i < s->plan.fault_count; i++) {
        const SimFault *f = &s->plan.faults[i];
        uint32_t at = f->kind >= SIM_RESTART ? 0 : f->node;
        if (f->after && (at == 0 || at == e->node) && s->came[at] == f->after)
            sim_clock_add(s, SIM_FAULT, s->now_ns)->fault = i;
    }
}

static void arrive(Sim *s, SimEvent *e)
{
    SimNode *n = node_of(s, e);
    count_request(s, e);
    if (n->cut_until_ns > s->now_ns || (!n->alive && n->silent)) {
        free(e->bytes);
        return;
    }
    if (!n->alive) {
        refuse(s, e);
        return;
    }
    if (n->frozen_until_ns > s->now_ns) {
        move(s, e, SIM_ARRIVAL, n->frozen_until_ns);
        return;
    }
    if (e->path == PIPELINE_HEALTH || (n->draining && e->node != PIPELINE_OWN)) {
        if (n->draining) say(s, e, 503, "{\"status\":\"draining\"}");
        else say(s, e, 200, "{\"status\":\"ok\"}");
        return;
    }
    if (e->node != PIPELINE_OWN && happens(s, s->plan.gateway)) {
        say(s, e, 502, "<html><body>Bad gateway</body></html>"); /* what no node says */
        return;
    }
    uint64_t from = n->busy_until_ns > s->now_ns ? n->busy_until_ns : s->now_ns;
    n->busy_until_ns =
        from + s->plan.compute_ns + sim_random_between(&s->random, 0, s->plan.compute_jitter_ns);
    e->life = n->life;
    move(s, e, SIM_WORK, n->busy_until_ns);
}

static void work(Sim *s, SimEvent *e)
{
    SimNode *n = node_of(s, e);
    if (e->node == PIPELINE_OWN && s->plan.own_is_broken && !is_calm(s)) {
        refuse(s, e);
        return;
    }
    if (n->life != e->life) { /* it died in between */
        if (n->silent) free(e->bytes);
        else refuse(s, e);
        return;
    }
    if (n->frozen_until_ns > s->now_ns) {
        move(s, e, SIM_WORK, n->frozen_until_ns);
        return;
    }
    bool left = caller_has_left(s, e);
    if (left && s->plan.skips_gone) {
        free(e->bytes);
        return;
    }
    uint8_t *answer;
    size_t bytes;
    unsigned status = sim_nodes_answer(s, n, e, &answer, &bytes);
    s->counts->late += left;
    n->may_keep |= left && e->path == PIPELINE_FORWARD;
    sim_log(s, "%s works for %s %llu%s: %u %.*s", sim_nodes_name(s, e->node),
            sim_network_path(e->path), (unsigned long long)e->number, left ? " (left)" : "", status,
            status == 200 ? 0 : (int)bytes, (const char *)answer);
    free(e->bytes);
    e->bytes = answer;
    e->count = bytes;
    send_answer(s, e, OK, status);
}

/* --- Back --- */

void sim_network_end(Sim *s, uint32_t call, const PipelineAnswer *answer)
{
    SimCall *c = &s->calls[call];
    if (!c->open) {
        sim_fail(s, "call %u is cancelled, and it is not open", call);
        return;
    }
    if (body_hash(&c->call) != c->body_hash)
        sim_fail(s, "the body of %s to %s changed while the call was open",
                 sim_network_path(c->call.path), sim_nodes_name(s, c->call.node));
    c->open = false;
    bool well = answer->error == OK && answer->status != 400 && answer->status < 500;
    if (!well && c->call.node != PIPELINE_OWN) s->nodes[c->call.node].may_keep = true;
    pipeline_answer(s->pipeline, call, answer, s->now_ns);
}

static bool is_open(const Sim *s, const SimEvent *e)
{
    return e->call < s->call_count && s->calls[e->call].open &&
           s->calls[e->call].number == e->number;
}

static void deliver(Sim *s, const SimEvent *e)
{
    if (!is_open(s, e)) return;
    const PipelineCall *c = &s->calls[e->call].call;
    size_t count = c->answer ? e->count : 0; /* without a room it is dropped */
    PipelineAnswer answer = {.error = e->error, .status = e->status, .bytes = count};
    if (e->error != OK) answer.why = (Why){"connection refused"};
    if (e->error == OK && count > c->answer_room) {
        if (e->status == 200)
            sim_fail(s, "%s: no room for an answer of %zu bytes", sim_network_path(e->path),
                     e->count);
        answer = (PipelineAnswer){.error = ERR_TOO_LARGE, .why = {"the answer is too large"}};
    } else if (count) memcpy(c->answer, e->bytes, count);
    sim_log(s, "answer %llu: %s %u", (unsigned long long)e->number, error_text(e->error),
            e->status);
    sim_network_end(s, e->call, &answer);
}

void sim_network_event(Sim *s, SimEvent *e)
{
    switch (e->kind) {
    case SIM_ARRIVAL: arrive(s, e); break;
    case SIM_WORK: work(s, e); break;
    case SIM_ANSWER:
        deliver(s, e);
        free(e->bytes);
        break;
    case SIM_DEADLINE:
        if (is_open(s, e)) {
            PipelineAnswer late = {.error = ERR_UNREACHABLE, .why = {"no answer in time"}};
            sim_log(s, "deadline of %llu", (unsigned long long)e->number);
            sim_network_end(s, e->call, &late);
        }
        break;
    default: break;
    }
    free(e);
}
