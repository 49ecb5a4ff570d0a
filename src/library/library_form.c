/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that must have a form: JSON by a schema, or text by a grammar. The vocabulary's tree is made for the first of
 * them and kept; all else lives as long as one generation. The plan kept memory for it (COBORD_OPEN_FORMS). */
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "api/schema.h"
#include "library/library.h"

static Error take(size_t bytes, const char *what, void **out, Arena *arena, Why *why)
{
    *out = malloc(bytes);
    if (!*out) return error_why(why, ERR_MEMORY, "no memory for %s", what);
    *arena = arena_make(*out, bytes);
    return OK;
}

/* --- The vocabulary --- */

static Error plant(cobord_model *m, const GrammarVocabOrder *order, Why *why)
{
    Arena arena;
    TRY(take(grammar_vocab_bytes(order), "the vocabulary's tree", &m->vocab_memory, &arena, why));
    Error error = grammar_vocab_plant(order, &arena, &m->vocab, why);
    if (error == OK) return OK;
    free(m->vocab_memory);
    m->vocab_memory = NULL;
    return error;
}

static Error make_vocab(cobord_model *m, Why *why)
{
    const Tokenizer *t = m->open.tokenizer;
    uint32_t tokens = m->open.hyper.vocabulary;
    GrammarVocabOrder order;
    void *memory;
    Arena scratch;
    if (m->vocab_memory) return OK;
    TRY(take(grammar_vocab_scratch_bytes(t, 0, tokens), "sorting the vocabulary", &memory, &scratch,
             why));
    Error error = grammar_vocab_sort(t, 0, tokens, &scratch, &order, why);
    if (error == OK) error = plant(m, &order, why);
    free(memory);
    return error;
}

/* --- The grammar --- */

static Error read_schema(const char *text, Arena *scratch, Arena *arena, Grammar *out, Why *why)
{
    yyjson_read_err fault;
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)text, strlen(text), YYJSON_READ_NOFLAG, NULL, &fault);
    if (!doc)
        return error_why(why, ERR_FORMAT, "json_schema: at byte %zu: %s", fault.pos, fault.msg);
    Error error = schema_grammar(yyjson_doc_get_root(doc), scratch, arena, out, why);
    yyjson_doc_free(doc);
    return error;
}

static Error make_grammar(const cobord_settings *s, LibraryForm *out, Why *why)
{
    size_t text = grammar_gbnf_scratch_bytes(), schema = schema_scratch_bytes();
    void *memory;
    Arena scratch, arena;
    TRY(take(grammar_bytes_max(), "a grammar", &out->grammar_memory, &arena, why));
    TRY(take(text > schema ? text : schema, "making a grammar", &memory, &scratch, why));
    Error error = s->grammar ? grammar_gbnf((const uint8_t *)s->grammar, strlen(s->grammar),
                                            &scratch, &arena, &out->grammar, why)
                             : read_schema(s->json_schema, &scratch, &arena, &out->grammar, why);
    free(memory);
    return error;
}

static Error make_mask(const cobord_model *m, LibraryForm *out, Why *why)
{
    GrammarLimits limits = grammar_machine_limits();
    Arena arena;
    TRY(take(grammar_mask_bytes(&m->vocab, &out->grammar, &limits), "an answer's masks",
             &out->mask_memory, &arena, why));
    return grammar_mask_build(&m->vocab, &out->grammar, &limits, &arena, &out->mask, why);
}

Error library_form_make(cobord_model *m, const cobord_settings *s, LibraryForm *out, Why *why)
{
    *out = (LibraryForm){0};
    if (!s->json_schema && !s->grammar) return OK;
    if (s->json_schema && s->grammar)
        return error_why(why, ERR_USAGE, "give one of json_schema and grammar");
    if (!engine_plan(m->engine)->sum.form_bytes)
        return error_why(why, ERR_USAGE, "open the model with COBORD_OPEN_FORMS for %s",
                         s->grammar ? "a grammar" : "a json_schema");
    TRY(make_vocab(m, why));
    TRY(make_grammar(s, out, why));
    return make_mask(m, out, why);
}

void library_form_free(LibraryForm *form)
{
    free(form->mask_memory);
    free(form->grammar_memory);
}
