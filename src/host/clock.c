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

bool clock_is_kept(void)
{
    struct timex state = {.modes = 0};
    return adjtimex(&state) >= 0 && !(state.status & STA_UNSYNC);
}
