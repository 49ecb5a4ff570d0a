/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars by hand, for the tests that compare them with others. One JSON object a line in, one a line out:
 *
 *   {"schema":{...}} or {"grammar":"root ::= ..."} or {"json_object":true}
 *   "count":N "seed":N     that many texts that the grammar allows, by random steps through its machine
 *   "check":["...",...]    for each text whether the grammar allows it
 *
 *   {"texts":[...],"checks":[...]} or {"error":"..."}
 *
 * A walk steps at random for a random number of bytes, then takes what ends things first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json_writer.h"
#include "api/schema.h"
#include "text/grammar_machine.h"

enum {
    TEXT_BYTES_MAX = 1 << 16,
    OUT_BYTES_MAX = 32 << 20,
    RANDOM_BYTES_MAX = 300,
    STATES_MAX = 20000
};

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % below);
}

static bool follows(GrammarMachine *m, uint8_t byte)
{
    uint32_t next = grammar_machine_next(m, grammar_machine_state(m), byte);
    if (next == GRAMMAR_UNKNOWN) {
        grammar_machine_forget(m);
        next = grammar_machine_next(m, grammar_machine_state(m), byte);
    }
    return next >= GRAMMAR_FIRST_STATE;
}

/* One of the bytes that may follow; ASCII ones more often. -1: none. */
static int random_byte(GrammarMachine *m)
{
    uint8_t found[256];
    uint32_t count = 0, ascii = 0;
    for (uint32_t i = 0; i < 256; i++) {
        if (!follows(m, (uint8_t)i)) continue;
        found[count++] = (uint8_t)i;
        if (i < 128) ascii = count;
    }
    if (!count) return -1;
    return found[draw(ascii && draw(4) ? ascii : count)];
}

static int closing_byte(GrammarMachine *m)
{
    for (const char *c = "\"}]0123456789ntfrueals[{:,-.eE+TZ@ "; *c; c++)
        if (follows(m, (uint8_t)*c)) return *c;
    for (int i = 255; i >= 0; i--)
        if (follows(m, (uint8_t)i)) return i;
    return -1;
}

/* The first byte of a shortest way to an end, by breadth: for grammars that want a certain word. -1: none was found. */
static int nearest_byte(GrammarMachine *m, const Grammar *g)
{
    static uint32_t states[STATES_MAX];
    static uint8_t firsts[STATES_MAX], seen[UINT16_MAX];
    uint32_t count = 1, start = grammar_machine_state(m);
    memset(seen, 0, sizeof seen);
    states[0] = start;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < g->class_count && count < STATES_MAX; c++) {
            uint32_t next = grammar_machine_next(m, states[i], g->class_byte[c]);
            if (next < GRAMMAR_FIRST_STATE || seen[next]) continue;
            seen[next] = 1;
            states[count] = next;
            firsts[count] = i ? firsts[i] : g->class_byte[c];
            if (grammar_machine_may_end(m, next)) return firsts[count];
            count++;
        }
    return -1;
}

/* Result  bytes of a text in out[TEXT_BYTES_MAX], 0 when the walk does not come to an end. */
static size_t walk(GrammarMachine *m, const Grammar *g, uint8_t *out)
{
    size_t bytes = 0, random = draw(8) ? draw(RANDOM_BYTES_MAX) : 0;
    grammar_machine_restart(m);
    while (bytes < TEXT_BYTES_MAX) {
        uint32_t state = grammar_machine_state(m);
        if (grammar_machine_may_end(m, state) &&
            (bytes >= random || grammar_machine_must_end(m, state) || !draw(4)))
            return bytes;
        int byte = bytes < random ? random_byte(m) : -1;
        if (bytes > random + 400) byte = nearest_byte(m, g);
        if (byte < 0) byte = closing_byte(m);
        if (byte < 0 || !grammar_machine_take(m, (uint8_t)byte))
            abort(); /* no state is without a way */
        out[bytes++] = (uint8_t)byte;
    }
    return 0;
}

static bool allows(GrammarMachine *m, const char *text, size_t bytes)
{
    grammar_machine_restart(m);
    for (size_t i = 0; i < bytes; i++)
        if (!grammar_machine_take(m, (uint8_t)text[i])) return false;
    return grammar_machine_may_end(m, grammar_machine_state(m));
}

static void answer(const Grammar *g, yyjson_val *ask, JsonWriter *w)
{
    static uint8_t text[TEXT_BYTES_MAX];
    GrammarLimits limits = {.nodes = 1 << 18, .states = 60000, .places = 1 << 20};
    size_t bytes = grammar_machine_bytes(g, &limits), at, most;
    void *memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    GrammarMachine *m;
    Why why;
    yyjson_val *item;
    if (!memory || grammar_machine_build(g, &limits, &arena, &m, &why) != OK) abort();
    uint64_t count = yyjson_get_uint(yyjson_obj_get(ask, "count"));
    seed = yyjson_get_uint(yyjson_obj_get(ask, "seed"));
    json_writer_raw(w, "{\"texts\":[");
    for (uint64_t i = 0; i < count; i++) {
        size_t n = walk(m, g, text);
        if (i) json_writer_raw(w, ",");
        json_writer_string(w, text, n);
    }
    json_writer_raw(w, "],\"checks\":[");
    yyjson_arr_foreach(yyjson_obj_get(ask, "check"), at, most, item)
    {
        if (at) json_writer_raw(w, ",");
        json_writer_bool(w, allows(m, yyjson_get_str(item), yyjson_get_len(item)));
    }
    json_writer_raw(w, "]}\n");
    free(memory);
}

static Error make(yyjson_val *ask, Arena *scratch, Arena *arena, Grammar *out, Why *why)
{
    yyjson_val *text = yyjson_obj_get(ask, "grammar");
    if (text)
        return grammar_gbnf((const uint8_t *)yyjson_get_str(text), yyjson_get_len(text), scratch,
                            arena, out, why);
    bool object = yyjson_get_bool(yyjson_obj_get(ask, "json_object"));
    return schema_grammar(object ? NULL : yyjson_obj_get(ask, "schema"), scratch, arena, out, why);
}

int main(void)
{
    size_t room = 0, scratch_bytes = schema_scratch_bytes(), arena_room = grammar_bytes_max();
    char *line = NULL, *out = malloc(OUT_BYTES_MAX);
    void *scratch_memory = malloc(scratch_bytes), *memory = malloc(arena_room);
    ssize_t bytes;
    if (!out || !scratch_memory || !memory) return 1;
    while ((bytes = getline(&line, &room, stdin)) > 0) {
        yyjson_doc *doc = yyjson_read(line, (size_t)bytes, YYJSON_READ_NOFLAG);
        Arena scratch = arena_make(scratch_memory, scratch_bytes),
              arena = arena_make(memory, arena_room);
        JsonWriter w = json_writer_make(out, OUT_BYTES_MAX);
        Grammar g;
        Why why;
        if (!doc) return 1;
        Error error = make(yyjson_doc_get_root(doc), &scratch, &arena, &g, &why);
        if (error == OK) {
            answer(&g, yyjson_doc_get_root(doc), &w);
        } else {
            json_writer_raw(&w, "{\"error\":");
            json_writer_text(&w, why.text);
            json_writer_raw(&w, ",\"kind\":");
            json_writer_text(&w, error_text(error));
            json_writer_raw(&w, "}\n");
        }
        if (w.full) return 1;
        fwrite(out, 1, w.used, stdout);
        fflush(stdout);
        yyjson_doc_free(doc);
    }
    free(line);
    free(out);
    free(scratch_memory);
    free(memory);
    return 0;
}
