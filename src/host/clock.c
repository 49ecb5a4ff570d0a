/* SPDX-License-Identifier: Apache-2.0 */
#include "host/clock.h"

#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ms(void) { return clock_now_ns() / 1000000; }

uint64_t clock_now_s(void) { return clock_now_ns() / 1000000000; }
