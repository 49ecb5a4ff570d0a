/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/encode.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "knot/emit.h"
#include "knot/encode_plan.h"

enum { GROUP_ROWS = PANEL_ROWS };

typedef enum EncodeState {
    STATE_HEADER,
    STATE_TENSORS,
    STATE_TOKENIZER,
    STATE_ROW_HASHES,
    STATE_TENSOR_HASHES,
    STATE_BLOCK_HASHES,
    STATE_FLUSH,
    STATE_PATCH,
    STATE_DONE
} EncodeState;

struct Encoder {
    EncodePlan plan;
    EncodeInput input;
    const Parallel *parallel;
    EncodeState state;
    uint32_t tensor, row;     /* the next chunk's */
    uint32_t chunk_rows;      /* 0: no chunk has been asked for */
    uint64_t not_finite_rows; /* of the current tensor */
    uint32_t *group_faults;   /* per group of a chunk: rows that are not finite */
    uint8_t *chunk;           /* source rows, when they are not read straight into the stage */
    uint64_t memory_done;     /* of a section that is copied from memory */
    uint8_t *stage;
    size_t stage_room, stage_used;
    uint64_t stage_start; /* in the file */
    uint64_t hashed;      /* payload bytes whose blocks are in block_hashes */
    size_t written;       /* from the stage, by the last wish */
    uint8_t *row_hashes, *tensor_hashes, *block_hashes;
    HashStream64 tensor_hash; /* of the current tensor */
    uint8_t digits[KNOT_ID_DIGITS];
};

/* --- stage --- */

static uint64_t encode_at(const Encoder *e) { return e->stage_start + e->stage_used; }

static uint8_t *encode_stage_end(Encoder *e) { return e->stage + e->stage_used; }

static void encode_stage_zeros(Encoder *e, uint64_t until)
{
    uint64_t bytes = e->plan.payload_offset + until - encode_at(e);
    ASSERT(bytes < KNOT_PART_ALIGNMENT && bytes <= e->stage_room - e->stage_used);
    memset(encode_stage_end(e), 0, (size_t)bytes);
    e->stage_used += (size_t)bytes;
}

/* Copies what fits below the flush mark of a section in memory; true when all of it is in the
 * stage. */
static bool encode_stage_memory(Encoder *e, const uint8_t *from, uint64_t bytes)
{
    uint64_t piece = bytes - e->memory_done;
    if (piece > ENCODE_FLUSH_BYTES) piece = ENCODE_FLUSH_BYTES;
    ASSERT(piece <= e->stage_room - e->stage_used);
    if (piece) memcpy(encode_stage_end(e), from + e->memory_done, (size_t)piece);
    e->stage_used += (size_t)piece;
    e->memory_done += piece;
    return e->memory_done == bytes;
}

typedef struct EncodeHashJob {
    const uint8_t *from; /* the first block in the stage */
    uint64_t bytes;
    uint8_t *out;
} EncodeHashJob;

static void encode_hash_block(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    EncodeHashJob *job = argument;
    uint64_t at = (uint64_t)item * KNOT_HASH_BLOCK_BYTES, left = job->bytes - at;
    size_t bytes = left < KNOT_HASH_BLOCK_BYTES ? (size_t)left : KNOT_HASH_BLOCK_BYTES;
    bytes_store64(job->out + 8 * (size_t)item, hash_xxh64(job->from + at, bytes));
}

/* Hashes the blocks of the payload that are complete in the stage; at the end (`last`) also the
 * shorter one. */
static void encode_hash_stage(Encoder *e, bool last)
{
    uint64_t payload_at = encode_at(e) - e->plan.payload_offset;
    if (e->plan.version == 1 || encode_at(e) < e->plan.payload_offset) return;
    uint64_t end = last ? payload_at : payload_at / KNOT_HASH_BLOCK_BYTES * KNOT_HASH_BLOCK_BYTES;
    if (end <= e->hashed) return;
    uint64_t first = e->hashed / KNOT_HASH_BLOCK_BYTES;
    EncodeHashJob job = {e->stage + (e->plan.payload_offset + e->hashed - e->stage_start),
                         end - e->hashed, e->block_hashes + 8 * (size_t)first};
    uint32_t blocks = (uint32_t)((job.bytes + KNOT_HASH_BLOCK_BYTES - 1) / KNOT_HASH_BLOCK_BYTES);
    parallel_run(e->parallel, encode_hash_block, &job, blocks);
    e->hashed = end;
}

/* What may leave the stage: whole write units of the file whose blocks are hashed, or all of it. */
static void encode_wish_write(Encoder *e, bool all, EncodeWish *wish)
{
    uint64_t end = encode_at(e);
    if (!all) {
        encode_hash_stage(e, false);
        uint64_t hashed = e->plan.payload_offset +
                          e->hashed; /* beyond the stage while it holds a part of a long header */
        if (e->plan.version == 2 && hashed < end) end = hashed;
        end = end / ENCODE_WRITE_UNIT * ENCODE_WRITE_UNIT;
    }
    ASSERT(end > e->stage_start);
    e->written = (size_t)(end - e->stage_start);
    *wish = (EncodeWish){ENCODE_WRITE, 0, e->stage_start, e->written, e->stage};
}

static void encode_drop_written(Encoder *e)
{
    if (!e->written) return;
    e->stage_used -= e->written;
    e->stage_start += e->written;
    memmove(e->stage, e->stage + e->written, e->stage_used);
    e->written = 0;
}

/* --- chunks --- */

static EncodeTensor *encode_current(Encoder *e) { return &e->plan.tensors[e->tensor]; }

static bool encode_converts(const Encoder *e, const EncodeTensor *t)
{
    return e->input.tensors[t->source].type != t->out.type || t->out.layout != LAYOUT_ROWS;
}

static uint32_t encode_chunk_rows(const EncodeTensor *t, uint32_t rows_left)
{
    uint64_t rows = ENCODE_CHUNK_BYTES / t->source_row_bytes / GROUP_ROWS * GROUP_ROWS;
    if (rows < GROUP_ROWS) rows = GROUP_ROWS;
    return rows < rows_left ? (uint32_t)rows : rows_left;
}

static void encode_wish_read(Encoder *e, EncodeWish *wish)
{
    const EncodeTensor *t = encode_current(e);
    if (e->row == 0) {
        encode_stage_zeros(e, t->out.offset);
        hash_stream64_start(&e->tensor_hash);
    }
    e->chunk_rows = encode_chunk_rows(t, t->out.rows - e->row);
    size_t bytes = (size_t)(e->chunk_rows * t->source_row_bytes);
    uint8_t *buffer = encode_converts(e, t) ? e->chunk : encode_stage_end(e);
    *wish = (EncodeWish){ENCODE_READ, t->source, e->row * t->source_row_bytes, bytes, buffer};
}

typedef struct EncodeChunkJob {
    Encoder *encoder;
    const EncodeTensor *tensor;
    const uint8_t *in;
    uint8_t *out;
    uint64_t out_group_bytes;
} EncodeChunkJob;

static Error encode_group_convert(const EncodeChunkJob *job, const uint8_t *rows, uint32_t count,
                                  uint8_t *out)
{
    const KnotTensor *t = &job->tensor->out;
    BlockType from = job->encoder->input.tensors[job->tensor->source].type;
    if (t->layout == LAYOUT_X16)
        return layout_panel_from_rows(from, rows, count, t->cols, out, NULL);
    if (from == t->type) return OK; /* read in place */
    for (uint32_t i = 0; i < count; i++) {
        float *values = (float *)(void *)(out + (uint64_t)i * t->cols * 4);
        TRY(block_dequantize_row(from, rows + i * job->tensor->source_row_bytes, t->cols, values,
                                 NULL));
    }
    return OK;
}

/* One group of up to 16 rows: looks at every scale, converts, hashes embedding rows. */
static void encode_group(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    EncodeChunkJob *job = argument;
    Encoder *e = job->encoder;
    const EncodeTensor *t = job->tensor;
    uint32_t first = item * GROUP_ROWS, count = e->chunk_rows - first;
    if (count > GROUP_ROWS) count = GROUP_ROWS;
    const uint8_t *rows = job->in + first * t->source_row_bytes;
    uint32_t faults = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = rows + i * t->source_row_bytes;
        faults += !block_row_finite(e->input.tensors[t->source].type, row, t->out.cols);
        if (t->embedding && e->plan.version == 2)
            bytes_store64(e->row_hashes + 8 * ((size_t)e->row + first + i),
                          hash_xxh64(row, (size_t)t->source_row_bytes));
    }
    e->group_faults[2 * (size_t)item] = faults;
    e->group_faults[2 * (size_t)item + 1] =
        encode_group_convert(job, rows, count, job->out + item * job->out_group_bytes);
}

static Error encode_chunk(Encoder *e, Why *why)
{
    const EncodeTensor *t = encode_current(e);
    uint32_t groups = (e->chunk_rows + GROUP_ROWS - 1) / GROUP_ROWS;
    uint64_t group_bytes, out_bytes;
    TRY(layout_tensor_bytes(t->out.type, t->out.layout, GROUP_ROWS, t->out.cols, &group_bytes,
                            why));
    TRY(layout_tensor_bytes(t->out.type, t->out.layout, e->chunk_rows, t->out.cols, &out_bytes,
                            why));
    ASSERT(out_bytes <= e->stage_room - e->stage_used);
    uint8_t *out = encode_stage_end(e);
    EncodeChunkJob job = {e, t, encode_converts(e, t) ? e->chunk : out, out, group_bytes};
    parallel_run(e->parallel, encode_group, &job, groups);
    for (uint32_t i = 0; i < groups; i++) {
        e->not_finite_rows += e->group_faults[2 * (size_t)i];
        Error error = (Error)e->group_faults[2 * (size_t)i + 1];
        if (error) return error_why(why, error, "tensor %s cannot be laid out", t->out.name);
    }
    if (e->plan.version == 2) hash_stream64_update(&e->tensor_hash, out, (size_t)out_bytes);
    e->stage_used += (size_t)out_bytes;
    e->row += e->chunk_rows;
    e->chunk_rows = 0;
    return OK;
}

/* After the last row: how many were bad is worth more to a person than where the first was. */
static Error encode_tensor_end(Encoder *e, Why *why)
{
    const EncodeTensor *t = encode_current(e);
    if (e->not_finite_rows)
        return error_why(why, ERR_NOT_FINITE,
                         "tensor %s: %llu of %u rows have a scale or value that is not finite. "
                         "Download the file again.",
                         e->input.tensors[t->source].name, (unsigned long long)e->not_finite_rows,
                         t->out.rows);
    if (e->plan.version == 2)
        bytes_store64(e->tensor_hashes + 8 * (size_t)e->tensor, hash_stream64_end(&e->tensor_hash));
    e->tensor++;
    e->row = 0;
    if (e->tensor == e->plan.tensor_count)
        e->state = e->plan.version == 2 ? STATE_TOKENIZER : STATE_FLUSH;
    return OK;
}

/* --- states --- */

static void encode_step_memory(Encoder *e, const uint8_t *from, KnotSection s, EncodeState next)
{
    if (e->memory_done == 0) encode_stage_zeros(e, s.offset);
    if (!encode_stage_memory(e, from, s.bytes)) return;
    e->memory_done = 0;
    e->state = next;
}

static void encode_step_header(Encoder *e)
{
    if (!encode_stage_memory(e, e->plan.header, e->plan.payload_offset)) return;
    e->memory_done = 0;
    e->state = STATE_TENSORS;
}

static void encode_step_patch(Encoder *e, EncodeWish *wish)
{
    const EncodePlan *p = &e->plan;
    uint64_t id =
        knot_identity(p->header, p->header_end, e->row_hashes, (size_t)p->row_hashes.bytes,
                      e->block_hashes, (size_t)p->block_hashes.bytes);
    Emit digits = emit_make(e->digits, sizeof e->digits);
    emit_hex64(&digits, id);
    *wish = (EncodeWish){ENCODE_PATCH, 0, KNOT_ID_DIGITS_OFFSET, KNOT_ID_DIGITS, e->digits};
    e->state = STATE_DONE;
}

/* Moves on by one piece; true when that needs the host. */
static Error encode_advance(Encoder *e, EncodeWish *wish, bool *asks, Why *why)
{
    *asks = false;
    switch (e->state) {
    case STATE_HEADER: encode_step_header(e); return OK;
    case STATE_TENSORS:
        if (e->row == encode_current(e)->out.rows) return encode_tensor_end(e, why);
        encode_wish_read(e, wish);
        *asks = true;
        return OK;
    case STATE_TOKENIZER:
        encode_step_memory(e, e->input.vocab, e->plan.tokenizer, STATE_ROW_HASHES);
        return OK;
    case STATE_ROW_HASHES:
        encode_step_memory(e, e->row_hashes, e->plan.row_hashes, STATE_TENSOR_HASHES);
        return OK;
    case STATE_TENSOR_HASHES:
        encode_step_memory(e, e->tensor_hashes, e->plan.tensor_hashes, STATE_BLOCK_HASHES);
        return OK;
    case STATE_BLOCK_HASHES:
        if (e->memory_done == 0) {
            encode_stage_zeros(e, e->plan.block_hashes.offset);
            encode_hash_stage(e, true);
        }
        encode_step_memory(e, e->block_hashes, e->plan.block_hashes, STATE_FLUSH);
        return OK;
    case STATE_FLUSH:
        encode_wish_write(e, true, wish);
        e->state = e->plan.version == 2 ? STATE_PATCH : STATE_DONE;
        *asks = true;
        return OK;
    case STATE_PATCH:
        encode_step_patch(e, wish);
        *asks = true;
        return OK;
    default:
        *wish = (EncodeWish){ENCODE_DONE, 0, 0, 0, NULL};
        *asks = true;
        return OK;
    }
}

Error encode_step(Encoder *e, EncodeWish *wish, Why *why)
{
    encode_drop_written(e);
    if (e->chunk_rows) TRY(encode_chunk(e, why));
    for (bool asks = false; !asks;) {
        bool tail = e->state == STATE_BLOCK_HASHES &&
                    e->memory_done; /* hashes themselves are in no block */
        if (e->stage_used >= ENCODE_FLUSH_BYTES && e->state < STATE_FLUSH && !tail) {
            encode_wish_write(e, false, wish);
            return OK;
        }
        TRY(encode_advance(e, wish, &asks, why));
    }
    return OK;
}

/* --- start --- */

static Error encode_buffers(Encoder *e, Arena *arena, Why *why)
{
    uint64_t chunk_max = 0, out_max = ENCODE_FLUSH_BYTES;
    uint32_t groups_max = 1;
    for (uint32_t i = 0; i < e->plan.tensor_count; i++) {
        const EncodeTensor *t = &e->plan.tensors[i];
        uint32_t rows = encode_chunk_rows(t, t->out.rows),
                 groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
        uint64_t out;
        TRY(layout_tensor_bytes(t->out.type, t->out.layout, rows, t->out.cols, &out, why));
        if (encode_converts(e, t) && rows * t->source_row_bytes > chunk_max)
            chunk_max = rows * t->source_row_bytes;
        if (out > out_max) out_max = out;
        if (groups > groups_max) groups_max = groups;
    }
    /* Below the flush mark one more chunk or section piece may come, with its padding; a write
     * leaves less than two units and a hash block behind, which is below the mark. The two large
     * buffers are not cleared: each byte is written before it leaves, and a small model fills little. */
    e->stage_room = (size_t)(ENCODE_FLUSH_BYTES + out_max + 2 * KNOT_PART_ALIGNMENT +
                             e->plan.block_hashes.bytes);
    e->stage = arena_take_raw(arena, e->stage_room);
    e->chunk = arena_take_raw(arena, (size_t)chunk_max);
    e->group_faults = ARENA_NEW(arena, uint32_t, 2 * (size_t)groups_max);
    e->row_hashes = arena_take(arena, (size_t)e->plan.row_hashes.bytes);
    e->tensor_hashes = arena_take(arena, (size_t)e->plan.tensor_hashes.bytes);
    e->block_hashes = arena_take(arena, (size_t)e->plan.block_hashes.bytes);
    if (e->stage && e->chunk && e->group_faults && e->row_hashes && e->tensor_hashes &&
        e->block_hashes)
        return OK;
    return error_why(why, ERR_MEMORY, "buffers of %zu and %llu bytes", e->stage_room,
                     (unsigned long long)chunk_max);
}

Error encode_start(const EncodeInput *input, const Parallel *parallel, Arena *arena, Encoder **out,
                   Why *why)
{
    Encoder *e = ARENA_NEW(arena, Encoder, 1);
    if (!e) return error_why(why, ERR_MEMORY, "an encoder");
    e->input = *input;
    e->parallel = parallel;
    TRY(encode_plan_make(input, arena, &e->plan, why));
    TRY(encode_buffers(e, arena, why));
    *out = e;
    return OK;
}

uint64_t encode_file_bytes(const Encoder *e)
{
    return e->plan.payload_offset + e->plan.payload_bytes;
}

uint64_t encode_bytes_so_far(const Encoder *e) { return encode_at(e); }
