/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: ranges meet, the sum is what the roles will take, and what cannot fit is refused with the sum. */
#include "tiny_model.h"

#include "cluster/plan.h"

static PlanRequest request_of(const TinyModel *t, uint64_t memory)
{
    return (PlanRequest){.knot = &t->knot,
                         .hyper = &t->hyper,
                         .solo = true,
                         .memory_bytes = memory,
                         .process_bytes = 1 << 20,
                         .stations = 2,
                         .shards = 4,
                         .logit_rows = 1,
                         .workers = 2,
                         .kernels = kernels_for(ISA_SCALAR),
                         .ops = ops_for(ISA_SCALAR)};
}

static void station_ranges_meet(void **state)
{
    (void)state;
    Why why = {{0}};
    PhaseRange r;
    for (uint32_t layers = 1; layers < 40; layers++)
        for (uint32_t count = 1; count <= layers * PHASES; count++) {
            PhaseBound expected = 0;
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(plan_station_range(layers, count, i, &r, &why), OK);
                assert_int_equal(r.first, expected);
                assert_true(r.last > r.first);
                expected = r.last;
            }
            assert_int_equal(expected, layers * PHASES);
        }
    assert_int_equal(plan_station_range(28, 2, 1, &r, &why), OK);
    assert_int_equal(r.first, phase_bound(14, PHASE_ATTN));
    assert_int_equal(plan_station_range(2, 9, 0, &r, &why), ERR_RANGE);
    assert_int_equal(plan_station_range(2, 0, 0, &r, &why), ERR_RANGE);
}

static void budget_is_kept_or_refused(void **state)
{
    (void)state;
    static Plan plan;
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    uint32_t context_before = 0;
    for (uint64_t mib = 1; mib < 64; mib++) {
        PlanRequest request = request_of(&t, mib << 20);
        Error error = plan_make(&request, &plan, &why);
        if (error == ERR_PLAN) {
            assert_int_equal(context_before, 0); /* what fits in less fits in more */
            assert_non_null(strstr(why.text, "attention cache"));
            continue;
        }
        assert_int_equal(error, OK);
        assert_true(plan.sum.total_bytes <= mib << 20);
        assert_true(plan.context >= context_before);
        context_before = plan.context;
    }
    assert_int_equal(context_before, 1024); /* the model's */
    PlanRequest promise = request_of(&t, 12 << 20);
    promise.context = 100000; /* the model was trained for 1024 */
    assert_int_equal(plan_make(&promise, &plan, &why), ERR_RANGE);
    uint64_t mib = 1; /* the smallest budget for 64 positions */
    do {
        promise = request_of(&t, ++mib << 20);
        promise.context = 64;
    } while (plan_make(&promise, &plan, &why) == ERR_PLAN);
    assert_int_equal(plan.context, 64);
    promise.context = 1024;
    assert_int_equal(plan_make(&promise, &plan, &why), ERR_PLAN);
    assert_non_null(strstr(why.text, "context 1024"));
    tiny_free(&t);
}

/* What fits without drafts fits with them, in chunks as large; a large budget has rows for all, a
 * small one for fewer. */
static void drafts_take_what_others_leave(void **state)
{
    (void)state;
    static Plan plan, with;
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (uint64_t kib = 1100; kib < 64 << 10; kib += kib / 40) {
        PlanRequest request = request_of(&t, kib << 10);
        request.sessions = 2;
        Error error = plan_make(&request, &plan, &why);
        request.drafts = 15;
        assert_int_equal(plan_make(&request, &with, &why), error);
        if (error != OK) continue;
        assert_true(with.sum.total_bytes <= kib << 10);
        assert_true(with.chunk == plan.chunk && with.context <= plan.context);
    }
    assert_int_equal(with.logit_rows, 1 + 2 * 15);
    assert_int_equal(plan_coordinator_config(&with).drafts, 15);
    assert_int_equal(plan_logit_rows(4, 15, 4, 151936, true, (uint64_t)1 << 30),
                     4 + PLAN_DRAFT_ROWS);
    assert_int_equal(plan_logit_rows(1, 15, 1, 151936, true, 64 << 20), 1 + 4);
    assert_int_equal(plan_logit_rows(4, 15, 4, 49152, false, 56 << 20), 4); /* a head, and little */
    assert_int_equal(plan_logit_rows(4, 15, 4, 18992, false, 128 << 20), 4 + 18);
    tiny_free(&t);
}

static void forms_take_what_others_leave(void **state)
{
    (void)state;
    static Plan plan;
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    uint64_t before = 0;
    for (uint64_t mib = 8; mib <= 256; mib += 4) {
        PlanRequest request = request_of(&t, mib << 20);
        Error without = plan_make(&request, &plan, &why);
        request.forms = true;
        assert_int_equal(plan_make(&request, &plan, &why),
                         without); /* nobody is refused for them */
        if (without != OK) continue;
        assert_true(plan.sum.total_bytes <= mib << 20);
        assert_true(plan.sum.form_bytes >= before && plan.sum.form_bytes <= mib << 18);
        before = plan.sum.form_bytes;
        request.solo = false;
        if (plan_make(&request, &plan, &why) != OK) continue;
        assert_true(plan.coordinator.total_bytes <= mib << 20);
        if (mib < 40) assert_int_equal(plan.coordinator.form_bytes, 0);
        if (mib >= 96) assert_true(plan.coordinator.form_bytes > 0);
    }
    assert_true(before >= 20 << 20);
    tiny_free(&t);
}

static void everything_resident_when_it_fits(void **state)
{
    (void)state;
    static Plan plan;
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    PlanRequest request = request_of(&t, (uint64_t)1 << 30);
    assert_int_equal(plan_make(&request, &plan, &why), OK);
    assert_true(plan.resident);
    assert_int_equal(plan.tile_bytes_max, 0);
    assert_true(plan.pinned_bytes >= t.knot.payload_bytes);
    request.solo = false;
    assert_int_equal(plan_make(&request, &plan, &why), OK);
    for (uint32_t i = 0; i < plan.role_count; i++) {
        assert_int_equal(plan.role[i].pinned_bytes, plan.role[i].weight_bytes);
        assert_true(plan.role[i].total_bytes <= request.memory_bytes);
    }
    tiny_free(&t);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    static Plan plan;
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    PlanRequest request = request_of(&t, 64 << 20);
    request.shards = TINY_VOCABULARY + 1;
    assert_int_equal(plan_make(&request, &plan, &why), ERR_RANGE);
    request = request_of(&t, 64 << 20);
    request.stations = TINY_LAYERS * PHASES + 1;
    assert_int_equal(plan_make(&request, &plan, &why), ERR_RANGE);
    request = request_of(&t, 64 << 20);
    request.stations = PLAN_ROLES_MAX + 1;
    assert_int_equal(plan_make(&request, &plan, &why), ERR_RANGE);
    request = request_of(&t, 64 << 20);
    request.chunk = STATION_ROWS_MAX + 1;
    assert_int_equal(plan_make(&request, &plan, &why), ERR_RANGE);
    uint32_t stations, shards;
    plan_split_workers(&t.knot, &t.hyper, 10, &stations, &shards);
    assert_true(stations >= 1 && shards >= 1);
    assert_int_equal(stations + shards, 10);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(station_ranges_meet),
        cmocka_unit_test(budget_is_kept_or_refused),
        cmocka_unit_test(drafts_take_what_others_leave),
        cmocka_unit_test(forms_take_what_others_leave),
        cmocka_unit_test(everything_resident_when_it_fits),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
