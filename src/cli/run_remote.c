/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "cli/progress.h"
#include "host/http_client.h"
#include "host/stop.h"

enum {
    ANSWER_BYTES_MAX = 32 << 20, /* of all events */
    ANSWER_DEADLINE_MS = 24 * 3600 * 1000,
    LOOK_MS = 20,              /* between looks at what has come */
    MEASURED_MS = 5 * LOOK_MS, /* the least that such looks tell a speed from */
    SAID_BYTES = 300
};

/* An answer that comes in. */
typedef struct Remote {
    Run *run;
    HttpCall call;
    char *url, *body;
    size_t seen; /* bytes of call.answer that were read */
    bool done;   /* data: [DONE] */
    Error error; /* of showing, or what an event says */
    Why *why;
} Remote;

/* --- Asking --- */

static void add_number(yyjson_mut_doc *doc, const Options *o, OptionId id, const char *name)
{
    if (options_text(o, id))
        yyjson_mut_obj_add_real(doc, yyjson_mut_doc_get_root(doc), name, options_number(o, id));
}

static void add_count(yyjson_mut_doc *doc, const Options *o, OptionId id, const char *name)
{
    if (options_given(o, id))
        yyjson_mut_obj_add_uint(doc, yyjson_mut_doc_get_root(doc), name, options_count(o, id));
}

static void add_settings(yyjson_mut_doc *doc, const Run *r)
{
    const Options *o = r->options;
    yyjson_mut_val *root = yyjson_mut_doc_get_root(doc);
    add_number(doc, o, OPTION_TEMPERATURE, "temperature");
    add_number(doc, o, OPTION_TOP_P, "top_p");
    add_number(doc, o, OPTION_MIN_P, "min_p");
    add_number(doc, o, OPTION_REPETITION_PENALTY, "repetition_penalty");
    add_number(doc, o, OPTION_PRESENCE_PENALTY, "presence_penalty");
    add_number(doc, o, OPTION_FREQUENCY_PENALTY, "frequency_penalty");
    add_count(doc, o, OPTION_TOP_K, "top_k");
    add_count(doc, o, OPTION_MAX_TOKENS, "max_tokens");
    yyjson_mut_obj_add_uint(doc, root, "seed",
                            r->params.seed >> 1); /* fits what JSON readers take */
    if (!o->stop_count) return;
    yyjson_mut_val *stops = yyjson_mut_obj_add_arr(doc, root, "stop");
    for (unsigned i = 0; i < o->stop_count; i++) yyjson_mut_arr_add_str(doc, stops, o->stops[i]);
}

static Error make_body(Remote *m, Why *why)
{
    Run *r = m->run;
    size_t bytes = 0;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (!root) return error_why(why, ERR_MEMORY, "no memory for the request");
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "model", r->options->operands[0]);
    yyjson_mut_val *messages = yyjson_mut_obj_add_arr(doc, root, "messages");
    for (size_t i = 0; i < r->turn_count; i++) {
        yyjson_mut_val *message = yyjson_mut_arr_add_obj(doc, messages);
        yyjson_mut_obj_add_str(doc, message, "role", r->turns[i].role);
        yyjson_mut_obj_add_strn(doc, message, "content", (const char *)r->turns[i].text,
                                r->turns[i].bytes);
    }
    yyjson_mut_obj_add_bool(doc, root, "stream", true);
    yyjson_mut_val *more = yyjson_mut_obj_add_obj(doc, root, "stream_options");
    yyjson_mut_obj_add_bool(doc, more, "include_usage", true);
    add_settings(doc, r);
    m->body = yyjson_mut_write(doc, 0, &bytes);
    yyjson_mut_doc_free(doc);
    m->call.parts[0] = m->body;
    m->call.part_bytes[0] = bytes;
    return m->body ? OK : error_why(why, ERR_USAGE, "a message is no UTF-8.");
}

/* "10.0.0.7:8080", with or without "http://", "/" and "/v1". */
static Error make_url(Remote *m, Why *why)
{
    const char *given = options_text(m->run->options, OPTION_URL);
    size_t bytes = strlen(given), room = HTTP_CLIENT_URL_BYTES_MAX;
    while (bytes && given[bytes - 1] == '/') bytes--;
    if (bytes > 3 && strncmp(given + bytes - 3, "/v1", 3) == 0) bytes -= 3;
    bool scheme = strncmp(given, "http://", 7) == 0 || strncmp(given, "https://", 8) == 0;
    m->url = malloc(room);
    if (!m->url) return error_why(why, ERR_MEMORY, "no memory for the address");
    int length = snprintf(m->url, room, "%s%.*s/v1/chat/completions", scheme ? "" : "http://",
                          (int)(bytes < room ? bytes : room), given);
    if (length < 0 || (size_t)length >= room)
        return error_why(why, ERR_USAGE, "an address of %zu bytes.", bytes);
    m->call.url = m->url;
    return OK;
}

/* --- Listening --- */

static void read_usage(Remote *m, yyjson_val *usage)
{
    RunTiming *t = &m->run->timing;
    if (!yyjson_is_obj(usage)) return;
    t->prompt = (uint32_t)yyjson_get_uint(yyjson_obj_get(usage, "prompt_tokens"));
    uint64_t cached = yyjson_get_uint(
        yyjson_obj_get(yyjson_obj_get(usage, "prompt_tokens_details"), "cached_tokens"));
    t->prompt -= cached < t->prompt ? (uint32_t)cached : t->prompt;
    t->generated = (uint32_t)yyjson_get_uint(yyjson_obj_get(usage, "completion_tokens"));
}

static Error error_of(unsigned status)
{
    switch (status) {
    case 401:
    case 403: return ERR_KEY;
    case 404: return ERR_NOT_FOUND;
    case 429:
    case 503: return ERR_AGAIN;
    default: return status >= 400 && status < 500 ? ERR_USAGE : ERR_UNREACHABLE;
    }
}

/* What an error of the server says, without its shape. */
static Error read_error(yyjson_val *root, unsigned status, Why *why)
{
    const char *text = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(root, "error"), "message"));
    Error error = error_of(status);
    if (text && !text[strspn(text, " \t\r\n")]) text = NULL; /* it says nothing */
    if (text && error == ERR_KEY)
        return error_why(why, error, "%.*s%s Set COBORD_API_KEY to a key of the server.",
                         SAID_BYTES, text, text[strlen(text) - 1] == '.' ? "" : ".");
    if (text) return error_why(why, error, "%.*s", SAID_BYTES, text);
    return error_why(why, error, "the server answers with status %u", status);
}

static void read_event(Remote *m, const char *text, size_t bytes)
{
    if (bytes == 6 && memcmp(text, "[DONE]", 6) == 0) {
        m->done = true;
        return;
    }
    yyjson_doc *doc = yyjson_read(text, bytes, 0);
    yyjson_val *root = yyjson_doc_get_root(doc),
               *choice = yyjson_arr_get_first(yyjson_obj_get(root, "choices")),
               *content = yyjson_obj_get(yyjson_obj_get(choice, "delta"), "content");
    RunTiming *t = &m->run->timing;
    if (yyjson_obj_get(root, "error")) m->error = read_error(root, 500, m->why);
    if (yyjson_is_str(content) && yyjson_get_len(content)) {
        if (!t->generated++) t->first = engine_options_seconds();
        m->error = run_answer_show(m->run, (const uint8_t *)yyjson_get_str(content),
                                   yyjson_get_len(content), m->why);
    }
    read_usage(m, yyjson_obj_get(root, "usage"));
    yyjson_doc_free(doc);
}

/* The whole lines that have come since. */
static void read_events(Remote *m)
{
    const char *text = (const char *)m->call.answer, *end;
    while (m->error == OK && m->seen < m->call.answer_bytes &&
           (end = memchr(text + m->seen, '\n', m->call.answer_bytes - m->seen)) != NULL) {
        const char *line = text + m->seen;
        size_t bytes = (size_t)(end - line);
        m->seen += bytes + 1;
        if (bytes && line[bytes - 1] == '\r') bytes--;
        if (bytes > 5 && memcmp(line, "data:", 5) == 0) {
            size_t skip = 5 + (line[5] == ' ');
            read_event(m, line + skip, bytes - skip);
        }
    }
}

static Error finish(Remote *m, Why *why)
{
    HttpCall *call = &m->call;
    if (m->error != OK) return m->error;
    if (stop_asked()) return error_why(why, ERR_CANCELLED, "the answer was stopped");
    if (call->error != OK) {
        *why = call->why;
        return call->error;
    }
    if (call->status != 200) {
        yyjson_doc *doc = yyjson_read((const char *)call->answer, call->answer_bytes, 0);
        Error error = read_error(yyjson_doc_get_root(doc), call->status, why);
        yyjson_doc_free(doc);
        return error;
    }
    return m->done ? OK : error_why(why, ERR_UNREACHABLE, "the answer broke off");
}

static Error listen_to(Remote *m, Why *why)
{
    HttpClient *client;
    const char *ca = options_text(m->run->options, OPTION_TLS_CA);
    HttpClientOptions options = {.key = options_text(m->run->options, OPTION_API_KEY),
                                 .ca_file = ca};
    TRY(http_client_open(&options, &client, why));
    http_client_start(client, &m->call);
    bool cancelled = false;
    for (HttpCall *ended = NULL; !ended;) {
        ended = http_client_wait(client, LOOK_MS);
        if (!cancelled) read_events(m);
        if (!ended && !cancelled && (stop_asked() || m->error != OK)) {
            http_client_cancel(client, &m->call);
            cancelled = true;
        }
    }
    http_client_close(client);
    return finish(m, why);
}

Error run_remote_answer(Run *r, Why *why)
{
    Remote m = {.run = r, .why = why};
    RunTiming *t = &r->timing;
    m.call = (HttpCall){.method = "POST",
                        .headers = {"Content-Type: application/json", "Accept: text/event-stream"},
                        .deadline_ms = ANSWER_DEADLINE_MS,
                        .answer = malloc(ANSWER_BYTES_MAX),
                        .answer_room = ANSWER_BYTES_MAX};
    Error error =
        m.call.answer ? make_url(&m, why) : error_why(why, ERR_MEMORY, "no memory for the answer");
    if (error == OK) error = make_body(&m, why);
    t->coarse = (double)MEASURED_MS / 1000;
    t->start = t->first = engine_options_seconds();
    if (error == OK) error = listen_to(&m, why);
    t->end = engine_options_seconds();
    free(m.call.answer);
    free(m.url);
    free(m.body);
    return error;
}
