/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve_cors.h"

#include <string.h>

#include "api/cors.h"
#include "serve/serve_state.h"

static void add(HttpExchange *x, const char *name, const char *value)
{
    char line[64 + CORS_NAMES_BYTES_MAX];
    size_t name_bytes = strlen(name), value_bytes = strlen(value);
    if (name_bytes + value_bytes >= sizeof line) return;
    memcpy(line, name, name_bytes);
    memcpy(line + name_bytes, value, value_bytes + 1);
    (void)http_answer_header(x, line);
}

static bool is_question(const HttpExchange *x)
{
    return strcmp(http_exchange_method(x), "OPTIONS") == 0 &&
           http_exchange_header(x, "Access-Control-Request-Method");
}

/* Whoever asks for a method or a header that is not there hears so from the request itself. */
static void allow(HttpExchange *x)
{
    const char *names = cors_names(http_exchange_header(x, "Access-Control-Request-Headers"));
    add(x, "Access-Control-Allow-Methods: ", CORS_METHODS);
    if (names) add(x, "Access-Control-Allow-Headers: ", names);
    add(x, "Access-Control-Max-Age: ", "600");
    http_reply(x, &(HttpReply){.status = 204}, "", 0);
}

static void refuse(Serve *s, HttpExchange *x)
{
    Refusal refusal;
    (void)refusal_make(&refusal, REFUSAL_ORIGIN, NULL,
                       "pages of this origin may not use this server; --cors lists those that may");
    serve_refuse(s, x, &refusal);
}

void serve_cors_add(const char *list, HttpExchange *x)
{
    const char *answer = cors_answer(list, http_exchange_header(x, "Origin"));
    if (list) add(x, "Vary: ", "Origin");
    if (answer) add(x, "Access-Control-Allow-Origin: ", answer);
    if (answer) add(x, "Access-Control-Expose-Headers: ", CORS_EXPOSED);
}

bool serve_cors_takes(Serve *s, HttpExchange *x)
{
    const char *list = s->options.cors, *origin = http_exchange_header(x, "Origin");
    serve_cors_add(list, x);
    if (!list || !origin || !is_question(x)) return false;
    if (cors_answer(list, origin)) allow(x);
    else refuse(s, x);
    return true;
}
