/* SPDX-License-Identifier: Apache-2.0 */
/* The forward envelope: rows through the phases of one station, many sequences in one frame
 * (docs/format/frame.md, sections 2 and 3).
 *
 *   coordinator                                   station
 *   rows_write(x), forward_write         -->      frame_header_bytes, forward_read,
 *                                                 frame_check_payload, rows_read
 *   forward_read_answer                  <--      rows_write(x), forward_write_answer
 *
 * A frame that was read has passed forward_check, the same that a writer must pass: a writer's
 * frame that does not is a broken promise of our own, and aborts.
 *
 * What it cannot know is whether the sessions exist and how long they are: the station says. */
#ifndef COBORD_WIRE_FORWARD_H
#define COBORD_WIRE_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/phase.h"
#include "wire/frame.h"
#include "wire/rows.h"

enum { FORWARD_SEQUENCES_MAX = 1024, FORWARD_CONTEXT_MAX = 1 << 20 };

typedef enum ForwardMode { FORWARD_PREFILL = 1, FORWARD_DECODE, FORWARD_VERIFY } ForwardMode;

/* What the two sides agreed on before: the station's own facts, or what the coordinator knows of it. */
typedef struct ForwardTerms {
    FrameIdentity identity;
    const Hyper *hyper;
    PhaseRange range;
    uint32_t rows_max, sequences_max; /* at most FRAME_ROWS_MAX, FORWARD_SEQUENCES_MAX */
    uint32_t context;
} ForwardTerms;

typedef struct ForwardSequence {
    uint64_t session; /* not 0 */
    uint64_t parent;  /* 0: none; else the session becomes a copy of its first parent_length */
    uint32_t parent_length;
    uint32_t position, rows;
} ForwardSequence;

typedef struct Forward {
    uint64_t request_id;
    ForwardMode mode;
    RowsElement element;
    uint32_t rows;
    const ForwardSequence *sequences; /* their rows add up to `rows` */
    uint32_t sequence_count;
    const uint32_t *wanted; /* rising; NULL: all rows */
    uint32_t wanted_count;
} Forward;

typedef struct ForwardAnswer {
    bool only_wanted; /* row i is the request's wanted[i] */
    uint32_t rows;
    uint32_t compute_us;
} ForwardAnswer;

/* Widths of the rows that go into and come out of the range; 0: no g. */
static inline uint32_t forward_g_width(const Hyper *h, PhaseBound bound)
{
    return phase_of(bound) > PHASE_FFN_GATE ? h->ffn : 0;
}

/* x rows, then g rows. */
uint64_t forward_payload_bytes(const ForwardTerms *terms, RowsElement element, uint32_t rows);
uint64_t forward_answer_payload_bytes(const ForwardTerms *terms, RowsElement element,
                                      uint32_t rows);
/* Where the g rows start in a payload. */
static inline uint64_t forward_g_at(const ForwardTerms *terms, RowsElement element, uint32_t rows)
{
    return rows_bytes(element, rows, terms->hyper->hidden);
}

uint32_t forward_header_size(const Forward *f);
uint32_t forward_answer_header_size(const Forward *f);

/* Every rule of section 2 that the values can break.
 * Errors  ERR_RANGE, ERR_TOO_LARGE, ERR_DUPLICATE (a session), ERR_SHAPE (rows do not add up). */
MUST_CHECK Error forward_check(const Forward *f, const ForwardTerms *terms, Why *why);

/* Shapes  out[forward_header_size]. `payload_hash` is hash_xxh64 of the payload. */
void forward_write(const Forward *f, const ForwardTerms *terms, uint64_t payload_hash,
                   uint8_t *out);

/* Owner  fills the caller's tables, which `out` points to: sequences[terms->sequences_max],
 * wanted[terms->rows_max].
 * Errors  those of frame_open and forward_check, ERR_UNSUPPORTED (another range), ERR_TYPE,
 * ERR_FORMAT. */
MUST_CHECK Error forward_read(const uint8_t *header, size_t bytes, const ForwardTerms *terms,
                              ForwardSequence *sequences, uint32_t *wanted, Forward *out,
                              FrameHead *head, Why *why);

/* Shapes  out[forward_answer_header_size]. */
void forward_write_answer(const ForwardAnswer *a, const Forward *request, const ForwardTerms *terms,
                          uint64_t payload_hash, uint8_t *out);
/* Errors  ERR_FORMAT and the like: anything that does not belong to this request. */
MUST_CHECK Error forward_read_answer(const uint8_t *header, size_t bytes, const Forward *request,
                                     const ForwardTerms *terms, ForwardAnswer *out, FrameHead *head,
                                     Why *why);
/* Whether the rows of an answer whose payload has the right hash are numbers: they go on to the next station as they
 * are, and that one would be blamed for them. Errors  ERR_NOT_FINITE, ERR_FORMAT. */
MUST_CHECK Error forward_check_answer_rows(const Forward *request, const ForwardTerms *terms,
                                           const ForwardAnswer *answer, const uint8_t *payload,
                                           Why *why);

#endif
