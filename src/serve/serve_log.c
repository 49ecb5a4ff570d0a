/* SPDX-License-Identifier: Apache-2.0 */
/* A request's names, and its line in the log when it is over. */
#include <string.h>

#include "serve/machine.h"
#include "serve/serve_state.h"

void serve_log_begin(HttpExchange *x)
{
    static const char name[] = "X-Request-Id: ";
    HttpRecord *r = http_exchange_record(x);
    char line[sizeof name + TRACE_REQUEST_BYTES];
    const char *id = http_exchange_header(x, "X-Request-Id");
    if (trace_is_request_id(id)) memcpy(r->request_id, id, strlen(id) + 1);
    else trace_make_request_id(machine_random(), r->request_id);
    if (!trace_continue(http_exchange_header(x, "traceparent"), machine_random(), &r->trace))
        r->trace = trace_begin(machine_random(), machine_random(), machine_random());
    memcpy(line, name, sizeof name - 1);
    memcpy(line + sizeof name - 1, r->request_id, strlen(r->request_id) + 1);
    (void)http_answer_header(x, line);
}

void serve_log_refused(Serve *s, HttpExchange *x, const Refusal *refusal)
{
    s->figures.refusals[refusal->kind]++;
    http_exchange_record(x)->error = refusal_code(refusal);
}

void serve_log_usage(const ServeJob *job, const AnswerUsage *usage)
{
    HttpRecord *r = http_exchange_record(job->x);
    r->prompt_tokens = usage->prompt;
    r->completion_tokens = usage->completion;
    r->cached_tokens = usage->cached;
    for (uint32_t i = 0; i < job->answer_count; i++) {
        uint64_t first = job->answers[i].first_ns;
        if (first && (!r->first_ns || first < r->first_ns)) r->first_ns = first;
    }
}

/* Who only looks how it is comes every few seconds. */
static LogLevel level_of(const HttpExchange *x)
{
    static const char *const looks[] = {"/health", "/ready", "/metrics", "/cluster"};
    const char *path = http_exchange_path(x);
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++)
        if (strcmp(path, looks[i]) == 0) return LOG_DEBUG;
    return LOG_INFO;
}

void serve_over(Serve *s, HttpExchange *x, const HttpOver *over)
{
    const HttpRecord *r = http_exchange_record(x);
    LogLevel level = level_of(x);
    uint64_t took_ns = over->end_ns - over->begin_ns;
    serve_metrics_request(s, x, over->status, took_ns);
    if (!machine_logs(level)) return;
    bool first = r->first_ns > over->begin_ns;
    machine_log(&(LogEntry){.level = level,
                            .event = "request",
                            .request_id = r->request_id,
                            .trace = &r->trace,
                            .method = http_exchange_method(x),
                            .path = http_exchange_path(x),
                            .status = over->status,
                            .us = took_ns / 1000,
                            .first_us = first ? (r->first_ns - over->begin_ns) / 1000 : 0,
                            .prompt_tokens = r->prompt_tokens,
                            .completion_tokens = r->completion_tokens,
                            .cached_tokens = r->cached_tokens,
                            .key_name = r->key_name,
                            .error = r->error     ? r->error
                                     : over->gone ? "client_left"
                                                  : NULL});
}
