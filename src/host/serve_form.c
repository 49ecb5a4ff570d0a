/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that must have a form. The vocabulary's tree is made for the first of them and kept; a job keeps its grammar;
 * a mask, about 1.3 MB, belongs to an answer while it has a slot.
 *
 *   intake:  request --> grammar of the job      engine:  slot --> mask, given what the journal has --> coordinator */
#include <stdlib.h>

#include "host/serve_state.h"

static Error build_vocab(Serve *s, Why *why)
{
    const Tokenizer *t = s->options.tokenizer;
    uint32_t tokens = s->options.vocabulary;
    size_t scratch_bytes = grammar_vocab_scratch_bytes(t, 0, tokens),
           bytes = grammar_vocab_bytes(t, 0, tokens);
    void *scratch_memory = malloc(scratch_bytes);
    s->vocab_memory = malloc(bytes); /* an upper bound: what is not used is never touched */
    Error error = ERR_MEMORY;
    if (scratch_memory && s->vocab_memory) {
        Arena scratch = arena_make(scratch_memory, scratch_bytes),
              arena = arena_make(s->vocab_memory, bytes);
        error = grammar_vocab_build(t, 0, tokens, &scratch, &arena, &s->vocab, why);
    } else {
        error = error_why(why, ERR_MEMORY, "no memory for the vocabulary of grammars");
    }
    free(scratch_memory);
    if (error != OK) {
        free(s->vocab_memory);
        s->vocab_memory = NULL;
    }
    return error;
}

static Error need_vocab(Serve *s, Why *why)
{
    pthread_mutex_lock(&s->vocab_lock);
    Error error = s->vocab_memory ? OK : build_vocab(s, why);
    pthread_mutex_unlock(&s->vocab_lock);
    return error;
}

bool serve_form_prepare(Serve *s, const Request *q, ServeJob *job, Refusal *refusal)
{
    Why why = {{0}};
    if (q->form == REQUEST_FREE) return true;
    Error error = need_vocab(s, &why);
    if (error != OK) return refusal_of_error(refusal, error, &why);
    size_t scratch_bytes = request_form_scratch_bytes(), bytes = grammar_bytes_max();
    void *scratch_memory = malloc(scratch_bytes);
    job->grammar_memory = malloc(bytes);
    bool fine = scratch_memory && job->grammar_memory;
    if (fine) {
        Arena scratch = arena_make(scratch_memory, scratch_bytes),
              arena = arena_make(job->grammar_memory, bytes);
        fine = request_form_build(q, &scratch, &arena, &job->grammar, refusal);
    } else {
        (void)refusal_make(refusal, REFUSAL_MEMORY, NULL, "not enough memory for a grammar");
    }
    free(scratch_memory);
    return fine;
}

/* The mask of an answer, with what the journal has of it taken. */
static Error build_mask(Serve *s, ServeAnswer *a, Why *why)
{
    GrammarLimits limits = grammar_machine_limits();
    const Grammar *g = &a->job->grammar;
    size_t bytes = grammar_mask_bytes(&s->vocab, g, &limits);
    a->mask_memory = malloc(bytes);
    if (!a->mask_memory) return error_why(why, ERR_MEMORY, "no memory for an answer's masks");
    Arena arena = arena_make(a->mask_memory, bytes);
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

void serve_form_leave(ServeAnswer *a)
{
    free(a->mask_memory);
    a->mask_memory = NULL;
}
