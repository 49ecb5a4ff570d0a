/* SPDX-License-Identifier: Apache-2.0 */
/* What GET /cluster says fits its room, whatever nodes say of themselves, and is JSON. */
#include "../cluster/pipeline_rig.h"

#include <yyjson.h>

#include "serve/fleet.h"

static TinyModel model;
static const RigShape shape = {.stations = "0-1,1-2,2-end",
                               .shards = 3,
                               .replicas_of_stations = 1,
                               .frames = 3,
                               .chunk = 8,
                               .slots = 4};

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

static const MemoryAbout most = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static FleetReport longest_report(void)
{
    FleetReport r = {.asked = true,
                     .heard = true,
                     .memory = most,
                     .has_weights = true,
                     .weight_bytes = UINT64_MAX,
                     .pinned_bytes = UINT64_MAX,
                     .has_hits = true,
                     .hits = UINT64_MAX,
                     .misses = UINT64_MAX,
                     .cached_bytes = UINT64_MAX,
                     .l2_hits = UINT64_MAX,
                     .l2_misses = UINT64_MAX,
                     .store_bytes = UINT64_MAX};
    memset(r.state, 1, sizeof r.state - 1);
    memset(r.version, 1, sizeof r.version - 1);
    memset(r.error, 1, sizeof r.error - 1);
    return r;
}

/* Control characters, which take six bytes each, and the largest numbers. */
static void the_longest_fits(void **state)
{
    (void)state;
    Rig rig;
    char host[CLUSTER_FILE_HOST_BYTES_MAX + 1] = {0};
    FleetReport reports[RIG_NODES_MAX];
    rig_open(&rig, &model, &shape);
    memset(host, ':', sizeof host - 1);
    rig.file.model_name = "model";
    for (uint32_t i = 0; i < rig.file.node_count; i++) {
        reports[i] = longest_report();
        rig.nodes[i].host = host;
        rig.nodes[i].warden = 0;
    }
    Fleet fleet = {.cluster = &rig.file,
                   .self = &rig.nodes[0],
                   .version = "1.2.3",
                   .pipeline = rig.pipeline,
                   .reports = reports,
                   .missing = reports[0].error,
                   .uptime_ms = UINT64_MAX,
                   .own_us = UINT32_MAX,
                   .memory = most};
    size_t room = fleet_describe_room(&rig.file);
    char *text = calloc(1, room + 2);
    text[0] = '{';
    size_t bytes = fleet_describe(&fleet, text + 1, room);
    assert_true(bytes > 0 && bytes <= room);
    text[bytes + 1] = '}';
    yyjson_doc *doc = yyjson_read(text, bytes + 2, 0);
    yyjson_val *nodes = yyjson_obj_get(yyjson_doc_get_root(doc), "nodes");
    assert_int_equal(yyjson_arr_size(nodes), rig.file.node_count - 1);
    yyjson_doc_free(doc);
    free(text);
    rig_close(&rig);
}

static void a_warden_is_heard(void **state)
{
    (void)state;
    Rig rig;
    FleetReport r = {0};
    static const char said[] =
        "{\"ready\":true,\"state\":\"ready\",\"memory\":{\"budget_bytes\":7,\"peak_bytes\":5},"
        "\"l1\":{\"hits\":3,\"misses\":1,\"bytes\":9},\"rows_l1\":{\"hits\":10},"
        "\"l3\":{\"bytes\":77}}";
    rig_open(&rig, &model, &shape);
    fleet_hear(&rig.file, 1, 200, said, strlen(said), &r);
    assert_true(r.ready && !r.error[0] && r.has_hits);
    assert_int_equal(r.hits, 13);
    assert_int_equal(r.store_bytes, 77);
    assert_int_equal(r.memory.budget_bytes, 7);
    assert_int_equal(r.memory.peak_bytes, 5);
    fleet_hear(&rig.file, 1, 200, "[]", 2, &r);
    assert_true(!r.ready && r.error[0]);
    fleet_hear(&rig.file, 1, 401, "", 0, &r);
    assert_non_null(strstr(r.error, "key"));
    fleet_miss(&r, "no connection");
    assert_true(!r.heard && strcmp(r.error, "no connection") == 0);
    rig_close(&rig);
}

static void one_process_is_described(void **state)
{
    (void)state;
    static Plan plan;
    static const uint32_t times[PLAN_ROLES_MAX] = {10, 20, 30};
    plan =
        (Plan){.request = {.knot = &model.knot, .hyper = &model.hyper, .stations = 2, .shards = 1},
               .role_count = 3,
               .role = {{.range = {0, 4}}, {.range = {4, 8}}, {.is_shard = true, .id_last = 9}}};
    FleetWhole whole = {.plan = &plan, .model = "m", .version = "1", .memory = most};
    whole.times = (FleetWholeTimes){7, 2, 5, 6, times};
    char text[4096] = "{";
    size_t bytes = fleet_whole_describe(&whole, text + 1, sizeof text - 2);
    assert_true(bytes > 0);
    text[bytes + 1] = '}';
    yyjson_doc *doc = yyjson_read(text, bytes + 2, 0);
    yyjson_val *root = yyjson_doc_get_root(doc), *step = yyjson_obj_get(root, "step");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(step, "forward_us")), 30);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(step, "logits_us")), 30);
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(root, "nodes")), 3);
    yyjson_doc_free(doc);
    for (size_t room = 0; room < bytes; room += 7)
        assert_int_equal(fleet_whole_describe(&whole, text, room), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_fits),
        cmocka_unit_test(a_warden_is_heard),
        cmocka_unit_test(one_process_is_described),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
