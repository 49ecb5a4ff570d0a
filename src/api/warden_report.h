/* SPDX-License-Identifier: Apache-2.0 */
/* What a warden says of itself: the object of /stats and /ready, its lines of /metrics. The same on every host. */
#ifndef COBORD_API_WARDEN_REPORT_H
#define COBORD_API_WARDEN_REPORT_H

#include "api/json_writer.h"
#include "cluster/warden_counters.h"

typedef struct WardenReport {
    const char *version, *id, *role; /* of the program; of the node */
    const char *knot_key;
    WardenIdentity identity;
    uint32_t layers;
    uint64_t budget_bytes, need_bytes, cache_bytes, resident_bytes, peak_bytes;
    WardenLevelsCounters levels;
    WardenVocabCounters rows; /* of shard wardens */
} WardenReport;

enum { WARDEN_REPORT_BYTES_MAX = 8192 }; /* of either */

void warden_report_write(const WardenReport *r, JsonWriter *w);
void warden_report_write_metrics(const WardenReport *r, JsonWriter *w);

#endif
