/* SPDX-License-Identifier: Apache-2.0 */
/* Stations that keep the embedding or the head, in place of shards or beside them: the tokens are those of one
 * conversation alone, whatever happens to the nodes. */
#include "pipeline_rig.h"

enum { TALKS = 3, SHAPES = 7 };

static TinyModel model;
static RigTalk talks[TALKS];
static uint32_t said[TALKS][RIG_TOKENS_MAX], said_count[TALKS];

static const RigShape shapes[SHAPES] = {
    {.stations = "0-end", .embed = true, .head = true, .chunk = 16, .slots = 3},
    {.stations = "0-1,1-2,2-end", .embed = true, .head = true, .frames = 3, .chunk = 8, .slots = 3},
    {.stations = "0-1,1-1.ffn_up,1.ffn_up-end",
     .embed = true,
     .head = true,
     .chunk = 5,
     .slots = 3},
    {.stations = "0-1,1-end", .shards = 3, .embed = true, .frames = 2, .chunk = 8, .slots = 3},
    {.stations = "0-1,1-end", .shards = 3, .head = true, .frames = 2, .chunk = 8, .slots = 3},
    {.stations = "0-1,1-end",
     .replicas_of_stations = 1,
     .embed = true,
     .head = true,
     .frames = 2,
     .chunk = 8,
     .slots = 3},
    {.stations = "0-1,1-end",
     .shards = 2,
     .replicas_of_stations = 1,
     .replicas_of_shards = 1,
     .head = true,
     .frames = 2,
     .chunk = 8,
     .slots = 3},
};
enum { REPLICAS = 5 }; /* the first shape that has some */

static int make_talks(void **state)
{
    (void)state;
    tiny_make(&model, true, NULL);
    TinyMaker random = {.random = 9};
    static const uint32_t prompts[TALKS] = {30, 2, 11}, answers[TALKS] = {7, 12, 9};
    for (uint32_t t = 0; t < TALKS; t++) {
        talks[t] = (RigTalk){
            .prompt_count = prompts[t], .tokens_max = answers[t], .params = sampler_defaults()};
        for (uint32_t i = 0; i < prompts[t]; i++)
            talks[t].prompt[i] = tiny_random(&random) % TINY_VOCABULARY;
    }
    talks[1].params.temperature = 1.2f;
    talks[1].params.top_p = 0.99f;
    talks[1].params.seed = 3;
    talks[2].params.repetition_penalty = 1.3f;
    for (uint32_t t = 0; t < TALKS; t++) said_count[t] = rig_solo(&model, &talks[t], said[t]);
    return 0;
}

static int free_talks(void **state)
{
    (void)state;
    tiny_free(&model);
    return 0;
}

static void start_all(Rig *rig)
{
    for (uint32_t t = 0; t < TALKS; t++) {
        rig->ended[t] = false;
        assert_int_equal(coordinator_start(rig->coordinator, t, talks[t].prompt,
                                           talks[t].prompt_count, talks[t].tokens_max,
                                           &talks[t].params, NULL),
                         OK);
    }
}

static void run_all(Rig *rig, uint64_t ms)
{
    start_all(rig);
    rig_run(rig, ms);
    for (uint32_t t = 0; t < TALKS; t++) {
        uint32_t count;
        if (rig->error[t] != OK) fail_msg("slot %u: %s", t, rig->why[t].text);
        const uint32_t *tokens = coordinator_tokens(rig->coordinator, t, &count);
        assert_int_equal(count, said_count[t]);
        assert_memory_equal(tokens, said[t], count * sizeof *tokens);
        assert_false(pipeline_is_degraded(rig->pipeline, t));
    }
}

static bool is_asked(const Rig *rig, const PipelineCall *c)
{
    if (c->node == PIPELINE_OWN) return true;
    const ClusterNode *n = &rig->nodes[c->node];
    uint32_t last = rig->file.parts[CLUSTER_STATION] - 1;
    const ClusterNode *first_node = &rig->nodes[cluster_file_part(&rig->file, CLUSTER_STATION, 0)],
                      *last_node =
                          &rig->nodes[cluster_file_part(&rig->file, CLUSTER_STATION, last)];
    if (c->path == PIPELINE_EMBED) return first_node->embed ? n->embed : n->role == CLUSTER_SHARD;
    if (c->path == PIPELINE_LOGITS) return last_node->head ? n->head : n->role == CLUSTER_SHARD;
    return true;
}

static RigFate check_call(Rig *rig, const PipelineCall *c)
{
    assert_true(is_asked(rig, c));
    return RIG_WELL;
}

static void same_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        Rig rig;
        Why why = {{0}};
        rig_open(&rig, &model, &shapes[i]);
        rig.fate = check_call;
        run_all(&rig, 60000);
        assert_int_equal(pipeline_replays(rig.pipeline), 0);
        assert_true(pipeline_is_complete(rig.pipeline, &why));
        rig_close(&rig);
    }
}

/* One embed call a frame, and one logits call. */
static void one_call_a_stage(void **state)
{
    (void)state;
    Rig rig;
    RigShape shape = shapes[1];
    shape.slots = 1;
    rig_open(&rig, &model, &shape);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(coordinator_start(rig.coordinator, 0, prompt, 8, 5, &greedy, NULL), OK);
    rig_run(&rig, 1000);
    assert_int_equal(rig.made[PIPELINE_EMBED], 5);
    assert_int_equal(rig.made[PIPELINE_LOGITS], 5);
    assert_int_equal(rig.made[PIPELINE_FORWARD], 15);
    rig_close(&rig);
}

/* ---- Faults */

/* Each kind of fault comes to every third call of a path. */
static RigFate every_third(Rig *rig, const PipelineCall *c)
{
    static const RigFate fates[] = {RIG_LOSE_ANSWER,    RIG_REFUSED, RIG_CORRUPT_REQUEST,
                                    RIG_CORRUPT_ANSWER, RIG_BUSY,    RIG_SLOW,
                                    RIG_CUT_ANSWER};
    enum { FATES = sizeof fates / sizeof fates[0] };
    assert_true(is_asked(rig, c));
    if (c->node == PIPELINE_OWN || c->path > PIPELINE_LOGITS || ++rig->script % 3) return RIG_WELL;
    return fates[(uint32_t)rig->script / 3 % FATES];
}

static void calls_fail(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        Rig rig;
        rig_open(&rig, &model, &shapes[i]);
        rig.fate = every_third;
        run_all(&rig, 600000);
        rig_close(&rig);
    }
}

/* Every node in turn dies in the midst, and is started again a second later. */
static void die_for_a_while(Rig *rig)
{
    uint32_t node = rig->script_node;
    if (rig->script == 0 && rig->made[PIPELINE_FORWARD] >= 6) {
        rig->node[node].dead = true;
        rig->script = 1;
        rig->script_ns = rig->now_ns + 1000 * RIG_MS;
    } else if (rig->script == 1 && rig->now_ns >= rig->script_ns) {
        rig_restart(rig, node);
        rig->script = 2;
    }
}

static void nodes_die(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (uint32_t node = 1;; node++) {
            Rig rig;
            rig_open(&rig, &model, &shapes[i]);
            rig.tick = die_for_a_while;
            rig.script_node = node;
            bool last = node + 1 == rig.file.node_count;
            run_all(&rig, 600000);
            assert_int_equal(pipeline_degraded(rig.pipeline), 0);
            rig_close(&rig);
            if (last) break;
        }
}

/* A replica takes over for good, with the embedding and the head that it has too; nobody waits for the dead. */
static void replicas_take_over(void **state)
{
    (void)state;
    for (int i = REPLICAS; i < SHAPES; i++)
        for (uint32_t node = 1; node <= 4; node++) {
            Rig rig;
            Why why = {{0}};
            rig_open(&rig, &model, &shapes[i]);
            rig.own_is_there = false;
            rig.node[node].dead = true;
            run_all(&rig, 60000);
            assert_true(pipeline_is_complete(rig.pipeline, &why));
            rig_close(&rig);
        }
}

/* Without the station nothing goes on: its loss is told once, by its own name. */
static void station_stays_away(void **state)
{
    (void)state;
    Rig rig;
    Why why = {{0}};
    rig_open(&rig, &model, &shapes[1]);
    rig.node[1].dead = true;
    start_all(&rig);
    rig_run(&rig, 120000);
    for (uint32_t t = 0; t < TALKS; t++) assert_int_equal(rig.error[t], ERR_UNREACHABLE);
    assert_false(pipeline_is_complete(rig.pipeline, &why));
    assert_non_null(strstr(why.text, "range of"));
    assert_non_null(strstr(why.text, "station-0"));
    rig_restart(&rig, 1);
    rig_pass(&rig, 5000);
    assert_true(pipeline_is_complete(rig.pipeline, &why));
    for (uint32_t t = 0; t < TALKS; t++) {
        pipeline_forget(rig.pipeline, t);
        rig.error[t] = OK;
    }
    run_all(&rig, 60000);
    rig_close(&rig);
}

/* ---- What cannot be */

static void who_has_nothing_is_refused(void **state)
{
    (void)state;
    static const RigShape bad[] = {{.stations = "0-1,1-end", .chunk = 8, .slots = 1},
                                   {.stations = "0-end", .embed = true, .chunk = 8, .slots = 1},
                                   {.stations = "0-1,1-end", .head = true, .chunk = 8, .slots = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Rig rig = {.model = &model};
        Why why = {{0}};
        uint8_t memory[64];
        Arena arena = arena_make(memory, sizeof memory);
        Pipeline *p;
        rig_make_file(&rig, &bad[i]);
        PipelineConfig config = {
            .cluster = &rig.file, .hyper = &model.hyper, .slots = 1, .logit_rows = 1};
        assert_int_equal(pipeline_bytes(&config), 0);
        assert_int_equal(pipeline_build(&config, NULL, &arena, &p, &why), ERR_UNSUPPORTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_tokens),
                                       cmocka_unit_test(one_call_a_stage),
                                       cmocka_unit_test(calls_fail),
                                       cmocka_unit_test(nodes_die),
                                       cmocka_unit_test(replicas_take_over),
                                       cmocka_unit_test(station_stays_away),
                                       cmocka_unit_test(who_has_nothing_is_refused)};
    return cmocka_run_group_tests(tests, make_talks, free_talks);
}
