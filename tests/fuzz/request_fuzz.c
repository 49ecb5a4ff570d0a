/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests from outside. The first byte chooses the path. What is refused must say why in JSON that is whole;
 * what is accepted must keep the promises that the engine counts on. */
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "lend.h"

enum { VOCABULARY = 1000 };

static void check_refusal(const Refusal *refusal)
{
    char body[REFUSAL_JSON_MAX];
    JsonWriter w = json_writer_make(body, sizeof body);
    refusal_write(refusal, &w);
    yyjson_doc *doc = yyjson_read(body, w.used, YYJSON_READ_NOFLAG);
    ASSERT(!w.full && doc && refusal->kind != REFUSAL_NONE && refusal_status(refusal) >= 400 &&
           refusal->why.text[0]);
    yyjson_doc_free(doc);
}

static void check_request(const Request *q)
{
    Why why;
    volatile uint32_t sum = 0;
    ASSERT(q->turn_count || q->prompt_count || q->loads || q->kind == REQUEST_OLLAMA_SHOW);
    uint32_t most = q->kind == REQUEST_EMBEDDINGS ? REQUEST_INPUTS_MAX : REQUEST_CHOICES_MAX;
    ASSERT(q->n >= 1 && q->n <= REQUEST_CHOICES_MAX && q->prompt_count <= most);
    ASSERT(q->tops <= REQUEST_TOPS_MAX && (!q->says_prompt || q->kind == REQUEST_COMPLETION));
    ASSERT(q->tokens_max <= REQUEST_TOKENS_UNLIMITED && q->stop_count <= DETOKENIZER_STOPS_MAX);
    ASSERT(sampler_check(&q->params, VOCABULARY, &why) == OK);
    for (size_t i = 0; i < q->turn_count; i++) {
        sum += (uint32_t)strlen(q->turns[i].role);
        for (size_t n = 0; n < q->turns[i].bytes; n++) sum += q->turns[i].text[n];
    }
    for (uint32_t i = 0; i < q->prompt_count; i++) {
        for (size_t n = 0; n < q->prompts[i].bytes; n++) sum += q->prompts[i].text[n];
        for (size_t n = 0; n < q->prompts[i].count; n++) ASSERT(q->prompts[i].ids[n] < VOCABULARY);
    }
    for (uint32_t i = 0; i < q->stop_count; i++) {
        ASSERT(q->stop_bytes[i] >= 1 && q->stop_bytes[i] <= DETOKENIZER_STOP_BYTES_MAX);
        for (uint32_t n = 0; n < q->stop_bytes[i]; n++) sum += (uint8_t)q->stops[i][n];
    }
}

/* What is said again is whole JSON, or refused. */
static void check_echo(const Request *q)
{
    static char text[1 + REQUEST_ECHO_BYTES_MAX + 1];
    static Refusal refusal;
    JsonWriter w = json_writer_make(text + 1, REQUEST_ECHO_BYTES_MAX);
    if (!request_echo(q, &w, &refusal)) {
        check_refusal(&refusal);
        return;
    }
    if (!w.used) return;
    ASSERT(text[1] == ',');
    text[1] = '{';
    text[1 + w.used] = '}';
    yyjson_doc *doc = yyjson_read(text + 1, w.used + 1, YYJSON_READ_NOFLAG);
    ASSERT(doc);
    yyjson_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Request request;
    static Refusal refusal;
    static Lend lent;
    if (!size) return 0;
    size_t bytes = request_bytes(size - 1);
    void *memory = lend(&lent, bytes);
    uint8_t *body = malloc(size);
    if (!body) abort();
    memcpy(body, data + 1, size - 1); /* a copy, so that reading past its end is seen */
    Arena arena = arena_make(memory, bytes);
    if (request_parse((RequestKind)(data[0] % REQUEST_KINDS), VOCABULARY, body, size - 1, &arena,
                      &request, &refusal)) {
        check_request(&request);
        check_echo(&request);
    } else {
        check_refusal(&refusal);
    }
    free(body);
    return 0;
}
