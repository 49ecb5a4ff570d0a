/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that read a schema share. Functions that make a part return its node, 0 after a fault, as the
 * GrammarBuilder does. */
#ifndef COBORD_API_SCHEMA_STATE_H
#define COBORD_API_SCHEMA_STATE_H

#include "api/schema.h"

enum { SCHEMA_PATH_MAX = 120, SCHEMA_COMPARED_MAX = 10000000 };

/* Types as bits; a number may be an integer. */
enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_FRACTION = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_NUMBER = SCHEMA_INTEGER | SCHEMA_FRACTION,
    SCHEMA_ALL = 127
};

enum { SCHEMA_ANY_OF = 1, SCHEMA_ONE_OF = 2 };

/* One schema of a view, and which of its choices have been made. */
typedef struct SchemaItem {
    yyjson_val *value;
    uint32_t chosen;
} SchemaItem;

/* All schemas that apply at a place. */
typedef struct SchemaView {
    SchemaItem items[SCHEMA_VIEW_MAX];
    uint32_t count;
    uint32_t types; /* narrowed from outside */
    bool never;     /* false is one of them */
} SchemaView;

/* A rule that waits for its turn. */
typedef struct SchemaWaiting {
    SchemaView view;
    uint32_t rule;
    char path[SCHEMA_PATH_MAX];
    struct SchemaWaiting *next;
} SchemaWaiting;

typedef struct SchemaProperty {
    yyjson_val *key;
    bool required;
    uint32_t node; /* "key": value */
} SchemaProperty;

typedef struct Schema {
    GrammarBuilder *b;
    Arena *arena;
    yyjson_val *root;
    SchemaWaiting *first, *last, *turn;
    uint64_t compared;          /* values and names: at most SCHEMA_COMPARED_MAX */
    uint32_t space, character;  /* shared rules */
    SchemaProperty *properties; /* [SCHEMA_PROPERTIES_MAX] of the object whose turn it is */
    yyjson_val **keys;          /* [SCHEMA_PROPERTIES_MAX] */
    char path[SCHEMA_PATH_MAX];
    size_t path_bytes;
} Schema;

/* schema.c */
/* Takes memory that stays taken until the grammar is finished. */
MUST_CHECK Error schema_start(Schema *s, GrammarBuilder *b, Arena *scratch, Why *why);
/* A value of these types that the schema accepts, with all rules that it needs; `root` NULL: any value of them. Several
 * schemas can be parts of one grammar. */
uint32_t schema_part(Schema *s, yyjson_val *root, uint32_t types);
static inline bool schema_failed(const Schema *s) { return s->b->error != OK; }
/* "at $.properties.age: " and what is wrong; `word` may be NULL. Result  0. */
uint32_t schema_fault(Schema *s, Error error, const char *what, const char *word);
/* Counts a comparison; after too many the schema is refused. Result  false then. */
bool schema_count(Schema *s);
/* Appends to the path; the result goes to schema_leave. */
size_t schema_enter(Schema *s, const char *word, const char *name, size_t bytes);
void schema_leave(Schema *s, size_t mark);
/* A call of the rule of a view. */
uint32_t schema_call(Schema *s, const SchemaView *view);

/* schema_view.c */
SchemaView schema_view(void);
void schema_view_add(Schema *s, SchemaView *view, yyjson_val *schema);
/* What is left of types; 0: nothing satisfies it. */
uint32_t schema_view_types(Schema *s, const SchemaView *view);
bool schema_view_is_never(Schema *s, const SchemaView *view);
/* Whether a property must be there. */
bool schema_view_requires(Schema *s, const SchemaView *view, yyjson_val *key);
/* The first value of a keyword; how many schemas have it. */
yyjson_val *schema_view_get(const SchemaView *view, const char *keyword);
uint32_t schema_view_count(const SchemaView *view, const char *keyword);
/* The largest (smallest) count of a keyword, `none` without it. */
uint32_t schema_view_most(Schema *s, const SchemaView *view, const char *keyword, uint32_t none);
uint32_t schema_view_least(Schema *s, const SchemaView *view, const char *keyword, uint32_t none);
/* Whether two branches can never both hold, by types, values, or the values of a property both require. */
bool schema_view_are_apart(Schema *s, const SchemaView *a, const SchemaView *b);

/* The types that a keyword is about; SCHEMA_ALL for those about all, 0 for one that is not known. */
uint32_t schema_view_types_of_keyword(const char *keyword);
uint32_t schema_view_type_of(yyjson_val *value);

/* schema_value.c, schema_object.c, schema_string.c, schema_pattern.c, schema_number.c */
uint32_t schema_value_listed(Schema *s, const SchemaView *view, uint32_t types);
uint32_t schema_object(Schema *s, const SchemaView *view);
uint32_t schema_object_array(Schema *s, const SchemaView *view);
uint32_t schema_string(Schema *s, const SchemaView *view);
/* A JSON string of exactly this text, with its quotes. */
uint32_t schema_string_of(Schema *s, const char *text, size_t bytes);
/* The same to out[SCHEMA_ESCAPE_BYTES_MAX * bytes + 2]. Result  bytes. */
enum { SCHEMA_ESCAPE_BYTES_MAX = 6 };
size_t schema_string_write(const char *text, size_t bytes, char *out);
/* A key that is none of these. */
uint32_t schema_string_except(Schema *s, yyjson_val *const *keys, uint32_t count);
/* One character of a class, as it stands in a JSON string. */
uint32_t schema_string_class(Schema *s, const GrammarRange *ranges, uint32_t count, bool negated);
/* The inside of a JSON string that a regular expression finds something in. */
uint32_t schema_pattern(Schema *s, const char *pattern, size_t bytes);
uint32_t schema_number(Schema *s, const SchemaView *view, bool whole);

/* schema.c: shared parts. */
uint32_t schema_space(Schema *s);
uint32_t schema_character(Schema *s); /* any one, escaped or not */

#endif
