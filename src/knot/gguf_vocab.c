/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/gguf_vocab.h"

#include <string.h>

#include "base/bytes.h"

enum {
    NAME_TEXT_BYTES = 64,
    SECTION_BYTES_MAX = 32 << 20,
    MERGE_BYTES_MAX = 2 * VOCAB_TOKEN_BYTES_MAX + 1
};

static const char KEY_TOKENS[] = "tokenizer.ggml.tokens";
static const char KEY_SCORES[] = "tokenizer.ggml.scores";
static const char KEY_TYPES[] = "tokenizer.ggml.token_type";
static const char KEY_MERGES[] = "tokenizer.ggml.merges";
static const char KEY_TEMPLATE[] = "tokenizer.chat_template";

/* --- what kind --- */

/* Only pre-tokenizers that `text` implements; another one would split words differently without any
 * error. */
static Error gguf_vocab_pre(const Gguf *g, VocabPre *out, Why *why)
{
    static const struct {
        const char *name;
        VocabPre pre;
    } known[] = {{"qwen2", VOCAB_PRE_QWEN2},         {"gpt-2", VOCAB_PRE_GPT2},
                 {"gpt2", VOCAB_PRE_GPT2},           {"smollm", VOCAB_PRE_SMOLLM},
                 {"llama-bpe", VOCAB_PRE_LLAMA_BPE}, {"llama3", VOCAB_PRE_LLAMA_BPE},
                 {"llama-v3", VOCAB_PRE_LLAMA_BPE}};
    char name[NAME_TEXT_BYTES];
    TRY(gguf_text(g, "tokenizer.ggml.pre", name, sizeof name, why));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0) {
            *out = known[i].pre;
            return OK;
        }
    return error_why(why, ERR_UNSUPPORTED,
                     "pre-tokenizer `%s`; qwen2, gpt-2, smollm and llama-bpe are supported",
                     name[0] ? name : "(none named)");
}

static Error gguf_vocab_kind(const Gguf *g, VocabShape *s, Why *why)
{
    char name[NAME_TEXT_BYTES];
    TRY(gguf_text(g, "tokenizer.ggml.model", name, sizeof name, why));
    if (strcmp(name, "gpt2") == 0) {
        s->model = VOCAB_BPE;
        return gguf_vocab_pre(g, &s->pre, why);
    }
    s->model = VOCAB_SENTENCEPIECE;
    s->pre = VOCAB_PRE_NONE;
    if (strcmp(name, "llama") == 0 || strcmp(name, "gemma") == 0) return OK;
    if (name[0] == '\0')
        return error_why(why, ERR_FORMAT, "the file has no tokenizer (key `tokenizer.ggml.model`)");
    return error_why(why, ERR_UNSUPPORTED, "tokenizer model `%s`; gpt2 and llama are supported",
                     name);
}

static Error gguf_vocab_id(const Gguf *g, const char *key, uint32_t absent, const VocabShape *s,
                           uint32_t *out, Why *why)
{
    TRY(gguf_u32(g, key, VOCAB_NO_TOKEN, out, why));
    if (*out == VOCAB_NO_TOKEN) *out = absent < s->tokens ? absent : VOCAB_NO_TOKEN;
    if (*out < s->tokens || *out == VOCAB_NO_TOKEN) return OK;
    return error_why(why, ERR_RANGE, "key `%s` is %u, the vocabulary has %u tokens", key, *out,
                     s->tokens);
}

/* What a silent file means: SentencePiece models always have these ids and start with a BOS and a
 * space; of the byte-level ones only Llama 3 starts with a BOS. */
static Error gguf_vocab_specials(const Gguf *g, VocabShape *s, Why *why)
{
    bool pieces = s->model == VOCAB_SENTENCEPIECE;
    uint32_t none = VOCAB_NO_TOKEN;
    TRY(gguf_vocab_id(g, "tokenizer.ggml.bos_token_id", pieces ? 1 : none, s, &s->bos, why));
    TRY(gguf_vocab_id(g, "tokenizer.ggml.eos_token_id", pieces ? 2 : none, s, &s->eos, why));
    TRY(gguf_vocab_id(g, "tokenizer.ggml.unknown_token_id", pieces ? 0 : none, s, &s->unknown,
                      why));
    TRY(gguf_vocab_id(g, "tokenizer.ggml.eot_token_id", none, s, &s->eot, why));
    TRY(gguf_vocab_id(g, "tokenizer.ggml.padding_token_id", none, s, &s->pad, why));
    bool bos = pieces || s->pre == VOCAB_PRE_LLAMA_BPE;
    TRY(gguf_bool(g, "tokenizer.ggml.add_bos_token", bos, &s->add_bos, why));
    TRY(gguf_bool(g, "tokenizer.ggml.add_eos_token", false, &s->add_eos, why));
    return gguf_bool(g, "tokenizer.ggml.add_space_prefix", pieces, &s->add_space_prefix, why);
}

/* --- how much --- */

static Error gguf_vocab_array(const Gguf *g, const char *name, GgufValueType element,
                              const GgufKey **out, Why *why)
{
    const GgufKey *key = gguf_key(g, name);
    *out = key;
    if (!key) return OK;
    bool fine = key->type == GGUF_ARRAY &&
                (key->element == element || (element == GGUF_I32 && key->element == GGUF_U32));
    return fine ? OK
                : error_why(why, ERR_TYPE, "key `%s` is not an array of %s", name,
                            gguf_value_type_name(element));
}

static Error gguf_vocab_same_count(const GgufKey *key, uint32_t tokens, Why *why)
{
    if (!key || key->count == tokens) return OK;
    return error_why(why, ERR_FORMAT, "key `%s` has %llu elements for %u tokens", key->name,
                     (unsigned long long)key->count, tokens);
}

typedef struct VocabKeys {
    const GgufKey *tokens, *scores, *types, *merges, *chat_template;
} VocabKeys;

static Error gguf_vocab_keys(const Gguf *g, VocabShape *s, VocabKeys *k, Why *why)
{
    TRY(gguf_vocab_array(g, KEY_TOKENS, GGUF_STRING, &k->tokens, why));
    TRY(gguf_vocab_array(g, KEY_SCORES, GGUF_F32, &k->scores, why));
    TRY(gguf_vocab_array(g, KEY_TYPES, GGUF_I32, &k->types, why));
    TRY(gguf_vocab_array(g, KEY_MERGES, GGUF_STRING, &k->merges, why));
    k->chat_template = gguf_key(g, KEY_TEMPLATE);
    if (!k->tokens || k->tokens->count == 0)
        return error_why(why, ERR_FORMAT, "the file has no tokens");
    if (k->tokens->count > VOCAB_TOKENS_MAX || (k->merges && k->merges->count > VOCAB_TOKENS_MAX))
        return error_why(why, ERR_TOO_LARGE, "a vocabulary of %llu tokens",
                         (unsigned long long)k->tokens->count);
    s->tokens = (uint32_t)k->tokens->count;
    TRY(gguf_vocab_same_count(k->scores, s->tokens, why));
    TRY(gguf_vocab_same_count(k->types, s->tokens, why));
    if (s->model == VOCAB_BPE) k->scores = NULL;
    if (s->model == VOCAB_SENTENCEPIECE) k->merges = NULL;
    if (s->model == VOCAB_BPE && !k->merges)
        return error_why(why, ERR_FORMAT, "key `%s` is missing", KEY_MERGES);
    if (s->model == VOCAB_SENTENCEPIECE && !k->scores)
        return error_why(why, ERR_FORMAT, "key `%s` is missing", KEY_SCORES);
    if (k->chat_template && k->chat_template->type != GGUF_STRING)
        return error_why(why, ERR_TYPE, "key `%s` is not a string", KEY_TEMPLATE);
    uint64_t text = k->tokens->bytes - 8 * k->tokens->count;
    uint64_t template_bytes = k->chat_template ? k->chat_template->bytes : 0;
    if (text > SECTION_BYTES_MAX || template_bytes > SECTION_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "a vocabulary of %llu bytes",
                         (unsigned long long)(text + template_bytes));
    s->text_bytes = (uint32_t)text;
    s->chat_template_bytes = (uint32_t)template_bytes;
    s->merges = k->merges ? (uint32_t)k->merges->count : 0;
    s->scores = k->scores != NULL;
    return OK;
}

/* --- filling --- */

static Error gguf_vocab_fill_tokens(Cursor *c, const VocabKeys *k, const VocabShape *s,
                                    VocabParts p, Names *names, Why *why)
{
    uint32_t end = 0;
    cursor_seek(c, k->tokens->offset);
    for (uint32_t i = 0; i < s->tokens; i++) {
        uint64_t bytes;
        TRY(cursor_u64(c, KEY_TOKENS, &bytes, why));
        if (bytes > VOCAB_TOKEN_BYTES_MAX || bytes > s->text_bytes - end)
            return error_why(why, ERR_RANGE, "token %u has %llu bytes; at most %u are allowed", i,
                             (unsigned long long)bytes, (unsigned)VOCAB_TOKEN_BYTES_MAX);
        TRY(cursor_copy(c, p.text + end, (size_t)bytes, KEY_TOKENS, why));
        if (names)
            (void)names_put(names, p.text + end, (size_t)bytes,
                            i); /* of two equal pieces the first counts */
        end += (uint32_t)bytes;
        bytes_store32(p.ends + 4 * (size_t)i, end);
    }
    if (end == s->text_bytes) return OK;
    return error_why(why, ERR_FORMAT, "the tokens changed while they were read");
}

static Error gguf_vocab_fill_types(Cursor *c, const VocabKeys *k, const VocabShape *s, VocabParts p,
                                   Why *why)
{
    memset(p.types, VOCAB_NORMAL, s->tokens);
    if (!k->types) return OK;
    cursor_seek(c, k->types->offset);
    for (uint32_t i = 0; i < s->tokens; i++) {
        uint32_t type;
        TRY(cursor_u32(c, KEY_TYPES, &type, why));
        if (type < VOCAB_NORMAL || type > VOCAB_BYTE)
            return error_why(why, ERR_RANGE, "token %u has the unknown type %u", i, type);
        p.types[i] = (uint8_t)type;
    }
    return OK;
}

/* "left right" with the space behind at least one byte of the left piece. */
static Error gguf_vocab_merge(const Names *names, const uint8_t *text, size_t bytes, uint32_t rank,
                              uint8_t *out, Why *why)
{
    const uint8_t *space = bytes > 1 ? memchr(text + 1, ' ', bytes - 1) : NULL;
    uint8_t joined[MERGE_BYTES_MAX];
    if (space) {
        size_t left = (size_t)(space - text), right = bytes - left - 1;
        memcpy(joined, text, left);
        memcpy(joined + left, space + 1, right);
        uint32_t a = names_find(names, text, left), b = names_find(names, space + 1, right);
        uint32_t ab = names_find(names, joined, left + right);
        if (a != NAMES_NONE && b != NAMES_NONE && ab != NAMES_NONE) {
            bytes_store32(out, a);
            bytes_store32(out + 4, b);
            bytes_store32(out + 8, ab);
            return OK;
        }
    }
    return error_why(why, ERR_FORMAT,
                     "merge %u, `%.*s`, is not two pieces of the vocabulary that join to a third",
                     rank, bytes > 60 ? 60 : (int)bytes, (const char *)text);
}

static Error gguf_vocab_fill_merges(Cursor *c, const VocabKeys *k, const VocabShape *s,
                                    VocabParts p, const Names *names, Why *why)
{
    if (s->merges == 0) return OK;
    cursor_seek(c, k->merges->offset);
    for (uint32_t i = 0; i < s->merges; i++) {
        uint64_t bytes;
        const uint8_t *text = NULL;
        TRY(cursor_u64(c, KEY_MERGES, &bytes, why));
        if (bytes > MERGE_BYTES_MAX)
            return error_why(why, ERR_RANGE, "merge %u has %llu bytes", i,
                             (unsigned long long)bytes);
        TRY(cursor_take(c, (size_t)bytes, KEY_MERGES, &text, why));
        TRY(gguf_vocab_merge(names, text, (size_t)bytes, i, p.merges + 12 * (size_t)i, why));
    }
    return OK;
}

static Error gguf_vocab_fill(const Gguf *g, const VocabKeys *k, const VocabShape *s, VocabParts p,
                             Arena *arena, Why *why)
{
    Cursor c;
    Names names;
    TRY(cursor_start(&c, &g->files[0], arena, why));
    if (s->merges) TRY(names_make(&names, s->tokens, arena, why));
    TRY(gguf_vocab_fill_tokens(&c, k, s, p, s->merges ? &names : NULL, why));
    TRY(gguf_vocab_fill_types(&c, k, s, p, why));
    TRY(gguf_vocab_fill_merges(&c, k, s, p, &names, why));
    if (k->scores) {
        cursor_seek(&c, k->scores->offset);
        TRY(cursor_copy(&c, p.scores, 4 * (size_t)s->tokens, KEY_SCORES, why));
    }
    if (!k->chat_template) return OK;
    cursor_seek(&c, k->chat_template->offset);
    return cursor_copy(&c, p.chat_template, s->chat_template_bytes, KEY_TEMPLATE, why);
}

Error gguf_vocab_build(const Gguf *g, Arena *arena, uint8_t **section, size_t *section_bytes,
                       Why *why)
{
    VocabShape s = {0};
    VocabKeys k;
    Vocab check;
    TRY(gguf_vocab_kind(g, &s, why));
    TRY(gguf_vocab_keys(g, &s, &k, why));
    TRY(gguf_vocab_specials(g, &s, why));
    uint64_t bytes = vocab_section_bytes(&s);
    *section = bytes <= SECTION_BYTES_MAX ? arena_take(arena, (size_t)bytes) : NULL;
    if (!*section)
        return error_why(why, ERR_TOO_LARGE, "a vocabulary of %u tokens takes %llu bytes", s.tokens,
                         (unsigned long long)bytes);
    *section_bytes = (size_t)bytes;
    size_t mark = arena_mark(arena);
    TRY(gguf_vocab_fill(g, &k, &s, vocab_write_fixed(&s, *section), arena, why));
    arena_reset(arena, mark);
    return vocab_parse(*section, *section_bytes, &check, why);
}
