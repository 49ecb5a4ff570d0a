/* SPDX-License-Identifier: Apache-2.0 */
/* Ids to text as they arrive: never splits a character, replaces each run of invalid bytes by one U+FFFD, and finds stop
 * strings over token borders (text that may still become a stop string is held back until it cannot, or the end). */
#ifndef COBORD_TEXT_DETOKENIZER_H
#define COBORD_TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

enum { DETOKENIZER_STOPS_MAX = 16, DETOKENIZER_STOP_BYTES_MAX = 1024 };

typedef struct Detokenizer {
    const Tokenizer *tokenizer;
    bool specials;          /* render control tokens */
    bool strip_space;       /* SentencePiece: the first piece loses its leading space */
    bool started, stopped;
    const char *stops[DETOKENIZER_STOPS_MAX];
    uint32_t stop_bytes[DETOKENIZER_STOPS_MAX];
    uint32_t stop_count;
    uint8_t pending[4];     /* an incomplete character */
    uint32_t pending_bytes;
    uint8_t held[DETOKENIZER_STOP_BYTES_MAX]; /* text that may begin a stop string */
    uint32_t held_bytes;
} Detokenizer;

void detokenizer_start(Detokenizer *d, const Tokenizer *t, bool specials);
/* Errors  ERR_RANGE for an empty stop string, more than 16, or one longer than the limit. Owner  borrows `stop`. */
MUST_CHECK Error detokenizer_add_stop(Detokenizer *d, const char *stop, size_t bytes, Why *why);

/* Writes the text that id completes to out (DETOKENIZER_OUT_BYTES_MAX suffices); sets *stopped when a stop string was
 * completed: the text before it is all in out. After a stop nothing more comes. */
enum { DETOKENIZER_OUT_BYTES_MAX = 8192 };
MUST_CHECK Error detokenizer_push(Detokenizer *d, uint32_t id, uint8_t *out, size_t out_max, size_t *out_bytes,
                                  bool *stopped, Why *why);
/* Releases held text and replaces an incomplete character at the end of the answer. */
MUST_CHECK Error detokenizer_end(Detokenizer *d, uint8_t *out, size_t out_max, size_t *out_bytes, Why *why);

#endif
