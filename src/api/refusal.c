/* SPDX-License-Identifier: Apache-2.0 */
#include "api/refusal.h"

#include <string.h>

typedef struct RefusalClass {
    unsigned status;
    const char *type, *code;
    bool retryable;
} RefusalClass;

static RefusalClass class_of(RefusalKind kind)
{
    static const RefusalClass classes[] = {
#define REFUSAL_ENTRY(name, status, type, code, retryable) {status, type, code, retryable},
        REFUSAL_LIST(REFUSAL_ENTRY)
#undef REFUSAL_ENTRY
    };
    return classes[kind];
}

void refusal_start(Refusal *r, RefusalKind kind, const char *param)
{
    *r = (Refusal){.kind = kind};
    size_t n = param ? strlen(param) : 0;
    if (n >= sizeof r->param) n = sizeof r->param - 1;
    if (n) memcpy(r->param, param, n);
}

bool refusal_of_error(Refusal *r, Error error, const Why *why)
{
    const char *details = why && why->text[0] ? why->text : error_text(error);
    if (error == ERR_MEMORY)
        return refusal_make(r, REFUSAL_MEMORY, NULL, "not enough memory: %s", details);
    if (error == ERR_UNREACHABLE) return refusal_make(r, REFUSAL_UNREACHABLE, NULL, "%s", details);
    if (error >= ERR_USAGE && error < ERR_AGAIN && error != ERR_NOT_FINITE)
        return refusal_make(r, REFUSAL_VALUE, NULL, "%s", details);
    return refusal_make(r, REFUSAL_SERVER, NULL, "%s: %s", error_text(error), details);
}

const char *refusal_code(const Refusal *r) { return class_of(r->kind).code; }

unsigned refusal_status(const Refusal *r) { return class_of(r->kind).status; }

unsigned refusal_retry_s(const Refusal *r)
{
    unsigned status = refusal_status(r);
    if (r->retry_s) return r->retry_s;
    return status == 429 || status == 503 ? 1 : 0;
}

void refusal_write(const Refusal *r, JsonWriter *w)
{
    RefusalClass c = class_of(r->kind);
    json_writer_raw(w, "{\"error\":{\"message\":");
    json_writer_text(w, r->why.text);
    json_writer_raw(w, ",\"type\":");
    json_writer_text(w, c.type);
    json_writer_raw(w, ",\"param\":");
    if (r->param[0]) json_writer_text(w, r->param);
    else json_writer_raw(w, "null");
    json_writer_raw(w, ",\"code\":");
    json_writer_text(w, c.code);
    json_writer_raw(w, ",\"retryable\":");
    json_writer_bool(w, c.retryable);
    if (r->kind == REFUSAL_CONTEXT) {
        json_writer_raw(w, ",\"n_prompt_tokens\":");
        json_writer_u64(w, r->prompt_tokens);
        json_writer_raw(w, ",\"n_ctx\":");
        json_writer_u64(w, r->context);
    }
    json_writer_raw(w, "}}");
}
