/* SPDX-License-Identifier: Apache-2.0 */
/* The expressions, alternatives in order, L letters, N numbers, s white space:
 *
 *   gpt-2      's|'t|'re|'ve|'m|'ll|'d | _?L+ | _?N+ | _?[^sLN]+ | s+(?!S) | s+
 *   smollm     every number alone first, then gpt-2 on what lies between
 *   qwen2      the same contractions in any case | [^\r\nLN]?L+ | N | _?[^sLN]+[\r\n]* | s*[\r\n]+ | s+(?!S) | s+
 *   llama-bpe  as qwen2 with N{1,3}
 *
 * White space that stands before something else keeps its last character back ("s+(?!S)"), so that a space
 * can lead the next word. A scanner reads a stretch of white space at most three times: up to its last line
 * break, up to its last character, and that character. Source  tokenizer.json of the models. */
#include "text/pretokenize.h"

#include "text/unicode.h"
#include "text/utf8.h"

typedef struct Scan {
    const uint8_t *text;
    size_t bytes;
} Scan;

/* The character at `at`, 0 length at the end. */
typedef struct Character {
    uint32_t code, length;
    unsigned kind; /* UNICODE_LETTER, _NUMBER, _SPACE, or 0 for symbols and invalid bytes */
} Character;

enum { KINDS = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE };

static Character scan_at(const Scan *s, size_t at)
{
    Character c = {UTF8_INVALID, 0, KINDS};
    if (at >= s->bytes) return c;
    c.code = utf8_read(s->text + at, s->bytes - at, &c.length);
    c.kind = unicode_class(c.code) & KINDS;
    return c;
}

static bool is_break(Character c) { return c.code == '\r' || c.code == '\n'; }

/* The end of the stretch of characters of one kind. */
static size_t scan_kind(const Scan *s, size_t at, unsigned kind, size_t limit)
{
    Character c;
    while (limit-- > 0 && (c = scan_at(s, at)).kind == kind) at += c.length;
    return at;
}

/* U+017F, the long s, is an s in any-case comparisons. */
static uint32_t lower(uint32_t c)
{
    if (c == 0x17F) return 's';
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* 's 't 'm 'd 're 've 'll: the length at `at`, 0 when there is none. */
static size_t contraction(const Scan *s, size_t at, bool any_case)
{
    if (s->text[at] != '\'') return 0;
    Character one = scan_at(s, at + 1), two = scan_at(s, at + 1 + one.length);
    uint32_t a = any_case ? lower(one.code) : one.code, b = any_case ? lower(two.code) : two.code;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1 + one.length;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

/* s*[\r\n]+ (when `breaks`), s+(?!S), s+ at the start of a stretch of white space. `number_ends`: a number after it
 * counts as the end of the text. */
static size_t white_space(const Scan *s, size_t at, bool breaks, bool number_ends)
{
    size_t end = at, after_break = at, last = at;
    Character c;
    while ((c = scan_at(s, end)).kind == UNICODE_SPACE) {
        last = end;
        end += c.length;
        if (is_break(c)) after_break = end;
    }
    if (breaks && after_break > at) return after_break;
    if (c.length == 0 || (number_ends && c.kind == UNICODE_NUMBER)) return end;
    return last > at ? last : end;
}

static size_t word_gpt2(const Scan *s, size_t at, bool single_numbers)
{
    size_t length = contraction(s, at, false);
    if (length) return at + length;
    Character c = scan_at(s, at);
    if (single_numbers && c.kind == UNICODE_NUMBER) return at + c.length;
    size_t from = c.code == ' ' ? at + 1 : at;
    Character body = scan_at(s, from);
    bool joins = body.length && body.kind != UNICODE_SPACE &&
                 !(single_numbers && body.kind == UNICODE_NUMBER);
    if (joins) return scan_kind(s, from, body.kind, SIZE_MAX);
    return white_space(s, at, false, single_numbers);
}

static size_t word_qwen(const Scan *s, size_t at, size_t numbers)
{
    size_t length = contraction(s, at, true);
    if (length) return at + length;
    Character c = scan_at(s, at);
    if (c.kind == UNICODE_LETTER) return scan_kind(s, at, UNICODE_LETTER, SIZE_MAX);
    if (c.kind == UNICODE_NUMBER) return scan_kind(s, at, UNICODE_NUMBER, numbers);
    Character next = scan_at(s, at + c.length);
    if (!is_break(c) && next.length && next.kind == UNICODE_LETTER)
        return scan_kind(s, at + c.length, UNICODE_LETTER, SIZE_MAX);
    size_t from = c.code == ' ' ? at + 1 : at, end = scan_kind(s, from, 0, SIZE_MAX);
    if (end == from) return white_space(s, at, true, false);
    while (end < s->bytes && (s->text[end] == '\r' || s->text[end] == '\n')) end++;
    return end;
}

bool pretokenize_knows(VocabPre pre)
{
    return pre == VOCAB_PRE_QWEN2 || pre == VOCAB_PRE_GPT2 || pre == VOCAB_PRE_LLAMA_BPE ||
           pre == VOCAB_PRE_SMOLLM;
}

size_t pretokenize_word(VocabPre pre, const uint8_t *text, size_t bytes, size_t at)
{
    Scan s = {text, bytes};
    switch (pre) {
    case VOCAB_PRE_QWEN2: return word_qwen(&s, at, 1);
    case VOCAB_PRE_LLAMA_BPE: return word_qwen(&s, at, 3);
    case VOCAB_PRE_SMOLLM: return word_gpt2(&s, at, true);
    default: return word_gpt2(&s, at, false);
    }
}
