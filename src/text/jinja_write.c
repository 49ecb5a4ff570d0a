/* SPDX-License-Identifier: Apache-2.0 */
/* Values to text: Python's str and repr, and JSON as json.dumps writes it for HF's tojson (", " and ": ", characters
 * beyond ASCII as they are). Bytes of a foreign text stay foreign, also as an escape. */
#include <string.h>

#include "text/jinja_number.h"
#include "text/jinja_run.h"
#include "text/utf8.h"

enum { WRITE_DEPTH_MAX = 100 };

typedef struct Writer {
    JinjaRun *run;
    JinjaBuilder out;
    const JinjaJson *json;
    unsigned depth;
} Writer;

static Error write_repr(Writer *w, const JinjaValue *v);

static void put_number(Writer *w, const JinjaValue *v)
{
    char text[JINJA_NUMBER_BYTES];
    size_t count = v->kind == JINJA_INT ? jinja_number_write_int(v->integer, text)
                                        : jinja_number_write_float(v->number, text);
    jinja_text_add_bytes(&w->out, text, count, JINJA_OWN);
}

static void put_hex(Writer *w, const char *prefix, uint32_t c, unsigned digits, JinjaMark mark)
{
    char text[12];
    size_t at = strlen(prefix);
    memcpy(text, prefix, at);
    while (digits--) text[at++] = "0123456789abcdef"[c >> 4 * digits & 15];
    jinja_text_add_bytes(&w->out, text, at, mark);
}

/* Below U+0100 as Python has it; beyond, what is invisible: other spaces, format characters, private use. */
static bool is_printable(uint32_t c)
{
    if (c < 0x7F) return c >= 32;
    if (c < 0xA1) return false;
    if (c == 0xAD || jinja_text_is_space(c)) return false;
    if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
        (c >= 0x2060 && c <= 0x206F))
        return false;
    if ((c >= 0xE000 && c <= 0xF8FF) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB)) return false;
    return (c & 0xFFFF) < 0xFFFE && c < 0xE0000;
}

static void put_escaped(Writer *w, uint32_t c, uint8_t quote, JinjaMark mark)
{
    static const char named[] = "\n\r\t", names[] = "nrt";
    const char *at = c && c < 128 ? strchr(named, (int)c) : NULL;
    char pair[2] = {'\\', at ? names[at - named] : (char)c};
    if (at || c == '\\' || c == quote) jinja_text_add_bytes(&w->out, pair, 2, mark);
    else if (c < 0x100) put_hex(w, "\\x", c, 2, mark);
    else if (c < 0x10000) put_hex(w, "\\u", c, 4, mark);
    else put_hex(w, "\\U", c, 8, mark);
}

static void put_quoted(Writer *w, JinjaText t)
{
    bool single = t.count && memchr(t.bytes, '\'', t.count),
         twice = t.count && memchr(t.bytes, '"', t.count);
    uint8_t quote = single && !twice ? '"' : '\'';
    jinja_text_add_bytes(&w->out, &quote, 1, JINJA_OWN);
    size_t from = 0, at = 0;
    while (at < t.count) {
        uint32_t length, c = utf8_read(t.bytes + at, t.count - at, &length);
        bool plain = c == UTF8_INVALID || (is_printable(c) && c != quote && c != '\\');
        if (!plain) {
            jinja_text_add(&w->out, jinja_text_cut(t, from, at));
            put_escaped(w, c, quote, jinja_text_mark(t, at));
            from = at + length;
        }
        at += length;
    }
    jinja_text_add(&w->out, jinja_text_cut(t, from, at));
    jinja_text_add_bytes(&w->out, &quote, 1, JINJA_OWN);
}

static Error repr_items(Writer *w, const JinjaValue *v)
{
    bool tuple = v->kind == JINJA_TUPLE;
    jinja_text_add_words(&w->out, tuple ? "(" : "[");
    for (size_t i = 0; i < v->list->count; i++) {
        if (i) jinja_text_add_words(&w->out, ", ");
        TRY(write_repr(w, &v->list->items[i]));
    }
    jinja_text_add_words(&w->out, !tuple ? "]" : v->list->count == 1 ? ",)" : ")");
    return OK;
}

static Error repr_pairs(Writer *w, const JinjaDict *d)
{
    jinja_text_add_words(&w->out, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i) jinja_text_add_words(&w->out, ", ");
        TRY(write_repr(w, &d->pairs[i].key));
        jinja_text_add_words(&w->out, ": ");
        TRY(write_repr(w, &d->pairs[i].value));
    }
    jinja_text_add_words(&w->out, "}");
    return OK;
}

static Error enter(Writer *w)
{
    TRY(jinja_run_spend(w->run, 1));
    if (w->depth == WRITE_DEPTH_MAX)
        return JINJA_FAIL(w->run, ERR_TOO_LARGE, "%s", "a value is nested too deeply");
    w->depth++;
    return OK;
}

static Error write_repr(Writer *w, const JinjaValue *v)
{
    TRY(enter(w));
    switch (v->kind) {
    case JINJA_UNDEFINED: jinja_text_add_words(&w->out, "Undefined"); break;
    case JINJA_NONE: jinja_text_add_words(&w->out, "None"); break;
    case JINJA_BOOL: jinja_text_add_words(&w->out, v->truth ? "True" : "False"); break;
    case JINJA_INT:
    case JINJA_FLOAT: put_number(w, v); break;
    case JINJA_TEXT: put_quoted(w, v->text); break;
    case JINJA_LIST:
    case JINJA_TUPLE: TRY(repr_items(w, v)); break;
    case JINJA_DICT: TRY(repr_pairs(w, v->dict)); break;
    default:
        jinja_text_add_words(&w->out, "<");
        jinja_text_add_words(&w->out, jinja_value_kind(v));
        jinja_text_add_words(&w->out, ">");
    }
    w->depth--;
    return OK;
}

Error jinja_write_str(JinjaRun *r, const JinjaValue *v, JinjaText *out)
{
    *out = v->kind == JINJA_TEXT ? v->text : (JinjaText){0};
    if (v->kind == JINJA_TEXT || v->kind == JINJA_UNDEFINED) return OK;
    Writer w = {.run = r, .out = jinja_run_builder(r)};
    TRY(write_repr(&w, v));
    return jinja_run_finish(r, &w.out, out);
}

/* ---- JSON ---- */

static Error write_json(Writer *w, const JinjaValue *v);

static void json_escape(Writer *w, uint32_t c, JinjaMark mark)
{
    static const char named[] = "\n\r\t\f\b\"\\", names[] = "nrtfb\"\\";
    const char *at = c && c < 128 ? strchr(named, (int)c) : NULL;
    if (at) {
        char pair[2] = {'\\', names[at - named]};
        jinja_text_add_bytes(&w->out, pair, 2, mark);
    } else if (c < 0x10000) {
        put_hex(w, "\\u", c, 4, mark);
    } else {
        put_hex(w, "\\u", 0xD800 + ((c - 0x10000) >> 10), 4, mark);
        put_hex(w, "\\u", 0xDC00 + ((c - 0x10000) & 1023), 4, mark);
    }
}

static void json_text(Writer *w, JinjaText t)
{
    jinja_text_add_words(&w->out, "\"");
    size_t from = 0, at = 0;
    while (at < t.count) {
        uint32_t length, c = utf8_read(t.bytes + at, t.count - at, &length);
        if (c != UTF8_INVALID && (c < 32 || c == '"' || c == '\\' || (w->json->ascii && c > 127))) {
            jinja_text_add(&w->out, jinja_text_cut(t, from, at));
            json_escape(w, c, jinja_text_mark(t, at));
            from = at + length;
        }
        at += length;
    }
    jinja_text_add(&w->out, jinja_text_cut(t, from, at));
    jinja_text_add_words(&w->out, "\"");
}

static void json_number(Writer *w, const JinjaValue *v)
{
    if (v->kind == JINJA_FLOAT && v->number != v->number) jinja_text_add_words(&w->out, "NaN");
    else if (v->kind == JINJA_FLOAT && v->number - v->number != 0)
        jinja_text_add_words(&w->out, v->number > 0 ? "Infinity" : "-Infinity");
    else put_number(w, v);
}

static void json_break(Writer *w, unsigned depth)
{
    if (!w->json->indent.bytes) return;
    jinja_text_add_words(&w->out, "\n");
    while (depth--) jinja_text_add(&w->out, w->json->indent);
}

static Error json_key(Writer *w, const JinjaValue *key)
{
    if (key->kind == JINJA_TEXT) {
        json_text(w, key->text);
        return OK;
    }
    if (key->kind != JINJA_NONE && !jinja_value_is_number(key))
        return jinja_run_fail(w->run, "a key that JSON cannot have");
    jinja_text_add_words(&w->out, "\"");
    TRY(write_json(w, key));
    jinja_text_add_words(&w->out, "\"");
    return OK;
}

/* The place of the i-th key in the order of writing. */
static Error nth_key(Writer *w, const JinjaDict *d, size_t i, size_t *out)
{
    *out = i;
    if (!w->json->sorted) return OK;
    TRY(jinja_run_spend(w->run, d->count * (d->count / 8 + 1)));
    for (size_t k = 0; k < d->count; k++) {
        size_t smaller = 0;
        for (size_t other = 0; other < d->count; other++) {
            int order;
            TRY(jinja_math_order(w->run, &d->pairs[other].key, &d->pairs[k].key, &order));
            smaller += order < 0;
        }
        if (smaller == i) *out = k;
    }
    return OK;
}

static Error json_pairs(Writer *w, const JinjaDict *d)
{
    jinja_text_add_words(&w->out, "{");
    for (size_t i = 0; i < d->count; i++) {
        size_t at;
        TRY(nth_key(w, d, i, &at));
        if (i) jinja_text_add(&w->out, w->json->item);
        json_break(w, w->depth);
        TRY(json_key(w, &d->pairs[at].key));
        jinja_text_add(&w->out, w->json->key);
        TRY(write_json(w, &d->pairs[at].value));
    }
    if (d->count) json_break(w, w->depth - 1);
    jinja_text_add_words(&w->out, "}");
    return OK;
}

static Error json_items(Writer *w, const JinjaList *list)
{
    jinja_text_add_words(&w->out, "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i) jinja_text_add(&w->out, w->json->item);
        json_break(w, w->depth);
        TRY(write_json(w, &list->items[i]));
    }
    if (list->count) json_break(w, w->depth - 1);
    jinja_text_add_words(&w->out, "]");
    return OK;
}

static Error write_json(Writer *w, const JinjaValue *v)
{
    TRY(enter(w));
    switch (v->kind) {
    case JINJA_NONE: jinja_text_add_words(&w->out, "null"); break;
    case JINJA_BOOL: jinja_text_add_words(&w->out, v->truth ? "true" : "false"); break;
    case JINJA_INT:
    case JINJA_FLOAT: json_number(w, v); break;
    case JINJA_TEXT: json_text(w, v->text); break;
    case JINJA_LIST:
    case JINJA_TUPLE: TRY(json_items(w, v->list)); break;
    case JINJA_DICT: TRY(json_pairs(w, v->dict)); break;
    default:
        return JINJA_FAIL(w->run, ERR_TYPE, "%s cannot be written as JSON", jinja_value_kind(v));
    }
    w->depth--;
    return OK;
}

Error jinja_write_json(JinjaRun *r, const JinjaValue *v, const JinjaJson *style, JinjaText *out)
{
    Writer w = {.run = r, .out = jinja_run_builder(r), .json = style};
    TRY(write_json(&w, v));
    return jinja_run_finish(r, &w.out, out);
}
