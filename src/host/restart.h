/* SPDX-License-Identifier: Apache-2.0 */
/* When a process that died is started again, and when that has no point any more. Without a clock
 * and without a process.
 *
 *   RUNNING --died--> wait 100 ms, 200 ms, .. 5 s --> RUNNING       alive for 30 s: from the beginning
 *      `--exit code 2, or five deaths in a row before it was ever well--> GIVEN UP */
#ifndef COBORD_HOST_RESTART_H
#define COBORD_HOST_RESTART_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RESTART_DELAY_MS_MIN = 100,
    RESTART_DELAY_MS_MAX = 5000,
    RESTART_CALM_MS = 30000, /* alive so long: the next delay is the first again */
    RESTART_USELESS_MAX = 5,
    RESTART_CODE_USAGE = 2 /* of a process that can never work as it was called */
};

typedef struct Restart {
    uint64_t started_ms;
    uint32_t delay_ms; /* of the next death; 0: the first */
    uint32_t useless;  /* deaths in a row before it was well */
    bool well;         /* this life */
} Restart;

void restart_started(Restart *r, uint64_t now_ms);
/* It said that it is well. */
void restart_well(Restart *r);
/* `code` is its exit code, or 128 + signal. Result  false: give up; else *delay_ms. */
bool restart_died(Restart *r, int code, uint64_t now_ms, uint32_t *delay_ms);

#endif
