/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator.h"

#include <string.h>

/* What the next call of coordinator_next wishes for. */
typedef enum State { STATE_IDLE, STATE_EMBED, STATE_FORWARD, STATE_LOGITS, STATE_TOP, STATE_TOKEN } State;

struct Coordinator {
    CoordinatorConfig config;
    uint32_t *tokens; /* [context + 1]: the last one emitted needs no position */
    uint32_t count, fed;
    uint32_t chunk_first; /* position of the first row of the chunk in hand */
    SamplerSeen *seen;
    SamplerParams params;
    uint32_t tokens_left;
    State state;
    uint32_t k, picked;
};

static uint32_t seen_max(const CoordinatorConfig *c)
{
    return c->context + 1 < SAMPLER_REPEAT_WINDOW_MAX ? c->context + 1 : SAMPLER_REPEAT_WINDOW_MAX;
}

size_t coordinator_bytes(const CoordinatorConfig *c)
{
    return arena_bytes(sizeof(Coordinator)) + arena_bytes((c->context + 1) * sizeof(uint32_t)) +
           arena_bytes(seen_max(c) * sizeof(SamplerSeen)) + ARENA_ALIGN;
}

Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out, Why *why)
{
    Coordinator *c = ARENA_NEW(arena, Coordinator, 1);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    c->config = *config;
    c->tokens = ARENA_NEW(arena, uint32_t, config->context + 1);
    c->seen = ARENA_NEW(arena, SamplerSeen, seen_max(config));
    if (!c->tokens || !c->seen) return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    *out = c;
    return OK;
}

Error coordinator_start(Coordinator *c, const uint32_t *ids, uint32_t count, uint32_t tokens_max,
                        const SamplerParams *params, Why *why)
{
    TRY(sampler_check(params, c->config.vocabulary, why));
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= c->config.vocabulary)
            return error_why(why, ERR_RANGE, "token %u at index %u; ids are 0 to %u", ids[i], i,
                             c->config.vocabulary - 1);
    if (count > c->config.context || c->count > c->config.context - count)
        return error_why(why, ERR_CAPACITY, "%u tokens, and %u said before, exceed the context of %u", count, c->count,
                         c->config.context);
    if (c->count + count == 0) return error_why(why, ERR_USAGE, "an empty prompt");
    if (count) memcpy(c->tokens + c->count, ids, count * sizeof *ids);
    c->count += count;
    if (c->fed == c->count) c->fed--; /* the last row's logits are needed again */
    c->params = *params;
    c->tokens_left = tokens_max;
    c->state = STATE_EMBED;
    return OK;
}

static uint32_t chunk_rows(const Coordinator *c)
{
    uint32_t left = c->count - c->fed;
    return left < c->config.chunk ? left : c->config.chunk;
}

/* The state after the wish that is being handed out. */
static void advance(Coordinator *c)
{
    switch (c->state) {
    case STATE_IDLE:
    case STATE_TOP: return; /* TOP is left by coordinator_give_top */
    case STATE_EMBED: c->state = STATE_FORWARD; return;
    case STATE_FORWARD:
        c->chunk_first = c->fed;
        c->fed += chunk_rows(c);
        c->state = c->fed < c->count ? STATE_EMBED : c->tokens_left ? STATE_LOGITS : STATE_IDLE;
        return;
    case STATE_LOGITS:
        c->k = sampler_first_k(&c->params, c->config.vocabulary);
        c->state = STATE_TOP;
        return;
    case STATE_TOKEN: c->state = c->tokens_left && c->count <= c->config.context ? STATE_EMBED : STATE_IDLE; return;
    }
}

static void wish_logits(Coordinator *c, CoordinatorWish *wish)
{
    wish->kind = COORDINATOR_LOGITS;
    wish->params = &c->params;
    wish->logits_row = c->fed - c->chunk_first - 1;
    wish->seen = c->seen;
    wish->seen_count = sampler_count(&c->params, c->tokens, c->count, c->seen, seen_max(&c->config));
}

/* What the state asks for, without moving on. */
static void wish_of_state(Coordinator *c, CoordinatorWish *wish)
{
    *wish = (CoordinatorWish){.kind = COORDINATOR_DONE};
    switch (c->state) {
    case STATE_IDLE: return;
    case STATE_EMBED:
    case STATE_FORWARD:
        wish->kind = c->state == STATE_EMBED ? COORDINATOR_EMBED : COORDINATOR_FORWARD;
        wish->ids = c->tokens + c->fed;
        wish->rows = chunk_rows(c);
        wish->position = c->fed;
        return;
    case STATE_LOGITS: wish_logits(c, wish); return;
    case STATE_TOP:
        wish->kind = COORDINATOR_TOP;
        wish->k = c->k;
        wish->wants_sum = c->params.temperature > 0;
        wish->sum_scale = c->params.temperature > 0 ? 1 / c->params.temperature : 1;
        return;
    case STATE_TOKEN:
        wish->kind = COORDINATOR_TOKEN;
        wish->token = c->picked;
        return;
    }
}

void coordinator_next(Coordinator *c, CoordinatorWish *wish)
{
    wish_of_state(c, wish);
    advance(c);
}

Error coordinator_give_top(Coordinator *c, const SamplerCandidate *candidates, uint32_t count, bool complete,
                           const LogSum *sum, Why *why)
{
    SamplerResult result;
    TRY(sampler_pick(&c->params, candidates, count, complete, sum, c->count, &result, why));
    if (result.verdict == SAMPLER_WANTS_MORE) {
        c->k = result.wants_k;
        return OK;
    }
    c->picked = result.id;
    c->tokens[c->count++] = result.id;
    c->tokens_left--;
    c->state = STATE_TOKEN;
    return OK;
}

void coordinator_stop(Coordinator *c) { c->state = STATE_IDLE; }

void coordinator_fail(Coordinator *c, uint32_t stations_length)
{
    c->state = STATE_IDLE;
    if (c->fed > stations_length) c->fed = stations_length;
}

const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t *count)
{
    *count = c->count;
    return c->tokens;
}

void coordinator_truncate(Coordinator *c, uint32_t count)
{
    if (count < c->count) c->count = count;
    if (c->fed > c->count) c->fed = c->count;
    c->state = STATE_IDLE;
}
