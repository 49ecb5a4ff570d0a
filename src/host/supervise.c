/* SPDX-License-Identifier: Apache-2.0 */
#include "host/supervise.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "host/hangup.h"
#include "host/log.h"
#include "host/stop.h"
#include "host/supervise_process.h"

enum { LOOP_MS = 20, READY_MS = 100, FIRST_WAITS_MS = 5000 };

typedef struct Supervise {
    const SuperviseOptions *options;
    SuperviseProcess *processes;
    struct pollfd *polls;
    HttpClient *client;
    uint64_t now_ms;
    bool ready, stopping;
    Why *why;
} Supervise;

static const char *ending(int code, char out[48])
{
    if (code > 128) (void)snprintf(out, 48, "was ended by signal %d", code - 128);
    else (void)snprintf(out, 48, "ended with code %d", code);
    return out;
}

/* ---- Health */

static void begin_call(Supervise *s, SuperviseProcess *p, const char *path)
{
    (void)snprintf(p->url, sizeof p->url, "%s%s", p->node->url, path);
    p->call = (HttpCall){.method = "GET",
                         .url = p->url,
                         .deadline_ms = SUPERVISE_SILENCE_MS,
                         .answer = p->answer,
                         .answer_room = sizeof p->answer,
                         .tag = p};
    p->calling = true;
    p->call_at_ms = s->now_ms;
    http_client_start(s->client, &p->call);
}

/* Any answer shows that it lives, also one larger than the room for it. */
static void end_call(Supervise *s, HttpCall *call)
{
    SuperviseProcess *p = call->tag;
    p->calling = false;
    if (!p->pid || (call->error != OK && call->error != ERR_TOO_LARGE)) return;
    p->answered_ms = s->now_ms;
    restart_well(&p->restart);
    bool ready = call->status == 200;
    if (s->ready || p != s->processes || !strstr(p->url, "/ready") || !ready) return;
    s->ready = true;
    if (s->options->ready) s->options->ready(s->options->context);
}

/* A beginner may take long to load; one that is stopped does not load. */
static uint64_t allowed_ms(const SuperviseProcess *p)
{
    return p->restart.well || p->stopped ? SUPERVISE_SILENCE_MS : SUPERVISE_BOOT_MS;
}

static void check_health(Supervise *s, SuperviseProcess *p)
{
    bool asks_ready = !s->ready && p == s->processes;
    uint64_t every = asks_ready || !p->restart.well ? READY_MS : SUPERVISE_HEALTH_MS;
    if (!p->pid) return;
    if (!p->calling && s->now_ms - p->call_at_ms >= every)
        begin_call(s, p, asks_ready ? "/ready" : "/health");
    if (p->killed || s->stopping || s->now_ms - p->answered_ms < allowed_ms(p)) return;
    log_say(LOG_ERROR, "%s has not answered for %llu s and is killed", p->node->id,
            (unsigned long long)(s->now_ms - p->answered_ms) / 1000);
    p->killed = true;
    supervise_process_signal(p, SIGKILL);
}

/* ---- Lives */

static Error start(Supervise *s, SuperviseProcess *p)
{
    TRY(supervise_process_start(p, s->options->program, s->why));
    restart_started(&p->restart, s->now_ms);
    p->answered_ms = p->call_at_ms = s->now_ms;
    p->restart_at_ms = 0;
    return OK;
}

static Error bury(Supervise *s, SuperviseProcess *p, int code)
{
    char how[48];
    uint32_t delay_ms;
    if (p->calling) http_client_cancel(s->client, &p->call);
    if (!restart_died(&p->restart, code, s->now_ms, &delay_ms))
        return error_why(s->why, ERR_IO, "%s %s%s: %s", p->node->id, ending(code, how),
                         code == RESTART_CODE_USAGE ? "" : " again and again",
                         p->last[0] ? p->last : "it said nothing");
    log_say(LOG_ERROR, "%s %s; it is started again in %u ms", p->node->id, ending(code, how),
            delay_ms);
    p->restart_at_ms = s->now_ms + delay_ms;
    return OK;
}

static Error look_after(Supervise *s, SuperviseProcess *p)
{
    int code;
    bool was_stopped = p->stopped;
    if (p->pid) supervise_process_read(p, false);
    if (p->pid && supervise_process_ended(p, &code)) return bury(s, p, code);
    if (p->stopped && !was_stopped) p->answered_ms = s->now_ms; /* its silence counts from here */
    /* A call that was cancelled may be on its way back still. */
    if (!p->pid && p->restart_at_ms && s->now_ms >= p->restart_at_ms && !p->calling)
        return start(s, p);
    check_health(s, p);
    return OK;
}

/* Lines, answers, time: until something happens, at most LOOP_MS. */
static void wait_a_little(Supervise *s)
{
    for (uint32_t i = 0; i < s->options->node_count; i++)
        s->polls[i] = (struct pollfd){.fd = s->processes[i].output, .events = POLLIN};
    (void)poll(s->polls, s->options->node_count, LOOP_MS);
    for (HttpCall *call; (call = http_client_wait(s->client, 0));) end_call(s, call);
    uint64_t now = clock_now_ms(), gap = now - s->now_ms;
    s->now_ms = now;
    if (gap < SUPERVISE_HEALTH_MS / 2) return;
    for (uint32_t i = 0; i < s->options->node_count; i++) /* we were not there to hear them */
        s->processes[i].answered_ms += gap;
}

/* The first looks for the others as soon as it lives: they get a head start. */
static bool is_time_for_first(const Supervise *s, uint64_t began_ms)
{
    for (uint32_t i = 1; i < s->options->node_count; i++)
        if (!s->processes[i].restart.well) return s->now_ms - began_ms >= FIRST_WAITS_MS;
    return true;
}

/* One that has not answered yet would die of it, and may have read what is old now: it gets it later. */
static void pass_hangup(Supervise *s)
{
    if (s->processes[0].pid && s->processes[0].restart.well && hangup_take())
        supervise_process_signal(&s->processes[0], SIGHUP);
}

static Error keep_alive(Supervise *s)
{
    uint64_t began_ms = s->now_ms;
    bool complete = false;
    for (uint32_t i = 1; i < s->options->node_count; i++) TRY(start(s, &s->processes[i]));
    if (s->options->passes_hangups) hangup_watch();
    while (!stop_asked()) {
        if (s->options->passes_hangups) pass_hangup(s);
        if (!complete && is_time_for_first(s, began_ms)) {
            complete = true;
            TRY(start(s, &s->processes[0]));
        }
        for (uint32_t i = 0; i < s->options->node_count; i++) TRY(look_after(s, &s->processes[i]));
        wait_a_little(s);
    }
    return ERR_CANCELLED;
}

/* ---- The end */

static void ask_to_end(const SuperviseProcess *p)
{
    supervise_process_signal(p, SIGTERM);
    supervise_process_signal(p, SIGCONT); /* a stopped process hears nothing */
}

/* Waits for processes first .. last - 1. false: some are still there. */
static bool wait_for_end(Supervise *s, uint32_t first, uint32_t last, uint64_t ms, bool keep_others)
{
    uint64_t until = s->now_ms + ms;
    for (;;) {
        int code;
        uint32_t left = 0;
        for (uint32_t i = first; i < last; i++) {
            SuperviseProcess *p = &s->processes[i];
            if (p->pid) supervise_process_read(p, false);
            if (p->pid && !supervise_process_ended(p, &code)) left++;
        }
        if (!left) return true;
        if (s->now_ms >= until) return false;
        for (uint32_t i = last; keep_others && i < s->options->node_count; i++)
            if (look_after(s, &s->processes[i]) != OK) return false;
        wait_a_little(s);
    }
}

static void end_all(Supervise *s, bool politely)
{
    uint32_t count = s->options->node_count;
    s->stopping = true;
    if (politely) {
        ask_to_end(&s->processes[0]);
        (void)wait_for_end(s, 0, 1, s->options->drain_s * 1000ull + SUPERVISE_LATE_MS, true);
    }
    for (uint32_t i = 0; i < count; i++) ask_to_end(&s->processes[i]);
    if (wait_for_end(s, 0, count, SUPERVISE_POLITE_MS, false)) return;
    for (uint32_t i = 0; i < count; i++) supervise_process_signal(&s->processes[i], SIGKILL);
    (void)wait_for_end(s, 0, count, SUPERVISE_KILL_MS, false);
}

static Error prepare(Supervise *s)
{
    const SuperviseOptions *o = s->options;
    ASSERT(o->node_count && o->node_count <= SUPERVISE_NODES_MAX);
    s->processes = calloc(o->node_count, sizeof *s->processes);
    s->polls = calloc(o->node_count, sizeof *s->polls);
    if (!s->processes || !s->polls) return error_why(s->why, ERR_MEMORY, "the list of processes");
    int width = 0;
    for (uint32_t i = 0; i < o->node_count; i++)
        if ((int)strlen(o->nodes[i].id) > width) width = (int)strlen(o->nodes[i].id);
    for (uint32_t i = 0; i < o->node_count; i++) {
        s->processes[i].node = &o->nodes[i];
        s->processes[i].output = s->processes[i].log = -1;
        s->processes[i].id_width = width;
    }
    return http_client_open(&o->http, &s->client, s->why);
}

Error supervise_run(const SuperviseOptions *options, Why *why)
{
    Supervise s = {.options = options, .why = why, .now_ms = clock_now_ms()};
    Error error = prepare(&s);
    if (error == OK) {
        Why late; /* what goes wrong at the end does not hide why it came */
        error = keep_alive(&s);
        s.why = &late;
        end_all(&s, error == ERR_CANCELLED);
    }
    if (s.client) http_client_close(s.client);
    for (uint32_t i = 0; s.processes && i < options->node_count; i++)
        supervise_process_close(&s.processes[i]);
    free(s.processes);
    free(s.polls);
    return error;
}
