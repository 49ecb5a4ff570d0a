/* SPDX-License-Identifier: Apache-2.0 */
/* The object of /stats, member by member, and the lines of /metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "api/warden_report.h"

static WardenReport report(bool is_shard)
{
    return (WardenReport){.version = "1.2",
                          .id = "w",
                          .role = "warden",
                          .knot_key = "a \"b\".knot",
                          .identity = {0xabc, is_shard, 0, 8},
                          .layers = 2,
                          .memory.budget_bytes = 1,
                          .memory.need_bytes = 2,
                          .memory.cache_bytes = 3,
                          .memory.resident_bytes = 4,
                          .memory.peak_bytes = 5,
                          .levels = {.memory = {.hits = 6}, .store = {.reads = 7}, .store_bad = 8},
                          .rows = {.memory = {.misses = 9}, .store_rows = 10}};
}

static const char *stats(WardenReport r)
{
    static char text[WARDEN_REPORT_BYTES_MAX];
    JsonWriter w = json_writer_make(text, sizeof text - 1);
    warden_report_write(&r, &w);
    assert_false(w.full);
    text[w.used] = '\0';
    return text;
}

static void stats_of_a_layer_warden(void **state)
{
    (void)state;
    assert_string_equal(
        stats(report(false)),
        "{\"ready\":true,\"state\":\"ready\",\"id\":\"w\",\"role\":\"warden\",\"version\":\"1.2\","
        "\"frame_version\":1,\"numerics_version\":1,"
        "\"knot_id\":\"0000000000000abc\",\"identity\":\"0000000000000abc|0-end\","
        "\"knot_key\":\"a \\\"b\\\".knot\",\"memory\":{\"budget_bytes\":1,\"need_bytes\":2,"
        "\"cache_bytes\":3,\"resident_bytes\":4,\"peak_bytes\":5},\"l1\":{\"hits\":6,\"misses\":0,"
        "\"passed\":0,\"bytes\":0,\"evictions\":0,\"bad\":0,\"invalidations\":0,\"shared\":0},"
        "\"l3\":{\"reads\":7,\"bytes\":0,\"retries\":0,\"failures\":0,\"bad\":8}}");
}

static void levels_that_are_there(void **state)
{
    (void)state;
    WardenReport r = report(true);
    const char *text = stats(r);
    assert_non_null(strstr(text, "\"rows_l1\":{\"hits\":0,\"misses\":9,"));
    assert_non_null(strstr(text, "\"rows_l3\":{\"rows\":10,\"bad\":0}"));
    assert_null(strstr(text, "\"rows_l2\""));
    assert_null(strstr(text, "\"l2\""));
    r.rows.has_rows = r.levels.has_disk = true;
    text = stats(r);
    assert_non_null(strstr(text, "\"rows_l2\":{"));
    assert_non_null(strstr(text, "\"l2\":{"));
}

static void metrics_sum_what_was_bad(void **state)
{
    (void)state;
    static char text[WARDEN_REPORT_BYTES_MAX];
    WardenReport r = report(true);
    r.levels.memory.bad = 20;
    r.rows.rows.bad = 30;
    r.rows.store_bad = 40;
    JsonWriter w = json_writer_make(text, sizeof text - 1);
    warden_report_write_metrics(&r, &w);
    assert_false(w.full);
    text[w.used] = '\0';
    assert_non_null(strstr(text, "\ncobord_warden_bad_total 28\n"));
    assert_non_null(strstr(text, "\ncobord_warden_rows_bad_total 70\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_of_a_layer_warden),
        cmocka_unit_test(levels_that_are_there),
        cmocka_unit_test(metrics_sum_what_was_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
