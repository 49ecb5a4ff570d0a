/* SPDX-License-Identifier: Apache-2.0 */
/* Phases: which matrices they hold, how their bounds are written. Every tensor of a phase is looked up by name and
 * checked against the hyper-parameters; one that is missing is an error with layer and phase, never skipped. */
#include "model/phase.h"

#include <string.h>

const char *phase_name(Phase phase)
{
    static const char *const names[PHASES] = {"attn", "ffn_gate", "ffn_up", "ffn_down"};
    return (unsigned)phase < PHASES ? names[phase] : "?";
}

/* Writes `value` in decimal at `out`; returns the end. */
static char *phase_put_number(char *out, uint32_t value)
{
    char digits[10];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n) *out++ = digits[--n];
    return out;
}

static char *phase_put_text(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n + 1);
    return out + n;
}

enum { PHASE_TENSOR_NAME_MAX = 64 };

static const KnotTensor *phase_find(const Knot *knot, uint32_t layer, const char *matrix, const char *part,
                                    char name[PHASE_TENSOR_NAME_MAX])
{
    char *at = phase_put_text(name, "blk_");
    at = phase_put_number(at, layer);
    at = phase_put_text(at, "_");
    at = phase_put_text(at, matrix);
    phase_put_text(at, part);
    return knot_find(knot, name);
}

typedef struct PhaseWant {
    const char *matrix;
    uint32_t rows, cols;
    bool bias_needed;
} PhaseWant;

static uint32_t phase_wants(const Hyper *h, Phase phase, PhaseWant want[PHASE_MATRICES_MAX])
{
    uint32_t q = h->heads * h->head_dim, kv = h->kv_heads * h->head_dim;
    bool qkv_bias = h->arch == ARCH_QWEN2;
    switch (phase) {
    case PHASE_ATTN:
        want[0] = (PhaseWant){"attn_q", q, h->hidden, qkv_bias};
        want[1] = (PhaseWant){"attn_k", kv, h->hidden, qkv_bias};
        want[2] = (PhaseWant){"attn_v", kv, h->hidden, qkv_bias};
        want[3] = (PhaseWant){"attn_output", h->hidden, q, false};
        return 4;
    case PHASE_FFN_GATE: want[0] = (PhaseWant){"ffn_gate", h->ffn, h->hidden, false}; return 1;
    case PHASE_FFN_UP: want[0] = (PhaseWant){"ffn_up", h->ffn, h->hidden, false}; return 1;
    case PHASE_FFN_DOWN: want[0] = (PhaseWant){"ffn_down", h->hidden, h->ffn, false}; return 1;
    default: return 0;
    }
}

static Error phase_matrix(const Knot *knot, uint32_t layer, Phase phase, const PhaseWant *want,
                          PhaseMatrix *out, Why *why)
{
    char name[PHASE_TENSOR_NAME_MAX];
    const KnotTensor *w = phase_find(knot, layer, want->matrix, "_weight", name);
    if (!w)
        return error_why(why, ERR_MISSING_TENSOR, "layer %u, phase %s: %s is missing", layer, phase_name(phase),
                         name);
    if (w->rows != want->rows || w->cols != want->cols)
        return error_why(why, ERR_SHAPE, "layer %u, phase %s: %s is %u x %u, not %u x %u", layer,
                         phase_name(phase), name, w->rows, w->cols, want->rows, want->cols);
    const KnotTensor *b = phase_find(knot, layer, want->matrix, "_bias", name);
    if (!b && want->bias_needed)
        return error_why(why, ERR_MISSING_TENSOR, "layer %u, phase %s: %s is missing", layer, phase_name(phase),
                         name);
    if (b && (b->rows != 1 || b->cols != want->rows))
        return error_why(why, ERR_SHAPE, "layer %u, phase %s: %s is %u x %u, not 1 x %u", layer,
                         phase_name(phase), name, b->rows, b->cols, want->rows);
    *out = (PhaseMatrix){w, b, want->rows, want->cols};
    return OK;
}

Error phase_matrices(const Knot *knot, const Hyper *h, uint32_t layer, Phase phase,
                     PhaseMatrix out[PHASE_MATRICES_MAX], uint32_t *count, Why *why)
{
    PhaseWant want[PHASE_MATRICES_MAX];
    uint32_t n = layer < h->layers ? phase_wants(h, phase, want) : 0;
    if (n == 0) return error_why(why, ERR_RANGE, "there is no layer %u, phase %s", layer, phase_name(phase));
    for (uint32_t i = 0; i < n; i++) TRY(phase_matrix(knot, layer, phase, &want[i], &out[i], why));
    *count = n;
    return OK;
}

static Error phase_norm(const Knot *knot, uint32_t layer, const char *matrix, uint32_t size, bool wanted,
                        const KnotTensor **out, Why *why)
{
    char name[PHASE_TENSOR_NAME_MAX];
    *out = NULL;
    if (!wanted) return OK;
    const KnotTensor *t = phase_find(knot, layer, matrix, "_weight", name);
    if (!t) return error_why(why, ERR_MISSING_TENSOR, "layer %u, norms: %s is missing", layer, name);
    if (t->rows != 1 || t->cols != size)
        return error_why(why, ERR_SHAPE, "layer %u, norms: %s is %u x %u, not 1 x %u", layer, name, t->rows,
                         t->cols, size);
    *out = t;
    return OK;
}

Error phase_layer_norms(const Knot *knot, const Hyper *h, uint32_t layer, LayerNorms *out, Why *why)
{
    if (layer >= h->layers) return error_why(why, ERR_RANGE, "there is no layer %u", layer);
    TRY(phase_norm(knot, layer, "attn_norm", h->hidden, true, &out->attn, why));
    TRY(phase_norm(knot, layer, "ffn_norm", h->hidden, true, &out->ffn, why));
    TRY(phase_norm(knot, layer, "attn_q_norm", h->head_dim, h->qk_norm, &out->q, why));
    TRY(phase_norm(knot, layer, "attn_k_norm", h->head_dim, h->qk_norm, &out->k, why));
    TRY(phase_norm(knot, layer, "post_attention_norm", h->hidden, h->post_norms, &out->post_attn, why));
    return phase_norm(knot, layer, "post_ffw_norm", h->hidden, h->post_norms, &out->post_ffn, why);
}

static bool phase_text_is(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

Error phase_parse_bound(const char *text, size_t bytes, uint32_t layers, PhaseBound *out, Why *why)
{
    int shown = bytes < 40 ? (int)bytes : 40;
    if (phase_text_is(text, bytes, "end")) {
        *out = phase_bound(layers, PHASE_ATTN);
        return OK;
    }
    size_t at = 0;
    uint32_t layer = 0;
    while (at < bytes && text[at] >= '0' && text[at] <= '9' && layer <= HYPER_LAYERS_MAX)
        layer = layer * 10 + (uint32_t)(text[at++] - '0');
    if (at == 0 || (at < bytes && text[at] != '.'))
        return error_why(why, ERR_USAGE, "\"%.*s\" is no bound: use a layer (5), layer.phase (5.ffn_up) or end",
                         shown, text);
    uint32_t phase = PHASE_ATTN;
    if (at < bytes) {
        while (phase < PHASES && !phase_text_is(text + at + 1, bytes - at - 1, phase_name((Phase)phase)))
            phase++;
        if (phase == PHASES)
            return error_why(why, ERR_USAGE, "\"%.*s\" names no phase: attn, ffn_gate, ffn_up, ffn_down", shown,
                             text);
    }
    if (layer > layers || (layer == layers && phase != PHASE_ATTN))
        return error_why(why, ERR_USAGE, "\"%.*s\" lies beyond the model's %u layers", shown, text, layers);
    *out = phase_bound(layer, (Phase)phase);
    return OK;
}

static Error phase_parse_range(const char *text, size_t bytes, uint32_t layers, PhaseRange *out, Why *why)
{
    const char *dash = bytes ? memchr(text, '-', bytes) : NULL;
    int shown = bytes < 60 ? (int)bytes : 60;
    if (!dash)
        return error_why(why, ERR_USAGE, "\"%.*s\" is no range: use FIRST-END, for example 0-14", shown, text);
    size_t first = (size_t)(dash - text);
    TRY(phase_parse_bound(text, first, layers, &out->first, why));
    TRY(phase_parse_bound(dash + 1, bytes - first - 1, layers, &out->last, why));
    if (out->first >= out->last) return error_why(why, ERR_USAGE, "the range \"%.*s\" is empty", shown, text);
    return OK;
}

Error phase_parse_ranges(const char *text, uint32_t layers, PhaseRange *out, uint32_t out_max, uint32_t *count,
                         Why *why)
{
    PhaseBound expected = 0, end = phase_bound(layers, PHASE_ATTN);
    uint32_t n = 0;
    for (const char *at = text;; n++) {
        const char *comma = strchr(at, ',');
        size_t bytes = comma ? (size_t)(comma - at) : strlen(at);
        int shown = bytes < 60 ? (int)bytes : 60;
        PhaseRange range;
        TRY(phase_parse_range(at, bytes, layers, &range, why));
        if (range.first != expected)
            return error_why(why, ERR_USAGE,
                             "the range \"%.*s\" leaves %s: it must start at layer %u, phase %s", shown, at,
                             range.first > expected ? "a gap" : "an overlap", phase_layer(expected),
                             phase_name(phase_of(expected)));
        if (n == out_max) return error_why(why, ERR_USAGE, "more than %u ranges", out_max);
        out[n] = range;
        expected = range.last;
        if (!comma) break;
        at = comma + 1;
    }
    if (expected != end)
        return error_why(why, ERR_USAGE, "the ranges stop at layer %u, phase %s; the model has %u layers",
                         phase_layer(expected), phase_name(phase_of(expected)), layers);
    *count = n + 1;
    return OK;
}

static char *phase_put_bound(char *out, PhaseBound b, uint32_t layers)
{
    if (b >= phase_bound(layers, PHASE_ATTN)) return phase_put_text(out, "end");
    out = phase_put_number(out, phase_layer(b));
    if (phase_of(b) == PHASE_ATTN) return phase_put_text(out, "");
    return phase_put_text(phase_put_text(out, "."), phase_name(phase_of(b)));
}

char *phase_range_text(PhaseRange range, uint32_t layers, char out[PHASE_RANGE_TEXT_MAX])
{
    char *at = phase_put_bound(out, range.first, layers);
    at = phase_put_text(at, "-");
    phase_put_bound(at, range.last, layers);
    return out;
}
