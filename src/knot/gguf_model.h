/* SPDX-License-Identifier: Apache-2.0 */
/* What a GGUF file says about its model: hyper-parameters, and whether its tensors are those that
 * the architecture has. */
#ifndef COBORD_KNOT_GGUF_MODEL_H
#define COBORD_KNOT_GGUF_MODEL_H

#include "knot/gguf.h"

/* Errors  ERR_UNSUPPORTED (mixture of experts and other things that would change the numbers),
 * ERR_FORMAT for a missing key, ERR_TYPE, ERR_RANGE. */
MUST_CHECK Error gguf_model_read(const Gguf *gguf, KnotModel *out, Why *why);

/* What a tensor is for. */
typedef enum GgufRole {
    GGUF_ROLE_NONE,      /* not a tensor of a supported architecture */
    GGUF_ROLE_VECTOR,    /* norms, biases, rope factors */
    GGUF_ROLE_MATRIX,    /* of a phase */
    GGUF_ROLE_EMBEDDING, /* token_embd */
    GGUF_ROLE_HEAD       /* output */
} GgufRole;

/* Where a tensor belongs in execution order. Vectors: layer (or layers for those of no layer);
 * matrices: layer, phase 0..3 and place 0..3 within the phase. */
typedef struct GgufPlace {
    GgufRole role;
    uint32_t layer, phase, place;
} GgufPlace;

GgufPlace gguf_model_place(const char *knot_name, uint32_t layers);

/* Every tensor is known, belongs to a layer that exists and has the right number of dimensions;
 * none is missing. Errors  ERR_UNSUPPORTED for one that is not known (a model that needs it would
 * give wrong answers), ERR_MISSING_TENSOR, ERR_SHAPE. */
MUST_CHECK Error gguf_model_check_tensors(const Gguf *gguf, const KnotModel *model, Why *why);

/* "blk_3_attn_q_weight" into out[KNOT_NAME_BYTES_MAX + 1]; returns out. */
char *gguf_model_layer_name(char *out, uint32_t layer, const char *rest);

#endif
