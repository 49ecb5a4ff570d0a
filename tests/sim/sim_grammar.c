/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars that answers must follow. Token i is the character "!" + i, the last ones are pairs; the one with the
 * poisoned embedding (SIM_POISON_ID, "n") is in none. Masks have so little room that they forget what they saw. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "../unit/text/small_vocab.h"
#include "text/grammar_mask.h"

static const char *const texts[] = {
    "root ::= ([A-Z] [a-m] [o-z]*)+", "root ::= ([0-9]{1,4} [,;])+",
    "root ::= item+\nitem ::= [a-m] | \"(\" item* \")\"",
    "root ::= [A-M]{3}", /* and then nothing: an error, alone as in the cluster */
};
enum { GRAMMARS = sizeof texts / sizeof *texts, CHARACTERS = '~' - '!' + 1 };
_Static_assert((int)GRAMMARS == (int)SIM_GRAMMARS, "sim.h says how many");

struct SimGrammars {
    SmallVocab *small;
    GrammarVocab vocab;
    Grammar grammar[GRAMMARS];
    void *vocab_memory, *memory[GRAMMARS];
};

static SmallVocab *make_vocabulary(void)
{
    SmallVocab *s = small_empty(VOCAB_BPE, VOCAB_PRE_QWEN2);
    for (uint32_t id = 0; id < SIM_VOCABULARY; id++) {
        const char pair[] = {(char)('a' + id % CHARACTERS), 'b', '\0'},
                   one[] = {(char)('!' + id), '\0'};
        small_word(s, id < CHARACTERS ? one : pair, VOCAB_NORMAL, 0);
    }
    Error error = small_build(s, NULL);
    ASSERT(error == OK);
    return s;
}

static void make_grammar(SimGrammars *g, uint32_t i, void *scratch_memory, size_t scratch_bytes)
{
    Why why = {{0}};
    Arena scratch = arena_make(scratch_memory, scratch_bytes);
    g->memory[i] = malloc(grammar_bytes_max());
    Arena arena = arena_make(g->memory[i], grammar_bytes_max());
    Error error = grammar_gbnf((const uint8_t *)texts[i], strlen(texts[i]), &scratch, &arena,
                               &g->grammar[i], &why);
    if (error != OK) fprintf(stderr, "sim: grammar %u: %s\n", i, why.text);
    ASSERT(error == OK);
}

SimGrammars *sim_grammar_open(void)
{
    SimGrammars *g = calloc(1, sizeof *g);
    ASSERT(g);
    g->small = make_vocabulary();
    const Tokenizer *t = g->small->tokenizer;
    size_t sort_bytes = grammar_vocab_scratch_bytes(t, 0, SIM_VOCABULARY),
           build_bytes = grammar_gbnf_scratch_bytes(),
           bytes = sort_bytes > build_bytes ? sort_bytes : build_bytes;
    void *memory = malloc(bytes);
    Arena scratch = arena_make(memory, bytes);
    GrammarVocabOrder order;
    Error error = grammar_vocab_sort(t, 0, SIM_VOCABULARY, &scratch, &order, NULL);
    ASSERT(error == OK);
    size_t keep = grammar_vocab_bytes(&order);
    g->vocab_memory = malloc(keep);
    Arena arena = arena_make(g->vocab_memory, keep);
    error = grammar_vocab_plant(&order, &arena, &g->vocab, NULL);
    ASSERT(error == OK);
    for (uint32_t i = 0; i < GRAMMARS; i++) make_grammar(g, i, memory, bytes);
    free(memory);
    return g;
}

void sim_grammar_close(SimGrammars *g)
{
    for (uint32_t i = 0; i < GRAMMARS; i++) free(g->memory[i]);
    free(g->vocab_memory);
    small_free(g->small);
    free(g);
}

GrammarMask *sim_grammar_mask(const SimGrammars *g, uint32_t grammar, const uint32_t *tokens,
                              uint32_t count, void **memory)
{
    const GrammarLimits limits = {.nodes = 64, .states = 12, .places = 64};
    const Grammar *grammar_of = &g->grammar[grammar];
    size_t bytes = grammar_mask_bytes(&g->vocab, grammar_of, &limits);
    GrammarMask *mask = NULL;
    *memory = malloc(bytes);
    Arena arena = arena_make(*memory, bytes);
    Error error = grammar_mask_build(&g->vocab, grammar_of, &limits, &arena, &mask, NULL);
    ASSERT(error == OK);
    for (uint32_t i = 0; i < count; i++) {
        error = grammar_mask_take(mask, tokens[i], NULL);
        ASSERT(error == OK); /* it was said under the same grammar */
    }
    return mask;
}
