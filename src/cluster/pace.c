/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pace.h"

enum { ROWS_FIRST = 128, ROWS_MIN = 64, ROWS_TO_MEASURE = 32, FRAME_NS = 800000000 };

void pace_start(Pace *p, Coordinator *c)
{
    *p = (Pace){0};
    coordinator_limit_rows(c, ROWS_FIRST);
}

void pace_keep(Pace *p, Coordinator *c, uint32_t rows, uint64_t frame_ns)
{
    if (!p->pass_ns || frame_ns < p->pass_ns) p->pass_ns = frame_ns;
    if (rows < ROWS_TO_MEASURE) return;
    uint64_t row_ns = (frame_ns - p->pass_ns) / rows + 1;
    uint64_t most = (p->pass_ns > FRAME_NS ? p->pass_ns : FRAME_NS) / row_ns;
    coordinator_limit_rows(c, most < ROWS_MIN     ? ROWS_MIN
                              : most > UINT32_MAX ? UINT32_MAX
                                                  : (uint32_t)most);
}
