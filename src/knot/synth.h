/* SPDX-License-Identifier: Apache-2.0 */
/* Models of random weights in the shape of real ones: for capacity tests (a 7B model is 4.4 GB,
 * nobody wants to download it for that) and small ones for tests. Every number is valid, so that
 * logits are finite; a row is a function of (seed, tensor, row) alone, so that it can be made
 * anywhere and again.
 *
 * The vocabulary is byte-level: ids 0 to 255 are the bytes, then three control tokens, then words
 * that no text contains. */
#ifndef COBORD_KNOT_SYNTH_H
#define COBORD_KNOT_SYNTH_H

#include "knot/encode.h"

typedef struct SynthShape {
    const char *name;
    const char *architecture;
    uint32_t layers, hidden, ffn, heads, kv_heads, head_dim;
    uint32_t vocabulary, vocabulary_rows; /* rows beyond the vocabulary are padding */
    uint32_t context;
    float rope_base;
    uint32_t sliding_window;
    bool tied;
} SynthShape;

/* NULL when there is none of that name; the list ends with a shape without name. */
const SynthShape *synth_shape(const char *name);
const SynthShape *synth_shapes(void);

/* Tensors, hyper-parameters and tokenizer of a shape, for encode_start. Owner  `arena`. Errors
 * ERR_MEMORY. */
MUST_CHECK Error synth_input(const SynthShape *shape, Arena *arena, EncodeInput *out, Why *why);

/* `count` rows of a tensor from row_first on. Shapes  out[count][row bytes]. */
void synth_rows(const EncodeInput *input, uint32_t tensor, uint64_t seed, uint32_t row_first,
                uint32_t count, uint8_t *out);

#endif
