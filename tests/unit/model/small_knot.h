/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of small version 1 knots for the tests of hyper.c and phase.c: the JSON is written here and read by
 * knot_parse; there is no payload, since nothing here reads weights. */
#ifndef COBORD_TESTS_SMALL_KNOT_H
#define COBORD_TESTS_SMALL_KNOT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "knot/knot.h"
#include "model/phase.h"

enum {
    SMALL_LAYERS = 2,
    SMALL_HIDDEN = 64,
    SMALL_FFN = 96,
    SMALL_HEADS = 4,
    SMALL_KV = 2,
    SMALL_DIM = 16,
    SMALL_ROWS = 40
};

typedef struct SmallKnot {
    const char *architecture;
    const char *extra_model; /* members that replace or follow the usual ones: "\"heads\":3," */
    const char *left_out;    /* a tensor that is not written */
    const char *changed;     /* a tensor whose shape becomes changed_rows x changed_cols */
    uint32_t changed_rows, changed_cols;
    const char *added[4]; /* further vectors of 8 */
    char json[32768];
    uint64_t payload;
    size_t length;
    uint8_t *memory;
    Knot knot;
} SmallKnot;

static void small_put(SmallKnot *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void small_put(SmallKnot *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    s->length += (size_t)vsnprintf(s->json + s->length, sizeof s->json - s->length, format, list);
    va_end(list);
    assert_true(s->length < sizeof s->json);
}

static void small_tensor(SmallKnot *s, const char *name, uint32_t rows, uint32_t cols)
{
    if (s->left_out && strcmp(name, s->left_out) == 0) return;
    if (s->changed && strcmp(name, s->changed) == 0) rows = s->changed_rows, cols = s->changed_cols;
    small_put(s, "%s{\"name\":\"%s\",\"type\":\"F32\",\"shape\":[%u,%u],\"offset\":%llu,\"length\":%llu}",
              s->payload ? "," : "", name, rows, cols, (unsigned long long)s->payload,
              (unsigned long long)rows * cols * 4);
    s->payload += (uint64_t)rows * cols * 4;
}

static void small_layer(SmallKnot *s, uint32_t layer)
{
    char name[64];
    const uint32_t q = SMALL_HEADS * SMALL_DIM, kv = SMALL_KV * SMALL_DIM, h = SMALL_HIDDEN, f = SMALL_FFN;
    const bool qwen2 = strcmp(s->architecture, "qwen2") == 0, gemma = strcmp(s->architecture, "gemma3") == 0;
    const bool norms = gemma || strcmp(s->architecture, "qwen3") == 0;
    const struct {
        const char *name;
        uint32_t rows, cols;
        bool wanted;
    } all[] = {{"attn_norm_weight", 1, h, true},
               {"attn_q_weight", q, h, true},
               {"attn_k_weight", kv, h, true},
               {"attn_v_weight", kv, h, true},
               {"attn_output_weight", h, q, true},
               {"ffn_norm_weight", 1, h, true},
               {"ffn_gate_weight", f, h, true},
               {"ffn_up_weight", f, h, true},
               {"ffn_down_weight", h, f, true},
               {"attn_q_bias", 1, q, qwen2},
               {"attn_k_bias", 1, kv, qwen2},
               {"attn_v_bias", 1, kv, qwen2},
               {"attn_q_norm_weight", 1, SMALL_DIM, norms},
               {"attn_k_norm_weight", 1, SMALL_DIM, norms},
               {"post_attention_norm_weight", 1, h, gemma},
               {"post_ffw_norm_weight", 1, h, gemma}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].wanted) continue;
        snprintf(name, sizeof name, "blk_%u_%s", layer, all[i].name);
        small_tensor(s, name, all[i].rows, all[i].cols);
    }
}

/* Writes a member unless extra_model has it. */
static void small_member(SmallKnot *s, const char *name, const char *value)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    if (!s->extra_model || !strstr(s->extra_model, quoted)) small_put(s, "%s%s,", quoted, value);
}

static void small_model(SmallKnot *s)
{
    small_put(s, "{\"model\":{");
    small_member(s, "layers", "2"), small_member(s, "hidden", "64"), small_member(s, "ffn", "96");
    small_member(s, "heads", "4"), small_member(s, "kv_heads", "2"), small_member(s, "head_dim", "16");
    small_member(s, "vocabulary", "37"), small_member(s, "context", "512"),
        small_member(s, "norm_epsilon", "1e-6");
    small_member(s, "rope_base", "10000"), small_member(s, "rope_dim", "16");
    small_put(s, "%s\"architecture\":\"%s\"},\"tensors\":[", s->extra_model ? s->extra_model : "",
              s->architecture);
}

/* Builds and parses; the result of hyper_from_knot. */
static Error small_hyper(SmallKnot *s, Hyper *h, Why *why)
{
    uint8_t header[sizeof s->json + 16] = {'K', 'N', 'O', 'T', 1, 0};
    s->length = 0, s->payload = 0;
    small_model(s);
    small_tensor(s, "token_embd_weight", SMALL_ROWS, SMALL_HIDDEN);
    for (uint32_t l = 0; l < SMALL_LAYERS; l++) small_layer(s, l);
    small_tensor(s, "output_norm_weight", 1, SMALL_HIDDEN);
    for (int i = 0; i < 4 && s->added[i]; i++) small_tensor(s, s->added[i], 1, 8);
    small_put(s, "]}");
    uint32_t length = (uint32_t)s->length;
    memcpy(header + 6, &length, 4);
    memcpy(header + 10, s->json, length);
    size_t end = ((10 + (size_t)length + 3) & ~(size_t)3) + 1;
    header[end - 1] = 0x40;
    size_t arena_bytes = knot_arena_bytes(end) + 64, scratch_bytes = knot_scratch_bytes(end) + 64;
    s->memory = malloc(arena_bytes + scratch_bytes);
    assert_non_null(s->memory);
    Arena arena = arena_make(s->memory, arena_bytes),
          scratch = arena_make(s->memory + arena_bytes, scratch_bytes);
    Error e = knot_parse(header, end, end + s->payload, &arena, &scratch, &s->knot, why);
    if (e != OK) fail_msg("the knot itself is wrong: %s", why->text);
    return hyper_from_knot(&s->knot, h, why);
}

static void small_free(SmallKnot *s)
{
    free(s->memory);
    s->memory = NULL;
}

#endif
