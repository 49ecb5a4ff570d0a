/* SPDX-License-Identifier: Apache-2.0 */
#include "host/clock.h"

#include <sys/timex.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ms(void) { return clock_now_ns() / 1000000; }

uint64_t clock_now_s(void) { return clock_now_ns() / 1000000000; }

void clock_condition(pthread_cond_t *out)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(out, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

bool clock_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}

bool clock_is_kept(void)
{
    struct timex state = {.modes = 0};
    return adjtimex(&state) >= 0 && !(state.status & STA_UNSYNC);
}
