/* SPDX-License-Identifier: Apache-2.0 */
/* The page of GET /metrics. Figures are counted by atomics where things happen; here they are only read. */
#include <stdlib.h>
#include <string.h>

#include "api/metrics.h"
#include "serve/machine.h"
#include "serve/serve_state.h"

enum { PAGE_BYTES = 64 << 10, STATUS_FIRST = 100, STATUS_LAST = 599 };

/* ---- What is counted here ---- */

static unsigned class_of(unsigned status)
{
    return status >= STATUS_FIRST && status <= STATUS_LAST ? status / 100 : 0;
}

void serve_metrics_request(Serve *s, const HttpExchange *x, unsigned status, uint64_t took_ns)
{
    ServeFigures *f = &s->figures;
    uint32_t route;
    (void)serve_routes_name(s, x, &route);
    f->statuses[class_of(status)]++;
    metrics_times_add(&f->requests_time[route], took_ns);
}

void serve_metrics_answer(Serve *s, const ServeAnswer *a)
{
    uint64_t now = machine_now_ns();
    if (!a->first_ns || !a->queued_ns) return;
    if (a->generated < 2) return;
    metrics_times_add(&s->figures.token_time, (now - a->first_ns) / (a->generated - 1));
}

void serve_metrics_first(Serve *s, const ServeAnswer *a)
{
    metrics_times_add(&s->figures.first_time, a->first_ns - a->queued_ns);
}

/* ---- The page ---- */

static const char *code_of(uint32_t kind)
{
    return refusal_code(&(Refusal){.kind = (RefusalKind)kind});
}

/* Of all kinds of a code, told by the first of them. Result  false: it is not the first. */
static bool count_refusals(ServeFigures *f, uint32_t kind, uint64_t *count)
{
    for (uint32_t i = REFUSAL_NONE + 1; i < kind; i++)
        if (strcmp(code_of(i), code_of(kind)) == 0) return false;
    *count = 0;
    for (uint32_t i = kind; i <= REFUSAL_LAST; i++)
        if (strcmp(code_of(i), code_of(kind)) == 0) *count += f->refusals[i];
    return true;
}

static void write_requests(Serve *s, JsonWriter *w)
{
    static const char *const classes[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    ServeFigures *f = &s->figures;
    uint64_t count;
    metrics_write_count(w, "cobord_requests_total", "HTTP requests whose head arrived.",
                        f->requests);
    metrics_head(w, "cobord_responses_total", "Requests that are over, by class of status.",
                 METRICS_COUNTER);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        metrics_line(w, "cobord_responses_total", &METRICS_LABEL("class", classes[i]),
                     f->statuses[i]);
    metrics_write_count(w, "cobord_refused_total", "Requests that were refused.", f->refused);
    metrics_write_count(w, "cobord_failed_total", "Requests that failed here.", f->failed);
    metrics_head(w, "cobord_refusals_total", "Refusals and failures, by the code of the answer.",
                 METRICS_COUNTER);
    for (uint32_t i = REFUSAL_NONE + 1; i <= REFUSAL_LAST; i++)
        if (count_refusals(f, i, &count))
            metrics_line(w, "cobord_refusals_total", &METRICS_LABEL("code", code_of(i)), count);
    metrics_write_count(w, "cobord_disconnects_total", "Clients that left before their answer.",
                        f->gone);
    if (s->options.host.shed)
        metrics_write_count(w, "cobord_connections_shed_total",
                            "Connections that made room for others.",
                            s->options.host.shed(s->options.host.host));
    metrics_head(w, "cobord_request_seconds", "From a request's head to the end of its answer.",
                 METRICS_HISTOGRAM);
    for (uint32_t i = 0; i < SERVE_ROUTES_MAX; i++)
        if (metrics_times_count(&f->requests_time[i]))
            metrics_times_write(w, "cobord_request_seconds",
                                &METRICS_LABEL("route", serve_routes_label(i)),
                                &f->requests_time[i]);
}

static void write_tokens(Serve *s, JsonWriter *w)
{
    ServeFigures *f = &s->figures;
    metrics_write_count(w, "cobord_answers_total", "Answers completed.", f->answers);
    metrics_write_count(w, "cobord_prompt_tokens_total", "Tokens of prompts.", f->prompt_tokens);
    metrics_write_count(w, "cobord_cached_tokens_total",
                        "Tokens of prompts that were not computed again.", f->cached_tokens);
    metrics_write_count(w, "cobord_generated_tokens_total", "Tokens of answers.",
                        f->generated_tokens);
    metrics_write_count(w, "cobord_draft_tokens_total", "Tokens of answers that were guessed.",
                        f->drafts);
    metrics_write_count(w, "cobord_draft_accepted_total", "Guessed tokens that were right.",
                        f->drafts_right);
    metrics_head(w, "cobord_first_token_seconds",
                 "From an answer's place in the queue to its first token.", METRICS_HISTOGRAM);
    metrics_times_write(w, "cobord_first_token_seconds", NULL, &f->first_time);
    metrics_head(w, "cobord_token_seconds", "Time per token of an answer, behind the first.",
                 METRICS_HISTOGRAM);
    metrics_times_write(w, "cobord_token_seconds", NULL, &f->token_time);
}

static void write_engine(Serve *s, JsonWriter *w)
{
    ServeFigures *f = &s->figures;
    metrics_write_count(w, "cobord_steps_total", "Passes of the engine.", f->steps);
    metrics_write_seconds(w, "cobord_steps_seconds_total", "Time in passes of the engine.",
                          f->step_ms);
    metrics_write_seconds(w, "cobord_queue_seconds_total", "Time of answers in the queue.",
                          f->wait_ms);
    metrics_head(w, "cobord_queue_wait_seconds", "Time of an answer in the queue.",
                 METRICS_HISTOGRAM);
    metrics_times_write(w, "cobord_queue_wait_seconds", NULL, &f->wait_time);
    metrics_write_count(w, "cobord_pauses_total", "Answers that waited for a slow reader.",
                        f->paused);
    metrics_write_count(w, "cobord_journal_failures_total",
                        "Writes of the journal that failed: these streams end with the process.",
                        s->options.journal ? journal_failures(s->options.journal) : 0);
    metrics_write_count(w, "cobord_degraded_total", "Answers with rows of a lost shard as zeros.",
                        f->degraded);
    metrics_write_gauge(w, "cobord_ready", "1 when every range has a node.",
                        serve_ready(s, &(Why){{0}}));
    metrics_write_gauge(w, "cobord_draining", "1 while what was begun is finished before the end.",
                        s->draining);
    metrics_write_gauge(w, "cobord_slots", "Conversations at once.", s->options.slots);
    metrics_write_gauge(w, "cobord_slots_active", "Slots in use.", f->active);
    metrics_write_gauge(w, "cobord_queue_length", "Answers that wait for a slot.", f->waiting);
    metrics_write_gauge(w, "cobord_queue_limit", "Answers that may wait for a slot.",
                        s->options.queue_max);
    metrics_write_gauge(w, "cobord_context_tokens", "Positions of a conversation.",
                        s->options.context);
    metrics_write_gauge(w, "cobord_connections", "Open connections.",
                        s->options.host.connections(s->options.host.host));
}

void serve_metrics_reply(Serve *s, HttpExchange *x)
{
    const ServeEngine *engine = &s->options.engine;
    size_t room = PAGE_BYTES + serve_keys_metrics_bytes(s);
    if (engine->metrics) room += engine->metrics_bytes;
    char *body = malloc(room);
    Refusal refusal;
    if (!body) {
        (void)refusal_make(&refusal, REFUSAL_MEMORY, NULL, "not enough memory for the figures");
        serve_refuse(s, x, &refusal);
        return;
    }
    JsonWriter w = json_writer_make(body, room);
    MetricsProcess process = {0};
    machine_process(&process);
    if (s->options.memory_bytes) process.budget_bytes = s->options.memory_bytes;
    write_requests(s, &w);
    write_tokens(s, &w);
    write_engine(s, &w);
    if (engine->metrics) engine->metrics(engine->engine, &w);
    metrics_process(&w, &process, s->options.version, s->options.role ? s->options.role : "serve");
    serve_keys_metrics(s, &w);
    ASSERT(!w.full);
    http_reply_take(x, &(HttpReply){200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0}, body,
                    w.used);
}
