/* SPDX-License-Identifier: Apache-2.0 */
/* What a file states, given meaning: the architecture's rules, then ranges, then the tensors that fix sizes.
 *
 *   architecture, rope scaling   named as unsupported before any tensor is looked at
 *   numbers                      each against its limit; products of them fit 32 bits afterwards
 *   tensors                      token_embd, output_norm, output: shapes; a name that the architecture does not know is
 *                                refused, since leaving it out would change the answer silently
 *
 * The matrices of the layers are checked where they are used, in phase.c. */
#include "model/hyper.h"

#include <string.h>

typedef struct HyperFamily {
    const char *name;
    Arch arch;
    RopeKind rope_kind;
    Gate gate;
    bool qk_norm, post_norms;
} HyperFamily;

static const HyperFamily HYPER_FAMILIES[] = {
    {"llama", ARCH_LLAMA, ROPE_PAIRS, GATE_SILU, false, false},
    {"qwen2", ARCH_QWEN2, ROPE_HALVES, GATE_SILU, false, false},
    {"qwen3", ARCH_QWEN3, ROPE_HALVES, GATE_SILU, true, false},
    {"gemma3", ARCH_GEMMA3, ROPE_HALVES, GATE_GELU_TANH, true, true},
};
enum { HYPER_FAMILY_COUNT = sizeof HYPER_FAMILIES / sizeof HYPER_FAMILIES[0] };

/* Of a fixed field that a file filled: never past its end. */
static size_t hyper_length(const char *field, size_t size)
{
    const char *end = memchr(field, 0, size);
    return end ? (size_t)(end - field) : size;
}

static Error hyper_family(const KnotModel *m, const HyperFamily **out, Why *why)
{
    size_t length = hyper_length(m->architecture, sizeof m->architecture);
    for (uint32_t i = 0; i < HYPER_FAMILY_COUNT; i++) {
        const char *name = HYPER_FAMILIES[i].name;
        if (strlen(name) == length && memcmp(name, m->architecture, length) == 0) {
            *out = &HYPER_FAMILIES[i];
            return OK;
        }
    }
    return error_why(why, ERR_UNSUPPORTED,
                     "architecture \"%.*s\" is not supported (llama, qwen2, qwen3, gemma3 are)", (int)length,
                     m->architecture);
}

const char *hyper_arch_name(Arch arch)
{
    for (uint32_t i = 0; i < HYPER_FAMILY_COUNT; i++)
        if (HYPER_FAMILIES[i].arch == arch) return HYPER_FAMILIES[i].name;
    return "?";
}

static Error hyper_scaling(const KnotModel *m, RopeScaling *out, Why *why)
{
    static const struct {
        const char *name;
        RopeScaling scaling;
    } names[] = {{"", ROPE_SCALE_NONE},
                 {"none", ROPE_SCALE_NONE},
                 {"linear", ROPE_SCALE_LINEAR},
                 {"llama3", ROPE_SCALE_LLAMA3},
                 {"yarn", ROPE_SCALE_YARN}};
    size_t length = hyper_length(m->rope_scaling, sizeof m->rope_scaling);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == length && memcmp(names[i].name, m->rope_scaling, length) == 0) {
            *out = names[i].scaling;
            return OK;
        }
    }
    return error_why(why, ERR_UNSUPPORTED,
                     "rope scaling \"%.*s\" is not supported (none, linear, llama3, yarn are)", (int)length,
                     m->rope_scaling);
}

static Error hyper_count(const char *name, uint32_t value, uint32_t max, Why *why)
{
    if (value >= 1 && value <= max) return OK;
    return error_why(why, ERR_RANGE, "%s is %u, allowed are 1 to %u", name, value, max);
}

/* Inclusive; NaN is outside of everything. */
static Error hyper_number(const char *name, float value, float least, float most, Why *why)
{
    if (value >= least && value <= most) return OK;
    return error_why(why, ERR_RANGE, "%s is out of range or not a number", name);
}

static Error hyper_sizes(const KnotModel *m, Hyper *h, Why *why)
{
    TRY(hyper_count("the number of layers", m->layers, HYPER_LAYERS_MAX, why));
    TRY(hyper_count("the hidden size", m->hidden, HYPER_HIDDEN_MAX, why));
    TRY(hyper_count("the feed-forward size", m->ffn, HYPER_FFN_MAX, why));
    TRY(hyper_count("the number of attention heads", m->heads, HYPER_HEADS_MAX, why));
    uint32_t kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    TRY(hyper_count("the number of key/value heads", kv_heads, m->heads, why));
    if (m->heads % kv_heads)
        return error_why(why, ERR_RANGE, "%u attention heads cannot share %u key/value heads evenly", m->heads,
                         kv_heads);
    uint32_t head_dim = m->head_dim ? m->head_dim : m->hidden / m->heads;
    TRY(hyper_count("the size of a head", head_dim, HYPER_HEAD_DIM_MAX, why));
    if (head_dim % 16)
        return error_why(why, ERR_UNSUPPORTED, "the size of a head is %u, not a multiple of 16", head_dim);
    h->context = m->context ? m->context : 2048;
    TRY(hyper_count("the context length", h->context, 1u << 30, why));
    h->layers = m->layers;
    h->hidden = m->hidden;
    h->ffn = m->ffn;
    h->heads = m->heads;
    h->kv_heads = kv_heads;
    h->head_dim = head_dim;
    return OK;
}

static Error hyper_rope(const KnotModel *m, Hyper *h, Why *why)
{
    h->rope_dim = m->rope_dim ? m->rope_dim : h->head_dim;
    if (h->rope_dim > h->head_dim || h->rope_dim % 2)
        return error_why(why, ERR_RANGE, "%u rotated dimensions do not fit a head of %u", h->rope_dim,
                         h->head_dim);
    h->rope_base = m->rope_base != 0 ? m->rope_base : 10000.0f;
    h->rope_base_local = m->rope_base_local != 0 ? m->rope_base_local : 10000.0f;
    TRY(hyper_number("the rope base", h->rope_base, 1.0f, 1e12f, why));
    TRY(hyper_number("the rope base of local layers", h->rope_base_local, 1.0f, 1e12f, why));
    h->rope_scale_factor = 1.0f;
    if (h->rope_scaling == ROPE_SCALE_LINEAR || h->rope_scaling == ROPE_SCALE_YARN) {
        h->rope_scale_factor = m->rope_scale_factor != 0 ? m->rope_scale_factor : 1.0f;
        TRY(hyper_number("the rope scaling factor", h->rope_scale_factor, 1.0f, 65536.0f, why));
    }
    h->rope_original_context = m->rope_original_context ? m->rope_original_context : h->context;
    return hyper_count("the original context length", h->rope_original_context, 1u << 30, why);
}

static void hyper_family_rules(const KnotModel *m, const HyperFamily *f, Hyper *h)
{
    h->arch = f->arch;
    h->rope_kind = f->rope_kind;
    h->gate = f->gate;
    h->qk_norm = f->qk_norm;
    h->post_norms = f->post_norms;
    h->embedding_scale = 1.0f;
    h->attention_scale = 1.0f / __builtin_sqrtf((float)h->head_dim);
    if (f->arch != ARCH_GEMMA3) return;
    h->embedding_scale = __builtin_sqrtf((float)h->hidden);
    h->window = m->sliding_window;
    h->window_pattern = m->sliding_window_pattern ? m->sliding_window_pattern : 6;
    /* The 27B member (62 layers) divides by the root of hidden / heads, which is not its head size. */
    if (h->layers == 62) h->attention_scale = 1.0f / __builtin_sqrtf((float)(h->hidden / h->heads));
}

/* Reads digits, up to one past the limit; false when there is none. */
static bool hyper_read_layer(const char **at, uint32_t *out)
{
    const char *p = *at;
    uint32_t n = 0;
    while (*p >= '0' && *p <= '9' && n < HYPER_LAYERS_MAX) n = n * 10 + (uint32_t)(*p++ - '0');
    if (p == *at) return false;
    *at = p;
    *out = n;
    return true;
}

static bool hyper_name_in(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

static bool hyper_knows_tensor(const Hyper *h, const char *name)
{
    static const char *const always[] = {"token_embd_weight", "output_norm_weight", "output_weight",
                                         "rope_freqs_weight", NULL};
    static const char *const layer_always[] = {"attn_norm_weight",
                                               "attn_q_weight",
                                               "attn_k_weight",
                                               "attn_v_weight",
                                               "attn_output_weight",
                                               "ffn_norm_weight",
                                               "ffn_gate_weight",
                                               "ffn_up_weight",
                                               "ffn_down_weight",
                                               "attn_q_bias",
                                               "attn_k_bias",
                                               "attn_v_bias",
                                               "attn_output_bias",
                                               "ffn_gate_bias",
                                               "ffn_up_bias",
                                               "ffn_down_bias",
                                               NULL};
    static const char *const layer_qk[] = {"attn_q_norm_weight", "attn_k_norm_weight", NULL};
    static const char *const layer_post[] = {"post_attention_norm_weight", "post_ffw_norm_weight", NULL};
    if (hyper_name_in(name, always)) return true;
    uint32_t layer;
    if (strncmp(name, "blk_", 4) != 0) return false;
    name += 4;
    if (!hyper_read_layer(&name, &layer) || layer >= h->layers || *name++ != '_') return false;
    return hyper_name_in(name, layer_always) || (h->qk_norm && hyper_name_in(name, layer_qk)) ||
           (h->post_norms && hyper_name_in(name, layer_post));
}

static Error hyper_tensors(const Knot *knot, Hyper *h, Why *why)
{
    const KnotTensor *embedding = knot_find(knot, "token_embd_weight");
    if (!embedding) return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    if (embedding->cols != h->hidden)
        return error_why(why, ERR_SHAPE, "token_embd_weight has %u columns, the hidden size is %u",
                         embedding->cols, h->hidden);
    TRY(hyper_count("the number of rows of token_embd_weight", embedding->rows, HYPER_VOCABULARY_MAX, why));
    h->vocabulary_rows = embedding->rows;
    h->vocabulary = knot->model.vocabulary ? knot->model.vocabulary : embedding->rows;
    if (h->vocabulary > h->vocabulary_rows)
        return error_why(why, ERR_SHAPE, "the tokenizer has %u tokens, token_embd_weight only %u rows",
                         h->vocabulary, h->vocabulary_rows);
    const KnotTensor *norm = knot_find(knot, "output_norm_weight");
    if (!norm) return error_why(why, ERR_MISSING_TENSOR, "output_norm_weight is missing");
    if (norm->rows != 1 || norm->cols != h->hidden)
        return error_why(why, ERR_SHAPE, "output_norm_weight is %u x %u, not 1 x %u", norm->rows, norm->cols,
                         h->hidden);
    const KnotTensor *output = knot_find(knot, "output_weight");
    h->tied_head = !output;
    if (output && (output->cols != h->hidden || output->rows < h->vocabulary))
        return error_why(why, ERR_SHAPE, "output_weight is %u x %u, it must be at least %u x %u", output->rows,
                         output->cols, h->vocabulary, h->hidden);
    const KnotTensor *factors = knot_find(knot, "rope_freqs_weight");
    if (h->rope_scaling == ROPE_SCALE_LLAMA3 && !factors)
        return error_why(why, ERR_MISSING_TENSOR, "rope_freqs_weight is missing, llama3 scaling needs it");
    if (factors && (factors->rows != 1 || factors->cols != h->rope_dim / 2))
        return error_why(why, ERR_SHAPE, "rope_freqs_weight is %u x %u, not 1 x %u", factors->rows,
                         factors->cols, h->rope_dim / 2);
    for (uint32_t i = 0; i < knot->tensor_count; i++)
        if (!hyper_knows_tensor(h, knot->tensors[i].name))
            return error_why(why, ERR_UNSUPPORTED, "tensor %s is not part of architecture %s as supported here",
                             knot->tensors[i].name, hyper_arch_name(h->arch));
    return OK;
}

Error hyper_from_knot(const Knot *knot, Hyper *out, Why *why)
{
    const KnotModel *m = &knot->model;
    const HyperFamily *family = NULL;
    Hyper h;
    memset(&h, 0, sizeof h);
    TRY(hyper_family(m, &family, why));
    TRY(hyper_scaling(m, &h.rope_scaling, why));
    TRY(hyper_sizes(m, &h, why));
    TRY(hyper_rope(m, &h, why));
    h.norm_epsilon = m->norm_epsilon;
    TRY(hyper_number("the norm's epsilon", h.norm_epsilon, 1e-12f, 1.0f, why));
    hyper_family_rules(m, family, &h);
    TRY(hyper_tensors(knot, &h, why));
    *out = h;
    return OK;
}
