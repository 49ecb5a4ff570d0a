/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF reader against files that lie: one test per kind of lie. Every one must end in an error
 * that names the thing, without memory taken for what is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <time.h>

#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"
#include "tiny_gguf.h"

typedef struct Read {
    Gguf gguf;
    CursorPort port;
    TinyFile file;
    Why why;
    uint8_t *memory, *exact;
    Arena arena;
} Read;

static Error read_bytes(Read *r, const uint8_t *bytes, size_t count)
{
    memset(r, 0, sizeof *r);
    r->memory = malloc(TINY_ARENA);
    r->exact = malloc(count ? count : 1);
    if (count) memcpy(r->exact, bytes, count);
    r->arena = arena_make(r->memory, TINY_ARENA);
    return tiny_parse(r->exact, count, &r->arena, &r->gguf, &r->port, &r->file, &r->why);
}

static void read_free(Read *r)
{
    free(r->memory);
    free(r->exact);
}

/* The file must fail with `error`, and the words must hold `word`. */
static void expect(const uint8_t *bytes, size_t count, Error error, const char *word)
{
    Read r;
    Error e = read_bytes(&r, bytes, count);
    if (e != error || !strstr(r.why.text, word))
        fail_msg("error %d (%s), wanted %d with \"%s\"", (int)e, r.why.text, (int)error, word);
    read_free(&r);
}

static void expect_tiny(Tiny *t, Error error, const char *word)
{
    expect(t->bytes, t->used, error, word);
    tiny_free(t);
}

static Error model_error(Tiny *t, Why *why)
{
    Read r;
    KnotModel m;
    Error e = read_bytes(&r, t->bytes, t->used);
    if (e == OK) e = gguf_model_read(&r.gguf, &m, &r.why);
    if (e == OK) e = gguf_model_check_tensors(&r.gguf, &m, &r.why);
    *why = r.why;
    read_free(&r);
    return e;
}

static void expect_model(Tiny *t, Error error, const char *word)
{
    Why why;
    Error e = model_error(t, &why);
    if (e != error || !strstr(why.text, word))
        fail_msg("error %d (%s), wanted %d with \"%s\"", (int)e, why.text, (int)error, word);
    tiny_free(t);
}

static void reads_a_model(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        Tiny t;
        Read r;
        KnotModel m;
        tiny_model(&t, BLOCK_Q8_0, false);
        bytes_store32(t.bytes + 4, version);
        assert_int_equal(read_bytes(&r, t.bytes, t.used), OK);
        assert_int_equal(r.gguf.tensor_count, 27);
        const GgufTensor *q = gguf_tensor(&r.gguf, "blk_1_attn_q_weight");
        assert_non_null(q);
        assert_string_equal(q->name, "blk.1.attn_q.weight");
        assert_int_equal(q->rows, 32);
        assert_int_equal(q->bytes, 32 * 34);
        assert_int_equal(q->offset % 32, 0);
        assert_int_equal(gguf_model_read(&r.gguf, &m, &r.why), OK);
        assert_int_equal(m.layers, 2);
        assert_int_equal(m.head_dim, 16);
        assert_int_equal(m.vocabulary, 9);
        assert_true(m.rope_base == 1e6f);
        assert_int_equal(gguf_model_check_tensors(&r.gguf, &m, &r.why), OK);
        read_free(&r);
        tiny_free(&t);
    }
}

/* G01 */
static void refuses_dimensions_that_wrap(void **state)
{
    (void)state;
    static const uint64_t dims[][2] = {{1152, (1ull << 42) + 1},
                                       {1ull << 32, 1ull << 32},
                                       {UINT64_MAX, 1},
                                       {32, UINT32_MAX},
                                       {UINT32_MAX - 31, UINT32_MAX}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        Tiny t;
        tiny_model(&t, BLOCK_Q8_0, false);
        memcpy(tiny_at(&t, "dim0", "blk.0.attn_q.weight"), &dims[i][0], 8);
        memcpy(tiny_at(&t, "dim1", "blk.0.attn_q.weight"), &dims[i][1], 8);
        Read r;
        assert_int_not_equal(read_bytes(&r, t.bytes, t.used), OK);
        assert_non_null(strstr(r.why.text, "blk.0.attn_q.weight"));
        read_free(&r);
        tiny_free(&t);
    }
}

static void refuses_data_beyond_the_file(void **state)
{
    (void)state;
    Tiny t;
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store64(tiny_at(&t, "offset", "output_norm.weight"), UINT64_MAX - 31);
    expect_tiny(&t, ERR_TRUNCATED, "output_norm.weight");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store64(tiny_at(&t, "offset", "output_norm.weight"), 17);
    expect_tiny(&t, ERR_RANGE, "multiple of the alignment");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store64(tiny_at(&t, "offset", "output_norm.weight"), 0);
    expect_tiny(&t, ERR_RANGE, "share bytes");
}

/* G02 */
static void bounds_counts_by_the_bytes_left(void **state)
{
    (void)state;
    static const uint64_t counts[] = {
        INT64_MAX, UINT64_MAX, 1ull << 58, SIZE_MAX / sizeof(GgufTensor) - 1, 1, 1000000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t field = 8; field <= 16; field += 8) {
            uint8_t file[24] = "GGUF\3";
            memcpy(file + field, &counts[i], 8);
            Read r;
            assert_int_equal(read_bytes(&r, file, sizeof file), ERR_TRUNCATED);
            assert_true(r.arena.used <= CURSOR_WINDOW_BYTES);
            read_free(&r);
        }
}

/* G04 */
static void refuses_empty_dimensions(void **state)
{
    (void)state;
    static const char *const which[] = {"dim0", "dim1"};
    for (size_t i = 0; i < 2; i++) {
        Tiny t;
        tiny_model(&t, BLOCK_Q8_0, false);
        bytes_store64(tiny_at(&t, which[i], "blk.0.ffn_up.weight"), 0);
        expect_tiny(&t, ERR_SHAPE, "blk.0.ffn_up.weight");
    }
    Tiny t;
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "dims", "blk.0.ffn_up.weight"), 0);
    expect_tiny(&t, ERR_SHAPE, "0 dimensions");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "dims", "blk.0.ffn_up.weight"), 5);
    expect_tiny(&t, ERR_SHAPE, "5 dimensions");
}

/* G05 */
static void refuses_odd_alignments(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 31, 1u << 17, 1u << 30, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Tiny t;
        tiny_start(&t, 3);
        tiny_key_text(&t, "general.architecture", "qwen2");
        tiny_key_u32(&t, "general.alignment", bad[i]);
        tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8);
        tiny_data(&t);
        expect_tiny(&t, ERR_RANGE, "general.alignment");
    }
    for (uint32_t type = 0; type < GGUF_VALUE_TYPES; type++) {
        if (type == GGUF_U32) continue;
        Tiny t;
        tiny_start(&t, 3);
        tiny_key_text(&t, "general.architecture", "qwen2");
        tiny_key(&t, "general.alignment", type);
        if (type == GGUF_STRING) tiny_string(&t, "32");
        else if (type == GGUF_ARRAY) {
            tiny_u32(&t, GGUF_U32);
            tiny_u64(&t, 0);
        } else if (type == GGUF_U64 || type == GGUF_I64 || type == GGUF_F64) tiny_u64(&t, 1);
        else if (type == GGUF_U16 || type == GGUF_I16) tiny_put(&t, "\1\0", 2);
        else if (type == GGUF_U8 || type == GGUF_I8 || type == GGUF_BOOL) tiny_put(&t, "\1", 1);
        else tiny_u32(&t, 32);
        tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8);
        tiny_data(&t);
        expect_tiny(&t, ERR_TYPE, "general.alignment");
    }
}

static void accepts_other_alignments(void **state)
{
    (void)state;
    for (uint32_t alignment = 8; alignment <= 65536; alignment *= 8) {
        Tiny t;
        Read r;
        tiny_start(&t, 3);
        t.alignment = alignment;
        tiny_key_text(&t, "general.architecture", "qwen2");
        tiny_key_u32(&t, "general.alignment", alignment);
        tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8);
        tiny_tensor(&t, "output_norm.weight", BLOCK_F32, 0, 8);
        tiny_data(&t);
        assert_int_equal(read_bytes(&r, t.bytes, t.used), OK);
        assert_int_equal(r.gguf.tensors[1].offset,
                         t.data_at + (64 + alignment - 1) / alignment * alignment);
        read_free(&r);
        tiny_free(&t);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* G06: lengths that nobody sent bytes for, without time or memory lost on them */
static void compares_lengths_with_what_is_left(void **state)
{
    (void)state;
    double start = seconds();
    static const uint64_t lengths[] = {1ull << 63, UINT64_MAX, 1ull << 40, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        Tiny t;
        Read r;
        tiny_start(&t, 3);
        tiny_u64(&t, lengths[i]); /* a key's name */
        tiny_put(&t, "general.architecture", 20);
        bytes_store64(t.bytes + 16, 1);
        assert_int_equal(read_bytes(&r, t.bytes, t.used), ERR_TRUNCATED);
        read_free(&r);
        tiny_free(&t);

        tiny_start(&t, 3);
        tiny_key(&t, "general.name", GGUF_STRING);
        tiny_u64(&t, lengths[i]);
        assert_int_equal(read_bytes(&r, t.bytes, t.used), ERR_TRUNCATED);
        assert_true(r.arena.used <= CURSOR_WINDOW_BYTES + 4096);
        read_free(&r);
        tiny_free(&t);
        for (uint32_t element = 0; element < GGUF_VALUE_TYPES; element++) {
            tiny_start(&t, 3);
            tiny_key_array(&t, "a.b", element, lengths[i]);
            Error e = read_bytes(&r, t.bytes, t.used);
            assert_int_equal(e, element == GGUF_ARRAY ? ERR_UNSUPPORTED : ERR_TRUNCATED);
            assert_true(r.arena.used <= CURSOR_WINDOW_BYTES + 4096);
            read_free(&r);
            tiny_free(&t);
        }
    }
    assert_true(seconds() - start < 2.0);
}

static void refuses_unknown_value_types(void **state)
{
    (void)state;
    Tiny t;
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "type", "general.name"), 13);
    expect_tiny(&t, ERR_TYPE, "general.name");
    tiny_model(&t, BLOCK_Q8_0, false);
    *tiny_at(&t, "value", "tokenizer.ggml.add_bos_token") = 2;
    expect_tiny(&t, ERR_FORMAT, "neither true nor false");
}

/* G08 */
static void refuses_strange_names(void **state)
{
    (void)state;
    static const char *const keys[] = {"", "a\nb", "a\xff", "a\x1b[31mb"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        Tiny t;
        tiny_start(&t, 3);
        tiny_key_u32(&t, keys[i], 1);
        Read r;
        assert_int_equal(read_bytes(&r, t.bytes, t.used), ERR_FORMAT);
        assert_null(strchr(r.why.text, '\x1b'));
        assert_null(strchr(r.why.text, '\n'));
        read_free(&r);
        tiny_free(&t);
    }
    char *longest = malloc(70000);
    memset(longest, 'k', 65536);
    longest[65536] = '\0';
    Tiny t;
    tiny_start(&t, 3);
    tiny_key_u32(&t, longest, 1);
    expect_tiny(&t, ERR_FORMAT, "65536 bytes");
    tiny_start(&t, 3);
    tiny_key_text(&t, "general.architecture", "qwen2");
    longest[65] = '\0';
    tiny_tensor(&t, longest, BLOCK_F32, 0, 8);
    tiny_data(&t);
    expect_tiny(&t, ERR_FORMAT, "65 bytes");
    static const char *const tensors[] = {"", "../x", "a/b", "a b", "a\"b"};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        tiny_start(&t, 3);
        tiny_key_text(&t, "general.architecture", "qwen2");
        tiny_tensor(&t, tensors[i], BLOCK_F32, 0, 8);
        tiny_data(&t);
        expect_tiny(&t, ERR_FORMAT, "tensor name");
    }
    free(longest);
}

/* G09 and G10 */
static void refuses_duplicates(void **state)
{
    (void)state;
    Tiny t;
    tiny_start(&t, 3);
    tiny_key_text(&t, "general.architecture", "qwen2");
    tiny_key_text(&t, "general.architecture", "llama");
    expect_tiny(&t, ERR_DUPLICATE, "general.architecture");
    static const char *const second[] = {"blk.0.attn_q.weight",
                                         "blk_0.attn_q.weight"}; /* the same name in a knot */
    for (size_t i = 0; i < 2; i++) {
        tiny_start(&t, 3);
        tiny_key_text(&t, "general.architecture", "qwen2");
        tiny_tensor(&t, "blk.0.attn_q.weight", BLOCK_F32, 2, 8);
        tiny_tensor(&t, second[i], BLOCK_F32, 2, 8);
        tiny_data(&t);
        expect_tiny(&t, ERR_DUPLICATE, second[i]);
    }
}

static void finds_duplicates_among_many_in_linear_time(void **state)
{
    (void)state;
    enum { COUNT = 60000, EACH = 8 + 9 + 4 + 8 + 4 + 8 };
    size_t bytes = 24 + 8 + 20 + 4 + 8 + 5 + (size_t)COUNT * EACH + 64 + (size_t)COUNT * 32;
    Tiny t = {.bytes = calloc(bytes, 1), .alignment = 32};
    memcpy(t.bytes, "GGUF\3", 5);
    t.used = 24;
    tiny_key_text(&t, "general.architecture", "qwen2");
    size_t at = t.used;
    for (uint32_t i = 0; i < COUNT; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%08u", i);
        bytes_store64(t.bytes + at, 9);
        memcpy(t.bytes + at + 8, name, 9);
        bytes_store32(t.bytes + at + 17, 1);
        bytes_store64(t.bytes + at + 21, 8);
        bytes_store32(t.bytes + at + 29, BLOCK_F32);
        bytes_store64(t.bytes + at + 33,
                      32ull * (COUNT - 1 - i)); /* falling: the sort must not be quadratic either */
        at += EACH;
    }
    bytes_store64(t.bytes + 8, COUNT);
    size_t room = (size_t)40 << 20;
    uint8_t *memory = malloc(room);
    Arena arena = arena_make(memory, room);
    Gguf g;
    CursorPort port;
    TinyFile file;
    Why why = {""};
    double start = seconds();
    Error e = tiny_parse(t.bytes, bytes, &arena, &g, &port, &file, &why);
    assert_string_equal(why.text, "");
    assert_int_equal(e, OK);
    assert_int_equal(g.tensor_count, COUNT);
    assert_true(seconds() - start < 5.0); /* linear takes some hundredths, quadratic minutes */
    free(memory);
    free(t.bytes);
}

/* G12 */
static void says_what_a_foreign_file_is(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        const char *word;
    } files[] = {
        {"<!DOCTYPE html><html><head>", 27, "HTML"},
        {"\n\n <HTML lang=en>", 17, "HTML"},
        {"lmgg\1\0\0\0", 8, "ggml"},
        {"tjgg\3\0\0\0", 8, "ggjt"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:", 54, "git-lfs"},
        {"\100\0\0\0\0\0\0\0{\"__metadata__\":{}}", 27, "safetensors"},
        {"PK\3\4\24\0\0\0", 8, "zip"},
        {"KNOT\2\0\0\0\0\0", 10, "knot"},
        {"{\"error\":\"not found\"}", 21, "JSON"},
        {"<?xml version=\"1.0\"?><Error>", 28, "XML"},
        {"\0\0\0\0\0\0\0\0", 8, "zero bytes"},
        {"", 0, "empty"},
        {"hello", 5, "does not start with GGUF"},
        {"G", 1, "does not start with GGUF"},
        {"GGUF", 4, "header"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        Read r;
        Error e = read_bytes(&r, (const uint8_t *)files[i].bytes, files[i].count);
        assert_true(e == ERR_FORMAT || e == ERR_TRUNCATED);
        if (!strstr(r.why.text, files[i].word)) fail_msg("%s: %s", files[i].word, r.why.text);
        read_free(&r);
    }
}

static void refuses_other_versions(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *word;
    } versions[] = {{0, "version 0"},
                    {1, "version 1"},
                    {4, "version 4"},
                    {0x03000000, "big-endian"},
                    {UINT32_MAX, "version"}};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        Tiny t;
        tiny_model(&t, BLOCK_Q8_0, false);
        bytes_store32(t.bytes + 4, versions[i].version);
        expect_tiny(&t, ERR_UNSUPPORTED, versions[i].word);
    }
}

/* G13: before any tensor is looked at */
static void names_an_unsupported_architecture_first(void **state)
{
    (void)state;
    Tiny t;
    tiny_start(&t, 3);
    tiny_key_text(&t, "general.architecture", "qwen3moe");
    tiny_tensor(&t, "blk.0.ffn_up_exps.weight", BLOCK_F32, 2, 8);
    tiny_data(&t);
    bytes_store32(tiny_at(&t, "ttype", "blk.0.ffn_up_exps.weight"), 999);
    expect_tiny(&t, ERR_UNSUPPORTED, "qwen3moe");
    tiny_start(&t, 3);
    tiny_key_u32(&t, "general.alignment", 32);
    tiny_tensor(&t, "a", BLOCK_F32, 2, 8);
    tiny_data(&t);
    expect_tiny(&t, ERR_FORMAT, "general.architecture");
}

static void refuses_unknown_types_of_tensors(void **state)
{
    (void)state;
    static const uint32_t types[] = {4, 5, 9, 15, 20, 31, 39, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        Tiny t;
        tiny_model(&t, BLOCK_Q8_0, false);
        bytes_store32(tiny_at(&t, "ttype", "blk.1.ffn_down.weight"), types[i]);
        expect_tiny(&t, ERR_TYPE, "blk.1.ffn_down.weight");
    }
}

/* Q08 */
static void refuses_rows_that_are_no_whole_blocks(void **state)
{
    (void)state;
    static const uint64_t cols[] = {4544, 2688, 64, 1, 255, 257, 288};
    static const BlockType types[] = {BLOCK_Q2_K, BLOCK_Q3_K, BLOCK_Q4_K, BLOCK_Q5_K, BLOCK_Q6_K};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++)
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            Tiny t;
            tiny_start(&t, 3);
            tiny_key_text(&t, "general.architecture", "qwen2");
            tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8192);
            tiny_data(&t);
            bytes_store64(tiny_at(&t, "dim0", "token_embd.weight"), cols[i]);
            bytes_store32(tiny_at(&t, "ttype", "token_embd.weight"), types[k]);
            expect_tiny(&t, ERR_SHAPE, "token_embd.weight");
        }
}

static void judges_the_tensors_of_a_model(void **state)
{
    (void)state;
    Tiny t;
    tiny_model(&t, BLOCK_Q8_0, true); /* tied head: fine */
    expect_model(&t, OK, "");
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "name", "blk.1.attn_v.weight") + 8, "blk.1.attn_x.weight", 19);
    expect_model(&t, ERR_UNSUPPORTED, "blk.1.attn_x.weight");
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "name", "blk.1.attn_v.weight") + 8, "blk.2.attn_v.weight", 19);
    expect_model(&t, ERR_UNSUPPORTED, "blk.2.attn_v.weight");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "qwen2.block_count"), 3);
    expect_model(&t, ERR_MISSING_TENSOR, "blk_2_");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "qwen2.block_count"), UINT32_MAX);
    expect_model(&t, ERR_RANGE, "layers");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "qwen2.attention.head_count"), 0);
    expect_model(&t, ERR_FORMAT, "qwen2.attention.head_count");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "type", "qwen2.attention.head_count"), GGUF_F32);
    expect_model(&t, ERR_TYPE, "qwen2.attention.head_count");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "qwen2.rope.freq_base"), 0x7f800000);
    expect_model(&t, ERR_RANGE, "qwen2.rope.freq_base");
}

static void refuses_a_mixture_of_experts(void **state)
{
    (void)state;
    Tiny t;
    tiny_start(&t, 3);
    tiny_hyper(&t);
    tiny_key_u32(&t, "qwen2.expert_count", 8);
    tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8);
    tiny_data(&t);
    expect_model(&t, ERR_UNSUPPORTED, "experts");
}

/* Every file cut short must be an error, wherever it is cut. */
static void every_cut_is_an_error(void **state)
{
    (void)state;
    Tiny t;
    tiny_model(&t, BLOCK_Q4_0, false);
    for (size_t n = 0; n < t.used; n += n < t.data_at + 64 ? 1 : 61) {
        Read r;
        if (read_bytes(&r, t.bytes, n) == OK && n <= t.used - 32)
            fail_msg("cut at %zu of %zu was read", n, t.used);
        read_free(&r);
    }
    tiny_free(&t);
}

/* --- the tokenizer --- */

static Error vocab_error(Tiny *t, Why *why, Vocab *out, Read *r)
{
    uint8_t *section = NULL;
    size_t bytes = 0;
    Error e = read_bytes(r, t->bytes, t->used);
    if (e == OK) e = gguf_vocab_build(&r->gguf, &r->arena, &section, &bytes, &r->why);
    if (e == OK) e = vocab_parse(section, bytes, out, &r->why);
    *why = r->why;
    return e;
}

static void expect_vocab(Tiny *t, Error error, const char *word)
{
    Why why;
    Vocab v;
    Read r;
    Error e = vocab_error(t, &why, &v, &r);
    if (e != error || !strstr(why.text, word))
        fail_msg("error %d (%s), wanted %d with \"%s\"", (int)e, why.text, (int)error, word);
    read_free(&r);
    tiny_free(t);
}

static void makes_a_tokenizer_section(void **state)
{
    (void)state;
    Tiny t;
    Read r;
    Vocab v;
    Why why;
    uint32_t bytes;
    tiny_model(&t, BLOCK_Q8_0, false);
    assert_int_equal(vocab_error(&t, &why, &v, &r), OK);
    assert_int_equal(v.tokens, 9);
    assert_int_equal(v.merges, 3);
    assert_int_equal(v.pre, VOCAB_PRE_QWEN2);
    assert_int_equal(v.eos, 7);
    assert_int_equal(v.bos, VOCAB_NO_TOKEN);
    assert_int_equal(vocab_type(&v, 7), VOCAB_CONTROL);
    assert_memory_equal(vocab_token(&v, 6, &bytes), "\304\240a", 3);
    assert_int_equal(bytes, 3);
    VocabMerge m = vocab_merge(&v, 1);
    assert_int_equal(m.left, 3);
    assert_int_equal(m.right, 2);
    assert_int_equal(m.merged, 4);
    assert_memory_equal(v.chat_template, "{{ messages }}", 14);
    assert_true(vocab_score(&v, 0) == 0.0f);
    read_free(&r);
    tiny_free(&t);
}

static void refuses_tokenizers_it_cannot_honour(void **state)
{
    (void)state;
    Tiny t;
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "value", "tokenizer.ggml.pre") + 8, "qwen9", 5);
    expect_vocab(&t, ERR_UNSUPPORTED, "qwen9");
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "value", "tokenizer.ggml.model") + 8, "bert", 4);
    expect_vocab(&t, ERR_UNSUPPORTED, "bert");
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "key", "tokenizer.ggml.pre") + 8, "tokenizer.ggml.prf", 18);
    expect_vocab(&t, ERR_UNSUPPORTED, "(none named)");
    tiny_model(&t, BLOCK_Q8_0, false);
    memcpy(tiny_at(&t, "key", "tokenizer.ggml.merges") + 8, "tokenizer.ggml.nerges", 21);
    expect_vocab(&t, ERR_FORMAT, "tokenizer.ggml.merges");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "tokenizer.ggml.eos_token_id"), 9);
    expect_vocab(&t, ERR_RANGE, "tokenizer.ggml.eos_token_id");
    tiny_model(&t, BLOCK_Q8_0, false);
    tiny_at(&t, "value", "tokenizer.ggml.merges")[12 + 8] = 'z';
    expect_vocab(&t, ERR_FORMAT, "merge 0");
    tiny_model(&t, BLOCK_Q8_0, false);
    bytes_store32(tiny_at(&t, "value", "tokenizer.ggml.token_type") + 12, 7);
    expect_vocab(&t, ERR_RANGE, "type 7");
    tiny_start(&t, 3);
    tiny_hyper(&t);
    tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 2, 8);
    tiny_data(&t);
    expect_vocab(&t, ERR_FORMAT, "no tokenizer");
}

static void sentencepiece_has_its_own_defaults(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "\342\226\201a"};
    static const float scores[] = {0.0f, 0.0f, 0.0f, -1.5f};
    Tiny t;
    Read r;
    Vocab v;
    Why why;
    tiny_start(&t, 3);
    tiny_hyper(&t);
    tiny_key_text(&t, "tokenizer.ggml.model", "llama");
    tiny_key_text(&t, "tokenizer.ggml.pre", "default");
    tiny_key_texts(&t, "tokenizer.ggml.tokens", tokens, 4);
    tiny_key_array(&t, "tokenizer.ggml.scores", GGUF_F32, 4);
    tiny_put(&t, scores, sizeof scores);
    tiny_tensor(&t, "token_embd.weight", BLOCK_F32, 4, 8);
    tiny_data(&t);
    assert_int_equal(vocab_error(&t, &why, &v, &r), OK);
    assert_int_equal(v.model, VOCAB_SENTENCEPIECE);
    assert_int_equal(v.bos, 1);
    assert_int_equal(v.eos, 2);
    assert_int_equal(v.unknown, 0);
    assert_true(v.add_bos && v.add_space_prefix && !v.add_eos);
    assert_true(vocab_score(&v, 3) == -1.5f);
    read_free(&r);
    bytes_store32(tiny_at(&t, "value", "tokenizer.ggml.scores") + 12, 0x7fc00000);
    expect_vocab(&t, ERR_RANGE, "not finite");
}

/* --- parts --- */

static void split_part(Tiny *t, uint32_t number, uint32_t count, const char *tensor)
{
    tiny_start(t, 3);
    if (number == 0) tiny_hyper(t);
    tiny_key_u32(t, "split.no", number);
    tiny_key_u32(t, "split.count", count);
    if (tensor) tiny_tensor(t, tensor, BLOCK_F32, 0, 32);
    tiny_data(t);
}

static Error read_parts(Tiny *parts, uint32_t count, Gguf *out, Why *why, void *memory)
{
    static TinyFile files[4];
    static CursorPort ports[4];
    Arena arena = arena_make(memory, TINY_ARENA);
    for (uint32_t i = 0; i < count; i++) {
        files[i] = (TinyFile){parts[i].bytes, 0, 0};
        ports[i] = (CursorPort){tiny_read, &files[i], parts[i].used};
    }
    return gguf_read(ports, count, &arena, out, why);
}

static void reads_a_model_in_parts(void **state)
{
    (void)state;
    Tiny parts[3];
    Gguf g;
    Why why = {""};
    void *memory = malloc(TINY_ARENA);
    split_part(&parts[0], 0, 3, NULL); /* a first part without tensors is common */
    split_part(&parts[1], 1, 3, "a.weight");
    split_part(&parts[2], 2, 3, "b.weight");
    assert_int_equal(read_parts(parts, 3, &g, &why, memory), OK);
    assert_int_equal(g.tensor_count, 2);
    assert_int_equal(gguf_tensor(&g, "b_weight")->file, 2);
    assert_string_equal(g.architecture, "qwen2");
    assert_int_equal(read_parts(parts, 2, &g, &why, memory), ERR_FORMAT);
    assert_non_null(strstr(why.text, "3 files"));
    assert_int_equal(read_parts(parts, 1, &g, &why, memory), ERR_FORMAT);
    Tiny swap = parts[1];
    parts[1] = parts[2];
    parts[2] = swap;
    assert_int_equal(read_parts(parts, 3, &g, &why, memory), ERR_FORMAT);
    for (int i = 0; i < 3; i++) tiny_free(&parts[i]);
    split_part(&parts[0], 0, 2, "a.weight");
    split_part(&parts[1], 1, 2, "a.weight");
    assert_int_equal(read_parts(parts, 2, &g, &why, memory), ERR_DUPLICATE);
    assert_non_null(strstr(why.text, "part 2: "));
    for (int i = 0; i < 2; i++) tiny_free(&parts[i]);
    free(memory);
}

static void knows_the_names_of_parts(void **state)
{
    (void)state;
    uint32_t part = 0, parts = 0;
    assert_true(gguf_split_name("m-00002-of-00003.gguf", 21, &part, &parts));
    assert_int_equal(part, 2);
    assert_int_equal(parts, 3);
    static const char *const not[] = {"m.gguf",
                                      "m-00000-of-00003.gguf",
                                      "m-00004-of-00003.gguf",
                                      "m-00001-of-00000.gguf",
                                      "m-0001-of-00003.gguf",
                                      "m-00001-of-00003.gguf.part",
                                      "00001-of-00003.gguf",
                                      ""};
    for (size_t i = 0; i < sizeof not/ sizeof not[0]; i++)
        assert_false(gguf_split_name(not[i], strlen(not[i]), &part, &parts));
    assert_int_equal(part, 2); /* untouched by what is no such name */
    assert_int_equal(parts, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_a_model),
                                       cmocka_unit_test(refuses_dimensions_that_wrap),
                                       cmocka_unit_test(refuses_data_beyond_the_file),
                                       cmocka_unit_test(bounds_counts_by_the_bytes_left),
                                       cmocka_unit_test(refuses_empty_dimensions),
                                       cmocka_unit_test(refuses_odd_alignments),
                                       cmocka_unit_test(accepts_other_alignments),
                                       cmocka_unit_test(compares_lengths_with_what_is_left),
                                       cmocka_unit_test(refuses_unknown_value_types),
                                       cmocka_unit_test(refuses_strange_names),
                                       cmocka_unit_test(refuses_duplicates),
                                       cmocka_unit_test(finds_duplicates_among_many_in_linear_time),
                                       cmocka_unit_test(says_what_a_foreign_file_is),
                                       cmocka_unit_test(refuses_other_versions),
                                       cmocka_unit_test(names_an_unsupported_architecture_first),
                                       cmocka_unit_test(refuses_unknown_types_of_tensors),
                                       cmocka_unit_test(refuses_rows_that_are_no_whole_blocks),
                                       cmocka_unit_test(judges_the_tensors_of_a_model),
                                       cmocka_unit_test(refuses_a_mixture_of_experts),
                                       cmocka_unit_test(every_cut_is_an_error),
                                       cmocka_unit_test(makes_a_tokenizer_section),
                                       cmocka_unit_test(refuses_tokenizers_it_cannot_honour),
                                       cmocka_unit_test(sentencepiece_has_its_own_defaults),
                                       cmocka_unit_test(reads_a_model_in_parts),
                                       cmocka_unit_test(knows_the_names_of_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
