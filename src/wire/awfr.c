/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/awfr.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum {
    AT_NAMES = 56,
    AT_COUNT = 60,
    AT_TABLES = 64,
    NAME_BYTES = KNOT_NAME_BYTES_MAX,
    PIECE_BYTES = 48
};

_Static_assert(AT_TABLES + AWFR_NAMES_MAX * NAME_BYTES + AWFR_PIECES_MAX * PIECE_BYTES <=
                   FRAME_HEADER_BYTES_MAX,
               "the largest frame has a header");

static Error awfr_check_rows(const AwfrPiece *p, Why *why)
{
    const KnotTensor *t = p->tensor;
    if (p->row_count == 0 || p->row_first >= t->rows || p->row_count > t->rows - p->row_first)
        return error_why(why, ERR_RANGE, "%s: %u rows from row %u, the tensor has %u", t->name,
                         p->row_count, p->row_first, t->rows);
    if (t->layout != LAYOUT_X16) return OK;
    if (p->row_first % PANEL_ROWS != 0 ||
        (p->row_count % PANEL_ROWS != 0 && p->row_count != t->rows - p->row_first))
        return error_why(why, ERR_RANGE, "%s: %u rows from row %u cut a panel of %u", t->name,
                         p->row_count, p->row_first, (unsigned)PANEL_ROWS);
    return OK;
}

static bool awfr_is_embedding_row(const AwfrPiece *p)
{
    return p->row_count == 1 && strcmp(p->tensor->name, "token_embd_weight") == 0 &&
           p->tensor->layout == LAYOUT_ROWS;
}

static BlockType awfr_type(const AwfrPiece *p) { return p->as_f32 ? BLOCK_F32 : p->tensor->type; }

/* Places one piece behind those before it, which end at *end. */
static Error awfr_place(AwfrPiece *p, uint64_t *end, Why *why)
{
    const KnotTensor *t = p->tensor;
    TRY(awfr_check_rows(p, why));
    ASSERT(!p->as_f32 || awfr_is_embedding_row(p));
    TRY(layout_tensor_bytes(awfr_type(p), t->layout, p->row_count, t->cols, &p->bytes, why));
    if (!bytes_round_up(*end, AWFR_ALIGN, &p->at) || !bytes_add(p->at, p->bytes, end))
        return error_why(why, ERR_TOO_LARGE, "%s: the frame has too many bytes", t->name);
    return OK;
}

Error awfr_lay_out(AwfrPiece *pieces, uint32_t count, uint64_t *payload_bytes, Why *why)
{
    *payload_bytes = 0;
    for (uint32_t i = 0; i < count; i++) TRY(awfr_place(&pieces[i], payload_bytes, why));
    return OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Numbers the tensors in the order of their first piece: names[n] is the piece that has it first.
 * Result  how many. Neighbours with one tensor, such as embedding rows, cost nothing. */
static uint32_t awfr_number(const AwfrPiece *pieces, uint32_t count, uint32_t first[AWFR_NAMES_MAX],
                            uint16_t *number)
{
    uint32_t names = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = i && pieces[i].tensor == pieces[i - 1].tensor ? number[i - 1] : 0;
        while (n < names && pieces[first[n]].tensor != pieces[i].tensor) n++;
        ASSERT(n < AWFR_NAMES_MAX);
        if (n == names) first[names++] = i;
        number[i] = (uint16_t)n;
    }
    return names;
}

static uint64_t awfr_tables_end(uint32_t names, uint32_t count)
{
    return AT_TABLES + (uint64_t)names * NAME_BYTES + (uint64_t)count * PIECE_BYTES;
}

uint32_t awfr_header_size(const AwfrPiece *pieces, uint32_t count)
{
    uint32_t first[AWFR_NAMES_MAX];
    uint16_t number[AWFR_PIECES_MAX];
    ASSERT(count >= 1 && count <= AWFR_PIECES_MAX);
    return (uint32_t)frame_header_size(
        awfr_tables_end(awfr_number(pieces, count, first, number), count));
}

static void awfr_put_piece(FrameKind kind, const AwfrPiece *p, uint32_t name, uint8_t *at)
{
    bool hashed = kind == FRAME_TENSORS_ANSWER;
    ASSERT(hashed == (p->hash_kind != AWFR_HASH_NONE));
    bytes_store32(at, name);
    ASSERT(!p->as_f32 || p->hash_kind == AWFR_HASH_PIECE);
    at[4] = (uint8_t)awfr_type(p);
    at[5] = (uint8_t)p->tensor->layout;
    bytes_store16(at + 6, (uint16_t)p->hash_kind);
    bytes_store32(at + 8, p->tensor->rows);
    bytes_store32(at + 12, p->tensor->cols);
    bytes_store32(at + 16, p->row_first);
    bytes_store32(at + 20, p->row_count);
    bytes_store64(at + 24, p->bytes);
    bytes_store64(at + 32, hashed ? p->hash : 0);
}

void awfr_write(FrameKind kind, const AwfrTerms *terms, uint64_t request_id,
                const AwfrPiece *pieces, uint32_t count, uint8_t *out)
{
    uint32_t first[AWFR_NAMES_MAX];
    uint16_t number[AWFR_PIECES_MAX];
    ASSERT(kind == FRAME_TENSORS || kind == FRAME_TENSORS_ANSWER);
    ASSERT(count >= 1 && count <= AWFR_PIECES_MAX);
    uint32_t names = awfr_number(pieces, count, first, number);
    uint64_t end = pieces[count - 1].at + pieces[count - 1].bytes;
    FrameHead head = {(uint32_t)frame_header_size(awfr_tables_end(names, count)), request_id,
                      kind == FRAME_TENSORS ? 0 : end, hash_xxh64(NULL, 0)};
    frame_start(out, kind, &terms->identity, &head);
    bytes_store32(out + AT_NAMES, names);
    bytes_store32(out + AT_COUNT, count);
    uint8_t *at = out + AT_TABLES;
    for (uint32_t n = 0; n < names; n++, at += NAME_BYTES) {
        const char *name = pieces[first[n]].tensor->name;
        size_t length = strlen(name);
        ASSERT(length >= 1 && length <= NAME_BYTES);
        memcpy(at, name, length);
    }
    for (uint32_t i = 0; i < count; i++, at += PIECE_BYTES)
        awfr_put_piece(kind, &pieces[i], number[i], at);
    frame_seal(out);
}

/* ---- reading --------------------------------------------------------------------------------- */

static Error awfr_take_name(const uint8_t *at, const AwfrTerms *terms, const KnotTensor **out,
                            Why *why)
{
    char name[NAME_BYTES + 1];
    memcpy(name, at, NAME_BYTES);
    name[NAME_BYTES] = '\0';
    size_t length = strlen(name);
    for (size_t i = length; i < NAME_BYTES; i++)
        if (at[i]) return error_why(why, ERR_FORMAT, "bytes behind the name \"%s\"", name);
    *out = knot_find(terms->knot, name);
    if (!*out) return error_why(why, ERR_MISSING_TENSOR, "the knot has no tensor \"%s\"", name);
    return OK;
}

static Error awfr_take_names(const uint8_t *header, uint32_t names, const AwfrTerms *terms,
                             const KnotTensor **tensors, Why *why)
{
    for (uint32_t n = 0; n < names; n++) {
        TRY(awfr_take_name(header + AT_TABLES + (size_t)n * NAME_BYTES, terms, &tensors[n], why));
        for (uint32_t i = 0; i < n; i++)
            if (tensors[i] == tensors[n])
                return error_why(why, ERR_DUPLICATE, "the frame names \"%s\" twice",
                                 tensors[n]->name);
    }
    return OK;
}

/* A type that is not the knot's is taken for one thing only: an embedding row as float32. */
static Error awfr_check_tensor(FrameKind kind, const uint8_t *at, AwfrPiece *p, Why *why)
{
    const KnotTensor *t = p->tensor;
    uint32_t rows = bytes_load32(at + 8), cols = bytes_load32(at + 12);
    p->as_f32 = kind == FRAME_TENSORS_ANSWER && at[4] == (uint8_t)BLOCK_F32 &&
                t->type != BLOCK_F32 && awfr_is_embedding_row(p);
    if (at[4] != (uint8_t)awfr_type(p) || at[5] != (uint8_t)t->layout)
        return error_why(why, ERR_TYPE, "%s: type %u, layout %u; the knot has type %u, layout %u",
                         t->name, (unsigned)at[4], (unsigned)at[5], (unsigned)t->type,
                         (unsigned)t->layout);
    if (rows != t->rows || cols != t->cols)
        return error_why(why, ERR_SHAPE, "%s: %u x %u; the knot has %u x %u", t->name, rows, cols,
                         t->rows, t->cols);
    return OK;
}

static Error awfr_check_hash_kind(FrameKind kind, const AwfrPiece *p, uint32_t hash_kind, Why *why)
{
    const KnotTensor *t = p->tensor;
    bool valid = kind == FRAME_TENSORS
                     ? hash_kind == AWFR_HASH_NONE && p->hash == 0
                     : hash_kind >= AWFR_HASH_TENSOR && hash_kind <= AWFR_HASH_PIECE;
    if (hash_kind == AWFR_HASH_TENSOR) valid &= p->row_count == t->rows;
    if (hash_kind == AWFR_HASH_EMBEDDING_ROW) valid &= awfr_is_embedding_row(p) && !p->as_f32;
    if (p->as_f32) valid &= hash_kind == AWFR_HASH_PIECE;
    if (valid) return OK;
    return error_why(why, ERR_FORMAT, "%s: a hash of kind %u does not belong to %u rows", t->name,
                     hash_kind, p->row_count);
}

static Error awfr_take_piece(FrameKind kind, const uint8_t *header, size_t from,
                             const KnotTensor *const *tensors, uint32_t names, uint64_t *end,
                             AwfrPiece *out, Why *why)
{
    const uint8_t *at = header + from;
    uint32_t name = bytes_load32(at), hash_kind = bytes_load16(at + 6);
    if (name >= names)
        return error_why(why, ERR_RANGE, "a piece has name %u, the frame has %u", name, names);
    *out = (AwfrPiece){.tensor = tensors[name],
                       .row_first = bytes_load32(at + 16),
                       .row_count = bytes_load32(at + 20),
                       .hash_kind = (AwfrHash)hash_kind,
                       .hash = bytes_load64(at + 32)};
    TRY(awfr_check_tensor(kind, at, out, why));
    TRY(awfr_place(out, end, why));
    if (out->bytes != bytes_load64(at + 24))
        return error_why(why, ERR_SHAPE, "%s: %u rows are %llu bytes, the frame says %llu",
                         out->tensor->name, out->row_count, (unsigned long long)out->bytes,
                         (unsigned long long)bytes_load64(at + 24));
    TRY(frame_check_zero(header, from + 40, from + PIECE_BYTES, why));
    return awfr_check_hash_kind(kind, out, hash_kind, why);
}

static Error awfr_take_counts(const uint8_t *header, const FrameHead *head, const AwfrTerms *terms,
                              uint32_t *names, uint32_t *count, Why *why)
{
    *names = bytes_load32(header + AT_NAMES);
    *count = bytes_load32(header + AT_COUNT);
    if (*count > terms->pieces_max || *names > AWFR_NAMES_MAX ||
        head->payload_bytes > terms->payload_bytes_max)
        return error_why(why, ERR_TOO_LARGE,
                         "%u pieces of %u tensors, %llu bytes; at most %u, %u and %llu fit here",
                         *count, *names, (unsigned long long)head->payload_bytes, terms->pieces_max,
                         (unsigned)AWFR_NAMES_MAX, (unsigned long long)terms->payload_bytes_max);
    if (*count == 0 || *names == 0 || *names > *count)
        return error_why(why, ERR_FORMAT, "%u pieces of %u tensors", *count, *names);
    if (head->header_bytes < awfr_tables_end(*names, *count))
        return error_why(why, ERR_FORMAT, "%u pieces of %u tensors do not fit a header of %u bytes",
                         *count, *names, head->header_bytes);
    return OK;
}

Error awfr_read(FrameKind kind, const uint8_t *header, size_t bytes, const AwfrTerms *terms,
                AwfrPiece *pieces, uint32_t *count, FrameHead *head, Why *why)
{
    const KnotTensor *tensors[AWFR_NAMES_MAX];
    uint32_t names;
    uint64_t end = 0;
    ASSERT(kind == FRAME_TENSORS || kind == FRAME_TENSORS_ANSWER);
    ASSERT(terms->pieces_max <= AWFR_PIECES_MAX);
    TRY(frame_open(header, bytes, kind, &terms->identity, head, why));
    TRY(awfr_take_counts(header, head, terms, &names, count, why));
    TRY(awfr_take_names(header, names, terms, tensors, why));
    size_t from = AT_TABLES + (size_t)names * NAME_BYTES;
    for (uint32_t i = 0; i < *count; i++, from += PIECE_BYTES)
        TRY(awfr_take_piece(kind, header, from, tensors, names, &end, &pieces[i], why));
    return frame_check_sizes(header, head, awfr_tables_end(names, *count),
                             kind == FRAME_TENSORS ? 0 : end, why);
}

Error awfr_check_answer(const AwfrPiece *asked, uint32_t asked_count, const AwfrPiece *got,
                        uint32_t got_count, Why *why)
{
    TRY(frame_check_echo(got_count, asked_count, "pieces", why));
    for (uint32_t i = 0; i < asked_count; i++)
        if (got[i].tensor != asked[i].tensor || got[i].row_first != asked[i].row_first ||
            got[i].row_count != asked[i].row_count)
            return error_why(why, ERR_FORMAT, "piece %u is %u rows of %s, asked for %u of %s", i,
                             got[i].row_count, got[i].tensor->name, asked[i].row_count,
                             asked[i].tensor->name);
    return OK;
}

Error awfr_check_piece(const AwfrPiece *piece, const uint8_t *bytes, Why *why)
{
    if (hash_xxh64(bytes, (size_t)piece->bytes) == piece->hash) return OK;
    return error_why(why, ERR_CHECKSUM, "%s: rows %u to %u have another hash than the frame says",
                     piece->tensor->name, piece->row_first, piece->row_first + piece->row_count);
}

Error awfr_check_gaps(const AwfrPiece *pieces, uint32_t count, const uint8_t *payload, Why *why)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = end; at < pieces[i].at; at++)
            if (payload[at])
                return error_why(why, ERR_FORMAT, "byte %llu of the payload, between pieces, is %u",
                                 (unsigned long long)at, (unsigned)payload[at]);
        end = pieces[i].at + pieces[i].bytes;
    }
    return OK;
}
