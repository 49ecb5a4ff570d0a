/* SPDX-License-Identifier: Apache-2.0 */
/* What a warden says of itself: the object of /stats and /ready, its lines of /metrics. The same on every host. */
#ifndef COBORD_API_WARDEN_REPORT_H
#define COBORD_API_WARDEN_REPORT_H

#include "api/memory_about.h"
#include "cluster/warden_counters.h"

typedef struct WardenReport {
    const char *version, *id, *role; /* of the program; of the node */
    const char *knot_key;
    WardenIdentity identity;
    uint32_t layers;
    MemoryAbout memory;
    WardenLevelsCounters levels;
    WardenVocabCounters rows; /* of shard wardens */
} WardenReport;

enum { WARDEN_REPORT_BYTES_MAX = 8192 }; /* of either */

void warden_report_write(const WardenReport *r, JsonWriter *w);
void warden_report_write_metrics(const WardenReport *r, JsonWriter *w);

#endif
