/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja_text.h. */
#include "text/jinja_text.h"

#include <string.h>

#include "text/utf8.h"

enum { COPIED_BYTES = 240 };

/* ---- Cutting ---- */

JinjaText jinja_text_cut(JinjaText t, size_t from, size_t to)
{
    if (to > t.count) to = t.count;
    if (from > to) from = to;
    return (JinjaText){t.bytes ? t.bytes + from : NULL,
                       t.mark == JINJA_MIXED ? t.marks + from : NULL, to - from, t.mark};
}

JinjaMark jinja_text_mark(JinjaText t, size_t at)
{
    return t.mark == JINJA_MIXED ? (JinjaMark)t.marks[at] : t.mark;
}

bool jinja_text_is_space(uint32_t c)
{
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool in_set(JinjaText set, uint32_t c)
{
    for (size_t at = 0; at < set.count;) {
        uint32_t length;
        if (utf8_read(set.bytes + at, set.count - at, &length) == c) return true;
        at += length;
    }
    return false;
}

static bool is_stripped(const JinjaText *set, uint32_t c)
{
    return set ? in_set(*set, c) : jinja_text_is_space(c);
}

static size_t last_character(JinjaText t)
{
    size_t at = t.count - 1;
    while (at && t.count - at < 4 && (t.bytes[at] & 0xC0) == 0x80) at--;
    return jinja_text_step(t, at) == t.count - at ? at : t.count - 1;
}

static JinjaText strip(JinjaText t, const JinjaText *set, unsigned sides)
{
    uint32_t length;
    while ((sides & JINJA_STRIP_LEFT) && t.count &&
           is_stripped(set, utf8_read(t.bytes, t.count, &length)))
        t = jinja_text_cut(t, length, t.count);
    while ((sides & JINJA_STRIP_RIGHT) && t.count) {
        size_t at = last_character(t);
        if (!is_stripped(set, utf8_read(t.bytes + at, t.count - at, &length))) break;
        t = jinja_text_cut(t, 0, at);
    }
    return t;
}

JinjaText jinja_text_strip(JinjaText t, unsigned sides) { return strip(t, NULL, sides); }

JinjaText jinja_text_strip_set(JinjaText t, JinjaText set, unsigned sides)
{
    return strip(t, &set, sides);
}

/* ---- Looking ---- */

static bool stands(JinjaText t, size_t at, JinjaText what)
{
    return t.count - at >= what.count &&
           (what.count == 0 || memcmp(t.bytes + at, what.bytes, what.count) == 0);
}

bool jinja_text_starts(JinjaText t, JinjaText with) { return stands(t, 0, with); }

bool jinja_text_ends(JinjaText t, JinjaText with)
{
    return t.count >= with.count && stands(t, t.count - with.count, with);
}

size_t jinja_text_find(JinjaText t, JinjaText what, size_t from)
{
    if (what.count == 0) return from;
    while (from < t.count) {
        const uint8_t *at = memchr(t.bytes + from, what.bytes[0], t.count - from);
        if (!at) return t.count;
        from = (size_t)(at - t.bytes);
        if (stands(t, from, what)) return from;
        from++;
    }
    return t.count;
}

size_t jinja_text_find_last(JinjaText t, JinjaText what)
{
    if (what.count > t.count) return t.count;
    for (size_t at = t.count - what.count + 1; at-- > 0;)
        if (stands(t, at, what)) return at;
    return t.count;
}

size_t jinja_text_step(JinjaText t, size_t at)
{
    uint32_t length;
    (void)utf8_read(t.bytes + at, t.count - at, &length);
    return length;
}

size_t jinja_text_characters(JinjaText t)
{
    size_t count = 0;
    for (size_t at = 0; at < t.count; count++) at += jinja_text_step(t, at);
    return count;
}

size_t jinja_text_byte(JinjaText t, size_t character)
{
    size_t at = 0;
    for (; character && at < t.count; character--) at += jinja_text_step(t, at);
    return at;
}

/* ---- Case ---- */

/* Pairs of an upper character and the lower one behind it. */
static bool is_paired(uint32_t c)
{
    return (c >= 0x100 && c < 0x130) || (c >= 0x132 && c < 0x138) || (c >= 0x14A && c < 0x178) ||
           (c >= 0x460 && c < 0x482) || (c >= 0x48A && c < 0x4C0) || (c >= 0x4D0 && c < 0x530) ||
           (c >= 0x1E00 && c < 0x1E96) || (c >= 0x1EA0 && c < 0x1F00);
}

/* Pairs that begin at odd numbers. */
static bool is_paired_odd(uint32_t c)
{
    return (c >= 0x139 && c < 0x149) || (c >= 0x179 && c < 0x17F);
}

/* Greek vowels with tonos, which lie in no row. */
static const uint16_t TONOS[][2] = {{0x386, 0x3AC}, {0x388, 0x3AD}, {0x389, 0x3AE}, {0x38A, 0x3AF},
                                    {0x38C, 0x3CC}, {0x38E, 0x3CD}, {0x38F, 0x3CE}};

static uint32_t turn_tonos(uint32_t c, int from)
{
    for (size_t i = 0; i < sizeof TONOS / sizeof *TONOS; i++)
        if (TONOS[i][from] == c) return TONOS[i][!from];
    return c;
}

uint32_t jinja_text_lower(uint32_t c)
{
    if (c >= 'A' && c <= 'Z') return c + 32;
    if (c < 0xC0) return c;
    if (c <= 0xDE) return c == 0xD7 ? c : c + 32;
    if (c == 0x178) return 0xFF;
    if (is_paired(c)) return c | 1;
    if (is_paired_odd(c)) return c + (c & 1);
    if (c >= 0x391 && c <= 0x3AB && c != 0x3A2) return c + 32;
    if (c >= 0x410 && c <= 0x42F) return c + 32;
    return c >= 0x400 && c <= 0x40F ? c + 80 : turn_tonos(c, 0);
}

uint32_t jinja_text_upper(uint32_t c)
{
    if (c >= 'a' && c <= 'z') return c - 32;
    if (c == 0xB5) return 0x39C;
    if (c < 0xE0) return c;
    if (c <= 0xFE) return c == 0xF7 ? c : c - 32;
    if (c == 0xFF) return 0x178;
    if (is_paired(c)) return c & ~1u;
    if (is_paired_odd(c)) return c - !(c & 1);
    if (c >= 0x3B1 && c <= 0x3CB && c != 0x3C2) return c - 32;
    if (c == 0x3C2) return 0x3A3;
    if (c >= 0x430 && c <= 0x44F) return c - 32;
    return c >= 0x450 && c <= 0x45F ? c - 80 : turn_tonos(c, 1);
}

/* ---- Joining ---- */

JinjaBuilder jinja_text_builder(Arena *arena, size_t bytes_max)
{
    return (JinjaBuilder){.arena = arena, .bytes_max = bytes_max};
}

static JinjaText *new_piece(JinjaBuilder *b)
{
    if (!b->last || b->last->count == JINJA_PIECES) {
        JinjaBlock *block = arena_take_raw(b->arena, sizeof *block);
        if (!block) {
            b->no_memory = true;
            return NULL;
        }
        block->count = 0;
        block->next = NULL;
        if (b->last) b->last->next = block;
        else b->first = block;
        b->last = block;
    }
    return &b->last->pieces[b->last->count++];
}

static bool counts(JinjaBuilder *b, size_t bytes)
{
    if (b->bytes_max - b->bytes < bytes) b->too_long = true;
    if (b->too_long || b->no_memory) return false;
    b->bytes += bytes;
    return bytes > 0;
}

void jinja_text_add(JinjaBuilder *b, JinjaText text)
{
    if (!counts(b, text.count)) return;
    JinjaText *piece = new_piece(b);
    if (piece) *piece = text;
    b->copied = NULL;
}

void jinja_text_add_words(JinjaBuilder *b, const char *words)
{
    jinja_text_add(b, jinja_value_words(words));
}

/* Right behind the bytes copied before, if the last piece ends there and is of the same kind. */
void jinja_text_add_bytes(JinjaBuilder *b, const void *bytes, size_t count, JinjaMark mark)
{
    if (!counts(b, count)) return;
    bool goes_on = b->copied && b->copied_room - b->copied_count >= count;
    if (!goes_on) {
        b->copied_room = count > COPIED_BYTES ? count : COPIED_BYTES;
        b->copied = arena_take_raw(b->arena, b->copied_room);
        b->copied_count = 0;
        if (!b->copied) {
            b->no_memory = true;
            return;
        }
    }
    JinjaText *piece = goes_on ? &b->last->pieces[b->last->count - 1] : NULL;
    if (!piece || piece->mark != mark) {
        piece = new_piece(b);
        if (!piece) return;
        *piece = (JinjaText){b->copied + b->copied_count, NULL, 0, mark};
    }
    memcpy(b->copied + b->copied_count, bytes, count);
    b->copied_count += count;
    piece->count += count;
}

void jinja_text_add_character(JinjaBuilder *b, uint32_t c, JinjaMark mark)
{
    uint8_t bytes[4];
    jinja_text_add_bytes(b, bytes, utf8_write(c, bytes), mark);
}

static JinjaMark common_mark(const JinjaBuilder *b)
{
    JinjaMark mark = b->first->pieces[0].mark;
    for (const JinjaBlock *block = b->first; block; block = block->next)
        for (unsigned i = 0; i < block->count; i++)
            if (block->pieces[i].mark != mark) return JINJA_MIXED;
    return mark;
}

static void copy_piece(const JinjaText *piece, uint8_t *bytes, uint8_t *marks, size_t at)
{
    memcpy(bytes + at, piece->bytes, piece->count);
    if (!marks) return;
    if (piece->mark == JINJA_MIXED) memcpy(marks + at, piece->marks, piece->count);
    else memset(marks + at, (int)piece->mark, piece->count);
}

Error jinja_text_finish(JinjaBuilder *b, JinjaText *out)
{
    *out = (JinjaText){0};
    if (b->no_memory) return ERR_MEMORY;
    if (b->too_long) return ERR_TOO_LARGE;
    if (!b->first) return OK;
    *out = b->first->pieces[0];
    if (b->first->count == 1) return OK;
    JinjaMark mark = common_mark(b);
    uint8_t *bytes = arena_take_raw(b->arena, b->bytes),
            *marks = mark == JINJA_MIXED ? arena_take_raw(b->arena, b->bytes) : NULL;
    if (!bytes || (mark == JINJA_MIXED && !marks)) return ERR_MEMORY;
    size_t at = 0;
    for (const JinjaBlock *block = b->first; block; block = block->next)
        for (unsigned i = 0; i < block->count; i++) {
            copy_piece(&block->pieces[i], bytes, marks, at);
            at += block->pieces[i].count;
        }
    *out = (JinjaText){bytes, marks, at, mark};
    return OK;
}
