/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that read a request share. A reader takes one field's value, never null, and is
 * false with the refusal. */
#ifndef COBORD_API_REQUEST_STATE_H
#define COBORD_API_REQUEST_STATE_H

#include "api/request.h"

typedef struct RequestReader {
    Request *request;
    Refusal *refusal;
    Arena *arena;
    uint32_t vocabulary;
    uint8_t *text; /* joined parts of messages: as many bytes as the body has */
    size_t text_bytes;
    bool tokens_given, stream_options_given;
    uint32_t best_of;
} RequestReader;

typedef bool (*RequestRead)(RequestReader *r, yyjson_val *value, const char *name);

bool request_parts_messages(RequestReader *r, yyjson_val *value, const char *name);
bool request_parts_prompt(RequestReader *r, yyjson_val *value, const char *name);
/* One array of ids; `name` is how a refusal calls it. */
bool request_parts_ids(RequestReader *r, yyjson_val *value, const char *name, RequestPrompt *out);
bool request_parts_stop(RequestReader *r, yyjson_val *value, const char *name);
bool request_parts_bias(RequestReader *r, yyjson_val *value, const char *name);

/* request_form.c */
bool request_form_response_format(RequestReader *r, yyjson_val *value, const char *name);
bool request_form_grammar(RequestReader *r, yyjson_val *value, const char *name);

/* "messages[3].content" into out[REFUSAL_PARAM_MAX]; `more` may be "". */
void request_name_at(char *out, const char *name, size_t index, const char *more);
/* A key of the client's as a refusal may show it: cut, and "" unless it is plain. */
void request_name_safe(char *out, const char *before, yyjson_val *key);

#endif
