/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of this process, for GET /metrics. */
#ifndef COBORD_HOST_PROCESS_H
#define COBORD_HOST_PROCESS_H

#include "api/metrics.h"

/* Budget apart. What cannot be found out is 0. Thread  any. */
void process_figures(MetricsProcess *out);
/* A crash leaves no copy of the memory behind, which has keys and conversations in it. It is the soft limit: whoever
 * looks for a fault of ours raises it with `prlimit --core`. Nodes of `up` inherit it. */
void process_leave_no_core(void);

#endif
