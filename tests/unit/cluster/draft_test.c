/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses against a plain search of the whole text, through growing, cutting and growing again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/draft.h"

enum { TOKENS = 600, GUESS = 31 };

static void *memory;

static Draft make(uint32_t tokens_max)
{
    Draft d;
    size_t bytes = (size_t)draft_bytes(tokens_max) + ARENA_ALIGN;
    memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    assert_true(draft_build(&d, tokens_max, &arena));
    return d;
}

static void guesses_what_followed(void **state)
{
    (void)state;
    const uint32_t text[] = {7, 1, 2, 3, 4, 5, 6, 9, 1, 2, 3};
    uint32_t out[GUESS];
    Draft d = make(TOKENS);
    assert_int_equal(draft_guess(&d, text, 11, out, 3), 3);
    assert_memory_equal(out, ((uint32_t[]){4, 5, 6}), 12);
    draft_learn(&d, 3, 3);
    assert_int_equal(draft_guess(&d, text, 11, out, GUESS), 2 * DRAFT_FIRST + 1);
    /* behind the text's end the guess repeats itself: the place is 4 behind, and 8 tokens lie between */
    assert_memory_equal(out, ((uint32_t[]){4, 5, 6, 9, 1, 2, 3, 4, 5}), 36);
    free(memory);
}

static void repeats_of_one_token(void **state)
{
    (void)state;
    const uint32_t text[] = {5, 8, 8, 8, 8, 8};
    uint32_t out[GUESS];
    Draft d = make(TOKENS);
    assert_int_equal(draft_guess(&d, text, 6, out, GUESS), DRAFT_FIRST);
    for (int i = 0; i < DRAFT_FIRST; i++) assert_int_equal(out[i], 8);
    free(memory);
}

static void nothing_to_guess(void **state)
{
    (void)state;
    const uint32_t text[] = {1, 2, 3, 4, 5, 6, 2, 3};
    uint32_t out[GUESS];
    Draft d = make(8);
    for (uint32_t count = 0; count <= 8; count++)
        assert_int_equal(draft_guess(&d, text, count, out, GUESS), 0);
    assert_int_equal(draft_guess(&d, text, 9, out, GUESS), 0); /* more than it has room for */
    free(memory);
}

static void failures_make_it_rare(void **state)
{
    (void)state;
    const uint32_t text[] = {1, 2, 3, 4, 1, 2, 3};
    uint32_t out[GUESS], guesses = 0;
    Draft d = make(TOKENS);
    for (int step = 0; step < 1000; step++) {
        uint32_t n = draft_guess(&d, text, 7, out, GUESS);
        guesses += n;
        draft_learn(&d, n, 0);
    }
    assert_in_range(guesses, 10, 30);
    for (int step = 0;
         step <= DRAFT_PAUSE_MAX && !(guesses = draft_guess(&d, text, 7, out, GUESS));)
        step++;
    assert_int_equal(guesses, 1);
    draft_learn(&d, 1, 1); /* and it comes back */
    assert_int_equal(draft_guess(&d, text, 7, out, GUESS), 3);
    draft_learn(&d, 3, 1);
    assert_int_equal(draft_guess(&d, text, 7, out, GUESS), 2);
    free(memory);
}

/* The first token that a plain search would guess: of the last DRAFT_PLACES places. */
static bool search(const uint32_t *text, uint32_t count, uint32_t *token)
{
    uint32_t most = DRAFT_RUN - 1, places = 0;
    for (uint32_t at = count - 1; at >= DRAFT_RUN && places < DRAFT_PLACES; at--) {
        uint32_t same = 0;
        while (same < 64 && same < at && text[at - 1 - same] == text[count - 1 - same]) same++;
        if (same < DRAFT_RUN) continue;
        places++;
        if (same > most) most = same, *token = text[at];
    }
    return most >= DRAFT_RUN;
}

static void agrees_with_a_search(void **state)
{
    (void)state;
    uint32_t text[TOKENS], count = 0, random = 1, found = 0, wanted = 0, out[GUESS];
    Draft d = make(TOKENS);
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        if (count == TOKENS || random >> 24 == 0) {
            count = (random >> 8) % (count + 1);
            draft_cut(&d, count);
        }
        text[count++] = (random >> 16) % 4;
        if (random >> 30 == 3) continue; /* several tokens between two guesses */
        uint32_t expected = 0, n = draft_guess(&d, text, count, out, 1);
        bool any = count > DRAFT_RUN && search(text, count, &expected);
        /* Places of a hash that other runs share, or that were cut off, may hide the oldest of them. */
        if (!any) assert_int_equal(n, 0);
        wanted += any;
        found += n && any && out[0] == expected;
        draft_restart(&d);
    }
    assert_true(wanted > 10000 && found > wanted - wanted / 50); /* runs of one hash hide places */
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_what_followed), cmocka_unit_test(repeats_of_one_token),
        cmocka_unit_test(nothing_to_guess),      cmocka_unit_test(failures_make_it_rare),
        cmocka_unit_test(agrees_with_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
