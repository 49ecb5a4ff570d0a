/* SPDX-License-Identifier: Apache-2.0 */
#include "api/warden_answer.h"

#include <string.h>

#include "base/hash.h"
#include "quant/numerics.h"

static AwfrTerms terms_of(const WardenServing *w)
{
    return (AwfrTerms){.identity = {w->identity.knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &w->index->knot,
                       .pieces_max = AWFR_PIECES_MAX,
                       .payload_bytes_max = 0};
}

Error warden_answer_check_size(uint64_t bytes, uint64_t bytes_max, Why *why)
{
    if (bytes <= bytes_max) return OK;
    return error_why(why, ERR_TOO_LARGE,
                     "%llu bytes; a warden gives %llu at once: ask for fewer rows",
                     (unsigned long long)bytes, (unsigned long long)bytes_max);
}

Error warden_answer_read(const WardenServing *w, const uint8_t *body, size_t bytes,
                         AwfrPiece *pieces, uint32_t *count, uint64_t *request_id, Why *why)
{
    FrameHead head;
    AwfrTerms terms = terms_of(w);
    TRY(awfr_read(FRAME_TENSORS, body, bytes, &terms, pieces, count, &head, why));
    *request_id = head.request_id;
    return frame_check_payload(&head, body + head.header_bytes, bytes - head.header_bytes, why);
}

Error warden_answer_find_vocab(const KnotIndex *index, uint32_t id_last, const KnotTensor **out,
                               uint32_t *row_bytes, Why *why)
{
    const Knot *k = &index->knot;
    const KnotTensor *t = knot_find(k, "token_embd_weight");
    uint64_t bytes;
    if (!t) return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    if (t->layout != LAYOUT_ROWS || !k->embedding_row_hashes.bytes)
        return error_why(why, ERR_FORMAT, "token_embd_weight: rows without hashes of their own");
    if (id_last > t->rows)
        return error_why(why, ERR_RANGE, "ids up to %u, token_embd_weight has %u rows", id_last,
                         t->rows);
    TRY(block_row_bytes(t->type, t->cols, &bytes, why));
    *out = t;
    *row_bytes = (uint32_t)bytes;
    return OK;
}

bool warden_answer_row_is_right(const KnotIndex *index, uint32_t id, const uint8_t *bytes,
                                uint32_t row_bytes)
{
    uint64_t wanted;
    return knot_index_row_hash(index, id, &wanted) && hash_xxh64(bytes, row_bytes) == wanted;
}

bool warden_answer_is_row(const WardenServing *w, const AwfrPiece *p)
{
    return w->vocab && p->tensor == w->vocab && p->row_count == 1;
}

Error warden_answer_check(const WardenServing *w, AwfrPiece *pieces, uint32_t count, uint32_t *rows,
                          Why *why)
{
    uint64_t payload;
    *rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        TRY(warden_covers(&w->identity, &w->index->knot, pieces[i].tensor, pieces[i].row_first,
                          pieces[i].row_count, why));
        *rows += warden_answer_is_row(w, &pieces[i]);
    }
    TRY(awfr_lay_out(pieces, count, &payload, why));
    TRY(warden_answer_check_size(payload,
                                 w->vocab ? WARDEN_ROWS_BYTES_MAX : WARDEN_ANSWER_BYTES_MAX, why));
    if (!*rows) return OK;
    return warden_answer_check_size((uint64_t)*rows * w->vocab->cols * sizeof(float),
                                    WARDEN_ROWS_BYTES_MAX, why);
}

Error warden_answer_lay_out(AwfrPiece *pieces, uint32_t count, WardenSizes *out, Why *why)
{
    uint64_t payload;
    TRY(awfr_lay_out(pieces, count, &payload, why));
    *out = (WardenSizes){awfr_header_size(pieces, count), (size_t)payload};
    return OK;
}

void warden_answer_hash(const WardenServing *w, AwfrPiece *p, const uint8_t *bytes)
{
    bool embedding = strcmp(p->tensor->name, "token_embd_weight") == 0;
    p->hash_kind = AWFR_HASH_PIECE;
    if (p->row_count == p->tensor->rows && knot_index_tensor_hash(w->index, p->tensor, &p->hash))
        p->hash_kind = AWFR_HASH_TENSOR;
    else if (embedding && p->row_count == 1 && !p->as_f32 && p->tensor->layout == LAYOUT_ROWS &&
             knot_index_row_hash(w->index, p->row_first, &p->hash))
        p->hash_kind = AWFR_HASH_EMBEDDING_ROW;
    else p->hash = hash_xxh64(bytes, (size_t)p->bytes);
}

void warden_answer_write_head(const WardenServing *w, const AwfrPiece *pieces, uint32_t count,
                              uint64_t request_id, uint8_t *out)
{
    AwfrTerms terms = terms_of(w);
    awfr_write(FRAME_TENSORS_ANSWER, &terms, request_id, pieces, count, out);
}
