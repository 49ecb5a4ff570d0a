/* SPDX-License-Identifier: Apache-2.0 */
/* What a knot of given tensors will look like, to the byte, before any weight is read. */
#ifndef COBORD_KNOT_ENCODE_PLAN_H
#define COBORD_KNOT_ENCODE_PLAN_H

#include "knot/encode.h"

typedef struct EncodeTensor {
    KnotTensor out;
    uint32_t source;
    bool tied;      /* a second copy of the embedding */
    bool embedding; /* its rows are hashed */
    uint64_t source_row_bytes;
} EncodeTensor;

typedef struct EncodePlan {
    unsigned version;
    EncodeTensor *tensors; /* by rising offset */
    uint32_t tensor_count;
    KnotSection tokenizer, row_hashes, tensor_hashes, block_hashes;
    uint64_t payload_offset, payload_bytes;
    uint8_t *header; /* payload_offset bytes: everything before the payload, knot_id still zeros */
    size_t header_end;
} EncodePlan;

/* Errors  ERR_SHAPE, ERR_TYPE, ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error encode_plan_make(const EncodeInput *input, Arena *arena, EncodePlan *out,
                                  Why *why);

#endif
