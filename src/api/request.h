/* SPDX-License-Identifier: Apache-2.0 */
/* A request's body to a checked value. A table per dialect says which fields exist for which path, and each is honoured
 * or refused by its name: nothing is accepted and ignored but `user` and its like, `model` (one model is served) and
 * the keys of stream_options that do not change the text.
 *
 *   body --> json_scan --> yyjson --> table of fields --> Request
 *
 *   request.c              OpenAI's chat, completions, tokenize, detokenize, apply-template; the loop over any table
 *   request_responses.c    OpenAI's Responses             request_embeddings.c   OpenAI's embeddings
 *   request_ollama.c       Ollama's chat, generate, show
 *   request_plain.c, request_parts.c, request_scores.c, request_form.c, request_tools.c     readers of fields
 *
 * null is the same as leaving a field out, except as a message's content. What is borrowed from
 * the body's JSON lives in the arena. What needs the vocabulary's text (tokenizing, whether the
 * prompt fits) comes later. */
#ifndef COBORD_API_REQUEST_H
#define COBORD_API_REQUEST_H

#include "api/answer.h"
#include "api/json_scan.h"
#include "model/sampler.h"
#include "text/detokenizer.h"
#include "text/grammar.h"
#include "text/turns.h"

/* In journals: new ones go to the end. */
typedef enum RequestKind {
    REQUEST_CHAT,
    REQUEST_COMPLETION,
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
    REQUEST_TEMPLATE, /* a conversation, of which the prompt is wanted */
    REQUEST_EMBEDDINGS,
    REQUEST_RESPONSES,
    REQUEST_OLLAMA_CHAT,
    REQUEST_OLLAMA_GENERATE,
    REQUEST_OLLAMA_SHOW,
    REQUEST_KINDS
} RequestKind;

enum {
    REQUEST_BODY_BYTES_MAX = 8 << 20,
    REQUEST_CHOICES_MAX = ANSWER_CHOICES_MAX, /* n times prompts */
    REQUEST_INPUTS_MAX = 64,                  /* of /v1/embeddings */
    REQUEST_TOPS_MAX = ANSWER_TOPS_MAX,
    REQUEST_COMPLETION_TOKENS = 16, /* when max_tokens is not given, as in OpenAI's API */
    REQUEST_ECHO_BYTES_MAX = 64 << 10,
    REQUEST_TOOLS_MAX = 128,         /* also calls in one message */
    REQUEST_TOOL_VALUES_MAX = 65536, /* JSON values in all tools and calls */
    REQUEST_TOOL_MEMBERS_MAX = 1024, /* of an object in them */
    REQUEST_TOOL_DEPTH_MAX = 32,
    REQUEST_TOOL_ID_MAX = 128,
    REQUEST_COUNT_MAX = INT32_MAX, /* of a field that counts something; more is a mistake */
    REQUEST_TOKENS_UNLIMITED = REQUEST_COUNT_MAX /* up to the context's end */
};

/* What an answer must be: any text, any JSON object, JSON of a schema, text of a grammar, calls of tools (or, where
 * tool_choice is auto, text without any). */
typedef enum RequestForm {
    REQUEST_FREE,
    REQUEST_JSON_OBJECT,
    REQUEST_JSON_SCHEMA,
    REQUEST_GRAMMAR,
    REQUEST_TOOL_CALLS
} RequestForm;

typedef enum RequestToolChoice {
    REQUEST_TOOLS_AUTO,
    REQUEST_TOOLS_NONE,
    REQUEST_TOOLS_REQUIRED,
    REQUEST_TOOLS_NAMED
} RequestToolChoice;

typedef struct RequestTool {
    const char *name;
    size_t name_bytes;
    yyjson_val *parameters; /* a JSON schema; NULL: none */
    bool strict;
} RequestTool;

typedef struct RequestPrompt {
    bool is_ids;
    const uint8_t *text;
    size_t bytes;
    const uint32_t *ids;
    size_t count;
} RequestPrompt;

/* Values that the answer says again; NULL when they are not given. */
typedef struct RequestEcho {
    yyjson_val *instructions, *metadata, *format, *temperature, *top_p, *tokens_max;
} RequestEcho;

typedef struct Request {
    RequestKind kind;
    Turn *turns; /* chat, template */
    size_t turn_count;
    /* The other kinds: up to REQUEST_CHOICES_MAX, one of tokenize and detokenize. */
    RequestPrompt prompts[REQUEST_INPUTS_MAX];
    uint32_t prompt_count;
    bool stream, include_usage;
    uint32_t n; /* answers to each prompt */
    uint32_t tokens_max;
    bool seed_given;
    SamplerParams params; /* bias: in the arena */
    const char *stops[DETOKENIZER_STOPS_MAX];
    uint32_t stop_bytes[DETOKENIZER_STOPS_MAX];
    uint32_t stop_count;
    RequestForm form;
    yyjson_val *schema;  /* of REQUEST_JSON_SCHEMA, else NULL */
    const char *grammar; /* of REQUEST_GRAMMAR: GBNF */
    size_t grammar_bytes;
    RequestEcho echo;
    uint32_t context_max; /* prompt and answer together; 0: as many as the server has */
    bool loads;           /* wants no answer, only the model in memory */
    RequestTool *tools;
    uint32_t tool_count, tool_chosen; /* chosen: of REQUEST_TOOLS_NAMED */
    RequestToolChoice tool_choice;
    bool one_call;                 /* at most: parallel_tool_calls is false */
    bool reads_calls;              /* the answer's text may have calls */
    const JinjaValue *tool_values; /* what the template is told; NULL: no tools */
    size_t tool_bytes;             /* about what they and the messages' calls are as JSON text */
    bool scores;                   /* of each token, with the `tops` likeliest beside it */
    uint32_t tops;
    bool says_prompt;             /* in front of each answer */
    bool hops;                    /* their cost is in the usage */
    bool base64;                  /* embeddings */
    uint32_t dimensions;          /* likewise; 0: the model's */
    bool add_bos, plain_specials; /* tokenize: BOS in front; control tokens in the text stay text */
} Request;

/* request_bytes(bytes) suffices for the arena. Result  false with the refusal. */
size_t request_bytes(size_t body_bytes);
bool request_parse(RequestKind kind, uint32_t vocabulary, const uint8_t *body, size_t bytes,
                   Arena *arena, Request *out, Refusal *refusal);

/* Whether a slot answers such a request, and in which dialect; what its prompt is called. */
bool request_generates(RequestKind kind);
AnswerDialect request_dialect(RequestKind kind);
const char *request_prompt_name(RequestKind kind);

/* Members of the answer's object that repeat the request, each with a comma in front; REQUEST_ECHO_BYTES_MAX suffice,
 * or it is refused. Nothing for most kinds. Result  false with the refusal. */
bool request_echo(const Request *request, JsonWriter *w, Refusal *refusal);

/* The grammar of a form that is not REQUEST_FREE, into `arena` (grammar_bytes_max suffices); `scratch` needs
 * request_form_scratch_bytes. Owner  the request may go afterwards. Result  false with the refusal, which names the
 * field, and the keyword or place in it. */
const char *request_form_param(const Request *request); /* the field */
size_t request_form_scratch_bytes(void);
bool request_form_build(const Request *request, Arena *scratch, Arena *arena, Grammar *out,
                        Refusal *refusal);

#endif
