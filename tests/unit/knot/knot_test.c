/* SPDX-License-Identifier: Apache-2.0 */
/* The container's reader: what it accepts, and every rule of docs/format/knot.md broken once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "knot/repair.h"
#include "tiny_knot.h"

static TinyKnot encoded(BlockType type, bool tied, unsigned version)
{
    Tiny t;
    TinyKnot k;
    Why why = {""};
    tiny_model(&t, type, tied);
    Error e = tiny_encode(t.bytes, t.used, version, &k, &why);
    if (e) fail_msg("%s", why.text);
    tiny_free(&t);
    return k;
}

static void expect_parse(const uint8_t *bytes, size_t count, uint64_t file_bytes, Error error,
                         const char *word)
{
    TinyParsed p;
    Error e = tiny_knot_parse(bytes, count, file_bytes, &p);
    if (e != error || !strstr(p.why.text, word))
        fail_msg("error %d (%s), wanted %d with \"%s\"", (int)e, p.why.text, (int)error, word);
    tiny_parsed_free(&p);
}

static void expect_json(unsigned version, const char *json, size_t payload, Error error,
                        const char *word)
{
    TinyKnot k = tiny_wrap(version, json, payload);
    expect_parse(k.bytes, k.used, k.used, error, word);
    free(k.bytes);
}

static void reads_both_versions(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 2; version++) {
        TinyKnot k = encoded(BLOCK_Q8_0, false, version);
        TinyParsed p;
        assert_int_equal(tiny_knot_parse(k.bytes, k.used, k.used, &p), OK);
        assert_int_equal(p.knot.version, version);
        assert_int_equal(p.knot.tensor_count, 27);
        assert_int_equal(p.knot.model.ffn, 64);
        assert_string_equal(p.knot.model.architecture, "qwen2");
        assert_true(p.knot.model.norm_epsilon == 1e-6f);
        const KnotTensor *t = knot_find(&p.knot, "blk_1_ffn_down_weight");
        assert_non_null(t);
        assert_int_equal(t->rows, 32);
        assert_int_equal(t->cols, 64);
        assert_int_equal(t->layout, version == 2 ? LAYOUT_X16 : LAYOUT_ROWS);
        assert_null(knot_find(&p.knot, "blk_2_ffn_down_weight"));
        assert_int_equal(p.knot.payload_offset % (version == 2 ? 4096 : 4), version == 2 ? 0 : 1);
        tiny_parsed_free(&p);
        free(k.bytes);
    }
}

static void every_cut_of_a_file_is_an_error(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 2; version++) {
        TinyKnot k = encoded(BLOCK_Q4_0, false, version);
        for (size_t n = 0; n < k.used; n += n < 64 || n + 64 > k.used ? 1 : 97) {
            TinyParsed p;
            assert_int_not_equal(tiny_knot_parse(k.bytes, n, n, &p), OK);
            tiny_parsed_free(&p);
        }
        expect_parse(k.bytes, k.used, k.used + 1, ERR_FORMAT,
                     version == 2 ? "header says" : "belong to nothing");
        free(k.bytes);
    }
}

static void names_foreign_files(void **state)
{
    (void)state;
    expect_parse((const uint8_t *)"GGUF\3\0\0\0\0\0\0\0", 12, 12, ERR_FORMAT, "cobord encode");
    expect_parse((const uint8_t *)"<html><body>", 12, 12, ERR_FORMAT, "HTML");
    expect_parse((const uint8_t *)"version https://git-lfs.github.com/spec/v1", 42, 42, ERR_FORMAT,
                 "git lfs pull");
    expect_parse((const uint8_t *)"", 0, 0, ERR_FORMAT, "empty");
    expect_parse((const uint8_t *)"KNOT", 4, 4, ERR_TRUNCATED, "header");
    expect_parse((const uint8_t *)"KNOT\3\0\2\0\0\0{}\0\0\x40", 15, 15, ERR_UNSUPPORTED,
                 "version 3");
    expect_parse((const uint8_t *)"KNOT\0\0\2\0\0\0{}\0\0\x40", 15, 15, ERR_UNSUPPORTED,
                 "version 0");
}

/* G14: lengths of the index that would wrap */
static void bounds_the_length_of_the_json(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {UINT32_MAX, UINT32_MAX - 3, UINT32_MAX - 10,
                                       KNOT_META_BYTES_MAX + 1};
    uint8_t file[64] = "KNOT\2";
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        bytes_store32(file + 6, lengths[i]);
        expect_parse(file, sizeof file, sizeof file, ERR_TOO_LARGE, "limit");
    }
    bytes_store32(file + 6, 64 - 7);
    expect_parse(file, sizeof file, sizeof file, ERR_TRUNCATED, "header needs");
    bytes_store32(file + 6, 1);
    expect_parse(file, sizeof file, sizeof file, ERR_FORMAT, "1 bytes");
}

static void checks_padding_and_marker(void **state)
{
    (void)state;
    TinyKnot k = encoded(BLOCK_Q8_0, false, 1);
    size_t meta = bytes_load32(k.bytes + 6), end = (size_t)knot_header_end(meta);
    k.bytes[end - 1] = 0x41;
    expect_parse(k.bytes, k.used, k.used, ERR_FORMAT, "codec marker");
    k.bytes[end - 1] = 0x40;
    if (end - 1 > 10 + meta) {
        k.bytes[10 + meta] = ' ';
        expect_parse(k.bytes, k.used, k.used, ERR_FORMAT, "not NUL");
    }
    free(k.bytes);
}

#define F32_2X4 "\"type\":\"F32\",\"shape\":[2,4],"
#define V1(tensors) "{\"tensors\":[" tensors "]}"

static void checks_every_member(void **state)
{
    (void)state;
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":0,\"length\":32}"), 32, OK, "");
    expect_json(
        1,
        V1("{\"name\":\"a\",\"tensor_type\":\"F32\",\"shape\":[2,4],\"offset\":0,\"length\":32}"),
        32, OK, "");
    expect_json(1, "[]", 0, ERR_FORMAT, "not an object");
    expect_json(1, "{\"tensors\":3,\"x\":\"                                              \"}", 0,
                ERR_FORMAT, "tensors");
    expect_json(1, "{\"tensors\":[],\"x\":\"                                             \"}", 0,
                ERR_RANGE, "0 tensors");
    expect_json(1, "{\"tensors\":[{},{},{},{},{},{},{},{}]}", 0, ERR_FORMAT, "described");
    expect_json(1, "{\"tensors\":[}", 0, ERR_FORMAT, "not valid JSON");
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":0,\"length\":32,\"length\":32}"), 32,
                ERR_DUPLICATE, "length");
    expect_json(1, "{\"tensors\":[],\"tensors\":[]}", 0, ERR_DUPLICATE, "tensors");
    expect_json(
        1, V1("{\"name\":\"a\",\"tensor_type\":\"F32\"," F32_2X4 "\"offset\":0,\"length\":32}"), 32,
        ERR_DUPLICATE, "tensor_type");
    expect_json(1, V1("{\"name\":\"\"," F32_2X4 "\"offset\":0,\"length\":32}"), 32, ERR_FORMAT,
                "name");
    expect_json(1, V1("{\"name\":\"../a\"," F32_2X4 "\"offset\":0,\"length\":32}"), 32, ERR_FORMAT,
                "../a");
    expect_json(1, V1("{\"name\":\"a\\u001b\"," F32_2X4 "\"offset\":0,\"length\":32}"), 32,
                ERR_FORMAT, "a\\x1b");
    expect_json(1, V1("{\"name\":7," F32_2X4 "\"offset\":0,\"length\":32,\"pad\":1}"), 32,
                ERR_FORMAT, "name");
    expect_json(1,
                V1("{\"name\":\"a\",\"type\":\"Q9_X\",\"shape\":[2,4],\"offset\":0,\"length\":32}"),
                32, ERR_TYPE, "Q9_X");
    expect_json(1, V1("{\"name\":\"a\",\"shape\":[2,4],\"offset\":0,\"length\":32,\"pad\":12}"), 32,
                ERR_TYPE, "type");
    expect_json(1,
                V1("{\"name\":\"a\",\"type\":\"F32\",\"shape\":[0,4],\"offset\":0,\"length\":0}"),
                0, ERR_SHAPE, "dimension");
    expect_json(1, V1("{\"name\":\"a\",\"type\":\"F32\",\"shape\":[],\"offset\":0,\"length\":0}"),
                0, ERR_SHAPE, "dimensions");
    expect_json(
        1,
        V1("{\"name\":\"a\",\"type\":\"F32\",\"shape\":[2,4294967296],\"offset\":0,\"length\":0}"),
        0, ERR_SHAPE, "dimension");
    expect_json(1,
                V1("{\"name\":\"a\",\"type\":\"F32\",\"shape\":[2,-4],\"offset\":0,\"length\":0}"),
                0, ERR_SHAPE, "dimension");
    expect_json(
        1, V1("{\"name\":\"a\",\"type\":\"Q4_K\",\"shape\":[2,288],\"offset\":0,\"length\":0}"), 0,
        ERR_SHAPE, "a: ");
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":0,\"length\":33}"), 33, ERR_SHAPE,
                "takes 32");
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":0,\"length\":31}"), 31, ERR_SHAPE,
                "takes 32");
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":-1,\"length\":32}"), 32, ERR_FORMAT,
                "offset");
    expect_json(1, V1("{\"name\":\"a\"," F32_2X4 "\"offset\":18446744073709551615,\"length\":32}"),
                32, ERR_RANGE, "offset");
    expect_json(1,
                V1("{\"name\":\"a\",\"layout\":\"x16.1\"," F32_2X4 "\"offset\":0,\"length\":256}"),
                256, ERR_FORMAT, "version 1");
    expect_json(1, V1("{\"name\":\"a\",\"layout\":\"x99\"," F32_2X4 "\"offset\":0,\"length\":32}"),
                32, ERR_UNSUPPORTED, "x99");
    expect_json(1, V1("{\"name\":\"a\",\"tied\":true," F32_2X4 "\"offset\":0,\"length\":32}"), 32,
                ERR_FORMAT, "tied");
}

#define TENSOR(name, offset) \
    "{\"name\":\"" name "\"," F32_2X4 "\"offset\":" offset ",\"length\":32}"

static void checks_every_range(void **state)
{
    (void)state;
    expect_json(1, V1(TENSOR("a", "32") "," TENSOR("b", "0")), 64, OK, "");
    expect_json(1, V1(TENSOR("a", "0") "," TENSOR("a", "32")), 64, ERR_DUPLICATE, "a");
    expect_json(1, V1(TENSOR("a", "0") "," TENSOR("b", "31")), 63, ERR_RANGE, "overlaps");
    expect_json(1, V1(TENSOR("a", "0") "," TENSOR("b", "0")), 32, ERR_RANGE, "overlaps");
    expect_json(1, V1(TENSOR("a", "0") "," TENSOR("b", "5000")), 5032, ERR_RANGE,
                "belong to nothing");
    expect_json(1, V1(TENSOR("a", "4096")), 4128, ERR_RANGE, "belong to nothing");
    expect_json(1, V1(TENSOR("a", "0")), 33, ERR_FORMAT, "at the end");
    expect_json(1, V1(TENSOR("a", "0")), 31, ERR_TRUNCATED, "a needs bytes");
    expect_json(1, V1(TENSOR("a", "9223372036854775807")), 32, ERR_RANGE, "belong to nothing");
}

static void reads_the_model_leniently_but_in_range(void **state)
{
    (void)state;
    expect_json(1, "{\"model\":{\"layers\":2,\"unknown\":{}},\"tensors\":[" TENSOR("a", "0") "]}",
                32, OK, "");
    expect_json(1, "{\"model\":{\"layers\":-2},\"tensors\":[" TENSOR("a", "0") "]}", 32, ERR_FORMAT,
                "layers");
    expect_json(1, "{\"model\":{\"layers\":4294967296},\"tensors\":[" TENSOR("a", "0") "]}", 32,
                ERR_RANGE, "layers");
    expect_json(1, "{\"model\":{\"rope_base\":1e300},\"tensors\":[" TENSOR("a", "0") "]}", 32,
                ERR_RANGE, "rope_base");
    expect_json(
        1,
        "{\"model\":{\"architecture\":\"0123456789012345678901234567890123\"},\"tensors\":[" TENSOR(
            "a", "0") "]}",
        32, ERR_RANGE, "architecture");
    expect_json(1, "{\"model\":{\"name\":\"a\\u0000b\"},\"tensors\":[" TENSOR("a", "0") "]}", 32,
                ERR_RANGE, "name");
    expect_json(1, "{\"model\":7,\"tensors\":[" TENSOR("a", "0") "]}", 32, ERR_FORMAT, "model");
}

/* Replaces a text of the JSON by one of the same length. */
static void spoil(TinyKnot *k, const char *from, const char *to)
{
    size_t n = strlen(from);
    assert_int_equal(n, strlen(to));
    uint8_t *at = memmem(k->bytes + 10, bytes_load32(k->bytes + 6), from, n);
    if (!at) fail_msg("no `%s` in the header", from);
    memcpy(at, to, n);
}

static void expect_spoiled(const char *from, const char *to, Error error, const char *word)
{
    TinyKnot k = encoded(BLOCK_Q8_0, false, 2);
    spoil(&k, from, to);
    expect_parse(k.bytes, k.used, k.used, error, word);
    free(k.bytes);
}

static void checks_what_version_2_adds(void **state)
{
    (void)state;
    expect_spoiled("\"alignment\":64", "\"alignment\":32", ERR_UNSUPPORTED, "alignment");
    expect_spoiled("{\"knot_id\":\"", "{\"knot_ib\":\"", ERR_FORMAT, "knot_id");
    expect_spoiled("\"name\":\"blk_0_attn_k_weight\"", "\"name\":\"blk_1_attn_k_weighx\"",
                   ERR_RANGE, "");
    expect_spoiled("\"block_hashes\":", "\"block_hashex\":", ERR_RANGE, "");
    expect_spoiled("\"embedding_row_hashes\":", "\"embedding_row_hashex\":", ERR_RANGE, "11 rows");
    expect_spoiled("\"tensor_hashes\":{\"offset\":", "\"tensor_hashes\":{\"offsex\":", ERR_FORMAT,
                   "tensor_hashes");
    expect_spoiled("\"name\":\"blk_0_ffn_up_weight\"", "\"name\":\"blk_1_ffn_up_weight\"",
                   ERR_DUPLICATE, "blk_1_ffn_up");
    TinyKnot k = encoded(BLOCK_Q8_0, false, 2);
    k.bytes[KNOT_ID_DIGITS_OFFSET] = 'G';
    expect_parse(k.bytes, k.used, k.used, ERR_FORMAT, "hexadecimal");
    free(k.bytes);
}

/* --- stale files --- */

static void refuses_stale_files_by_name(void **state)
{
    (void)state;
    TinyKnot v1 = encoded(BLOCK_Q8_0, false, 1), stale = tiny_stale(&v1);
    assert_true(knot_is_stale(stale.bytes, stale.used));
    assert_false(knot_is_stale(v1.bytes, v1.used));
    expect_parse(stale.bytes, stale.used, stale.used, ERR_STALE, "cobord repair");
    free(v1.bytes);
    free(stale.bytes);
}

/* Every length of JSON modulo 4: a canonical file is never taken for a stale one, and a stale one
 * always repairs to it. */
static void repair_gives_the_canonical_file(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 4; extra++) {
        char json[256];
        (void)snprintf(json, sizeof json, "{\"x\":\"%.*s\",\"tensors\":[" TENSOR("a", "0") "]}",
                       (int)extra, "yyyy");
        TinyKnot v1 = tiny_wrap(1, json, 32), stale = tiny_stale(&v1);
        memset(v1.bytes + v1.used - 32, 0x55, 32);
        memset(stale.bytes + stale.used - 32, 0x55, 32);
        assert_false(knot_is_stale(v1.bytes, v1.used));
        uint64_t header = 0;
        Why why = {""};
        assert_int_equal(knot_header_bytes(stale.bytes, stale.used, stale.used, &header, &why), OK);
        size_t room = repair_arena_bytes((size_t)header);
        void *memory = malloc(room);
        Arena arena = arena_make(memory, room);
        Repair r;
        assert_int_equal(repair_plan(stale.bytes, (size_t)header, stale.used, &arena, &r, &why),
                         OK);
        assert_int_equal(r.header_bytes + r.payload_bytes, v1.used);
        assert_memory_equal(r.header, v1.bytes, r.header_bytes);
        assert_memory_equal(stale.bytes + r.payload_from, v1.bytes + r.header_bytes,
                            (size_t)r.payload_bytes);
        arena_reset(&arena, 0);
        assert_int_equal(
            repair_plan(v1.bytes, (size_t)knot_header_end(strlen(json)), v1.used, &arena, &r, &why),
            ERR_USAGE);
        arena_reset(&arena, 0);
        assert_int_equal(repair_plan(stale.bytes, (size_t)header, stale.used - 1, &arena, &r, &why),
                         ERR_TRUNCATED);
        free(memory);
        free(v1.bytes);
        free(stale.bytes);
    }
}

/* --- tokenizer section --- */

static void vocab_checks_every_number(void **state)
{
    (void)state;
    TinyKnot k = encoded(BLOCK_Q8_0, false, 2);
    TinyParsed p;
    Vocab v;
    Why why = {""};
    assert_int_equal(tiny_knot_parse(k.bytes, k.used, k.used, &p), OK);
    size_t bytes = (size_t)p.knot.tokenizer.bytes;
    const uint8_t *section = k.bytes + p.knot.payload_offset + p.knot.tokenizer.offset;
    assert_int_equal(vocab_parse(section, bytes, &v, &why), OK);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, section, n);
        assert_int_not_equal(vocab_parse(cut, n, &v, &why), OK);
        free(cut);
    }
    static const struct {
        size_t at;
        uint32_t value;
    } spoils[] = {{0, 0},           {4, 2},           {8, 0},           {8, 3},
                  {12, 0},          {12, 5},          {16, 16},         {20, 0},
                  {20, 1u << 23},   {20, UINT32_MAX}, {24, UINT32_MAX}, {28, 9},
                  {32, 9},          {36, 9},          {40, 9},          {44, 9},
                  {48, UINT32_MAX}, {52, UINT32_MAX}, {56, 1},          {60, 1},
                  {64, 5000},       {68, 0},          {64 + 36, 9},     {64 + 36 + 4, UINT32_MAX},
                  {64 + 36 + 8, 9}};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        uint8_t *copy = malloc(bytes);
        memcpy(copy, section, bytes);
        bytes_store32(copy + spoils[i].at, spoils[i].value);
        if (vocab_parse(copy, bytes, &v, &why) == OK) fail_msg("spoil %zu was read", i);
        free(copy);
    }
    tiny_parsed_free(&p);
    free(k.bytes);
}

static void rows_have_their_places(void **state)
{
    (void)state;
    const KnotTensor rows = {.layout = LAYOUT_ROWS, .rows = 33, .offset = 100, .bytes = 33 * 10};
    const KnotTensor panels = {.layout = LAYOUT_X16, .rows = 33, .offset = 100, .bytes = 3 * 160};
    assert_int_equal(knot_unit_rows(&rows), 1);
    assert_int_equal(knot_unit_rows(&panels), 16);
    assert_int_equal(knot_row_offset(&rows, 0), 100);
    assert_int_equal(knot_row_offset(&rows, 32), 420);
    assert_int_equal(knot_rows_end(&rows, 33), 430);
    assert_int_equal(knot_row_offset(&panels, 15), 100);
    assert_int_equal(knot_row_offset(&panels, 32), 420);
    assert_int_equal(knot_rows_end(&panels, 16), 260);
    assert_int_equal(knot_rows_end(&panels, 20), 420);
    assert_int_equal(knot_rows_end(&panels, 33), 580);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_both_versions),
                                       cmocka_unit_test(every_cut_of_a_file_is_an_error),
                                       cmocka_unit_test(names_foreign_files),
                                       cmocka_unit_test(bounds_the_length_of_the_json),
                                       cmocka_unit_test(checks_padding_and_marker),
                                       cmocka_unit_test(checks_every_member),
                                       cmocka_unit_test(checks_every_range),
                                       cmocka_unit_test(reads_the_model_leniently_but_in_range),
                                       cmocka_unit_test(checks_what_version_2_adds),
                                       cmocka_unit_test(refuses_stale_files_by_name),
                                       cmocka_unit_test(repair_gives_the_canonical_file),
                                       cmocka_unit_test(vocab_checks_every_number),
                                       cmocka_unit_test(rows_have_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
