/* SPDX-License-Identifier: Apache-2.0 */
/* The intake: a body becomes a checked request, its text becomes ids, and both become a job in the queue, or a
 * refusal. All that takes time with the size of a request happens here, natively beside the HTTP thread and the
 * engine's. */
#include <stdlib.h>
#include <string.h>

#include "serve/machine.h"
#include "serve/serve_state.h"

enum { RETRY_SECONDS_MAX = 60 }; /* that a full queue sends anybody away for */

typedef struct Ids {
    uint32_t *ids; /* malloc'd */
    size_t count;
} Ids;

/* One request on its way; `memory` is the arena's. */
typedef struct Intake {
    Serve *serve;
    HttpExchange *x;
    ServeKey *key; /* until a job has it */
    bool told;     /* the client, what its key has left */
    Request request;
    Refusal refusal;
    void *memory;
    Ids prompts[REQUEST_INPUTS_MAX];
    uint32_t prompt_count;
    uint64_t created_s;             /* the time that a template sees, too */
    const JournalStream *journaled; /* of a stream that goes on; NULL: a new request */
    AnswerPlace place;              /* and where */
} Intake;

/* ---- Text to ids ---- */

static bool no_memory(Intake *in)
{
    return refusal_make(&in->refusal, REFUSAL_MEMORY, NULL, "not enough memory for the prompt");
}

static unsigned text_flags(const Request *q)
{
    if (q->kind == REQUEST_TOKENIZE)
        return (q->plain_specials ? 0u : (unsigned)TOKENIZE_SPECIALS) |
               (q->add_bos ? (unsigned)TOKENIZE_BOS : 0u);
    if (q->kind == REQUEST_EMBEDDINGS) return TOKENIZE_BOS;
    return TOKENIZE_SPECIALS | TOKENIZE_BOS;
}

/* Room for ids, and for what makes them. Result  the latter, malloc'd; NULL with the refusal. */
static void *take_room(Intake *in, size_t ids_max, size_t scratch_bytes, Ids *out)
{
    void *scratch = malloc(scratch_bytes);
    out->ids = malloc((ids_max + 1) * sizeof *out->ids);
    if (scratch && out->ids) return scratch;
    free(scratch);
    (void)no_memory(in);
    return NULL;
}

static bool encode(Intake *in, const RequestPrompt *prompt, Ids *out)
{
    const Tokenizer *t = in->serve->options.tokenizer;
    Why why = {{0}};
    size_t max = tokenizer_ids_max(t, prompt->bytes),
           bytes = tokenizer_scratch_bytes(t, prompt->bytes);
    void *memory = take_room(in, max, bytes, out);
    if (!memory) return false;
    Arena scratch = arena_make(memory, bytes);
    Error error = tokenizer_encode(t, prompt->text, prompt->bytes, text_flags(&in->request),
                                   &scratch, out->ids, max, &out->count, &why);
    free(memory);
    return error == OK || refusal_of_error(&in->refusal, error, &why);
}

/* A conversation that the template cannot take is the client's to change, and the template's words say how. */
static bool refuse_turns(Intake *in, Error error, const Why *why)
{
    if (error >= ERR_USAGE && error < ERR_AGAIN)
        return refusal_make(&in->refusal, REFUSAL_VALUE, request_prompt_name(in->request.kind),
                            "the model's chat template refuses: %s", why->text);
    return refusal_of_error(&in->refusal, error, why);
}

static bool encode_text(Intake *in, const ChatTurns *turns, JinjaText text, Ids *out)
{
    const Chat *c = &in->serve->chat;
    Why why = {{0}};
    size_t max = chat_ids_max(c, turns, text), bytes = chat_scratch_bytes(c, turns, text);
    void *memory = take_room(in, max, bytes, out);
    if (!memory) return false;
    Arena scratch = arena_make(memory, bytes);
    Error error = chat_encode(c, turns, text, &scratch, out->ids, max, &out->count, &why);
    free(memory);
    return error == OK || refuse_turns(in, error, &why);
}

static bool encode_folded(Intake *in, const ChatTurns *turns, Ids *out)
{
    const Chat *c = &in->serve->chat;
    Why why = {{0}};
    JinjaText text;
    size_t bytes = chat_text_bytes(c, turns);
    void *memory = malloc(bytes);
    if (!memory) return no_memory(in);
    Arena arena = arena_make(memory, bytes);
    Error error = chat_text(c, turns, &arena, &text, &why);
    bool fine = error == OK ? encode_text(in, turns, text, out) : refuse_turns(in, error, &why);
    free(memory);
    return fine;
}

static bool encode_turns(Intake *in, Ids *out)
{
    const Chat *c = &in->serve->chat;
    const Request *q = &in->request;
    const ChatTurns turns = {.turns = q->turns,
                             .count = q->turn_count,
                             .now_s = (int64_t)in->created_s,
                             .tools = q->tool_values,
                             .tool_bytes = q->tool_bytes};
    ChatTurns folded;
    Why why = {{0}};
    size_t bytes = chat_fold_bytes(c, &turns);
    void *memory = malloc(bytes);
    if (!memory) return no_memory(in);
    Arena arena = arena_make(memory, bytes);
    Error error = chat_fold(c, &turns, &arena, &folded, &why);
    bool fine = error == OK ? encode_folded(in, &folded, out) : refuse_turns(in, error, &why);
    free(memory);
    return fine;
}

/* `prompt` is NULL for a conversation. */
static bool take_prompt(Intake *in, const RequestPrompt *prompt)
{
    Ids *out = &in->prompts[in->prompt_count++];
    if (!prompt) return encode_turns(in, out);
    if (!prompt->is_ids) return encode(in, prompt, out);
    out->ids = malloc((prompt->count + 1) * sizeof *out->ids);
    if (!out->ids) return no_memory(in);
    if (prompt->count) memcpy(out->ids, prompt->ids, prompt->count * sizeof *out->ids);
    out->count = prompt->count;
    return true;
}

static bool take_prompts(Intake *in)
{
    if (in->request.turn_count) {
        if (in->serve->chat.way == CHAT_NONE)
            return refusal_make(&in->refusal, REFUSAL_UNSUPPORTED,
                                request_prompt_name(in->request.kind),
                                "this model has no chat turns; use /v1/completions");
        return take_prompt(in, NULL);
    }
    for (uint32_t i = 0; i < in->request.prompt_count; i++)
        if (!take_prompt(in, &in->request.prompts[i])) return false;
    return true;
}

static bool check_prompts(Intake *in)
{
    const char *param = request_prompt_name(in->request.kind);
    uint32_t served = in->serve->options.context, wanted = in->request.context_max,
             context = wanted ? wanted : served;
    if (wanted > served)
        return refusal_make(&in->refusal, REFUSAL_VALUE, "options.num_ctx",
                            "options.num_ctx is %u, and the context that is served %u", wanted,
                            served);
    for (uint32_t i = 0; i < in->prompt_count; i++) {
        size_t count = in->prompts[i].count;
        if (!count)
            return refusal_make(&in->refusal, REFUSAL_VALUE, param,
                                "%s is empty, and the model has no token to begin with", param);
        if (count <= context) continue;
        (void)refusal_make(
            &in->refusal, REFUSAL_CONTEXT, param,
            "the prompt has %zu tokens and the context %u: shorten it, or serve with a larger --context",
            count, context);
        in->refusal.prompt_tokens = (uint32_t)count;
        in->refusal.context = context;
        return false;
    }
    if (wanted && in->request.tokens_max > wanted - in->prompts[0].count)
        in->request.tokens_max = wanted - (uint32_t)in->prompts[0].count;
    return true;
}

/* A stream's prompt with its scores is written at once, so it has to fit into what a reader may be behind. */
static bool check_figures(Intake *in)
{
    const Request *q = &in->request;
    uint32_t hidden = in->serve->options.hidden;
    if (q->dimensions && q->dimensions != hidden)
        return refusal_make(&in->refusal, REFUSAL_VALUE, "dimensions",
                            "this model's embeddings have %u dimensions", hidden);
    if (q->scores && q->reads_calls)
        return refusal_make(&in->refusal, REFUSAL_UNSUPPORTED, "logprobs",
                            "logprobs are not supported beside tools");
    size_t entries = 0;
    for (uint32_t i = 0; i < in->prompt_count; i++)
        entries += in->prompts[i].count * (q->tops + 1) * q->n;
    if (q->stream && q->says_prompt && q->scores && entries > SERVE_SAID_MAX)
        return refusal_make(&in->refusal, REFUSAL_VALUE, "echo",
                            "the prompts have %zu logprobs, a stream says %d at most: ask without "
                            "a stream, or for fewer",
                            entries, SERVE_SAID_MAX);
    return true;
}

/* ---- Jobs ---- */

/* What a job keeps of the request, in one piece of memory. */
static size_t kept_bytes(const Intake *in)
{
    size_t bytes = arena_bytes(in->request.params.bias_count * sizeof(SamplerBias)) + ARENA_ALIGN;
    for (uint32_t i = 0; i < in->request.stop_count; i++)
        bytes += arena_bytes(in->request.stop_bytes[i]);
    for (uint32_t i = 0; i < in->prompt_count; i++)
        bytes += arena_bytes(in->prompts[i].count * sizeof(uint32_t));
    for (uint32_t i = 0; in->journaled && i < in->request.n * in->prompt_count; i++)
        bytes +=
            arena_bytes((in->prompts[i / in->request.n].count + in->journaled->token_counts[i]) *
                        sizeof(uint32_t));
    return bytes;
}

static const void *keep(Arena *arena, const void *bytes, size_t count)
{
    void *copy = arena_take_raw(arena, count);
    ASSERT(copy);
    if (count) memcpy(copy, bytes, count);
    return copy;
}

/* The prompt, and behind it what the journal has of the answer. */
static void keep_journaled(const Intake *in, ServeAnswer *a, Arena *arena, const Ids *prompt)
{
    /* Scores are made again with their tokens. */
    uint32_t count = in->request.scores ? 0 : in->journaled->token_counts[a->index];
    uint32_t *ids = arena_take_raw(arena, (prompt->count + count) * sizeof *ids);
    ASSERT(ids);
    memcpy(ids, prompt->ids, prompt->count * sizeof *ids);
    if (count) memcpy(ids + prompt->count, in->journaled->tokens[a->index], count * sizeof *ids);
    a->ids = ids;
    a->journaled = count;
    a->count += count;
    a->sent = in->place.tokens[a->index];
}

static bool fill_answer(Intake *in, ServeJob *job, Arena *arena, uint32_t index)
{
    const Request *q = &in->request;
    ServeAnswer *a = &job->answers[index];
    const ServeAnswer *first = &job->answers[index - index % q->n];
    const Ids *prompt = &in->prompts[index / q->n];
    Why why = {{0}};
    *a = (ServeAnswer){
        .job = job, .index = index, .count = (uint32_t)prompt->count, .params = q->params};
    a->shares_prompt = a != first;
    if (in->journaled) keep_journaled(in, a, arena, prompt);
    else if (a != first) a->ids = first->ids;
    else a->ids = keep(arena, prompt->ids, prompt->count * sizeof(uint32_t));
    a->params.seed += index % q->n;
    a->params.bias = index
                         ? job->answers[0].params.bias
                         : keep(arena, q->params.bias, q->params.bias_count * sizeof(SamplerBias));
    if (q->reads_calls) {
        a->tools = serve_tools_make(q);
        if (!a->tools) return no_memory(in);
    }
    detokenizer_start(&a->detokenizer, in->serve->options.tokenizer, false);
    a->detokenizer.tags = q->reads_calls;
    for (uint32_t i = 0; i < q->stop_count; i++) {
        const char *stop = index ? job->answers[0].detokenizer.stops[i]
                                 : keep(arena, q->stops[i], q->stop_bytes[i]);
        Error error = detokenizer_add_stop(&a->detokenizer, stop, q->stop_bytes[i], &why);
        if (error != OK) return refusal_of_error(&in->refusal, error, &why);
    }
    a->queued_ns = machine_now_ns();
    return true;
}

/* What the answer says again of the request. */
static bool keep_echo(Intake *in, ServeJob *job)
{
    job->echo = malloc(REQUEST_ECHO_BYTES_MAX);
    if (!job->echo) return no_memory(in);
    JsonWriter w = json_writer_make(job->echo, REQUEST_ECHO_BYTES_MAX);
    if (!request_echo(&in->request, &w, &in->refusal)) return false;
    char *fitted = realloc(job->echo, w.used + 1);
    if (fitted) job->echo = fitted;
    job->head.echo = job->echo;
    job->head.echo_bytes = w.used;
    return true;
}

/* What is wanted beside the text. */
static void want_figures(Intake *in, ServeJob *job)
{
    const Request *q = &in->request;
    job->scores = q->scores;
    job->tops = q->tops;
    job->says_prompt = q->says_prompt;
    job->pools = q->kind == REQUEST_EMBEDDINGS;
    job->head.tokenizer = in->serve->options.tokenizer;
    job->head.base64 = q->base64;
    if (q->hops) job->hops = calloc(SERVE_HOPS_MAX, sizeof *job->hops);
}

/* How the journal calls a stream: who began it belongs to the name, so that another key does not find it. */
static void name_stream(const char *id, const ServeKey *key, char out[JOURNAL_NAME_BYTES])
{
    _Static_assert(ANSWER_ID_BYTES + KEYS_NAME_BYTES <= JOURNAL_NAME_BYTES, "both, and a stroke");
    const char *owner = serve_keys_name(key);
    size_t bytes = strlen(id), owner_bytes = strlen(owner);
    memcpy(out, id, bytes + 1);
    if (!owner_bytes) return;
    out[bytes] = '/'; /* neither has one */
    memcpy(out + bytes + 1, owner, owner_bytes + 1);
}

static ServeJob *make_job(Intake *in)
{
    Request *q = &in->request;
    uint32_t answers = q->n * in->prompt_count;
    size_t bytes = kept_bytes(in);
    ServeJob *job = calloc(1, sizeof *job + answers * sizeof *job->answers);
    void *memory = malloc(bytes);
    if (!job || !memory) {
        free(job);
        free(memory);
        (void)no_memory(in);
        return NULL;
    }
    if (in->journaled) q->params.seed = in->journaled->seed;
    else if (!q->seed_given) q->params.seed = machine_random();
    *job = (ServeJob){.stream = q->stream,
                      .journaled = q->stream && in->serve->options.journal &&
                                   answer_has_places(request_dialect(q->kind)),
                      .tokens_max = q->tokens_max,
                      .answer_count = answers,
                      .memory = memory};
    job->head = (AnswerHead){.dialect = request_dialect(q->kind),
                             .created_s = in->created_s,
                             .model = in->serve->options.model,
                             .stream_usage = q->include_usage,
                             .resumable = job->journaled,
                             .choices = answers};
    want_figures(in, job);
    if (in->journaled) memcpy(job->head.id, in->place.id, sizeof job->head.id);
    else answer_make_id(&job->head, (const uint64_t[2]){machine_random(), machine_random()});
    name_stream(job->head.id, in->key, job->journal_name);
    Arena arena = arena_make(memory, bytes);
    bool fine = (job->hops || !q->hops || no_memory(in)) && keep_echo(in, job) &&
                serve_form_prepare(in->serve, q, job, &in->refusal);
    for (uint32_t i = 0; fine && i < answers; i++) fine = fill_answer(in, job, &arena, i);
    if (fine) return job;
    serve_answer_free_job(in->serve, job);
    return NULL;
}

/* Who comes again when half of the queue has had its turn finds room, and does not ask in vain until then. */
static unsigned retry_seconds(const Serve *s)
{
    uint64_t wait_ns = s->pace_ns * s->options.queue_max / 2, second = 1000000000;
    if (wait_ns > RETRY_SECONDS_MAX * second) return RETRY_SECONDS_MAX;
    return wait_ns > second ? (unsigned)((wait_ns + second - 1) / second) : 1;
}

static bool refuse_full(Intake *in)
{
    const Serve *s = in->serve;
    (void)refusal_make(&in->refusal, REFUSAL_QUEUE, NULL,
                       "all %u slots are busy and %u answers wait; try again later",
                       s->options.slots, s->options.queue_max);
    in->refusal.retry_s = retry_seconds(s);
    return false;
}

static uint32_t places(const Serve *s) { return s->options.slots + s->options.queue_max; }

/* Before a prompt costs anything: what is refused under a load must be cheap. */
static bool has_room(Intake *in)
{
    return atomic_load(&in->serve->admitted) < places(in->serve) || refuse_full(in);
}

/* Room in slots and queue is taken here, and given back answer by answer. */
static bool admit(Intake *in, uint32_t answers)
{
    Serve *s = in->serve;
    uint32_t before = atomic_fetch_add(&s->admitted, answers);
    if (before + answers <= places(s) || before == 0)
        return true; /* a job alone always fits: its answers take turns */
    atomic_fetch_sub(&s->admitted, answers);
    return refuse_full(in);
}

/* What a new stream begins with; malloc'd. */
static char *write_beginning(Intake *in, ServeJob *job, size_t *bytes)
{
    size_t room = answer_bytes(&job->head, 0);
    char *out = malloc(room);
    if (!out) {
        (void)no_memory(in);
        return NULL;
    }
    JsonWriter w = json_writer_make(out, room);
    for (uint32_t i = 0; i < job->answer_count; i++) answer_write_role(&job->head, &w, i);
    ASSERT(!w.full);
    *bytes = in->journaled ? 0 : w.used; /* the client has it, and the dialect has counted */
    return out;
}

static bool begin_stream(Intake *in, ServeJob *job)
{
    size_t bytes;
    AnswerDialect dialect = job->head.dialect;
    char *beginning = write_beginning(in, job, &bytes);
    if (!beginning) return false;
    const char *comment = answer_comment(dialect);
    http_stream_begin(job->x, answer_stream_type(dialect), comment ? comment : "",
                      comment ? SERVE_IDLE_COMMENT_S : 0);
    (void)http_stream_write(job->x, beginning, bytes);
    free(beginning);
    return true;
}

/* From here on the stream can be resumed. */
static void write_journal(const Intake *in, const ServeJob *job)
{
    const uint8_t *body;
    size_t bytes;
    bool memory;
    if (in->journaled || !job->journaled || !http_exchange_body(in->x, &body, &bytes, &memory))
        return;
    JournalStream request = {.kind = in->request.kind,
                             .created_s = job->head.created_s,
                             .seed = in->request.params.seed,
                             .body = (uint8_t *)(uintptr_t)body,
                             .body_bytes = bytes};
    journal_begin(in->serve->options.journal, job->journal_name, &request);
}

static void enqueue(Serve *s, ServeJob *job)
{
    machine_lock(s->lock);
    for (uint32_t i = 0; i < job->answer_count; i++) {
        ServeAnswer *a = &job->answers[i];
        if (s->arrived_last) s->arrived_last->next = a;
        else s->arrived_first = a;
        s->arrived_last = a;
    }
    s->figures.waiting += job->answer_count;
    machine_unlock(s->lock);
    serve_wake(s);
}

/* All prompts, each once. The client hears what is left then, however it goes on. */
static bool take_tokens(Intake *in)
{
    size_t count = 0;
    for (uint32_t i = 0; i < in->prompt_count; i++) count += in->prompts[i].count;
    in->told = true;
    return serve_keys_take_tokens(in->serve, in->x, in->key, count, &in->refusal);
}

/* Before the answer: who has it may have another one. */
static void leave(Intake *in)
{
    serve_keys_leave(in->serve, in->key);
    in->key = NULL;
}

/* The job is the engine's from here on, and what it has of the request's with it. */
static void hand_over(Intake *in, ServeJob *job)
{
    job->key = in->key;
    in->key = NULL;
    enqueue(in->serve, job);
}

static bool generate(Intake *in)
{
    Why why = {{0}};
    if (!check_prompts(in) || !check_figures(in)) return false;
    Error error = sampler_check(&in->request.params, in->serve->options.vocabulary, &why);
    if (error != OK) return refusal_of_error(&in->refusal, error, &why);
    uint32_t answers = in->request.n * in->prompt_count;
    if (!admit(in, answers)) return false;
    ServeJob *job = take_tokens(in) ? make_job(in) : NULL; /* who finds no place pays nothing */
    if (!job) {
        atomic_fetch_sub(&in->serve->admitted, answers);
        return false;
    }
    write_journal(in, job);
    http_exchange_drop_body(in->x);
    job->x = in->x;
    http_exchange_keep(in->x);
    if (job->stream && !begin_stream(in, job)) {
        atomic_fetch_sub(&in->serve->admitted, job->answer_count);
        serve_answer_free_job(in->serve, job);
        return false;
    }
    hand_over(in, job);
    return true;
}

/* ---- Answers without the engine ---- */

static bool reply_ids(Intake *in)
{
    const Ids *ids = &in->prompts[0];
    size_t max = ids->count * ANSWER_ID_DIGITS + ANSWER_EVENT_BYTES;
    char *body = malloc(max);
    if (!body) return no_memory(in);
    JsonWriter w = json_writer_make(body, max);
    answer_ids(&w, ids->ids, ids->count);
    ASSERT(!w.full);
    http_reply_take(in->x, &(HttpReply){200, "application/json", NULL, 0}, body, w.used);
    return true;
}

/* All pieces as bytes, then as text: what is no UTF-8 becomes U+FFFD in the writer. */
static bool reply_text(Intake *in)
{
    const Ids *ids = &in->prompts[0];
    size_t room = ids->count * 16 + TOKENIZER_PIECE_BYTES_MAX, used = 0;
    uint8_t *text = malloc(room);
    Why why = {{0}};
    Error error = text ? OK : ERR_MEMORY;
    for (size_t i = 0; i < ids->count && error == OK; i++) {
        size_t bytes = 0;
        if (room - used < TOKENIZER_PIECE_BYTES_MAX) {
            uint8_t *grown = realloc(text, room *= 2);
            if (!grown) error = ERR_MEMORY;
            else text = grown;
        }
        if (error == OK)
            error = tokenizer_piece(in->serve->options.tokenizer, ids->ids[i], true, text + used,
                                    room - used, &bytes, &why);
        used += bytes;
    }
    size_t max = 2 * JSON_WRITER_GROWTH * used + ANSWER_EVENT_BYTES;
    char *body = error == OK ? malloc(max) : NULL;
    if (body) {
        JsonWriter w = json_writer_make(body, max);
        if (in->request.kind == REQUEST_TEMPLATE) answer_prompt(&w, text, used);
        else answer_detokenized(&w, text, used);
        http_reply_take(in->x, &(HttpReply){200, "application/json", NULL, 0}, body, w.used);
    }
    free(text);
    if (error == OK && !body) return no_memory(in);
    return error == OK || refusal_of_error(&in->refusal, error, &why);
}

static bool reply_loaded(Intake *in)
{
    char body[2 * ANSWER_EVENT_BYTES];
    JsonWriter w = json_writer_make(body, sizeof body);
    AnswerHead head = {.dialect = request_dialect(in->request.kind),
                       .created_s = in->created_s,
                       .model = in->serve->options.model};
    answer_ollama_loaded(&head, &w);
    serve_reply_json(in->x, &w);
    return true;
}

static bool reply_show(Intake *in)
{
    AnswerOllamaModel model = serve_ollama_model(in->serve);
    size_t room = answer_ollama_bytes(&model);
    char *body = malloc(room);
    if (!body) return no_memory(in);
    JsonWriter w = json_writer_make(body, room);
    answer_ollama_show(&model, &w);
    ASSERT(!w.full);
    http_reply_take(in->x, &(HttpReply){200, "application/json", NULL, 0}, body, w.used);
    return true;
}

/* ---- One request ---- */

static bool parse_request(Intake *in, RequestKind kind, const uint8_t *body, size_t bytes)
{
    size_t room = request_bytes(bytes);
    in->memory = malloc(room);
    if (!in->memory)
        return refusal_make(&in->refusal, REFUSAL_MEMORY, NULL, "not enough memory for the body");
    Arena arena = arena_make(in->memory, room);
    return request_parse(kind, in->serve->options.vocabulary, body, bytes, &arena, &in->request,
                         &in->refusal);
}

static bool read_request(Intake *in)
{
    const uint8_t *body;
    size_t bytes;
    bool memory;
    if (!http_exchange_body(in->x, &body, &bytes, &memory))
        return memory ? refusal_make(&in->refusal, REFUSAL_MEMORY, NULL,
                                     "too many large requests at once; try again later")
                      : refusal_make(&in->refusal, REFUSAL_TOO_LARGE, NULL,
                                     "the body is larger than %d bytes", REQUEST_BODY_BYTES_MAX);
    return parse_request(in, serve_routes_kind(in->serve, in->x), body, bytes);
}

static bool answer(Intake *in)
{
    if (!read_request(in)) return false;
    bool loads = in->request.loads, shows = in->request.kind == REQUEST_OLLAMA_SHOW,
         generates = !loads && request_generates(in->request.kind);
    if ((generates && !has_room(in)) || !take_prompts(in)) return false;
    if (generates) return generate(in);
    if (!loads && !shows && !take_tokens(in)) return false;
    leave(in);
    if (loads) return reply_loaded(in);
    if (shows) return reply_show(in);
    http_exchange_drop_body(in->x);
    return in->request.kind == REQUEST_TOKENIZE ? reply_ids(in) : reply_text(in);
}

/* ---- A stream that goes on ---- */

/* No event of an answer that is over has such a place. The prompt in front of it has fewer events than tokens. */
static bool is_past_end(const Intake *in, uint32_t index)
{
    const JournalStream *j = in->journaled;
    size_t said = in->request.says_prompt ? in->prompts[index / in->request.n].count : 0;
    return j->ended[index] &&
           in->place.tokens[index] > said + j->token_counts[index] + SERVE_PLACE_FINISH;
}

static bool check_place(Intake *in)
{
    if (in->place.count != in->request.n * in->prompt_count || !in->request.stream)
        return refusal_make(&in->refusal, REFUSAL_VALUE, "Last-Event-ID",
                            "Last-Event-ID names another number of answers than the stream had");
    for (uint32_t i = 0; i < in->place.count; i++)
        if (is_past_end(in, i))
            return refusal_make(&in->refusal, REFUSAL_VALUE, "Last-Event-ID",
                                "Last-Event-ID is behind the end of the stream");
    return true;
}

static bool resume_journaled(Intake *in)
{
    const JournalStream *j = in->journaled;
    if (j->kind >= REQUEST_KINDS || !request_generates((RequestKind)j->kind))
        return refusal_make(&in->refusal, REFUSAL_STREAM, "Last-Event-ID",
                            "the journal is of another version: send the request again");
    return parse_request(in, (RequestKind)j->kind, j->body, j->body_bytes) && take_prompts(in) &&
           check_place(in) && generate(in);
}

static bool resume(Intake *in, const char *place)
{
    Journal *journal = in->serve->options.journal;
    JournalStream stream;
    Why why = {{0}};
    if (!answer_read_place(place, &in->place) || strchr(in->place.id, '/'))
        return refusal_make(&in->refusal, REFUSAL_VALUE, "Last-Event-ID",
                            "Last-Event-ID is not the id of an event of a stream of this server");
    if (!journal)
        return refusal_make(&in->refusal, REFUSAL_STREAM, "Last-Event-ID",
                            "this server keeps no journal: send the request again");
    char name[JOURNAL_NAME_BYTES];
    name_stream(in->place.id, in->key, name);
    Error error = journal_load(journal, name, &stream, &why);
    if (error == ERR_NOT_FOUND)
        return refusal_make(
            &in->refusal, REFUSAL_STREAM, "Last-Event-ID",
            "this stream is not known, or older than an hour: send the request again");
    if (error != OK) return refusal_of_error(&in->refusal, error, &why);
    in->journaled = &stream;
    in->created_s = stream.created_s;
    bool fine = resume_journaled(in);
    in->journaled = NULL;
    journal_free(&stream);
    return fine;
}

static void take_in(Serve *s, const ServeIntake *item)
{
    HttpExchange *x = item->x;
    Intake in = {.serve = s, .x = x, .key = item->key, .created_s = machine_time_s()};
    if (!http_exchange_gone(x) && !(*item->place ? resume(&in, item->place) : answer(&in))) {
        if (!in.told) serve_keys_tell(s, x, in.key);
        leave(&in);
        serve_refuse(s, x, &in.refusal);
    }
    leave(&in);
    for (uint32_t i = 0; i < in.prompt_count; i++) free(in.prompts[i].ids);
    free(in.memory);
}

/* ---- The queue in front ---- */

static ServeIntake *take_oldest(Serve *s)
{
    machine_lock(s->lock);
    ServeIntake *item = s->intake_first;
    if (item) s->intake_first = item->next;
    if (item && !item->next) s->intake_last = NULL;
    machine_unlock(s->lock);
    return item;
}

bool serve_intake_take(Serve *s)
{
    ServeIntake *item = take_oldest(s);
    if (!item) return false;
    take_in(s, item);
    http_exchange_release(item->x);
    free(item);
    return true;
}

/* One that is too long is none of ours, and cut it is none either. */
static void keep_place(char out[SERVE_PLACE_BYTES], const char *place)
{
    size_t bytes = strnlen(place, SERVE_PLACE_BYTES - 1);
    memcpy(out, place, bytes);
    out[bytes] = '\0';
}

void serve_intake_push(Serve *s, HttpExchange *x, ServeKey *key)
{
    ServeIntake *item = malloc(sizeof *item);
    if (!item) {
        Refusal refusal;
        (void)refusal_make(&refusal, REFUSAL_MEMORY, NULL, "not enough memory for a request");
        serve_keys_leave(s, key);
        serve_refuse(s, x, &refusal);
        return;
    }
    *item = (ServeIntake){.x = x, .key = key};
    const char *place = http_exchange_header(x, "Last-Event-ID");
    if (place) keep_place(item->place, *place ? place : "?");
    http_exchange_keep(x);
    machine_lock(s->lock);
    if (s->intake_last) s->intake_last->next = item;
    else s->intake_first = item;
    s->intake_last = item;
    machine_unlock(s->lock);
    s->options.host.intake(s->options.host.host);
}
