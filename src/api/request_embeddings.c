/* SPDX-License-Identifier: Apache-2.0 */
/* Texts whose place in the model's space is wanted: /v1/embeddings. */
#include "api/request_state.h"

static bool read_format(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->base64 = yyjson_equals_str(value, "base64");
    return r->request->base64 || yyjson_equals_str(value, "float") ||
           request_refuse(r, yyjson_is_str(value) ? REFUSAL_VALUE : REFUSAL_TYPE, name,
                          "must be float or base64");
}

static bool read_dimensions(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_count(r, value, name, 1, REQUEST_COUNT_MAX, &r->request->dimensions);
}

enum { HERE = 1 << REQUEST_EMBEDDINGS };

static const RequestField fields[] = {
    {"model", HERE, request_plain_string},  {"input", HERE, request_parts_prompt},
    {"encoding_format", HERE, read_format}, {"dimensions", HERE, read_dimensions},
    {"user", HERE, request_plain_string},   {"hops", HERE, request_scores_hops},
};

const RequestTable request_embeddings_table = {"", fields, sizeof fields / sizeof fields[0]};

bool request_embeddings_check(RequestReader *r)
{
    r->request->tokens_max = 0;
    if (!r->request->prompt_count)
        return refusal_make(r->refusal, REFUSAL_MISSING, "input", "input is missing");
    for (uint32_t i = 0; i < r->request->prompt_count; i++) {
        const RequestPrompt *p = &r->request->prompts[i];
        if (p->is_ids ? p->count : p->bytes) continue;
        return refusal_make(r->refusal, REFUSAL_VALUE, "input", "input has an empty text");
    }
    return true;
}
