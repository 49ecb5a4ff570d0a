/* SPDX-License-Identifier: Apache-2.0 */
/* Valid JSON schemas, built from the input: objects, arrays, numbers and texts with bounds, choices, references.
 * What is taken is walked to an end, and a small validator of ours, written from the specification, must accept
 * the text. On the way the mask of a vocabulary allows exactly the tokens whose bytes the machine takes. */
#include <stdio.h>

#include "../unit/text/small_vocab.h"
#include "api/json_writer.h"
#include "api/schema.h"
#include "feed.h"
#include "grammar_walk.h"
#include "lend.h"
#include "text/grammar_mask.h"
#include "text/utf8.h"

enum { DEPTH_MAX = 4, TEXT_BYTES = 1 << 15, MASK_STEPS = 5, QUESTIONS_MAX = 2000 };

/* ---- A schema from the input ---- */

static void put_schema(Feed *f, JsonWriter *w, int depth);

static void put_number(Feed *f, JsonWriter *w)
{
    static const double some[] = {0,   1,     -1,  2,   5,    10,    100, -7,
                                  0.5, -2.25, 1e3, 255, 1e15, -1e15, 0.1, 99.99};
    json_writer_float(w, some[feed_below(f, 16)]);
}

static void put_bound(Feed *f, JsonWriter *w, uint32_t bits, uint32_t bit, const char *name)
{
    if (!(bits & bit)) return;
    json_writer_member(w, name);
    put_number(f, w);
}

static void put_count(Feed *f, JsonWriter *w, uint32_t bits, uint32_t bit, const char *name)
{
    if (bits & bit) json_writer_member_u64(w, name, feed_below(f, 6));
}

static void put_literal(Feed *f, JsonWriter *w, int depth)
{
    size_t bytes;
    const uint8_t *text;
    switch (feed_below(f, depth ? 7 : 5)) {
    case 0: json_writer_raw(w, "null"); break;
    case 1: json_writer_bool(w, feed_u8(f) & 1); break;
    case 2: put_number(f, w); break;
    case 3:
        text = feed_span(f, 12, &bytes);
        json_writer_string(w, text, bytes);
        break;
    case 4: json_writer_u64(w, feed_u8(f)); break;
    case 5:
        json_writer_raw(w, "[");
        put_literal(f, w, depth - 1);
        json_writer_raw(w, "]");
        break;
    default:
        json_writer_raw(w, "{\"k\":");
        put_literal(f, w, depth - 1);
        json_writer_raw(w, "}");
    }
}

static void put_literals(Feed *f, JsonWriter *w)
{
    json_writer_raw(w, "[");
    for (uint32_t i = 0, count = 1 + feed_below(f, 4); i < count; i++) {
        if (i) json_writer_raw(w, ",");
        put_literal(f, w, 2);
    }
    json_writer_raw(w, "]");
}

static void put_list(Feed *f, JsonWriter *w, int depth)
{
    json_writer_raw(w, "[");
    for (uint32_t i = 0, count = 1 + feed_below(f, 3); i < count; i++) {
        if (i) json_writer_raw(w, ",");
        put_schema(f, w, depth - 1);
    }
    json_writer_raw(w, "]");
}

static void put_string(Feed *f, JsonWriter *w)
{
    static const char *const patterns[] = {"^[a-z]+$",    "^\\d{2,4}$", "x|yy",
                                           "^(ab|c)*d?$", ".",          "[^\"\\\\]{3}"};
    static const char *const formats[] = {"date",  "time", "date-time", "uuid",
                                          "email", "ipv4", "duration"};
    uint32_t bits = feed_u8(f);
    json_writer_member_text(w, "type", "string");
    put_count(f, w, bits, 1, "minLength");
    put_count(f, w, bits, 2, "maxLength");
    if (bits & 4) json_writer_member_text(w, "pattern", patterns[feed_below(f, 6)]);
    else if (bits & 8) json_writer_member_text(w, "format", formats[feed_below(f, 7)]);
}

static void put_numeric(Feed *f, JsonWriter *w, const char *type)
{
    uint32_t bits = feed_u8(f);
    json_writer_member_text(w, "type", type);
    put_bound(f, w, bits, 1, "minimum");
    put_bound(f, w, bits, 2, "maximum");
    put_bound(f, w, bits, 4, "exclusiveMinimum");
    put_bound(f, w, bits, 8, "exclusiveMaximum");
}

static void put_object(Feed *f, JsonWriter *w, int depth)
{
    static const char *const names[] = {"a", "ab", "b c", "k", "\xc3\xa9"};
    uint32_t bits = feed_u8(f), required = feed_u8(f), count = feed_below(f, 6), said = 0;
    json_writer_member_text(w, "type", "object");
    json_writer_member(w, "properties");
    json_writer_raw(w, "{");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        json_writer_text(w, names[i % 5]);
        json_writer_raw(w, ":");
        put_schema(f, w, depth - 1);
    }
    json_writer_raw(w, "}");
    if (bits & 1) {
        json_writer_raw(w, ",\"required\":[");
        for (uint32_t i = 0; i < 5; i++)
            if (required >> i & 1) {
                if (said++) json_writer_raw(w, ",");
                json_writer_text(w, names[i]);
            }
        json_writer_raw(w, "]");
    }
    if (bits & 2) json_writer_raw(w, ",\"additionalProperties\":");
    if (bits & 2 && bits & 4) put_schema(f, w, depth - 1);
    else if (bits & 2) json_writer_bool(w, bits & 8);
}

static void put_array(Feed *f, JsonWriter *w, int depth)
{
    uint32_t bits = feed_u8(f);
    json_writer_member_text(w, "type", "array");
    if (bits & 1) json_writer_member(w, "items"), put_schema(f, w, depth - 1);
    if (bits & 2) json_writer_member(w, "prefixItems"), put_list(f, w, depth);
    put_count(f, w, bits, 4, "minItems");
    put_count(f, w, bits, 8, "maxItems");
}

static void put_members(Feed *f, JsonWriter *w, int depth)
{
    static const char *const lists[] = {"anyOf", "allOf", "oneOf"};
    uint32_t kind = feed_below(f, depth ? 14 : 7);
    switch (kind) {
    case 0: put_string(f, w); break;
    case 1: put_numeric(f, w, "integer"); break;
    case 2: put_numeric(f, w, "number"); break;
    case 3: json_writer_member_text(w, "type", feed_u8(f) & 1 ? "boolean" : "null"); break;
    case 4: json_writer_member(w, "enum"), put_literals(f, w); break;
    case 5: json_writer_member(w, "const"), put_literal(f, w, 2); break;
    case 6: json_writer_member_text(w, "$ref", feed_u8(f) & 1 ? "#/$defs/d0" : "#/$defs/d1"); break;
    case 7:
    case 8: put_object(f, w, depth); break;
    case 9:
    case 10: put_array(f, w, depth); break;
    default: json_writer_member(w, lists[kind - 11]), put_list(f, w, depth);
    }
    if (feed_u8(f) & 128 && depth) put_members(f, w, depth - 1); /* keywords beside others */
}

static void put_schema(Feed *f, JsonWriter *w, int depth)
{
    if (!f->left) {
        json_writer_raw(w, "true");
        return;
    }
    json_writer_raw(w, "{");
    put_members(f, w, depth);
    json_writer_raw(w, "}");
}

static size_t make_schema(Feed *f, char *text)
{
    JsonWriter w = json_writer_make(text, TEXT_BYTES);
    json_writer_raw(&w, "{");
    put_members(f, &w, DEPTH_MAX);
    json_writer_raw(&w, ",\"$defs\":{\"d0\":");
    put_schema(f, &w, 2);
    json_writer_raw(&w, ",\"d1\":");
    put_schema(f, &w, 2);
    json_writer_raw(&w, "}}");
    return w.full ? 0 : w.used;
}

/* ---- The validator ---- */

static bool holds(yyjson_val *schema, yyjson_val *value, yyjson_val *root);

/* Questions left. References that only lead to themselves mean nothing in particular: then there is no verdict. */
static int questions;

static bool is_type(const char *type, yyjson_val *value)
{
    if (strcmp(type, "integer") == 0) {
        double n = yyjson_get_num(value);
        return yyjson_is_num(value) &&
               (yyjson_is_int(value) || n >= 1e15 || n <= -1e15 || n == (double)(int64_t)n);
    }
    if (strcmp(type, "number") == 0) return yyjson_is_num(value);
    return strcmp(type, strcmp(yyjson_get_type_desc(value), "true") == 0 ||
                                strcmp(yyjson_get_type_desc(value), "false") == 0
                            ? "boolean"
                            : yyjson_get_type_desc(value)) == 0;
}

/* Without the order of members, and 1 is 1.0. */
static bool same(yyjson_val *a, yyjson_val *b)
{
    if (yyjson_is_num(a) && yyjson_is_num(b)) return yyjson_get_num(a) == yyjson_get_num(b);
    if (yyjson_is_arr(a) && yyjson_is_arr(b) && yyjson_arr_size(a) == yyjson_arr_size(b)) {
        for (size_t i = 0; i < yyjson_arr_size(a); i++)
            if (!same(yyjson_arr_get(a, i), yyjson_arr_get(b, i))) return false;
        return true;
    }
    if (yyjson_is_obj(a) && yyjson_is_obj(b) && yyjson_obj_size(a) == yyjson_obj_size(b))
        return !yyjson_obj_size(a) || same(yyjson_obj_get(a, "k"), yyjson_obj_get(b, "k"));
    return yyjson_equals(a, b);
}

static uint32_t holding(yyjson_val *list, yyjson_val *value, yyjson_val *root)
{
    size_t i, count;
    yyjson_val *one;
    uint32_t fine = 0;
    yyjson_arr_foreach(list, i, count, one) fine += holds(one, value, root);
    return fine;
}

static bool number_holds(yyjson_val *schema, double n)
{
    yyjson_val *least = yyjson_obj_get(schema, "minimum"),
               *most = yyjson_obj_get(schema, "maximum"),
               *above = yyjson_obj_get(schema, "exclusiveMinimum"),
               *below = yyjson_obj_get(schema, "exclusiveMaximum");
    return (!least || n >= yyjson_get_num(least)) && (!most || n <= yyjson_get_num(most)) &&
           (!above || n >= yyjson_get_num(above)) &&
           (!below || n <= yyjson_get_num(below)); /* rounding may meet them */
}

static bool length_holds(yyjson_val *schema, const char *least, const char *most, uint64_t n)
{
    yyjson_val *a = yyjson_obj_get(schema, least), *b = yyjson_obj_get(schema, most);
    return (!a || n >= (uint64_t)yyjson_get_num(a)) && (!b || n <= (uint64_t)yyjson_get_num(b));
}

static uint64_t characters(yyjson_val *text)
{
    uint64_t n = 0;
    for (const char *c = yyjson_get_str(text), *end = c + yyjson_get_len(text); c < end; c++)
        n += (*c & 0xc0) != 0x80;
    return n;
}

static bool object_holds(yyjson_val *schema, yyjson_val *value, yyjson_val *root)
{
    size_t i, count;
    yyjson_val *name, *item, *more = yyjson_obj_get(schema, "additionalProperties");
    yyjson_arr_foreach(
        yyjson_obj_get(schema, "required"), i, count,
        name) if (!yyjson_obj_getn(value, yyjson_get_str(name), yyjson_get_len(name))) return false;
    yyjson_obj_foreach(value, i, count, name, item)
    {
        yyjson_val *own = yyjson_obj_getn(yyjson_obj_get(schema, "properties"),
                                          yyjson_get_str(name), yyjson_get_len(name));
        if (!own) own = more;
        if (own && !holds(own, item, root)) return false;
    }
    return true;
}

static bool array_holds(yyjson_val *schema, yyjson_val *value, yyjson_val *root)
{
    size_t i, count;
    yyjson_val *item, *first = yyjson_obj_get(schema, "prefixItems"),
                      *rest = yyjson_obj_get(schema, "items");
    yyjson_arr_foreach(value, i, count, item)
    {
        yyjson_val *own = i < yyjson_arr_size(first) ? yyjson_arr_get(first, i) : rest;
        if (own && !holds(own, item, root)) return false;
    }
    return length_holds(schema, "minItems", "maxItems", yyjson_arr_size(value));
}

static bool choices_hold(yyjson_val *schema, yyjson_val *value, yyjson_val *root)
{
    yyjson_val *any = yyjson_obj_get(schema, "anyOf"), *all = yyjson_obj_get(schema, "allOf"),
               *one = yyjson_obj_get(schema, "oneOf"), *list = yyjson_obj_get(schema, "enum"),
               *only = yyjson_obj_get(schema, "const"), *ref = yyjson_obj_get(schema, "$ref");
    bool fine = !list;
    for (size_t i = 0; i < yyjson_arr_size(list); i++)
        fine = fine || same(yyjson_arr_get(list, i), value);
    if (!fine || (only && !same(only, value))) return false;
    if (any && !holding(any, value, root)) return false;
    if (all && holding(all, value, root) != yyjson_arr_size(all)) return false;
    if (one && holding(one, value, root) != 1) return false;
    return !ref || holds(yyjson_ptr_get(root, yyjson_get_str(ref) + 1), value, root);
}

static bool holds(yyjson_val *schema, yyjson_val *value, yyjson_val *root)
{
    if (yyjson_is_bool(schema)) return yyjson_get_bool(schema);
    if (!questions) return true;
    questions--;
    const char *type = yyjson_get_str(yyjson_obj_get(schema, "type"));
    if (type && !is_type(type, value)) return false;
    if (yyjson_is_num(value) && !number_holds(schema, yyjson_get_num(value))) return false;
    if (yyjson_is_str(value) && !length_holds(schema, "minLength", "maxLength", characters(value)))
        return false;
    if (yyjson_is_obj(value) && !object_holds(schema, value, root)) return false;
    if (yyjson_is_arr(value) && !array_holds(schema, value, root)) return false;
    return choices_hold(schema, value, root);
}

/* ---- Walks and masks ---- */

static void check_text(yyjson_val *schema, const uint8_t *text, size_t bytes)
{
    yyjson_doc *doc = yyjson_read((const char *)text, bytes, YYJSON_READ_NOFLAG);
    questions = QUESTIONS_MAX;
    bool fine = holds(schema, yyjson_doc_get_root(doc), schema) || !questions;
    if (!doc || !fine) {
        char *said = yyjson_val_write(schema, 0, NULL);
        fprintf(stderr, "schema %s\ntext   %.*s\n", said, (int)bytes, (const char *)text);
        abort();
    }
    yyjson_doc_free(doc);
}

/* The bytes of every token, as the tokenizer gave them once. */
static struct {
    uint8_t bytes[SMALL_TOKENS_MAX][64];
    size_t counts[SMALL_TOKENS_MAX];
} pieces;

static void keep_pieces(const GrammarVocab *v)
{
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    for (uint32_t i = 0; i < v->id_count; i++) {
        size_t *bytes = &pieces.counts[v->ids[i]];
        CHECK(tokenizer_piece(v->tokenizer, v->ids[i], false, piece, sizeof piece, bytes, NULL) ==
              OK);
        CHECK(*bytes <= sizeof pieces.bytes[0]);
        memcpy(pieces.bytes[v->ids[i]], piece, *bytes);
    }
}

static const GrammarVocab *vocabulary(void)
{
    static GrammarVocab v;
    if (v.node_count) return &v;
    static SmallVocab *s;
    s = small_bpe(VOCAB_PRE_GPT2);
    Why why;
    CHECK(small_build(s, &why) == OK);
    size_t bytes = grammar_vocab_scratch_bytes(s->tokenizer, 0, s->vocab.tokens) + 65536;
    void *lent = malloc(bytes);
    Arena scratch = arena_make(lent, bytes), arena = arena_make(malloc(bytes), bytes);
    CHECK(grammar_vocab_build(s->tokenizer, 0, s->vocab.tokens, &scratch, &arena, &v, &why) == OK);
    free(lent);
    keep_pieces(&v);
    return &v;
}

/* What the machine says of a token: 1 it takes all of its bytes, 0 it does not, -1 a pool was full. */
static int machine_takes(GrammarMachine *m, uint32_t id)
{
    const uint8_t *piece = pieces.bytes[id];
    size_t bytes = pieces.counts[id];
    uint32_t state = grammar_machine_state(m);
    for (size_t i = 0; i < bytes; i++) {
        state = grammar_machine_next(m, state, piece[i]);
        if (state == GRAMMAR_DEAD) return 0;
        if (state == GRAMMAR_UNKNOWN) return -1;
    }
    return bytes > 0;
}

static void check_masks(const Grammar *g, const GrammarLimits *limits, GrammarMachine *m,
                        uint64_t seed)
{
    const GrammarVocab *v = vocabulary();
    size_t bytes = grammar_mask_bytes(v, g, limits);
    static Lend lent;
    void *memory = lend(&lent, bytes);
    Arena arena = arena_make(memory, bytes);
    GrammarMask *mask;
    if (grammar_mask_build(v, g, limits, &arena, &mask, NULL) != OK) bytes = 0;
    grammar_machine_restart(m);
    for (int step = 0; bytes && step < MASK_STEPS; step++) {
        const uint32_t *bits = grammar_mask_now(mask);
        uint32_t chosen = UINT32_MAX, fitting = 0;
        for (uint32_t i = 0; i < v->id_count; i++) {
            uint32_t id = v->ids[i];
            bool allowed = grammar_mask_has(bits, id);
            int takes = machine_takes(m, id);
            CHECK(takes < 0 || allowed == (takes == 1));
            if (allowed && walk_draw(&seed, ++fitting) == 0) chosen = id;
        }
        for (uint32_t i = 0; i < v->end_count; i++)
            CHECK(grammar_mask_has(bits, v->ends[i]) ==
                  grammar_machine_may_end(m, grammar_machine_state(m)));
        if (chosen == UINT32_MAX) break;
        CHECK(grammar_mask_take(mask, chosen, NULL) == OK);
        for (size_t i = 0; i < pieces.counts[chosen]; i++)
            CHECK(grammar_machine_take(m, pieces.bytes[chosen][i]));
    }
}

static void walk_all(const Grammar *g, yyjson_val *schema, uint64_t seed)
{
    GrammarLimits limits = {.nodes = 1 << 13, .states = 256, .places = 1 << 13};
    size_t bytes = grammar_machine_bytes(g, &limits), length;
    static Lend lent;
    void *memory = lend(&lent, bytes);
    Arena arena = arena_make(memory, bytes);
    GrammarMachine *m;
    uint8_t text[WALK_STEPS_MAX];
    if (grammar_machine_build(g, &limits, &arena, &m, NULL) == OK) {
        length = walk_to_end(m, &seed, text);
        if (length) check_text(schema, text, length);
        if (seed & 16) check_masks(g, &limits, m, seed);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void *scratch_memory, *memory;
    static char text[TEXT_BYTES];
    Feed f = {data, size};
    Why why = {{0}};
    Grammar g;
    if (!memory) {
        scratch_memory = malloc(schema_scratch_bytes());
        memory = malloc(grammar_bytes_max());
    }
    Arena scratch = arena_make(scratch_memory, schema_scratch_bytes()),
          arena = arena_make(memory, grammar_bytes_max());
    uint64_t seed = feed_bits(&f, 2);
    size_t bytes = make_schema(&f, text);
    yyjson_doc *doc = bytes ? yyjson_read(text, bytes, YYJSON_READ_NOFLAG) : NULL;
    CHECK(doc || !bytes);
    if (!doc) return 0;
    Error error = schema_grammar(yyjson_doc_get_root(doc), &scratch, &arena, &g, &why);
    CHECK(scratch.used == 0 && (error == OK || why.text[0]));
    if (error == OK) walk_all(&g, yyjson_doc_get_root(doc), seed);
    yyjson_doc_free(doc);
    return 0;
}
