/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in the text format that Prometheus reads: one HELP, one TYPE and one line each.
 * Source  Prometheus exposition formats, text format 0.0.4. */
#ifndef COBORD_API_METRICS_H
#define COBORD_API_METRICS_H

#include "api/json_writer.h"

/* Counts only go up; a name that ends in _seconds_total is in milliseconds here and written in seconds. */
void metrics_write_count(JsonWriter *w, const char *name, const char *help, uint64_t value);
void metrics_write_seconds(JsonWriter *w, const char *name, const char *help, uint64_t value_ms);
void metrics_write_gauge(JsonWriter *w, const char *name, const char *help, uint64_t value);

#endif
