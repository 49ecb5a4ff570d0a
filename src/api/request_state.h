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
    bool tokens_given, stream_options_given, tops_given;
    uint32_t best_of;
    bool no_penalties, raw;      /* of Ollama's requests */
    yyjson_val *prompt, *system; /* likewise; NULL: none, or empty */
    const char *tool_name;       /* that tool_choice names */
    size_t tool_name_bytes, tool_values;
} RequestReader;

typedef bool (*RequestRead)(RequestReader *r, yyjson_val *value, const char *name);

/* One field of an object, for the kinds of requests that have it (a bit each). `name` is how a refusal calls it: the
 * key, behind the table's `before`. At most 64 in a table. */
typedef struct RequestField {
    const char *name;
    unsigned kinds;
    RequestRead read;
} RequestField;

enum { REQUEST_ANY_KIND = 0x7fffffff };

typedef struct RequestTable {
    const char *before; /* "", or "options." */
    const RequestField *fields;
    unsigned count;
} RequestTable;

/* Whether `object` is one, and its members are among `known` (a list that ends with NULL), each once; `name` is how a
 * refusal calls the object, which may be missing. */
bool request_check_members(RequestReader *r, yyjson_val *object, const char *name,
                           const char *const *known);

/* Reads every member of the object: refused are those that the table does not have, and those given twice. */
bool request_read_object(RequestReader *r, yyjson_val *object, const RequestTable *table);

/* A role as the model's turns call it, NULL when it has none. */
const char *request_parts_role(yyjson_val *role);
bool request_parts_messages(RequestReader *r, yyjson_val *value, const char *name);
bool request_parts_prompt(RequestReader *r, yyjson_val *value, const char *name);
/* One array of ids; `name` is how a refusal calls it. */
bool request_parts_ids(RequestReader *r, yyjson_val *value, const char *name, RequestPrompt *out);
bool request_parts_stop(RequestReader *r, yyjson_val *value, const char *name);
bool request_parts_bias(RequestReader *r, yyjson_val *value, const char *name);

/* request_plain.c */
bool request_plain_bool(RequestReader *r, yyjson_val *value, const char *name, bool *out);
bool request_plain_count(RequestReader *r, yyjson_val *value, const char *name, uint32_t low,
                         uint32_t high, uint32_t *out);
/* Refuses whatever it is: what cannot be honoured. */
bool request_plain_never(RequestReader *r, yyjson_val *value, const char *name);
/* A string that changes nothing. */
bool request_plain_string(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_stream(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_stream_options(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_temperature(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_top_p(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_min_p(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_top_k(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_repetition(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_presence(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_frequency(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_seed(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_tokens_max(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_n(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_best_of(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_neutral(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_modalities(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_text(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_ids(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_add_special(RequestReader *r, yyjson_val *value, const char *name);
bool request_plain_parse_special(RequestReader *r, yyjson_val *value, const char *name);

/* request_scores.c. The check comes after all fields. */
bool request_scores_wanted(RequestReader *r, yyjson_val *value, const char *name);
bool request_scores_tops(RequestReader *r, yyjson_val *value, const char *name);
bool request_scores_count(RequestReader *r, yyjson_val *value, const char *name);
bool request_scores_echo(RequestReader *r, yyjson_val *value, const char *name);
bool request_scores_hops(RequestReader *r, yyjson_val *value, const char *name);
bool request_scores_check(RequestReader *r);

/* request_embeddings.c. The check comes after all fields. */
extern const RequestTable request_embeddings_table;
bool request_embeddings_check(RequestReader *r);

/* request_form.c */
/* What the field with a schema is called. */
const char *request_form_name(RequestKind kind);
bool request_form_response_format(RequestReader *r, yyjson_val *value, const char *name);
/* The same with the schema's members beside the type, as /v1/responses has it. */
bool request_form_text_format(RequestReader *r, yyjson_val *value, const char *name);
/* Ollama's: "json", or a schema. */
bool request_form_format(RequestReader *r, yyjson_val *value, const char *name);
bool request_form_grammar(RequestReader *r, yyjson_val *value, const char *name);

/* request_responses.c. The check comes after all fields. */
extern const RequestTable request_responses_table;
bool request_responses_check(RequestReader *r);

/* request_ollama.c. The defaults come before all fields, the check after them. */
extern const RequestTable request_ollama_table;
void request_ollama_defaults(Request *q);
bool request_ollama_check(RequestReader *r);

/* request_tools.c */
size_t request_tools_bytes(size_t body_bytes); /* of the arena, for all of these */
bool request_tools_list(RequestReader *r, yyjson_val *value, const char *name);
bool request_tools_choice(RequestReader *r, yyjson_val *value, const char *name);
bool request_tools_parallel(RequestReader *r, yyjson_val *value, const char *name);
bool request_tools_check(RequestReader *r); /* what they decide together */
/* An assistant's tool_calls; `param` is the field's name. */
bool request_tools_calls(RequestReader *r, yyjson_val *value, const char *param, Turn *turn);
/* What a tool's message says beside its content; the turns before it have been read. */
bool request_tools_answer(RequestReader *r, yyjson_val *message, size_t index, Turn *turn);
bool request_tools_grammar(const Request *q, Arena *scratch, Arena *arena, Grammar *out,
                           Refusal *refusal);

/* The text behind the name. Result  false. */
bool request_refuse(RequestReader *r, RefusalKind kind, const char *name, const char *text);

/* One name behind another, cut, into out[REFUSAL_PARAM_MAX]. */
void request_name_join(char *out, const char *name, const char *more);
/* "messages[3].content" into out[REFUSAL_PARAM_MAX]; `more` may be "". */
void request_name_at(char *out, const char *name, size_t index, const char *more);
/* A key of the client's as a refusal may show it: cut, and "" unless it is plain. */
void request_name_safe(char *out, const char *before, yyjson_val *key);

#endif
