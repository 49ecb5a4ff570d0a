/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a token, added up by hand beside it. */
#include "tiny_model.h"

#include "cluster/cost.h"

static Plan plan;

static void make_plan(const TinyModel *t)
{
    Why why = {{0}};
    PlanRequest request = {.knot = &t->knot,
                           .hyper = &t->hyper,
                           .memory_bytes = 64 << 20,
                           .process_bytes = 1 << 20,
                           .stations = 2,
                           .shards = 4,
                           .logit_rows = 1,
                           .workers = 1,
                           .kernels = kernels_for(ISA_SCALAR),
                           .ops = ops_for(ISA_SCALAR)};
    if (plan_make(&request, &plan, &why) != OK) fail_msg("plan: %s", why.text);
    for (uint32_t i = 0; i < plan.role_count; i++) /* round figures */
        plan.role[i].weight_bytes = plan.role[i].pinned_bytes = 100000000;
}

static void near_to(double a, double b)
{
    if (!(a > b * 0.999999 && a < b * 1.000001)) fail_msg("%.9g is not %.9g", a, b);
}

static CostMachine machine_of(double gbs, double hop_us)
{
    return (CostMachine){
        .bandwidth_gbs = gbs, .stream_gbs = 1, .hop_us = hop_us, .network_gbs = 1e9};
}

static void one_machine(void **state)
{
    (void)state;
    TinyModel t;
    Cost c;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    make_plan(&t);
    CostMachine machine = machine_of(10, 100);
    CostRequest request = {&plan, ROWS_F32, &machine, 1, NULL};
    assert_int_equal(cost_of(&request, &c, &why), OK);
    assert_int_equal(c.weight_bytes, 600000000);
    assert_int_equal(c.streamed_bytes, 0);
    assert_int_equal(c.calls, 7); /* embed, two stations, four shards */
    assert_int_equal(c.hops, 4);
    near_to(c.seconds, 0.06 + 4 * 100e-6);
    near_to(c.tokens_per_s, 1 / c.seconds);
    near_to(c.busy_tokens_per_s, 1 / 0.06);
    near_to(c.alone_seconds, 0.06);
    assert_true(c.alone_is_faster);
    uint64_t row = TINY_HIDDEN * 4, head = 2 * COST_HEADER_BYTES;
    assert_int_equal(c.moved_bytes,
                     (row + head) + 2 * (2 * row + head) +
                         4 * (row + COST_CANDIDATES * sizeof(SamplerCandidate) + head));
    request.element = ROWS_INT8;
    uint64_t exact = c.moved_bytes;
    assert_int_equal(cost_of(&request, &c, &why), OK);
    assert_true(c.moved_bytes < exact);
    tiny_free(&t);
}

static void streaming_and_small_machines(void **state)
{
    (void)state;
    TinyModel t;
    Cost c;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    make_plan(&t);
    plan.role[0].pinned_bytes = 40000000; /* 60 MB streamed at 1 GB/s */
    CostMachine machine = machine_of(10, 0);
    machine.memory_bytes = 100000000; /* alone: 500 MB streamed */
    CostRequest request = {&plan, ROWS_F32, &machine, 1, NULL};
    assert_int_equal(cost_of(&request, &c, &why), OK);
    assert_int_equal(c.streamed_bytes, 60000000);
    near_to(c.seconds, 0.054 + 0.06);
    assert_int_equal(c.alone_streamed_bytes, 500000000);
    near_to(c.alone_seconds, 0.01 + 0.5);
    assert_false(c.alone_is_faster);
    tiny_free(&t);
}

/* Stations in turn, shards beside each other, the fastest machine alone. */
static void several_machines(void **state)
{
    (void)state;
    static const uint32_t where[] = {0, 1, 0, 0, 1, 1};
    TinyModel t;
    Cost c;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    make_plan(&t);
    CostMachine machine[] = {machine_of(10, 100), machine_of(20, 300)};
    CostRequest request = {&plan, ROWS_F32, machine, 2, where};
    assert_int_equal(cost_of(&request, &c, &why), OK);
    double stations = 0.01 + 100e-6 + 0.005 + 300e-6, embed = 300e-6, head = 0.02 + 100e-6;
    near_to(c.seconds, stations + embed + head);
    near_to(c.busy_tokens_per_s, 1 / 0.03);
    assert_int_equal(c.alone_machine, 1);
    near_to(c.alone_seconds, 0.03);
    tiny_free(&t);
}

static void cuts_inside_the_ffn_cost_more(void **state)
{
    (void)state;
    TinyModel t;
    Cost at_layer, inside;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    make_plan(&t);
    CostMachine machine = machine_of(10, 100);
    CostRequest request = {&plan, ROWS_F32, &machine, 1, NULL};
    assert_int_equal(cost_of(&request, &at_layer, &why), OK);
    plan.role[0].range.last = plan.role[1].range.first = phase_bound(1, PHASE_FFN_DOWN);
    assert_int_equal(cost_of(&request, &inside, &why), OK);
    assert_int_equal(inside.moved_bytes, at_layer.moved_bytes + 2 * TINY_FFN * 4);
    tiny_free(&t);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const uint32_t beyond[] = {0, 0, 0, 0, 0, 1};
    TinyModel t;
    Cost c;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    make_plan(&t);
    CostMachine machine = machine_of(10, 100);
    CostRequest request = {&plan, ROWS_F32, &machine, 0, NULL};
    assert_int_equal(cost_of(&request, &c, &why), ERR_RANGE);
    request.machines = COST_MACHINES_MAX + 1;
    assert_int_equal(cost_of(&request, &c, &why), ERR_RANGE);
    request.machines = 1;
    request.role_machine = beyond;
    assert_int_equal(cost_of(&request, &c, &why), ERR_RANGE);
    request.role_machine = NULL;
    machine.bandwidth_gbs = 0;
    assert_int_equal(cost_of(&request, &c, &why), ERR_RANGE);
    machine = machine_of(10, -1);
    assert_int_equal(cost_of(&request, &c, &why), ERR_RANGE);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_machine),         cmocka_unit_test(streaming_and_small_machines),
        cmocka_unit_test(several_machines),    cmocka_unit_test(cuts_inside_the_ffn_cost_more),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
