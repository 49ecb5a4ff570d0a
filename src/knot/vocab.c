/* SPDX-License-Identifier: Apache-2.0 */
/* The section's parts follow each other without gaps; once their lengths fit the section, every id
 * and end is checked, so that the accessors need not look again. */
#include "knot/vocab.h"

#include <string.h>

#include "base/bytes.h"

enum {
    VOCAB_FLAG_BOS = 1,
    VOCAB_FLAG_EOS = 2,
    VOCAB_FLAG_SPACE = 4,
    VOCAB_FLAG_SCORES = 8,
    VOCAB_FLAGS = 15
};

static bool vocab_id_fine(const Vocab *v, uint32_t id)
{
    return id < v->tokens || id == VOCAB_NO_TOKEN;
}

static Error vocab_parse_fixed(const uint8_t *s, Vocab *v, uint32_t *flags, Why *why)
{
    uint32_t model = bytes_load32(s + 8), pre = bytes_load32(s + 12);
    if (bytes_load32(s + 4) != 1)
        return error_why(why, ERR_FORMAT, "tokenizer section version %u; this program reads 1",
                         bytes_load32(s + 4));
    if (model != VOCAB_BPE && model != VOCAB_SENTENCEPIECE)
        return error_why(why, ERR_FORMAT, "tokenizer section: unknown model %u", model);
    if (pre > VOCAB_PRE_SMOLLM || (pre == VOCAB_PRE_NONE) != (model == VOCAB_SENTENCEPIECE))
        return error_why(why, ERR_FORMAT,
                         "tokenizer section: pre-tokenizer %u does not go with model %u", pre,
                         model);
    v->model = (VocabModel)model;
    v->pre = (VocabPre)pre;
    *flags = bytes_load32(s + 16);
    if (*flags & ~(uint32_t)VOCAB_FLAGS || bytes_load64(s + 56) != 0)
        return error_why(why, ERR_FORMAT, "tokenizer section: reserved bits are set");
    v->add_bos = *flags & VOCAB_FLAG_BOS;
    v->add_eos = *flags & VOCAB_FLAG_EOS;
    v->add_space_prefix = *flags & VOCAB_FLAG_SPACE;
    v->tokens = bytes_load32(s + 20);
    v->merges = bytes_load32(s + 24);
    v->bos = bytes_load32(s + 28);
    v->eos = bytes_load32(s + 32);
    v->eot = bytes_load32(s + 36);
    v->unknown = bytes_load32(s + 40);
    v->pad = bytes_load32(s + 44);
    if (v->tokens == 0 || v->tokens > VOCAB_TOKENS_MAX)
        return error_why(why, ERR_RANGE, "tokenizer section: %u tokens", v->tokens);
    if (vocab_id_fine(v, v->bos) && vocab_id_fine(v, v->eos) && vocab_id_fine(v, v->eot) &&
        vocab_id_fine(v, v->unknown) && vocab_id_fine(v, v->pad))
        return OK;
    return error_why(why, ERR_RANGE, "tokenizer section: a special id is outside the vocabulary");
}

static Error vocab_check_tokens(const Vocab *v, uint32_t text_bytes, Why *why)
{
    uint32_t start = 0;
    for (uint32_t i = 0; i < v->tokens; i++) {
        uint32_t end = bytes_load32(v->token_ends + 4 * (size_t)i);
        if (end < start || end > text_bytes || end - start > VOCAB_TOKEN_BYTES_MAX)
            return error_why(why, ERR_RANGE, "tokenizer section: token %u ends at %u after %u", i,
                             end, start);
        if (v->types[i] < VOCAB_NORMAL || v->types[i] > VOCAB_BYTE)
            return error_why(why, ERR_RANGE, "tokenizer section: token %u has type %u", i,
                             v->types[i]);
        start = end;
    }
    if (start == text_bytes) return OK;
    return error_why(why, ERR_RANGE, "tokenizer section: the pieces end at %u of %u bytes", start,
                     text_bytes);
}

static Error vocab_check_numbers(const Vocab *v, Why *why)
{
    for (uint32_t i = 0; v->scores && i < v->tokens; i++) {
        uint32_t bits = bytes_load32(v->scores + 4 * (size_t)i);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            return error_why(why, ERR_RANGE,
                             "tokenizer section: the score of token %u is not finite", i);
    }
    for (uint32_t i = 0; i < v->merges; i++) {
        VocabMerge m = vocab_merge(v, i);
        if (m.left >= v->tokens || m.right >= v->tokens || m.merged >= v->tokens)
            return error_why(why, ERR_RANGE,
                             "tokenizer section: merge %u names an id outside the vocabulary", i);
    }
    return OK;
}

Error vocab_parse(const uint8_t *section, size_t bytes, Vocab *out, Why *why)
{
    memset(out, 0, sizeof *out);
    if (bytes < VOCAB_HEADER_BYTES)
        return error_why(why, ERR_TRUNCATED, "the tokenizer section has %zu bytes", bytes);
    if (memcmp(section, "KTOK", 4) != 0)
        return error_why(why, ERR_FORMAT, "the tokenizer section does not start with KTOK");
    uint32_t flags = 0;
    TRY(vocab_parse_fixed(section, out, &flags, why));
    uint32_t text_bytes = bytes_load32(section + 48);
    out->chat_template_bytes = bytes_load32(section + 52);
    uint64_t scores = flags & VOCAB_FLAG_SCORES ? 4 * (uint64_t)out->tokens : 0;
    uint64_t ends_at = VOCAB_HEADER_BYTES, scores_at = ends_at + 4 * (uint64_t)out->tokens;
    uint64_t merges_at = scores_at + scores, types_at = merges_at + 12 * (uint64_t)out->merges;
    uint64_t text_at = types_at + out->tokens, template_at = text_at + text_bytes;
    uint64_t end =
        template_at + out->chat_template_bytes; /* seven numbers below 2^36: no overflow */
    if (end > bytes)
        return error_why(why, ERR_TRUNCATED, "the tokenizer section needs %llu bytes, it has %zu",
                         (unsigned long long)end, bytes);
    if (end < bytes)
        return error_why(why, ERR_FORMAT, "the tokenizer section has %llu bytes too many",
                         (unsigned long long)(bytes - end));
    out->token_ends = section + ends_at;
    out->scores = scores ? section + scores_at : NULL;
    out->merge_list = section + merges_at;
    out->types = section + types_at;
    out->token_text = section + text_at;
    out->chat_template = section + template_at;
    TRY(vocab_check_tokens(out, text_bytes, why));
    return vocab_check_numbers(out, why);
}

const uint8_t *vocab_token(const Vocab *v, uint32_t id, uint32_t *bytes)
{
    ASSERT(id < v->tokens);
    uint32_t start = id ? bytes_load32(v->token_ends + 4 * (size_t)(id - 1)) : 0;
    *bytes = bytes_load32(v->token_ends + 4 * (size_t)id) - start;
    return v->token_text + start;
}

VocabTokenType vocab_type(const Vocab *v, uint32_t id)
{
    ASSERT(id < v->tokens);
    return (VocabTokenType)v->types[id];
}

float vocab_score(const Vocab *v, uint32_t id)
{
    ASSERT(id < v->tokens);
    return v->scores ? bytes_load_f32(v->scores + 4 * (size_t)id) : 0.0f;
}

VocabMerge vocab_merge(const Vocab *v, uint32_t rank)
{
    ASSERT(rank < v->merges);
    const uint8_t *m = v->merge_list + 12 * (size_t)rank;
    return (VocabMerge){bytes_load32(m), bytes_load32(m + 4), bytes_load32(m + 8)};
}

/* --- writing --- */

uint64_t vocab_section_bytes(const VocabShape *s)
{
    return VOCAB_HEADER_BYTES + (uint64_t)s->tokens * (s->scores ? 9 : 5) +
           12 * (uint64_t)s->merges + s->text_bytes + s->chat_template_bytes;
}

VocabParts vocab_write_fixed(const VocabShape *s, uint8_t *section)
{
    uint32_t flags = (s->add_bos ? VOCAB_FLAG_BOS : 0u) | (s->add_eos ? VOCAB_FLAG_EOS : 0u) |
                     (s->add_space_prefix ? VOCAB_FLAG_SPACE : 0u) |
                     (s->scores ? VOCAB_FLAG_SCORES : 0u);
    const uint32_t words[16] = {0,
                                1,
                                (uint32_t)s->model,
                                (uint32_t)s->pre,
                                flags,
                                s->tokens,
                                s->merges,
                                s->bos,
                                s->eos,
                                s->eot,
                                s->unknown,
                                s->pad,
                                s->text_bytes,
                                s->chat_template_bytes,
                                0,
                                0};
    for (size_t i = 0; i < 16; i++) bytes_store32(section + 4 * i, words[i]);
    memcpy(section, "KTOK", 4);
    VocabParts p;
    p.ends = section + VOCAB_HEADER_BYTES;
    p.scores = p.ends + 4 * (size_t)s->tokens;
    p.merges = p.scores + (s->scores ? 4 * (size_t)s->tokens : 0);
    p.types = p.merges + 12 * (size_t)s->merges;
    p.text = p.types + s->tokens;
    p.chat_template = p.text + s->text_bytes;
    return p;
}
