/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/knot_index.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

/* --- opening --- */

KnotIndexOpening knot_index_start(uint64_t knot_id, uint64_t file_bytes, KnotIndex *out)
{
    memset(out, 0, sizeof *out);
    return (KnotIndexOpening){.index = out, .knot_id = knot_id, .file_bytes = file_bytes};
}

static size_t index_probe_bytes(const KnotIndexOpening *o)
{
    return o->file_bytes < KNOT_PROBE_BYTES ? (size_t)o->file_bytes : KNOT_PROBE_BYTES;
}

static KnotIndexNeed index_need_section(const KnotIndex *x, KnotSection s)
{
    return (KnotIndexNeed){.offset = x->knot.payload_offset + s.offset,
                           .bytes = s.bytes,
                           .memory_bytes = s.bytes ? (size_t)s.bytes : 1};
}

/* The blocks around the table go to the scratch, so that they can be checked. */
static KnotIndexNeed index_need_tensors(const KnotIndex *x)
{
    uint64_t first, last;
    KnotSection s = x->knot.tensor_hashes;
    knot_index_blocks(x, s.offset, s.bytes, &first, &last);
    return (KnotIndexNeed){.offset = x->knot.payload_offset + first,
                           .bytes = last - first,
                           .memory_bytes = x->tensor_hashes ? 0 : (size_t)s.bytes,
                           .scratch_bytes = (size_t)(last - first),
                           .into_scratch = true};
}

bool knot_index_need(const KnotIndexOpening *o, KnotIndexNeed *need)
{
    const KnotIndex *x = o->index;
    size_t probe = index_probe_bytes(o);
    switch (o->stage) {
    case KNOT_INDEX_PROBE:
        *need = (KnotIndexNeed){.bytes = probe, .memory_bytes = probe ? probe : 1};
        return true;
    case KNOT_INDEX_HEADER:
        *need = (KnotIndexNeed){.offset = probe,
                                .bytes = x->header_bytes - probe,
                                .memory_bytes = x->header_bytes,
                                .at = probe,
                                .grows = true};
        return true;
    case KNOT_INDEX_PARSE:
        *need = (KnotIndexNeed){.memory_bytes = knot_arena_bytes(x->header_bytes),
                                .scratch_bytes = knot_scratch_bytes(x->header_bytes)};
        return true;
    case KNOT_INDEX_ROWS: *need = index_need_section(x, x->knot.embedding_row_hashes); return true;
    case KNOT_INDEX_BLOCKS: *need = index_need_section(x, x->knot.block_hashes); return true;
    case KNOT_INDEX_TENSORS: *need = index_need_tensors(x); return true;
    case KNOT_INDEX_OPEN: break;
    }
    return false;
}

static Error index_take_probe(KnotIndexOpening *o, uint8_t *memory, Why *why)
{
    uint64_t need = 0;
    size_t probe = index_probe_bytes(o);
    o->index->header = memory;
    TRY(knot_header_bytes(memory, probe, o->file_bytes, &need, why));
    o->index->header_bytes = (size_t)need;
    o->stage = need <= probe ? KNOT_INDEX_PARSE : KNOT_INDEX_HEADER;
    return OK;
}

static Error index_check_version(const KnotIndex *x, uint64_t knot_id, Why *why)
{
    const Knot *k = &x->knot;
    if (k->version == 1)
        return error_why(why, ERR_UNSUPPORTED,
                         "version 1 of the container has no hashes to check bytes with; encode the "
                         "model again");
    if (k->id != knot_id)
        return error_why(why, ERR_UNSUPPORTED, "knot %llx came, wanted is %llx",
                         (unsigned long long)k->id, (unsigned long long)knot_id);
    uint64_t blocks = (k->block_hashes.offset + KNOT_HASH_BLOCK_BYTES - 1) / KNOT_HASH_BLOCK_BYTES;
    if (k->block_hashes.bytes != 8 * blocks)
        return error_why(why, ERR_FORMAT, "%llu bytes of block hashes for %llu blocks",
                         (unsigned long long)k->block_hashes.bytes, (unsigned long long)blocks);
    return OK;
}

static Error index_parse(KnotIndexOpening *o, uint8_t *memory, uint8_t *scratch, Why *why)
{
    KnotIndex *x = o->index;
    Arena arena = arena_make(memory, knot_arena_bytes(x->header_bytes)),
          second = arena_make(scratch, knot_scratch_bytes(x->header_bytes));
    x->memory = memory;
    TRY(knot_parse(x->header, x->header_bytes, o->file_bytes, &arena, &second, &x->knot, why));
    o->stage = KNOT_INDEX_ROWS;
    return index_check_version(x, o->knot_id, why);
}

static Error index_take_blocks(KnotIndexOpening *o, uint8_t *memory, Why *why)
{
    KnotIndex *x = o->index;
    const Knot *k = &x->knot;
    x->block_hashes = memory;
    uint64_t id = knot_identity(x->header, (size_t)knot_header_end(bytes_load32(x->header + 6)),
                                x->row_hashes, (size_t)k->embedding_row_hashes.bytes,
                                x->block_hashes, (size_t)k->block_hashes.bytes);
    if (id != k->id)
        return error_why(why, ERR_CHECKSUM,
                         "the header or a hash section: they give %llx, knot_id says %llx",
                         (unsigned long long)id, (unsigned long long)k->id);
    if (k->tensor_hashes.bytes && k->tensor_hashes.bytes != 8 * (uint64_t)k->tensor_count)
        return error_why(why, ERR_FORMAT, "%llu bytes of tensor hashes for %u tensors",
                         (unsigned long long)k->tensor_hashes.bytes, k->tensor_count);
    o->stage = k->tensor_hashes.bytes ? KNOT_INDEX_TENSORS : KNOT_INDEX_OPEN;
    return OK;
}

static Error index_take_tensors(KnotIndexOpening *o, uint8_t *memory, const uint8_t *scratch,
                                Why *why)
{
    KnotIndex *x = o->index;
    KnotSection s = x->knot.tensor_hashes;
    uint64_t first, last;
    knot_index_blocks(x, s.offset, s.bytes, &first, &last);
    if (!x->tensor_hashes) x->tensor_hashes = memory;
    Error e = knot_index_check(x, first, last - first, scratch, why);
    if (e) return ++o->reads < KNOT_INDEX_READS_MAX ? OK : e;
    memcpy(x->tensor_hashes, scratch + (s.offset - first), (size_t)s.bytes);
    o->stage = KNOT_INDEX_OPEN;
    return OK;
}

Error knot_index_give(KnotIndexOpening *o, uint8_t *memory, uint8_t *scratch, Why *why)
{
    switch (o->stage) {
    case KNOT_INDEX_PROBE: return index_take_probe(o, memory, why);
    case KNOT_INDEX_HEADER:
        o->index->header = memory;
        o->stage = KNOT_INDEX_PARSE;
        return OK;
    case KNOT_INDEX_PARSE: return index_parse(o, memory, scratch, why);
    case KNOT_INDEX_ROWS:
        o->index->row_hashes = memory;
        o->stage = KNOT_INDEX_BLOCKS;
        return OK;
    case KNOT_INDEX_BLOCKS: return index_take_blocks(o, memory, why);
    case KNOT_INDEX_TENSORS: return index_take_tensors(o, memory, scratch, why);
    case KNOT_INDEX_OPEN: break;
    }
    ASSERT(false);
    return ERR_INTERNAL;
}

/* --- checking --- */

void knot_index_blocks(const KnotIndex *x, uint64_t offset, uint64_t bytes, uint64_t *first,
                       uint64_t *last)
{
    uint64_t end = x->knot.block_hashes.offset, unit = KNOT_HASH_BLOCK_BYTES;
    ASSERT(offset <= end && bytes <= end - offset);
    *first = offset / unit * unit;
    *last = (offset + bytes + unit - 1) / unit * unit;
    if (*last > end) *last = end;
}

static const char *index_name_at(const Knot *k, uint64_t offset)
{
    for (uint32_t i = 0; i < k->tensor_count; i++)
        if (offset < k->tensors[i].offset + k->tensors[i].bytes) return k->tensors[i].name;
    return "the tokenizer or a hash section";
}

Error knot_index_check(const KnotIndex *x, uint64_t offset, uint64_t bytes, const uint8_t *data,
                       Why *why)
{
    uint64_t end = x->knot.block_hashes.offset;
    ASSERT(offset % KNOT_HASH_BLOCK_BYTES == 0 && offset <= end && bytes <= end - offset);
    ASSERT(bytes % KNOT_HASH_BLOCK_BYTES == 0 || offset + bytes == end);
    for (uint64_t at = 0; at < bytes; at += KNOT_HASH_BLOCK_BYTES) {
        uint64_t left = bytes - at, block = (offset + at) / KNOT_HASH_BLOCK_BYTES;
        size_t n = left < KNOT_HASH_BLOCK_BYTES ? (size_t)left : KNOT_HASH_BLOCK_BYTES;
        if (hash_xxh64(data + at, n) != bytes_load64(x->block_hashes + 8 * block))
            return error_why(why, ERR_CHECKSUM, "%s: the block at byte %llu of the payload",
                             index_name_at(&x->knot, offset + at),
                             (unsigned long long)(offset + at));
    }
    return OK;
}

/* --- parts of the file --- */

/* What of [at, at + bytes) lies in a part of the file: copied, zeros when `data` is NULL. */
static void copy_part(uint64_t part, uint64_t part_bytes, const uint8_t *data, uint64_t at,
                      uint64_t bytes, uint8_t *out)
{
    uint64_t first = at > part ? at : part;
    uint64_t last = at + bytes < part + part_bytes ? at + bytes : part + part_bytes;
    if (first >= last) return;
    if (data) memcpy(out + (first - at), data + (first - part), (size_t)(last - first));
    else memset(out + (first - at), 0, (size_t)(last - first));
}

void knot_index_copy(const KnotIndex *x, uint64_t offset, uint64_t bytes, uint8_t *out,
                     KnotIndexRest *rest)
{
    const Knot *k = &x->knot;
    uint64_t payload = k->payload_offset, hashes = payload + k->block_hashes.offset;
    ASSERT(offset <= k->file_bytes && bytes <= k->file_bytes - offset);
    copy_part(0, x->header_bytes, x->header, offset, bytes, out);
    copy_part(x->header_bytes, payload - x->header_bytes, NULL, offset, bytes, out);
    copy_part(hashes, k->block_hashes.bytes, x->block_hashes, offset, bytes, out);
    uint64_t first = offset > payload ? offset : payload,
             last = offset + bytes < hashes ? offset + bytes : hashes;
    *rest = (KnotIndexRest){0};
    if (first < last)
        *rest = (KnotIndexRest){first - payload, last - first, (size_t)(first - offset)};
}

bool knot_index_tensor_hash(const KnotIndex *x, const KnotTensor *t, uint64_t *hash)
{
    size_t i = (size_t)(t - x->knot.tensors);
    if (!x->tensor_hashes || i >= x->knot.tensor_count) return false;
    *hash = bytes_load64(x->tensor_hashes + 8 * i);
    return true;
}

bool knot_index_row_hash(const KnotIndex *x, uint32_t row, uint64_t *hash)
{
    if (row >= x->knot.embedding_row_hashes.bytes / 8) return false;
    *hash = bytes_load64(x->row_hashes + 8 * (uint64_t)row);
    return true;
}
