/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/gguf_model.h"

#include <string.h>

enum { KEY_NAME_BYTES = 96 };

/* --- hyper-parameters --- */

/* "qwen2" + ".block_count" */
static const char *gguf_model_key(const Gguf *g, const char *rest, char out[KEY_NAME_BYTES])
{
    size_t head = strlen(g->architecture), tail = strlen(rest);
    ASSERT(head + tail < KEY_NAME_BYTES);
    memcpy(out, g->architecture, head);
    memcpy(out + head, rest, tail + 1);
    return out;
}

static Error gguf_model_u32(const Gguf *g, const char *rest, uint32_t absent, uint32_t *out,
                            Why *why)
{
    char name[KEY_NAME_BYTES];
    return gguf_u32(g, gguf_model_key(g, rest, name), absent, out, why);
}

static Error gguf_model_f32(const Gguf *g, const char *rest, float absent, float *out, Why *why)
{
    char name[KEY_NAME_BYTES];
    return gguf_f32(g, gguf_model_key(g, rest, name), absent, out, why);
}

static Error gguf_model_needed(const Gguf *g, const char *rest, uint32_t *out, Why *why)
{
    char name[KEY_NAME_BYTES];
    TRY(gguf_model_u32(g, rest, 0, out, why));
    if (*out) return OK;
    return error_why(why, ERR_FORMAT, "key `%s` is missing or 0", gguf_model_key(g, rest, name));
}

/* Things that a file of a supported architecture may ask for and that would change the numbers. */
static Error gguf_model_refuse(const Gguf *g, const KnotModel *m, Why *why)
{
    uint32_t experts, value_dim;
    float softcap, final_softcap;
    TRY(gguf_model_u32(g, ".expert_count", 0, &experts, why));
    if (experts) return error_why(why, ERR_UNSUPPORTED, "a mixture of %u experts", experts);
    TRY(gguf_model_u32(g, ".attention.value_length", m->head_dim, &value_dim, why));
    if (value_dim != m->head_dim)
        return error_why(why, ERR_UNSUPPORTED, "keys of %u and values of %u elements", m->head_dim,
                         value_dim);
    TRY(gguf_model_f32(g, ".attn_logit_softcapping", 0.0f, &softcap, why));
    TRY(gguf_model_f32(g, ".final_logit_softcapping", 0.0f, &final_softcap, why));
    if (softcap != 0.0f || final_softcap != 0.0f)
        return error_why(why, ERR_UNSUPPORTED, "capped logits");
    return OK;
}

static Error gguf_model_rope(const Gguf *g, KnotModel *m, Why *why)
{
    char name[KEY_NAME_BYTES];
    float linear;
    TRY(gguf_model_f32(g, ".rope.freq_base", 10000.0f, &m->rope_base, why));
    TRY(gguf_model_f32(g, ".rope.freq_base_swa", 10000.0f, &m->rope_base_local, why));
    TRY(gguf_model_u32(g, ".rope.dimension_count", m->head_dim, &m->rope_dim, why));
    TRY(gguf_text(g, gguf_model_key(g, ".rope.scaling.type", name), m->rope_scaling,
                  sizeof m->rope_scaling, why));
    TRY(gguf_model_f32(g, ".rope.scaling.factor", 0.0f, &m->rope_scale_factor, why));
    TRY(gguf_model_f32(g, ".rope.scale_linear", 0.0f, &linear, why));
    if (linear != 0.0f && linear != 1.0f && m->rope_scaling[0] == '\0') {
        memcpy(m->rope_scaling, "linear", sizeof "linear");
        m->rope_scale_factor = linear;
    }
    if (gguf_tensor(g, "rope_freqs_weight")) memcpy(m->rope_scaling, "llama3", sizeof "llama3");
    return gguf_model_u32(g, ".rope.scaling.original_context_length", 0, &m->rope_original_context,
                          why);
}

/* Files made before the window was a key of its own name every n-th layer in the program, not in
 * the file. */
static Error gguf_model_window(const Gguf *g, KnotModel *m, Why *why)
{
    char name[KEY_NAME_BYTES];
    bool gemma = strcmp(m->architecture, "gemma3") == 0;
    TRY(gguf_model_u32(g, ".attention.sliding_window", 0, &m->sliding_window, why));
    const GgufKey *pattern =
        gguf_key(g, gguf_model_key(g, ".attention.sliding_window_pattern", name));
    if (pattern && pattern->type == GGUF_ARRAY)
        return error_why(why, ERR_UNSUPPORTED, "key `%s` lists layers one by one", pattern->name);
    uint32_t absent = gemma && m->sliding_window ? 6 : 0;
    TRY(gguf_model_u32(g, ".attention.sliding_window_pattern", absent, &m->sliding_window_pattern,
                       why));
    if (!gemma)
        m->sliding_window = m->sliding_window_pattern = 0; /* these families attend to everything */
    if (!gemma) m->rope_base_local = 0.0f;
    return OK;
}

static Error gguf_model_vocabulary(const Gguf *g, KnotModel *m, Why *why)
{
    const GgufKey *tokens = gguf_key(g, "tokenizer.ggml.tokens");
    if (!tokens) return gguf_model_u32(g, ".vocab_size", 0, &m->vocabulary, why);
    if (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING || tokens->count == 0 ||
        tokens->count > UINT32_MAX)
        return error_why(why, ERR_TYPE, "key `tokenizer.ggml.tokens` is not an array of strings");
    m->vocabulary = (uint32_t)tokens->count;
    return OK;
}

/* A name too long for its field loses its end, at the border of a character. */
static Error gguf_model_name(const Gguf *g, KnotModel *m, Why *why)
{
    const GgufKey *key = gguf_key(g, "general.name");
    if (!key || key->type != GGUF_STRING) return OK;
    size_t bytes = key->bytes < sizeof m->name - 1 ? (size_t)key->bytes : sizeof m->name - 1;
    TRY(g->files[0].read(g->files[0].file, key->offset, m->name, bytes, why));
    if (bytes < key->bytes)
        while (bytes && ((uint8_t)m->name[bytes - 1] & 0xc0) == 0x80) bytes--;
    if (bytes < key->bytes && bytes && (uint8_t)m->name[bytes - 1] >= 0xc0) bytes--;
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)m->name[i] < 0x20 || (uint8_t)m->name[i] >= 0x7f) m->name[i] = '?';
    m->name[bytes] = '\0';
    return OK;
}

Error gguf_model_read(const Gguf *g, KnotModel *m, Why *why)
{
    memset(m, 0, sizeof *m);
    memcpy(m->architecture, g->architecture, sizeof m->architecture);
    TRY(gguf_model_name(g, m, why));
    TRY(gguf_model_needed(g, ".block_count", &m->layers, why));
    TRY(gguf_model_needed(g, ".embedding_length", &m->hidden, why));
    TRY(gguf_model_needed(g, ".feed_forward_length", &m->ffn, why));
    TRY(gguf_model_needed(g, ".attention.head_count", &m->heads, why));
    TRY(gguf_model_u32(g, ".attention.head_count_kv", m->heads, &m->kv_heads, why));
    TRY(gguf_model_u32(g, ".attention.key_length", m->hidden / m->heads, &m->head_dim, why));
    TRY(gguf_model_u32(g, ".context_length", 0, &m->context, why));
    TRY(gguf_model_f32(g, ".attention.layer_norm_rms_epsilon", 0.0f, &m->norm_epsilon, why));
    if (m->layers > KNOT_LAYERS_MAX)
        return error_why(why, ERR_RANGE, "%u layers; at most %u", m->layers,
                         (unsigned)KNOT_LAYERS_MAX);
    TRY(gguf_model_refuse(g, m, why));
    TRY(gguf_model_rope(g, m, why));
    TRY(gguf_model_window(g, m, why));
    return gguf_model_vocabulary(g, m, why);
}

/* --- tensors --- */

typedef struct GgufKnown {
    const char *rest; /* behind blk_N_ */
    uint8_t phase, place;
    bool matrix;
    bool bias; /* a vector that stands beside a matrix */
} GgufKnown;

static const GgufKnown gguf_known[] = {
    {"attn_norm_weight", 0, 0, false, false},   {"attn_q_norm_weight", 0, 0, false, false},
    {"attn_k_norm_weight", 0, 0, false, false}, {"post_attention_norm_weight", 0, 0, false, false},
    {"ffn_norm_weight", 0, 0, false, false},    {"post_ffw_norm_weight", 0, 0, false, false},
    {"attn_q_weight", 0, 0, true, false},       {"attn_k_weight", 0, 1, true, false},
    {"attn_v_weight", 0, 2, true, false},       {"attn_output_weight", 0, 3, true, false},
    {"ffn_gate_weight", 1, 0, true, false},     {"ffn_up_weight", 2, 0, true, false},
    {"ffn_down_weight", 3, 0, true, false},     {"attn_q_bias", 0, 0, false, true},
    {"attn_k_bias", 0, 0, false, true},         {"attn_v_bias", 0, 0, false, true},
    {"attn_output_bias", 0, 0, false, true},    {"ffn_gate_bias", 0, 0, false, true},
    {"ffn_up_bias", 0, 0, false, true},         {"ffn_down_bias", 0, 0, false, true}};
enum { GGUF_KNOWN = sizeof gguf_known / sizeof gguf_known[0] };

static GgufPlace gguf_model_place_in_layer(const char *name, uint32_t layers)
{
    GgufPlace none = {GGUF_ROLE_NONE, 0, 0, 0};
    uint32_t layer = 0, digits = 0;
    const char *p = name + 4;
    for (; *p >= '0' && *p <= '9' && digits < 4; p++, digits++)
        layer = layer * 10 + (uint32_t)(*p - '0');
    bool zero_in_front = digits > 1 && name[4] == '0';
    if (digits == 0 || zero_in_front || *p != '_' || layer >= layers) return none;
    for (size_t i = 0; i < GGUF_KNOWN; i++) {
        const GgufKnown *k = &gguf_known[i];
        if (strcmp(p + 1, k->rest) != 0) continue;
        if (k->matrix) return (GgufPlace){GGUF_ROLE_MATRIX, layer, k->phase, k->place};
        return (GgufPlace){GGUF_ROLE_VECTOR, layer, 0, (uint32_t)i};
    }
    return none;
}

GgufPlace gguf_model_place(const char *name, uint32_t layers)
{
    if (strncmp(name, "blk_", 4) == 0) return gguf_model_place_in_layer(name, layers);
    if (strcmp(name, "output_norm_weight") == 0) return (GgufPlace){GGUF_ROLE_VECTOR, layers, 0, 0};
    if (strcmp(name, "rope_freqs_weight") == 0) return (GgufPlace){GGUF_ROLE_VECTOR, layers, 0, 1};
    if (strcmp(name, "output_weight") == 0) return (GgufPlace){GGUF_ROLE_HEAD, layers, 0, 0};
    if (strcmp(name, "token_embd_weight") == 0)
        return (GgufPlace){GGUF_ROLE_EMBEDDING, layers, 0, 0};
    return (GgufPlace){GGUF_ROLE_NONE, 0, 0, 0};
}

char *gguf_model_layer_name(char *out, uint32_t layer, const char *rest)
{
    char digits[10];
    size_t n = 0, at = 4, bytes = strlen(rest);
    memcpy(out, "blk_", 4);
    do digits[n++] = (char)('0' + layer % 10);
    while (layer /= 10);
    while (n) out[at++] = digits[--n];
    out[at++] = '_';
    ASSERT(at + bytes <= KNOT_NAME_BYTES_MAX);
    memcpy(out + at, rest, bytes + 1);
    return out;
}

static Error gguf_model_check_tensor(const Gguf *g, const GgufTensor *t, const KnotModel *m,
                                     Why *why)
{
    GgufPlace place = gguf_model_place(t->knot_name, m->layers);
    switch (place.role) {
    case GGUF_ROLE_NONE:
        return error_why(why, ERR_UNSUPPORTED,
                         "tensor %s is not one that a %s model of %u layers has", t->name,
                         g->architecture, m->layers);
    case GGUF_ROLE_VECTOR:
        if (t->rows == 1) return OK;
        break;
    default:
        if (t->dimensions == 2) return OK;
        break;
    }
    return error_why(why, ERR_SHAPE,
                     "tensor %s has %u dimensions, or a vector has more than one row", t->name,
                     t->dimensions);
}

/* Biases that an architecture always has. */
static bool gguf_model_has_bias(const KnotModel *m, const char *rest)
{
    return strcmp(m->architecture, "qwen2") == 0 && strncmp(rest, "attn_", 5) == 0 &&
           rest[5] != 'o';
}

static bool gguf_model_needs(const KnotModel *m, const GgufKnown *k)
{
    bool gemma = strcmp(m->architecture, "gemma3") == 0,
         qwen3 = strcmp(m->architecture, "qwen3") == 0;
    if (k->matrix) return true;
    if (k->bias) return gguf_model_has_bias(m, k->rest);
    if (strncmp(k->rest, "post_", 5) == 0) return gemma;
    if (strncmp(k->rest, "attn_q", 6) == 0 || strncmp(k->rest, "attn_k", 6) == 0)
        return gemma || qwen3;
    return true;
}

static bool gguf_model_known_to_all(const KnotModel *m, const GgufKnown *k)
{
    return k->bias || gguf_model_needs(m, k);
}

static Error gguf_model_check_layer(const Gguf *g, const KnotModel *m, uint32_t layer, Why *why)
{
    char name[KNOT_NAME_BYTES_MAX + 1];
    for (size_t i = 0; i < GGUF_KNOWN; i++) {
        const GgufKnown *k = &gguf_known[i];
        bool here = gguf_tensor(g, gguf_model_layer_name(name, layer, k->rest)) != NULL;
        if (!here && gguf_model_needs(m, k))
            return error_why(why, ERR_MISSING_TENSOR, "layer %u: %s", layer, name);
        if (here && !gguf_model_known_to_all(m, k))
            return error_why(why, ERR_UNSUPPORTED, "tensor %s is not one that a %s model has", name,
                             m->architecture);
    }
    return OK;
}

Error gguf_model_check_tensors(const Gguf *g, const KnotModel *m, Why *why)
{
    for (uint32_t i = 0; i < g->tensor_count; i++)
        TRY(gguf_model_check_tensor(g, &g->tensors[i], m, why));
    if (!gguf_tensor(g, "token_embd_weight"))
        return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight");
    if (!gguf_tensor(g, "output_norm_weight"))
        return error_why(why, ERR_MISSING_TENSOR, "output_norm_weight");
    for (uint32_t layer = 0; layer < m->layers; layer++)
        TRY(gguf_model_check_layer(g, m, layer, why));
    return OK;
}
