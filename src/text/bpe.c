/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE: every byte of a word is a token, merged by rank. A byte that the vocabulary has no token
 * for (some leave out control characters and bytes that UTF-8 never uses) is dropped, as the published tokenizers do.
 *
 *   text --NFC (qwen2)--> words --> bytes' tokens --> merges --> ids */
#include "base/bytes.h"
#include "text/merge.h"
#include "text/nfc.h"
#include "text/pretokenize.h"
#include "text/tables.h"
#include "text/utf8.h"

static bool uses_nfc(const Tokenizer *t) { return t->vocab->pre == VOCAB_PRE_QWEN2; }

/* Llama 3: a word that is a token is that token, whatever its merges say. */
static bool whole_words_first(const Tokenizer *t) { return t->vocab->pre == VOCAB_PRE_LLAMA_BPE; }

size_t bpe_scratch_bytes(const Tokenizer *t, size_t bytes)
{
    size_t word = arena_bytes(2 * (size_t)t->token_bytes_max);
    if (!uses_nfc(t)) return word + merge_bytes(bytes);
    size_t merging = merge_bytes(NFC_GROWTH_MAX * bytes), normalizing = nfc_scratch_bytes(bytes);
    return word + arena_bytes(NFC_GROWTH_MAX * bytes) +
           (merging > normalizing ? merging : normalizing);
}

static bool lookup(const void *context, const Merge *m, uint32_t left, uint32_t right,
                   uint32_t *key, uint32_t *merged)
{
    const Tokenizer *t = context;
    uint32_t rank = tables_merge(t, m->id[left], m->id[right]);
    if (rank == VOCAB_NO_TOKEN) return false;
    *key = rank;
    *merged = vocab_merge(t->vocab, rank).merged;
    return true;
}

/* The normal token that is exactly this word, VOCAB_NO_TOKEN when there is none. */
static uint32_t whole_word(const Tokenizer *t, const uint8_t *word, size_t bytes, Arena *scratch)
{
    if (bytes > t->token_bytes_max) return VOCAB_NO_TOKEN;
    uint8_t *printable = arena_take(scratch, 2 * bytes);
    if (!printable) return VOCAB_NO_TOKEN;
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) length += tables_printable(word[i], printable + length);
    uint32_t id = tables_find(t, printable, length);
    return id != VOCAB_NO_TOKEN && vocab_type(t->vocab, id) == VOCAB_NORMAL ? id : VOCAB_NO_TOKEN;
}

static Error encode_word(const Tokenizer *t, const uint8_t *word, size_t bytes, Arena *scratch,
                         Ids *ids, Why *why)
{
    if (whole_words_first(t)) {
        uint32_t id = whole_word(t, word, bytes, scratch);
        if (id != VOCAB_NO_TOKEN) return tables_push(ids, id, why);
    }
    Merge m;
    TRY(merge_make(&m, bytes, scratch, why));
    m.count = 0;
    for (size_t i = 0; i < bytes; i++) {
        m.id[m.count] = t->byte_token[word[i]];
        if (m.id[m.count] != VOCAB_NO_TOKEN) m.count++;
    }
    merge_run(&m, lookup, t);
    for (uint32_t i = 0; i < m.count; i = m.next[i]) TRY(tables_push(ids, m.id[i], why));
    return OK;
}

static Error normalize(const Tokenizer *t, const uint8_t **text, size_t *bytes, Arena *scratch,
                       Why *why)
{
    if (!uses_nfc(t) || nfc_is_plain(*text, *bytes)) return OK;
    uint8_t *normal = arena_take_array(scratch, *bytes, NFC_GROWTH_MAX);
    if (!normal)
        return error_why(why, ERR_MEMORY, "no room to normalize %zu bytes of text", *bytes);
    TRY(nfc_normalize(*text, *bytes, scratch, normal, bytes, why));
    *text = normal;
    return OK;
}

Error bpe_encode(const Tokenizer *t, const uint8_t *text, size_t bytes, Arena *scratch, Ids *ids,
                 Why *why)
{
    size_t mark = arena_mark(scratch);
    TRY(normalize(t, &text, &bytes, scratch, why));
    size_t word_mark = arena_mark(scratch);
    for (size_t at = 0; at < bytes;) {
        size_t end = pretokenize_word(t->vocab->pre, text, bytes, at);
        arena_reset(scratch, word_mark);
        TRY(encode_word(t, text + at, end - at, scratch, ids, why));
        at = end;
    }
    arena_reset(scratch, mark);
    return OK;
}

/* The bytes of a piece in GPT-2's printable form; ERR_FORMAT when a character stands for no byte. */
Error bpe_piece(const Tokenizer *t, const uint8_t *piece, size_t bytes, uint8_t *out,
                size_t *out_bytes)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t length, c = utf8_read(piece + at, bytes - at, &length);
        if (c >= PRINTABLE_COUNT || t->printable[c] < 0) return ERR_FORMAT;
        out[count++] = (uint8_t)t->printable[c];
        at += length;
    }
    *out_bytes = count;
    return OK;
}
