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
                            .drafts = s->plan.drafts,
                            .frames = s->plan.frames ? s->plan.frames : s->plan.stations,
                            .nonce = s->nonce};
}

/* What the answer is going to be, now and then wrong. */
static uint32_t guess(void *sim, uint32_t slot, const uint32_t *tokens, uint32_t count,
                      const SamplerParams *params, uint32_t *out, uint32_t max)
{
    Sim *s = sim;
    const SimRequest *q = &s->requests[s->slot_request[slot]];
    uint32_t n = 0;
    (void)params;
    if (count != q->said_count || memcmp(tokens, q->said, count * sizeof *tokens) != 0)
        sim_fail(s, "slot %u wants guesses for another text", slot);
    for (; n < max && q->emitted + n < q->want_count; n++)
        out[n] = sim_random_chance(&s->random, s->plan.wrong_drafts)
                     ? sim_random_below(&s->random, SIM_POISON_ID)
                     : q->want[q->emitted + n];
    return n;
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
    coordinator_set_drafter(s->coordinator, &(CoordinatorDrafter){s, guess});
    s->call_count = pipeline_calls_max(s->pipeline);
    s->calls = calloc(s->call_count, sizeof *s->calls);
    ASSERT(s->calls);
    for (uint32_t i = 0; i < SIM_SLOTS_MAX; i++) s->slot_request[i] = -1;
}

static void count_pipeline(Sim *s)
{
    s->counts->replays += pipeline_replays(s->pipeline);
    s->counts->degraded += pipeline_degraded(s->pipeline);
    uint64_t guessed, right;
    coordinator_count_drafts(s->coordinator, &guessed, &right);
    s->counts->drafts += guessed;
    s->counts->right += right;
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

static uint32_t free_slot(const Sim *s)
{
    for (uint32_t i = 0; i < s->plan.slots; i++)
        if (s->slot_request[i] < 0 && slot_is_free(s, i)) return i;
    return s->plan.slots;
}

/* The slot whose beginning the request gets a copy of, or -1. */
static int source_of(const Sim *s, const SimRequest *q)
{
    int before = q->follows >= 0 && q->forks ? q->follows : q->copies;
    for (uint32_t i = 0; i < s->plan.slots && before >= 0; i++)
        if (s->slot_request[i] == before && !coordinator_is_degraded(s->coordinator, i) &&
            coordinator_fed(s->coordinator, i))
            return (int)i;
    return -1;
}

/* The slot that holds what the request continues, or one that nobody has; slots when there is none. */
static uint32_t slot_for(const Sim *s, const SimRequest *q)
{
    uint32_t slot = free_slot(s);
    if (q->forks && slot < s->plan.slots && source_of(s, q) >= 0) return slot;
    for (uint32_t i = 0; i < s->plan.slots && q->follows >= 0; i++)
        if (s->slot_request[i] == q->follows) return slot_is_free(s, i) ? i : s->plan.slots;
    return slot;
}

/* Its tokens: what it keeps of the conversation before, then its prompt. Result  how many it keeps. */
static uint32_t gather(const Sim *s, SimRequest *q, int source)
{
    uint32_t keep = 0, most = s->plan.context - 1;
    if (q->prompt_count > most) q->prompt_count = most;
    if (q->follows >= 0 || source >= 0) {
        const SimRequest *before = &s->requests[source >= 0 ? s->slot_request[source] : q->follows];
        keep = q->keep < before->said_count ? q->keep : before->said_count;
        if (source >= 0 && keep > coordinator_fed(s->coordinator, (uint32_t)source))
            keep = coordinator_fed(s->coordinator, (uint32_t)source);
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

/* Those of the prompt that have not come yet. */
static uint32_t next_prompt_score(const SimRequest *q)
{
    return q->next_score < q->said_count ? q->next_score : UINT32_MAX;
}

/* A mask of its own, which has taken what was emitted. */
static Error constrain(Sim *s, uint32_t slot, SimRequest *q, Why *why)
{
    free(q->mask_memory);
    GrammarMask *mask =
        sim_grammar_mask(s->model->grammars, (uint32_t)q->grammar,
                         q->said + q->said_count - q->emitted, q->emitted, &q->mask_memory);
    return coordinator_constrain(s->coordinator, slot, mask, why);
}

static void begin(Sim *s, uint32_t slot, uint32_t i, const uint32_t *ids, uint32_t count)
{
    SimRequest *q = &s->requests[i];
    Why why = {{0}};
    Error error = coordinator_start(s->coordinator, slot, ids, count, q->tokens_max - q->emitted,
                                    &q->params, &why);
    if (error == OK && q->pools) error = coordinator_pool(s->coordinator, slot, &why);
    if (error == OK && q->grammar >= 0) error = constrain(s, slot, q, &why);
    if (error == OK && q->scores)
        error = coordinator_score(s->coordinator, slot, q->tops, next_prompt_score(q), &why);
    if (error != OK) {
        sim_fail(s, "request %u does not start: %s: %s", i, error_text(error), why.text);
        return;
    }
    s->slot_request[slot] = (int)i;
    q->slot = slot;
    sim_log(s, "request %u %s in slot %u: %u ids", i, q->emitted ? "goes on" : "starts", slot,
            q->said_count);
}

static void forget(Sim *s, uint32_t slot)
{
    pipeline_forget(s->pipeline, slot);
    s->slot_request[slot] = -1;
    sim_log(s, "slot %u is forgotten", slot);
}

static void make_copy(Sim *s, SimRequest *q, uint32_t from, uint32_t to, uint32_t keep)
{
    Why why = {{0}};
    Error error = coordinator_fork(s->coordinator, from, to, keep, &why);
    if (error != OK) sim_fail(s, "no copy: %s: %s", error_text(error), why.text);
    sim_log(s, "slot %u gets %u tokens of slot %u", to, keep, from);
    s->counts->forks++;
    if (q->follows >= 0) q->source = (int)from;
}

/* What of the slot may stay. */
static uint32_t bound_by_scores(SimRequest *q, uint32_t keep)
{
    if (q->pools) keep = 0;
    q->next_score = q->score_from < q->said_count ? q->score_from : q->said_count;
    return q->scores && keep >= q->next_score ? q->next_score - 1 : keep;
}

static void start(Sim *s, uint32_t i, uint32_t slot)
{
    SimRequest *q = &s->requests[i];
    int source = s->slot_request[slot] >= 0 ? -1 : source_of(s, q);
    uint32_t keep = gather(s, q, source);
    sim_solo_run(s, q);
    q->state = SIM_RUNNING;
    q->started_ns = s->now_ns;
    s->counts->requests++;
    s->counts->own_fault += q->want_error != OK;
    keep = bound_by_scores(q, keep);
    if (s->slot_request[slot] >= 0) {
        check_conversation(s, slot, &s->requests[s->slot_request[slot]]);
        coordinator_truncate(s->coordinator, slot, keep);
    } else if (source >= 0 && keep) {
        make_copy(s, q, (uint32_t)source, slot, keep);
    } else {
        if (source >= 0 && q->follows >= 0) q->source = source;
        keep = 0;
    }
    begin(s, slot, i, q->said + keep, q->said_count - keep);
    if (q->source >= 0 && q->forgets_source) {
        forget(s, (uint32_t)q->source);
        q->source = -1;
    }
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

static void finish(Sim *s, uint32_t i)
{
    SimRequest *q = &s->requests[i];
    bool kept = false;
    q->state = SIM_ENDED;
    q->ended_ns = s->now_ns;
    for (uint32_t j = 0; j < s->plan.request_count; j++)
        kept |= s->requests[j].follows == (int)i && s->requests[j].state == SIM_WAITING;
    if (!kept || q->forgets) forget(s, q->slot);
    if (q->source >= 0) forget(s, (uint32_t)q->source);
    q->source = -1;
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
    s->counts->masked += q->grammar >= 0;
}

static bool is_score(const CoordinatorScore *a, const CoordinatorScore *b)
{
    return a->token == b->token && memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0 &&
           a->top_count == b->top_count &&
           memcmp(a->top, b->top, a->top_count * sizeof *a->top) == 0;
}

static void take_scores(Sim *s, int i, uint32_t slot)
{
    SimRequest *q = &s->requests[i];
    uint32_t count;
    const CoordinatorScore *scores = coordinator_take_scores(s->coordinator, slot, &count);
    for (uint32_t n = 0; n < count; n++, q->next_score++)
        if (!q->exempt && !is_score(&scores[n], &q->want_score[q->next_score]))
            sim_fail(s, "request %d: token %u is worth %g, alone %g", i, q->next_score,
                     (double)scores[n].logprob, (double)q->want_score[q->next_score].logprob);
    s->counts->scores += count;
}

static void check_sum(Sim *s, int i, uint32_t slot)
{
    const SimRequest *q = &s->requests[i];
    uint32_t rows;
    const double *sum = coordinator_pooled(s->coordinator, slot, &rows);
    if (rows != q->said_count || memcmp(sum, q->want_sum, sizeof q->want_sum) != 0)
        sim_fail(s, "request %d: another sum of %u rows than alone of %u", i, rows, q->said_count);
    s->counts->pools++;
}

static void check_extras(Sim *s, int i, const CoordinatorEvent *e)
{
    const SimRequest *q = &s->requests[i];
    if (q->exempt || e->error != OK) return;
    if (q->scores && q->next_score != q->said_count)
        sim_fail(s, "request %d: scores of %u tokens of %u", i, q->next_score, q->said_count);
    if (q->pools) check_sum(s, i, e->slot);
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
    if (e->scored) take_scores(s, i, e->slot);
    if (!e->ended) return;
    check_extras(s, i, e);
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
        if (s->requests[i].source >= 0) s->requests[i].source = -1;
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
