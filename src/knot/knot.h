/* SPDX-License-Identifier: Apache-2.0 */
/* The knot container: the header's meaning, checked once, then looked up by name.
 *
 *   "KNOT" | version | meta_len | JSON | NUL.. | 0x40 | (v2: NUL.. to 4096) | payload
 *
 * Byte tables in docs/format/knot.md.
 * Reading needs two ranges: the first KNOT_PROBE_BYTES of the file, and, when knot_header_bytes
 * says more, the whole header. The hash tables and the tokenizer are sections that a reader fetches
 * by range when it needs them. */
#ifndef COBORD_KNOT_KNOT_H
#define COBORD_KNOT_KNOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "knot/names.h"
#include "quant/block.h"
#include "quant/layout.h"

enum {
    KNOT_PROBE_BYTES = 65536,
    KNOT_META_BYTES_MAX = 16 << 20,
    KNOT_HASH_BLOCK_BYTES = 256 << 10, /* payload bytes per entry of the block hash table */
    KNOT_NAME_BYTES_MAX = 64,
    KNOT_TENSORS_MAX = 65536,
    KNOT_LAYERS_MAX = 512,
    KNOT_ALIGNMENT = 64,        /* of tensors and sections, version 2 */
    KNOT_PART_ALIGNMENT = 4096, /* of the payload, phases, head, embedding, tokenizer, version 2 */
    KNOT_ID_DIGITS_OFFSET = 22, /* in the file: the JSON starts with {"knot_id":" */
    KNOT_ID_DIGITS = 16
};

/* Hyper-parameters as the file states them; `model` gives them meaning. Zero where the file is
 * silent. */
typedef struct KnotModel {
    char architecture[32]; /* "qwen2", "llama", "gemma3", "qwen3" */
    char name[96];
    uint32_t layers, hidden, ffn, heads, kv_heads, head_dim;
    uint32_t vocabulary; /* the tokenizer's: ids that may be sampled */
    uint32_t context;    /* positions the model was trained for */
    float norm_epsilon;
    float rope_base;
    float rope_base_local; /* gemma3's sliding layers: 10000 when the file is silent */
    uint32_t rope_dim;     /* dimensions rotated: head_dim when the file is silent */
    char rope_scaling[16]; /* "", "none", "linear", "yarn" or "llama3" (by the rope_freqs tensor) */
    float rope_scale_factor; /* 0 when none */
    uint32_t rope_original_context;
    uint32_t sliding_window;         /* 0: none */
    uint32_t sliding_window_pattern; /* every n-th layer is global: 6 for gemma3 */
} KnotModel;

typedef struct KnotTensor {
    const char *name; /* "blk_0_attn_q_weight", NUL-terminated, in the arena */
    BlockType type;
    Layout layout;
    uint32_t rows, cols; /* a vector is 1 x cols */
    uint64_t offset;     /* from the payload's start */
    uint64_t bytes;
} KnotTensor;

typedef struct KnotSection {
    uint64_t offset, bytes; /* from the payload's start; bytes 0 when absent */
} KnotSection;

typedef struct Knot {
    uint16_t version;
    uint64_t id; /* v1: XXH64 of the header's bytes */
    uint64_t file_bytes;
    uint64_t payload_offset; /* in the file */
    uint64_t payload_bytes;
    KnotModel model;
    KnotTensor *tensors; /* in file order */
    uint32_t tensor_count;
    Names names; /* of tensors, to their index */
    KnotSection tokenizer;
    KnotSection block_hashes; /* u64 per KNOT_HASH_BLOCK_BYTES of payload before this section */
    KnotSection embedding_row_hashes; /* u64 per row of token_embd_weight */
    KnotSection tensor_hashes;        /* u64 per tensor, in the order of `tensors`; may be absent */
    bool tied_head;                   /* output_weight repeats the values of token_embd_weight */
} Knot;

/* From the file's first bytes (at least 10): how many bytes the header needs, JSON and padding and
 * marker included. Errors  ERR_FORMAT (says what the bytes look like: HTML, git-lfs pointer, GGUF,
 * zip, ...), ERR_UNSUPPORTED version, ERR_TOO_LARGE, ERR_TRUNCATED. */
MUST_CHECK Error knot_header_bytes(const uint8_t *probe, size_t probe_bytes, uint64_t file_bytes,
                                   uint64_t *out, Why *why);

/* Parses the header. `scratch` is for the JSON reader and may be reset afterwards; what `out`
 * points to is in `arena`. Checked: every range inside the payload, bytes == layout_tensor_bytes,
 * no overlap, no duplicate name, v2 alignment. Errors  ERR_FORMAT, ERR_STALE, ERR_TRUNCATED,
 * ERR_TYPE, ERR_SHAPE, ERR_RANGE, ERR_DUPLICATE, ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error knot_parse(const uint8_t *header, size_t header_bytes, uint64_t file_bytes,
                            Arena *arena, Arena *scratch, Knot *out, Why *why);

/* True for a version 1 header of the early encoder (docs/format/knot.md, section 7); needs the
 * bytes up to 10 + meta_len. */
bool knot_is_stale(const uint8_t *header, size_t header_bytes);

/* JSON, NULs and marker: what stands before the payload's alignment. `meta_bytes` at most
 * KNOT_META_BYTES_MAX. */
uint64_t knot_header_end(uint64_t meta_bytes);
/* Where the payload starts in the file. */
uint64_t knot_payload_start(uint16_t version, uint64_t meta_bytes);

/* The identity that a version 2 file must state: the header's JSON with its digits as zeros, then
 * the two hash sections. */
uint64_t knot_identity(const uint8_t *header, size_t header_bytes, const uint8_t *row_hashes,
                       size_t row_hashes_bytes, const uint8_t *block_hashes,
                       size_t block_hashes_bytes);

/* Sizes for the two arenas that surely suffice for a header of this many bytes. */
size_t knot_arena_bytes(size_t header_bytes);
size_t knot_scratch_bytes(size_t header_bytes);

/* NULL when there is none. */
const KnotTensor *knot_find(const Knot *knot, const char *name);
/* output_weight, or the embedding where a file has no head of its own; NULL when it has neither. */
const KnotTensor *knot_head(const Knot *knot);

/* Rows that are stored together: those of a panel, or one. */
uint32_t knot_unit_rows(const KnotTensor *t);
/* Where a row begins, or the panel that has it; where the rows before `row_last` end, or their panels. From the
 * payload's start. */
uint64_t knot_row_offset(const KnotTensor *t, uint32_t row);
uint64_t knot_rows_end(const KnotTensor *t, uint32_t row_last);

#endif
