/* SPDX-License-Identifier: Apache-2.0 */
/* The port through which long work of the host says how far it is; `cli` draws it. */
#ifndef COBORD_HOST_TELL_H
#define COBORD_HOST_TELL_H

#include <stdint.h>

typedef struct Tell {
    /* `stage` is a short word ("download", "encode"); a new one starts a new bar. `total` 0: not
     * known. */
    void (*step)(void *context, const char *stage, uint64_t done, uint64_t total);
    /* The stage is over, and went well: of a process that goes on after it. */
    void (*end)(void *context);
    /* One line that stays (a fallback taken, a retry), without a line break. */
    void (*note)(void *context, const char *line);
    void *context;
} Tell;

/* `tell` may be NULL, and so may each of its functions. Thread  the one that does the work. */
static inline void tell_step(const Tell *tell, const char *stage, uint64_t done, uint64_t total)
{
    if (tell && tell->step) tell->step(tell->context, stage, done, total);
}
static inline void tell_end(const Tell *tell)
{
    if (tell && tell->end) tell->end(tell->context);
}
static inline void tell_note(const Tell *tell, const char *line)
{
    if (tell && tell->note) tell->note(tell->context, line);
}

#endif
