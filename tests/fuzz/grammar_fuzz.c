/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars and schemas from outside. The first byte chooses: GBNF, a schema, a schema's pattern; the second is the seed
 * of a walk. What is refused must say why. What is accepted must never come to a place without a way on, and what a
 * schema's walk ends with must be JSON. */
#include <stdlib.h>
#include <string.h>

#include "api/json_scan.h"
#include "api/schema.h"
#include "grammar_walk.h"
#include "lend.h"

static void check(const Grammar *g, bool json, uint64_t seed)
{
    GrammarLimits limits = {.nodes = 1 << 14, .states = 512, .places = 1 << 14};
    size_t bytes = grammar_machine_bytes(g, &limits), length;
    static Lend lent;
    void *memory = lend(&lent, bytes);
    uint8_t text[WALK_STEPS_MAX];
    Arena arena = arena_make(memory, bytes);
    GrammarMachine *m;
    Why why;
    if (grammar_machine_build(g, &limits, &arena, &m, &why) == OK) {
        length = walk_to_end(m, &seed, text);
        if (json && length) {
            yyjson_doc *doc = yyjson_read((char *)text, length, YYJSON_READ_NOFLAG);
            ASSERT(doc);
            yyjson_doc_free(doc);
        }
    }
}

/* {"type":"string","pattern": the bytes} */
static yyjson_doc *pattern_schema(const uint8_t *data, size_t size)
{
    yyjson_mut_doc *made = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(made);
    yyjson_mut_doc_set_root(made, root);
    yyjson_mut_obj_add_str(made, root, "type", "string");
    yyjson_mut_obj_add_strn(made, root, "pattern", (const char *)data, size);
    yyjson_doc *doc = yyjson_mut_doc_imut_copy(made, NULL);
    yyjson_mut_doc_free(made);
    return doc;
}

static yyjson_doc *read_schema(const uint8_t *data, size_t size)
{
    JsonScan scan = json_scan(data, size);
    if (scan.depth > JSON_SCAN_DEPTH_MAX) return NULL;
    return yyjson_read((const char *)data, size, YYJSON_READ_NOFLAG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void *scratch_memory, *memory;
    Why why = {{0}};
    Grammar g;
    if (size < 2) return 0;
    if (!memory) {
        scratch_memory = malloc(schema_scratch_bytes());
        memory = malloc(grammar_bytes_max());
    }
    Arena scratch = arena_make(scratch_memory, schema_scratch_bytes());
    Arena arena = arena_make(memory, grammar_bytes_max());
    Error error;
    bool json = data[0] % 3 > 0;
    if (json) {
        yyjson_doc *doc =
            data[0] % 3 == 1 ? read_schema(data + 2, size - 2) : pattern_schema(data + 2, size - 2);
        if (!doc) return 0;
        error = schema_grammar(yyjson_doc_get_root(doc), &scratch, &arena, &g, &why);
        yyjson_doc_free(doc);
    } else {
        error = grammar_gbnf(data + 2, size - 2, &scratch, &arena, &g, &why);
    }
    ASSERT(scratch.used == 0 && (error == OK || why.text[0]));
    if (error == OK) check(&g, json, data[1]);
    return 0;
}
