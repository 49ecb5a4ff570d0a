/* SPDX-License-Identifier: Apache-2.0 */
/* From a slot's events to text that goes out. All of it on the engine thread. */
#include <stdlib.h>
#include <string.h>

#include "serve/machine.h"
#include "serve/serve_state.h"

enum { PACE_SHARE = 8 }; /* what the newest pause is worth in the mean of them, one in so many */

/* Before its answer has ended: who has that may send another request. */
static void leave_key(Serve *s, ServeJob *job)
{
    serve_keys_leave(s, job->key);
    job->key = NULL;
}

void serve_answer_free_job(Serve *s, ServeJob *job)
{
    for (uint32_t i = 0; i < job->answer_count; i++) {
        free(job->answers[i].text);
        serve_tools_free(job->answers[i].tools);
        serve_form_leave(s, &job->answers[i]);
        serve_scores_free(&job->answers[i]);
    }
    free(job->hops);
    serve_form_free(s, job);
    free(job->echo);
    leave_key(s, job);
    if (job->x) http_exchange_release(job->x);
    free(job->memory);
    free(job);
}

/* ---- Leaving ---- */

/* A mean that forgets, for those who are refused: how long they should stay away. */
static void note_pace(Serve *s)
{
    uint64_t now = machine_now_ns(), mean = s->pace_ns;
    if (s->freed_ns && s->figures.waiting) {
        uint64_t pause = now - s->freed_ns;
        s->pace_ns = mean ? mean - mean / PACE_SHARE + pause / PACE_SHARE : pause;
    }
    s->freed_ns = s->figures.waiting ? now : 0;
}

/* A finished answer leaves its beginning for the next request that shares it; anything else frees the
 * attention cache at once. */
static void leave_slot(Serve *s, ServeAnswer *a, bool forget)
{
    coordinator_stop(s->options.engine.coordinator, a->slot);
    serve_form_leave(s, a);
    s->slots[a->slot] = NULL;
    s->slot_used[a->slot] = ++s->answer_serial;
    s->slot_forget[a->slot] = forget;
    s->figures.active--;
    a->job->running--;
    note_pace(s);
}

void serve_answer_leave_queue(Serve *s, ServeAnswer *a)
{
    ServeAnswer *before = NULL;
    for (ServeAnswer *q = s->queue_first; q && q != a; q = q->next) before = q;
    if (before) before->next = a->next;
    else s->queue_first = a->next;
    if (s->queue_last == a) s->queue_last = before;
    s->figures.waiting--;
}

static void set_done(Serve *s, ServeAnswer *a, bool forget)
{
    if (a->state == SERVE_DONE) return;
    if (a->state == SERVE_QUEUED) serve_answer_leave_queue(s, a);
    else leave_slot(s, a, forget);
    a->state = SERVE_DONE;
    a->job->done_count++;
    atomic_fetch_sub(&s->admitted, 1);
}

static AnswerUsage usage_of(const ServeJob *job);

static void log_gone(const ServeJob *job)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < job->answer_count; i++) tokens += job->answers[i].generated;
    serve_say(NULL, "%s: the client left after %llu tokens; its slot is free", job->head.id,
              (unsigned long long)tokens);
}

void serve_answer_end_job(Serve *s, ServeJob *job, const Refusal *refusal)
{
    for (uint32_t i = 0; i < job->answer_count; i++) set_done(s, &job->answers[i], true);
    leave_key(s, job);
    if (!refusal) {
        s->figures.gone++;
        log_gone(job);
    }
    AnswerUsage usage = usage_of(job);
    serve_log_usage(job, &usage);
    if (job->stream) {
        JsonWriter w = json_writer_make(s->event, SERVE_EVENT_BYTES);
        if (refusal) answer_write_fault(&job->head, &w, refusal);
        (void)http_stream_write(job->x, w.bytes, w.used);
        http_stream_end(job->x);
        s->figures.failed += refusal != NULL;
        if (refusal) serve_log_refused(s, job->x, refusal);
    } else if (refusal) {
        serve_refuse(s, job->x, refusal);
    }
    serve_answer_free_job(s, job);
}

/* ---- The end ---- */

/* An answer without a token spent all its time on the prompt. */
static void note_times(const ServeAnswer *a, AnswerUsage *u)
{
    uint64_t now = machine_now_ns(), first = a->first_ns ? a->first_ns : now;
    u->total_ns = now - a->queued_ns;
    u->wait_ns = a->started_ns - a->queued_ns;
    u->prompt_ns = first - a->started_ns;
    u->completion_ns = now - first;
}

static AnswerUsage usage_of(const ServeJob *job)
{
    AnswerUsage u = {0};
    for (uint32_t i = 0; i < job->answer_count; i++) {
        const ServeAnswer *a = &job->answers[i];
        u.completion += a->generated;
        /* The prompt of n answers counts once. */
        if (a->shares_prompt) continue;
        u.prompt += a->count - a->journaled;
        u.cached += a->cached;
    }
    note_times(&job->answers[0], &u);
    u.hops = job->hops;
    u.hop_count = job->hop_count;
    return u;
}

/* Adds what the answer has cost at each node; its slot is still its own. */
static void note_hops(const Serve *s, const ServeAnswer *a)
{
    const ServeEngine *engine = &s->options.engine;
    ServeJob *job = a->job;
    AnswerHop hops[SERVE_HOPS_MAX];
    if (!job->hops || !engine->hops) return;
    uint32_t count = engine->hops(engine->engine, a->slot, hops, SERVE_HOPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < job->hop_count && strcmp(job->hops[at].node, hops[i].node) != 0) at++;
        if (at == SERVE_HOPS_MAX) continue;
        if (at == job->hop_count) job->hops[job->hop_count++] = (AnswerHop){.node = hops[i].node};
        job->hops[at].calls += hops[i].calls;
        job->hops[at].us += hops[i].us;
        job->hops[at].bytes_sent += hops[i].bytes_sent;
        job->hops[at].bytes_received += hops[i].bytes_received;
    }
}

/* How far each answer has got, for the id of the event to come. */
static void note_places(ServeJob *job)
{
    if (!job->head.resumable) return;
    for (uint32_t i = 0; i < job->answer_count; i++) {
        const ServeAnswer *a = &job->answers[i];
        job->head.places[i] = a->place > a->sent ? a->place : a->sent;
    }
}

static AnswerPiece whole_piece(const ServeAnswer *a)
{
    if (a->tools) return serve_tools_whole(a->tools);
    AnswerPiece piece = {.text = (const uint8_t *)a->text, .bytes = a->text_bytes};
    if (a->scores && !a->job->stream) {
        piece.scores = serve_scores_list(a);
        piece.score_count = a->scored;
    }
    return piece;
}

/* All that an ending or a whole answer needs, for the texts that were kept. malloc'd; NULL: no memory. */
static char *make_room(const ServeJob *job, size_t *room)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < job->answer_count; i++) {
        const ServeAnswer *a = &job->answers[i];
        bytes += a->tools ? serve_tools_bytes(a->tools) : a->text_bytes;
    }
    *room = answer_bytes(&job->head, bytes) + job->hop_count * ANSWER_HOP_BYTES;
    for (uint32_t i = 0; i < job->answer_count; i++)
        if (job->answers[i].scored)
            *room += answer_scores_bytes(&job->head, serve_scores_list(&job->answers[i]),
                                         job->answers[i].scored);
    return malloc(*room);
}

static bool end_stream(ServeJob *job, const AnswerUsage *usage)
{
    size_t room;
    char *body = make_room(job, &room);
    if (!body) return false;
    JsonWriter w = json_writer_make(body, room);
    AnswerPiece whole = whole_piece(&job->answers[0]);
    answer_write_end(&job->head, &w, answer_repeats(job->head.dialect) ? &whole : NULL, usage);
    ASSERT(!w.full);
    bool fine = http_stream_write(job->x, w.bytes, w.used) || http_exchange_gone(job->x);
    free(body);
    if (fine) http_stream_end(job->x);
    return fine;
}

static bool send_whole(ServeJob *job, const AnswerUsage *usage)
{
    size_t room;
    char *body = make_room(job, &room);
    if (!body) return false;
    JsonWriter w = json_writer_make(body, room);
    answer_begin(&job->head, &w);
    for (uint32_t i = 0; i < job->answer_count; i++) {
        AnswerPiece piece = whole_piece(&job->answers[i]);
        answer_choice(&job->head, &w, i, &piece, job->answers[i].finish);
    }
    answer_end(&job->head, &w, usage);
    ASSERT(!w.full);
    http_reply_take(job->x, &(HttpReply){200, "application/json", NULL, 0}, body, w.used);
    return true;
}

static void end_job(Serve *s, ServeJob *job)
{
    AnswerUsage usage = usage_of(job);
    s->figures.answers += job->answer_count;
    leave_key(s, job);
    serve_log_usage(job, &usage);
    if (job->stream ? end_stream(job, &usage) : send_whole(job, &usage)) {
        serve_answer_free_job(s, job);
        return;
    }
    Refusal refusal;
    (void)refusal_make(&refusal, REFUSAL_MEMORY, NULL, "not enough memory for the answer");
    serve_answer_end_job(s, job, &refusal);
}

/* Behind every place that text can have. Written also when the client has it already: a dialect counts. */
static void send_finish(Serve *s, ServeAnswer *a)
{
    ServeJob *job = a->job;
    JsonWriter w = json_writer_make(s->event, SERVE_EVENT_BYTES);
    a->place = a->places_before + a->generated + SERVE_PLACE_FINISH;
    note_places(job);
    answer_write_finish(&job->head, &w, a->index, a->finish);
    if (a->place > a->sent) (void)http_stream_write(job->x, w.bytes, w.used);
}

static void finish(Serve *s, ServeAnswer *a, AnswerFinish how)
{
    ServeJob *job = a->job;
    const ServeEngine *engine = &s->options.engine;
    bool degraded = engine->degraded && engine->degraded(engine->engine, a->slot);
    note_hops(s, a);
    a->finish = how;
    s->figures.degraded += degraded;
    job->head.degraded |= degraded;
    set_done(s, a, degraded);
    serve_metrics_answer(s, a);
    if (job->journaled)
        journal_token(s->options.journal, job->journal_name, a->index, a->generated, JOURNAL_END);
    if (job->stream) send_finish(s, a);
    if (job->done_count == job->answer_count) end_job(s, job);
}

static void fail(Serve *s, ServeAnswer *a, Error error, const Why *why)
{
    Refusal refusal;
    if (error == ERR_CANCELLED)
        (void)refusal_make(&refusal, REFUSAL_DRAINING, NULL, "the server is shutting down");
    else if (error == ERR_UNREACHABLE || error == ERR_MEMORY)
        (void)refusal_of_error(&refusal, error, why);
    else if (!serve_form_explains(a, error, why, &refusal))
        (void)refusal_make(&refusal, REFUSAL_SERVER, NULL, "%s: %s", error_text(error), why->text);
    if (error != ERR_CANCELLED) serve_say(why, "%s failed: %s", a->job->head.id, error_text(error));
    serve_answer_end_job(s, a->job, &refusal);
}

/* ---- Text ---- */

static bool keep_text(ServeAnswer *a, const uint8_t *text, size_t bytes)
{
    if (a->text_room - a->text_bytes < bytes) {
        size_t room = 2 * (a->text_bytes + bytes) + 256;
        char *grown = realloc(a->text, room);
        if (!grown) return false;
        a->text = grown;
        a->text_room = room;
    }
    memcpy(a->text + a->text_bytes, text, bytes);
    a->text_bytes += bytes;
    return true;
}

/* An event; what is large gets memory of its own. */
static bool send_piece(Serve *s, ServeAnswer *a, const AnswerPiece *piece)
{
    ServeJob *job = a->job;
    size_t room = SERVE_EVENT_BYTES;
    if (a->tools) room += JSON_WRITER_GROWTH * serve_tools_bytes(a->tools);
    if (piece->scores) room += answer_scores_bytes(&job->head, piece->scores, piece->score_count);
    char *event = room > SERVE_EVENT_BYTES ? malloc(room) : s->event;
    if (!event) return false;
    JsonWriter w = json_writer_make(event, room);
    note_places(job);
    answer_write_piece(&job->head, &w, a->index, piece);
    ASSERT(!w.full);
    /* Written also when the client has it already: a dialect counts. */
    bool fine = a->place <= a->sent || http_stream_write(job->x, w.bytes, w.used) ||
                http_exchange_gone(job->x);
    if (event != s->event) free(event);
    return fine;
}

bool serve_answer_put(Serve *s, ServeAnswer *a, const AnswerPiece *piece)
{
    bool stream = a->job->stream, keeps = !stream || answer_repeats(a->job->head.dialect);
    if (keeps && !keep_text(a, piece->text, piece->bytes)) return false;
    return !stream || send_piece(s, a, piece);
}

static bool put_tools(Serve *s, ServeAnswer *a, const uint8_t *text, size_t bytes, bool end)
{
    AnswerPiece piece;
    if (!serve_tools_push(a->tools, text, bytes, end)) return false;
    if (!a->job->stream || !serve_tools_news(a->tools, &piece)) return true;
    return send_piece(s, a, &piece);
}

static bool put_scored(Serve *s, ServeAnswer *a, AnswerPiece piece, bool end)
{
    uint32_t ready = serve_scores_ready(a, piece.text, piece.bytes);
    bool stream = a->job->stream;
    if (!piece.bytes && (!ready || !end)) return true;
    piece.scores = serve_scores_list(a);
    piece.score_count = ready;
    if (!serve_answer_put(s, a, &piece)) return false;
    if (stream) serve_scores_forget(a, ready);
    else a->scored = ready;
    return true;
}

static bool put_text(Serve *s, ServeAnswer *a, const uint8_t *text, size_t bytes, bool end)
{
    AnswerPiece piece = {.text = text, .bytes = bytes};
    if (a->tools) return put_tools(s, a, text, bytes, end);
    if (a->scores) return put_scored(s, a, piece, end);
    return !bytes || serve_answer_put(s, a, &piece);
}

/* The text of a token, and its place among the scores. */
static Error read_token(ServeAnswer *a, uint32_t id, const CoordinatorScore *score, uint8_t *text,
                        size_t *bytes, bool *stopped, Why *why)
{
    if (score && !serve_scores_begin(a, score))
        return error_why(why, ERR_MEMORY, "the scores of tokens");
    TRY(detokenizer_push(&a->detokenizer, id, text, DETOKENIZER_OUT_BYTES_MAX, bytes, stopped,
                         why));
    if (score) serve_scores_end(a, *bytes, *stopped);
    return OK;
}

/* Takes one token; its score when they are wanted. Result  false when it ended the answer, one way or another. */
static bool take_token(Serve *s, ServeAnswer *a, uint32_t id, const CoordinatorScore *score)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes = 0;
    bool stopped = false;
    Why why = {{0}};
    if (!a->first_ns) {
        a->first_ns = machine_now_ns();
        serve_metrics_first(s, a);
    }
    a->place = a->places_before + ++a->generated;
    s->figures.generated_tokens++;
    if (a->generated > a->journaled) serve_keys_charge(s, a->job->key, 1);
    if (a->job->journaled && a->generated > a->journaled)
        journal_token(s->options.journal, a->job->journal_name, a->index, a->generated - 1, id);
    bool end = tokenizer_is_end(s->options.tokenizer, id);
    Error error = end ? detokenizer_end(&a->detokenizer, text, sizeof text, &bytes, &why)
                      : read_token(a, id, score, text, &bytes, &stopped, &why);
    if (error == OK && !put_text(s, a, text, bytes, end || stopped))
        error = error_why(&why, ERR_MEMORY, "the answer's text");
    bool calls = a->tools && serve_tools_called(a->tools);
    stopped |= a->tools && serve_tools_enough(a->tools);
    if (error != OK) fail(s, a, error, &why);
    else if (end || stopped) finish(s, a, calls ? ANSWER_TOOLS : ANSWER_STOP);
    return error == OK && !end && !stopped;
}

static void end_by_length(Serve *s, ServeAnswer *a)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes = 0;
    Why why = {{0}};
    a->place = a->places_before + a->generated + SERVE_PLACE_HELD;
    Error error = detokenizer_end(&a->detokenizer, text, sizeof text, &bytes, &why);
    if (error == OK && !put_text(s, a, text, bytes, true))
        error = error_why(&why, ERR_MEMORY, "the answer's text");
    if (error != OK) fail(s, a, error, &why);
    else finish(s, a, ANSWER_LENGTH);
}

/* The reader is behind: the slot keeps its place, and asks for nothing until it has caught up. */
static void pause_if_behind(Serve *s, ServeAnswer *a)
{
    if (!a->job->stream || serve_scores_waits(a) ||
        http_stream_pending(a->job->x) < SERVE_STREAM_PAUSE_BYTES)
        return;
    coordinator_stop(s->options.engine.coordinator, a->slot);
    a->state = SERVE_PAUSED;
    a->paused_ns = machine_now_ns();
    s->figures.paused++;
}

/* Scores tell the tokens, too. Result  false when the answer has ended. */
static bool take_scored(Serve *s, ServeAnswer *a)
{
    uint32_t count;
    Why why = {{0}};
    const CoordinatorScore *scores =
        coordinator_take_scores(s->options.engine.coordinator, a->slot, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (!serve_scores_waits(a)) {
            if (!take_token(s, a, scores[i].token, &scores[i])) return false;
            continue;
        }
        Error error = serve_scores_prompt(s, a, &scores[i], &why);
        if (error == OK) continue;
        fail(s, a, error, &why);
        return false;
    }
    return true;
}

static bool take_tokens(Serve *s, ServeAnswer *a, const CoordinatorEvent *event)
{
    if (a->scores) return take_scored(s, a);
    for (uint32_t i = 0; i < event->token_count; i++)
        if (!take_token(s, a, event->tokens[i], NULL)) return false;
    return true;
}

/* The end of a prompt whose hidden states were wanted: its vector is the text. */
static void embed(Serve *s, ServeAnswer *a)
{
    uint32_t rows, hidden = s->options.hidden;
    const double *sums = coordinator_pooled(s->options.engine.coordinator, a->slot, &rows);
    Why why = {{0}};
    Error error = OK;
    a->text = malloc(4 * (size_t)hidden);
    if (rows != a->count)
        error = error_why(&why, ERR_NOT_AVAILABLE, "%u of %u hidden states", rows, a->count);
    else if (!a->text) error = error_why(&why, ERR_MEMORY, "the embedding");
    else if (!answer_embed(sums, hidden, (uint8_t *)a->text))
        error = error_why(&why, ERR_NOT_FINITE, "the embedding");
    a->text_bytes = 4 * (size_t)hidden;
    if (error != OK) fail(s, a, error, &why);
    else finish(s, a, ANSWER_STOP);
}

void serve_answer_event(Serve *s, ServeAnswer *a, const CoordinatorEvent *event, const Why *why)
{
    if (event->error != OK) {
        fail(s, a, event->error, why);
        return;
    }
    if (a->job->pools ? !event->ended : !take_tokens(s, a, event)) return;
    if (a->job->pools) embed(s, a);
    else if (event->ended) end_by_length(s, a);
    else pause_if_behind(s, a);
}

/* What the journal has goes the way of new tokens; only what the client lacks is sent.
 * Result  false: the answer has ended with it. */
static bool take_journaled(Serve *s, ServeAnswer *a)
{
    const uint32_t *tokens = a->ids + a->count - a->journaled;
    for (uint32_t i = 0; i < a->journaled; i++)
        if (!take_token(s, a, tokens[i], NULL)) return false;
    if (!a->journaled || (a->generated < a->job->tokens_max && a->count <= s->options.context))
        return true;
    end_by_length(s, a);
    return false;
}

Error serve_answer_ask(Serve *s, ServeAnswer *a, Why *why)
{
    TRY(serve_form_constrain(s, a, why));
    if (a->job->pools) return coordinator_pool(s->options.engine.coordinator, a->slot, why);
    return serve_scores_ask(s, a, why);
}

/* From what the slot has said already to all that is asked of it. */
static Error start(Serve *s, ServeAnswer *a, Why *why)
{
    Coordinator *c = s->options.engine.coordinator;
    uint32_t said;
    (void)coordinator_tokens(c, a->slot, &said);
    TRY(coordinator_start(c, a->slot, a->ids + said, a->count - said,
                          a->job->tokens_max - a->generated, &a->params, why));
    return serve_answer_ask(s, a, why);
}

void serve_answer_start(Serve *s, ServeAnswer *a, uint32_t slot, uint32_t cached)
{
    const ServeEngine *engine = &s->options.engine;
    Why why = {{0}};
    a->state = SERVE_RUNNING;
    a->started_ns = machine_now_ns();
    a->slot = slot;
    s->slots[slot] = a;
    s->figures.active++;
    a->job->running++;
    if (engine->begin_hops) engine->begin_hops(engine->engine, slot);
    if (engine->begin_trace)
        engine->begin_trace(engine->engine, slot, http_exchange_record(a->job->x));
    if (a->job->pools || (a->job->scores && a->job->says_prompt)) { /* rows of all tokens */
        coordinator_truncate(engine->coordinator, slot, 0);
        cached = 0;
    }
    Error error = serve_scores_start(s, a, &why);
    if (error == OK && !take_journaled(s, a)) return;
    if (error == OK) error = start(s, a, &why);
    a->cached = cached;
    s->figures.prompt_tokens += a->count;
    s->figures.cached_tokens += cached;
    s->figures.wait_ms += (machine_now_ns() - a->queued_ns) / 1000000;
    metrics_times_add(&s->figures.wait_time, a->started_ns - a->queued_ns);
    if (error != OK) fail(s, a, error, &why);
}
