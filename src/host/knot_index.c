/* SPDX-License-Identifier: Apache-2.0 */
#include "host/knot_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { READS_MAX = 3 };

/* --- opening --- */

static Error index_take(uint64_t bytes, uint8_t **out, Why *why)
{
    *out = malloc(bytes ? (size_t)bytes : 1);
    return *out ? OK
                : error_why(why, ERR_MEMORY, "%llu bytes of a knot's tables",
                            (unsigned long long)bytes);
}

static Error index_header(const KnotSource *source, KnotIndex *x, uint64_t *file_bytes, Why *why)
{
    uint64_t need = 0;
    TRY(source->size(source->context, file_bytes, why));
    size_t probe = *file_bytes < KNOT_PROBE_BYTES ? (size_t)*file_bytes : KNOT_PROBE_BYTES;
    TRY(index_take(probe, &x->header, why));
    TRY(source->read(source->context, 0, probe, x->header, why));
    TRY(knot_header_bytes(x->header, probe, *file_bytes, &need, why));
    x->header_bytes = (size_t)need;
    if (need <= probe) return OK;
    uint8_t *whole = realloc(x->header, (size_t)need);
    if (!whole) return error_why(why, ERR_MEMORY, "a header of %zu bytes", x->header_bytes);
    x->header = whole;
    return source->read(source->context, probe, need - probe, whole + probe, why);
}

static Error index_parse(KnotIndex *x, uint64_t file_bytes, Why *why)
{
    size_t scratch_bytes = knot_scratch_bytes(x->header_bytes),
           arena_size = knot_arena_bytes(x->header_bytes);
    void *scratch = malloc(scratch_bytes);
    x->memory = malloc(arena_size);
    Error e = error_why(why, ERR_MEMORY, "a header of %zu bytes", x->header_bytes);
    if (scratch && x->memory) {
        Arena arena = arena_make(x->memory, arena_size),
              second = arena_make(scratch, scratch_bytes);
        e = knot_parse(x->header, x->header_bytes, file_bytes, &arena, &second, &x->knot, why);
    }
    free(scratch);
    return e;
}

static Error index_section(const KnotSource *source, const Knot *k, KnotSection section,
                           uint8_t **out, Why *why)
{
    TRY(index_take(section.bytes, out, why));
    if (!section.bytes) return OK;
    return source->read(source->context, k->payload_offset + section.offset, section.bytes, *out,
                        why);
}

static Error index_check_identity(const KnotIndex *x, uint64_t knot_id, Why *why)
{
    const Knot *k = &x->knot;
    if (k->version == 1)
        return error_why(why, ERR_UNSUPPORTED,
                         "version 1 of the container has no hashes to check bytes with; encode the "
                         "model again");
    if (k->id != knot_id)
        return error_why(why, ERR_UNSUPPORTED, "the store has knot %llx, wanted is %llx",
                         (unsigned long long)k->id, (unsigned long long)knot_id);
    uint64_t blocks = (k->block_hashes.offset + KNOT_HASH_BLOCK_BYTES - 1) / KNOT_HASH_BLOCK_BYTES;
    if (k->block_hashes.bytes != 8 * blocks)
        return error_why(why, ERR_FORMAT, "%llu bytes of block hashes for %llu blocks",
                         (unsigned long long)k->block_hashes.bytes, (unsigned long long)blocks);
    return OK;
}

static Error index_tables(const KnotSource *source, KnotIndex *x, Why *why)
{
    const Knot *k = &x->knot;
    TRY(index_section(source, k, k->embedding_row_hashes, &x->row_hashes, why));
    TRY(index_section(source, k, k->block_hashes, &x->block_hashes, why));
    uint64_t id = knot_identity(x->header, (size_t)knot_header_end(bytes_load32(x->header + 6)),
                                x->row_hashes, (size_t)k->embedding_row_hashes.bytes,
                                x->block_hashes, (size_t)k->block_hashes.bytes);
    if (id == k->id) return OK;
    return error_why(why, ERR_CHECKSUM,
                     "the header or a hash section: they give %llx, knot_id says %llx",
                     (unsigned long long)id, (unsigned long long)k->id);
}

static Error index_tensor_table(const KnotSource *source, KnotIndex *x, Why *why)
{
    KnotSection s = x->knot.tensor_hashes;
    uint64_t first, last, bad = 0;
    uint8_t *blocks;
    if (!s.bytes) return OK;
    if (s.bytes != 8 * (uint64_t)x->knot.tensor_count)
        return error_why(why, ERR_FORMAT, "%llu bytes of tensor hashes for %u tensors",
                         (unsigned long long)s.bytes, x->knot.tensor_count);
    knot_index_blocks(x, s.offset, s.bytes, &first, &last);
    TRY(index_take(last - first, &blocks, why));
    Error e = knot_index_read(x, source, first, last - first, blocks, &bad, why);
    if (e == OK) e = index_take(s.bytes, &x->tensor_hashes, why);
    if (e == OK) memcpy(x->tensor_hashes, blocks + (s.offset - first), (size_t)s.bytes);
    free(blocks);
    return e;
}

static Error index_fill(const KnotSource *source, uint64_t knot_id, KnotIndex *x, Why *why)
{
    uint64_t file_bytes = 0;
    TRY(index_header(source, x, &file_bytes, why));
    TRY(index_parse(x, file_bytes, why));
    TRY(index_check_identity(x, knot_id, why));
    TRY(index_tables(source, x, why));
    return index_tensor_table(source, x, why);
}

Error knot_index_open(const KnotSource *source, uint64_t knot_id, KnotIndex *out, Why *why)
{
    memset(out, 0, sizeof *out);
    Error e = index_fill(source, knot_id, out, why);
    if (e) knot_index_close(out);
    return e;
}

void knot_index_close(KnotIndex *x)
{
    free(x->header);
    free(x->row_hashes);
    free(x->block_hashes);
    free(x->tensor_hashes);
    free(x->memory);
    memset(x, 0, sizeof *x);
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

Error knot_index_read(const KnotIndex *x, const KnotSource *source, uint64_t offset, uint64_t bytes,
                      uint8_t *out, uint64_t *bad, Why *why)
{
    Error e = OK;
    for (int i = 0; i < READS_MAX; i++) {
        TRY(source->read(source->context, x->knot.payload_offset + offset, bytes, out, why));
        e = knot_index_check(x, offset, bytes, out, why);
        if (e == OK) return OK;
        ++*bad;
    }
    return e;
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
