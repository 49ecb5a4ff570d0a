/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics.h"

#include <stddef.h>

#include "base/error.h"

/* ---- One line each ---- */

void metrics_head(JsonWriter *w, const char *name, const char *help, MetricsType type)
{
    static const char *const types[] = {" counter\n", " gauge\n", " histogram\n"};
    json_writer_raw(w, "# HELP ");
    json_writer_raw(w, name);
    json_writer_raw(w, " ");
    json_writer_raw(w, help);
    json_writer_raw(w, "\n# TYPE ");
    json_writer_raw(w, name);
    json_writer_raw(w, types[type]);
}

void metrics_write_count(JsonWriter *w, const char *name, const char *help, uint64_t value)
{
    metrics_head(w, name, help, METRICS_COUNTER);
    metrics_line(w, name, NULL, value);
}

void metrics_write_seconds(JsonWriter *w, const char *name, const char *help, uint64_t value_ms)
{
    metrics_head(w, name, help, METRICS_COUNTER);
    metrics_line_us(w, name, NULL, value_ms * 1000);
}

void metrics_write_gauge(JsonWriter *w, const char *name, const char *help, uint64_t value)
{
    metrics_head(w, name, help, METRICS_GAUGE);
    metrics_line(w, name, NULL, value);
}

/* ---- Labels ---- */

/* What Prometheus knows of escapes is \\, \" and \n; another control character has no business in a label. */
static void write_value(JsonWriter *w, const char *value)
{
    for (; *value; value++) {
        char c = *value;
        if (c == '\\' || c == '"') json_writer_bytes(w, (char[]){'\\', c}, 2);
        else if ((uint8_t)c < ' ' || c == 0x7f) json_writer_raw(w, "?");
        else json_writer_bytes(w, &c, 1);
    }
}

static void write_label(JsonWriter *w, const char *name, const char *value, bool *any)
{
    json_writer_raw(w, *any ? "," : "{");
    *any = true;
    json_writer_raw(w, name);
    json_writer_raw(w, "=\"");
    write_value(w, value);
    json_writer_raw(w, "\"");
}

static void write_us(JsonWriter *w, uint64_t us)
{
    json_writer_u64(w, us / 1000000);
    char digits[8] = ".000000";
    for (int i = 6; i; i--, us /= 10) digits[i] = (char)('0' + us % 10);
    for (int i = 6; i >= 0 && (digits[i] == '0' || digits[i] == '.'); i--) {
        bool dot = digits[i] == '.';
        digits[i] = '\0';
        if (dot) break;
    }
    json_writer_raw(w, digits);
}

/* A name, its labels, and a blank. `bound_us` of a bucket: 0 is none, UINT64_MAX the last. */
static void begin_line(JsonWriter *w, const char *name, const char *behind,
                       const MetricsLabels *labels, uint64_t bound_us)
{
    bool any = false;
    json_writer_raw(w, name);
    json_writer_raw(w, behind);
    if (labels && labels->name) write_label(w, labels->name, labels->value, &any);
    if (labels && labels->name && labels->name_2)
        write_label(w, labels->name_2, labels->value_2, &any);
    if (bound_us) {
        json_writer_raw(w, any ? ",le=\"" : "{le=\"");
        any = true;
        if (bound_us == UINT64_MAX) json_writer_raw(w, "+Inf");
        else write_us(w, bound_us);
        json_writer_raw(w, "\"");
    }
    json_writer_raw(w, any ? "} " : " ");
}

void metrics_line(JsonWriter *w, const char *name, const MetricsLabels *labels, uint64_t value)
{
    begin_line(w, name, "", labels, 0);
    json_writer_u64(w, value);
    json_writer_raw(w, "\n");
}

void metrics_line_us(JsonWriter *w, const char *name, const MetricsLabels *labels, uint64_t us)
{
    begin_line(w, name, "", labels, 0);
    write_us(w, us);
    json_writer_raw(w, "\n");
}

/* ---- Histograms ---- */

void metrics_histogram(JsonWriter *w, const char *name, const MetricsLabels *labels,
                       const uint32_t *bounds_us, uint32_t bound_count, const uint64_t *counts,
                       uint64_t sum_us)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i <= bound_count; i++) {
        all += counts[i];
        begin_line(w, name, "_bucket", labels, i < bound_count ? bounds_us[i] : UINT64_MAX);
        json_writer_u64(w, all);
        json_writer_raw(w, "\n");
    }
    begin_line(w, name, "_sum", labels, 0);
    write_us(w, sum_us);
    json_writer_raw(w, "\n");
    begin_line(w, name, "_count", labels, 0);
    json_writer_u64(w, all);
    json_writer_raw(w, "\n");
}

static const uint32_t times_us[METRICS_TIMES] = {1000,     5000,     10000,    25000,    50000,
                                                 100000,   250000,   1000000,  2500000,  5000000,
                                                 10000000, 30000000, 60000000, 300000000};

void metrics_times_add(MetricsTimes *t, uint64_t ns)
{
    uint64_t us = ns / 1000;
    uint32_t at = 0;
    while (at < METRICS_TIMES && us > times_us[at]) at++;
    __atomic_fetch_add(&t->counts[at], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&t->sum_us, us, __ATOMIC_RELAXED);
}

uint64_t metrics_times_count(const MetricsTimes *t)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i <= METRICS_TIMES; i++)
        all += __atomic_load_n(&t->counts[i], __ATOMIC_RELAXED);
    return all;
}

void metrics_times_write(JsonWriter *w, const char *name, const MetricsLabels *labels,
                         const MetricsTimes *t)
{
    uint64_t counts[METRICS_TIMES + 1];
    for (uint32_t i = 0; i <= METRICS_TIMES; i++)
        counts[i] = __atomic_load_n(&t->counts[i], __ATOMIC_RELAXED);
    metrics_histogram(w, name, labels, times_us, METRICS_TIMES, counts,
                      __atomic_load_n(&t->sum_us, __ATOMIC_RELAXED));
}

/* ---- Processes ---- */

static void write_known(JsonWriter *w, const char *name, const char *help, uint64_t value)
{
    if (value) metrics_write_gauge(w, name, help, value);
}

void metrics_process(JsonWriter *w, const MetricsProcess *p, const char *version, const char *role)
{
    metrics_head(w, "cobord_build_info", "Always 1; the labels say what runs.", METRICS_GAUGE);
    metrics_line(w, "cobord_build_info", &(MetricsLabels){"version", version, "role", role}, 1);
    if (p->start_us) {
        metrics_head(w, "process_start_time_seconds", "When the process began, since 1970.",
                     METRICS_GAUGE);
        metrics_line_us(w, "process_start_time_seconds", NULL, p->start_us);
    }
    if (p->cpu_us) {
        metrics_head(w, "process_cpu_seconds_total", "CPU time, of the user and the system.",
                     METRICS_COUNTER);
        metrics_line_us(w, "process_cpu_seconds_total", NULL, p->cpu_us);
    }
    write_known(w, "process_open_fds", "Open descriptors.", p->open_fds);
    write_known(w, "process_max_fds", "Descriptors that may be open.", p->max_fds);
    write_known(w, "process_resident_memory_bytes", "Resident memory, file pages counted.",
                p->resident_bytes);
    write_known(w, "cobord_memory_peak_bytes", "The highest resident memory so far.",
                p->peak_bytes);
    write_known(w, "cobord_memory_budget_bytes", "What the process may take.", p->budget_bytes);
    metrics_write_count(w, "cobord_log_dropped_total", "Lines of the log that nobody could take.",
                        p->log_dropped);
}
