/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's BPE: spaces become U+2581, every character is a symbol, and of all neighbours whose texts
 * joined are a token the one with the highest score is joined first, the leftmost among equals. What is no
 * token in the end becomes byte tokens <0xNN>, one per byte; a byte without one becomes the unknown token.
 * Only normal and user-defined tokens take part: no text can be merged into a control token.
 * Source  Kudo and Richardson, SentencePiece (2018), section 3.1; Sennrich et al. (2016). */
#include <string.h>

#include "base/bytes.h"
#include "text/merge.h"
#include "text/tables.h"
#include "text/utf8.h"

enum { SPACE_BYTES = 3 };
static const uint8_t SPACE[SPACE_BYTES] = {0xE2, 0x96, 0x81};

typedef struct Sentence {
    const Tokenizer *tokenizer;
    uint8_t *text; /* with spaces escaped */
    size_t bytes;
    uint32_t *start; /* of symbol i in text; start[count] == bytes */
    size_t count;
} Sentence;

size_t sentencepiece_scratch_bytes(size_t bytes)
{
    size_t symbols = bytes + 1;
    return arena_bytes(SPACE_BYTES * symbols) + arena_bytes((symbols + 1) * sizeof(uint32_t)) +
           merge_bytes(symbols);
}

static uint32_t find(const Tokenizer *t, const uint8_t *text, size_t bytes)
{
    uint32_t id = tables_find(t, text, bytes);
    if (id == VOCAB_NO_TOKEN || specials_is_control(t->vocab, id)) return VOCAB_NO_TOKEN;
    VocabTokenType type = vocab_type(t->vocab, id);
    return type == VOCAB_NORMAL || type == VOCAB_USER_DEFINED ? id : VOCAB_NO_TOKEN;
}

/* Orders floats as unsigned integers, the highest score first. */
static uint32_t score_key(float score)
{
    uint32_t bits = 0;
    if (score != 0) bytes_store_f32(&bits, score);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static bool lookup(const void *context, const Merge *m, uint32_t left, uint32_t right,
                   uint32_t *key, uint32_t *merged)
{
    const Sentence *s = context;
    uint32_t from = s->start[left], to = s->start[m->next[right]];
    uint32_t id = find(s->tokenizer, s->text + from, to - from);
    if (id == VOCAB_NO_TOKEN) return false;
    *key = score_key(vocab_score(s->tokenizer->vocab, id));
    *merged = id;
    return true;
}

static void add_symbol(Sentence *s, const uint8_t *text, size_t bytes)
{
    s->start[s->count++] = (uint32_t)s->bytes;
    memcpy(s->text + s->bytes, text, bytes);
    s->bytes += bytes;
}

static Error split(Sentence *s, const uint8_t *text, size_t bytes, bool prefix, Arena *scratch,
                   Why *why)
{
    s->text = arena_take_array(scratch, bytes + 1, SPACE_BYTES);
    s->start = ARENA_NEW(scratch, uint32_t, bytes + 2);
    if (!s->text || !s->start)
        return error_why(why, ERR_MEMORY, "no room to tokenize %zu bytes", bytes);
    if (prefix) add_symbol(s, SPACE, SPACE_BYTES);
    for (size_t at = 0; at < bytes;) {
        uint32_t length;
        bool space = utf8_read(text + at, bytes - at, &length) == ' ';
        add_symbol(s, space ? SPACE : text + at, space ? (size_t)SPACE_BYTES : length);
        at += length;
    }
    s->start[s->count] = (uint32_t)s->bytes;
    return OK;
}

static Error push_bytes(const Tokenizer *t, const uint8_t *text, size_t bytes, Ids *ids, Why *why)
{
    for (size_t i = 0; i < bytes; i++) {
        uint32_t id = t->byte_token[text[i]];
        if (id == VOCAB_NO_TOKEN) id = t->vocab->unknown;
        if (id != VOCAB_NO_TOKEN) TRY(tables_push(ids, id, why));
    }
    return OK;
}

static Error push_symbols(const Sentence *s, const Merge *m, Ids *ids, Why *why)
{
    for (uint32_t i = 0; i < m->count; i = m->next[i]) {
        uint32_t from = s->start[i], to = s->start[m->next[i]];
        if (m->id[i] != VOCAB_NO_TOKEN) TRY(tables_push(ids, m->id[i], why));
        else TRY(push_bytes(s->tokenizer, s->text + from, to - from, ids, why));
    }
    return OK;
}

Error sentencepiece_encode(const Tokenizer *t, const uint8_t *text, size_t bytes, bool prefix,
                           Arena *scratch, Ids *ids, Why *why)
{
    size_t mark = arena_mark(scratch);
    Sentence s = {.tokenizer = t};
    TRY(split(&s, text, bytes, prefix, scratch, why));
    Merge m;
    TRY(merge_make(&m, s.count, scratch, why));
    for (size_t i = 0; i < s.count; i++)
        m.id[i] = find(t, s.text + s.start[i], s.start[i + 1] - s.start[i]);
    merge_run(&m, lookup, &s);
    TRY(push_symbols(&s, &m, ids, why));
    arena_reset(scratch, mark);
    return OK;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int sentencepiece_byte(const uint8_t *piece, size_t bytes)
{
    if (bytes != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>') return -1;
    int high = hex_digit(piece[3]), low = hex_digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t sentencepiece_piece(const uint8_t *piece, size_t bytes, uint8_t *out)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        bool space = bytes - at >= SPACE_BYTES && memcmp(piece + at, SPACE, SPACE_BYTES) == 0;
        out[count++] = space ? ' ' : piece[at];
        at += space ? (size_t)SPACE_BYTES : 1;
    }
    return count;
}
