/* SPDX-License-Identifier: Apache-2.0 */
/* The engine thread's turns: who gets a slot, steps, and the end. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

#include "serve/chat_memory.h"
#include "serve/machine.h"
#include "serve/serve_state.h"

void serve_wake(Serve *s)
{
    const ServeEngine *engine = &s->options.engine;
    if (engine->wake) engine->wake(engine->engine);
    s->options.host.wake(s->options.host.host);
}

bool serve_ready(const Serve *s, Why *why)
{
    const ServeEngine *engine = &s->options.engine;
    return !engine->ready || engine->ready(engine->engine, why);
}

void serve_reply_json(HttpExchange *x, const JsonWriter *w)
{
    ASSERT(!w->full);
    http_reply(x, &(HttpReply){200, "application/json", NULL, 0}, w->bytes, w->used);
}

AnswerOllamaModel serve_ollama_model(const Serve *s)
{
    return (AnswerOllamaModel){.name = s->options.model,
                               .knot = s->options.knot,
                               .vocab = tokenizer_vocab(s->options.tokenizer),
                               .created_s = s->created_s,
                               .context = s->options.context,
                               .tools = s->chat.knows_tools};
}

void serve_refuse(Serve *s, HttpExchange *x, const Refusal *refusal)
{
    char body[REFUSAL_JSON_MAX];
    JsonWriter w = json_writer_make(body, sizeof body);
    refusal_write(refusal, &w);
    ASSERT(!w.full);
    unsigned status = refusal_status(refusal);
    serve_log_refused(s, x, refusal);
    if (status == 500) s->figures.failed++;
    else s->figures.refused++;
    http_reply(x, &(HttpReply){status, "application/json", NULL, refusal_retry_s(refusal)}, body,
               w.used);
}

/* ---- News ---- */

static void take_arrived(Serve *s)
{
    machine_lock(s->lock);
    if (s->arrived_first) {
        if (s->queue_last) s->queue_last->next = s->arrived_first;
        else s->queue_first = s->arrived_first;
        s->queue_last = s->arrived_last;
        s->arrived_first = s->arrived_last = NULL;
    }
    machine_unlock(s->lock);
}

/* The first job found whose client has left. */
static ServeJob *find_gone(const Serve *s)
{
    for (uint32_t i = 0; i < s->options.slots; i++)
        if (s->slots[i] && http_exchange_gone(s->slots[i]->job->x)) return s->slots[i]->job;
    for (const ServeAnswer *a = s->queue_first; a; a = a->next)
        if (http_exchange_gone(a->job->x)) return a->job;
    return NULL;
}

static void drop_gone(Serve *s)
{
    for (ServeJob *job; (job = find_gone(s)) != NULL;) serve_answer_end_job(s, job, NULL);
}

static void go_on(Serve *s, ServeAnswer *a)
{
    Why why = {{0}};
    a->state = SERVE_RUNNING;
    Error error = coordinator_start(s->options.engine.coordinator, a->slot, NULL, 0,
                                    a->job->tokens_max - a->generated, &a->params, &why);
    if (error == OK) error = serve_answer_ask(s, a, &why);
    if (error == OK) return;
    CoordinatorEvent event = {.slot = a->slot, .ended = true, .error = error};
    serve_answer_event(s, a, &event, &why);
}

/* Paused answers: on, or refused when their reader does not come back. */
static void look_at_paused(Serve *s)
{
    for (uint32_t i = 0; i < s->options.slots; i++) {
        ServeAnswer *a = s->slots[i];
        if (!a || a->state != SERVE_PAUSED) continue;
        if (http_stream_pending(a->job->x) < SERVE_STREAM_RESUME_BYTES) {
            if (!coordinator_is_under_way(s->options.engine.coordinator, i)) go_on(s, a);
        } else if (machine_now_ns() - a->paused_ns > SERVE_PAUSE_S_MAX * 1000000000ull) {
            Refusal refusal;
            (void)refusal_make(&refusal, REFUSAL_SLOW, NULL,
                               "the answer was not read for %d seconds", SERVE_PAUSE_S_MAX);
            serve_answer_end_job(s, a->job, &refusal);
        }
    }
}

/* ---- The loop ---- */

static void count_drafts(Serve *s)
{
    uint64_t guessed, right;
    coordinator_count_drafts(s->options.engine.coordinator, &guessed, &right);
    s->figures.drafts = guessed;
    s->figures.drafts_right = right;
}

static bool step(Serve *s)
{
    const CoordinatorEvent *events;
    uint32_t count;
    Why why = {{0}};
    uint64_t start = machine_now_ns();
    bool works = s->figures.active > 0; /* a cluster's engine also waits for its nodes' health */
    if (!s->options.engine.step(s->options.engine.engine, &events, &count, &why)) return false;
    s->figures.steps += works;
    count_drafts(s);
    if (works) s->figures.step_ms += (machine_now_ns() - start) / 1000000;
    for (uint32_t i = 0; i < count; i++) {
        ServeAnswer *a = s->slots[events[i].slot];
        if (a && a->state == SERVE_RUNNING) serve_answer_event(s, a, &events[i], &why);
    }
    if (s->options.journal) journal_settle(s->options.journal);
    return true;
}

static void notice_readiness(Serve *s)
{
    Why why = {{0}};
    if (serve_ready(s, &why)) s->unready_ns = 0;
    else if (!s->unready_ns) s->unready_ns = machine_now_ns();
}

ServeTurn serve_turn(Serve *s)
{
    take_arrived(s);
    drop_gone(s);
    look_at_paused(s);
    serve_slots_forget(s);
    serve_slots_give(s);
    notice_readiness(s);
    if (s->draining && !s->admitted) return SERVE_OVER;
    return step(s) ? SERVE_WORKED : SERVE_IDLE;
}

uint32_t serve_drain(Serve *s)
{
    s->draining = true;
    return s->admitted;
}

static void end_late(Serve *s, ServeJob *job)
{
    Refusal refusal;
    (void)refusal_make(&refusal, REFUSAL_DRAINING, NULL, "the server is shutting down");
    serve_answer_end_job(s, job, &refusal);
}

uint32_t serve_give_up(Serve *s)
{
    uint32_t left = s->admitted;
    take_arrived(s);
    while (s->queue_first) end_late(s, s->queue_first->job);
    for (uint32_t i = 0; i < s->options.slots; i++)
        if (s->slots[i]) end_late(s, s->slots[i]->job);
    return left;
}

/* ---- Opening and closing ---- */

/* Tells when a template is there but of no use. */
static Error make_chat(Serve *s, Why *why)
{
    TRY(chat_memory_make(s->options.tokenizer, &s->chat, &s->chat_memory, why));
    if (s->chat.fault.text[0])
        serve_say(&s->chat.fault, "the model's chat template is not used, %s",
                  s->chat.way == CHAT_NONE ? "so there is no chat" : "but a built-in one");
    return OK;
}

Error serve_open(const ServeOptions *options, Serve **out, Why *why)
{
    Serve *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for the server");
    s->options = *options;
    s->created_s = machine_time_s();
    s->unready_ns = 1; /* not ready since ever, until the engine says otherwise */
    s->lock = machine_lock_make();
    s->form_lock = machine_lock_make();
    s->keys_lock = machine_lock_make();
    s->slots = calloc(options->slots, sizeof *s->slots);
    s->slot_used = calloc(options->slots, sizeof *s->slot_used);
    s->slot_forget = calloc(options->slots, sizeof *s->slot_forget);
    s->event = malloc(SERVE_EVENT_BYTES);
    Error error = OK;
    if (!s->lock || !s->form_lock || !s->keys_lock || !s->slots || !s->slot_used ||
        !s->slot_forget || !s->event)
        error = error_why(why, ERR_MEMORY, "no memory for the server");
    if (error == OK) error = make_chat(s, why);
    if (error == OK) *out = s;
    else serve_close(s);
    return error;
}

void serve_end(Serve *s)
{
    s->draining = true;
    take_arrived(s);
    while (s->queue_first) serve_answer_end_job(s, s->queue_first->job, NULL);
    for (uint32_t i = 0; i < s->options.slots; i++)
        if (s->slots[i]) serve_answer_end_job(s, s->slots[i]->job, NULL);
}

void serve_close(Serve *s)
{
    if (!s) return;
    machine_lock_free(s->lock);
    machine_lock_free(s->form_lock);
    serve_keys_free(s->keys);
    machine_lock_free(s->keys_lock);
    serve_form_close(s);
    free(s->slots);
    free(s->slot_used);
    free(s->slot_forget);
    free(s->event);
    free(s->chat_memory);
    free(s);
}
