/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster file: what docs/format/cluster.md shows, every rule broken once, writing and reading back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/cluster_file.h"

static const char sample[] =
    "{\"cobord_cluster\": 1,"
    " \"model\": {\"name\": \"m\", \"knot_id\": \"0123456789abcdef\","
    " \"knot_key\": \"m.knot\", \"layers\": 28, \"vocabulary\": 1000},"
    " \"context\": 2048, \"cache_type\": \"q8_0\", \"element\": \"int8\","
    " \"memory\": 134217728, \"key_file\": \"/k\","
    " \"tls\": {\"certificate\": \"/c\", \"key\": \"/p\", \"ca\": \"/a\"},"
    " \"coordinator\": {\"id\": \"coordinator-0\", \"address\": \"127.0.0.1:8080\"},"
    " \"stations\": ["
    "  {\"id\": \"station-0\", \"address\": \"a.example:9000\","
    " \"range\": \"0-14\", \"warden\": \"layer-warden-0\","
    "   \"replicas\": [{\"id\": \"station-2\","
    " \"address\": \"[::1]:9000\"}, {\"id\": \"station-3\", \"address\": \"a:3\"}]},"
    "  {\"id\": \"station-1\", \"address\": \"a:1\", \"range\": \"14-end\"}],"
    " \"shards\": ["
    "  {\"id\": \"shard-0\", \"address\": \"a:4\", \"ids\": [0, 600],"
    " \"warden\": \"shard-warden-0\"},"
    "  {\"id\": \"shard-1\", \"address\": \"a:5\", \"ids\": [600, 1000],"
    " \"replicas\": [{\"id\": \"shard-9999\", \"address\": \"a:65535\"}]}],"
    " \"layer_wardens\": [{\"id\": \"layer-warden-0\", \"address\": \"a:6\","
    " \"range\": \"0-15.ffn_up\"}],"
    " \"shard_wardens\": [{\"id\": \"shard-warden-0\", \"address\": \"a:7\", \"ids\": [0, 600],"
    " \"cache\": \"sqlite:/r\", \"cache_bytes\": 9, \"socket\": \"/s\"}]}";

static ClusterFile file, again;
static Why why;
static void *memories[64];
static size_t memory_count;

static Error parse(const char *text, size_t bytes, ClusterFile *out)
{
    size_t room = cluster_file_arena_bytes(bytes);
    void *memory = malloc(room);
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, text, bytes);
    Arena arena = arena_make(memory, room);
    Error e = cluster_file_parse(copy, bytes, &arena, out, &why);
    free(copy);
    if (e == OK) memories[memory_count++] = memory;
    else free(memory);
    return e;
}

static int release(void **state)
{
    (void)state;
    while (memory_count) free(memories[--memory_count]);
    return 0;
}

/* The sample with the first `from` replaced by `to`. */
static Error changed(const char *from, const char *to)
{
    static char text[8192];
    const char *at = strstr(sample, from);
    assert_non_null(at);
    int n =
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - sample), sample, to, at + strlen(from));
    assert_true(n > 0 && (size_t)n < sizeof text);
    return parse(text, (size_t)n, &again);
}

static void test_sample(void **state)
{
    (void)state;
    assert_int_equal(parse(sample, strlen(sample), &file), OK);
    assert_true(file.knot_id == 0x0123456789abcdef);
    assert_int_equal(file.node_count, 10);
    assert_int_equal(file.parts[CLUSTER_STATION], 2);
    assert_int_equal(file.parts[CLUSTER_SHARD], 2);
    assert_int_equal(file.cache, CACHE_Q8_0);
    assert_int_equal(file.element, ROWS_INT8);
    assert_int_equal(file.sessions, 1);
    assert_int_equal(file.warden_memory_bytes, 128 << 20);
    assert_string_equal(file.key_file, "/k");
    assert_string_equal(file.store, "");
    assert_string_equal(file.tls_certificate, "/c");
    assert_string_equal(file.tls_key, "/p");
    assert_string_equal(file.tls_ca, "/a");
    assert_int_equal(file.pipeline, 2);
    const ClusterNode *warden = cluster_file_find(&file, "shard-warden-0");
    assert_string_equal(warden->cache, "sqlite:/r");
    assert_int_equal(warden->cache_bytes, 9);
    assert_string_equal(warden->socket, "/s");
    assert_string_equal(cluster_file_find(&file, "layer-warden-0")->cache, "");
    const ClusterNode *n = cluster_file_find(&file, "station-2");
    assert_true(n->is_replica && n->part == 0 && n->range.last == phase_bound(14, PHASE_ATTN));
    assert_string_equal(n->host, "::1");
    assert_int_equal(n->port, 9000);
    assert_string_equal(file.nodes[n->warden].id, "layer-warden-0");
    assert_int_equal(cluster_file_find(&file, "station-1")->range.last,
                     phase_bound(28, PHASE_ATTN));
    assert_int_equal(cluster_file_find(&file, "shard-9999")->id_first, 600);
    assert_null(cluster_file_find(&file, "shard-3"));
    uint32_t part = cluster_file_part(&file, CLUSTER_SHARD, 1);
    assert_string_equal(file.nodes[part].id, "shard-1");
    assert_int_equal(cluster_file_part(&file, CLUSTER_SHARD, 2), CLUSTER_FILE_NONE);
}

static void test_write_and_back(void **state)
{
    (void)state;
    char text[8192], twice[8192];
    size_t bytes = 0, twice_bytes = 0;
    assert_int_equal(parse(sample, strlen(sample), &file), OK);
    assert_int_equal(cluster_file_write(&file, text, sizeof text, &bytes, &why), OK);
    assert_int_equal(parse(text, bytes, &again), OK);
    assert_int_equal(again.node_count, file.node_count);
    assert_int_equal(again.pipeline, file.pipeline);
    assert_string_equal(again.tls_ca, file.tls_ca);
    assert_string_equal(again.tls_key, file.tls_key);
    for (uint32_t i = 0; i < file.node_count; i++) {
        const ClusterNode *a = &file.nodes[i], *b = &again.nodes[i];
        assert_string_equal(a->id, b->id);
        assert_string_equal(a->host, b->host);
        assert_string_equal(a->cache, b->cache);
        assert_string_equal(a->socket, b->socket);
        assert_true(a->cache_bytes == b->cache_bytes);
        assert_true(a->port == b->port && a->part == b->part && a->is_replica == b->is_replica &&
                    a->warden == b->warden && a->role == b->role);
        assert_memory_equal(&a->range, &b->range, sizeof a->range);
        assert_true(a->id_first == b->id_first && a->id_last == b->id_last);
    }
    assert_int_equal(cluster_file_write(&again, twice, sizeof twice, &twice_bytes, &why), OK);
    assert_int_equal(twice_bytes, bytes);
    assert_memory_equal(text, twice, bytes);
    for (size_t room = 0; room < bytes; room += 7)
        assert_int_equal(cluster_file_write(&file, text, room, &twice_bytes, &why), ERR_CAPACITY);
}

static void refuse(const char *from, const char *to, Error want, const char *says)
{
    Error e = changed(from, to);
    if (e != want || (says && !strstr(why.text, says))) fail_msg("%s: %d %s", to, (int)e, why.text);
}

static void test_ranges(void **state)
{
    (void)state;
    refuse("0-14", "0-13", ERR_RANGE,
           "layer 13 attn to layer 14 attn is owned by nobody, between station-0 and station-1");
    refuse("0-14", "0-14.ffn_up", ERR_RANGE, "owned twice");
    refuse("0-14", "1-14", ERR_RANGE, "the beginning");
    refuse("0-14", "0-0", ERR_RANGE, "empty");
    refuse("0-14", "0-29", ERR_USAGE, NULL);
    refuse("0-14", "14", ERR_FORMAT, "dash");
    refuse("14-end", "14-20", ERR_RANGE, "layer 20");
    refuse("[600, 1000]", "[601, 1000]", ERR_RANGE,
           "ids 600 to 601 are owned by nobody, between shard-0 and shard-1");
    refuse("[600, 1000]", "[599, 1000]", ERR_RANGE, "owned twice");
    refuse("[600, 1000]", "[600, 999]", ERR_RANGE, "ids 999 to 1000");
    refuse("[600, 1000]", "[600, 1001]", ERR_RANGE, NULL);
    refuse("[600, 1000]", "[600]", ERR_FORMAT, NULL);
    refuse("[600, 1000]", "[600, 1000, 1]", ERR_FORMAT, NULL);
    refuse("[600, 1000]", "[600, -1]", ERR_FORMAT, NULL);
    refuse("[0, 600], \"cache\"", "[0, 599], \"cache\"", ERR_RANGE,
           "shard-warden-0 does not have all that shard-0 needs");
    refuse("0-15.ffn_up", "1-15", ERR_RANGE, "layer-warden-0 does not have all");
    refuse("\"warden\": \"layer-warden-0\"", "\"warden\": \"layer-warden-1\"", ERR_NOT_FOUND,
           "layer-warden-1");
    refuse("\"warden\": \"layer-warden-0\"", "\"warden\": \"shard-warden-0\"", ERR_RANGE, NULL);
    assert_int_equal(changed("\"14-end\"", "\"14-28\""), OK);
}

static void test_ids_and_addresses(void **state)
{
    (void)state;
    refuse("shard-9999", "shard-0", ERR_DUPLICATE, "shard-0");
    refuse("shard-9999", "shard-10000", ERR_FORMAT, NULL);
    refuse("shard-9999", "shard-01", ERR_FORMAT, NULL);
    refuse("shard-9999", "station-7", ERR_FORMAT, "not the id of a shard");
    refuse("coordinator-0", "coordinator-1", ERR_FORMAT, NULL);
    refuse("a:5", "a:4", ERR_DUPLICATE, "shard-0 and shard-1 have one address");
    static const char *const bad[] = {"a",     "a:",           ":4",      "a:0",   "a:65536",
                                      "a:04",  "a b:4",        "a:4 ",    "[::1]", "[::1:4",
                                      "::1:4", "[]:4",         "[g::]:4", "-a:4",  "[1:2]:4",
                                      "a/b:4", "a:99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("a:5", bad[i], ERR_FORMAT, "is no address");
    static const char *const good[] = {"h.x_y-z:1", "10.0.0.1:65535", "[fe80::1:2]:9",
                                       "[::ffff:1.2.3.4]:9"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(changed("a:5", good[i]), OK);
}

static void test_members(void **state)
{
    (void)state;
    refuse("\"context\": 2048", "\"contxt\": 2048", ERR_FORMAT, "unknown member \"contxt\"");
    refuse("\"context\": 2048", "\"context\": 2048, \"context\": 1", ERR_DUPLICATE, "context");
    refuse("\"context\": 2048,", "", ERR_FORMAT, "no \"context\"");
    refuse("2048", "0", ERR_RANGE, "1 to 1048576");
    refuse("2048", "1048577", ERR_RANGE, NULL);
    refuse("2048", "1.5", ERR_FORMAT, NULL);
    refuse("134217728", "1048575", ERR_RANGE, NULL);
    refuse("134217728", "1125899906842625", ERR_RANGE, NULL);
    refuse("\"cobord_cluster\": 1", "\"cobord_cluster\": 2", ERR_UNSUPPORTED,
           "version 2, this program 1");
    refuse("\"q8_0\"", "\"q4\"", ERR_FORMAT, NULL);
    refuse("\"q8_0\"", "8", ERR_FORMAT, NULL);
    refuse("\"int8\"", "\"bf16\"", ERR_TYPE, NULL);
    refuse("0123456789abcdef", "0123456789abcdeF", ERR_FORMAT, NULL);
    refuse("0123456789abcdef", "0123456789abcde", ERR_FORMAT, NULL);
    refuse("\"layers\": 28", "\"layers\": 513", ERR_RANGE, NULL);
    refuse("\"vocabulary\": 1000", "\"vocabulary\": 4194305", ERR_RANGE, NULL);
    refuse("\"name\": \"m\"", "\"name\": \"\"", ERR_RANGE, NULL);
    refuse("\"name\": \"m\"", "\"name\": \"\\u0000\"", ERR_FORMAT, "control");
    refuse("\"/k\"", "7", ERR_FORMAT, NULL);
    refuse("\"/k\"", "\"/k\", \"pipeline\": 65", ERR_RANGE, "0 to 64");
    refuse("\"key\": \"/p\"", "\"key\": \"\"", ERR_FORMAT, "go together");
    refuse("\"key\": \"/p\"", "\"kex\": \"/p\"", ERR_FORMAT, "unknown member \"kex\"");
    refuse("\"/s\"", "3", ERR_FORMAT, "socket");
    refuse("\"cache_bytes\": 9", "\"cache_bytes\": -9", ERR_FORMAT, NULL);
    refuse("\"range\": \"14-end\"", "\"range\": \"14-end\", \"cache\": \"dir:/d\"", ERR_FORMAT,
           "unknown");
    refuse("\"stations\": [", "\"stations\": 3, \"x\": [", ERR_FORMAT, NULL);
    refuse("\"range\": \"14-end\"", "\"range\": \"14-end\", \"head\": 1", ERR_FORMAT, NULL);
    refuse("\"range\": \"0-14\"", "\"range\": \"0-14\", \"head\": true", ERR_RANGE,
           "only the last");
    refuse("\"range\": \"14-end\"", "\"range\": \"14-end\", \"embed\": true", ERR_RANGE,
           "only the first");
    refuse("\"ids\": [0, 600], ", "\"ids\": [0, 600], \"embed\": true, ", ERR_FORMAT, "unknown");
    assert_int_equal(changed("\"range\": \"14-end\"", "\"range\": \"14-end\", \"head\": true"), OK);
    assert_int_equal(changed("\"key_file\": \"/k\",", "\"chunk\": 4096, \"sessions\": 1024,"), OK);
    assert_int_equal(again.chunk, 4096);
}

static void test_without_shards(void **state)
{
    (void)state;
    static const char text[] =
        "{\"cobord_cluster\":1,\"model\":{\"name\":\"m\","
        "\"knot_id\":\"0000000000000000\",\"knot_key\":\"k\",\"layers\":1,"
        "\"vocabulary\":1},\"context\":1,\"coordinator\":{\"id\":\"coordinator-0\","
        "\"address\":\"a:1\"},\"shards\":[],"
        "\"stations\":[{\"id\":\"station-0\",\"address\":\"a:2\",\"range\":\"0-end\"%s}]}";
    static const char *const flags[] = {",\"embed\":true,\"head\":true", ",\"embed\":true",
                                        ",\"head\":true", ""};
    char out[1024];
    for (int i = 0; i < 4; i++) {
        int n = snprintf(out, sizeof out, text, flags[i]);
        assert_int_equal(parse(out, (size_t)n, &file), i == 0 ? OK : ERR_RANGE);
    }
}

static void test_cut_and_noise(void **state)
{
    (void)state;
    for (size_t n = 0; n < strlen(sample); n++) assert_int_not_equal(parse(sample, n, &again), OK);
    char noisy[sizeof sample];
    srand48(3);
    for (int round = 0; round < 3000; round++) {
        memcpy(noisy, sample, sizeof sample);
        for (int i = 0; i < 1 + round % 3; i++)
            noisy[(size_t)lrand48() % (sizeof sample - 1)] = (char)(lrand48() >> 7);
        if (parse(noisy, sizeof sample - 1, &again) == OK) assert_int_equal(release(NULL), 0);
    }
    char *large = calloc(1, CLUSTER_FILE_BYTES_MAX + 1);
    memset(large, '[', CLUSTER_FILE_BYTES_MAX + 1);
    assert_int_equal(parse(large, CLUSTER_FILE_BYTES_MAX, &again), ERR_FORMAT);
    assert_int_equal(parse(large, CLUSTER_FILE_BYTES_MAX + 1, &again), ERR_TOO_LARGE);
    free(large);
    char little[64];
    Arena none = arena_make(little, sizeof little);
    assert_int_equal(cluster_file_parse(sample, strlen(sample), &none, &again, &why), ERR_MEMORY);
}

static Error many(uint32_t shards)
{
    char *text = malloc(1 << 20);
    size_t n = (size_t)snprintf(
        text, 1 << 20,
        "{\"cobord_cluster\":1,\"model\":{\"name\":\"m\","
        "\"knot_id\":\"0000000000000000\",\"knot_key\":\"k\",\"layers\":1,"
        "\"vocabulary\":%u},\"context\":1,\"coordinator\":{\"id\":\"coordinator-0\","
        "\"address\":\"a:1\"},"
        "\"stations\":[{\"id\":\"station-0\",\"address\":\"a:2\","
        "\"range\":\"0-end\"}],\"shards\":[",
        shards);
    for (uint32_t i = 0; i < shards; i++)
        n += (size_t)snprintf(text + n, (1 << 20) - n,
                              "%s{\"id\":\"shard-%u\",\"address\":\"a:%u\",\"ids\":[%u,%u]}",
                              i ? "," : "", i, 10 + i, i, i + 1);
    n += (size_t)snprintf(text + n, (1 << 20) - n, "]}");
    Error e = parse(text, n, &file);
    free(text);
    return e;
}

static void test_most_nodes(void **state)
{
    (void)state;
    assert_int_equal(many(CLUSTER_FILE_NODES_MAX - 2), OK);
    assert_int_equal(file.node_count, CLUSTER_FILE_NODES_MAX);
    assert_int_equal(many(CLUSTER_FILE_NODES_MAX - 1), ERR_TOO_LARGE);
}

#define TEST(f) cmocka_unit_test_teardown(f, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sample),        TEST(test_write_and_back),
        TEST(test_ranges),        TEST(test_ids_and_addresses),
        TEST(test_members),       TEST(test_without_shards),
        TEST(test_cut_and_noise), TEST(test_most_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
