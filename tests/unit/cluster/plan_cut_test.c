/* SPDX-License-Identifier: Apache-2.0 */
/* Uneven cuts: by speed, within room, without gap; and requests that cannot be cut. */
#include "tiny_model.h"

#include "cluster/plan_cut.h"

static uint64_t range_bytes(const TinyModel *t, PhaseRange r)
{
    uint64_t bytes = 0;
    for (PhaseBound b = r.first; b < r.last; b++) {
        PhaseMatrix m[PHASE_MATRICES_MAX];
        uint32_t count;
        assert_int_equal(
            phase_matrices(&t->knot, &t->hyper, phase_layer(b), phase_of(b), m, &count, NULL), OK);
        for (uint32_t i = 0; i < count; i++) bytes += m[i].weight->bytes;
    }
    return bytes;
}

static void meet(const PhaseRange *r, uint32_t count)
{
    PhaseBound at = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(r[i].first, at);
        assert_true(r[i].last > at);
        at = r[i].last;
    }
    assert_int_equal(at, TINY_LAYERS * PHASES);
}

static void speed_decides(void **state)
{
    (void)state;
    TinyModel t;
    Why why = {{0}};
    PhaseRange r[TINY_LAYERS * PHASES];
    tiny_make(&t, true, NULL);
    PlanCutShare two_to_one[] = {{2, UINT64_MAX}, {1, UINT64_MAX}};
    assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, 0, two_to_one, 2, r, &why), OK);
    meet(r, 2);
    assert_int_equal(r[0].last, phase_bound(2, PHASE_ATTN)); /* two of three layers */
    PlanCutShare many[TINY_LAYERS * PHASES];
    for (uint32_t n = 1; n <= TINY_LAYERS * PHASES; n++)
        for (uint32_t fast = 0; fast < n; fast++) {
            for (uint32_t i = 0; i < n; i++)
                many[i] = (PlanCutShare){i == fast ? 1000 : 1, UINT64_MAX};
            assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, 0, many, n, r, &why), OK);
            meet(
                r,
                n); /* the slow ones keep a phase each, or half a layer more for a cut at a layer */
            for (uint32_t i = 0; i < n; i++)
                assert_true(r[fast].last - r[fast].first + PHASES / 2 >= r[i].last - r[i].first);
        }
    tiny_free(&t);
}

static void room_is_kept(void **state)
{
    (void)state;
    TinyModel t;
    Why why = {{0}};
    PhaseRange r[3], all = {0, TINY_LAYERS * PHASES};
    tiny_make(&t, true, NULL);
    uint64_t bytes = range_bytes(&t, all);
    for (uint64_t room = bytes / 16; room < bytes; room += bytes / 16) {
        PlanCutShare share[] = {{10, room}, {1, UINT64_MAX}, {1, UINT64_MAX}};
        assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, 0, share, 3, r, &why), OK);
        meet(r, 3);
        bool smallest = r[0].last == 1; /* one phase is the least, whether it fits or not */
        assert_true(smallest || range_bytes(&t, r[0]) <= room);
    }
    /* too little everywhere: still a cut, by speed */
    PlanCutShare tight[] = {{1, 1}, {1, 1}, {1, 1}};
    assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, 0, tight, 3, r, &why), OK);
    meet(r, 3);
    assert_int_equal(r[0].last, phase_bound(1, PHASE_ATTN));
    assert_int_equal(r[1].last, phase_bound(2, PHASE_ATTN));
    /* a large cache counts as weights do */
    PlanCutShare cached[] = {{10, bytes}, {1, UINT64_MAX}};
    assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, bytes / 2, cached, 2, r, &why), OK);
    assert_true(r[0].last <= phase_bound(1, PHASE_FFN_DOWN) + 1);
    tiny_free(&t);
}

static void ids_are_cut(void **state)
{
    (void)state;
    Why why = {{0}};
    uint32_t ends[4];
    PlanCutShare share[] = {{1, UINT64_MAX}, {2, UINT64_MAX}, {1, UINT64_MAX}};
    assert_int_equal(plan_cut_ids(400, 10, share, 3, ends, &why), OK);
    assert_int_equal(ends[0], 100);
    assert_int_equal(ends[1], 300);
    assert_int_equal(ends[2], 400);
    share[1].bytes_room = 1000; /* a hundred ids */
    assert_int_equal(plan_cut_ids(400, 10, share, 3, ends, &why), OK);
    assert_int_equal(ends[0], 150);
    assert_int_equal(ends[1], 250);
    PlanCutShare steep[] = {{1e9, UINT64_MAX}, {1e-9, UINT64_MAX}, {1e-9, 0}};
    assert_int_equal(plan_cut_ids(3, 10, steep, 3, ends, &why), OK);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[2], 3);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    TinyModel t;
    Why why = {{0}};
    uint32_t ends[4];
    static PhaseRange r[TINY_LAYERS * PHASES + 1];
    static PlanCutShare share[PLAN_CUT_MAX + 1];
    tiny_make(&t, true, NULL);
    for (uint32_t i = 0; i <= PLAN_CUT_MAX; i++) share[i] = (PlanCutShare){1, UINT64_MAX};
    assert_int_equal(plan_cut_phases(&t.knot, &t.hyper, 0, share, 0, r, &why), ERR_RANGE);
    assert_int_equal(
        plan_cut_phases(&t.knot, &t.hyper, 0, share, TINY_LAYERS * PHASES + 1, r, &why), ERR_RANGE);
    assert_int_equal(plan_cut_ids(2, 1, share, 3, ends, &why), ERR_RANGE);
    assert_int_equal(plan_cut_ids(1 << 20, 1, share, PLAN_CUT_MAX + 1, ends, &why), ERR_RANGE);
    static const double bad[] = {0, -1, 1e300};
    for (size_t i = 0; i < 3; i++) {
        share[1].speed = bad[i];
        assert_int_equal(plan_cut_ids(100, 1, share, 3, ends, &why), ERR_RANGE);
    }
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speed_decides),
        cmocka_unit_test(room_is_kept),
        cmocka_unit_test(ids_are_cut),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
