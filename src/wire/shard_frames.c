/* SPDX-License-Identifier: Apache-2.0 */
/* Embed frames, and what both kinds share. Logits frames are in shard_frames_logits.c. */
#include "wire/shard_frames.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/shard_fields.h"

enum {
    AT_COUNT = 64,
    AT_ELEMENT = 68,
    AT_FORM = 69,
    AT_ZERO = 70,
    AT_WIDTH = 72,
    AT_OWNED = 76,
    AT_TABLE = 80
};

void shard_fields_check_terms(const ShardTerms *terms)
{
    ASSERT(terms->id_first <= terms->id_last && terms->id_last <= terms->hyper->vocabulary);
    ASSERT(terms->rows_max <= FRAME_ROWS_MAX);
}

void shard_fields_put_range(const ShardTerms *terms, uint8_t *header)
{
    bytes_store32(header + FRAME_FIELDS_AT, terms->id_first);
    bytes_store32(header + FRAME_FIELDS_AT + 4, terms->id_last);
}

Error shard_fields_check_range(const uint8_t *header, const ShardTerms *terms, Why *why)
{
    uint32_t first = bytes_load32(header + FRAME_FIELDS_AT),
             last = bytes_load32(header + FRAME_FIELDS_AT + 4);
    if (first == terms->id_first && last == terms->id_last) return OK;
    return error_why(why, ERR_UNSUPPORTED, "the frame is for ids %u to %u, this node has %u to %u",
                     first, last, terms->id_first, terms->id_last);
}

Error shard_fields_check_limits(uint32_t rows, const FrameHead *head, const ShardTerms *terms,
                                Why *why)
{
    if (rows > terms->rows_max)
        return error_why(why, ERR_TOO_LARGE, "the frame has %u rows, at most %u fit here", rows,
                         terms->rows_max);
    if (head->payload_bytes > terms->payload_bytes_max)
        return error_why(why, ERR_TOO_LARGE, "a payload of %llu bytes, at most %llu fit here",
                         (unsigned long long)head->payload_bytes,
                         (unsigned long long)terms->payload_bytes_max);
    return OK;
}

Error shard_fields_check_width(uint32_t width, const ShardTerms *terms, Why *why)
{
    if (width == terms->hyper->hidden) return OK;
    return error_why(why, ERR_SHAPE, "the frame's rows have %u elements, the model's %u", width,
                     terms->hyper->hidden);
}

static uint32_t embed_owned(const ShardTerms *terms, const uint32_t *ids, uint32_t count)
{
    uint32_t owned = 0;
    for (uint32_t i = 0; i < count; i++) owned += shard_fields_owns(terms, ids[i]);
    return owned;
}

/* ---- request --------------------------------------------------------------------------------- */

ShardFrameSize shard_frames_size_embed(const EmbedRequest *r)
{
    return (ShardFrameSize){(uint32_t)frame_header_size(AT_TABLE), (uint64_t)r->count * 4};
}

static void embed_put_fields(const EmbedRequest *r, const ShardTerms *terms, uint32_t owned,
                             uint8_t *header)
{
    shard_fields_put_range(terms, header);
    bytes_store32(header + AT_COUNT, r->count);
    header[AT_ELEMENT] = (uint8_t)r->element;
    header[AT_FORM] = (uint8_t)r->form;
    bytes_store32(header + AT_WIDTH, terms->hyper->hidden);
    bytes_store32(header + AT_OWNED, owned);
}

void shard_frames_write_embed(const EmbedRequest *r, const ShardTerms *terms, const uint32_t *ids,
                              uint8_t *header)
{
    ShardFrameSize size = shard_frames_size_embed(r);
    shard_fields_check_terms(terms);
    ASSERT(r->count <= terms->rows_max);
    for (uint32_t i = 0; i < r->count; i++) ASSERT(ids[i] < terms->hyper->vocabulary);
    FrameHead head = {size.header_bytes, r->request_id, size.payload_bytes,
                      hash_xxh64(ids, (size_t)size.payload_bytes)};
    frame_start(header, FRAME_EMBED, &terms->identity, &head);
    embed_put_fields(r, terms, 0, header);
    frame_seal(header);
}

static Error embed_take_form(uint8_t form, EmbedForm *out, Why *why)
{
    if (form != EMBED_DENSE && form != EMBED_SPARSE)
        return error_why(why, ERR_FORMAT, "form %u; 1 (dense) and 2 (sparse) are known",
                         (unsigned)form);
    *out = (EmbedForm)form;
    return OK;
}

Error shard_frames_read_embed(const uint8_t *header, size_t bytes, const ShardTerms *terms,
                              EmbedRequest *out, FrameHead *head, Why *why)
{
    shard_fields_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_EMBED, &terms->identity, head, why));
    TRY(shard_fields_check_range(header, terms, why));
    out->request_id = head->request_id;
    out->count = bytes_load32(header + AT_COUNT);
    TRY(shard_fields_check_limits(out->count, head, terms, why));
    TRY(rows_element_from_number(header[AT_ELEMENT], &out->element, why));
    TRY(embed_take_form(header[AT_FORM], &out->form, why));
    TRY(shard_fields_check_width(bytes_load32(header + AT_WIDTH), terms, why));
    TRY(frame_check_zero(header, AT_ZERO, AT_WIDTH, why));
    TRY(frame_check_zero(header, AT_OWNED, AT_TABLE, why));
    return frame_check_sizes(header, head, AT_TABLE, (uint64_t)out->count * 4, why);
}

Error shard_frames_take_ids(const EmbedRequest *r, const FrameHead *head, const ShardTerms *terms,
                            const uint8_t *payload, uint64_t bytes, uint32_t *ids, Why *why)
{
    TRY(frame_check_payload(head, payload, bytes, why));
    for (uint32_t i = 0; i < r->count; i++) {
        ids[i] = bytes_load32(payload + 4 * (size_t)i);
        if (ids[i] >= terms->hyper->vocabulary)
            return error_why(why, ERR_RANGE, "id %u at %u, the vocabulary has %u", ids[i], i,
                             terms->hyper->vocabulary);
    }
    return OK;
}

/* ---- answer ---------------------------------------------------------------------------------- */

static uint64_t embed_table_end(const EmbedRequest *r, uint32_t owned)
{
    return AT_TABLE + (r->form == EMBED_SPARSE ? (uint64_t)owned * 4 : 0);
}

static uint64_t embed_answer_bytes(const EmbedRequest *r, const ShardTerms *terms, uint32_t owned)
{
    return rows_bytes(r->element, r->form == EMBED_SPARSE ? owned : r->count, terms->hyper->hidden);
}

ShardFrameSize shard_frames_size_embed_answer(const EmbedRequest *r, const ShardTerms *terms,
                                              const uint32_t *ids)
{
    uint32_t owned = embed_owned(terms, ids, r->count);
    return (ShardFrameSize){(uint32_t)frame_header_size(embed_table_end(r, owned)),
                            embed_answer_bytes(r, terms, owned)};
}

Error shard_frames_write_embed_answer(const EmbedRequest *r, const ShardTerms *terms,
                                      const uint32_t *ids, const float *partial, uint8_t *header,
                                      uint8_t *payload, Why *why)
{
    ShardFrameSize size = shard_frames_size_embed_answer(r, terms, ids);
    FrameHead head = {size.header_bytes, r->request_id, size.payload_bytes, 0};
    uint32_t width = terms->hyper->hidden;
    shard_fields_check_terms(terms);
    if (r->form == EMBED_DENSE) {
        TRY(rows_write(r->element, partial, r->count, width, payload, why));
    } else {
        uint8_t *at = payload;
        for (uint32_t i = 0; i < r->count; i++) {
            if (!shard_fields_owns(terms, ids[i])) continue;
            TRY(rows_write(r->element, partial + (size_t)i * width, 1, width, at, why));
            at += rows_row_bytes(r->element, width);
        }
    }
    head.payload_hash = hash_xxh64(payload, (size_t)size.payload_bytes);
    frame_start(header, FRAME_EMBED_ANSWER, &terms->identity, &head);
    embed_put_fields(r, terms, embed_owned(terms, ids, r->count), header);
    uint8_t *at = header + AT_TABLE;
    for (uint32_t i = 0; r->form == EMBED_SPARSE && i < r->count; i++)
        if (shard_fields_owns(terms, ids[i])) bytes_store32(at, i), at += 4;
    frame_seal(header);
    return OK;
}

static Error embed_check_places(const uint8_t *header, const EmbedRequest *r,
                                const ShardTerms *terms, const uint32_t *ids, Why *why)
{
    const uint8_t *at = header + AT_TABLE;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!shard_fields_owns(terms, ids[i])) continue;
        if (bytes_load32(at) != i)
            return error_why(why, ERR_FORMAT, "the answer has place %u where %u belongs",
                             bytes_load32(at), i);
        at += 4;
    }
    return OK;
}

Error shard_frames_read_embed_answer(const uint8_t *header, size_t bytes, const EmbedRequest *r,
                                     const ShardTerms *terms, const uint32_t *ids, FrameHead *head,
                                     Why *why)
{
    uint32_t owned = embed_owned(terms, ids, r->count);
    shard_fields_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_EMBED_ANSWER, &terms->identity, head, why));
    TRY(shard_fields_check_range(header, terms, why));
    TRY(frame_check_echo(head->request_id, r->request_id, "request id", why));
    TRY(frame_check_echo(bytes_load32(header + AT_COUNT), r->count, "count", why));
    TRY(frame_check_echo(header[AT_ELEMENT], r->element, "element type", why));
    TRY(frame_check_echo(header[AT_FORM], r->form, "form", why));
    TRY(shard_fields_check_width(bytes_load32(header + AT_WIDTH), terms, why));
    TRY(frame_check_echo(bytes_load32(header + AT_OWNED), owned, "number of owned ids", why));
    TRY(frame_check_zero(header, AT_ZERO, AT_WIDTH, why));
    TRY(frame_check_sizes(header, head, embed_table_end(r, owned),
                          embed_answer_bytes(r, terms, owned), why));
    return r->form == EMBED_SPARSE ? embed_check_places(header, r, terms, ids, why) : OK;
}

Error shard_frames_take_embed(const EmbedRequest *r, const FrameHead *head, const ShardTerms *terms,
                              const uint32_t *ids, const uint8_t *payload, uint64_t bytes,
                              float *into, Why *why)
{
    uint32_t width = terms->hyper->hidden;
    size_t row_bytes = (size_t)rows_row_bytes(r->element, width);
    TRY(frame_check_payload(head, payload, bytes, why));
    for (uint32_t i = 0; i < r->count; i++) {
        bool owns = shard_fields_owns(terms, ids[i]);
        float *row = into + (size_t)i * width;
        if (owns) TRY(rows_read(r->element, payload, 1, width, row, why));
        for (uint32_t c = 0; owns && c < width; c++) row[c] += 0.0f; /* -0 becomes 0 */
        if (owns || r->form == EMBED_DENSE) payload += row_bytes;
    }
    return OK;
}
