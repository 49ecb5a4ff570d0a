/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request is not answered, in the one shape that every path uses:
 *
 *   {"error":{"message":"...","type":"invalid_request_error","param":"top_p","code":"invalid_value","retryable":false}}
 *
 * The kind decides status, type, code and whether the same request may work later; the message says what and what to
 * do. Bytes of the client never appear in it as they came: names of fields are cut and escaped. */
#ifndef COBORD_API_REFUSAL_H
#define COBORD_API_REFUSAL_H

#include "api/json_writer.h"
#include "base/error.h"

/* kind, status, type, code, retryable */
#define REFUSAL_LIST(X)                                                               \
    X(REFUSAL_NONE, 200, "", "", 0)                                                   \
    X(REFUSAL_BODY, 400, "invalid_request_error", "invalid_json", 0)                  \
    X(REFUSAL_MISSING, 400, "invalid_request_error", "missing_required_parameter", 0) \
    X(REFUSAL_VALUE, 400, "invalid_request_error", "invalid_value", 0)                \
    X(REFUSAL_TYPE, 400, "invalid_request_error", "invalid_type", 0)                  \
    X(REFUSAL_UNKNOWN, 400, "invalid_request_error", "unknown_parameter", 0)          \
    X(REFUSAL_UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter", 0)  \
    X(REFUSAL_CONTEXT, 400, "invalid_request_error", "context_length_exceeded", 0)    \
    X(REFUSAL_KEY, 401, "invalid_request_error", "invalid_api_key", 0)                \
    X(REFUSAL_ADMIN, 403, "invalid_request_error", "insufficient_permissions", 0)     \
    X(REFUSAL_ORIGIN, 403, "invalid_request_error", "origin_not_allowed", 0)          \
    X(REFUSAL_HOST, 403, "invalid_request_error", "host_not_allowed", 0)              \
    X(REFUSAL_PATH, 404, "invalid_request_error", "not_found", 0)                     \
    X(REFUSAL_STREAM, 404, "invalid_request_error", "stream_not_found", 0)            \
    X(REFUSAL_MODEL, 404, "invalid_request_error", "model_not_found", 0)              \
    X(REFUSAL_METHOD, 405, "invalid_request_error", "method_not_allowed", 0)          \
    X(REFUSAL_TOO_LARGE, 413, "invalid_request_error", "request_too_large", 0)        \
    X(REFUSAL_MEDIA, 415, "invalid_request_error", "unsupported_media_type", 0)       \
    X(REFUSAL_QUEUE, 429, "rate_limit_error", "queue_full", 1)                        \
    X(REFUSAL_REQUESTS, 429, "requests", "rate_limit_exceeded", 1)                    \
    X(REFUSAL_TOKENS, 429, "tokens", "rate_limit_exceeded", 1)                        \
    X(REFUSAL_UNREADY, 503, "overloaded_error", "not_ready", 1)                       \
    X(REFUSAL_UNREACHABLE, 503, "overloaded_error", "unreachable", 1)                 \
    X(REFUSAL_DRAINING, 503, "overloaded_error", "shutting_down", 1)                  \
    X(REFUSAL_SLOW, 503, "overloaded_error", "reader_too_slow", 1)                    \
    X(REFUSAL_MEMORY, 503, "overloaded_error", "out_of_memory", 1)                    \
    X(REFUSAL_SERVER, 500, "server_error", "internal_error", 1)

typedef enum RefusalKind {
#define REFUSAL_ENTRY(kind, status, type, code, retryable) kind,
    REFUSAL_LIST(REFUSAL_ENTRY)
#undef REFUSAL_ENTRY
        REFUSAL_LAST = REFUSAL_SERVER
} RefusalKind;

enum { REFUSAL_PARAM_MAX = 96, REFUSAL_JSON_MAX = 4096 };

typedef struct Refusal {
    RefusalKind kind;
    char param[REFUSAL_PARAM_MAX];   /* "" is null */
    Why why;                         /* the message */
    uint32_t prompt_tokens, context; /* of REFUSAL_CONTEXT */
    unsigned retry_s;                /* when it is known; 0: the kind's */
} Refusal;

/* refusal_make(r, kind, param, format, ...) fills `r`; `param` may be NULL, the format is error_why's.
 * Result  false, so that a reader reads: return refusal_make(...). A macro, so that the compiler sees the format. */
#define refusal_make(r, kind, param, ...) \
    (refusal_start(r, kind, param), refusal_end(error_why(&(r)->why, ERR_USAGE, __VA_ARGS__)))
void refusal_start(Refusal *r, RefusalKind kind, const char *param);
static inline bool refusal_end(Error error) { return error == OK; }

/* An error of a room below, as a refusal. */
bool refusal_of_error(Refusal *r, Error error, const Why *why);

const char *refusal_code(const Refusal *r);
unsigned refusal_status(const Refusal *r);
/* Seconds for Retry-After, 0: none. */
unsigned refusal_retry_s(const Refusal *r);
/* The body; REFUSAL_JSON_MAX suffices. */
void refusal_write(const Refusal *r, JsonWriter *w);

#endif
