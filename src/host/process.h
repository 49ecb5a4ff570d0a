/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of this process, for GET /metrics. */
#ifndef COBORD_HOST_PROCESS_H
#define COBORD_HOST_PROCESS_H

#include "api/metrics.h"

/* Budget apart. What cannot be found out is 0. Thread  any. */
void process_figures(MetricsProcess *out);

#endif
