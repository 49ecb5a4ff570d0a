/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/synth.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "knot/gguf_model.h"
#include "knot/vocab.h"

enum {
    BYTE_TOKENS = 256,
    TOKEN_END_OF_TEXT = 256,
    TOKEN_TURN_START,
    TOKEN_TURN_END,
    CONTROL_TOKENS_END,
    WORD_BYTES_MAX = 12
};

static const SynthShape shapes[] = {
    {"qwen2.5-coder-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 151936, 152064, 32768, 1e6f, 0,
     false},
    {"qwen2.5-coder-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 151936, 32768, 1e6f, 0,
     false},
    {"qwen2.5-coder-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 151936, 32768, 1e6f, 0,
     false},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 49152, 8192, 1e5f, 0, true},
    {"gemma3-270m", "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 262144, 32768, 1e6f, 512, true},
    /* Small ones: an odd number of layers, rows that are no multiple of 16, padding rows, every
       kind of model. */
    {"test", "qwen2", 3, 256, 512, 4, 2, 64, 1000, 1013, 512, 1e6f, 0, false},
    {"test-llama", "llama", 2, 256, 768, 4, 4, 64, 600, 600, 512, 1e4f, 0, true},
    {"test-qwen3", "qwen3", 2, 256, 512, 4, 1, 128, 600, 617, 512, 1e6f, 0, false},
    {"test-gemma3", "gemma3", 7, 256, 512, 2, 1, 128, 600, 600, 512, 1e6f, 16, true},
    {"test-narrow", "qwen2", 2, 96, 160, 3, 1, 32, 500, 500, 256, 1e6f, 0, false},
    {NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0, false}};

const SynthShape *synth_shapes(void) { return shapes; }

const SynthShape *synth_shape(const char *name)
{
    for (const SynthShape *s = shapes; s->name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

/* --- tensors --- */

static void synth_model(const SynthShape *s, KnotModel *m)
{
    memset(m, 0, sizeof *m);
    memcpy(m->architecture, s->architecture, strlen(s->architecture));
    memcpy(m->name, "synthetic ", 10);
    memcpy(m->name + 10, s->name, strlen(s->name));
    m->layers = s->layers;
    m->hidden = s->hidden;
    m->ffn = s->ffn;
    m->heads = s->heads;
    m->kv_heads = s->kv_heads;
    m->head_dim = m->rope_dim = s->head_dim;
    m->vocabulary = s->vocabulary;
    m->context = s->context;
    m->norm_epsilon = 1e-6f;
    m->rope_base = s->rope_base;
    m->sliding_window = s->sliding_window;
    if (strcmp(s->architecture, "gemma3") != 0) return;
    m->rope_base_local = 10000.0f;
    m->sliding_window_pattern = 6;
}

typedef struct SynthList {
    GgufTensor *tensors;
    uint32_t count, room;
    Arena *arena;
    bool failed;
} SynthList;

/* What a quantizer takes when a row is no multiple of 256. */
static BlockType synth_fitting(BlockType type, uint32_t cols)
{
    if (type == BLOCK_F32 || cols % 256 == 0) return type;
    return type == BLOCK_Q6_K ? BLOCK_Q8_0 : BLOCK_Q5_0;
}

static void synth_add(SynthList *l, const char *name, BlockType type, uint32_t rows, uint32_t cols)
{
    char *copy = arena_take(l->arena, strlen(name) + 1);
    type = synth_fitting(type, cols);
    uint64_t bytes = 0;
    if (!copy || l->count == l->room || block_tensor_bytes(type, rows, cols, &bytes, NULL) != OK) {
        l->failed = true;
        return;
    }
    memcpy(copy, name, strlen(name) + 1);
    l->tensors[l->count++] =
        (GgufTensor){copy, copy, type, rows == 1 ? 1 : 2, rows, cols, 0, 0, bytes};
}

static void synth_add_layer(SynthList *l, uint32_t layer, const char *rest, BlockType type,
                            uint32_t rows, uint32_t cols)
{
    char name[KNOT_NAME_BYTES_MAX + 1];
    synth_add(l, gguf_model_layer_name(name, layer, rest), type, rows, cols);
}

/* The layers to whose attn_v and ffn_down a Q4_K_M file gives more bits: the first and last eighth,
 * and every third between. */
static bool synth_more_bits(uint32_t layer, uint32_t layers)
{
    uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static void synth_layer(SynthList *l, const SynthShape *s, uint32_t layer)
{
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    BlockType more = synth_more_bits(layer, s->layers) ? BLOCK_Q6_K : BLOCK_Q4_K;
    bool gemma = strcmp(s->architecture, "gemma3") == 0,
         qwen2 = strcmp(s->architecture, "qwen2") == 0;
    synth_add_layer(l, layer, "attn_norm_weight", BLOCK_F32, 1, s->hidden);
    synth_add_layer(l, layer, "ffn_norm_weight", BLOCK_F32, 1, s->hidden);
    if (gemma) {
        synth_add_layer(l, layer, "post_attention_norm_weight", BLOCK_F32, 1, s->hidden);
        synth_add_layer(l, layer, "post_ffw_norm_weight", BLOCK_F32, 1, s->hidden);
    }
    if (gemma || strcmp(s->architecture, "qwen3") == 0) {
        synth_add_layer(l, layer, "attn_q_norm_weight", BLOCK_F32, 1, s->head_dim);
        synth_add_layer(l, layer, "attn_k_norm_weight", BLOCK_F32, 1, s->head_dim);
    }
    if (qwen2) {
        synth_add_layer(l, layer, "attn_q_bias", BLOCK_F32, 1, q);
        synth_add_layer(l, layer, "attn_k_bias", BLOCK_F32, 1, kv);
        synth_add_layer(l, layer, "attn_v_bias", BLOCK_F32, 1, kv);
    }
    synth_add_layer(l, layer, "attn_q_weight", BLOCK_Q4_K, q, s->hidden);
    synth_add_layer(l, layer, "attn_k_weight", BLOCK_Q4_K, kv, s->hidden);
    synth_add_layer(l, layer, "attn_v_weight", more, kv, s->hidden);
    synth_add_layer(l, layer, "attn_output_weight", BLOCK_Q4_K, s->hidden, q);
    synth_add_layer(l, layer, "ffn_gate_weight", BLOCK_Q4_K, s->ffn, s->hidden);
    synth_add_layer(l, layer, "ffn_up_weight", BLOCK_Q4_K, s->ffn, s->hidden);
    synth_add_layer(l, layer, "ffn_down_weight", more, s->hidden, s->ffn);
}

/* --- vocabulary --- */

/* Byte-level BPE writes each byte as one printable character: the printable ones of Latin-1 as
 * themselves, the others in order from U+0100 on. Returns its UTF-8 length. */
static uint32_t synth_byte_piece(uint32_t byte, uint8_t out[2])
{
    uint32_t code = 256;
    for (uint32_t b = 0; b <= byte; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        if (b == byte) code = printable ? b : code;
        else code += !printable;
    }
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    out[0] = (uint8_t)(0xc0 | code >> 6);
    out[1] = (uint8_t)(0x80 | (code & 63));
    return 2;
}

/* " w12ab" with the space in its printable form. */
static uint32_t synth_word_piece(uint32_t id, uint8_t out[WORD_BYTES_MAX])
{
    uint32_t n = synth_byte_piece(' ', out);
    out[n++] = 'w';
    for (int shift = 20; shift >= 0; shift -= 4)
        out[n++] = (uint8_t)"0123456789abcdef"[id >> shift & 15];
    return n;
}

static uint32_t synth_piece(uint32_t id, uint8_t out[16])
{
    static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    if (id < BYTE_TOKENS) return synth_byte_piece(id, out);
    if (id >= CONTROL_TOKENS_END) return synth_word_piece(id, out);
    const char *text = controls[id - TOKEN_END_OF_TEXT];
    memcpy(out, text, strlen(text));
    return (uint32_t)strlen(text);
}

static Error synth_vocab(const SynthShape *s, Arena *arena, EncodeInput *out, Why *why)
{
    VocabShape v = {.model = VOCAB_BPE,
                    .pre = VOCAB_PRE_QWEN2,
                    .tokens = s->vocabulary,
                    .bos = TOKEN_END_OF_TEXT,
                    .eos = TOKEN_TURN_END,
                    .eot = VOCAB_NO_TOKEN,
                    .unknown = VOCAB_NO_TOKEN,
                    .pad = TOKEN_END_OF_TEXT};
    uint8_t piece[16];
    for (uint32_t i = 0; i < s->vocabulary; i++) v.text_bytes += synth_piece(i, piece);
    size_t bytes = (size_t)vocab_section_bytes(&v);
    uint8_t *section = arena_take(arena, bytes);
    if (!section) return error_why(why, ERR_MEMORY, "a vocabulary of %zu bytes", bytes);
    VocabParts p = vocab_write_fixed(&v, section);
    uint32_t end = 0;
    for (uint32_t i = 0; i < s->vocabulary; i++) {
        uint32_t n = synth_piece(i, piece);
        memcpy(p.text + end, piece, n);
        end += n;
        bytes_store32(p.ends + 4 * (size_t)i, end);
        p.types[i] =
            i >= TOKEN_END_OF_TEXT && i < CONTROL_TOKENS_END ? VOCAB_CONTROL : VOCAB_NORMAL;
    }
    out->vocab = section;
    out->vocab_bytes = bytes;
    Vocab check;
    return vocab_parse(section, bytes, &check, why);
}

Error synth_input(const SynthShape *s, Arena *arena, EncodeInput *out, Why *why)
{
    enum { PER_LAYER_MAX = 20, GLOBAL_MAX = 8 };
    SynthList l = {.count = 0,
                   .room = s->layers * PER_LAYER_MAX + GLOBAL_MAX,
                   .arena = arena,
                   .failed = false};
    l.tensors = ARENA_NEW(arena, GgufTensor, l.room);
    KnotModel *model = ARENA_NEW(arena, KnotModel, 1);
    if (!l.tensors || !model) return error_why(why, ERR_MEMORY, "the tensors of %s", s->name);
    synth_model(s, model);
    synth_add(&l, "token_embd_weight", BLOCK_Q4_K, s->vocabulary_rows, s->hidden);
    synth_add(&l, "output_norm_weight", BLOCK_F32, 1, s->hidden);
    if (!s->tied) synth_add(&l, "output_weight", BLOCK_Q6_K, s->vocabulary_rows, s->hidden);
    for (uint32_t i = 0; i < s->layers; i++) synth_layer(&l, s, i);
    if (l.failed) return error_why(why, ERR_MEMORY, "the tensors of %s", s->name);
    *out = (EncodeInput){l.tensors, l.count, model, NULL, 0, 2};
    return synth_vocab(s, arena, out, why);
}

/* --- numbers --- */

static uint64_t synth_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* 0 <= x < 1 */
static float synth_unit(uint64_t *state) { return (float)(synth_next(state) >> 40) * 0x1p-24f; }

/* Where a block's half-precision numbers are, the spread of its quants times scales when all other
 * bits are random, and the minimum that brings the mean to zero. Spread and minimum are in units of
 * d. */
typedef struct SynthBlock {
    uint8_t d, min;
    bool has_min;
    float spread, minimum;
} SynthBlock;

static SynthBlock synth_block(BlockType type)
{
    switch (type) {
    case BLOCK_Q4_0: return (SynthBlock){0, 0, false, 4.6f, 0.0f};
    case BLOCK_Q4_1: return (SynthBlock){0, 2, true, 4.6f, -7.5f};
    case BLOCK_Q5_0: return (SynthBlock){0, 0, false, 9.2f, 0.0f};
    case BLOCK_Q5_1: return (SynthBlock){0, 2, true, 9.2f, -15.5f};
    case BLOCK_Q8_0: return (SynthBlock){0, 0, false, 74.0f, 0.0f};
    case BLOCK_Q2_K: return (SynthBlock){80, 82, true, 13.9f, 1.5f};
    case BLOCK_Q3_K: return (SynthBlock){108, 0, false, 43.0f, 0.0f};
    case BLOCK_Q4_K: return (SynthBlock){0, 2, true, 258.0f, 7.5f};
    case BLOCK_Q5_K: return (SynthBlock){0, 2, true, 526.0f, 15.5f};
    default: return (SynthBlock){208, 0, false, 1365.0f, 0.0f}; /* Q6_K */
    }
}

/* Rough, on purpose without libm: weights of a row of n elements spread by about 1 / sqrt(n). */
static float synth_inverse_root(uint32_t n)
{
    float x = 1.0f;
    for (int i = 0; i < 40; i++) x = 0.5f * (x + (float)n / x);
    return 1.0f / x;
}

static void synth_quant_row(BlockType type, uint32_t cols, float spread, uint64_t *state,
                            uint8_t *out)
{
    const BlockTraits *traits = block_traits(type);
    SynthBlock b = synth_block(type);
    size_t bytes = (size_t)(cols / traits->elements) * traits->bytes, at = 0;
    for (; at + 8 <= bytes; at += 8) bytes_store64(out + at, synth_next(state));
    for (; at < bytes; at++) out[at] = (uint8_t)synth_next(state);
    for (at = 0; at < bytes; at += traits->bytes) {
        float d = spread / b.spread * (0.75f + 0.5f * synth_unit(state));
        bytes_store16(out + at + b.d, block_f32_to_f16(d));
        if (b.has_min) bytes_store16(out + at + b.min, block_f32_to_f16(d * b.minimum));
    }
}

/* Norms near 1, biases near 0. */
static void synth_vector_row(const char *name, uint32_t cols, uint64_t *state, uint8_t *out)
{
    size_t n = strlen(name);
    float center = n > 5 && strcmp(name + n - 5, "_bias") == 0 ? 0.0f : 1.0f;
    for (uint32_t i = 0; i < cols; i++)
        bytes_store_f32(out + 4 * (size_t)i, center + 0.2f * (synth_unit(state) - 0.5f));
}

void synth_rows(const EncodeInput *input, uint32_t tensor, uint64_t seed, uint32_t row_first,
                uint32_t count, uint8_t *out)
{
    const GgufTensor *t = &input->tensors[tensor];
    size_t row_bytes = (size_t)(t->bytes / t->rows);
    float spread = synth_inverse_root(t->cols);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t state =
            hash_mix64(seed ^ hash_mix64((uint64_t)tensor << 32 | (row_first + i))) | 1;
        if (t->type == BLOCK_F32)
            synth_vector_row(t->knot_name, t->cols, &state, out + i * row_bytes);
        else synth_quant_row(t->type, t->cols, spread, &state, out + i * row_bytes);
    }
}
