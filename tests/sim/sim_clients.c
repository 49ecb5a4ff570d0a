/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's host: requests come, get slots, are cancelled, continue each other; the coordinator dies
 * and starts again from its journal; every token is compared with the oracle's when it comes.
 *
 *   request  WAITING --a slot--> RUNNING --end, cancel--> ENDED
 *   slot     -1 --start--> request --end--> its conversation, for the request that follows it --> forgotten: -1 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 10000, GUARD_BYTES = 64, GUARD = 0xa5 };

/* --- The coordinator's life --- */

static PipelineConfig config_of(const Sim *s)
{
    return (PipelineConfig){.cluster = &s->cluster,
                            .hyper = &s->model->hyper,
                            .slots = s->plan.slots,
                            .logit_rows = s->plan.logit_rows,
                            .frames = s->plan.frames ? s->plan.frames : s->plan.stations,
                            .nonce = s->nonce};
}

void sim_clients_start_coordinator(Sim *s)
{
    Why why = {{0}};
    PipelineConfig config = config_of(s);
    CoordinatorConfig coordinator = pipeline_coordinator_config(&config);
    s->coordinator_bytes =
        (size_t)(coordinator_bytes(&coordinator) + pipeline_bytes(&config)) + ARENA_ALIGN;
    s->coordinator_memory = malloc(s->coordinator_bytes + GUARD_BYTES);
    ASSERT(s->coordinator_memory);
    memset(s->coordinator_memory, 0xff, s->coordinator_bytes);
    memset((uint8_t *)s->coordinator_memory + s->coordinator_bytes, GUARD, GUARD_BYTES);
    Arena arena = arena_make(s->coordinator_memory, s->coordinator_bytes);
    Error error = coordinator_build(&coordinator, &arena, &s->coordinator, &why);
    if (error == OK) error = pipeline_build(&config, s->coordinator, &arena, &s->pipeline, &why);
    if (error != OK) {
        sim_fail(s, "the coordinator: %s: %s", error_text(error), why.text);
        return;
    }
    s->call_count = pipeline_calls_max(s->pipeline);
    s->calls = calloc(s->call_count, sizeof *s->calls);
    ASSERT(s->calls);
    for (uint32_t i = 0; i < SIM_SLOTS_MAX; i++) s->slot_request[i] = -1;
}

static void count_pipeline(Sim *s)
{
    s->counts->replays += pipeline_replays(s->pipeline);
    s->counts->degraded += pipeline_degraded(s->pipeline);
    for (uint32_t i = 0; i < s->cluster.node_count; i++) {
        PipelineNode node;
        pipeline_node(s->pipeline, i, &node);
        s->counts->hedges += node.hedges;
    }
}

void sim_clients_stop_coordinator(Sim *s)
{
    const uint8_t *guard = (const uint8_t *)s->coordinator_memory + s->coordinator_bytes;
    if (s->pipeline) count_pipeline(s);
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != GUARD) sim_fail(s, "the coordinator writes behind its memory");
    free(s->coordinator_memory);
    free(s->calls);
    s->coordinator_memory = NULL;
    s->calls = NULL;
    s->call_count = 0;
    s->coordinator = NULL;
    s->pipeline = NULL;
}

/* --- Starting --- */

static bool slot_is_free(const Sim *s, uint32_t slot)
{
    return !coordinator_is_active(s->coordinator, slot) &&
           !coordinator_is_under_way(s->coordinator, slot);
}

/* The slot that holds what the request continues, or one that nobody has; slots when there is none. */
static uint32_t slot_for(const Sim *s, const SimRequest *q)
{
    for (uint32_t i = 0; i < s->plan.slots && q->follows >= 0; i++)
        if (s->slot_request[i] == q->follows) return slot_is_free(s, i) ? i : s->plan.slots;
    for (uint32_t i = 0; i < s->plan.slots; i++)
        if (s->slot_request[i] < 0 && slot_is_free(s, i)) return i;
    return s->plan.slots;
}

/* Its tokens: what it keeps of the conversation before, then its prompt. Result  how many it keeps. */
static uint32_t gather(const Sim *s, SimRequest *q)
{
    uint32_t keep = 0, most = s->plan.context - 1;
    if (q->prompt_count > most) q->prompt_count = most;
    if (q->follows >= 0) {
        const SimRequest *before = &s->requests[q->follows];
        keep = q->keep < before->said_count ? q->keep : before->said_count;
        if (keep > most - q->prompt_count) keep = most - q->prompt_count;
        memcpy(q->said, before->said, keep * sizeof *q->said);
    }
    memcpy(q->said + keep, q->prompt, q->prompt_count * sizeof *q->said);
    q->said_count = keep + q->prompt_count;
    return keep;
}

static void check_conversation(Sim *s, uint32_t slot, const SimRequest *q)
{
    uint32_t count;
    const uint32_t *tokens = coordinator_tokens(s->coordinator, slot, &count);
    if (count != q->said_count || memcmp(tokens, q->said, count * sizeof *tokens) != 0)
        sim_fail(s, "slot %u holds another conversation than it was given", slot);
}

static void begin(Sim *s, uint32_t slot, uint32_t i, const uint32_t *ids, uint32_t count)
{
    SimRequest *q = &s->requests[i];
    Why why = {{0}};
    Error error = coordinator_start(s->coordinator, slot, ids, count, q->tokens_max - q->emitted,
                                    &q->params, &why);
    if (error != OK) {
        sim_fail(s, "request %u does not start: %s: %s", i, error_text(error), why.text);
        return;
    }
    s->slot_request[slot] = (int)i;
    q->slot = slot;
    sim_log(s, "request %u %s in slot %u: %u ids", i, q->emitted ? "goes on" : "starts", slot,
            q->said_count);
}

static void start(Sim *s, uint32_t i, uint32_t slot)
{
    SimRequest *q = &s->requests[i];
    uint32_t keep = gather(s, q);
    sim_solo_run(s, q);
    q->state = SIM_RUNNING;
    q->started_ns = s->now_ns;
    s->counts->requests++;
    s->counts->own_fault += q->want_error != OK;
    if (s->slot_request[slot] >= 0) {
        check_conversation(s, slot, &s->requests[s->slot_request[slot]]);
        coordinator_truncate(s->coordinator, slot, keep);
        begin(s, slot, i, q->prompt, q->prompt_count);
    } else begin(s, slot, i, q->said, q->said_count);
}

static uint64_t start_ns(const Sim *s, const SimRequest *q)
{
    if (q->state != SIM_WAITING) return SIM_NEVER;
    if (q->follows < 0) return q->at_ns;
    const SimRequest *before = &s->requests[q->follows];
    return before->state == SIM_ENDED ? before->ended_ns + q->at_ns : SIM_NEVER;
}

static uint64_t cancel_ns(const SimRequest *q)
{
    bool waits = q->state == SIM_RUNNING && q->cancel_after_ns != SIM_NEVER;
    return waits ? q->started_ns + q->cancel_after_ns : SIM_NEVER;
}

/* --- Ending --- */

static void forget(Sim *s, uint32_t slot)
{
    pipeline_forget(s->pipeline, slot);
    s->slot_request[slot] = -1;
    sim_log(s, "slot %u is forgotten", slot);
}

static void finish(Sim *s, uint32_t i)
{
    SimRequest *q = &s->requests[i];
    bool kept = false;
    q->state = SIM_ENDED;
    q->ended_ns = s->now_ns;
    for (uint32_t j = 0; j < s->plan.request_count; j++)
        kept |= s->requests[j].follows == (int)i && s->requests[j].state == SIM_WAITING;
    if (!kept || q->forgets) forget(s, q->slot);
}

static void cancel(Sim *s, uint32_t i)
{
    SimRequest *q = &s->requests[i];
    sim_log(s, "request %u is cancelled after %u tokens", i, q->emitted);
    coordinator_stop(s->coordinator, q->slot);
    q->cancelled = true;
    s->counts->cancelled++;
    finish(s, i);
}

static void take_token(Sim *s, uint32_t i, uint32_t token)
{
    SimRequest *q = &s->requests[i];
    if (q->said_count > s->plan.context || q->emitted == q->tokens_max) {
        sim_fail(s, "request %u: a token more than there may be", i);
        return;
    }
    if (!q->exempt && (q->emitted >= q->want_count || q->want[q->emitted] != token))
        sim_fail(s, "request %u: token %u is %u, alone it is %d", i, q->emitted, token,
                 q->emitted < q->want_count ? (int)q->want[q->emitted] : -1);
    q->said[q->said_count++] = token;
    q->emitted++;
    s->counts->tokens++;
}

static void take_event(Sim *s, const CoordinatorEvent *e, const Why *why)
{
    int i = e->slot < s->plan.slots ? s->slot_request[e->slot] : -1;
    if (i < 0 || s->requests[i].state != SIM_RUNNING) {
        sim_fail(s, "an event of slot %u, in which nothing runs", e->slot);
        return;
    }
    SimRequest *q = &s->requests[i];
    sim_log(s, "request %d: %u tokens from %u%s %s %s", i, e->token_count,
            e->token_count ? e->tokens[0] : 0, e->ended ? ", end" : "",
            e->error ? error_text(e->error) : "", why->text);
    if (pipeline_is_degraded(s->pipeline, e->slot)) {
        q->exempt = true;
        if (!s->plan.own_is_broken)
            sim_fail(s, "request %d is degraded, and every row can be read", i);
    }
    for (uint32_t t = 0; t < e->token_count; t++) take_token(s, (uint32_t)i, e->tokens[t]);
    if (!e->ended) return;
    /* Not even zero rows help when no shard at all has answered. */
    if (e->error == ERR_UNREACHABLE && s->plan.own_is_broken) q->exempt = true;
    if (!q->exempt && (e->error != q->want_error || q->emitted != q->want_count))
        sim_fail(s, "request %d ends after %u tokens with \"%s\" (%s); alone after %u with \"%s\"",
                 i, q->emitted, error_text(e->error), why->text, q->want_count,
                 error_text(q->want_error));
    finish(s, (uint32_t)i);
}

/* --- Turns --- */

static bool pipeline_turn(Sim *s)
{
    bool any = false;
    uint32_t call;
    PipelineCall next;
    CoordinatorEvent event;
    Why why = {{0}};
    PipelineAnswer cancelled = {.error = ERR_CANCELLED, .why = {"cancelled"}};
    pipeline_advance(s->pipeline, s->now_ns);
    while (!s->failed && pipeline_next_cancel(s->pipeline, &call)) {
        any = true;
        sim_log(s, "call %llu is cancelled", (unsigned long long)s->calls[call].number);
        sim_network_end(s, call, &cancelled);
    }
    while (!s->failed && pipeline_next_call(s->pipeline, s->now_ns, &next)) {
        any = true;
        sim_network_call(s, &next);
    }
    while (!s->failed && pipeline_next_event(s->pipeline, &event, &why)) {
        any = true;
        take_event(s, &event, &why);
    }
    return any;
}

static bool requests_turn(Sim *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->plan.request_count && !s->failed; i++) {
        SimRequest *q = &s->requests[i];
        if (cancel_ns(q) <= s->now_ns) {
            cancel(s, i);
            any = true;
        }
        if (start_ns(s, q) > s->now_ns) continue;
        uint32_t slot = slot_for(s, q);
        if (slot == s->plan.slots) continue;
        start(s, i, slot);
        any = true;
    }
    return any;
}

void sim_clients_turn(Sim *s)
{
    for (uint32_t round = 0; !s->failed; round++) {
        bool any = requests_turn(s);
        any |= pipeline_turn(s);
        if (!any) return;
        if (round == ROUNDS_MAX) sim_fail(s, "the pipeline never comes to rest");
    }
}

uint64_t sim_clients_next_ns(const Sim *s)
{
    uint64_t next = SIM_NEVER;
    for (uint32_t i = 0; i < s->plan.request_count; i++) {
        uint64_t starts = start_ns(s, &s->requests[i]), cancels = cancel_ns(&s->requests[i]);
        if (starts > s->now_ns && starts < next) next = starts;
        if (cancels < next) next = cancels;
    }
    return next;
}

/* The journal has, of each request that runs, its ids, its parameters and what was emitted. */
void sim_clients_restart(Sim *s)
{
    uint32_t slot = 0;
    sim_log(s, "the coordinator dies and starts again");
    sim_clients_stop_coordinator(s);
    s->nonce++;
    s->restarted = true;
    sim_clients_start_coordinator(s);
    for (uint32_t i = 0; i < s->plan.request_count && !s->failed; i++)
        if (s->requests[i].state == SIM_RUNNING)
            begin(s, slot++, i, s->requests[i].said, s->requests[i].said_count);
}

bool sim_clients_are_done(const Sim *s)
{
    for (uint32_t i = 0; i < s->plan.request_count; i++)
        if (s->requests[i].state != SIM_ENDED) return false;
    return true;
}

void sim_clients_check_end(Sim *s)
{
    Why why = {{0}};
    for (uint32_t i = 0; i < s->call_count; i++)
        if (s->calls[i].open)
            sim_log(s, "call %llu is open", (unsigned long long)s->calls[i].number);
    if (pipeline_is_busy(s->pipeline)) sim_fail(s, "the pipeline is busy with nothing");
    if (!pipeline_is_complete(s->pipeline, &why))
        sim_fail(s, "all nodes are well, and the pipeline misses some: %s", why.text);
    for (uint32_t i = 0; i < s->plan.slots; i++)
        if (s->slot_request[i] >= 0) sim_fail(s, "slot %u was never given back", i);
}
