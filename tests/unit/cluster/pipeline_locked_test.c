/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that answer for their health, but refuse our key: who waits for them is told at once, and they are back when
 * they have our key. */
#include "pipeline_rig.h"

static TinyModel model;

/* Whoever is in `script_node`, as bits, has another key. */
static RigFate fate_of_keys(Rig *rig, const PipelineCall *call)
{
    bool locked = call->node != PIPELINE_OWN && rig->script_node >> call->node & 1;
    return locked && call->path != PIPELINE_HEALTH ? RIG_LOCKED : RIG_WELL;
}

static void open_rig(Rig *rig, const RigShape *shape, uint32_t locked)
{
    rig_open(rig, &model, shape);
    rig->fate = fate_of_keys;
    rig->script_node = locked;
    rig->own_is_there = false;
}

static void ask(Rig *rig, uint32_t slot)
{
    SamplerParams greedy = sampler_defaults();
    pipeline_forget(rig->pipeline, slot);
    coordinator_truncate(rig->coordinator, slot, 0);
    assert_int_equal(coordinator_start(rig->coordinator, slot, &slot, 1, 4, &greedy, NULL), OK);
    rig->ended[slot] = false;
    rig_run(rig, 1500);
    assert_true(rig->ended[slot]);
}

static void assert_refused(Rig *rig, const char *id)
{
    Why why = {{0}};
    assert_int_equal(rig->error[0], ERR_UNREACHABLE);
    assert_non_null(strstr(rig->why[0].text, "the key is another"));
    assert_non_null(strstr(rig->why[0].text, id));
    assert_false(pipeline_is_complete(rig->pipeline, &why));
    assert_non_null(strstr(why.text, "the key is another"));
}

/* Healthy for as long as one likes, it is of no use, and nobody tries it with work. */
static void assert_stays_away(Rig *rig)
{
    uint32_t made = rig->made[PIPELINE_FORWARD] + rig->made[PIPELINE_EMBED];
    for (int i = 0; i < 100; i++) {
        rig_pass(rig, 100);
        assert_false(pipeline_is_complete(rig->pipeline, NULL));
    }
    assert_int_equal(rig->made[PIPELINE_FORWARD] + rig->made[PIPELINE_EMBED], made);
    assert_in_range(rig->made[PIPELINE_DROP], 5, 20);
}

static void assert_comes_back(Rig *rig)
{
    rig->script_node = 0;
    rig_pass(rig, 2500);
    assert_true(pipeline_is_complete(rig->pipeline, NULL));
    ask(rig, 0);
    assert_int_equal(rig->error[0], OK);
    assert_false(pipeline_is_degraded(rig->pipeline, 0));
}

static void station_with_another_key(void **state)
{
    (void)state;
    static Rig rig;
    open_rig(&rig, &(RigShape){.stations = "0-1,1-end", .shards = 2, .chunk = 8, .slots = 2}, 2);
    ask(&rig, 0);
    assert_refused(&rig, rig.nodes[1].id);
    assert_stays_away(&rig);
    assert_comes_back(&rig);
    rig_close(&rig);
}

/* Its rows are not taken as zero, as those of a shard that is lost. */
static void shard_with_another_key(void **state)
{
    (void)state;
    static Rig rig;
    open_rig(&rig, &(RigShape){.stations = "0-1,1-end", .shards = 2, .chunk = 8, .slots = 2}, 24);
    ask(&rig, 0);
    assert_refused(&rig, "shard-");
    assert_stays_away(&rig);
    assert_comes_back(&rig);
    rig_close(&rig);
}

static void replica_with_our_key(void **state)
{
    (void)state;
    static Rig rig;
    RigShape shape = {
        .stations = "0-end", .shards = 1, .replicas_of_stations = 1, .chunk = 8, .slots = 2};
    open_rig(&rig, &shape, 2);
    ask(&rig, 0);
    assert_int_equal(rig.error[0], OK);
    assert_true(pipeline_is_complete(rig.pipeline, NULL));
    rig_close(&rig);
}

/* A node that has died with another key is missed as any other, for as long as patience lasts. */
static void dies_and_comes_back(void **state)
{
    (void)state;
    static Rig rig;
    open_rig(&rig, &(RigShape){.stations = "0-1,1-end", .shards = 1, .chunk = 8, .slots = 2}, 2);
    ask(&rig, 0);
    assert_refused(&rig, rig.nodes[1].id);
    rig.node[1].dead = true;
    rig_pass(&rig, 5000);
    rig.node[1].dead = false;
    rig_restart(&rig, 1);
    assert_comes_back(&rig);
    rig_close(&rig);
}

/* It refuses our key while it is still told to forget a session: that answer is waited for, and no step is made
 * until it has come. */
static void locked_while_it_forgets(void **state)
{
    (void)state;
    static Rig rig;
    open_rig(&rig, &(RigShape){.stations = "0-1,1-end", .shards = 1, .chunk = 8, .slots = 2}, 0);
    ask(&rig, 0);
    assert_int_equal(rig.error[0], OK);
    rig.latency_ns[PIPELINE_DROP] = 500 * RIG_MS;
    pipeline_forget(rig.pipeline, 0);
    rig_pass(&rig, 1);
    assert_int_equal(rig.made[PIPELINE_DROP], 2);
    rig.script_node = 2;
    ask(&rig, 1);
    assert_int_equal(rig.error[1], ERR_UNREACHABLE);
    rig_pass(&rig, 300);
    assert_int_equal(rig.made[PIPELINE_DROP], 2);
    rig_pass(&rig, 500);
    assert_true(pipeline_is_complete(rig.pipeline, NULL));
    rig_close(&rig);
}

/* The script is what becomes of calls to shards. */
static RigFate fate_of_script(Rig *rig, const PipelineCall *call)
{
    bool asked = call->path == PIPELINE_EMBED && call->node != PIPELINE_OWN;
    return asked ? (RigFate)rig->script : RIG_WELL;
}

static void start(Rig *rig, uint32_t slot, RigFate fate, uint64_t ms)
{
    SamplerParams greedy = sampler_defaults();
    rig->script = fate;
    rig->latency_ns[PIPELINE_EMBED] = ms * RIG_MS;
    assert_int_equal(coordinator_start(rig->coordinator, slot, &slot, 1, 4, &greedy, NULL), OK);
}

/* An older call breaks off while a node that refused our key is asked again: that says nothing of the key.
 *
 *   ms           0      10     20                            70       80       100
 *   slot 0       ask ------------------------------------------------ broken
 *   slot 1              ask -- 401, locked
 *   drop                                                     ask ------------- well: the node is back */
static void locked_and_broken_off(void **state)
{
    (void)state;
    static Rig rig;
    open_rig(&rig, &(RigShape){.stations = "0-1,1-end", .shards = 1, .chunk = 8, .slots = 2}, 0);
    rig.fate = fate_of_script;
    rig.latency_ns[PIPELINE_DROP] = 30 * RIG_MS;
    start(&rig, 0, RIG_LOSE_ANSWER, 80);
    rig_pass(&rig, 10);
    start(&rig, 1, RIG_LOCKED, 10);
    rig_pass(&rig, 65);
    assert_int_equal(rig.made[PIPELINE_DROP], 1);
    assert_true(!rig.ended[0] && rig.ended[1] && rig.error[1] == ERR_UNREACHABLE);
    rig_pass(&rig, 2500);
    assert_true(pipeline_is_complete(rig.pipeline, NULL));
    assert_true(rig.ended[0] && rig.error[0] == ERR_UNREACHABLE);
    assert_non_null(strstr(rig.why[0].text, "the key is another"));
    rig.script = RIG_WELL;
    ask(&rig, 0);
    assert_int_equal(rig.error[0], OK);
    rig_close(&rig);
}

static int make_model(void **state)
{
    (void)state;
    tiny_make(&model, true, NULL);
    return 0;
}

static int free_model(void **state)
{
    (void)state;
    tiny_free(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(station_with_another_key), cmocka_unit_test(shard_with_another_key),
        cmocka_unit_test(replica_with_our_key), cmocka_unit_test(dies_and_comes_back),
        cmocka_unit_test(locked_while_it_forgets), cmocka_unit_test(locked_and_broken_off)};
    return cmocka_run_group_tests(tests, make_model, free_model);
}
