/* SPDX-License-Identifier: Apache-2.0 */
/* What a ToolCalls gives, as one text: T"..." N"..." A"..." E, neighbours of one kind joined. */
#ifndef COBORD_TESTS_TOOL_CALLS_LOG_H
#define COBORD_TESTS_TOOL_CALLS_LOG_H

#include <stdlib.h>
#include <string.h>

#include "text/tool_calls.h"

/* The tools that are there, for a ToolCalls that knows them. */
static const ToolCallsName tool_calls_log_names[2] = {{"f", 1}, {"get-2", 5}};

typedef struct ToolCallsLog {
    char *text;
    size_t bytes, room;
    int last; /* a kind; -1: none */
} ToolCallsLog;

static inline void tool_calls_log_add(ToolCallsLog *log, const void *bytes, size_t count)
{
    if (log->room - log->bytes <= count) {
        log->room = 2 * (log->bytes + count) + 64;
        log->text = realloc(log->text, log->room);
        if (!log->text) abort();
    }
    if (count) memcpy(log->text + log->bytes, bytes, count);
    log->bytes += count;
    log->text[log->bytes] = '\0';
}

static inline void tool_calls_log_take(void *to, ToolCallsKind kind, const uint8_t *bytes,
                                       size_t count)
{
    static const char letters[] = "TNAE";
    ToolCallsLog *log = to;
    if (log->last != (int)kind || kind == TOOL_CALLS_END || kind == TOOL_CALLS_NAME) {
        tool_calls_log_add(log, "|", 1);
        tool_calls_log_add(log, &letters[kind], 1);
    }
    tool_calls_log_add(log, bytes, count);
    log->last = (int)kind;
}

/* The text up to `cut` at once, then so many bytes at a time. known: of tool_calls_log_names.
 * Owner  the caller frees the text. */
static inline ToolCallsLog tool_calls_log(const uint8_t *text, size_t bytes, size_t room,
                                          bool eager, bool known, size_t cut, size_t step)
{
    ToolCallsLog log = {.last = -1};
    ToolCalls p;
    uint8_t *held = malloc(room);
    if (!held) abort();
    tool_calls_log_add(&log, "", 0);
    tool_calls_start(&p, held, room, eager, (ToolCallsTake){tool_calls_log_take, &log});
    if (known) tool_calls_know(&p, tool_calls_log_names, 2);
    tool_calls_push(&p, text, cut);
    for (size_t at = cut; at < bytes; at += step)
        tool_calls_push(&p, text + at, bytes - at < step ? bytes - at : step);
    tool_calls_end(&p);
    free(held);
    return log;
}

#endif
