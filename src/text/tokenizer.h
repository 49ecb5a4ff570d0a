/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids and back: byte-level BPE and SentencePiece over a knot's vocabulary.
 *
 *   text --> split at special tokens --> (NFC) --> pre-tokenizer words --> merges --> ids
 *
 * Scanning is linear, without recursion; merging one word of n bytes costs O(n log n). Any byte string is
 * accepted, also one that is not UTF-8. */
#ifndef COBORD_TEXT_TOKENIZER_H
#define COBORD_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "knot/vocab.h"

typedef struct Tokenizer Tokenizer;

/* Builds lookup tables in `arena`. Owner  `vocab` and its bytes must outlive the tokenizer.
 * Errors  ERR_UNSUPPORTED (pre-tokenizer or model this build does not know), ERR_MEMORY. Thread  read-only
 * afterwards. */
size_t tokenizer_bytes(const Vocab *vocab);
MUST_CHECK Error tokenizer_build(const Vocab *vocab, Arena *arena, Tokenizer **out, Why *why);

enum {
    /* Control tokens written in the text become their ids; without it they stay text. */
    TOKENIZE_SPECIALS = 1,
    /* Put BOS in front when the model wants one and the text does not start with it. */
    TOKENIZE_BOS = 2
};

/* Appends the ids of text[0..bytes) to ids. `scratch` needs tokenizer_scratch_bytes(bytes).
 * A byte the vocabulary has no token for becomes the unknown token (SentencePiece) or nothing (byte-level BPE).
 * Errors  ERR_CAPACITY when ids_max is too small (tokenizer_ids_max(bytes) always suffices), ERR_MEMORY,
 *         ERR_TOO_LARGE above 2^31 - 1 bytes. */
size_t tokenizer_ids_max(const Tokenizer *t, size_t bytes);
size_t tokenizer_scratch_bytes(const Tokenizer *t, size_t bytes);
MUST_CHECK Error tokenizer_encode(const Tokenizer *t, const uint8_t *text, size_t bytes,
                                  unsigned flags, Arena *scratch, uint32_t *ids, size_t ids_max,
                                  size_t *ids_count, Why *why);

/* The same of a text of which only some bytes may be part of control tokens: those with foreign[i] == 0. A control
 * token is read where all of its bytes may; `flags`: TOKENIZE_BOS or 0. */
MUST_CHECK Error tokenizer_encode_marked(const Tokenizer *t, const uint8_t *text,
                                         const uint8_t *foreign, size_t bytes, unsigned flags,
                                         Arena *scratch, uint32_t *ids, size_t ids_max,
                                         size_t *ids_count, Why *why);

/* The bytes one id stands for: specials rendered when `specials`, else nothing for control tokens.
 * Errors  ERR_RANGE for an id outside the vocabulary, ERR_CAPACITY. TOKENIZER_PIECE_BYTES_MAX bytes suffice. */
enum { TOKENIZER_PIECE_BYTES_MAX = 1024 };
MUST_CHECK Error tokenizer_piece(const Tokenizer *t, uint32_t id, bool specials, uint8_t *out,
                                 size_t out_max, size_t *out_bytes, Why *why);

/* True for ids that end an answer: EOS, EOT, and control tokens such as <|im_end|> and <end_of_turn>. */
bool tokenizer_is_end(const Tokenizer *t, uint32_t id);
/* True for control tokens, the unknown token and turn markers: tokens that text becomes only under
 * TOKENIZE_SPECIALS. */
bool tokenizer_is_control(const Tokenizer *t, uint32_t id);
/* The id of a token by its exact text, VOCAB_NO_TOKEN when there is none. */
uint32_t tokenizer_find(const Tokenizer *t, const char *text);
const Vocab *tokenizer_vocab(const Tokenizer *t);

#endif
