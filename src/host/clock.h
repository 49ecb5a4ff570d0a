/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that goes on steadily, whatever happens to the time of day: for deadlines, pauses and how long things took.
 * Whole units since some moment of the machine's; one call's results compare with another's only. */
#ifndef COBORD_HOST_CLOCK_H
#define COBORD_HOST_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t clock_now_ns(void);
uint64_t clock_now_ms(void);
uint64_t clock_now_s(void);

/* A condition that is waited for by this clock. Result  of the wait: false when the moment has come instead. */
void clock_condition(pthread_cond_t *out);
bool clock_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

/* Whether the kernel believes that something (NTP) keeps the time of day right. */
bool clock_is_kept(void);

#endif
