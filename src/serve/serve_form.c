/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that must have a form. The vocabulary's tree is made for the first of them and kept; a job keeps its grammar;
 * a mask, about 1.3 MB, belongs to an answer while it has a slot.
 *
 *   intake:  request --> grammar of the job      engine:  slot --> mask, given what the journal has --> coordinator
 *
 * All of it is taken from form_bytes_max, which the plan's sum has beside everything else; what has no room there is
 * refused. Grammars are made one at a time, since making one takes more than keeping it. */
#include <stdlib.h>

#include "serve/serve_state.h"

/* ---- room ---- */

static bool take_room(Serve *s, size_t bytes)
{
    size_t used = atomic_load(&s->form_bytes);
    do {
        if (bytes > s->options.form_bytes_max - used) return false;
    } while (!atomic_compare_exchange_weak(&s->form_bytes, &used, used + bytes));
    return true;
}

static void give_room(Serve *s, size_t bytes) { atomic_fetch_sub(&s->form_bytes, bytes); }

/* Room that others have is free again some day; what is missing for good is the server's owner's to change. */
static Error no_room(const Serve *s, size_t bytes, const char *what, Why *why)
{
#define MIB(x) (unsigned)((x) >> 20), (unsigned)(((x) & 0xfffff) * 10 >> 20)
    size_t most = s->options.form_bytes_max;
    if (bytes > most)
        return error_why(
            why, ERR_UNSUPPORTED,
            "%s takes up to %u.%u MiB, and this server has %u.%u MiB for answers with a "
            "form: serve with more --memory",
            what, MIB(bytes), MIB(most));
    return error_why(
        why, ERR_MEMORY,
        "%s takes up to %u.%u MiB, and other answers with a form have all but %u.%u MiB "
        "of %u.%u MiB: try again later",
        what, MIB(bytes), MIB(most - atomic_load(&s->form_bytes)), MIB(most));
#undef MIB
}

/* Memory for an arena. */
static Error take(Serve *s, size_t bytes, const char *what, void **out, Why *why)
{
    if (!take_room(s, bytes)) return no_room(s, bytes, what, why);
    *out = malloc(bytes);
    if (*out) return OK;
    give_room(s, bytes);
    return error_why(why, ERR_MEMORY, "no memory for %s", what);
}

static void give_back(Serve *s, void *memory, size_t bytes)
{
    if (!memory) return;
    free(memory);
    give_room(s, bytes);
}

/* ---- the vocabulary ---- */

/* To pages. */
static size_t round_up(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

static Error plant_vocab(Serve *s, const GrammarVocabOrder *order, Why *why)
{
    size_t bytes = round_up(grammar_vocab_bytes(order));
    if (!take_room(s, bytes)) return no_room(s, bytes, "the vocabulary's tree", why);
    void *memory = machine_take(bytes);
    Arena arena = arena_make(memory, memory ? bytes : 0);
    Error error = grammar_vocab_plant(order, &arena, &s->vocab, why);
    size_t kept = error == OK ? round_up(arena.used) : 0;
    if (kept) machine_trim(memory, bytes, kept);
    else machine_give(memory, bytes);
    give_room(s, bytes - kept);
    s->vocab_memory = kept ? memory : NULL;
    s->vocab_bytes = kept;
    return error;
}

void serve_form_close(Serve *s) { machine_give(s->vocab_memory, s->vocab_bytes); }

static Error build_vocab(Serve *s, Why *why)
{
    const Tokenizer *t = s->options.tokenizer;
    uint32_t tokens = s->options.vocabulary;
    size_t bytes = grammar_vocab_scratch_bytes(t, 0, tokens);
    GrammarVocabOrder order;
    void *memory;
    TRY(take(s, bytes, "sorting the vocabulary", &memory, why));
    Arena scratch = arena_make(memory, bytes);
    Error error = grammar_vocab_sort(t, 0, tokens, &scratch, &order, why);
    if (error == OK) error = plant_vocab(s, &order, why);
    give_back(s, memory, bytes);
    return error;
}

/* ---- grammars ---- */

static bool refuse(const Request *q, Error error, const Why *why, Refusal *refusal)
{
    RefusalKind kind = error == ERR_UNSUPPORTED ? REFUSAL_UNSUPPORTED : REFUSAL_MEMORY;
    return refusal_make(refusal, kind, request_form_param(q), "%s", why->text);
}

static bool build_grammar(Serve *s, const Request *q, ServeJob *job, Refusal *refusal)
{
    Why why = {{0}};
    size_t scratch_bytes = request_form_scratch_bytes(), bytes = grammar_bytes_max();
    void *scratch_memory, *memory;
    Error error = take(s, scratch_bytes, "making a grammar", &scratch_memory, &why);
    if (error != OK) return refuse(q, error, &why, refusal);
    error = take(s, bytes, "a grammar", &memory, &why);
    bool fine = error == OK || refuse(q, error, &why, refusal);
    if (fine) {
        Arena scratch = arena_make(scratch_memory, scratch_bytes),
              arena = arena_make(memory, bytes);
        fine = request_form_build(q, &scratch, &arena, &job->grammar, refusal);
        job->grammar_memory = memory;
        job->grammar_bytes = arena.used;
        give_room(s, bytes - arena.used);
    }
    give_back(s, scratch_memory, scratch_bytes);
    return fine;
}

bool serve_form_prepare(Serve *s, const Request *q, ServeJob *job, Refusal *refusal)
{
    Why why = {{0}};
    if (q->form == REQUEST_FREE) return true;
    job->form_param = request_form_param(q);
    machine_lock(s->form_lock);
    Error error = s->vocab_memory ? OK : build_vocab(s, &why);
    bool fine = error == OK ? build_grammar(s, q, job, refusal) : refuse(q, error, &why, refusal);
    machine_unlock(s->form_lock);
    return fine;
}

void serve_form_free(Serve *s, ServeJob *job)
{
    give_back(s, job->grammar_memory, job->grammar_bytes);
    job->grammar_memory = NULL;
}

/* ---- masks ---- */

/* The mask of an answer, with what the journal has of it taken. */
static Error build_mask(Serve *s, ServeAnswer *a, Why *why)
{
    GrammarLimits limits = grammar_machine_limits();
    const Grammar *g = &a->job->grammar;
    a->mask_bytes = grammar_mask_bytes(&s->vocab, g, &limits);
    TRY(take(s, a->mask_bytes, "an answer's masks", &a->mask_memory, why));
    Arena arena = arena_make(a->mask_memory, a->mask_bytes);
    TRY(grammar_mask_build(&s->vocab, g, &limits, &arena, &a->mask, why));
    const uint32_t *tokens = a->ids + a->count - a->journaled;
    for (uint32_t i = 0; i < a->journaled; i++) TRY(grammar_mask_take(a->mask, tokens[i], why));
    return OK;
}

Error serve_form_constrain(Serve *s, ServeAnswer *a, Why *why)
{
    if (!a->job->grammar_memory) return OK;
    if (!a->mask_memory) TRY(build_mask(s, a, why));
    return coordinator_constrain(s->options.engine.coordinator, a->slot, a->mask, why);
}

void serve_form_leave(Serve *s, ServeAnswer *a)
{
    give_back(s, a->mask_memory, a->mask_bytes);
    a->mask_memory = NULL;
    a->mask = NULL;
}

bool serve_form_explains(const ServeAnswer *a, Error error, const Why *why, Refusal *refusal)
{
    const char *param = a->job->form_param;
    if (!a->mask && a->mask_memory && error == ERR_CAPACITY) {
        (void)refusal_make(refusal, REFUSAL_UNSUPPORTED, param, "%s: %s", param, why->text);
        return true;
    }
    if (!a->mask || error != ERR_NOT_FINITE) return false;
    if (grammar_mask_is_empty(a->mask))
        (void)refusal_make(refusal, REFUSAL_UNSUPPORTED, param,
                           "%s leaves no token after %u: none of the model's fits, or what it asks "
                           "for nests or branches too much",
                           param, a->generated);
    else if (a->params.bias_count)
        (void)refusal_make(refusal, REFUSAL_VALUE, "logit_bias",
                           "logit_bias forbids every token that %s allows after %u", param,
                           a->generated);
    else return false;
    return true;
}
