/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of src/serve (serve/machine.h) in a Worker: what JavaScript says of time and chance, and lines
 * for its log. */
#ifndef COBORD_WORKERS_MACHINE_H
#define COBORD_WORKERS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "api/log_line.h"

enum { MACHINE_CHANCE_BYTES = 256 };

/* Milliseconds since 1970, as Date.now() says. The steady clock goes on by what passes between two calls. */
void machine_set_time(double now_ms);
/* What passes until the next call of machine_set_time does not count: nobody is working. */
void machine_rest(void);
/* To be filled with MACHINE_CHANCE_BYTES of random bytes whenever a request comes. */
uint8_t *machine_chance(void);
/* malloc's memory grows as long as all of the module's has at most so many bytes; 0: no limit but the module's. */
void machine_limit_memory(uint64_t bytes);
/* The oldest line of the log that was not taken; NULL: there is none. Valid until the next line. */
const char *machine_take_line(LogLevel *level);
/* Text at level info until it is called; `node` outlives the module. */
void machine_open_log(LogFormat format, LogLevel level, const char *node);

#endif
