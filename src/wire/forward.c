/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/forward.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum {
    AT_FIRST = 56,
    AT_LAST = 60,
    AT_MODE = 64,
    AT_ELEMENT = 65,
    AT_FLAGS = 66,
    AT_ROWS = 68,
    AT_X_WIDTH = 72,
    AT_G_WIDTH = 76,
    AT_SEQUENCES = 80,
    AT_WANTED = 84, /* of an answer: microseconds */
    AT_ZERO = 88,
    AT_TABLES = 96,
    SEQUENCE_BYTES = 32,
    ANSWER_BYTES = 16,
    FLAG_WANTED = 1
};

_Static_assert(AT_TABLES + FORWARD_SEQUENCES_MAX * SEQUENCE_BYTES + FRAME_ROWS_MAX * 4 <=
                   FRAME_HEADER_BYTES_MAX,
               "the largest frame has a header");

static uint64_t forward_bytes_at(const Hyper *h, PhaseBound bound, RowsElement element,
                                 uint32_t rows)
{
    uint32_t g_width = forward_g_width(h, bound);
    uint64_t x = rows_bytes(element, rows, h->hidden);
    return g_width ? x + rows_bytes(element, rows, g_width) : x;
}

uint64_t forward_payload_bytes(const ForwardTerms *terms, RowsElement element, uint32_t rows)
{
    return forward_bytes_at(terms->hyper, terms->range.first, element, rows);
}

uint64_t forward_answer_payload_bytes(const ForwardTerms *terms, RowsElement element, uint32_t rows)
{
    return forward_bytes_at(terms->hyper, terms->range.last, element, rows);
}

static uint64_t forward_tables_end(uint32_t sequences, uint32_t wanted)
{
    return AT_TABLES + (uint64_t)sequences * SEQUENCE_BYTES + (uint64_t)wanted * 4;
}

uint32_t forward_header_size(const Forward *f)
{
    return (uint32_t)frame_header_size(
        forward_tables_end(f->sequence_count, f->wanted ? f->wanted_count : 0));
}

uint32_t forward_answer_header_size(const Forward *f)
{
    return (uint32_t)frame_header_size(AT_TABLES + (uint64_t)f->sequence_count * ANSWER_BYTES);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static Error forward_check_limit(uint32_t value, uint32_t most, const char *what, Why *why)
{
    if (value <= most) return OK;
    return error_why(why, ERR_TOO_LARGE, "the frame has %u %s, at most %u fit here", value, what,
                     most);
}

static Error forward_check_sequence(const ForwardSequence *s, uint32_t index, ForwardMode mode,
                                    uint32_t context, Why *why)
{
    if (s->session == 0) return error_why(why, ERR_RANGE, "sequence %u has session 0", index);
    if (s->parent == s->session)
        return error_why(why, ERR_RANGE, "sequence %u is its own parent", index);
    if (s->position > context || s->rows > context - s->position)
        return error_why(why, ERR_RANGE,
                         "sequence %u: position %u and %u rows, the context has %u positions",
                         index, s->position, s->rows, context);
    if (mode == FORWARD_DECODE && s->rows > 1)
        return error_why(why, ERR_RANGE, "sequence %u has %u rows in decode", index, s->rows);
    if (s->parent == 0 && s->parent_length == 0) return OK;
    if (s->parent == 0 || s->parent_length == 0 || s->parent_length > context)
        return error_why(why, ERR_RANGE, "sequence %u: %u positions of parent %llu", index,
                         s->parent_length, (unsigned long long)s->parent);
    if (s->position > s->parent_length)
        return error_why(why, ERR_RANGE, "sequence %u: position %u is beyond its parent's %u",
                         index, s->position, s->parent_length);
    return OK;
}

enum { FORWARD_SLOTS = 2 * FORWARD_SEQUENCES_MAX };

/* Each session once: a table of sequence numbers, hashed by session. */
static Error forward_check_once(const Forward *f, Why *why)
{
    uint16_t slots[FORWARD_SLOTS] = {0}; /* number + 1 */
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        uint64_t session = f->sequences[i].session;
        uint32_t at = (uint32_t)hash_mix64(session) % FORWARD_SLOTS;
        for (; slots[at]; at = (at + 1) % FORWARD_SLOTS)
            if (f->sequences[slots[at] - 1].session == session)
                return error_why(why, ERR_DUPLICATE, "sequences %u and %u have one session, %llu",
                                 slots[at] - 1u, i, (unsigned long long)session);
        slots[at] = (uint16_t)(i + 1);
    }
    return OK;
}

static Error forward_check_wanted(const Forward *f, Why *why)
{
    if (!f->wanted) return OK;
    if (f->wanted_count > f->rows)
        return error_why(why, ERR_RANGE, "%u rows are wanted of %u", f->wanted_count, f->rows);
    for (uint32_t i = 0; i < f->wanted_count; i++)
        if (f->wanted[i] >= f->rows || (i && f->wanted[i] <= f->wanted[i - 1]))
            return error_why(why, ERR_RANGE,
                             "wanted row %u is %u: they rise, and the frame has %u rows", i,
                             f->wanted[i], f->rows);
    return OK;
}

Error forward_check(const Forward *f, const ForwardTerms *terms, Why *why)
{
    uint64_t sum = 0;
    TRY(forward_check_limit(f->rows, terms->rows_max, "rows", why));
    TRY(forward_check_limit(f->sequence_count, terms->sequences_max, "sequences", why));
    if (f->mode < FORWARD_PREFILL || f->mode > FORWARD_VERIFY)
        return error_why(why, ERR_RANGE, "mode %u; 1 to 3 are known", (unsigned)f->mode);
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        TRY(forward_check_sequence(&f->sequences[i], i, f->mode, terms->context, why));
        sum += f->sequences[i].rows;
    }
    if (sum != f->rows)
        return error_why(why, ERR_SHAPE, "the sequences have %llu rows, the frame %u",
                         (unsigned long long)sum, f->rows);
    TRY(forward_check_once(f, why));
    return forward_check_wanted(f, why);
}

static void forward_check_terms(const ForwardTerms *terms)
{
    ASSERT(terms->range.first < terms->range.last);
    ASSERT(terms->range.last <= phase_bound(terms->hyper->layers, PHASE_ATTN));
    ASSERT(terms->rows_max <= FRAME_ROWS_MAX && terms->sequences_max <= FORWARD_SEQUENCES_MAX);
    ASSERT(terms->context <= FORWARD_CONTEXT_MAX);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void forward_put_fields(const Forward *f, const ForwardTerms *terms, PhaseBound g_bound,
                               uint32_t rows, uint8_t *out)
{
    bytes_store32(out + AT_FIRST, terms->range.first);
    bytes_store32(out + AT_LAST, terms->range.last);
    out[AT_MODE] = (uint8_t)f->mode;
    out[AT_ELEMENT] = (uint8_t)f->element;
    bytes_store32(out + AT_ROWS, rows);
    bytes_store32(out + AT_X_WIDTH, terms->hyper->hidden);
    bytes_store32(out + AT_G_WIDTH, forward_g_width(terms->hyper, g_bound));
    bytes_store32(out + AT_SEQUENCES, f->sequence_count);
}

void forward_write(const Forward *f, const ForwardTerms *terms, uint64_t payload_hash, uint8_t *out)
{
    forward_check_terms(terms);
    ASSERT(forward_check(f, terms, NULL) == OK);
    FrameHead head = {forward_header_size(f), f->request_id,
                      forward_payload_bytes(terms, f->element, f->rows), payload_hash};
    frame_start(out, FRAME_FORWARD, &terms->identity, &head);
    forward_put_fields(f, terms, terms->range.first, f->rows, out);
    bytes_store16(out + AT_FLAGS, f->wanted ? FLAG_WANTED : 0);
    bytes_store32(out + AT_WANTED, f->wanted ? f->wanted_count : 0);
    uint8_t *at = out + AT_TABLES;
    for (uint32_t i = 0; i < f->sequence_count; i++, at += SEQUENCE_BYTES) {
        const ForwardSequence *s = &f->sequences[i];
        bytes_store64(at, s->session);
        bytes_store64(at + 8, s->parent);
        bytes_store32(at + 16, s->parent_length);
        bytes_store32(at + 20, s->position);
        bytes_store32(at + 24, s->rows);
    }
    if (f->wanted) memcpy(at, f->wanted, (size_t)f->wanted_count * 4);
    frame_seal(out);
}

void forward_write_answer(const ForwardAnswer *a, const Forward *request, const ForwardTerms *terms,
                          uint64_t payload_hash, uint8_t *out)
{
    forward_check_terms(terms);
    ASSERT(a->rows == (a->only_wanted ? request->wanted_count : request->rows));
    ASSERT(!a->only_wanted || request->wanted);
    FrameHead head = {forward_answer_header_size(request), request->request_id,
                      forward_answer_payload_bytes(terms, request->element, a->rows), payload_hash};
    frame_start(out, FRAME_FORWARD_ANSWER, &terms->identity, &head);
    forward_put_fields(request, terms, terms->range.last, a->rows, out);
    bytes_store16(out + AT_FLAGS, a->only_wanted ? FLAG_WANTED : 0);
    bytes_store32(out + AT_WANTED, a->compute_us);
    uint8_t *at = out + AT_TABLES;
    for (uint32_t i = 0; i < request->sequence_count; i++, at += ANSWER_BYTES) {
        bytes_store64(at, request->sequences[i].session);
        bytes_store32(at + 8, request->sequences[i].position + request->sequences[i].rows);
    }
    frame_seal(out);
}

/* ---- reading --------------------------------------------------------------------------------- */

static Error forward_check_range(const uint8_t *header, const ForwardTerms *terms, Why *why)
{
    PhaseRange got = {bytes_load32(header + AT_FIRST), bytes_load32(header + AT_LAST)};
    if (got.first == terms->range.first && got.last == terms->range.last) return OK;
    return error_why(
        why, ERR_UNSUPPORTED,
        "the frame is for layer %u %s to layer %u %s, this node has layer %u %s to layer %u %s",
        phase_layer(got.first), phase_name(phase_of(got.first)), phase_layer(got.last),
        phase_name(phase_of(got.last)), phase_layer(terms->range.first),
        phase_name(phase_of(terms->range.first)), phase_layer(terms->range.last),
        phase_name(phase_of(terms->range.last)));
}

static Error forward_check_width(const uint8_t *header, size_t at, uint32_t width, const char *what,
                                 Why *why)
{
    uint32_t got = bytes_load32(header + at);
    if (got == width) return OK;
    return error_why(why, ERR_SHAPE, "the frame's %s rows have %u elements, the model's %u", what,
                     got, width);
}

static Error forward_check_widths(const uint8_t *header, const ForwardTerms *terms,
                                  PhaseBound g_bound, Why *why)
{
    TRY(forward_check_width(header, AT_X_WIDTH, terms->hyper->hidden, "x", why));
    return forward_check_width(header, AT_G_WIDTH, forward_g_width(terms->hyper, g_bound), "g",
                               why);
}

static Error forward_take_flags(const uint8_t *header, bool *wanted, Why *why)
{
    uint16_t flags = bytes_load16(header + AT_FLAGS);
    if (flags & ~FLAG_WANTED)
        return error_why(why, ERR_FORMAT, "flags %x; only bit 0 is known", (unsigned)flags);
    *wanted = flags & FLAG_WANTED;
    return OK;
}

static Error forward_take_tables(const uint8_t *header, ForwardSequence *sequences,
                                 uint32_t *wanted, const Forward *f, Why *why)
{
    const uint8_t *at = header + AT_TABLES;
    for (uint32_t i = 0; i < f->sequence_count; i++, at += SEQUENCE_BYTES) {
        sequences[i] =
            (ForwardSequence){bytes_load64(at), bytes_load64(at + 8), bytes_load32(at + 16),
                              bytes_load32(at + 20), bytes_load32(at + 24)};
        TRY(frame_check_zero(header, (size_t)(at - header) + 28, (size_t)(at - header) + 32, why));
    }
    if (f->wanted_count) memcpy(wanted, at, (size_t)f->wanted_count * 4);
    return OK;
}

Error forward_read(const uint8_t *header, size_t bytes, const ForwardTerms *terms,
                   ForwardSequence *sequences, uint32_t *wanted, Forward *out, FrameHead *head,
                   Why *why)
{
    bool has_wanted = false;
    forward_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_FORWARD, &terms->identity, head, why));
    TRY(forward_check_range(header, terms, why));
    TRY(rows_element_from_number(header[AT_ELEMENT], &out->element, why));
    TRY(forward_take_flags(header, &has_wanted, why));
    TRY(forward_check_widths(header, terms, terms->range.first, why));
    TRY(frame_check_zero(header, AT_ZERO, AT_TABLES, why));
    out->request_id = head->request_id;
    out->mode = (ForwardMode)header[AT_MODE];
    out->rows = bytes_load32(header + AT_ROWS);
    out->sequences = sequences;
    out->sequence_count = bytes_load32(header + AT_SEQUENCES);
    out->wanted = has_wanted ? wanted : NULL;
    out->wanted_count = bytes_load32(header + AT_WANTED);
    TRY(forward_check_limit(out->rows, terms->rows_max, "rows", why));
    TRY(forward_check_limit(out->sequence_count, terms->sequences_max, "sequences", why));
    TRY(forward_check_limit(out->wanted_count, has_wanted ? out->rows : 0, "wanted rows", why));
    TRY(frame_check_sizes(header, head, forward_tables_end(out->sequence_count, out->wanted_count),
                          forward_payload_bytes(terms, out->element, out->rows), why));
    TRY(forward_take_tables(header, sequences, wanted, out, why));
    return forward_check(out, terms, why);
}

static Error forward_check_lengths(const uint8_t *header, const Forward *request, Why *why)
{
    for (uint32_t i = 0; i < request->sequence_count; i++) {
        const ForwardSequence *s = &request->sequences[i];
        size_t at = AT_TABLES + (size_t)i * ANSWER_BYTES;
        TRY(frame_check_echo(bytes_load64(header + at), s->session, "session", why));
        TRY(frame_check_echo(bytes_load32(header + at + 8), s->position + s->rows, "length", why));
        TRY(frame_check_zero(header, at + 12, at + 16, why));
    }
    return OK;
}

Error forward_read_answer(const uint8_t *header, size_t bytes, const Forward *request,
                          const ForwardTerms *terms, ForwardAnswer *out, FrameHead *head, Why *why)
{
    forward_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_FORWARD_ANSWER, &terms->identity, head, why));
    TRY(forward_check_range(header, terms, why));
    TRY(frame_check_echo(head->request_id, request->request_id, "request id", why));
    TRY(frame_check_echo(header[AT_MODE], request->mode, "mode", why));
    TRY(frame_check_echo(header[AT_ELEMENT], request->element, "element type", why));
    TRY(forward_take_flags(header, &out->only_wanted, why));
    if (out->only_wanted && !request->wanted)
        return error_why(why, ERR_FORMAT, "the answer has wanted rows only, the request wants all");
    out->rows = bytes_load32(header + AT_ROWS);
    out->compute_us = bytes_load32(header + AT_WANTED);
    TRY(frame_check_echo(out->rows, out->only_wanted ? request->wanted_count : request->rows,
                         "rows", why));
    TRY(forward_check_widths(header, terms, terms->range.last, why));
    TRY(frame_check_echo(bytes_load32(header + AT_SEQUENCES), request->sequence_count, "sequences",
                         why));
    TRY(frame_check_zero(header, AT_ZERO, AT_TABLES, why));
    TRY(frame_check_sizes(header, head,
                          AT_TABLES + (uint64_t)request->sequence_count * ANSWER_BYTES,
                          forward_answer_payload_bytes(terms, request->element, out->rows), why));
    return forward_check_lengths(header, request, why);
}

Error forward_check_answer_rows(const Forward *request, const ForwardTerms *terms,
                                const ForwardAnswer *a, const uint8_t *payload, Why *why)
{
    uint32_t width = terms->hyper->hidden,
             g_width = forward_g_width(terms->hyper, terms->range.last);
    TRY(rows_check(request->element, payload, a->rows, width, why));
    payload += rows_bytes(request->element, a->rows, width);
    return g_width ? rows_check(request->element, payload, a->rows, g_width, why) : OK;
}
