/* SPDX-License-Identifier: Apache-2.0 */
/* From plans to cluster files: what is written reads back, ids and wardens are where they should be,
 * and what has no place is refused. */
#include "tiny_model.h"

#include "cluster/pipeline.h"
#include "cluster/plan_cluster.h"

static Plan plan;

static void make_plan(const TinyModel *t, uint32_t stations, uint32_t shards)
{
    Why why = {{0}};
    PlanRequest request = {.knot = &t->knot,
                           .hyper = &t->hyper,
                           .memory_bytes = 64 << 20,
                           .process_bytes = 1 << 20,
                           .stations = stations,
                           .shards = shards,
                           .logit_rows = 1,
                           .workers = 1,
                           .kernels = kernels_for(ISA_SCALAR),
                           .ops = ops_for(ISA_SCALAR)};
    if (plan_make(&request, &plan, &why) != OK) fail_msg("plan: %s", why.text);
}

static PlanClusterRequest request_of(uint32_t replicas, bool wardens)
{
    return (PlanClusterRequest){.plan = &plan,
                                .replicas = replicas,
                                .wardens = wardens,
                                .warden_memory_bytes = 16 << 20,
                                .model_name = "tiny",
                                .knot_key = "tiny.knot",
                                .store = "",
                                .key_file = "/tmp/key \"x\"",
                                .element = ROWS_F32,
                                .directory = "/tmp/cluster/"};
}

typedef struct Made {
    ClusterFile file, again;
    void *memory, *again_memory;
    char *text;
    uint32_t places;
} Made;

/* Plans a file, writes it, reads it back. */
static Made make_file(const PlanClusterRequest *request)
{
    Made m = {.places = 0};
    Why why = {{0}};
    size_t bytes;
    static PlanAddress address[CLUSTER_FILE_NODES_MAX];
    assert_int_equal(plan_cluster_places(request, NULL, 0, &m.places, &why), OK);
    for (uint32_t i = 0; i < m.places; i++)
        address[i] = (PlanAddress){"127.0.0.1", (uint16_t)(9000 + i)};
    m.memory = malloc(plan_cluster_arena_bytes(m.places));
    Arena arena = arena_make(m.memory, plan_cluster_arena_bytes(m.places));
    if (plan_cluster(request, address, &arena, &m.file, &why) != OK) fail_msg("%s", why.text);
    m.text = malloc(CLUSTER_FILE_BYTES_MAX);
    assert_int_equal(cluster_file_write(&m.file, m.text, CLUSTER_FILE_BYTES_MAX, &bytes, &why), OK);
    m.again_memory = malloc(cluster_file_arena_bytes(bytes));
    Arena read = arena_make(m.again_memory, cluster_file_arena_bytes(bytes));
    if (cluster_file_parse(m.text, bytes, &read, &m.again, &why) != OK) fail_msg("%s", why.text);
    return m;
}

static void drop(Made *m)
{
    free(m->memory);
    free(m->again_memory);
    free(m->text);
}

static void same(const Made *m)
{
    const ClusterFile *a = &m->file, *b = &m->again;
    assert_int_equal(a->node_count, b->node_count);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->chunk, b->chunk);
    assert_int_equal(a->pipeline, b->pipeline);
    assert_int_equal(a->knot_id, b->knot_id);
    assert_string_equal(a->key_file, b->key_file);
    for (int r = 0; r < CLUSTER_ROLES; r++) assert_int_equal(a->parts[r], b->parts[r]);
    for (uint32_t i = 0; i < a->node_count; i++) {
        const ClusterNode *x = &a->nodes[i], *y = &b->nodes[i];
        assert_string_equal(x->id, y->id);
        assert_int_equal(x->port, y->port);
        assert_int_equal(x->part, y->part);
        assert_int_equal(x->is_replica, y->is_replica);
        assert_int_equal(x->warden, y->warden);
        assert_int_equal(x->range.first, y->range.first);
        assert_int_equal(x->range.last, y->range.last);
        assert_int_equal(x->id_first, y->id_first);
        assert_int_equal(x->id_last, y->id_last);
        assert_string_equal(x->socket, y->socket);
        assert_string_equal(x->cache, y->cache);
    }
}

static void files_read_back(void **state)
{
    (void)state;
    TinyModel t;
    tiny_make(&t, true, NULL);
    for (uint32_t stations = 1; stations <= 5; stations++)
        for (uint32_t shards = 1; shards <= 9; shards += 4)
            for (uint32_t replicas = 0; replicas <= 2; replicas++) {
                make_plan(&t, stations, shards);
                PlanClusterRequest request = request_of(replicas, shards == 5);
                Made m = make_file(&request);
                same(&m);
                uint32_t nodes = 1 + (stations + shards) * (replicas + 1);
                assert_int_equal(m.file.node_count, nodes + (shards == 5 ? stations + 1 : 0));
                drop(&m);
            }
    tiny_free(&t);
}

static void ids_and_wardens(void **state)
{
    (void)state;
    TinyModel t;
    tiny_make(&t, true, NULL);
    make_plan(&t, 2, 3);
    PlanClusterRequest request = request_of(1, true);
    Made m = make_file(&request);
    static const char *const ids[] = {
        "coordinator-0", "station-0",      "station-2",      "station-1",     "station-3",
        "shard-0",       "shard-3",        "shard-1",        "shard-4",       "shard-2",
        "shard-5",       "layer-warden-0", "layer-warden-1", "shard-warden-0"};
    assert_int_equal(m.file.node_count, sizeof ids / sizeof ids[0]);
    for (uint32_t i = 0; i < m.file.node_count; i++)
        assert_string_equal(m.file.nodes[i].id, ids[i]);
    assert_int_equal(m.file.nodes[3].warden, 12); /* station-1, and its replica */
    assert_int_equal(m.file.nodes[4].warden, 12);
    assert_int_equal(m.file.nodes[10].warden, 13);
    assert_string_equal(m.file.nodes[12].socket, "/tmp/cluster/layer-warden-1.socket");
    assert_string_equal(m.file.nodes[13].cache, "sqlite:/tmp/cluster/shard-warden-0.rows");
    PlanWarden w =
        plan_cluster_warden(&request, &(PlanPlace){.role = CLUSTER_SHARD_WARDEN, .part = 0});
    assert_int_equal(w.id_last, TINY_VOCABULARY);
    assert_true(w.total_bytes <= request.warden_memory_bytes);
    drop(&m);
    tiny_free(&t);
}

/* Shards of two machines never share a warden, and neither do more than one's memory holds. */
static void wardens_keep_apart(void **state)
{
    (void)state;
    static const uint32_t machine[] = {0, 0, 1, 1, 1};
    TinyModel t;
    tiny_make(&t, true, NULL);
    make_plan(&t, 1, 5);
    PlanClusterRequest request = request_of(0, true);
    request.shard_machine = machine;
    Made m = make_file(&request);
    assert_int_equal(m.file.parts[CLUSTER_SHARD_WARDEN], 2);
    uint32_t second = cluster_file_part(&m.file, CLUSTER_SHARD_WARDEN, 1);
    assert_int_equal(m.file.nodes[second].id_first, plan.role[3].id_first);
    assert_int_equal(plan_cluster_warden_shard(&request, 1), 2);
    drop(&m);
    for (uint32_t i = 0; i < plan.role_count; i++) plan.role[i].weight_bytes = 6 << 20;
    request.shard_machine = NULL; /* 15 MiB hold two of 6 */
    m = make_file(&request);
    assert_int_equal(m.file.parts[CLUSTER_SHARD_WARDEN], 3);
    drop(&m);
    tiny_free(&t);
}

static void no_place(void **state)
{
    (void)state;
    TinyModel t;
    Why why = {{0}};
    uint32_t count;
    tiny_make(&t, true, NULL);
    make_plan(&t, 12, 301);
    PlanClusterRequest request = request_of(3, false); /* 1,253 nodes */
    assert_int_equal(plan_cluster_places(&request, NULL, 0, &count, &why), ERR_RANGE);
    request = request_of(PLAN_CLUSTER_REPLICAS_MAX + 1, false);
    assert_int_equal(plan_cluster_places(&request, NULL, 0, &count, &why), ERR_RANGE);
    request = request_of(0, true);
    request.warden_memory_bytes = 4 << 20;
    assert_int_equal(plan_cluster_places(&request, NULL, 0, &count, &why), ERR_PLAN);
    assert_non_null(strstr(why.text, "warden"));
    /* two nodes with one address */
    request = request_of(0, false);
    assert_int_equal(plan_cluster_places(&request, NULL, 0, &count, &why), OK);
    PlanAddress *address = calloc(count, sizeof *address);
    for (uint32_t i = 0; i < count; i++) address[i] = (PlanAddress){"a", 1};
    void *memory = malloc(plan_cluster_arena_bytes(count));
    Arena arena = arena_make(memory, plan_cluster_arena_bytes(count));
    ClusterFile file;
    assert_int_equal(plan_cluster(&request, address, &arena, &file, &why), ERR_DUPLICATE);
    free(memory);
    free(address);
    tiny_free(&t);
}

/* The coordinator is part of the plan, and a budget below its sum is refused by its name. */
static void coordinator_has_a_sum(void **state)
{
    (void)state;
    TinyModel t;
    Why why = {{0}};
    char name[PLAN_ROLE_NAME_BYTES];
    tiny_make(&t, true, NULL);
    make_plan(&t, 2, 2);
    assert_true(plan.coordinator.total_bytes > plan.coordinator.process_bytes);
    assert_true(plan.coordinator.total_bytes <= 64 << 20);
    assert_int_equal(plan.request.frames, 2); /* one a station */
    uint64_t one = plan.coordinator.frame_bytes;
    PlanRequest request = plan.request;
    request.frames = 8;
    request.context = plan.context;
    request.chunk = plan.chunk;
    assert_int_equal(plan_make(&request, &plan, &why), OK);
    assert_true(plan.coordinator.frame_bytes > one); /* more frames under way, more rows */
    plan_role_name(&plan, &plan.role[3], name);
    assert_string_equal(name, "shard-1");
    request.memory_bytes = plan.coordinator.process_bytes;
    assert_int_equal(plan_make(&request, &plan, &why), ERR_PLAN);
    assert_non_null(strstr(why.text, "coordinator-0: process"));
    tiny_free(&t);
}

/* The sum before the start covers what the pipeline then takes, with and without room to count exactly. */
static void coordinator_sum_covers_the_pipeline(void **state)
{
    (void)state;
    static ClusterNode nodes[CLUSTER_FILE_NODES_MAX];
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (uint32_t stations = 1; stations <= 12; stations += 3)
        for (uint32_t replicas = 0; replicas <= 2; replicas++)
            for (uint32_t frames = 0; frames <= 8; frames += 4) {
                make_plan(&t, stations, 5);
                PlanRequest r = plan.request;
                r.nodes = nodes;
                r.replicas = replicas;
                r.wardens = replicas == 1;
                r.frames = frames;
                r.sessions = r.logit_rows = 1 + replicas;
                if (plan_make(&r, &plan, &why) != OK) fail_msg("%s", why.text);
                PlanClusterRequest request = request_of(replicas, r.wardens);
                Made m = make_file(&request);
                PipelineConfig config = {.cluster = &m.file,
                                         .hyper = &t.hyper,
                                         .slots = r.sessions,
                                         .logit_rows = plan.logit_rows,
                                         .frames = m.file.pipeline};
                CoordinatorConfig c = pipeline_coordinator_config(&config);
                uint64_t takes = pipeline_bytes(&config) + coordinator_bytes(&c);
                assert_true(takes > 0);
                assert_true(plan.coordinator.frame_bytes >= takes);
                drop(&m);
            }
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_read_back),
        cmocka_unit_test(ids_and_wardens),
        cmocka_unit_test(wardens_keep_apart),
        cmocka_unit_test(no_place),
        cmocka_unit_test(coordinator_has_a_sum),
        cmocka_unit_test(coordinator_sum_covers_the_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
