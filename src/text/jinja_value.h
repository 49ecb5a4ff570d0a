/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a template: Python's, as far as templates see them. Texts, lists and dictionaries are never
 * changed once they are made (a namespace's dictionary is the one exception), so a value is copied by its few
 * words.
 *
 * Every byte of a text is the template's own or foreign, from a message. A slice, a sum, a filter keep that, so that
 * the rendered text says byte by byte where it may hold control tokens. A text of one kind needs no marks:
 *
 *   mark    OWN | FOREIGN        all bytes
 *           MIXED                marks[i] is JINJA_OWN or JINJA_FOREIGN for bytes[i] */
#ifndef COBORD_TEXT_JINJA_VALUE_H
#define COBORD_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

typedef enum JinjaMark { JINJA_OWN, JINJA_FOREIGN, JINJA_MIXED } JinjaMark;

typedef struct JinjaText {
    const uint8_t *bytes, *marks;
    size_t count;
    JinjaMark mark;
} JinjaText;

typedef enum JinjaKind {
    JINJA_UNDEFINED, /* text: how the template called it */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST, /* also what Python's generators, ranges and views would give */
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global one; text: its name */
    JINJA_METHOD    /* of a value; its name in the method */
} JinjaKind;

typedef struct JinjaValue JinjaValue;
typedef struct JinjaPair JinjaPair;

typedef struct JinjaList {
    JinjaValue *items;
    size_t count;
} JinjaList;

typedef struct JinjaDict {
    JinjaPair *pairs; /* in the order of insertion */
    size_t count, room;
} JinjaDict;

struct JinjaValue {
    JinjaKind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        JinjaText text;
        const JinjaList *list;
        JinjaDict *dict;
        const struct JinjaLoop *loop;
        const struct JinjaMacro *macro;
        const struct JinjaMethod *method;
    };
};

struct JinjaPair {
    JinjaValue key, value;
};

typedef struct JinjaMethod {
    JinjaValue self;
    JinjaText name;
} JinjaMethod;

/* Makers that need no memory. `words` must outlive the value. */
JinjaText jinja_value_words(const char *words);
JinjaValue jinja_value_bool(bool truth);
JinjaValue jinja_value_int(int64_t integer);
JinjaValue jinja_value_float(double number);
JinjaValue jinja_value_text(JinjaText text);
JinjaValue jinja_value_none(void);

/* Makers in an arena; a NULL from them is a lack of memory. */
JinjaList *jinja_value_list(Arena *arena, size_t count);
JinjaDict *jinja_value_dict(Arena *arena, size_t room);
/* Sets a key, which is there once. Result  false for a lack of memory. */
bool jinja_value_put(Arena *arena, JinjaDict *dict, JinjaValue key, JinjaValue value);
bool jinja_value_put_words(Arena *arena, JinjaDict *dict, const char *key, JinjaValue value);
const JinjaValue *jinja_value_get(const JinjaDict *dict, JinjaValue key);

bool jinja_value_is(JinjaText text, const char *words);
bool jinja_value_is_list(const JinjaValue *v);   /* or a tuple */
bool jinja_value_is_number(const JinjaValue *v); /* bool, int, float */
double jinja_value_number(const JinjaValue *v);
bool jinja_value_true(const JinjaValue *v);
bool jinja_value_same(const JinjaValue *a, const JinjaValue *b); /* == */
/* -1, 0, 1, or -2 where Python has no order. */
int jinja_value_order(const JinjaValue *a, const JinjaValue *b);
const char *jinja_value_kind(const JinjaValue *v); /* Python's name of its type */

#endif
