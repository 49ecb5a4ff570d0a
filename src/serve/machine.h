/* SPDX-License-Identifier: Apache-2.0 */
/* What the room asks of the machine that it runs on; whoever links the room implements it: host/machine.c, and
 * workers/machine.c where there are neither threads nor a system. Its other ports are exchange.h and journal.h.
 * Thread  any for all of them. */
#ifndef COBORD_SERVE_MACHINE_H
#define COBORD_SERVE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/log_line.h"
#include "api/metrics.h"

/* Of the clock that goes on steadily: differences count only. */
uint64_t machine_now_ns(void);
/* Goes on also where the steady clock stands while nobody works; it may jump. */
uint64_t machine_wall_ns(void);
/* The time of day, in seconds since 1970. */
uint64_t machine_time_s(void);
/* Not to be guessed. */
uint64_t machine_random(void);
/* Of all that this process has; 0 when it is not known. */
uint64_t machine_resident_bytes(void);

/* What is known of the process. */
void machine_process(MetricsProcess *out);

/* A line of the log. Level and format are the host's; ask first whether a line would be written when it is costly. */
void machine_log(const LogEntry *entry);
bool machine_logs(LogLevel level);

/* Memory whose end is given back once it is known how much was needed; what is not touched need not be there.
 * Result  NULL when there is none. */
void *machine_take(size_t bytes);
/* `kept` of `taken` bytes stay, where they are. */
void machine_trim(void *memory, size_t taken, size_t kept);
void machine_give(void *memory, size_t bytes);

/* Nothing where there is one thread. */
typedef struct MachineLock MachineLock;
MachineLock *machine_lock_make(void); /* NULL: no memory */
void machine_lock_free(MachineLock *lock);
void machine_lock(MachineLock *lock);
void machine_unlock(MachineLock *lock);

#endif
