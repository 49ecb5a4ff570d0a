/* SPDX-License-Identifier: Apache-2.0 */
/* See tool_calls.h. Each byte is looked at once; one that ends what it cannot belong to is looked at again as
 * text. */
#include "text/tool_calls.h"

#include <string.h>

static const char OPEN[] = TOOL_CALLS_OPEN, CLOSE[] = TOOL_CALLS_CLOSE;
enum { OPEN_BYTES = sizeof OPEN - 1, CLOSE_BYTES = sizeof CLOSE - 1 };

void tool_calls_start(ToolCalls *p, uint8_t *held, size_t room, bool eager, ToolCallsTake take)
{
    *p = (ToolCalls){.take = take, .eager = eager, .held = held, .room = room};
}

bool tool_calls_is_name(const uint8_t *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t c = text[i], lower = c | 0x20;
        if (!(lower >= 'a' && lower <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '-')
            return false;
    }
    return bytes > 0 && bytes <= TOOL_CALLS_NAME_MAX;
}

static void give(ToolCalls *p, ToolCallsKind kind, const uint8_t *bytes, size_t count)
{
    if (count || kind == TOOL_CALLS_END) p->take.take(p->take.to, kind, bytes, count);
}

/* What is held was text. */
static void release(ToolCalls *p)
{
    give(p, TOOL_CALLS_TEXT, p->held, p->held_bytes);
    p->held_bytes = 0;
    p->space = p->matched = 0;
    p->place = TOOL_CALLS_IN_TEXT;
}

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- A call ---- */

static void begin_call(ToolCalls *p)
{
    p->place = TOOL_CALLS_IN_CALL;
    p->check = (JsonCheck){0};
    p->key = p->name = p->arguments = (ToolCallsSpan){0};
    p->told = false;
}

static bool span_is(const ToolCalls *p, ToolCallsSpan span, const char *text)
{
    size_t bytes = strlen(text);
    return span.to - span.from == bytes && memcmp(p->held + span.from, text, bytes) == 0;
}

static bool is_string(JsonCheckPlace place) { return place == JSON_CHECK_STRING; }

/* A member's value begins or ends with the byte at held_bytes - 1. Result  false: this is no call. */
static bool note_value(ToolCalls *p, bool begins, ToolCallsSpan *span)
{
    size_t at = p->held_bytes - 1;
    if (begins && span->to) return false; /* given twice */
    if (begins) span->from = at;
    else span->to = at + 1;
    return true;
}

/* Follows the members of the object itself: `before` is the state in front of the byte, `check` behind it. */
static bool note(ToolCalls *p, const JsonCheck *before)
{
    const JsonCheck *after = &p->check;
    uint8_t byte = p->held[p->held_bytes - 1];
    bool own = before->depth == 1 || after->depth == 1;
    if (!own) return true;
    if (is_string(after->place) && !is_string(before->place) && after->key && after->depth == 1 &&
        before->place != JSON_CHECK_ESCAPE && before->place != JSON_CHECK_HEX)
        p->key.from = p->held_bytes;
    if (is_string(before->place) && after->place == JSON_CHECK_COLON) {
        p->key.to = p->held_bytes - 1;
        return true;
    }
    bool name = span_is(p, p->key, "name"), arguments = span_is(p, p->key, "arguments");
    if (!name && !arguments) return true;
    ToolCallsSpan *span = name ? &p->name : &p->arguments;
    if (before->place == JSON_CHECK_VALUE && before->depth == 1 && !is_space(byte))
        return byte == (name ? '"' : '{') && note_value(p, true, span);
    if (name && is_string(before->place) && after->place == JSON_CHECK_COMMA)
        return note_value(p, false, span) &&
               tool_calls_is_name(p->held + span->from + 1, span->to - span->from - 2);
    if (arguments && before->depth == 2 && after->depth == 1) return note_value(p, false, span);
    return true;
}

static void tell_name(ToolCalls *p)
{
    give(p, TOOL_CALLS_NAME, p->held + p->name.from + 1, p->name.to - p->name.from - 2);
    p->told = true;
    p->begun++;
}

static void end_call(ToolCalls *p)
{
    static const uint8_t nothing[] = "{}";
    if (!p->told) {
        tell_name(p);
        if (p->arguments.to)
            give(p, TOOL_CALLS_ARGUMENTS, p->held + p->arguments.from,
                 p->arguments.to - p->arguments.from);
        else give(p, TOOL_CALLS_ARGUMENTS, nothing, 2);
    }
    give(p, TOOL_CALLS_END, NULL, 0);
    p->whole++;
    p->held_bytes = 0;
    p->space = p->matched = 0;
    p->place = TOOL_CALLS_BEHIND;
}

/* Whether the last byte belongs to arguments whose bytes go out as they come. */
static bool flows(const ToolCalls *p, const JsonCheck *before)
{
    bool inside = p->check.depth >= 2 || before->depth >= 2;
    return p->eager && p->name.to && p->arguments.from && inside && span_is(p, p->key, "arguments");
}

/* One more byte of the object. Result  false: it is none of a call. */
static bool in_call(ToolCalls *p, uint8_t byte)
{
    JsonCheck before = p->check;
    if (p->held_bytes == p->room) return false;
    p->held[p->held_bytes++] = byte;
    JsonCheckResult result = json_check_push(&p->check, byte);
    bool fine = result != JSON_CHECK_FAULT && note(p, &before);
    if (!fine || (result == JSON_CHECK_WHOLE && !p->name.to)) {
        p->held_bytes--;
        return false;
    }
    if (flows(p, &before)) {
        if (!p->told) tell_name(p);
        give(p, TOOL_CALLS_ARGUMENTS, &byte, 1);
        if (p->check.depth >= 2) p->held_bytes--; /* what is out need not be held */
    }
    if (result == JSON_CHECK_WHOLE) end_call(p);
    return true;
}

/* ---- Text ---- */

static void add(ToolCalls *p, uint8_t byte) { p->held[p->held_bytes++] = byte; }

/* Whether the byte goes on with a marker. */
static bool matches(ToolCalls *p, const char *marker, uint8_t byte)
{
    if (byte != (uint8_t)marker[p->matched]) return false;
    add(p, byte);
    p->matched++;
    return true;
}

/* Result  false: the byte is to be looked at again. */
static bool behind(ToolCalls *p, uint8_t byte)
{
    if (!p->matched && is_space(byte) && p->space < TOOL_CALLS_SPACE_MAX) {
        add(p, byte);
        p->space++;
        return true;
    }
    if (matches(p, CLOSE, byte)) {
        if (p->matched < CLOSE_BYTES) return true;
        p->held_bytes = 0;
        p->space = p->matched = 0;
        p->place = TOOL_CALLS_IN_TEXT;
        return true;
    }
    p->place = TOOL_CALLS_IN_TEXT;
    if (p->matched > 1) release(p);
    return false;
}

/* The bytes from `at` on that are plain text and go out at once. */
static size_t plain(const uint8_t *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && text[i] != '<' && !is_space(text[i])) i++;
    return i;
}

static bool in_text(ToolCalls *p, uint8_t byte)
{
    if (!p->matched && is_space(byte)) {
        if (p->space == TOOL_CALLS_SPACE_MAX) release(p);
        add(p, byte);
        p->space++;
        return true;
    }
    if (matches(p, OPEN, byte)) {
        if (p->matched == OPEN_BYTES) begin_call(p);
        return true;
    }
    if (p->held_bytes) {
        release(p);
        return false;
    }
    give(p, TOOL_CALLS_TEXT, &byte, 1);
    return true;
}

static bool push_byte(ToolCalls *p, uint8_t byte)
{
    if (p->place == TOOL_CALLS_IN_TEXT) return in_text(p, byte);
    if (p->place == TOOL_CALLS_BEHIND) return behind(p, byte);
    if (in_call(p, byte)) return true;
    if (p->told) p->held_bytes = 0; /* a call that broke: nothing of it is text */
    release(p);
    return false;
}

void tool_calls_push(ToolCalls *p, const uint8_t *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        if (p->place == TOOL_CALLS_IN_TEXT) {
            size_t count = p->matched ? 0 : plain(text + i, bytes - i);
            if (count) {
                release(p);
                give(p, TOOL_CALLS_TEXT, text + i, count);
                i += count;
                continue;
            }
        }
        if (push_byte(p, text[i])) i++;
    }
}

void tool_calls_end(ToolCalls *p)
{
    bool cut = p->place == TOOL_CALLS_IN_CALL && p->told,
         blank = p->held_bytes == p->space && p->place != TOOL_CALLS_IN_CALL && p->whole;
    if (cut || blank) p->held_bytes = 0;
    release(p);
}
