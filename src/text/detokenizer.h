/* SPDX-License-Identifier: Apache-2.0 */
/* Ids to text as they arrive: never splits a character, replaces what is no UTF-8 by U+FFFD, and finds stop
 * strings over token borders (text that may still become a stop string is held back until it cannot, or the end).
 *
 *   id -> bytes of the piece -> whole characters -> held text -> out
 *                               (pending bytes)     (a beginning of a stop string)
 *
 * Invalid bytes: one U+FFFD per maximal subpart, as browsers decode (so C0 80 gives two, E2 9C + x gives one and x).
 * Stops are compared with the text after that repair, byte by byte: the stop that is complete first ends the
 * answer, among those complete at the same byte the one that begins first. The text is the same however the
 * ids cut it. */
#ifndef COBORD_TEXT_DETOKENIZER_H
#define COBORD_TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

enum { DETOKENIZER_STOPS_MAX = 16, DETOKENIZER_STOP_BYTES_MAX = 1024 };

typedef struct Detokenizer {
    const Tokenizer *tokenizer;
    bool specials; /* render control tokens */
    bool tags;     /* render <tool_call> and </tool_call>, also where they are control tokens */
    /* SentencePiece: the next piece loses the space that the encoder put in front. */
    bool strip_space;
    bool stopped;
    const char *stops[DETOKENIZER_STOPS_MAX];
    uint32_t stop_bytes[DETOKENIZER_STOPS_MAX];
    uint32_t stop_count;
    uint8_t pending[4]; /* an incomplete character */
    uint32_t pending_bytes;
    uint8_t held[DETOKENIZER_STOP_BYTES_MAX]; /* text that may begin a stop string */
    uint32_t held_bytes;
} Detokenizer;

void detokenizer_start(Detokenizer *d, const Tokenizer *t, bool specials);
/* Errors  ERR_RANGE for an empty stop string, more than 16, or one longer than the limit. Owner  borrows `stop`. */
MUST_CHECK Error detokenizer_add_stop(Detokenizer *d, const char *stop, size_t bytes, Why *why);

/* Writes the text that id completes to out (DETOKENIZER_OUT_BYTES_MAX suffices; less is ERR_CAPACITY); sets
 * *stopped when a stop string was completed: the text before it is all in out. After a stop nothing more comes. */
enum { DETOKENIZER_OUT_BYTES_MAX = 8192 };
MUST_CHECK Error detokenizer_push(Detokenizer *d, uint32_t id, uint8_t *out, size_t out_max,
                                  size_t *out_bytes, bool *stopped, Why *why);
/* Releases held text and replaces an incomplete character at the end of the answer. */
MUST_CHECK Error detokenizer_end(Detokenizer *d, uint8_t *out, size_t out_max, size_t *out_bytes,
                                 Why *why);

#endif
