/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the log, as JSON or as text: the same fields, docs/operations.md has their table. What it never has:
 * prompts, answers, keys. Whatever a client or a peer chose (a path, an id) is escaped, and cut when it is long,
 * so that a line is one line of at most LOG_LINE_BYTES. */
#ifndef COBORD_API_LOG_LINE_H
#define COBORD_API_LOG_LINE_H

#include "api/trace.h"

#include <stddef.h>

enum { LOG_LINE_BYTES = 4000 }; /* less than a pipe takes at once, whole: 4096 */

typedef enum LogLevel { LOG_ERROR, LOG_INFO, LOG_DEBUG } LogLevel;
typedef enum LogFormat { LOG_TEXT, LOG_JSON } LogFormat;

typedef struct LogEntry {
    LogLevel level;
    const char *event;                    /* a word: "request", "hop", "call", "note" */
    const char *message;                  /* for a person; NULL: the fields say it */
    const char *detail;                   /* behind it, after a colon; NULL: none */
    const char *request_id, *request_ids; /* of one, of several with blanks between; NULL: none */
    const Trace *trace;
    const char *to; /* id of the node that was asked */
    const char *method, *path;
    unsigned status; /* 0: none */
    uint64_t us;     /* from the request to its end; 0: not said */
    uint64_t first_us, prompt_tokens, completion_tokens, cached_tokens; /* 0: not said */
    uint64_t bytes_sent, bytes_received;
    const char *key_name, *error;
} LogEntry;

/* `unix_ms` is the time of day, `node` who speaks ("station-0"). With the line's end, not ended by NUL.
 * Result  bytes. */
size_t log_line_write(const LogEntry *e, LogFormat format, uint64_t unix_ms, const char *node,
                      char out[LOG_LINE_BYTES]);
/* "2026-11-30T11:25:26.042Z" */
enum { LOG_TIME_BYTES = 25 };
void log_line_time(uint64_t unix_ms, char out[LOG_TIME_BYTES]);

#endif
