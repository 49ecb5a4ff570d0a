/* SPDX-License-Identifier: Apache-2.0 */
/* A layer is four phases; a phase is the unit of placement, loading and eviction. Bounds between phases name positions
 * in the model: bound = layer * 4 + phase, from 0 to layers * 4.
 *
 *   attn      attn_q attn_k attn_v attn_output   x += Wo attention(rope(q), K, V)
 *   ffn_gate  ffn_gate                           g = Wg norm(x)
 *   ffn_up    ffn_up                             g = act(g) * (Wu norm(x))
 *   ffn_down  ffn_down                           x += Wd g
 *
 * Norm vectors and biases belong to the resident floor. */
#ifndef COBORD_MODEL_PHASE_H
#define COBORD_MODEL_PHASE_H

#include "model/hyper.h"

typedef enum Phase { PHASE_ATTN, PHASE_FFN_GATE, PHASE_FFN_UP, PHASE_FFN_DOWN, PHASES } Phase;
typedef uint32_t PhaseBound;

typedef struct PhaseRange {
    PhaseBound first, last; /* half open */
} PhaseRange;

static inline PhaseBound phase_bound(uint32_t layer, Phase phase) { return layer * PHASES + phase; }
static inline uint32_t phase_layer(PhaseBound b) { return b / PHASES; }
static inline Phase phase_of(PhaseBound b) { return (Phase)(b % PHASES); }

const char *phase_name(Phase phase); /* "attn", "ffn_gate", ... */

/* The matrices of one phase in the order they are read. */
enum { PHASE_MATRICES_MAX = 4 };
typedef struct PhaseMatrix {
    const KnotTensor *weight;
    const KnotTensor *bias; /* NULL where the model has none */
    uint32_t rows, cols;
} PhaseMatrix;

/* Looks up and shape-checks every matrix of a phase.
 * Errors  ERR_MISSING_TENSOR ("layer 3, phase ffn_up: blk_3_ffn_up_weight is missing"), ERR_SHAPE. */
MUST_CHECK Error phase_matrices(const Knot *knot, const Hyper *h, uint32_t layer, Phase phase,
                                PhaseMatrix out[PHASE_MATRICES_MAX], uint32_t *count, Why *why);

/* The norm vectors of one layer: weight vectors of the resident floor; NULL where the model has none. */
typedef struct LayerNorms {
    const KnotTensor *attn, *ffn, *q, *k, *post_attn, *post_ffn;
} LayerNorms;
MUST_CHECK Error phase_layer_norms(const Knot *knot, const Hyper *h, uint32_t layer, LayerNorms *out, Why *why);

/* Parses one bound ("5", "5.attn", "5.ffn_down", "end") and a list of ranges ("0-2.ffn_up,2.ffn_up-end").
 * Ranges must meet end to end from 0 to the model's end. Errors  ERR_USAGE (shows the offending part). */
MUST_CHECK Error phase_parse_bound(const char *text, size_t bytes, uint32_t layers, PhaseBound *out, Why *why);
MUST_CHECK Error phase_parse_ranges(const char *text, uint32_t layers, PhaseRange *out, uint32_t out_max,
                                    uint32_t *count, Why *why);
/* "5.attn-14" into out; returns out. */
enum { PHASE_RANGE_TEXT_MAX = 48 };
char *phase_range_text(PhaseRange range, uint32_t layers, char out[PHASE_RANGE_TEXT_MAX]);

#endif
