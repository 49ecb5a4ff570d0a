/* SPDX-License-Identifier: Apache-2.0 */
#include "host/open_model.h"

#include <stdlib.h>
#include <string.h>

#include "host/locate.h"

/* The section is copied: its pages are small and looked up at random, and the mapping's come in
 * pages of 2 MiB. */
static Error read_vocab(OpenModel *m, Why *why)
{
    KnotSection section = m->file.knot.tokenizer;
    if (!section.bytes)
        return error_why(why, ERR_NOT_FOUND,
                         "the file has no tokenizer (version 1 knots have none); encode the model "
                         "again as version 2");
    m->vocab_memory = malloc((size_t)section.bytes);
    if (!m->vocab_memory) return error_why(why, ERR_MEMORY, "no memory for the vocabulary");
    memcpy(m->vocab_memory, knot_file_payload(&m->file, section.offset), (size_t)section.bytes);
    knot_file_drop(&m->file, section.offset, section.bytes);
    return vocab_parse(m->vocab_memory, (size_t)section.bytes, &m->vocab, why);
}

static Error build_tokenizer(OpenModel *m, Why *why)
{
    TRY(read_vocab(m, why));
    size_t bytes = tokenizer_bytes(&m->vocab);
    m->memory = malloc(bytes);
    if (!m->memory) return error_why(why, ERR_MEMORY, "no memory for the tokenizer");
    Arena arena = arena_make(m->memory, bytes);
    TRY(tokenizer_build(&m->vocab, &arena, &m->tokenizer, why));
    if (m->vocab.tokens == m->hyper.vocabulary) return OK;
    return error_why(why, ERR_FORMAT, "the tokenizer has %u tokens, the model a vocabulary of %u",
                     m->vocab.tokens, m->hyper.vocabulary);
}

static Error open_parts(OpenModel *m, unsigned what, const Tell *tell, Why *why)
{
    TRY(hyper_from_knot(&m->file.knot, &m->hyper, why));
    if (what & MODEL_WEIGHTS) TRY(knot_file_verify_once(&m->file, m->path, tell, why));
    else if (what & MODEL_TOKENIZER)
        TRY(knot_file_verify_section(&m->file, m->file.knot.tokenizer, why));
    return what & MODEL_TOKENIZER ? build_tokenizer(m, why) : OK;
}

Error open_model_open(const char *model, unsigned what, const Tell *tell, OpenModel *out, Why *why)
{
    memset(out, 0, sizeof *out);
    TRY(locate_model(model, tell, out->path, sizeof out->path, why));
    TRY(knot_file_open(out->path, &out->file, why));
    Error error = open_parts(out, what, tell, why);
    if (error != OK) open_model_close(out);
    return error;
}

Error open_model_borrow(const KnotFile *file, unsigned what, OpenModel *out, Why *why)
{
    memset(out, 0, sizeof *out);
    out->file = *file;
    out->borrowed = true;
    Error error = open_parts(out, what, NULL, why);
    if (error != OK) open_model_close(out);
    return error;
}

void open_model_close(OpenModel *m)
{
    free(m->memory);
    free(m->vocab_memory);
    if (!m->borrowed) knot_file_close(&m->file);
    memset(m, 0, sizeof *m);
}
