/* SPDX-License-Identifier: Apache-2.0 */
/* Masks against trying every token by itself, on small vocabularies; cutting masks; taking tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "small_random.h"
#include "small_vocab.h"
#include "text/grammar_mask.h"

typedef struct Kit {
    SmallVocab *small;
    void *memory[5];
    GrammarVocab v;
    Grammar g;
    GrammarMask *mask;
    GrammarMachine *machine; /* a second one, to try tokens with */
    Why why;
} Kit;

static void *room(Kit *k, int slot, size_t bytes)
{
    free(k->memory[slot]);
    k->memory[slot] = malloc(bytes);
    assert_non_null(k->memory[slot]);
    return k->memory[slot];
}

static void open_kit(Kit *k, SmallVocab *small, uint32_t first, uint32_t last)
{
    *k = (Kit){.small = small};
    assert_int_equal(small_build(small, &k->why), OK);
    size_t scratch_bytes = grammar_vocab_scratch_bytes(small->tokenizer, first, last);
    GrammarVocabOrder order;
    Arena scratch = arena_make(room(k, 0, scratch_bytes), scratch_bytes);
    if (grammar_vocab_sort(small->tokenizer, first, last, &scratch, &order, &k->why) != OK)
        fail_msg("%s", k->why.text);
    size_t bytes = grammar_vocab_bytes(&order);
    Arena arena = arena_make(room(k, 1, bytes), bytes);
    if (grammar_vocab_plant(&order, &arena, &k->v, &k->why) != OK) fail_msg("%s", k->why.text);
}

static void close_kit(Kit *k)
{
    for (int i = 0; i < 5; i++) free(k->memory[i]);
    small_free(k->small);
}

static void use(Kit *k, const char *grammar, GrammarLimits limits)
{
    size_t scratch_bytes = grammar_gbnf_scratch_bytes(), bytes = grammar_bytes_max();
    Arena scratch = arena_make(room(k, 0, scratch_bytes), scratch_bytes);
    Arena arena = arena_make(room(k, 2, bytes), bytes);
    if (grammar_gbnf((const uint8_t *)grammar, strlen(grammar), &scratch, &arena, &k->g, &k->why) !=
        OK)
        fail_msg("%s: %s", grammar, k->why.text);
    bytes = grammar_mask_bytes(&k->v, &k->g, &limits);
    Arena masks = arena_make(room(k, 3, bytes), bytes);
    assert_int_equal(grammar_mask_build(&k->v, &k->g, &limits, &masks, &k->mask, &k->why), OK);
    GrammarLimits large = grammar_machine_limits();
    bytes = grammar_machine_bytes(&k->g, &large);
    Arena machine = arena_make(room(k, 4, bytes), bytes);
    assert_int_equal(grammar_machine_build(&k->g, &large, &machine, &k->machine, &k->why), OK);
}

/* Whether one token may follow, byte by byte. */
static bool token_follows(Kit *k, uint32_t id)
{
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    size_t bytes;
    uint32_t state = grammar_machine_state(k->machine);
    if (tokenizer_is_end(k->small->tokenizer, id))
        return grammar_machine_may_end(k->machine, state);
    assert_int_equal(
        tokenizer_piece(k->small->tokenizer, id, false, piece, sizeof piece, &bytes, NULL), OK);
    for (size_t i = 0; i < bytes; i++) state = grammar_machine_next(k->machine, state, piece[i]);
    return bytes && state >= GRAMMAR_FIRST_STATE;
}

/* Compares the mask here. Result  the allowed ids in out. */
static uint32_t compare(Kit *k, uint32_t *out)
{
    uint32_t count = 0;
    const uint32_t *mask = grammar_mask_now(k->mask);
    for (uint32_t id = k->v.id_first; id < k->v.id_last; id++) {
        bool want = token_follows(k, id), got = grammar_mask_has(mask, id - k->v.id_first);
        if (want != got) fail_msg("token %u: %d, want %d", id, got, want);
        if (want) out[count++] = id;
    }
    for (uint32_t bit = k->v.id_last - k->v.id_first; bit < 32 * grammar_mask_words(&k->v); bit++)
        assert_false(grammar_mask_has(mask, bit));
    return count;
}

static void walk(Kit *k, uint32_t steps)
{
    uint32_t ids[SMALL_TOKENS_MAX];
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    size_t bytes;
    grammar_mask_restart(k->mask);
    grammar_machine_restart(k->machine);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t count = compare(k, ids);
        if (!count) break;
        uint32_t id = ids[small_random(count)];
        for (uint32_t wrong = k->v.id_first; wrong < k->v.id_last; wrong += 37)
            if (!token_follows(k, wrong))
                assert_int_equal(grammar_mask_take(k->mask, wrong, &k->why), ERR_RANGE);
        assert_int_equal(grammar_mask_take(k->mask, id, &k->why), OK);
        if (tokenizer_is_end(k->small->tokenizer, id)) {
            const uint32_t *mask = grammar_mask_now(k->mask);
            for (uint32_t w = 0; w < grammar_mask_words(&k->v); w++) assert_int_equal(mask[w], 0);
            assert_true(grammar_mask_has_ended(k->mask));
            assert_int_equal(grammar_mask_take(k->mask, ids[0], &k->why), ERR_RANGE);
            return;
        }
        assert_int_equal(
            tokenizer_piece(k->small->tokenizer, id, false, piece, sizeof piece, &bytes, NULL), OK);
        for (size_t n = 0; n < bytes; n++) assert_true(grammar_machine_take(k->machine, piece[n]));
    }
}

enum { COUNTING = 8 }; /* the first of those that count far */
static const char *const grammars[] = {
    "root ::= \"the\" \" the\"* \"\\n\"?",
    "root ::= [a-c]+ | \"hello\" | [^a-z]{2,6}",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nu])* \"\\\"\"",
    "root ::= item (\", \" item)*\nitem ::= \"a\"{1,9} | \"(\" root \")\" | [0-9]+ | \"\xC3\xA9\" | \"\xE4\xB8\xAD\"",
    "root ::= .*",
    "root ::= (\"a\" | \"aa\" | \"aaa\")* \"b\"{0,3} \"c\"",
    "root ::= \"<|im_end|>\" | \"<tool>\" \">\"?",
    "root ::= \"[PAD]\" | \"x\"",
    "root ::= [a-z ]{40,90} [0-9]{0,9}",
    "root ::= ([a-z ]{30,70} \"\\n\"){2,9} | ([a-z]{5} \"-\"){50,60}",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nu]){60,} \"\\\"\"",
};

static void masks_are_what_trying_every_token_gives(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        Kit k;
        SmallVocab *small = kind ? small_sentencepiece(kind == 1) : small_bpe(VOCAB_PRE_QWEN2);
        open_kit(&k, small, 0, small->vocab.tokens);
        for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
            use(&k, grammars[i], grammar_machine_limits());
            for (int round = 0; round < 12; round++) walk(&k, round == 11 ? 120 : 25);
        }
        close_kit(&k);
    }
}

/* Pools that are full all the time change nothing. */
static void small_pools_give_the_same_masks(void **state)
{
    (void)state;
    Kit k;
    SmallVocab *small = small_bpe(VOCAB_PRE_QWEN2);
    open_kit(&k, small, 0, small->vocab.tokens);
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        uint32_t size = i < COUNTING ? 1 : 12; /* counts have a state for each round */
        use(&k, grammars[i],
            (GrammarLimits){.nodes = 400 * size, .states = 64 * size, .places = 500 * size});
        for (int round = 0; round < 8; round++) walk(&k, 25);
    }
    close_kit(&k);
}

static void slices_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    Kit k;
    SmallVocab *small = small_bpe(VOCAB_PRE_QWEN2);
    open_kit(&k, small, 0, small->vocab.tokens);
    use(&k, grammars[1], grammar_machine_limits());
    uint32_t whole[SMALL_TOKENS_MAX / 32 + 1], cut[SMALL_TOKENS_MAX / 32 + 1], tokens = k.v.id_last;
    memcpy(whole, grammar_mask_now(k.mask), grammar_mask_words(&k.v) * sizeof *whole);
    for (uint32_t first = 0; first < tokens; first += 13) {
        uint32_t last = first + 1 + small_random(tokens - first);
        Kit part;
        open_kit(&part, small_bpe(VOCAB_PRE_QWEN2), first, last);
        use(&part, grammars[1], grammar_machine_limits());
        grammar_mask_cut(whole, first, last - first, cut);
        assert_memory_equal(cut, grammar_mask_now(part.mask),
                            grammar_mask_words(&part.v) * sizeof *cut);
        close_kit(&part);
    }
    close_kit(&k);
}

static void bytes_have_kinds(void **state)
{
    (void)state;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 256; i++) {
        assert_true(grammar_vocab_kind((uint8_t)i) < GRAMMAR_BYTE_KINDS);
        seen |= (uint64_t)1 << grammar_vocab_kind((uint8_t)i);
    }
    assert_int_equal(__builtin_popcountll(seen), 46);
    for (const char *c = "\"\\{}[]:,.-+#' \t\n\r"; *c; c++)
        for (uint32_t i = 0; i < 256; i++)
            if (i != (uint8_t)*c)
                assert_int_not_equal(grammar_vocab_kind((uint8_t)i),
                                     grammar_vocab_kind((uint8_t)*c));
}

static void is_empty_when_nothing_fits(void **state)
{
    (void)state;
    Kit k;
    SmallVocab *small = small_bpe(VOCAB_PRE_QWEN2);
    open_kit(&k, small, 0, small->vocab.tokens);
    use(&k, "root ::= [a-z]+", grammar_machine_limits());
    assert_false(grammar_mask_is_empty(k.mask));
    close_kit(&k);
    small = small_bpe(VOCAB_PRE_QWEN2);
    open_kit(&k, small, 0, 1);
    use(&k, "root ::= \"\\U0010FFFF\"", grammar_machine_limits());
    assert_true(grammar_mask_is_empty(k.mask));
    close_kit(&k);
}

static void refuses_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    Kit k;
    SmallVocab *small = small_bpe(VOCAB_PRE_QWEN2);
    open_kit(&k, small, 0, small->vocab.tokens);
    GrammarVocab v;
    Arena none = arena_make(NULL, 0);
    assert_int_equal(grammar_vocab_build(small->tokenizer, 5, 5, &none, &none, &v, &k.why),
                     ERR_RANGE);
    assert_int_equal(grammar_vocab_build(small->tokenizer, 0, 100000, &none, &none, &v, &k.why),
                     ERR_RANGE);
    assert_int_equal(grammar_vocab_build(small->tokenizer, 0, 5, &none, &none, &v, &k.why),
                     ERR_MEMORY);
    Arena scratch = arena_make(room(&k, 4, 4 << 20), 4 << 20);
    assert_int_equal(grammar_vocab_build(small->tokenizer, 0, 5, &scratch, &none, &v, &k.why),
                     ERR_MEMORY);
    assert_int_equal(scratch.used, 0);
    use(&k, grammars[0], grammar_machine_limits());
    assert_int_not_equal(grammar_mask_take(k.mask, 100000, &k.why), OK);
    close_kit(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_what_trying_every_token_gives),
        cmocka_unit_test(small_pools_give_the_same_masks),
        cmocka_unit_test(slices_have_the_bits_of_the_whole),
        cmocka_unit_test(bytes_have_kinds),
        cmocka_unit_test(is_empty_when_nothing_fits),
        cmocka_unit_test(refuses_ids_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
