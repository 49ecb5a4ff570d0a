/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of itself, to the coordinator that asks: any body with any status, or a warden's own report
 * with a few bytes changed. The report that is made of it has whole, printable texts, and GET /cluster stays JSON. */
#include <yyjson.h>

#include "api/warden_report.h"
#include "feed.h"
#include "serve/fleet.h"

static const char cluster_text[] =
    "{\"cobord_cluster\":1,\"model\":{\"name\":\"m\",\"knot_id\":\"0123456789abcdef\",\"knot_key\":\"m.knot\","
    "\"layers\":2,\"vocabulary\":40},\"context\":64,\"coordinator\":{\"id\":\"coordinator-0\",\"address\":\"a:1\"},"
    "\"stations\":[{\"id\":\"station-0\",\"address\":\"a:2\",\"range\":\"0-end\"}],"
    "\"shards\":[{\"id\":\"shard-0\",\"address\":\"a:3\",\"ids\":[0,40]}]}";

static void check_text(const char *text, size_t room)
{
    size_t bytes = strnlen(text, room);
    CHECK(bytes < room);
    for (size_t i = 0; i < bytes; i++) CHECK(text[i] >= ' ' && text[i] <= '~');
}

static void check_report(const FleetReport *r)
{
    CHECK(r->asked && r->heard);
    check_text(r->state, sizeof r->state);
    check_text(r->version, sizeof r->version);
    check_text(r->owns, sizeof r->owns);
    check_text(r->error, sizeof r->error);
}

/* A warden's report as it would be, with numbers of the input, in `out`. */
static size_t own_report(Feed *f, char *out)
{
    char *version = feed_text(f, 40), *id = feed_text(f, 40);
    WardenReport r = {.version = version,
                      .id = id,
                      .role = "warden",
                      .knot_key = "a.knot",
                      .identity = {feed_u64(f), feed_u8(f) & 1, feed_u8(f), feed_u32(f)},
                      .layers = 1 + feed_u8(f),
                      .memory = {.budget_bytes = feed_u64(f), .resident_bytes = feed_u64(f)}};
    JsonWriter w = json_writer_make(out, WARDEN_REPORT_BYTES_MAX), m = w;
    warden_report_write_metrics(&r, &m);
    CHECK(!m.full);
    warden_report_write(&r, &w);
    CHECK(!w.full);
    yyjson_doc *doc = yyjson_read(out, w.used, YYJSON_READ_NOFLAG);
    CHECK(yyjson_is_obj(yyjson_doc_get_root(doc)));
    yyjson_doc_free(doc);
    free(version);
    free(id);
    return w.used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[WARDEN_REPORT_BYTES_MAX];
    static ClusterFile cluster;
    Why why = {{0}};
    if (!cluster.node_count) {
        size_t room = cluster_file_arena_bytes(sizeof cluster_text - 1);
        Arena arena = arena_make(malloc(room), room);
        Error error =
            cluster_file_parse(cluster_text, sizeof cluster_text - 1, &arena, &cluster, &why);
        CHECK(error == OK);
    }
    Feed f = {data, size};
    FleetReport report = {0};
    uint32_t way = feed_u8(&f);
    unsigned status = way & 1 ? 200 : (unsigned)feed_bits(&f, 2) % 1000;
    uint32_t node = way >> 2 & 1;
    size_t bytes;
    if (way & 2) {
        bytes = own_report(&f, text);
        for (int i = 0; i < 4 && f.left; i++) {
            size_t at = feed_bits(&f, 2) % bytes;
            text[at] = (char)feed_u8(&f);
        }
        fleet_hear(&cluster, node, status, text, bytes, &report);
    } else {
        char *body = (char *)feed_rest(&f, &bytes);
        fleet_hear(&cluster, node, status, body, bytes, &report);
        free(body);
    }
    check_report(&report);
    fleet_miss(&report, "it is gone");
    CHECK(report.asked && !report.heard && strcmp(report.error, "it is gone") == 0);
    return 0;
}
