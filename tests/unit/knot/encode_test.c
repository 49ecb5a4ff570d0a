/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoder writes: the values of the GGUF file in the layouts of the knot, hashes,
 * identity, order; golden files. With COBORD_WRITE_GOLDEN=1 in the environment the golden files are
 * written instead of compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "knot/synth.h"
#include "tiny_knot.h"

typedef struct Both {
    Tiny gguf;
    TinyKnot knot;
    TinyParsed parsed;
    void *memory;
    Gguf read;
    CursorPort port;
    TinyFile file;
} Both;

static void both_make(Both *b, BlockType type, bool tied, unsigned version)
{
    Why why = {""};
    tiny_model(&b->gguf, type, tied);
    if (tiny_encode(b->gguf.bytes, b->gguf.used, version, &b->knot, &why)) fail_msg("%s", why.text);
    if (tiny_knot_parse(b->knot.bytes, b->knot.used, b->knot.used, &b->parsed))
        fail_msg("%s", b->parsed.why.text);
    b->memory = malloc(TINY_ARENA);
    Arena arena = arena_make(b->memory, TINY_ARENA);
    assert_int_equal(
        tiny_parse(b->gguf.bytes, b->gguf.used, &arena, &b->read, &b->port, &b->file, &why), OK);
}

static void both_free(Both *b)
{
    tiny_parsed_free(&b->parsed);
    free(b->memory);
    free(b->knot.bytes);
    tiny_free(&b->gguf);
}

static const uint8_t *payload(const Both *b, uint64_t offset)
{
    return b->knot.bytes + b->parsed.knot.payload_offset + offset;
}

/* Panel by panel back to rows, then byte by byte. */
static void same_rows(const Both *b, const KnotTensor *t, const GgufTensor *from)
{
    const uint8_t *want = b->gguf.bytes + from->offset;
    uint64_t row_bytes = from->bytes / from->rows, panel = 0;
    assert_int_equal(t->rows, from->rows);
    if (t->layout == LAYOUT_ROWS) {
        assert_int_equal(t->bytes, from->bytes);
        assert_memory_equal(payload(b, t->offset), want, from->bytes);
        return;
    }
    assert_int_equal(layout_panel_bytes(t->type, t->cols, &panel, NULL), OK);
    uint8_t *rows = malloc((size_t)row_bytes * 16);
    for (uint32_t row = 0; row < t->rows; row += 16) {
        uint32_t count = t->rows - row < 16 ? t->rows - row : 16;
        const uint8_t *at = payload(b, t->offset + row / 16 * panel);
        assert_int_equal(layout_rows_from_panel(t->type, at, count, t->cols, rows, NULL), OK);
        assert_memory_equal(rows, want + row * row_bytes, count * row_bytes);
    }
    free(rows);
}

static void keeps_every_value(void **state)
{
    (void)state;
    static const BlockType types[] = {BLOCK_F32,  BLOCK_F16,  BLOCK_BF16, BLOCK_Q4_0,
                                      BLOCK_Q4_1, BLOCK_Q5_0, BLOCK_Q5_1, BLOCK_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (unsigned version = 1; version <= 2; version++)
            for (int tied = 0; tied < 2; tied++) {
                Both b;
                both_make(&b, types[i], tied, version);
                const Knot *k = &b.parsed.knot;
                assert_int_equal(k->tensor_count, version == 2 ? 27 : 27 - tied);
                assert_int_equal(k->tied_head, version == 2 && tied);
                for (uint32_t n = 0; n < k->tensor_count; n++) {
                    const GgufTensor *from = gguf_tensor(&b.read, k->tensors[n].name);
                    if (!from && k->tied_head) from = gguf_tensor(&b.read, "token_embd_weight");
                    assert_non_null(from);
                    same_rows(&b, &k->tensors[n], from);
                }
                both_free(&b);
            }
}

static void version_1_keeps_the_order_without_gaps(void **state)
{
    (void)state;
    Both b;
    both_make(&b, BLOCK_Q8_0, false, 1);
    uint64_t at = 0;
    for (uint32_t i = 0; i < b.parsed.knot.tensor_count; i++) {
        assert_string_equal(b.parsed.knot.tensors[i].name, b.read.tensors[i].knot_name);
        assert_int_equal(b.parsed.knot.tensors[i].offset, at);
        at += b.parsed.knot.tensors[i].bytes;
    }
    both_free(&b);
}

static void version_2_is_in_execution_order(void **state)
{
    (void)state;
    static const char *const order[] = {
        "blk_0_attn_norm_weight",   "blk_0_ffn_norm_weight", "blk_0_attn_q_bias",
        "blk_0_attn_k_bias",        "blk_0_attn_v_bias",     "blk_1_attn_norm_weight",
        "blk_1_ffn_norm_weight",    "blk_1_attn_q_bias",     "blk_1_attn_k_bias",
        "blk_1_attn_v_bias",        "output_norm_weight",    "blk_0_attn_q_weight",
        "blk_0_attn_k_weight",      "blk_0_attn_v_weight",   "blk_0_attn_output_weight",
        "blk_0_ffn_gate_weight",    "blk_0_ffn_up_weight",   "blk_0_ffn_down_weight",
        "blk_1_attn_q_weight",      "blk_1_attn_k_weight",   "blk_1_attn_v_weight",
        "blk_1_attn_output_weight", "blk_1_ffn_gate_weight", "blk_1_ffn_up_weight",
        "blk_1_ffn_down_weight",    "output_weight",         "token_embd_weight"};
    Both b;
    both_make(&b, BLOCK_Q8_0, false, 2);
    const Knot *k = &b.parsed.knot;
    assert_int_equal(k->tensor_count, sizeof order / sizeof order[0]);
    for (uint32_t i = 0; i < k->tensor_count; i++)
        assert_string_equal(k->tensors[i].name, order[i]);
    assert_int_equal(k->tensors[11].offset % 4096, 0); /* attn of layer 0 */
    assert_int_equal(k->tensors[12].offset, k->tensors[11].offset + k->tensors[11].bytes);
    assert_int_equal(k->tensors[15].offset % 4096, 0);
    assert_int_equal(k->tensors[25].offset % 4096, 0);
    assert_int_equal(k->tensors[26].offset % 4096, 0);
    both_free(&b);
}

static void hashes_and_identity_are_right(void **state)
{
    (void)state;
    Both b;
    both_make(&b, BLOCK_Q8_0, true, 2);
    const Knot *k = &b.parsed.knot;
    for (uint64_t at = 0; at < k->block_hashes.offset; at += KNOT_HASH_BLOCK_BYTES) {
        uint64_t left = k->block_hashes.offset - at,
                 n = left < KNOT_HASH_BLOCK_BYTES ? left : KNOT_HASH_BLOCK_BYTES;
        assert_true(
            bytes_load64(payload(&b, k->block_hashes.offset + at / KNOT_HASH_BLOCK_BYTES * 8)) ==
            hash_xxh64(payload(&b, at), (size_t)n));
    }
    const KnotTensor *embedding = knot_find(k, "token_embd_weight");
    uint64_t row_bytes = embedding->bytes / embedding->rows;
    for (uint32_t row = 0; row < embedding->rows; row++)
        assert_true(
            bytes_load64(payload(&b, k->embedding_row_hashes.offset + 8 * (uint64_t)row)) ==
            hash_xxh64(payload(&b, embedding->offset + row * row_bytes), (size_t)row_bytes));
    for (uint32_t i = 0; i < k->tensor_count; i++)
        assert_true(bytes_load64(payload(&b, k->tensor_hashes.offset + 8 * (uint64_t)i)) ==
                    hash_xxh64(payload(&b, k->tensors[i].offset), (size_t)k->tensors[i].bytes));
    size_t header = (size_t)knot_header_end(bytes_load32(b.knot.bytes + 6));
    assert_true(k->id ==
                knot_identity(b.knot.bytes, header, payload(&b, k->embedding_row_hashes.offset),
                              (size_t)k->embedding_row_hashes.bytes,
                              payload(&b, k->block_hashes.offset), (size_t)k->block_hashes.bytes));
    both_free(&b);
}

/* Padding is NUL everywhere. */
static void holes_are_nul(void **state)
{
    (void)state;
    Both b;
    both_make(&b, BLOCK_Q5_0, false, 2);
    const Knot *k = &b.parsed.knot;
    uint64_t at = 0;
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        for (; at < k->tensors[i].offset; at++) assert_int_equal(*payload(&b, at), 0);
        at = k->tensors[i].offset + k->tensors[i].bytes;
    }
    both_free(&b);
}

static void half_vectors_become_single(void **state)
{
    (void)state;
    static const uint16_t halves[] = {0x3c00, 0xbc00, 0x0001, 0x7bff};
    static const float singles[] = {1.0f, -1.0f, 0x1p-24f, 65504.0f};
    Tiny t;
    TinyKnot k;
    TinyParsed p;
    Why why = {""};
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "ttype", "output_norm.weight"), BLOCK_F16);
    uint64_t offset = bytes_load64(tiny_at(&t, "offset", "output_norm.weight"));
    for (size_t i = 0; i < 4; i++) bytes_store16(t.bytes + t.data_at + offset + 2 * i, halves[i]);
    assert_int_equal(tiny_encode(t.bytes, t.used, 2, &k, &why), OK);
    assert_int_equal(tiny_knot_parse(k.bytes, k.used, k.used, &p), OK);
    const KnotTensor *v = knot_find(&p.knot, "output_norm_weight");
    assert_int_equal(v->type, BLOCK_F32);
    for (size_t i = 0; i < 4; i++)
        assert_true(bytes_load_f32(k.bytes + p.knot.payload_offset + v->offset + 4 * i) ==
                    singles[i]);
    tiny_parsed_free(&p);
    free(k.bytes);
    tiny_free(&t);
}

/* Q07: every bad row is counted, the tensor is named, nothing is written in silence. */
static void counts_what_is_not_finite(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 2; version++) {
        Tiny t;
        TinyKnot k;
        Why why = {""};
        tiny_model(&t, BLOCK_Q8_0, false);
        uint64_t offset = bytes_load64(tiny_at(&t, "offset", "blk.1.ffn_gate.weight"));
        bytes_store16(t.bytes + t.data_at + offset + 34, 0x7c00); /* infinity, row 1 */
        bytes_store16(t.bytes + t.data_at + offset + 34 * 63,
                      0xfe00); /* not a number, the last row */
        assert_int_equal(tiny_encode(t.bytes, t.used, version, &k, &why), ERR_NOT_FINITE);
        assert_non_null(strstr(why.text, "blk.1.ffn_gate.weight"));
        assert_non_null(strstr(why.text, "2 of 64 rows"));
        free(k.bytes);
        tiny_free(&t);
    }
}

/* --- synthetic models --- */

static Error synth_encode(const char *name, uint64_t seed, TinyKnot *out, Why *why)
{
    void *memory = malloc((size_t)64 << 20);
    Arena arena = arena_make(memory, (size_t)64 << 20);
    EncodeInput input;
    Encoder *e = NULL;
    EncodeWish wish;
    TRY(synth_input(synth_shape(name), &arena, &input, why));
    TRY(encode_start(&input, &parallel_serial, &arena, &e, why));
    *out = (TinyKnot){malloc((size_t)encode_file_bytes(e)), 0};
    do {
        TRY(encode_step(e, &wish, why));
        const GgufTensor *t = &input.tensors[wish.source];
        size_t row = (size_t)(t->bytes / t->rows);
        if (wish.kind == ENCODE_READ)
            synth_rows(&input, wish.source, seed, (uint32_t)(wish.offset / row),
                       (uint32_t)(wish.bytes / row), wish.buffer);
        if (wish.kind == ENCODE_WRITE) {
            memcpy(out->bytes + out->used, wish.buffer, wish.bytes);
            out->used += wish.bytes;
        }
        if (wish.kind == ENCODE_PATCH) memcpy(out->bytes + wish.offset, wish.buffer, wish.bytes);
    } while (wish.kind != ENCODE_DONE);
    free(memory);
    return OK;
}

static void synthetic_models_are_valid_and_repeatable(void **state)
{
    (void)state;
    for (const SynthShape *s = synth_shapes(); s->name; s++) {
        if (strncmp(s->name, "test", 4) != 0) continue;
        TinyKnot a, b, c;
        TinyParsed p;
        Vocab v;
        Why why = {""};
        assert_int_equal(synth_encode(s->name, 1, &a, &why), OK);
        assert_int_equal(synth_encode(s->name, 1, &b, &why), OK);
        assert_int_equal(synth_encode(s->name, 2, &c, &why), OK);
        assert_int_equal(a.used, b.used);
        assert_memory_equal(a.bytes, b.bytes, a.used);
        assert_int_not_equal(memcmp(a.bytes, c.bytes, a.used), 0);
        assert_int_equal(tiny_knot_parse(a.bytes, a.used, a.used, &p), OK);
        const uint8_t *section = a.bytes + p.knot.payload_offset + p.knot.tokenizer.offset;
        assert_int_equal(vocab_parse(section, (size_t)p.knot.tokenizer.bytes, &v, &why), OK);
        assert_int_equal(v.tokens, s->vocabulary);
        assert_int_equal(knot_find(&p.knot, "token_embd_weight")->rows, s->vocabulary_rows);
        tiny_parsed_free(&p);
        free(a.bytes);
        free(b.bytes);
        free(c.bytes);
    }
    assert_null(synth_shape("nothing"));
}

/* --- golden files --- */

static void golden(const char *name, const uint8_t *bytes, size_t count)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/knot/%s", COBORD_TEST_DATA, name);
    bool write = getenv("COBORD_WRITE_GOLDEN") != NULL;
    FILE *f = fopen(path, write ? "wb" : "rb");
    if (!f) fail_msg("cannot open %s", path);
    if (write) {
        assert_int_equal(fwrite(bytes, 1, count, f), count);
    } else {
        uint8_t *want = malloc(count + 1);
        size_t n = fread(want, 1, count + 1, f);
        if (n != count || memcmp(want, bytes, count) != 0)
            fail_msg("%s is not what is written today", name);
        free(want);
    }
    (void)fclose(f);
}

/* A file that must be refused, with its bytes kept for other readers to be tried on. */
static void golden_error(const char *name, const TinyKnot *k, Error error)
{
    TinyParsed p;
    assert_int_equal(tiny_knot_parse(k->bytes, k->used, k->used, &p), error);
    tiny_parsed_free(&p);
    golden(name, k->bytes, k->used);
}

static void golden_files_are_written_to_the_byte(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++)
        for (unsigned version = 1; version <= 2; version++) {
            char name[64];
            Both b;
            both_make(&b, tied ? BLOCK_Q4_0 : BLOCK_Q8_0, tied, version);
            (void)snprintf(name, sizeof name, "%s-v%u.knot", tied ? "tied" : "tiny", version);
            golden(name, b.knot.bytes, b.knot.used);
            if (version == 1) golden(tied ? "tied.gguf" : "tiny.gguf", b.gguf.bytes, b.gguf.used);
            both_free(&b);
        }
}

static void golden_errors_are_refused(void **state)
{
    (void)state;
    Both b;
    both_make(&b, BLOCK_Q8_0, false, 1);
    TinyKnot stale = tiny_stale(&b.knot), cut = {b.knot.bytes, b.knot.used - 1};
    golden_error("error-stale.knot", &stale, ERR_STALE);
    golden_error("error-cut.knot", &cut, ERR_TRUNCATED);
    free(stale.bytes);
    both_free(&b);
#define TENSOR(name, offset) \
    "{\"name\":\"" name "\",\"type\":\"F32\",\"shape\":[8],\"offset\":" offset ",\"length\":32}"
    static const struct {
        const char *name, *json;
        size_t payload;
        Error error;
    } files[] = {{"error-overlap.knot",
                  "{\"tensors\":[" TENSOR("a", "0") "," TENSOR("b", "16") "]}", 48, ERR_RANGE},
                 {"error-hole.knot", "{\"tensors\":[" TENSOR("a", "0") "," TENSOR("b", "8192") "]}",
                  8224, ERR_RANGE},
                 {"error-twice.knot", "{\"tensors\":[" TENSOR("a", "0") "," TENSOR("a", "32") "]}",
                  64, ERR_DUPLICATE},
                 {"error-tail.knot", "{\"tensors\":[" TENSOR("a", "0") "]}", 40, ERR_FORMAT},
                 {"error-type.knot",
                  "{\"tensors\":[{\"name\":\"a\",\"type\":\"Q7_K\",\"shape\":[256],\"offset\":0,"
                  "\"length\":9}]}",
                  9, ERR_TYPE}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        TinyKnot k = tiny_wrap(1, files[i].json, files[i].payload);
        golden_error(files[i].name, &k, files[i].error);
        free(k.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_every_value),
                                       cmocka_unit_test(version_1_keeps_the_order_without_gaps),
                                       cmocka_unit_test(version_2_is_in_execution_order),
                                       cmocka_unit_test(hashes_and_identity_are_right),
                                       cmocka_unit_test(holes_are_nul),
                                       cmocka_unit_test(half_vectors_become_single),
                                       cmocka_unit_test(counts_what_is_not_finite),
                                       cmocka_unit_test(synthetic_models_are_valid_and_repeatable),
                                       cmocka_unit_test(golden_files_are_written_to_the_byte),
                                       cmocka_unit_test(golden_errors_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
