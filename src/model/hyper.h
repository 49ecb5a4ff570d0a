/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters with meaning: what a file states, completed by the rules of its architecture, and range-checked. */
#ifndef COBORD_MODEL_HYPER_H
#define COBORD_MODEL_HYPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "knot/knot.h"

typedef enum Arch { ARCH_LLAMA, ARCH_QWEN2, ARCH_QWEN3, ARCH_GEMMA3 } Arch;
typedef enum RopeKind { ROPE_PAIRS, ROPE_HALVES } RopeKind; /* llama: (2i, 2i+1); the others: (i, i + dim/2) */
typedef enum RopeScaling { ROPE_SCALE_NONE, ROPE_SCALE_LINEAR, ROPE_SCALE_LLAMA3, ROPE_SCALE_YARN } RopeScaling;
typedef enum Gate { GATE_SILU, GATE_GELU_TANH } Gate;

enum {
    HYPER_LAYERS_MAX = KNOT_LAYERS_MAX,
    HYPER_HIDDEN_MAX = 65536,
    HYPER_FFN_MAX = 262144,
    HYPER_HEADS_MAX = 1024,
    HYPER_HEAD_DIM_MAX = 512,
    HYPER_VOCABULARY_MAX = 1 << 22
};

typedef struct Hyper {
    Arch arch;
    uint32_t layers, hidden, ffn, heads, kv_heads, head_dim;
    uint32_t vocabulary;      /* ids that may be sampled */
    uint32_t vocabulary_rows; /* rows of token_embd_weight, padding included */
    uint32_t context;
    float norm_epsilon;
    RopeKind rope_kind;
    RopeScaling rope_scaling;
    float rope_base, rope_base_local;
    uint32_t rope_dim;
    float rope_scale_factor;
    uint32_t rope_original_context;
    uint32_t window;         /* sliding window of local layers, 0: none */
    uint32_t window_pattern; /* layer l is global when (l + 1) % pattern == 0; 0: all global */
    Gate gate;
    float embedding_scale; /* 1, or sqrt(hidden) for gemma3 */
    float attention_scale; /* 1 / sqrt(head_dim) */
    bool qk_norm;          /* attn_q_norm, attn_k_norm on every layer */
    bool post_norms;       /* post_attention_norm, post_ffw_norm */
    bool tied_head;        /* no output_weight in the file */
} Hyper;

/* Errors  ERR_UNSUPPORTED (architecture, rope scaling; named before any tensor is looked up), ERR_RANGE,
 *         ERR_MISSING_TENSOR (token_embd_weight), ERR_SHAPE. */
MUST_CHECK Error hyper_from_knot(const Knot *knot, Hyper *out, Why *why);

/* "llama", "qwen2", ...: as files call it. */
const char *hyper_arch_name(Arch arch);

static inline bool hyper_layer_is_local(const Hyper *h, uint32_t layer)
{
    return h->window && h->window_pattern && (layer + 1) % h->window_pattern != 0;
}

#endif
