/* SPDX-License-Identifier: Apache-2.0 */
/* See tool_calls.h. Each byte is looked at once; one that ends what it cannot belong to is looked at again as
 * text. */
#include "text/tool_calls.h"

#include <string.h>

static const char *const OPEN[] =
    {[TOOL_CALLS_TAG] = TOOL_CALLS_OPEN, [TOOL_CALLS_FENCE] = "```json", [TOOL_CALLS_BARE] = ""},
                         *const CLOSE[] = {[TOOL_CALLS_TAG] = TOOL_CALLS_CLOSE,
                                           [TOOL_CALLS_FENCE] = "```",
                                           [TOOL_CALLS_BARE] = ""};

void tool_calls_start(ToolCalls *p, uint8_t *held, size_t room, bool eager, ToolCallsTake take)
{
    *p = (ToolCalls){.take = take, .eager = eager, .held = held, .room = room};
}

void tool_calls_know(ToolCalls *p, const ToolCallsName *names, size_t count)
{
    p->names = names;
    p->name_count = count;
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
    p->spoke |= kind == TOOL_CALLS_TEXT && count;
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
    p->told = p->doubled = false;
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

/* Whether the name that has just been read may be called. */
static bool may_call(const ToolCalls *p)
{
    const uint8_t *name = p->held + p->name.from + 1;
    size_t bytes = p->name.to - p->name.from - 2;
    bool known = p->form == TOOL_CALLS_TAG;
    for (size_t i = 0; !known && i < p->name_count; i++)
        known = p->names[i].bytes == bytes && memcmp(p->names[i].text, name, bytes) == 0;
    return known && tool_calls_is_name(name, bytes);
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
        return p->form == TOOL_CALLS_TAG || span_is(p, p->key, "name") ||
               span_is(p, p->key, "arguments");
    }
    bool name = span_is(p, p->key, "name"), arguments = span_is(p, p->key, "arguments");
    if (!name && !arguments) return true;
    ToolCallsSpan *span = name ? &p->name : &p->arguments;
    if (before->place == JSON_CHECK_VALUE && before->depth == 1 && !is_space(byte))
        return byte == (name ? '"' : '{') && note_value(p, true, span);
    if (name && is_string(before->place) && after->place == JSON_CHECK_COMMA)
        return note_value(p, false, span) && may_call(p);
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
    if (byte == '{' && !p->doubled && p->check.depth == 1 &&
        p->check.place == JSON_CHECK_KEY_OR_END && !p->eager)
        return p->doubled = true;
    JsonCheckResult result = json_check_push(&p->check, byte);
    bool fine = result != JSON_CHECK_FAULT && note(p, &before),
         all = p->name.to && (p->form == TOOL_CALLS_TAG || p->arguments.to);
    if (!fine || (result == JSON_CHECK_WHOLE && !all)) {
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
    if (!byte || byte != (uint8_t)marker[p->matched]) return false;
    add(p, byte);
    p->matched++;
    return true;
}

/* Result  false: the byte is to be looked at again. */
static bool behind(ToolCalls *p, uint8_t byte)
{
    if (p->doubled && !p->matched && byte == '}') return !(p->doubled = false);
    if (!p->matched && is_space(byte) && p->space < TOOL_CALLS_SPACE_MAX) {
        add(p, byte);
        p->space++;
        return true;
    }
    if (matches(p, CLOSE[p->form], byte)) {
        if (CLOSE[p->form][p->matched]) return true;
        p->held_bytes = 0;
        p->space = p->matched = 0;
        p->place = TOOL_CALLS_IN_TEXT;
        return true;
    }
    p->place = TOOL_CALLS_IN_TEXT;
    if (p->matched > 1) release(p);
    return false;
}

/* How many bytes are plain text and go out at once. */
static size_t plain(const ToolCalls *p, const uint8_t *text, size_t bytes)
{
    size_t i = 0;
    if (!p->spoke) return 0;
    while (i < bytes && text[i] != '<' && text[i] != '`' && !is_space(text[i])) i++;
    return i;
}

/* A first byte decides which marker it may be of. */
static void choose_form(ToolCalls *p, uint8_t byte)
{
    if (p->matched) return;
    p->form = p->names && byte == '`' ? TOOL_CALLS_FENCE : TOOL_CALLS_TAG;
}

static bool in_text(ToolCalls *p, uint8_t byte)
{
    if (!p->matched && is_space(byte)) {
        if (p->space == TOOL_CALLS_SPACE_MAX) release(p);
        add(p, byte);
        p->space++;
        return true;
    }
    choose_form(p, byte);
    if (matches(p, OPEN[p->form], byte)) {
        if (!OPEN[p->form][p->matched]) begin_call(p);
        return true;
    }
    if (!p->matched && byte == '{' && p->names && !p->spoke) {
        p->form = TOOL_CALLS_BARE;
        begin_call(p);
        return in_call(p, byte);
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
            size_t count = p->matched ? 0 : plain(p, text + i, bytes - i);
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

/* What is held is of a call: it was told, or a grammar lets it become nothing else. */
static bool is_of_call(const ToolCalls *p)
{
    if (p->place == TOOL_CALLS_IN_CALL) return p->told || p->eager;
    return p->eager && p->matched && (p->whole || !p->spoke);
}

void tool_calls_end(ToolCalls *p)
{
    bool blank = p->held_bytes == p->space && p->place != TOOL_CALLS_IN_CALL && p->whole;
    if (is_of_call(p) || blank) p->held_bytes = 0;
    release(p);
}
