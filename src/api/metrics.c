/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics.h"

static void head(JsonWriter *w, const char *name, const char *help, const char *type)
{
    json_writer_raw(w, "# HELP ");
    json_writer_raw(w, name);
    json_writer_raw(w, " ");
    json_writer_raw(w, help);
    json_writer_raw(w, "\n# TYPE ");
    json_writer_raw(w, name);
    json_writer_raw(w, type);
    json_writer_raw(w, name);
    json_writer_raw(w, " ");
}

void metrics_write_count(JsonWriter *w, const char *name, const char *help, uint64_t value)
{
    head(w, name, help, " counter\n");
    json_writer_u64(w, value);
    json_writer_raw(w, "\n");
}

void metrics_write_seconds(JsonWriter *w, const char *name, const char *help, uint64_t value_ms)
{
    head(w, name, help, " counter\n");
    json_writer_thousandths(w, value_ms);
    json_writer_raw(w, "\n");
}

void metrics_write_gauge(JsonWriter *w, const char *name, const char *help, uint64_t value)
{
    head(w, name, help, " gauge\n");
    json_writer_u64(w, value);
    json_writer_raw(w, "\n");
}
