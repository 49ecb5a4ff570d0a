/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens may come next: one bit per id of a GrammarVocab's range, for one answer that follows a Grammar.
 *
 *   grammar_mask_now --> bits --> the shards' logits --> a token --> grammar_mask_take --> the next state
 *
 * A token is allowed when all of its bytes may follow. Tokens that end an answer are allowed exactly where the text may
 * end; other control tokens never. Where no token is allowed the bits are all 0 (a vocabulary without a token for some
 * byte); the sampler then refuses. So it is when a mask would take more than GRAMMAR_VISITS_MAX visits of places, about
 * a second: a grammar that can be read in very many ways at once.
 *
 * A mask is found by one walk over the vocabulary's tree: what may not follow is skipped with everything below it,
 * and what a state takes without changing (the inside of a string) is taken with everything below it. Masks are kept by
 * state: the last GRAMMAR_MASKS of them. */
#ifndef COBORD_TEXT_GRAMMAR_MASK_H
#define COBORD_TEXT_GRAMMAR_MASK_H

#include "text/grammar_machine.h"
#include "text/grammar_vocab.h"

enum { GRAMMAR_MASKS = 12, GRAMMAR_VISITS_MAX = 20000000 };

typedef struct GrammarMask GrammarMask;

/* Owner  vocabulary and grammar outlive it. */
size_t grammar_mask_bytes(const GrammarVocab *v, const Grammar *g, const GrammarLimits *limits);
MUST_CHECK Error grammar_mask_build(const GrammarVocab *v, const Grammar *g,
                                    const GrammarLimits *limits, Arena *arena, GrammarMask **out,
                                    Why *why);
void grammar_mask_restart(GrammarMask *m);
/* How many ids it covers, from id_first on. */
uint32_t grammar_mask_ids(const GrammarMask *m);

/* Bit id - id_first of word (id - id_first) / 32; grammar_mask_words of them. Valid until the next call. */
uint32_t grammar_mask_words(const GrammarVocab *v);
const uint32_t *grammar_mask_now(GrammarMask *m);
/* Whether it allows nothing now. */
bool grammar_mask_is_empty(GrammarMask *m);
/* The token was chosen. Errors  ERR_RANGE (it is not allowed here, nothing has changed). An end token is the end:
 * nothing is allowed afterwards. */
MUST_CHECK Error grammar_mask_take(GrammarMask *m, uint32_t id, Why *why);
/* An end token was taken. */
bool grammar_mask_has_ended(const GrammarMask *m);

/* Bits [first, first + count) of a mask to the front of out[(count + 31) / 32]; the rest of the last word is 0. */
void grammar_mask_cut(const uint32_t *mask, uint32_t first, uint32_t count, uint32_t *out);
static inline bool grammar_mask_has(const uint32_t *mask, uint32_t bit)
{
    return mask[bit >> 5] >> (bit & 31) & 1;
}

#endif
