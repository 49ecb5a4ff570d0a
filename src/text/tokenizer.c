/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the room: builds the tables, cuts text at special tokens, hands the rest to bpe.c or
 * sentencepiece.c, and turns single ids back into bytes. Limits: TOKENIZER_PIECE_BYTES_MAX per token, 2^31 -
 * 1 bytes per text. */
#include "text/tokenizer.h"

#include <string.h>

#include "text/pretokenize.h"
#include "text/tables.h"

size_t tokenizer_bytes(const Vocab *vocab)
{
    return arena_bytes(sizeof(Tokenizer)) + tables_bytes(vocab) + specials_bytes(vocab) +
           ARENA_ALIGN;
}

static void add_end(Tokenizer *t, uint32_t id)
{
    if (id >= t->vocab->tokens || tokenizer_is_end(t, id) || t->end_count == TOKENIZER_ENDS_MAX)
        return;
    t->ends[t->end_count++] = id;
}

static void find_ends(Tokenizer *t)
{
    static const char *const names[] = {"<|im_end|>",      "<|endoftext|>", "<end_of_turn>",
                                        "<eos>",           "<|eot_id|>",    "<|eom_id|>",
                                        "<|end_of_text|>", "</s>",          "<|end|>"};
    add_end(t, t->vocab->eos);
    add_end(t, t->vocab->eot);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t id = tokenizer_find(t, names[i]);
        if (id != VOCAB_NO_TOKEN && vocab_type(t->vocab, id) != VOCAB_NORMAL) add_end(t, id);
    }
}

static Error check_model(const Vocab *v, Why *why)
{
    if (v->model == VOCAB_SENTENCEPIECE) return OK;
    if (v->model != VOCAB_BPE)
        return error_why(why, ERR_UNSUPPORTED, "tokenizer model %d", (int)v->model);
    if (pretokenize_knows(v->pre)) return OK;
    return error_why(why, ERR_UNSUPPORTED, "pre-tokenizer %d of a byte-level vocabulary",
                     (int)v->pre);
}

Error tokenizer_build(const Vocab *vocab, Arena *arena, Tokenizer **out, Why *why)
{
    TRY(check_model(vocab, why));
    Tokenizer *t = ARENA_NEW(arena, Tokenizer, 1);
    if (!t) return error_why(why, ERR_MEMORY, "no room for the tokenizer");
    t->vocab = vocab;
    TRY(tables_build(t, arena, why));
    TRY(specials_build(t, arena, why));
    find_ends(t);
    *out = t;
    return OK;
}

size_t tokenizer_scratch_bytes(const Tokenizer *t, size_t bytes)
{
    size_t body = t->vocab->model == VOCAB_BPE ? bpe_scratch_bytes(t, bytes)
                                               : sentencepiece_scratch_bytes(bytes);
    return body + ARENA_ALIGN;
}

size_t tokenizer_ids_max(const Tokenizer *t, size_t bytes)
{
    return t->vocab->model == VOCAB_BPE ? 3 * bytes + 2 : 4 * bytes + 4;
}

/* Where text without special tokens is to be tokenized; `fresh` at the start and after a control token, where
 * SentencePiece vocabularies that ask for it get a space put in front. */
static Error encode_plain(const Tokenizer *t, const uint8_t *text, size_t bytes, bool fresh,
                          Arena *scratch, Ids *ids, Why *why)
{
    if (bytes == 0) return OK;
    if (t->vocab->model == VOCAB_BPE) return bpe_encode(t, text, bytes, scratch, ids, why);
    bool prefix = fresh && t->vocab->add_space_prefix;
    return sentencepiece_encode(t, text, bytes, prefix, scratch, ids, why);
}

/* Where control tokens may stand in a text. */
typedef struct Allowed {
    bool everywhere;
    const uint8_t *foreign; /* NULL, or 1 for bytes that belong to none */
    size_t until;           /* the bytes from the last place asked for to here are of one kind */
} Allowed;

/* How many bytes from `at` on may be part of control tokens. */
static size_t allowed_bytes(Allowed *a, size_t at, size_t bytes)
{
    if (!a->foreign) return a->everywhere ? bytes - at : 0;
    if (a->foreign[at]) return 0;
    if (a->until <= at)
        for (a->until = at; a->until < bytes && !a->foreign[a->until];) a->until++;
    return a->until - at;
}

/* The longest token that is matched as a whole, of those that may stand here. */
static size_t match_special(const Tokenizer *t, const uint8_t *text, size_t at, size_t bytes,
                            Allowed *allowed, uint32_t *id)
{
    size_t room = allowed_bytes(allowed, at, bytes);
    size_t control = room ? specials_match(t, text + at, room, true, id) : 0;
    if (room == bytes - at) return control;
    uint32_t plain;
    size_t length = specials_match(t, text + at, bytes - at, false, &plain);
    if (length <= control) return control;
    *id = plain;
    return length;
}

static Error encode_parts(const Tokenizer *t, const uint8_t *text, size_t bytes, Allowed *allowed,
                          Arena *scratch, Ids *ids, Why *why)
{
    size_t start = 0;
    bool fresh = true;
    for (size_t at = 0; at < bytes;) {
        uint32_t id;
        size_t length = match_special(t, text, at, bytes, allowed, &id);
        if (!length) {
            at++;
            continue;
        }
        TRY(encode_plain(t, text + start, at - start, fresh, scratch, ids, why));
        TRY(tables_push(ids, id, why));
        fresh = specials_is_control(t->vocab, id);
        start = at += length;
    }
    return encode_plain(t, text + start, bytes - start, fresh, scratch, ids, why);
}

static Error encode_allowed(const Tokenizer *t, const uint8_t *text, size_t bytes, Allowed *allowed,
                            unsigned flags, Arena *scratch, Ids *ids, Why *why)
{
    if (bytes > INT32_MAX) return error_why(why, ERR_TOO_LARGE, "a text of %zu bytes", bytes);
    uint32_t bos = t->vocab->bos;
    bool wants_bos = (flags & TOKENIZE_BOS) && t->vocab->add_bos && bos < t->vocab->tokens;
    size_t mark = arena_mark(scratch), front = wants_bos ? 1 : 0;
    if (ids->max < front) return error_why(why, ERR_CAPACITY, "no room for a single token");
    Ids list = {ids->list + front, ids->max - front, 0};
    Error error = encode_parts(t, text, bytes, allowed, scratch, &list, why);
    arena_reset(scratch, mark);
    if (error != OK) return error;
    ids->count = list.count + front;
    if (!wants_bos) return OK;
    if (list.count == 0 || list.list[0] != bos) {
        ids->list[0] = bos;
    } else {
        memmove(ids->list, ids->list + 1, list.count * sizeof *ids->list);
        ids->count = list.count;
    }
    return OK;
}

Error tokenizer_encode(const Tokenizer *t, const uint8_t *text, size_t bytes, unsigned flags,
                       Arena *scratch, uint32_t *ids, size_t ids_max, size_t *ids_count, Why *why)
{
    Allowed allowed = {.everywhere = flags & TOKENIZE_SPECIALS};
    Ids list = {ids, ids_max, 0};
    Error error = encode_allowed(t, text, bytes, &allowed, flags, scratch, &list, why);
    if (error == OK) *ids_count = list.count;
    return error;
}

Error tokenizer_encode_marked(const Tokenizer *t, const uint8_t *text, const uint8_t *foreign,
                              size_t bytes, unsigned flags, Arena *scratch, uint32_t *ids,
                              size_t ids_max, size_t *ids_count, Why *why)
{
    Allowed allowed = {.foreign = foreign};
    Ids list = {ids, ids_max, 0};
    Error error = encode_allowed(t, text, bytes, &allowed, flags, scratch, &list, why);
    if (error == OK) *ids_count = list.count;
    return error;
}

/* The bytes of a token that is text, in the vocabulary's own spelling of them; `out` has room for all of piece. */
static size_t plain_piece(const Tokenizer *t, VocabTokenType type, const uint8_t *piece,
                          size_t bytes, uint8_t *out)
{
    size_t count = 0;
    if (t->vocab->model == VOCAB_BPE) {
        if (type != VOCAB_USER_DEFINED && bpe_piece(t, piece, bytes, out, &count) == OK)
            return count;
    } else if (type == VOCAB_BYTE && sentencepiece_byte(piece, bytes) >= 0) {
        out[0] = (uint8_t)sentencepiece_byte(piece, bytes);
        return 1;
    } else if (type == VOCAB_NORMAL) {
        return sentencepiece_piece(piece, bytes, out);
    }
    memcpy(out, piece, bytes);
    return bytes;
}

Error tokenizer_piece(const Tokenizer *t, uint32_t id, bool specials, uint8_t *out, size_t out_max,
                      size_t *out_bytes, Why *why)
{
    if (id >= t->vocab->tokens)
        return error_why(why, ERR_RANGE, "token %u, the vocabulary has %u", id, t->vocab->tokens);
    uint32_t bytes;
    const uint8_t *piece = vocab_token(t->vocab, id, &bytes);
    if (bytes > out_max) return error_why(why, ERR_CAPACITY, "token %u has %u bytes", id, bytes);
    VocabTokenType type = vocab_type(t->vocab, id);
    *out_bytes = 0;
    if (specials_is_control(t->vocab, id) || type == VOCAB_UNUSED) {
        if (specials && bytes) memcpy(out, piece, bytes);
        if (specials) *out_bytes = bytes;
        return OK;
    }
    *out_bytes = plain_piece(t, type, piece, bytes, out);
    return OK;
}

bool tokenizer_is_end(const Tokenizer *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->end_count; i++)
        if (t->ends[i] == id) return true;
    return false;
}

bool tokenizer_is_control(const Tokenizer *t, uint32_t id)
{
    return id < t->vocab->tokens && specials_is_control(t->vocab, id);
}

uint32_t tokenizer_find(const Tokenizer *t, const char *text)
{
    return tables_find(t, (const uint8_t *)text, strlen(text));
}

const Vocab *tokenizer_vocab(const Tokenizer *t) { return t->vocab; }
