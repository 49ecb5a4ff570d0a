/* SPDX-License-Identifier: Apache-2.0 */
/* What a node takes of an instance: never above the budget, more memory never makes it worse, and
 * what it reads. */
#include "tiny_model.h"

#include "cluster/isolate.h"

static const uint64_t MIB = (uint64_t)1 << 20;

/* A station of 60 MiB of weights, or a shard of 20 with embedding rows. */
static IsolateRequest some(const Knot *knot, uint64_t budget, bool shard)
{
    IsolateRequest r = {.id = "station-3",
                        .knot = knot,
                        .budget_bytes = budget,
                        .fixed_bytes = ISOLATE_FIXED_BYTES,
                        .index_bytes = MIB,
                        .sizes = {.floor_bytes = 3 * MIB,
                                  .scratch_bytes = 4 * MIB,
                                  .cache_bytes = 8 * MIB,
                                  .service_bytes = 2 * MIB,
                                  .body_bytes_max = MIB,
                                  .answer_bytes_max = MIB,
                                  .widest_panel_bytes = MIB / 8,
                                  .weights_first = 5 * MIB + 4096,
                                  .weights_last = (shard ? 25 : 65) * MIB + 4096},
                        .keeper_bytes = shard ? 0 : 4096,
                        .embeds = shard,
                        .id_last = shard ? TINY_VOCABULARY : 0,
                        .pinned_bytes = ISOLATE_PIN_ALL};
    return r;
}

/* A knot whose sections lie where a large one's would. */
static void make_knot(TinyModel *t)
{
    tiny_make(t, false, NULL);
    t->knot.block_hashes = (KnotSection){100 * MIB, 400 * 8};
    for (uint32_t i = 0; i < t->knot.tensor_count; i++)
        if (strcmp(t->knot.tensors[i].name, "token_embd_weight") == 0)
            t->knot.tensors[i].offset = 70 * MIB;
}

static void never_above_the_budget(void **state)
{
    (void)state;
    TinyModel t;
    make_knot(&t);
    for (int shard = 0; shard < 2; shard++) {
        Why why;
        Isolate o;
        bool fits = false, rows = false;
        uint64_t before = UINT64_MAX / 2, stretch = (shard ? 20 : 60) * MIB + KNOT_HASH_BLOCK_BYTES;
        for (uint64_t budget = 10 * MIB; budget < 100 * MIB; budget += MIB / 4) {
            IsolateRequest r = some(&t.knot, budget, shard);
            Error error = isolate_choose(&r, &o, &why);
            assert_true(error == OK || !fits);
            if (error != OK) {
                assert_int_equal(error, ERR_PLAN);
                assert_non_null(strstr(why.text, "station-3 needs "));
                continue;
            }
            fits = true;
            assert_true(o.total_bytes <= budget);
            assert_int_equal(o.last - o.first, stretch);
            assert_int_equal(o.pinned_bytes + o.pass_bytes, stretch);
            assert_true(o.pass_bytes <= before + MIB);
            assert_true(o.resident == (o.pass_bytes == 0 && o.tile_bytes_max == 0));
            assert_true(o.resident ||
                        o.tile_bytes_max + 2 * KNOT_HASH_BLOCK_BYTES <= o.window_bytes);
            assert_true(!rows || o.rows_last > o.rows_first);
            rows = o.rows_last > o.rows_first;
            before = o.pass_bytes;
        }
        assert_true(fits && o.resident && rows == (shard == 1));
    }
    tiny_free(&t);
}

static void pins_what_it_is_told(void **state)
{
    (void)state;
    TinyModel t;
    make_knot(&t);
    Why why;
    Isolate o;
    IsolateRequest r = some(&t.knot, 96 * MIB, false);
    r.pinned_bytes = 10 * MIB + 1;
    assert_int_equal(isolate_choose(&r, &o, &why), OK);
    assert_false(o.resident);
    assert_int_equal(o.pinned_bytes, 10 * MIB);
    assert_int_equal(o.pass_bytes, 50 * MIB + KNOT_HASH_BLOCK_BYTES);
    r.pinned_bytes = 0;
    assert_int_equal(isolate_choose(&r, &o, &why), OK);
    assert_int_equal(o.pinned_bytes, 0);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_above_the_budget),
                                       cmocka_unit_test(pins_what_it_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
