/* SPDX-License-Identifier: Apache-2.0 */
/* Marked texts: cut, joined and turned, never losing whose each byte is. Positions that templates see count
 * characters; a byte that is no UTF-8 counts as one. */
#ifndef COBORD_TEXT_JINJA_TEXT_H
#define COBORD_TEXT_JINJA_TEXT_H

#include "text/jinja_value.h"

enum { JINJA_STRIP_LEFT = 1, JINJA_STRIP_RIGHT = 2, JINJA_PIECES = 31 };

JinjaText jinja_text_cut(JinjaText t, size_t from, size_t to); /* bytes */
JinjaMark jinja_text_mark(JinjaText t, size_t at);
/* Python's white space, or any of the characters of `set`, off the sides. */
JinjaText jinja_text_strip(JinjaText t, unsigned sides);
JinjaText jinja_text_strip_set(JinjaText t, JinjaText set, unsigned sides);
bool jinja_text_is_space(uint32_t c);
bool jinja_text_starts(JinjaText t, JinjaText with);
bool jinja_text_ends(JinjaText t, JinjaText with);
/* The first place of `what` at or behind `from`, t.count when there is none. An empty one is everywhere. */
size_t jinja_text_find(JinjaText t, JinjaText what, size_t from);
size_t jinja_text_find_last(JinjaText t, JinjaText what);
/* Length in characters; the length of the character at a byte; the byte at which a character begins. */
size_t jinja_text_characters(JinjaText t);
size_t jinja_text_step(JinjaText t, size_t at);
size_t jinja_text_byte(JinjaText t, size_t character);
/* Simple case mapping of Latin, Greek and Cyrillic; other characters stay. */
uint32_t jinja_text_lower(uint32_t c);
uint32_t jinja_text_upper(uint32_t c);

/* Joins texts. Pieces are kept as they are until the end; bytes that exist nowhere else are copied. A lack of memory
 * or more than bytes_max is remembered and told by finish.
 *
 *   block { piece piece piece ... } -> block -> ... */
typedef struct JinjaBlock {
    JinjaText pieces[JINJA_PIECES];
    unsigned count;
    struct JinjaBlock *next;
} JinjaBlock;

typedef struct JinjaBuilder {
    Arena *arena;
    JinjaBlock *first, *last;
    size_t bytes, bytes_max;
    uint8_t *copied;
    size_t copied_count, copied_room;
    bool no_memory, too_long;
} JinjaBuilder;

JinjaBuilder jinja_text_builder(Arena *arena, size_t bytes_max);
void jinja_text_add(JinjaBuilder *b, JinjaText text);
void jinja_text_add_words(JinjaBuilder *b, const char *words);
void jinja_text_add_bytes(JinjaBuilder *b, const void *bytes, size_t count, JinjaMark mark);
void jinja_text_add_character(JinjaBuilder *b, uint32_t c, JinjaMark mark);
MUST_CHECK Error jinja_text_finish(JinjaBuilder *b, JinjaText *out);

#endif
