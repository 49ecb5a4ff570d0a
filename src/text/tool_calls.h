/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools in an answer's text, as Qwen2.5 and Hermes 2 Pro write them:
 *
 *   Let me look. <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>
 *   `-- text --´                        name                   `-- arguments --´
 *
 * Text comes in pieces, cut anywhere; text and calls go out, and are the same however the pieces were cut. A
 * call is whole at the brace that ends its object, so a missing </tool_call> does no harm. `name` and
 * `arguments` may come in any order and beside other members; without arguments they are {}. White space around
 * a call is dropped.
 *
 * What is no call stays text, marker and all: no JSON object, no name of 1 to 64 letters, digits, _ and -,
 * arguments that are no object, more than `room` bytes, an answer that ends before its brace. So a call has to
 * be held back until it is whole. `eager` is for answers that a grammar keeps to the form: name and arguments
 * then go out as they come, and a call that is cut stays what it was; of one that is cut before, or in its marker,
 * nothing is left.
 *
 * Qwen2.5-Coder likes to write the object in a fence of ```json, and small models write it alone. Where the
 * tools' names are known, both are calls too, if the object has one of the names and arguments, and nothing
 * else; alone only before any text.
 *
 * Qwen2.5-Coder-1.5B's template shows calls with doubled outer braces, and so it writes some: {{"name": ...}}.
 * The second pair is passed over.
 *
 *   TEXT --<tool_call>--> CALL --} of the object--> BEHIND --</tool_call>, or anything else--> TEXT
 *     ^                     |
 *     `---- not a call -----´ */
#ifndef COBORD_TEXT_TOOL_CALLS_H
#define COBORD_TEXT_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/json_check.h"

#define TOOL_CALLS_OPEN "<tool_call>"
#define TOOL_CALLS_CLOSE "</tool_call>"

enum {
    TOOL_CALLS_NAME_MAX = 64,
    TOOL_CALLS_SPACE_MAX = 256, /* white space that waits for what comes behind it */
    TOOL_CALLS_ROOM_MIN = 1024
};

typedef enum ToolCallsKind {
    TOOL_CALLS_TEXT,
    TOOL_CALLS_NAME,      /* a call begins */
    TOOL_CALLS_ARGUMENTS, /* bytes of JSON */
    TOOL_CALLS_END        /* the call is whole; no bytes */
} ToolCallsKind;

typedef struct ToolCallsTake {
    void (*take)(void *to, ToolCallsKind kind, const uint8_t *bytes, size_t count);
    void *to;
} ToolCallsTake;

typedef struct ToolCallsName {
    const char *text;
    size_t bytes;
} ToolCallsName;

typedef enum ToolCallsForm { TOOL_CALLS_TAG, TOOL_CALLS_FENCE, TOOL_CALLS_BARE } ToolCallsForm;

typedef enum ToolCallsPlace {
    TOOL_CALLS_IN_TEXT,
    TOOL_CALLS_IN_CALL,
    TOOL_CALLS_BEHIND
} ToolCallsPlace;

typedef struct ToolCallsSpan {
    size_t from, to; /* in what is held; to 0: not there */
} ToolCallsSpan;

typedef struct ToolCalls {
    ToolCallsTake take;
    const ToolCallsName *names; /* NULL: only what has the tag is a call */
    size_t name_count;
    bool eager, spoke; /* spoke: there was text */
    ToolCallsForm form;
    ToolCallsPlace place;
    uint8_t *held; /* white space, marker, object: what may still become text */
    size_t held_bytes, room;
    /* In text and behind a call: held white space, then matched bytes of a marker. */
    uint32_t space, matched;
    uint32_t begun, whole; /* calls */
    JsonCheck check;
    ToolCallsSpan key, name, arguments;
    bool doubled; /* the outer braces are */
    bool told;    /* of an eager call: its name is out */
} ToolCalls;

/* Owner  held[room], TOOL_CALLS_ROOM_MIN or more, stays the caller's; bytes that are passed on are valid during
 * the call of `take`. */
void tool_calls_start(ToolCalls *p, uint8_t *held, size_t room, bool eager, ToolCallsTake take);
void tool_calls_push(ToolCalls *p, const uint8_t *text, size_t bytes);
/* After the start: the tools' names. Owner  they stay the caller's. */
void tool_calls_know(ToolCalls *p, const ToolCallsName *names, size_t count);
/* The answer has ended: what is held is text, but white space behind a call, and what is of a call (`eager`). */
void tool_calls_end(ToolCalls *p);

/* 1 to 64 of [a-zA-Z0-9_-]. */
bool tool_calls_is_name(const uint8_t *text, size_t bytes);

#endif
