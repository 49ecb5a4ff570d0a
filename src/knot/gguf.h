/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF versions 2 and 3, read from the front through a port; the weights themselves are never
 * touched here.
 *
 *   "GGUF" | u32 version | u64 tensors | u64 keys | key.. | tensor.. | padding | data
 *     key     string, u32 type, value; an array is u32 type, u64 count, values
 *     tensor  string, u32 dimensions, u64 each (fastest first), u32 type,
 *             u64 offset from the data's start
 *
 * A model may be split over files -00001-of-0000N: keys come from the first, tensors from all. The
 * architecture is judged before any tensor is looked at, so that a complete file of another kind is
 * never called damaged.
 *
 * Limits  one level of arrays, keys of 255 bytes, 65,536 keys and tensors, dimensions of 1 to
 *         4294967295, alignment a power of two from 8 to 65,536. Every count is compared with the
 *         bytes left before memory is taken for it.
 * Source  the GGUF specification as published with ggml. */
#ifndef COBORD_KNOT_GGUF_H
#define COBORD_KNOT_GGUF_H

#include "knot/cursor.h"
#include "knot/knot.h"
#include "knot/names.h"
#include "quant/block.h"

enum {
    GGUF_KEYS_MAX = 65536,
    GGUF_KEY_BYTES_MAX = 255,
    GGUF_NAME_BYTES_MAX = 64,
    GGUF_FILES_MAX = 256,
    GGUF_SPLIT_BYTES = 20, /* -00001-of-00003.gguf */
    GGUF_ALIGNMENT_DEFAULT = 32
};

typedef enum GgufValueType {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_TYPES
} GgufValueType;

typedef struct GgufKey {
    const char *name; /* NUL-terminated, printable */
    GgufValueType type;
    GgufValueType element; /* of an array */
    uint64_t count;        /* elements of an array */
    uint64_t offset; /* in file 0: of the value; behind the length of a string, behind type and
                        count of an array */
    uint64_t bytes;  /* of the value from there */
    uint64_t bits;   /* a number's bytes, zero-extended */
} GgufKey;

typedef struct GgufTensor {
    const char *name;      /* as in the file, NUL-terminated: letters, digits, . _ - */
    const char *knot_name; /* dots as underscores */
    BlockType type;
    uint32_t dimensions;
    uint32_t rows, cols; /* rows: the product of all dimensions but the first */
    uint32_t file;
    uint64_t offset; /* in the file */
    uint64_t bytes;
} GgufTensor;

typedef struct Gguf {
    const CursorPort *files;
    uint32_t file_count;
    uint32_t version;
    GgufKey *keys;
    uint32_t key_count;
    GgufTensor *tensors; /* file by file, in the order of their infos */
    uint32_t tensor_count;
    Names key_names, tensor_names; /* tensor_names holds knot names */
    char architecture[32];
} Gguf;

/* Reads everything but the weights. Owner  `arena` holds what `out` points to; `files` must outlive
 * it. Errors  ERR_FORMAT (says what the file looks like), ERR_TRUNCATED, ERR_UNSUPPORTED
 * (architecture, named), ERR_TYPE, ERR_SHAPE, ERR_RANGE, ERR_DUPLICATE, ERR_TOO_LARGE, ERR_MEMORY,
 * those of the port. */
MUST_CHECK Error gguf_read(const CursorPort *files, uint32_t file_count, Arena *arena, Gguf *out,
                           Why *why);

/* NULL when there is none. */
const GgufKey *gguf_key(const Gguf *gguf, const char *name);
const GgufTensor *gguf_tensor(const Gguf *gguf, const char *knot_name);

/* A whole number, 0 or more, of any integer type; `absent` when the key is not there. Errors
 * ERR_TYPE, ERR_RANGE. */
MUST_CHECK Error gguf_u32(const Gguf *gguf, const char *name, uint32_t absent, uint32_t *out,
                          Why *why);
/* A finite number of either float type. */
MUST_CHECK Error gguf_f32(const Gguf *gguf, const char *name, float absent, float *out, Why *why);
MUST_CHECK Error gguf_bool(const Gguf *gguf, const char *name, bool absent, bool *out, Why *why);
/* Copies a string into out[out_bytes], NUL-terminated; "" when there is none. Errors  ERR_RANGE too
 * long or with a NUL. */
MUST_CHECK Error gguf_text(const Gguf *gguf, const char *name, char *out, size_t out_bytes,
                           Why *why);

const char *gguf_value_type_name(GgufValueType type);

/* Part and count of a split file's name, "x-00001-of-00003.gguf", which ends with GGUF_SPLIT_BYTES
 * of that kind; false when it does not, or the part is not 1 to the count. */
bool gguf_split_name(const char *name, size_t bytes, uint32_t *part, uint32_t *parts);

#endif
