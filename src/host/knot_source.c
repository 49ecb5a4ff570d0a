/* SPDX-License-Identifier: Apache-2.0 */
#include "host/knot_source.h"

#include <stdlib.h>
#include <string.h>

static Error source_memory(const KnotIndexNeed *need, const KnotIndex *x, uint8_t **memory,
                           uint8_t **scratch, Why *why)
{
    *memory =
        need->memory_bytes ? realloc(need->grows ? x->header : NULL, need->memory_bytes) : NULL;
    *scratch = need->scratch_bytes ? malloc(need->scratch_bytes) : NULL;
    if ((*memory || !need->memory_bytes) && (*scratch || !need->scratch_bytes)) return OK;
    return error_why(why, ERR_MEMORY, "%zu bytes of a knot's tables",
                     need->memory_bytes + need->scratch_bytes);
}

/* Takes from *room what stays. */
static Error source_room(const KnotIndexNeed *need, uint64_t *room, Why *why)
{
    if (need->memory_bytes > *room || need->scratch_bytes > *room - need->memory_bytes)
        return error_why(
            why, ERR_TOO_LARGE,
            "header and hashes of the knot want %zu bytes more; memory has %llu for them",
            need->memory_bytes + need->scratch_bytes, (unsigned long long)*room);
    *room -= need->memory_bytes;
    return OK;
}

/* `came`: whether bytes came at all, whatever they mean. */
static Error source_bring(const KnotSource *source, KnotIndexOpening *o, const KnotIndexNeed *need,
                          uint64_t *room, bool *came, Why *why)
{
    uint8_t *memory, *scratch;
    TRY(source_room(need, room, why));
    Error e = source_memory(need, o->index, &memory, &scratch, why);
    if (need->grows && memory) o->index->header = memory;
    if (e == OK && need->bytes)
        e = source->read(source->context, need->offset, need->bytes,
                         need->into_scratch ? scratch : memory + need->at, why);
    *came = e == OK;
    if (e == OK) e = knot_index_give(o, memory, scratch, why);
    else if (!need->grows) free(memory);
    free(scratch);
    return e;
}

static Error source_open(const KnotSource *source, uint64_t knot_id, uint64_t file_bytes,
                         uint64_t room, KnotIndex *out, bool *came, Why *why)
{
    KnotIndexNeed need;
    memset(out, 0, sizeof *out);
    KnotIndexOpening o = knot_index_start(knot_id, file_bytes, out);
    Error e = OK;
    while (e == OK && knot_index_need(&o, &need))
        e = source_bring(source, &o, &need, &room, came, why);
    if (e) knot_source_close(out);
    return e;
}

/* What a bit that flipped on the way makes of a header may be anything: what was not understood is read again. */
Error knot_source_open(const KnotSource *source, uint64_t knot_id, uint64_t bytes_max,
                       KnotIndex *out, Why *why)
{
    uint64_t file_bytes = 0;
    memset(out, 0, sizeof *out);
    TRY(source->size(source->context, &file_bytes, why));
    Error e = OK;
    bool came = true;
    for (int i = 0; i < KNOT_INDEX_READS_MAX && came; i++) {
        e = source_open(source, knot_id, file_bytes, bytes_max, out, &came, why);
        if (e == OK) return OK;
    }
    return e;
}

void knot_source_close(KnotIndex *x)
{
    free(x->header);
    free(x->row_hashes);
    free(x->block_hashes);
    free(x->tensor_hashes);
    free(x->memory);
    memset(x, 0, sizeof *x);
}

Error knot_source_read(const KnotSource *source, const KnotIndex *x, uint64_t offset,
                       uint64_t bytes, uint8_t *out, uint64_t *bad, Why *why)
{
    Error e = OK;
    for (int i = 0; i < KNOT_INDEX_READS_MAX; i++) {
        TRY(source->read(source->context, x->knot.payload_offset + offset, bytes, out, why));
        e = knot_index_check(x, offset, bytes, out, why);
        if (e == OK) return OK;
        ++*bad;
    }
    return e;
}
