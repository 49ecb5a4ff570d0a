/* SPDX-License-Identifier: Apache-2.0 */
/* The wardens' policy: identities, the resident rule, hits on a cyclic scan, and what happens to slabs that are read,
 * filled and forgotten at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/warden.h"

enum { LAYERS = 2, UNIT = 1 << 20 };

static KnotTensor tensors[16];
static Knot knot;
static uint8_t memory[1 << 16];

static void add(const char *name, Layout layout, uint32_t rows, uint64_t bytes)
{
    KnotTensor *t = &tensors[knot.tensor_count++];
    *t = (KnotTensor){.name = name, .layout = layout, .rows = rows, .cols = 256, .bytes = bytes};
    t->offset = knot.payload_bytes;
    knot.payload_bytes += (bytes + 4095) / 4096 * 4096;
}

/* Residents in the first slab, four matrices of two slabs, the head and the embedding. */
static int setup(void **state)
{
    (void)state;
    knot = (Knot){
        .version = 2, .id = 0x0123456789abcdef, .tensors = tensors, .model = {.layers = LAYERS}};
    add("blk_0_attn_norm_weight", LAYOUT_ROWS, 1, 4096);
    add("blk_1_ffn_norm_weight", LAYOUT_ROWS, 1, 4096);
    add("output_norm_weight", LAYOUT_ROWS, 1, UNIT - 8192);
    add("blk_0_attn_q_weight", LAYOUT_X16, 512, 2 * UNIT);
    add("blk_0_ffn_up_weight", LAYOUT_X16, 512, 2 * UNIT);
    add("blk_1_ffn_gate_weight", LAYOUT_X16, 512, 2 * UNIT);
    add("blk_1_ffn_down_weight", LAYOUT_X16, 512, 2 * UNIT);
    add("output_weight", LAYOUT_X16, 1000, 2 * UNIT);
    add("token_embd_weight", LAYOUT_ROWS, 1000, UNIT + 5000);
    return 0;
}

static Warden *make(WardenIdentity id, uint64_t budget)
{
    WardenConfig config = {
        .knot = &knot, .identity = id, .budget_bytes = budget, .slab_bytes = UNIT};
    Warden *w;
    assert_true(warden_bytes(&config) <= sizeof memory);
    Arena arena = arena_make(memory, (size_t)warden_bytes(&config));
    assert_int_equal(warden_build(&config, &arena, &w, NULL), OK);
    return w;
}

static WardenIdentity layers(PhaseBound first, PhaseBound last)
{
    return (WardenIdentity){knot.id, false, first, last};
}

static void identity_is_text_and_must_match(void **state)
{
    (void)state;
    char text[WARDEN_IDENTITY_TEXT_MAX];
    Why why;
    WardenIdentity layer = layers(0, 8), shard = {knot.id, true, 0, 8};
    assert_string_equal(warden_identity_text(&layer, LAYERS, text), "0123456789abcdef|0-end");
    assert_string_equal(warden_identity_text(&shard, LAYERS, text), "0123456789abcdef|0-8");
    assert_int_equal(warden_identity_check(&layer, &layer, LAYERS, &why), OK);
    assert_int_equal(warden_identity_check(&layer, &shard, LAYERS, &why), ERR_UNSUPPORTED);
    WardenIdentity other = layer;
    other.knot_id++;
    assert_int_equal(warden_identity_check(&layer, &other, LAYERS, &why), ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "0123456789abcdef|0-end"));
    assert_non_null(strstr(why.text, "0123456789abcdf0|0-end"));
    other = layers(0, 7);
    assert_int_equal(warden_identity_check(&layer, &other, LAYERS, &why), ERR_UNSUPPORTED);
}

static Error covers(const WardenIdentity *id, const char *name, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < knot.tensor_count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return warden_covers(id, &knot, &tensors[i], first, count, NULL);
    return ERR_NOT_FOUND;
}

static void layer_warden_covers_its_phases(void **state)
{
    (void)state;
    WardenIdentity id = layers(phase_bound(0, PHASE_FFN_GATE), phase_bound(1, PHASE_FFN_UP));
    assert_int_equal(covers(&id, "blk_0_attn_q_weight", 0, 512), ERR_RANGE);
    assert_int_equal(covers(&id, "blk_0_ffn_up_weight", 0, 512), OK);
    assert_int_equal(covers(&id, "blk_0_ffn_up_weight", 496, 16), OK);
    assert_int_equal(covers(&id, "blk_0_ffn_up_weight", 496, 17), ERR_RANGE);
    assert_int_equal(covers(&id, "blk_0_ffn_up_weight", 512, 1), ERR_RANGE);
    assert_int_equal(covers(&id, "blk_1_ffn_gate_weight", 0, 512), OK);
    assert_int_equal(covers(&id, "blk_1_ffn_down_weight", 0, 512), ERR_RANGE);
    assert_int_equal(covers(&id, "blk_0_attn_norm_weight", 0, 1),
                     OK); /* vectors of a layer it has part of */
    assert_int_equal(covers(&id, "output_norm_weight", 0, 1), OK);
    id = layers(0, phase_bound(1, PHASE_ATTN));
    assert_int_equal(covers(&id, "blk_1_ffn_norm_weight", 0, 1), ERR_RANGE);
}

static void shard_warden_covers_its_rows(void **state)
{
    (void)state;
    WardenIdentity id = {knot.id, true, 100, 990};
    assert_int_equal(covers(&id, "token_embd_weight", 100, 890), OK);
    assert_int_equal(covers(&id, "token_embd_weight", 99, 1), ERR_RANGE);
    assert_int_equal(covers(&id, "token_embd_weight", 989, 2), ERR_RANGE);
    assert_int_equal(covers(&id, "output_weight", 96, 896), OK); /* whole panels */
    assert_int_equal(covers(&id, "output_weight", 96, 897), ERR_RANGE);
    assert_int_equal(covers(&id, "output_weight", 80, 16), ERR_RANGE);
    assert_int_equal(covers(&id, "output_norm_weight", 0, 1), ERR_RANGE);
    assert_int_equal(covers(&id, "blk_0_ffn_up_weight", 0, 16), ERR_RANGE);
}

/* What a host does without threads. */
static WardenAnswer touch(Warden *w, uint32_t slab)
{
    uint32_t evicted;
    WardenAnswer answer = warden_ask(w, slab, &evicted);
    if (answer == WARDEN_FILL) assert_false(warden_filled(w, slab));
    if (answer == WARDEN_HIT) assert_false(warden_release(w, slab));
    return answer;
}

static void cyclic_scan_hits_the_share_that_fits(void **state)
{
    (void)state;
    for (uint32_t room = 0; room <= 8; room++) {
        Warden *w = make(layers(0, 8), (uint64_t)room * UNIT + UNIT / 2);
        for (int pass = 0; pass < 5; pass++)
            for (uint32_t slab = 1; slab <= 8; slab++) (void)touch(w, slab);
        WardenCounters c = warden_counters(w);
        assert_int_equal(c.hits, 4 * room);
        assert_int_equal(c.misses, 5 * 8 - 4 * room);
        assert_int_equal(c.held_bytes, (uint64_t)room * UNIT);
        assert_int_equal(c.evictions, 0);
    }
}

static void residents_take_a_matrix_place(void **state)
{
    (void)state;
    uint32_t evicted;
    Warden *w = make(layers(0, 8), 4 * UNIT);
    for (uint32_t slab = 1; slab <= 8; slab++) (void)touch(w, slab);
    assert_int_equal(warden_ask(w, 0, &evicted), WARDEN_FILL); /* the norms */
    assert_int_equal(evicted, 4);                              /* the last of 1 2 3 4 */
    assert_false(warden_filled(w, 0));
    assert_int_equal(touch(w, 4), WARDEN_PASS);
    assert_int_equal(touch(w, 0), WARDEN_HIT);
    assert_int_equal(touch(w, 9), WARDEN_FILL); /* the head */
    assert_int_equal(touch(w, 10), WARDEN_FILL);
    assert_int_equal(touch(w, 11), WARDEN_FILL); /* the embedding */
    assert_int_equal(touch(w, 12), WARDEN_PASS); /* residents never make room for residents */
    assert_int_equal(touch(w, 1), WARDEN_PASS);
    assert_int_equal(warden_counters(w).evictions, 4);
    assert_true(warden_counters(w).held_bytes <= 4 * UNIT);
}

static void readers_keep_a_slab(void **state)
{
    (void)state;
    uint32_t evicted;
    Warden *w = make(layers(0, 8), UNIT);
    (void)touch(w, 1);
    assert_int_equal(warden_ask(w, 1, &evicted), WARDEN_HIT);
    assert_int_equal(warden_ask(w, 0, &evicted), WARDEN_PASS); /* a resident, but 1 is being read */
    assert_int_equal(warden_ask(w, 1, &evicted), WARDEN_HIT);
    assert_false(warden_forget(w, 1, true));
    assert_int_equal(warden_ask(w, 1, &evicted), WARDEN_PASS); /* forgotten: not served again */
    assert_false(warden_release(w, 1));
    assert_true(warden_release(w, 1));
    assert_int_equal(warden_counters(w).held_bytes, 0);
    assert_int_equal(warden_counters(w).bad, 1);
    assert_int_equal(touch(w, 1), WARDEN_FILL);
}

static void fills_are_single_and_may_fail(void **state)
{
    (void)state;
    uint32_t evicted;
    Warden *w = make(layers(0, 8), UNIT);
    assert_int_equal(warden_ask(w, 2, &evicted), WARDEN_FILL);
    assert_int_equal(warden_ask(w, 2, &evicted), WARDEN_WAIT);
    assert_int_equal(warden_ask(w, 3, &evicted), WARDEN_PASS);
    warden_fill_failed(w, 2);
    assert_int_equal(warden_ask(w, 2, &evicted), WARDEN_FILL);
    assert_false(warden_forget(w, 2, false)); /* while it is filled */
    assert_int_equal(warden_ask(w, 2, &evicted), WARDEN_PASS);
    assert_true(warden_filled(w, 2));
    assert_int_equal(touch(w, 2), WARDEN_FILL);
    assert_int_equal(touch(w, 2), WARDEN_HIT);
    assert_true(warden_forget(w, 2, false));
    assert_false(warden_forget(w, 2, false));
    assert_int_equal(warden_counters(w).invalidations, 3);
}

static void slabs_cover_the_payload(void **state)
{
    (void)state;
    Warden *w = make(layers(0, 8), UNIT);
    uint64_t end = 0;
    for (uint32_t i = 0; i < warden_slab_count(w); i++) {
        assert_int_equal(warden_slab_offset(w, i), end);
        end += warden_slab_bytes(w, i);
    }
    assert_int_equal(end, knot.payload_bytes);
    assert_false(warden_peek(w, 0));
    assert_int_equal(warden_counters(w).misses, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(identity_is_text_and_must_match, setup),
        cmocka_unit_test_setup(layer_warden_covers_its_phases, setup),
        cmocka_unit_test_setup(shard_warden_covers_its_rows, setup),
        cmocka_unit_test_setup(cyclic_scan_hits_the_share_that_fits, setup),
        cmocka_unit_test_setup(residents_take_a_matrix_place, setup),
        cmocka_unit_test_setup(readers_keep_a_slab, setup),
        cmocka_unit_test_setup(fills_are_single_and_may_fail, setup),
        cmocka_unit_test_setup(slabs_cover_the_payload, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
