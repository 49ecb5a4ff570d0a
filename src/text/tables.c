/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup tables of a tokenizer; see tables.h. */
#include "text/tables.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "text/utf8.h"

Error tables_push(Ids *ids, uint32_t id, Why *why)
{
    if (ids->count == ids->max)
        return error_why(why, ERR_CAPACITY, "the text has more than %zu tokens", ids->max);
    ids->list[ids->count++] = id;
    return OK;
}

/* A power of two, at most half full. */
static size_t slots_for(uint32_t entries)
{
    size_t slots = 16;
    while (slots < (size_t)entries * 2) slots *= 2;
    return slots;
}

static bool has_merges(const Vocab *v) { return v->model == VOCAB_BPE; }

size_t tables_bytes(const Vocab *vocab)
{
    size_t bytes = arena_bytes(slots_for(vocab->tokens) * sizeof(uint32_t));
    if (has_merges(vocab)) bytes += arena_bytes(slots_for(vocab->merges) * sizeof(uint32_t));
    return bytes;
}

static bool same_text(const Tokenizer *t, uint32_t id, const uint8_t *text, size_t bytes)
{
    uint32_t length;
    const uint8_t *token = vocab_token(t->vocab, id, &length);
    return length == bytes && memcmp(token, text, bytes) == 0;
}

/* The slot that holds the text, or the free one where it belongs; NULL after too many probes. */
static uint32_t *token_slot(const Tokenizer *t, const uint8_t *text, size_t bytes)
{
    uint64_t at = hash_xxh64(text, bytes);
    for (uint32_t probe = 0; probe < TABLES_PROBES_MAX; probe++, at++) {
        uint32_t *slot = &t->token_slots[at & t->token_mask];
        if (*slot == VOCAB_NO_TOKEN || same_text(t, *slot, text, bytes)) return slot;
    }
    return NULL;
}

static uint32_t *merge_slot(const Tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t at = hash_mix64((uint64_t)left << 32 | right);
    for (uint32_t probe = 0; probe < TABLES_PROBES_MAX; probe++, at++) {
        uint32_t *slot = &t->merge_slots[at & t->merge_mask];
        if (*slot == VOCAB_NO_TOKEN) return slot;
        VocabMerge m = vocab_merge(t->vocab, *slot);
        if (m.left == left && m.right == right) return slot;
    }
    return NULL;
}

uint32_t tables_find(const Tokenizer *t, const uint8_t *text, size_t bytes)
{
    if (bytes > t->token_bytes_max) return VOCAB_NO_TOKEN;
    const uint32_t *slot = token_slot(t, text, bytes);
    return slot ? *slot : VOCAB_NO_TOKEN;
}

uint32_t tables_merge(const Tokenizer *t, uint32_t left, uint32_t right)
{
    const uint32_t *slot = merge_slot(t, left, right);
    return slot ? *slot : VOCAB_NO_TOKEN;
}

static uint32_t *take_slots(Arena *arena, uint32_t entries, uint32_t *mask)
{
    size_t count = slots_for(entries);
    uint32_t *slots = ARENA_NEW(arena, uint32_t, count);
    if (slots) memset(slots, 0xFF, count * sizeof *slots);
    *mask = (uint32_t)(count - 1);
    return slots;
}

static Error add_tokens(Tokenizer *t, Why *why)
{
    for (uint32_t id = 0; id < t->vocab->tokens; id++) {
        uint32_t bytes;
        const uint8_t *text = vocab_token(t->vocab, id, &bytes);
        if (bytes > TOKENIZER_PIECE_BYTES_MAX)
            return error_why(why, ERR_TOO_LARGE, "token %u has %u bytes, %d are allowed", id, bytes,
                             (int)TOKENIZER_PIECE_BYTES_MAX);
        if (bytes > t->token_bytes_max) t->token_bytes_max = bytes;
        uint32_t *slot = token_slot(t, text, bytes);
        if (!slot)
            return error_why(why, ERR_UNSUPPORTED, "the vocabulary's texts collide at token %u",
                             id);
        if (*slot == VOCAB_NO_TOKEN) *slot = id;
    }
    return OK;
}

static Error add_merges(Tokenizer *t, Why *why)
{
    for (uint32_t rank = 0; rank < t->vocab->merges; rank++) {
        VocabMerge m = vocab_merge(t->vocab, rank);
        if (specials_is_control(t->vocab, m.merged)) continue; /* text never becomes one */
        uint32_t *slot = merge_slot(t, m.left, m.right);
        if (!slot)
            return error_why(why, ERR_UNSUPPORTED, "the vocabulary's merges collide at merge %u",
                             rank);
        if (*slot == VOCAB_NO_TOKEN) *slot = rank;
    }
    return OK;
}

/* Bytes that print in Latin-1 stand for themselves, the others for U+0100 onwards in their order. */
static uint32_t printable_of(unsigned byte)
{
    if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD)) return byte;
    if (byte <= 0x20) return 256 + byte;
    if (byte <= 0xA0) return 256 + 33 + byte - 0x7F;
    return 256 + 33 + 34;
}

uint32_t tables_printable(uint8_t byte, uint8_t *out)
{
    return utf8_write(printable_of(byte), out);
}

static void fill_bytes(Tokenizer *t)
{
    static const char hex[] = "0123456789ABCDEF";
    memset(t->printable, 0xFF, sizeof t->printable);
    for (unsigned b = 0; b < 256; b++) {
        uint8_t text[6] = {'<', '0', 'x', (uint8_t)hex[b >> 4], (uint8_t)hex[b & 15], '>'};
        size_t bytes = sizeof text;
        t->printable[printable_of(b)] = (int16_t)b;
        if (t->vocab->model == VOCAB_BPE) bytes = tables_printable((uint8_t)b, text);
        uint32_t id = tables_find(t, text, bytes);
        bool usable = id != VOCAB_NO_TOKEN && !specials_is_control(t->vocab, id);
        t->byte_token[b] = usable ? id : VOCAB_NO_TOKEN;
    }
}

Error tables_build(Tokenizer *t, Arena *arena, Why *why)
{
    t->token_slots = take_slots(arena, t->vocab->tokens, &t->token_mask);
    if (!t->token_slots) return error_why(why, ERR_MEMORY, "no room for the vocabulary's tables");
    TRY(add_tokens(t, why));
    fill_bytes(t);
    if (!has_merges(t->vocab)) return OK;
    t->merge_slots = take_slots(arena, t->vocab->merges, &t->merge_mask);
    if (!t->merge_slots) return error_why(why, ERR_MEMORY, "no room for the vocabulary's merges");
    return add_merges(t, why);
}
