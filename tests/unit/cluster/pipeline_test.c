/* SPDX-License-Identifier: Apache-2.0 */
/* Frames through a cluster of real stations and shards: whatever happens to calls and nodes, the tokens are those of
 * one conversation alone in one process. */
#include "pipeline_rig.h"

enum { TALKS = 4 };

static TinyModel model;
static RigTalk talks[TALKS];
static uint32_t said[TALKS][RIG_TOKENS_MAX], said_count[TALKS];

static const RigShape usual = {
    .stations = "0-1,1-2,2-end", .shards = 3, .frames = 3, .chunk = 8, .slots = 4};
static const RigShape with_replicas = {.stations = "0-1,1-end",
                                       .shards = 2,
                                       .replicas_of_stations = 1,
                                       .replicas_of_shards = 1,
                                       .frames = 2,
                                       .chunk = 8,
                                       .slots = 4};

static SamplerBias biases[2] = {{17, 2.5f}, {90, -100.0f}};

static int make_talks(void **state)
{
    (void)state;
    tiny_make(&model, true, NULL);
    TinyMaker random = {.random = 5};
    static const uint32_t prompts[TALKS] = {33, 3, 20, 1}, answers[TALKS] = {8, 13, 6, 10};
    for (uint32_t t = 0; t < TALKS; t++) {
        talks[t] = (RigTalk){
            .prompt_count = prompts[t], .tokens_max = answers[t], .params = sampler_defaults()};
        for (uint32_t i = 0; i < prompts[t]; i++)
            talks[t].prompt[i] = tiny_random(&random) % TINY_VOCABULARY;
    }
    talks[1].params.temperature = 0.9f;
    talks[1].params.top_p = 0.95f;
    talks[1].params.seed = 42;
    talks[1].params.repetition_penalty = 1.3f;
    talks[2].params.temperature = 1.5f;
    talks[2].params.seed = 7;
    talks[2].params.bias = biases;
    talks[2].params.bias_count = 2;
    talks[3].params.frequency_penalty = 0.5f;
    talks[3].params.repeat_window = 8;
    for (uint32_t t = 0; t < TALKS; t++) said_count[t] = rig_solo(&model, &talks[t], said[t]);
    return 0;
}

static int free_talks(void **state)
{
    (void)state;
    tiny_free(&model);
    return 0;
}

static void start(Rig *rig, uint32_t slot)
{
    const RigTalk *t = &talks[slot % TALKS];
    rig->ended[slot] = false;
    rig->error[slot] = OK;
    assert_int_equal(coordinator_start(rig->coordinator, slot, t->prompt, t->prompt_count,
                                       t->tokens_max, &t->params, NULL),
                     OK);
}

static void expect_said(Rig *rig, uint32_t slot)
{
    uint32_t count, t = slot % TALKS;
    if (rig->error[slot] != OK) fail_msg("slot %u: %s", slot, rig->why[slot].text);
    assert_true(rig->ended[slot]);
    const uint32_t *tokens = coordinator_tokens(rig->coordinator, slot, &count);
    assert_int_equal(count, said_count[t]);
    assert_memory_equal(tokens, said[t], count * sizeof *tokens);
}

/* All talks at once; the answers are those of each alone. */
static void run_all(Rig *rig, uint64_t ms)
{
    for (uint32_t i = 0; i < TALKS; i++) start(rig, i);
    rig_run(rig, ms);
    for (uint32_t i = 0; i < TALKS; i++) expect_said(rig, i);
    for (uint32_t i = 0; i < RIG_NODES_MAX; i++) assert_true(rig->most_at_once[i] <= 1);
}

/* ---- Every topology ---- */

static void same_tokens_for_every_topology(void **state)
{
    (void)state;
    static const RigShape shapes[] = {
        {.stations = "0-end", .shards = 1, .frames = 1, .chunk = 64, .slots = 4},
        {.stations = "0-end", .shards = 8, .frames = 2, .chunk = 5, .slots = 4},
        {.stations = "0-1,1-2,2-end", .shards = 3, .frames = 1, .chunk = 8, .slots = 4},
        {.stations = "0-1,1-2,2-end", .shards = 3, .frames = 3, .chunk = 8, .slots = 4},
        {.stations = "0-1,1-1.ffn_up,1.ffn_up-2.ffn_down,2.ffn_down-end",
         .shards = 2,
         .frames = 4,
         .chunk = 7,
         .slots = 4},
        {.stations = "0-1,1-end", .shards = 2, .frames = 7, .chunk = 1, .slots = 4},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        Rig rig;
        rig_open(&rig, &model, &shapes[i]);
        run_all(&rig, 60000);
        assert_int_equal(pipeline_replays(rig.pipeline), 0);
        assert_int_equal(pipeline_degraded(rig.pipeline), 0);
        rig_close(&rig);
    }
}

/* Elements that are not exact: the same for every timing, and close to the same. */
static void short_elements_pass(void **state)
{
    (void)state;
    static const RowsElement elements[] = {ROWS_F16, ROWS_INT8};
    for (int e = 0; e < 2; e++) {
        uint32_t tokens[RIG_TOKENS_MAX], count = 0, again;
        for (uint32_t frames = 1; frames <= 3; frames++) {
            Rig rig;
            RigShape shape = usual;
            shape.element = elements[e];
            shape.frames = frames;
            rig_open(&rig, &model, &shape);
            for (uint32_t i = 0; i < TALKS; i++) start(&rig, i);
            rig_run(&rig, 60000);
            assert_int_equal(rig.error[0], OK);
            const uint32_t *got = coordinator_tokens(rig.coordinator, 0, &again);
            if (frames == 1) memcpy(tokens, got, (count = again) * sizeof *got);
            assert_int_equal(again, count);
            assert_memory_equal(got, tokens, count * sizeof *got);
            rig_close(&rig);
        }
    }
}

/* ---- How many calls, and how long ---- */

static uint32_t shards_that_own(const Rig *rig, const uint32_t *ids, uint32_t count)
{
    uint32_t owners = 0;
    for (uint32_t n = 0; n < rig->file.node_count; n++) {
        bool any = false;
        for (uint32_t i = 0; i < count && rig->nodes[n].role == CLUSTER_SHARD; i++)
            any |= ids[i] >= rig->nodes[n].id_first && ids[i] < rig->nodes[n].id_last;
        owners += any;
    }
    return owners;
}

static void calls_of_a_frame(void **state)
{
    (void)state;
    Rig rig;
    RigShape shape = usual;
    shape.shards = 8;
    rig_open(&rig, &model, &shape);
    RigTalk one = {.prompt = {3, 4, 290, 5}, .prompt_count = 4, .tokens_max = 1};
    one.params = sampler_defaults();
    assert_int_equal(coordinator_start(rig.coordinator, 0, one.prompt, 4, 1, &one.params, NULL),
                     OK);
    rig_run(&rig, 1000);
    assert_int_equal(rig.made[PIPELINE_EMBED], shards_that_own(&rig, one.prompt, 4));
    assert_int_equal(rig.made[PIPELINE_EMBED], 2);
    assert_int_equal(rig.made[PIPELINE_FORWARD], 3);
    assert_int_equal(rig.made[PIPELINE_LOGITS], 8);
    /* Prefill only: nothing of the head. */
    assert_int_equal(coordinator_start(rig.coordinator, 1, one.prompt, 4, 0, &one.params, NULL),
                     OK);
    rig_run(&rig, 1000);
    assert_int_equal(rig.made[PIPELINE_FORWARD], 6);
    assert_int_equal(rig.made[PIPELINE_LOGITS], 8);
    rig_close(&rig);
}

/* Who looks at the cluster sees what each kind of call took, and each stage. */
static void what_calls_take(void **state)
{
    (void)state;
    Rig rig;
    RigShape shape = usual;
    PipelineNode node;
    PipelineStages stages;
    shape.shards = 1;
    rig_open(&rig, &model, &shape);
    pipeline_stages(rig.pipeline, &stages);
    assert_int_equal(stages.frames + stages.rows, 0);
    RigTalk one = {.prompt = {3, 4, 290, 5}, .prompt_count = 4, .tokens_max = 1};
    one.params = sampler_defaults();
    assert_int_equal(coordinator_start(rig.coordinator, 0, one.prompt, 4, 1, &one.params, NULL),
                     OK);
    rig_run(&rig, 1000);
    pipeline_stages(rig.pipeline, &stages);
    assert_int_equal(stages.frames, 1);
    assert_int_equal(stages.rows, 4);
    for (uint32_t i = 0; i < PIPELINE_HOPS; i++) {
        uint32_t calls = i == PIPELINE_FORWARD ? 3 : 1;
        assert_int_equal(stages.us[i], calls * rig.latency_ns[i] / 1000);
    }
    for (uint32_t n = 0; n < rig.file.node_count; n++) {
        bool is_station = rig.nodes[n].role == CLUSTER_STATION;
        if (!is_station && rig.nodes[n].role != CLUSTER_SHARD) continue;
        pipeline_node(rig.pipeline, n, &node);
        assert_int_equal(node.hops[PIPELINE_FORWARD].rows, is_station ? 4 : 0);
        assert_int_equal(node.hops[PIPELINE_EMBED].rows, is_station ? 0 : 4);
        assert_int_equal(node.hops[PIPELINE_LOGITS].rows, is_station ? 0 : 1);
        const PipelineHop *hop = &node.hops[is_station ? PIPELINE_FORWARD : PIPELINE_EMBED];
        assert_int_equal(hop->us, rig.latency_ns[is_station ? PIPELINE_FORWARD : 0] / 1000);
        assert_true(hop->bytes_sent > 0 && hop->bytes_received > 0);
        assert_true(hop->bytes_sent <= node.bytes_sent);
    }
    rig_close(&rig);
}

/* A prompt of P rows in chunks of B through S stations: ceil(P / B) + S - 1 steps. */
static void prefill_is_pipelined(void **state)
{
    (void)state;
    static const struct {
        const char *stations;
        uint32_t count, prompt, chunk;
    } cases[] = {
        {"0-1,1-2,2-2.ffn_up,2.ffn_up-end", 4, 20, 5},
        {"0-1,1-2,2-2.ffn_up,2.ffn_up-end", 4, 180, 5},
        {"0-1,1-2,2-2.ffn_up,2.ffn_up-end", 4, 3, 5},
        {"0-1,1-end", 2, 101, 10},
        {"0-end", 1, 64, 8},
        {"0-1,1-2,2-end", 3, 9, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Rig rig;
        uint32_t prompt[RIG_TOKENS_MAX], chunk = cases[i].chunk;
        SamplerParams greedy = sampler_defaults();
        RigShape shape = {.stations = cases[i].stations, .shards = 2, .chunk = chunk, .slots = 1};
        for (uint32_t t = 0; t < cases[i].prompt; t++) prompt[t] = t;
        rig_open(&rig, &model, &shape);
        assert_int_equal(
            coordinator_start(rig.coordinator, 0, prompt, cases[i].prompt, 1, &greedy, NULL), OK);
        rig_run(&rig, 1000);
        uint64_t steps = (rig.forward_last_ns - rig.forward_first_ns) / RIG_MS;
        uint32_t chunks = (cases[i].prompt + chunk - 1) / chunk;
        assert_int_equal(steps, chunks + cases[i].count - 1);
        assert_int_equal(rig.made[PIPELINE_FORWARD], chunks * cases[i].count);
        rig_close(&rig);
    }
}

/* Four answers on four stations: each station has one of them at any time. */
static void answers_fill_the_stations(void **state)
{
    (void)state;
    Rig rig;
    RigShape shape = {
        .stations = "0-1,1-2,2-2.ffn_up,2.ffn_up-end", .shards = 2, .chunk = 8, .slots = 4};
    SamplerParams greedy = sampler_defaults();
    rig_open(&rig, &model, &shape);
    rig.latency_ns[PIPELINE_EMBED] = rig.latency_ns[PIPELINE_LOGITS] = 1;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(coordinator_start(rig.coordinator, i, &i, 1, 25, &greedy, NULL), OK);
    rig_run(&rig, 1000);
    uint64_t steps = (rig.forward_last_ns - rig.forward_first_ns) / RIG_MS;
    assert_int_equal(rig.made[PIPELINE_FORWARD], 4 * 25 * 4);
    assert_in_range(steps, 100, 104); /* one after the other: 400 */
    rig_close(&rig);
}

/* ---- Calls that fail ---- */

/* The first calls of one path go wrong in one way, then every seventh. */
static RigFate fate_of_script(Rig *rig, const PipelineCall *call)
{
    if (call->path != (PipelinePath)(rig->script_node)) return RIG_WELL;
    uint32_t n = rig->made[call->path];
    return n == 1 || n % 7 == 3 ? (RigFate)rig->script : RIG_WELL;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    static const RigFate fates[] = {RIG_LOSE_ANSWER,    RIG_REFUSED,    RIG_CORRUPT_REQUEST,
                                    RIG_CORRUPT_ANSWER, RIG_CUT_ANSWER, RIG_BUSY,
                                    RIG_FOREIGN,        RIG_SLOW,       RIG_LOSE_REQUEST};
    const RigShape *shapes[] = {&usual, &with_replicas};
    for (size_t f = 0; f < sizeof fates / sizeof fates[0]; f++)
        for (uint32_t path = PIPELINE_EMBED; path <= PIPELINE_LOGITS; path++)
            for (int s = 0; s < 2; s++) {
                Rig rig;
                rig_open(&rig, &model, shapes[s]);
                rig.fate = fate_of_script;
                rig.script = fates[f];
                rig.script_node = path;
                run_all(&rig, 3600000);
                assert_int_equal(pipeline_degraded(rig.pipeline), 0);
                rig_close(&rig);
            }
}

/* ---- A station that loses what it held ---- */

static void restart_stations_now_and_then(Rig *rig)
{
    if (rig->now_ns < rig->script_ns) return;
    rig->script_ns = rig->now_ns + 37 * RIG_MS;
    uint32_t stations = rig->file.parts[CLUSTER_STATION];
    rig_restart(rig, 1 + (uint32_t)(rig->script++) % stations);
}

static void restarted_stations_are_replayed(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.tick = restart_stations_now_and_then;
    rig.script_ns = rig.now_ns + 20 * RIG_MS;
    run_all(&rig, 60000);
    assert_true(pipeline_replays(rig.pipeline) > 0);
    rig_close(&rig);
}

/* What the station holds is shorter than what the frame builds on: 409 with the position. */
static void cut_sessions_are_replayed(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    for (uint32_t i = 0; i < TALKS; i++) start(&rig, i);
    rig_pass(&rig, 40);
    for (uint32_t slot = 0; slot < 4; slot++)
        station_truncate(rig.node[2].station, slot, station_length(rig.node[2].station, slot) / 2);
    rig_run(&rig, 60000);
    for (uint32_t i = 0; i < TALKS; i++) expect_said(&rig, i);
    PipelineNode node;
    pipeline_node(rig.pipeline, 2, &node);
    assert_true(node.replays > 0);
    rig_close(&rig);
}

static RigFate one_is_late(Rig *rig, const PipelineCall *call)
{
    if (call->path != PIPELINE_FORWARD || call->node != 2) return RIG_WELL;
    return rig->script++ == 9 ? RIG_LATE : RIG_WELL;
}

/* A request that was given up arrives behind its retry: it must not change anything. */
static void a_late_twin_is_refused(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.fate = one_is_late;
    run_all(&rig, 300000);
    assert_int_equal(rig.late_error, ERR_SUPERSEDED);
    rig_close(&rig);
}

/* A session that nobody can hold: an end with an error, not a loop. */
static void forget_all(Rig *rig)
{
    for (uint32_t i = 1; i <= 4; i++)
        station_service_drop(rig->node[2].station_service, (uint64_t)1700000000 << 32 | i);
}

static void endless_replays_end(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.tick = forget_all;
    start(&rig, 0);
    rig_run(&rig, 60000);
    assert_int_equal(rig.error[0], ERR_SESSION);
    assert_true(rig.ended[0]);
    rig_close(&rig);
}

/* ---- Nodes that are away ---- */

static void at_ns(Rig *rig)
{
    if (rig->script && rig->now_ns >= rig->script_ns) {
        RigNode *n = &rig->node[rig->script_node];
        if (rig->script == 1) n->dead = true;
        if (rig->script == 2) n->frozen = true;
        if (rig->script == 3) {
            n->dead = n->frozen = false;
            rig_restart(rig, rig->script_node);
        }
        if (rig->script == 4) n->frozen = false;
        rig->script = 0;
    }
}

/* Each node dies or freezes for good, at many moments: its replica takes over. */
static void replicas_take_over(void **state)
{
    (void)state;
    for (uint32_t node = 1; node <= 8; node++)
        for (int how = 1; how <= 2; how++)
            for (uint64_t ms = 0; ms < 60; ms += 31) {
                Rig rig;
                rig_open(&rig, &model, &with_replicas);
                rig.tick = at_ns;
                rig.script = how;
                rig.script_node = node;
                rig.script_ns = rig.now_ns + ms * RIG_MS;
                uint64_t begin = rig.now_ns;
                run_all(&rig, 60000);
                assert_true(rig.forward_last_ns - begin < 5000 * RIG_MS);
                assert_int_equal(pipeline_degraded(rig.pipeline), 0);
                rig_close(&rig);
            }
}

static RigFate first_station_drains(Rig *rig, const PipelineCall *call)
{
    bool drains = call->node == 1 && call->path <= PIPELINE_LOGITS;
    return drains && rig->now_ns >= rig->script_ns ? RIG_BUSY : RIG_WELL;
}

/* Alive, but of no use: 503 to every frame. */
static void a_replica_takes_over_from_who_drains(void **state)
{
    (void)state;
    for (uint64_t ms = 0; ms < 40; ms += 11) {
        Rig rig;
        PipelineNode node;
        rig_open(&rig, &model, &with_replicas);
        rig.fate = first_station_drains;
        uint64_t begin = rig.now_ns;
        rig.script_ns = begin + ms * RIG_MS;
        run_all(&rig, 60000);
        assert_true(rig.forward_last_ns - begin < 1000 * RIG_MS);
        pipeline_node(rig.pipeline, 2, &node);
        assert_true(node.active && node.replays == 1);
        rig_close(&rig);
    }
}

static RigFate one_of_both_is_busy(Rig *rig, const PipelineCall *call)
{
    bool fails = call->node == rig->script_node && call->path == PIPELINE_FORWARD;
    rig->script += fails;
    return fails ? RIG_BUSY : RIG_WELL;
}

/* Two nodes of a range that are of no use in turn, with time between: each turn is as quick as the first. */
static void failures_of_long_ago_are_forgiven(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &with_replicas);
    rig.fate = one_of_both_is_busy;
    for (uint32_t turn = 0; turn < 10; turn++) {
        rig.script = 0;
        rig.script_node = 1 + turn % 2;
        start(&rig, 0);
        rig_run(&rig, 60000);
        expect_said(&rig, 0);
        assert_int_equal(rig.script, 2);
        pipeline_forget(rig.pipeline, 0);
        rig_pass(&rig, 6000);
    }
    rig_close(&rig);
}

static RigFate first_station_forgets(Rig *rig, const PipelineCall *call)
{
    (void)rig;
    return call->node == 1 && call->path == PIPELINE_FORWARD ? RIG_LOST : RIG_WELL;
}

/* It says that it is well, and has no session of anybody's. */
static void a_replica_takes_over_from_who_forgets(void **state)
{
    (void)state;
    Rig rig;
    PipelineNode node;
    rig_open(&rig, &model, &with_replicas);
    rig.fate = first_station_forgets;
    run_all(&rig, 60000);
    pipeline_node(rig.pipeline, 2, &node);
    assert_true(node.active);
    rig_close(&rig);
}

/* A station without a replica dies and is started again, or freezes and goes on: only time is lost. */
static void a_station_comes_back(void **state)
{
    (void)state;
    for (int how = 1; how <= 2; how++)
        for (uint64_t ms = 1; ms < 60; ms += 19) {
            Rig rig;
            rig_open(&rig, &model, &usual);
            rig.tick = at_ns;
            rig.script = how;
            rig.script_node = 2;
            rig.script_ns = rig.now_ns + ms * RIG_MS;
            for (uint32_t i = 0; i < TALKS; i++) start(&rig, i);
            rig_pass(&rig, 8000);
            assert_true(pipeline_is_busy(rig.pipeline));
            Why why = {{0}};
            assert_false(pipeline_is_complete(rig.pipeline, &why));
            assert_non_null(strstr(why.text, "station-1"));
            rig.script = how == 1 ? 3 : 4;
            rig.script_ns = rig.now_ns;
            rig_run(&rig, 60000);
            for (uint32_t i = 0; i < TALKS; i++) expect_said(&rig, i);
            assert_true(pipeline_is_complete(rig.pipeline, NULL));
            rig_close(&rig);
        }
}

static void patience_ends(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.node[3].dead = true;
    for (uint32_t i = 0; i < TALKS; i++) start(&rig, i);
    uint64_t begin = rig.now_ns;
    rig_run(&rig, 60000);
    assert_in_range((rig.now_ns - begin) / RIG_MS, 29000, 32000);
    for (uint32_t i = 0; i < TALKS; i++) {
        assert_int_equal(rig.error[i], ERR_UNREACHABLE);
        assert_non_null(strstr(rig.why[i].text, "station-2"));
        assert_non_null(strstr(rig.why[i].text, "refused"));
    }
    rig.node[3].dead = false;
    rig_pass(&rig, 3000);
    for (uint32_t i = 0; i < TALKS; i++) pipeline_forget(rig.pipeline, i);
    run_all(&rig, 60000);
    rig_close(&rig);
}

/* ---- Shards: own store, zero rows, hedges ---- */

static void the_own_store_helps(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.node[5].dead = true;
    uint64_t begin = rig.now_ns;
    run_all(&rig, 60000);
    assert_true(rig.forward_last_ns - begin < 1000 * RIG_MS);
    assert_int_equal(pipeline_degraded(rig.pipeline), 0);
    rig_close(&rig);
}

static void zero_rows_are_flagged(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.node[5].dead = true;
    rig.own_is_there = false;
    start(&rig, 0);
    rig_run(&rig, 60000);
    assert_int_equal(rig.error[0], OK);
    assert_true(rig.ended[0]);
    assert_true(pipeline_is_degraded(rig.pipeline, 0));
    assert_true(pipeline_degraded(rig.pipeline) > 0);
    /* The shard is back: nothing of the degraded answer is used for the next one. */
    rig.node[5].dead = false;
    rig_pass(&rig, 3000);
    coordinator_truncate(rig.coordinator, 0, talks[0].prompt_count);
    assert_false(pipeline_is_degraded(rig.pipeline, 0));
    assert_int_equal(coordinator_fed(rig.coordinator, 0), 0);
    assert_int_equal(
        coordinator_start(rig.coordinator, 0, NULL, 0, talks[0].tokens_max, &talks[0].params, NULL),
        OK);
    rig_run(&rig, 60000);
    expect_said(&rig, 0);
    rig_close(&rig);
}

/* A shard that is away for less than three seconds costs time, not the answer. */
static void a_shard_comes_back(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.tick = at_ns;
    rig.node[5].dead = true;
    rig.own_is_there = false;
    rig.script = 3;
    rig.script_node = 5;
    rig.script_ns = rig.now_ns + 1500 * RIG_MS;
    run_all(&rig, 60000);
    assert_int_equal(pipeline_degraded(rig.pipeline), 0);
    rig_close(&rig);
}

static RigFate slow_at_times(Rig *rig, const PipelineCall *call)
{
    (void)rig;
    bool shard = call->path == PIPELINE_EMBED || call->path == PIPELINE_LOGITS;
    return shard && rig->made[call->path] % 10 == 9 ? RIG_SLOW : RIG_WELL;
}

static void slow_shards_are_hedged(void **state)
{
    (void)state;
    Rig rig;
    uint64_t hedges = 0;
    rig_open(&rig, &model, &with_replicas);
    rig.fate = slow_at_times;
    run_all(&rig, 60000);
    for (uint32_t i = 0; i < rig.file.node_count; i++) {
        PipelineNode node;
        pipeline_node(rig.pipeline, i, &node);
        hedges += node.hedges;
    }
    assert_true(hedges > 3);
    rig_close(&rig);
}

/* ---- Stops ---- */

static void stopped_slots_are_forgotten(void **state)
{
    (void)state;
    Rig rig;
    for (uint64_t ms = 1; ms < 40; ms += 3) {
        rig_open(&rig, &model, &usual);
        for (uint32_t i = 0; i < TALKS; i++) start(&rig, i);
        rig_pass(&rig, ms);
        coordinator_stop(rig.coordinator, 1);
        pipeline_forget(rig.pipeline, 1);
        while (coordinator_is_under_way(rig.coordinator, 1)) rig_pass(&rig, 1);
        uint32_t count;
        (void)coordinator_tokens(rig.coordinator, 1, &count);
        assert_int_equal(count, 0);
        start(&rig, 1);
        rig_run(&rig, 60000);
        for (uint32_t i = 0; i < TALKS; i++) expect_said(&rig, i);
        for (uint32_t i = 0; i < TALKS; i++) pipeline_forget(rig.pipeline, i);
        rig_pass(&rig, 100);
        for (uint32_t i = 1; i <= 3; i++)
            assert_int_equal(station_service_sessions(rig.node[i].station_service), 0);
        assert_int_equal(rig.made[PIPELINE_DROP], 15);
        rig_close(&rig);
    }
}

/* A long prompt that nobody waits for any more: its frames are given up at once, the others' are not. */
static void unwanted_prompts_are_given_up(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.latency_ns[PIPELINE_FORWARD] = 500 * RIG_MS;
    start(&rig, 1);
    rig_pass(&rig, 10);
    start(&rig, 0);
    rig_pass(&rig, 700);
    assert_true(coordinator_is_under_way(rig.coordinator, 0));
    coordinator_stop(rig.coordinator, 0);
    rig_pass(&rig, 1);
    assert_false(coordinator_is_under_way(rig.coordinator, 0));
    assert_true(coordinator_is_under_way(rig.coordinator, 1));
    start(&rig, 2);
    rig_run(&rig, 600000);
    expect_said(&rig, 1);
    expect_said(&rig, 2);
    rig_close(&rig);
}

/* Who leaves while a station is away frees the slot at once, and the others go on waiting. */
static void a_stopped_slot_does_not_wait(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    rig.node[2].dead = true;
    start(&rig, 0);
    rig_pass(&rig, 500);
    assert_true(coordinator_is_under_way(rig.coordinator, 0));
    coordinator_stop(rig.coordinator, 0);
    rig_pass(&rig, 1);
    assert_false(coordinator_is_under_way(rig.coordinator, 0));
    assert_false(pipeline_is_busy(rig.pipeline));
    rig_close(&rig);
}

/* ---- Failures of a request's own ---- */

/* All ids forbidden: that request ends with an error, the others do not notice. */
static void failures_are_isolated(void **state)
{
    (void)state;
    Rig rig;
    rig_open(&rig, &model, &usual);
    SamplerBias forbid[TINY_VOCABULARY];
    for (uint32_t i = 0; i < TINY_VOCABULARY; i++) forbid[i] = (SamplerBias){i, -100};
    SamplerParams none = sampler_defaults();
    none.bias = forbid;
    none.bias_count = TINY_VOCABULARY;
    start(&rig, 0);
    start(&rig, 1);
    assert_int_equal(coordinator_start(rig.coordinator, 2, talks[2].prompt, 20, 4, &none, NULL),
                     OK);
    memset(forbid, 0, sizeof forbid); /* the coordinator has its own */
    start(&rig, 3);
    rig_run(&rig, 60000);
    assert_int_equal(rig.error[2], ERR_NOT_FINITE);
    expect_said(&rig, 0);
    expect_said(&rig, 1);
    expect_said(&rig, 3);
    rig_close(&rig);
}

/* Two answers end at once; before the second end is read its slot is another answer's. */
static void old_events_are_nobodys(void **state)
{
    (void)state;
    Rig rig;
    CoordinatorEvent event;
    rig_open(&rig, &model, &usual);
    rig.node[2].dead = true;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            coordinator_start(rig.coordinator, i, talks[1].prompt, 3, 5, &talks[1].params, NULL),
            OK);
    rig_pass(&rig, 29000);
    while (coordinator_is_active(rig.coordinator, 0)) {
        rig.now_ns += 10 * RIG_MS;
        pipeline_advance(rig.pipeline, rig.now_ns);
    }
    assert_true(pipeline_next_event(rig.pipeline, &event, NULL));
    assert_true(event.ended && event.error == ERR_UNREACHABLE);
    uint32_t other = !event.slot;
    assert_false(coordinator_is_active(rig.coordinator, other));
    coordinator_truncate(rig.coordinator, other, 0);
    start(&rig, other);
    assert_false(pipeline_next_event(rig.pipeline, &event, NULL));
    rig_close(&rig);
}

static void wrong_clusters_are_refused(void **state)
{
    (void)state;
    Rig rig;
    Why why = {{0}};
    rig_open(&rig, &model, &usual);
    PipelineConfig config = {
        .cluster = &rig.file, .hyper = &model.hyper, .slots = 4, .logit_rows = 1, .frames = 2};
    Pipeline *p;
    Arena none = arena_make(NULL, 0);
    assert_int_equal(pipeline_build(&config, rig.coordinator, &none, &p, &why), ERR_MEMORY);
    config.slots = 5;
    assert_int_equal(pipeline_build(&config, rig.coordinator, &none, &p, &why), ERR_RANGE);
    assert_int_equal(pipeline_bytes(&config), 0);
    config.slots = 4;
    config.frames = 65;
    assert_int_equal(pipeline_build(&config, rig.coordinator, &none, &p, &why), ERR_RANGE);
    config.frames = 2;
    uint32_t shards = rig.file.parts[CLUSTER_SHARD];
    rig.file.parts[CLUSTER_SHARD] = 0;
    assert_int_equal(pipeline_build(&config, rig.coordinator, &none, &p, &why), ERR_UNSUPPORTED);
    rig.file.parts[CLUSTER_SHARD] = shards;
    rig.file.layers++;
    assert_int_equal(pipeline_build(&config, rig.coordinator, &none, &p, &why), ERR_RANGE);
    rig_close(&rig);
}

/* ---- Anything at any time ---- */

static uint32_t chaos_random(Rig *rig, uint32_t n)
{
    static uint64_t state;
    if (!rig) state = n;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)(state >> 33) % n : 0;
}

static RigFate chaos_fate(Rig *rig, const PipelineCall *call)
{
    if (call->node == PIPELINE_OWN || chaos_random(rig, 12)) return RIG_WELL;
    static const RigFate fates[] = {
        RIG_LOSE_ANSWER,    RIG_REFUSED,    RIG_BUSY, RIG_CORRUPT_REQUEST,
        RIG_CORRUPT_ANSWER, RIG_CUT_ANSWER, RIG_SLOW};
    RigFate fate = fates[chaos_random(rig, 7)];
    if (call->path >= PIPELINE_DROP && fate >= RIG_CORRUPT_REQUEST && fate != RIG_SLOW)
        return RIG_WELL;
    return fate;
}

static void chaos_tick(Rig *rig)
{
    if (rig->now_ns < rig->script_ns) return;
    rig->script_ns = rig->now_ns + chaos_random(rig, 400) * RIG_MS;
    uint32_t node = 1 + chaos_random(rig, rig->file.node_count - 1);
    RigNode *n = &rig->node[node];
    uint32_t what = chaos_random(rig, 3);
    if (n->dead) rig_restart(rig, node);
    else if (n->frozen) n->frozen = false;
    else if (what == 0) n->dead = true;
    else if (what == 1) n->frozen = true;
    else rig_restart(rig, node);
    if (++rig->script < 30) return;
    rig->tick = NULL;
    rig->fate = NULL;
    for (uint32_t i = 1; i < rig->file.node_count; i++) {
        if (rig->node[i].dead) rig_restart(rig, i);
        rig->node[i].dead = rig->node[i].frozen = false;
    }
}

static void chaos_gives_the_same_tokens(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 24; seed++) {
        Rig rig;
        RigShape shape = seed % 2 ? usual : with_replicas;
        shape.frames = 1 + seed % 4;
        shape.chunk = 1 + seed % 11;
        chaos_random(NULL, seed);
        rig_open(&rig, &model, &shape);
        rig.tick = chaos_tick;
        rig.fate = chaos_fate;
        run_all(&rig, 3600000);
        assert_int_equal(pipeline_degraded(rig.pipeline), 0);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens_for_every_topology),
        cmocka_unit_test(short_elements_pass),
        cmocka_unit_test(calls_of_a_frame),
        cmocka_unit_test(what_calls_take),
        cmocka_unit_test(prefill_is_pipelined),
        cmocka_unit_test(answers_fill_the_stations),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(restarted_stations_are_replayed),
        cmocka_unit_test(cut_sessions_are_replayed),
        cmocka_unit_test(a_late_twin_is_refused),
        cmocka_unit_test(endless_replays_end),
        cmocka_unit_test(replicas_take_over),
        cmocka_unit_test(a_replica_takes_over_from_who_drains),
        cmocka_unit_test(failures_of_long_ago_are_forgiven),
        cmocka_unit_test(a_replica_takes_over_from_who_forgets),
        cmocka_unit_test(a_station_comes_back),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(the_own_store_helps),
        cmocka_unit_test(zero_rows_are_flagged),
        cmocka_unit_test(a_shard_comes_back),
        cmocka_unit_test(slow_shards_are_hedged),
        cmocka_unit_test(stopped_slots_are_forgotten),
        cmocka_unit_test(unwanted_prompts_are_given_up),
        cmocka_unit_test(a_stopped_slot_does_not_wait),
        cmocka_unit_test(failures_are_isolated),
        cmocka_unit_test(old_events_are_nobodys),
        cmocka_unit_test(wrong_clusters_are_refused),
        cmocka_unit_test(chaos_gives_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, make_talks, free_talks);
}
