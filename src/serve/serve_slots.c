/* SPDX-License-Identifier: Apache-2.0 */
/* Which slot an answer gets, and whose beginning it takes over.
 *
 *   prompt           [ system prompt | question ]
 *   slot 0  running  [ system prompt | another question | its answer ...      fork: slot 3 begins as a copy of slot 0's
 *   slot 1  free     [ something else ]                                       first positions, which costs nothing
 *   slot 2  running  [ system pro                                             wait: slot 2 computes it at this moment
 *   slot 3  free     [ empty ]
 *
 * - take: the free slot that says the longest beginning of the prompt; what it says beyond is forgotten.
 * - fork: the least recently used free slot becomes a copy of the beginning of another, which may be running: when that
 *   is a block more than what can be taken, or when taking would cut a block or more off a conversation that is more
 *   recent than the one that the copy replaces.
 * - wait: when an answer in progress still computes a beginning that is a block longer than either, until it has. */
#include "cluster/cache.h"
#include "serve/machine.h"
#include "serve/serve_state.h"

enum { WORTH_TOKENS = CACHE_BLOCK_POSITIONS };

static Coordinator *coordinator_of(const Serve *s) { return s->options.engine.coordinator; }

static bool is_under_way(const Serve *s, uint32_t slot)
{
    return coordinator_is_under_way(coordinator_of(s), slot);
}

/* Frames of an answer that ended early may still be under way. */
static bool is_free(const Serve *s, uint32_t slot)
{
    return !s->slots[slot] && !s->slot_forget[slot] && !is_under_way(s, slot);
}

/* How much of the prompt a slot has said already. */
static uint32_t shared_beginning(const Serve *s, const ServeAnswer *a, uint32_t slot,
                                 uint32_t *said)
{
    uint32_t same = 0;
    const uint32_t *tokens = coordinator_tokens(coordinator_of(s), slot, said);
    while (same < *said && same < a->count && tokens[same] == a->ids[same]) same++;
    return same;
}

typedef struct Choice {
    uint32_t slot;   /* UINT32_MAX: none */
    uint32_t usable; /* tokens of the prompt that need not be computed */
    uint32_t same, said;
} Choice;

enum { NOBODY = UINT32_MAX };

/* The last token of a prompt is always computed: the answer begins with what follows it. */
static Choice look_at(const Serve *s, const ServeAnswer *a, uint32_t slot)
{
    Choice c = {.slot = slot};
    uint32_t fed = coordinator_fed(coordinator_of(s), slot);
    c.same = shared_beginning(s, a, slot, &c.said);
    c.usable = c.same < a->count ? c.same : a->count - 1;
    if (fed < c.usable) c.usable = fed;
    return c;
}

/* The free slot that shares the most, among equals the one unused for longest. */
static Choice best_to_take(const Serve *s, const ServeAnswer *a)
{
    Choice best = {.slot = NOBODY};
    for (uint32_t i = 0; i < s->options.slots; i++) {
        if (!is_free(s, i)) continue;
        Choice c = look_at(s, a, i);
        if (best.slot != NOBODY &&
            (c.same < best.same ||
             (c.same == best.same && s->slot_used[i] >= s->slot_used[best.slot])))
            continue;
        best = c;
    }
    return best;
}

static bool may_be_shared(const Serve *s, uint32_t slot)
{
    return !s->slot_forget[slot] && !coordinator_is_degraded(coordinator_of(s), slot);
}

/* The slot, free or not, of whose beginning the most is there. */
static Choice best_to_copy(const Serve *s, const ServeAnswer *a)
{
    Choice best = {.slot = NOBODY};
    for (uint32_t i = 0; i < s->options.slots; i++) {
        if (!may_be_shared(s, i)) continue;
        Choice c = look_at(s, a, i);
        if (best.slot == NOBODY || c.usable > best.usable) best = c;
    }
    return best;
}

static bool says_nothing(const Serve *s, uint32_t slot)
{
    uint32_t said;
    (void)coordinator_tokens(coordinator_of(s), slot, &said);
    return said == 0;
}

/* The free slot whose conversation is the oldest; one that says nothing comes first. */
static uint32_t oldest_free(const Serve *s, uint32_t but)
{
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < s->options.slots; i++) {
        if (i == but || !is_free(s, i)) continue;
        if (says_nothing(s, i)) return i;
        if (best == NOBODY || s->slot_used[i] < s->slot_used[best]) best = i;
    }
    return best;
}

/* Whether an answer in progress will soon have a block more of the prompt than `usable`. */
static bool is_computed_now(const Serve *s, const ServeAnswer *a, uint32_t usable)
{
    for (uint32_t i = 0; i < s->options.slots; i++) {
        if (!coordinator_is_active(coordinator_of(s), i) || !may_be_shared(s, i)) continue;
        Choice c = look_at(s, a, i);
        uint32_t soon = c.same < a->count ? c.same : a->count - 1;
        if (soon > c.usable && soon >= usable + WORTH_TOKENS) return true;
    }
    return false;
}

/* Taking `take` forgets a block or more of a conversation that is more recent than that of `other`. */
static bool cuts_off(const Serve *s, const Choice *take, uint32_t other)
{
    return take->usable >= WORTH_TOKENS && take->said - take->same >= WORTH_TOKENS &&
           (says_nothing(s, other) || s->slot_used[other] < s->slot_used[take->slot]);
}

/* Result  false: as if there were nothing to copy. */
static bool fork_slot(const Serve *s, const Choice *from, uint32_t to)
{
    Why why;
    return coordinator_fork(coordinator_of(s), from->slot, to, from->usable, &why) == OK;
}

/* Whether every row of the prompt is to be computed: nothing of another slot is of use. */
static bool computes_all(const ServeAnswer *a)
{
    return a->job->pools || (a->job->scores && a->job->says_prompt);
}

static bool prepare_empty(Serve *s, uint32_t *slot, uint32_t *cached)
{
    *slot = oldest_free(s, NOBODY);
    *cached = 0;
    if (*slot == NOBODY) return false;
    coordinator_truncate(coordinator_of(s), *slot, 0);
    return true;
}

/* Makes a slot ready for the answer. Result  false: there is none, or it should wait. */
static bool prepare_slot(Serve *s, ServeAnswer *a, uint32_t *slot, uint32_t *cached)
{
    if (computes_all(a)) return prepare_empty(s, slot, cached);
    Choice take = best_to_take(s, a), copy = best_to_copy(s, a);
    if (take.slot == NOBODY) return false;
    uint32_t most = copy.usable > take.usable ? copy.usable : take.usable;
    if (is_computed_now(s, a, most)) return false;
    bool more = copy.usable >= take.usable + WORTH_TOKENS;
    const Choice *from = more ? &copy : &take;
    uint32_t other = oldest_free(s, from->slot);
    if (other != NOBODY && (more || cuts_off(s, &take, other)) && fork_slot(s, from, other)) {
        *slot = other;
        *cached = from->usable;
        return true;
    }
    coordinator_truncate(coordinator_of(s), take.slot, take.same);
    *slot = take.slot;
    uint32_t fed = coordinator_fed(coordinator_of(s), take.slot);
    *cached = fed < a->count ? fed : a->count - 1;
    return true;
}

/* Of the answers that do not wait for another's prompt, the one whose request has the fewest running, among equals the
 * first that came: a request for many answers takes free slots, but not those that others wait for. */
static ServeAnswer *next_in_turn(const Serve *s)
{
    ServeAnswer *best = NULL;
    for (ServeAnswer *a = s->queue_first; a; a = a->next)
        if (!a->waits && (!best || a->job->running < best->job->running)) best = a;
    return best;
}

void serve_slots_forget(Serve *s)
{
    const ServeEngine *engine = &s->options.engine;
    for (uint32_t i = 0; i < s->options.slots; i++) {
        if (!s->slot_forget[i] || is_under_way(s, i)) continue;
        if (engine->forget) engine->forget(engine->engine, i);
        else coordinator_truncate(engine->coordinator, i, 0);
        s->slot_forget[i] = false;
    }
}

static bool has_free(const Serve *s)
{
    for (uint32_t i = 0; i < s->options.slots; i++)
        if (is_free(s, i)) return true;
    return false;
}

void serve_slots_give(Serve *s)
{
    uint32_t slot = 0, cached = 0;
    for (ServeAnswer *a = s->queue_first; a; a = a->next) a->waits = false;
    for (ServeAnswer *a; has_free(s) && (a = next_in_turn(s)) != NULL;) {
        if (!prepare_slot(s, a, &slot, &cached)) {
            a->waits = true;
            continue;
        }
        serve_answer_leave_queue(s, a);
        a->next = NULL;
        serve_answer_start(s, a, slot, cached);
    }
}
