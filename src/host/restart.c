/* SPDX-License-Identifier: Apache-2.0 */
#include "host/restart.h"

void restart_started(Restart *r, uint64_t now_ms)
{
    r->started_ms = now_ms;
    r->well = false;
}

void restart_well(Restart *r)
{
    r->well = true;
    r->useless = 0;
}

bool restart_died(Restart *r, int code, uint64_t now_ms, uint32_t *delay_ms)
{
    if (code == RESTART_CODE_USAGE) return false;
    if (!r->well && ++r->useless >= RESTART_USELESS_MAX) return false;
    if (now_ms - r->started_ms >= RESTART_CALM_MS || !r->delay_ms)
        r->delay_ms = RESTART_DELAY_MS_MIN;
    *delay_ms = r->delay_ms;
    r->delay_ms = r->delay_ms * 2 < RESTART_DELAY_MS_MAX ? r->delay_ms * 2 : RESTART_DELAY_MS_MAX;
    return true;
}
