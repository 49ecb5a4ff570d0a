/* SPDX-License-Identifier: Apache-2.0 */
/* Quick measurements of this machine for a plan's cost model: tens of milliseconds each, good to some ten per cent on
 * a quiet machine. `cobord bench` measures carefully. */
#ifndef COBORD_HOST_PROBE_H
#define COBORD_HOST_PROBE_H

#include "base/error.h"

/* How fast all cores read memory together, in 10^9 bytes a second: decoding runs at 98 % of it. Takes 192 MiB for
 * a moment. 0: not enough memory to try. */
double probe_bandwidth_gbs(void);

/* A call over loopback TCP with 6 KiB each way between two threads, in microseconds; the median.
 * 0: it could not be tried. */
double probe_loopback_us(void);

#endif
