/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in the text format that Prometheus reads. A figure is one HELP, one TYPE, and its lines: one
 * without labels, or one for each value of its labels. Base units: seconds, bytes.
 * Source  Prometheus exposition formats, text format 0.0.4. */
#ifndef COBORD_API_METRICS_H
#define COBORD_API_METRICS_H

#include "api/json_writer.h"

/* Counts only go up; a name that ends in _seconds_total is in milliseconds here and written in seconds. */
void metrics_write_count(JsonWriter *w, const char *name, const char *help, uint64_t value);
void metrics_write_seconds(JsonWriter *w, const char *name, const char *help, uint64_t value_ms);
void metrics_write_gauge(JsonWriter *w, const char *name, const char *help, uint64_t value);

/* ---- Figures with labels: the head once, then lines. */
typedef enum MetricsType { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM } MetricsType;
void metrics_head(JsonWriter *w, const char *name, const char *help, MetricsType type);

/* Up to two; a NULL name ends them. Values are escaped. */
typedef struct MetricsLabels {
    const char *name, *value, *name_2, *value_2;
} MetricsLabels;
#define METRICS_LABEL(n, v) ((MetricsLabels){.name = (n), .value = (v)})
void metrics_line(JsonWriter *w, const char *name, const MetricsLabels *labels, uint64_t value);
void metrics_line_us(JsonWriter *w, const char *name, const MetricsLabels *labels, uint64_t us);

/* ---- Histograms of seconds. counts[bound_count + 1]: those at most bounds_us[i], and not of the bucket before;
 * the last: longer. Without bounds there is one bucket, of all. */
void metrics_histogram(JsonWriter *w, const char *name, const MetricsLabels *labels,
                       const uint32_t *bounds_us, uint32_t bound_count, const uint64_t *counts,
                       uint64_t sum_us);

/* One that several threads count. */
enum { METRICS_TIMES = 14 };
typedef struct MetricsTimes {
    uint64_t counts[METRICS_TIMES + 1], sum_us; /* atomically */
} MetricsTimes;
/* 1 ms to 300 s */
void metrics_times_add(MetricsTimes *t, uint64_t ns);
uint64_t metrics_times_count(const MetricsTimes *t);
void metrics_times_write(JsonWriter *w, const char *name, const MetricsLabels *labels,
                         const MetricsTimes *t);

/* ---- Of any process; what is 0 is not known, and left out. */
typedef struct MetricsProcess {
    uint64_t start_us, cpu_us; /* since 1970; used so far */
    uint64_t open_fds, max_fds, resident_bytes, peak_bytes, budget_bytes;
    uint64_t log_dropped;
} MetricsProcess;
void metrics_process(JsonWriter *w, const MetricsProcess *p, const char *version, const char *role);

#endif
