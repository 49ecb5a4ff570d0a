/* SPDX-License-Identifier: Apache-2.0 */
/* Tools with schemas, as grammars of answers that call them. What is refused must say why and of which tool; what a
 * walk through the grammar ends with is read back by text/tool_calls.h as whole calls of these tools, each with
 * arguments that have what its schema requires.
 *
 * Input: a byte of bits (1 must, 2 many), a byte that seeds the walk, then JSON: a list of tools, each an object of
 * name, parameters, any. */
#include "api/json_scan.h"
#include "api/schema_calls.h"
#include "feed.h"
#include "grammar_walk.h"
#include "lend.h"
#include "text/tool_calls.h"

enum { TOOLS_MAX = 8, TEXT_BYTES_MAX = 64 + WALK_STEPS_MAX };

/* ---- The tools ---- */

/* Result  how many; 0: the input is none that a request could bring. */
static uint32_t read_tools(yyjson_val *list, SchemaTool *out)
{
    uint32_t count = 0;
    size_t at, all;
    yyjson_val *tool;
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) > TOOLS_MAX) return 0;
    yyjson_arr_foreach(list, at, all, tool)
    {
        yyjson_val *name = yyjson_obj_get(tool, "name"),
                   *parameters = yyjson_obj_get(tool, "parameters");
        const char *text = yyjson_get_str(name);
        size_t bytes = yyjson_get_len(name);
        if (!text || !tool_calls_is_name((const uint8_t *)text, bytes)) return 0;
        if (parameters && !yyjson_is_obj(parameters)) return 0;
        for (uint32_t i = 0; i < count; i++)
            if (out[i].name_bytes == bytes && memcmp(out[i].name, text, bytes) == 0) return 0;
        out[count++] = (SchemaTool){.name = text,
                                    .name_bytes = bytes,
                                    .parameters = parameters,
                                    .any = yyjson_is_true(yyjson_obj_get(tool, "any"))};
    }
    return count;
}

/* ---- What was said ---- */

typedef struct Heard {
    const SchemaCalls *calls;
    const SchemaTool *tool; /* of the call that goes on */
    uint32_t whole;
    size_t text_bytes, argument_bytes;
    char arguments[TEXT_BYTES_MAX];
} Heard;

static void check_arguments(const SchemaTool *tool, yyjson_val *arguments)
{
    size_t at, count;
    yyjson_val *name;
    CHECK(yyjson_is_obj(arguments));
    if (tool->any) return;
    if (!tool->parameters) CHECK(yyjson_obj_size(arguments) == 0);
    yyjson_arr_foreach(yyjson_obj_get(tool->parameters, "required"), at, count, name)
        CHECK(yyjson_obj_getn(arguments, yyjson_get_str(name), yyjson_get_len(name)));
}

static void hear(void *to, ToolCallsKind kind, const uint8_t *bytes, size_t count)
{
    Heard *h = to;
    if (kind == TOOL_CALLS_TEXT) {
        CHECK(!h->tool); /* calls come last */
        h->text_bytes += count;
    } else if (kind == TOOL_CALLS_NAME) {
        h->tool = NULL;
        h->argument_bytes = 0;
        for (uint32_t i = 0; i < h->calls->count; i++) {
            const SchemaTool *tool = &h->calls->tools[i];
            if (tool->name_bytes == count && memcmp(tool->name, bytes, count) == 0) h->tool = tool;
        }
        CHECK(h->tool);
    } else if (kind == TOOL_CALLS_ARGUMENTS) {
        memcpy(h->arguments + h->argument_bytes, bytes, count);
        h->argument_bytes += count;
    } else {
        yyjson_doc *doc = yyjson_read(h->arguments, h->argument_bytes, YYJSON_READ_NOFLAG);
        check_arguments(h->tool, yyjson_doc_get_root(doc));
        yyjson_doc_free(doc);
        h->whole++;
    }
}

/* One whole call or more, nothing else; where text may be, `before` bytes of it. What nests deeper than a call may is
 * left alone: a grammar counts no levels. */
static void check_text(const SchemaCalls *calls, const uint8_t *text, size_t bytes, size_t before)
{
    static uint8_t held[TOOL_CALLS_ROOM_MIN];
    static Heard heard;
    ToolCalls parser;
    if (json_scan(text, bytes).depth > JSON_CHECK_DEPTH_MAX) return;
    heard = (Heard){.calls = calls};
    tool_calls_start(&parser, held, sizeof held, true, (ToolCallsTake){hear, &heard});
    tool_calls_push(&parser, text, bytes);
    tool_calls_end(&parser);
    CHECK(heard.whole >= 1 && heard.whole == parser.begun);
    CHECK(calls->many || heard.whole == 1);
    CHECK(heard.text_bytes == before);
}

/* ---- The walk ---- */

static size_t take_all(GrammarMachine *m, const char *text, uint8_t *out)
{
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++) CHECK(grammar_machine_take(m, (uint8_t)text[i]));
    memcpy(out, text, bytes);
    return bytes;
}

static void walk(const SchemaCalls *calls, const Grammar *g, uint64_t seed)
{
    GrammarLimits limits = {.nodes = 1 << 14, .states = 512, .places = 1 << 14};
    size_t bytes = grammar_machine_bytes(g, &limits);
    static Lend lent;
    void *memory = lend(&lent, bytes);
    Arena arena = arena_make(memory, bytes);
    GrammarMachine *m;
    uint8_t text[TEXT_BYTES_MAX];
    if (grammar_machine_build(g, &limits, &arena, &m, NULL) != OK) return;
    CHECK(grammar_machine_may_end(m, grammar_machine_state(m)) == !calls->must);
    size_t before = calls->must ? 0 : take_all(m, "<tool, he said <<tool_cal", text),
           begun = before + take_all(m, TOOL_CALLS_OPEN, text + before),
           more = walk_to_end(m, &seed, text + begun);
    if (more) check_text(calls, text, begun + more, before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void *scratch_memory, *memory;
    SchemaTool tools[TOOLS_MAX];
    Why why = {{0}};
    Grammar g;
    if (size < 2 || json_scan(data + 2, size - 2).depth > JSON_SCAN_DEPTH_MAX) return 0;
    if (!memory) {
        scratch_memory = malloc(schema_scratch_bytes());
        memory = malloc(grammar_bytes_max());
    }
    Arena scratch = arena_make(scratch_memory, schema_scratch_bytes()),
          arena = arena_make(memory, grammar_bytes_max());
    yyjson_doc *doc = yyjson_read((const char *)data + 2, size - 2, YYJSON_READ_NOFLAG);
    SchemaCalls calls = {.tools = tools,
                         .count = read_tools(yyjson_doc_get_root(doc), tools),
                         .must = data[0] & 1,
                         .many = data[0] & 2};
    if (calls.count) {
        uint32_t fault;
        Error error = schema_calls_grammar(&calls, &scratch, &arena, &g, &fault, &why);
        CHECK(scratch.used == 0 && fault <= calls.count);
        CHECK(error == OK || why.text[0]);
        if (error == OK) walk(&calls, &g, data[1]);
    }
    yyjson_doc_free(doc);
    return 0;
}
