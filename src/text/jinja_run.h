/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one rendering, shared by the files that evaluate: jinja_eval.c (expressions), jinja_statement.c,
 * jinja_math.c, jinja_member.c (a.b, a[b], slices), jinja_function.c (globals), jinja_method.c, jinja_is.c,
 * jinja_filter.c and jinja_sequence.c (filters), jinja_write.c (str, repr, tojson).
 *
 *   scope   globals <- template <- loop or macro or with <- ...      names are looked up from the innermost
 *   steps   one for each node evaluated, and more for work that grows with data; bounded */
#ifndef COBORD_TEXT_JINJA_RUN_H
#define COBORD_TEXT_JINJA_RUN_H

#include "text/jinja_text.h"
#include "text/jinja_tree.h"

/* Deep enough for templates in the wild, and 256 KiB of stack. */
enum { JINJA_DEPTH_MAX = 160, JINJA_ARGUMENTS_MAX = 16, JINJA_RANGE_MAX = 100000 };

typedef struct JinjaVariable {
    JinjaText name;
    JinjaValue value;
    struct JinjaVariable *next;
} JinjaVariable;

typedef struct JinjaScope {
    struct JinjaScope *parent;
    JinjaVariable *first;
} JinjaScope;

typedef struct JinjaLoop {
    const JinjaList *list;
    size_t index;
    unsigned depth;
    JinjaValue *changed; /* what loop.changed saw last */
} JinjaLoop;

typedef struct JinjaMacro {
    const JinjaNode *node; /* MACRO or CALL_BLOCK */
    JinjaScope *scope;     /* where it was defined */
} JinjaMacro;

typedef struct JinjaArguments {
    JinjaValue values[JINJA_ARGUMENTS_MAX];
    JinjaText names[JINJA_ARGUMENTS_MAX]; /* of those with a name, which come last */
    size_t count, unnamed;
} JinjaArguments;

typedef enum JinjaJump { JINJA_GO_ON, JINJA_BREAK, JINJA_CONTINUE } JinjaJump;

typedef struct JinjaRun {
    Arena *arena;
    Why *why;
    const uint8_t *source;
    size_t source_bytes;
    const JinjaNode *at; /* what is being evaluated */
    JinjaScope *scope;
    JinjaBuilder *out;
    uint64_t steps_left;
    size_t bytes_max;
    unsigned depth, loops;
    JinjaJump jump;
    int64_t now_s;
} JinjaRun;

/* error_why with line and column in front; `format` must be a literal, and has at least one argument. */
#define JINJA_FAIL(run, error, format, ...)                                                  \
    error_why((run)->why, (error), "line %u, column %u: " format, jinja_run_line(run, true), \
              jinja_run_line(run, false), __VA_ARGS__)
unsigned jinja_run_line(const JinjaRun *r, bool line);
MUST_CHECK Error jinja_run_fail(const JinjaRun *r, const char *text); /* ERR_TYPE */
MUST_CHECK Error jinja_run_no_memory(const JinjaRun *r);
MUST_CHECK Error jinja_run_spend(JinjaRun *r, uint64_t steps);
MUST_CHECK Error jinja_run_finish(JinjaRun *r, JinjaBuilder *b, JinjaText *out);
JinjaBuilder jinja_run_builder(const JinjaRun *r);
MUST_CHECK Error jinja_run_list(JinjaRun *r, size_t count, JinjaList **out);
MUST_CHECK Error jinja_run_set(JinjaRun *r, JinjaScope *scope, JinjaText name, JinjaValue value);
MUST_CHECK Error jinja_run_scope(JinjaRun *r, JinjaScope *parent, JinjaScope **out);
/* A row of a known length, or growing by doubling. */
MUST_CHECK Error jinja_run_push(JinjaRun *r, JinjaList *list, size_t *room, JinjaValue value);
/* How a message calls a text: cut, for %.*s. */
#define JINJA_SHOW(text) (int)((text).count < 60 ? (text).count : 60), (const char *)(text).bytes

/* The argument at that place or of that name, NULL when it is not given. */
const JinjaValue *jinja_run_argument(const JinjaArguments *a, size_t index, const char *name);
MUST_CHECK Error jinja_run_int(JinjaRun *r, const JinjaValue *v, int64_t *out);

/* jinja_eval.c */
MUST_CHECK Error jinja_eval(JinjaRun *r, const JinjaNode *node, JinjaValue *out);
MUST_CHECK Error jinja_eval_arguments(JinjaRun *r, const JinjaNode *list, JinjaArguments *out);
MUST_CHECK Error jinja_eval_call(JinjaRun *r, const JinjaValue *callee, JinjaArguments *a,
                                 JinjaValue *out);
MUST_CHECK Error jinja_eval_filters(JinjaRun *r, const JinjaNode *filters, JinjaValue *value);
/* What a loop over a value sees: items, keys, characters. */
MUST_CHECK Error jinja_eval_items(JinjaRun *r, const JinjaValue *v, const JinjaList **out);

/* jinja_statement.c */
MUST_CHECK Error jinja_statement_body(JinjaRun *r, const JinjaNode *list);
MUST_CHECK Error jinja_statement_macro(JinjaRun *r, const JinjaMacro *m, const JinjaArguments *a,
                                       const JinjaValue *caller, JinjaValue *out);

/* jinja_math.c */
MUST_CHECK Error jinja_math(JinjaRun *r, JinjaOp op, const JinjaValue *a, const JinjaValue *b,
                            JinjaValue *out);
MUST_CHECK Error jinja_math_negate(JinjaRun *r, const JinjaValue *a, JinjaValue *out);
MUST_CHECK Error jinja_math_compare(JinjaRun *r, JinjaOp op, const JinjaValue *a,
                                    const JinjaValue *b, bool *out);
MUST_CHECK Error jinja_math_order(JinjaRun *r, const JinjaValue *a, const JinjaValue *b, int *out);

/* jinja_member.c */
MUST_CHECK Error jinja_member_named(JinjaRun *r, const JinjaValue *of, JinjaText name,
                                    JinjaValue *out);
MUST_CHECK Error jinja_member_item(JinjaRun *r, const JinjaValue *of, const JinjaValue *key,
                                   JinjaValue *out);
MUST_CHECK Error jinja_member_slice(JinjaRun *r, const JinjaValue *of, const JinjaValue bounds[3],
                                    JinjaValue *out);
/* "function.name" or 0, as map(attribute=...) takes it. */
MUST_CHECK Error jinja_member_path(JinjaRun *r, const JinjaValue *of, const JinjaValue *path,
                                   JinjaValue *out);

/* jinja_function.c, jinja_method.c, jinja_is.c, jinja_filter.c, jinja_sequence.c */
bool jinja_function_exists(JinjaText name);
MUST_CHECK Error jinja_function_call(JinjaRun *r, JinjaText name, const JinjaArguments *a,
                                     JinjaValue *out);
bool jinja_method_exists(const JinjaValue *self, JinjaText name);
MUST_CHECK Error jinja_method_call(JinjaRun *r, const JinjaMethod *m, const JinjaArguments *a,
                                   JinjaValue *out);
MUST_CHECK Error jinja_is(JinjaRun *r, JinjaText name, const JinjaValue *v, const JinjaArguments *a,
                          bool *out);
typedef Error (*JinjaFilter)(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                             JinjaValue *out);
MUST_CHECK Error jinja_filter(JinjaRun *r, JinjaText name, const JinjaValue *v,
                              const JinjaArguments *a, JinjaValue *out);
JinjaFilter jinja_sequence_find(JinjaText name);
MUST_CHECK Error jinja_method_replace(JinjaRun *r, JinjaText t, JinjaText old, JinjaText with,
                                      int64_t most, JinjaText *out);
MUST_CHECK Error jinja_method_case(JinjaRun *r, JinjaText t, int how, JinjaText *out);
enum { JINJA_CASE_UPPER, JINJA_CASE_LOWER, JINJA_CASE_CAPITAL, JINJA_CASE_TITLE, JINJA_CASE_SWAP };
MUST_CHECK Error jinja_method_lines(JinjaRun *r, JinjaText t, JinjaList **out);
MUST_CHECK Error jinja_format_percent(JinjaRun *r, JinjaText t, const JinjaValue *values,
                                      size_t count, JinjaText *out);
MUST_CHECK Error jinja_format_braces(JinjaRun *r, JinjaText t, const JinjaArguments *a,
                                     JinjaText *out);

/* jinja_write.c: str(v), which for a text is itself; repr(v); JSON as HF's tojson writes it. */
typedef struct JinjaJson {
    JinjaText indent, item, key; /* indent.bytes NULL: on one line */
    bool ascii, sorted;
} JinjaJson;
MUST_CHECK Error jinja_write_str(JinjaRun *r, const JinjaValue *v, JinjaText *out);
MUST_CHECK Error jinja_write_json(JinjaRun *r, const JinjaValue *v, const JinjaJson *style,
                                  JinjaText *out);

#endif
