/* SPDX-License-Identifier: Apache-2.0 */
/* The log of this process, on standard error: one line, one write(2). Who computes does not wait for who reads: into a
 * pipe that is full a line waits 10 ms once, and until there is room again lines are dropped and counted; the next
 * line that goes out is preceded by one that says how many. Before log_open it is text at level info. Thread  any. */
#ifndef COBORD_HOST_LOG_H
#define COBORD_HOST_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "api/log_line.h"

/* `node` is who speaks, and outlives the process's last line: "station-0", "serve". Thread  before there are others. */
void log_open(LogFormat format, LogLevel level, const char *node);
bool log_wants(LogLevel level);
bool log_is_json(void);
void log_entry(const LogEntry *e);
/* A line for a person: "cobord: " and the text. */
void log_say(LogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of another process, its end included, under the same terms. */
void log_pass(const char *line, size_t bytes);
/* The time of day, since 1970. */
uint64_t log_time_ms(void);
/* Lines that nobody could take. */
unsigned long long log_dropped(void);

#endif
