/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that may call tools: their text goes through text/tool_calls.h, and text and calls are kept whole, so
 * that a stream's event is what is new since the last one, and a whole answer is all of it. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve_state.h"
#include "text/tool_calls.h"

enum {
    HELD_BYTES = 128 << 10
}; /* of a call that is not whole yet; pages are touched as it grows */

typedef struct Call {
    uint8_t name[TOOL_CALLS_NAME_MAX];
    size_t name_bytes, from, bytes; /* arguments: in ServeTools.arguments */
    bool named;                     /* in an event */
    size_t sent;                    /* of the arguments */
} Call;

typedef struct Bytes {
    uint8_t *bytes;
    size_t count, room;
} Bytes;

struct ServeTools {
    ToolCalls parser;
    bool one_call, no_memory;
    Bytes text, arguments;
    size_t text_sent;
    Call *calls;
    AnswerTool *parts; /* of the event, or of all */
    uint32_t count, room;
    ToolCallsName *names; /* and their text behind them */
    uint8_t held[HELD_BYTES];
};

static bool add(Bytes *to, const uint8_t *bytes, size_t count)
{
    if (to->room - to->count < count) {
        size_t room = 2 * (to->count + count) + 256;
        uint8_t *grown = realloc(to->bytes, room);
        if (!grown) return false;
        to->bytes = grown;
        to->room = room;
    }
    if (count) memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    return true;
}

static bool begin_call(ServeTools *t, const uint8_t *name, size_t bytes)
{
    if (t->count == t->room) {
        uint32_t room = 2 * t->room + 4;
        Call *calls = realloc(t->calls, room * sizeof *calls);
        if (calls) t->calls = calls;
        AnswerTool *parts = realloc(t->parts, room * sizeof *parts);
        if (parts) t->parts = parts;
        if (!calls || !parts) return false;
        t->room = room;
    }
    Call *call = &t->calls[t->count++];
    *call = (Call){.name_bytes = bytes, .from = t->arguments.count};
    memcpy(call->name, name, bytes);
    return true;
}

static bool add_arguments(ServeTools *t, const uint8_t *bytes, size_t count)
{
    if (!add(&t->arguments, bytes, count)) return false;
    t->calls[t->count - 1].bytes += count;
    return true;
}

/* The text after the only call that is wanted is not. */
static bool is_enough(const ServeTools *t) { return t->one_call && t->parser.whole; }

static void take(void *to, ToolCallsKind kind, const uint8_t *bytes, size_t count)
{
    ServeTools *t = to;
    if (t->no_memory || is_enough(t)) return;
    if (kind == TOOL_CALLS_TEXT) t->no_memory = !add(&t->text, bytes, count);
    if (kind == TOOL_CALLS_NAME) t->no_memory = !begin_call(t, bytes, count);
    if (kind == TOOL_CALLS_ARGUMENTS) t->no_memory = !add_arguments(t, bytes, count);
}

/* The request goes before the answer. */
static bool keep_names(ServeTools *t, const Request *q)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < q->tool_count; i++) bytes += q->tools[i].name_bytes;
    t->names = malloc(q->tool_count * sizeof *t->names + bytes);
    if (!t->names) return false;
    char *text = (char *)(t->names + q->tool_count);
    for (uint32_t i = 0; i < q->tool_count; i++) {
        t->names[i] = (ToolCallsName){text, q->tools[i].name_bytes};
        memcpy(text, q->tools[i].name, q->tools[i].name_bytes);
        text += q->tools[i].name_bytes;
    }
    tool_calls_know(&t->parser, t->names, q->tool_count);
    return true;
}

/* Where a grammar keeps calls to their form, nothing else is one, and they go out as they come. */
ServeTools *serve_tools_make(const Request *q)
{
    bool eager = q->form == REQUEST_TOOL_CALLS;
    ServeTools *t = malloc(sizeof *t);
    if (!t) return NULL;
    memset(t, 0, offsetof(ServeTools, held));
    t->one_call = q->one_call;
    tool_calls_start(&t->parser, t->held, HELD_BYTES, eager, (ToolCallsTake){take, t});
    if (eager || keep_names(t, q)) return t;
    free(t);
    return NULL;
}

void serve_tools_free(ServeTools *t)
{
    if (!t) return;
    free(t->text.bytes);
    free(t->arguments.bytes);
    free(t->calls);
    free(t->parts);
    free(t->names);
    free(t);
}

bool serve_tools_push(ServeTools *t, const uint8_t *text, size_t bytes, bool end)
{
    tool_calls_push(&t->parser, text, bytes);
    if (end) tool_calls_end(&t->parser);
    return !t->no_memory;
}

bool serve_tools_enough(const ServeTools *t) { return is_enough(t); }
bool serve_tools_called(const ServeTools *t) { return t->count > 0; }

size_t serve_tools_bytes(const ServeTools *t)
{
    return t->text.count + t->arguments.count + t->count * (size_t)ANSWER_TOOL_BYTES;
}

bool serve_tools_news(ServeTools *t, AnswerPiece *out)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        Call *c = &t->calls[i];
        if (c->named && c->sent == c->bytes) continue;
        t->parts[parts++] = (AnswerTool){.index = i,
                                         .name = c->name,
                                         .name_bytes = c->named ? 0 : c->name_bytes,
                                         .arguments = t->arguments.bytes + c->from + c->sent,
                                         .bytes = c->bytes - c->sent};
        c->named = true;
        c->sent = c->bytes;
    }
    *out = (AnswerPiece){.text = t->text.bytes + t->text_sent,
                         .bytes = t->text.count - t->text_sent,
                         .tools = t->parts,
                         .tool_count = parts};
    t->text_sent = t->text.count;
    return out->bytes || parts;
}

AnswerPiece serve_tools_whole(ServeTools *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        Call *c = &t->calls[i];
        t->parts[i] = (AnswerTool){.index = i,
                                   .name = c->name,
                                   .name_bytes = c->name_bytes,
                                   .arguments = t->arguments.bytes + c->from,
                                   .bytes = c->bytes};
    }
    return (AnswerPiece){
        .text = t->text.bytes, .bytes = t->text.count, .tools = t->parts, .tool_count = t->count};
}
