/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder: a list of tensors in, a knot out, in one pass, without I/O. The host asks for wishes
 * and grants them in order.
 *
 *      +-------------- READ: fill the buffer from a tensor <------------+
 *      v                                                                |
 *   convert a chunk --> stage --(8 MiB or the end)--> WRITE: append --> next chunk
 *                                                                       sections
 *                                                                       PATCH: the identity
 *                                                                       DONE
 *
 *   stage   | written before | hashed, whole 2 MiB of the file: the next WRITE | rest, kept |
 *
 * The whole layout (offsets, JSON, sizes) is planned before the first byte is read. Chunks are at
 * most 4 MiB or 16 rows; rows of a chunk are converted and blocks hashed over the parallel port.
 * Writes are large and end at multiples of 2 MiB of the file, so that its pages can be huge ones
 * (reading a knot is bound by that).
 *
 * Quantized bytes never change; the only conversion is that of 16-bit vectors to F32 in version 2.
 */
#ifndef COBORD_KNOT_ENCODE_H
#define COBORD_KNOT_ENCODE_H

#include "base/parallel.h"
#include "knot/gguf.h"

enum {
    ENCODE_CHUNK_BYTES = 4 << 20,
    ENCODE_FLUSH_BYTES = 8 << 20,
    ENCODE_WRITE_UNIT = 2 << 20,
    ENCODE_ROW_BYTES_MAX = 512 << 10 /* of a matrix: 16 of them are a chunk */
};

/* What to make a knot of. Tensors are named by knot_name; file and offset are the host's business.
 */
typedef struct EncodeInput {
    const GgufTensor *tensors;
    uint32_t tensor_count;
    const KnotModel *model;
    const uint8_t *vocab; /* tokenizer section, version 2 only */
    size_t vocab_bytes;
    unsigned version;
} EncodeInput;

typedef enum EncodeWishKind { ENCODE_READ, ENCODE_WRITE, ENCODE_PATCH, ENCODE_DONE } EncodeWishKind;

typedef struct EncodeWish {
    EncodeWishKind kind;
    uint32_t source; /* READ: index of the source tensor */
    uint64_t offset; /* READ: from the tensor's first byte; PATCH: in the file; WRITE: in the file,
                        always the end so far */
    size_t bytes;
    uint8_t *buffer; /* READ: to fill; WRITE, PATCH: to write. Valid until the next step */
} EncodeWish;

typedef struct Encoder Encoder;

/* Plans everything. Owner  `arena` holds the encoder; input and what it points to must outlive it.
 * Errors  ERR_SHAPE, ERR_TYPE, ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error encode_start(const EncodeInput *input, const Parallel *parallel, Arena *arena,
                              Encoder **out, Why *why);

uint64_t encode_file_bytes(const Encoder *e);   /* of the finished file */
uint64_t encode_bytes_so_far(const Encoder *e); /* that went into it */

/* The next wish; the one before it is granted when this is called.
 * Errors  ERR_NOT_FINITE (tensor and how many rows), ERR_TYPE, ERR_SHAPE. */
MUST_CHECK Error encode_step(Encoder *e, EncodeWish *wish, Why *why);

#endif
