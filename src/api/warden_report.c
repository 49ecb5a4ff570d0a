/* SPDX-License-Identifier: Apache-2.0 */
#include "api/warden_report.h"

#include "api/metrics.h"
#include "knot/emit.h"
#include "quant/numerics.h"
#include "wire/frame.h"

/* --- /stats --- */

typedef struct Figure {
    const char *name;
    uint64_t value;
} Figure;

static void write_level(JsonWriter *j, const char *name, const Figure *figures, size_t count)
{
    json_writer_member(j, name);
    json_writer_raw(j, "{");
    for (size_t i = 0; i < count; i++) json_writer_member_u64(j, figures[i].name, figures[i].value);
    json_writer_raw(j, "}");
}
#define WRITE_LEVEL(j, name, figures) \
    write_level((j), (name), (figures), sizeof(figures) / sizeof(figures)[0])

static void write_levels(JsonWriter *j, const WardenLevelsCounters *c)
{
    const Figure memory[] = {{"hits", c->memory.hits},
                             {"misses", c->memory.misses},
                             {"passed", c->memory.passes},
                             {"bytes", c->memory.held_bytes},
                             {"evictions", c->memory.evictions},
                             {"bad", c->memory.bad},
                             {"invalidations", c->memory.invalidations},
                             {"shared", c->shared}};
    const Figure disk[] = {{"hits", c->disk.hits},           {"misses", c->disk.misses},
                           {"bytes", c->disk.held_bytes},    {"writes", c->disk.writes},
                           {"evictions", c->disk.evictions}, {"bad", c->disk.bad},
                           {"failures", c->disk.failures}};
    const Figure store[] = {{"reads", c->store.reads},
                            {"bytes", c->store.bytes},
                            {"retries", c->store.retries},
                            {"failures", c->store.failures},
                            {"bad", c->store_bad}};
    WRITE_LEVEL(j, "l1", memory);
    if (c->has_disk) WRITE_LEVEL(j, "l2", disk);
    WRITE_LEVEL(j, "l3", store);
}

static void write_rows(JsonWriter *j, const WardenVocabCounters *c)
{
    const Figure memory[] = {
        {"hits", c->memory.hits},        {"misses", c->memory.misses},
        {"bytes", c->memory.held_bytes}, {"evictions", c->memory.evictions},
        {"bad", c->memory.bad},          {"invalidations", c->memory.invalidations}};
    const Figure rows[] = {{"hits", c->rows.hits},
                           {"misses", c->rows.misses},
                           {"writes", c->rows.writes},
                           {"bad", c->rows.bad},
                           {"failures", c->rows.failures}};
    const Figure store[] = {{"rows", c->store_rows}, {"bad", c->store_bad}};
    WRITE_LEVEL(j, "rows_l1", memory);
    if (c->has_rows) WRITE_LEVEL(j, "rows_l2", rows);
    WRITE_LEVEL(j, "rows_l3", store);
}

/* What all nodes say of themselves. */
static void write_identity(const WardenReport *r, JsonWriter *j)
{
    char knot_id[17], identity[WARDEN_IDENTITY_TEXT_MAX];
    Emit e = emit_make(knot_id, 16);
    emit_hex64(&e, r->identity.knot_id);
    knot_id[16] = '\0';
    json_writer_member_text(j, "id", r->id);
    json_writer_member_text(j, "role", r->role);
    json_writer_member_text(j, "version", r->version);
    json_writer_member_u64(j, "frame_version", FRAME_VERSION);
    json_writer_member_u64(j, "numerics_version", NUMERICS_VERSION);
    json_writer_member_text(j, "knot_id", knot_id);
    json_writer_member_text(j, "identity", warden_identity_text(&r->identity, r->layers, identity));
    json_writer_member_text(j, "knot_key", r->knot_key);
}

void warden_report_write(const WardenReport *r, JsonWriter *j)
{
    json_writer_raw(j, "{");
    json_writer_member_bool(j, "ready", true);
    json_writer_member_text(j, "state", "ready");
    write_identity(r, j);
    memory_about_write(&r->memory, j);
    write_levels(j, &r->levels);
    if (r->identity.is_shard) write_rows(j, &r->rows);
    json_writer_raw(j, "}");
}

/* --- /metrics --- */

static void write_row_metrics(const WardenVocabCounters *r, JsonWriter *j)
{
    metrics_write_count(j, "cobord_warden_rows_l1_hits_total", "Rows found in memory.",
                        r->memory.hits);
    metrics_write_count(j, "cobord_warden_rows_l1_misses_total", "Rows not in memory.",
                        r->memory.misses);
    metrics_write_count(j, "cobord_warden_rows_l1_evictions_total",
                        "Rows that made room for others.", r->memory.evictions);
    metrics_write_count(j, "cobord_warden_rows_invalidations_total", "Rows that a node called bad.",
                        r->memory.invalidations);
    metrics_write_count(j, "cobord_warden_rows_l2_misses_total", "Rows not in the row store.",
                        r->rows.misses);
    metrics_write_count(j, "cobord_warden_rows_l2_hits_total", "Rows found in the row store.",
                        r->rows.hits);
    metrics_write_count(j, "cobord_warden_rows_l2_failures_total",
                        "Calls of the row store that failed.", r->rows.failures);
    metrics_write_count(j, "cobord_warden_rows_l3_total", "Rows read from the store.",
                        r->store_rows);
    metrics_write_count(j, "cobord_warden_rows_bad_total", "Bad rows found, at any level.",
                        r->memory.bad + r->rows.bad + r->store_bad);
}

void warden_report_write_metrics(const WardenReport *r, JsonWriter *j)
{
    const WardenLevelsCounters *c = &r->levels;
    metrics_write_count(j, "cobord_warden_l1_hits_total", "Slabs found in memory.", c->memory.hits);
    metrics_write_count(j, "cobord_warden_l1_misses_total", "Slabs read from below.",
                        c->memory.misses);
    metrics_write_gauge(j, "cobord_warden_l1_bytes", "Slabs in memory.", c->memory.held_bytes);
    metrics_write_count(j, "cobord_warden_l1_evictions_total", "Slabs that made room for others.",
                        c->memory.evictions);
    metrics_write_count(j, "cobord_warden_invalidations_total", "Slabs that a node called bad.",
                        c->memory.invalidations);
    metrics_write_count(j, "cobord_warden_l2_misses_total", "Slab files that were not there.",
                        c->disk.misses);
    metrics_write_count(j, "cobord_warden_l2_evictions_total",
                        "Slab files that made room for others.", c->disk.evictions);
    metrics_write_count(j, "cobord_warden_store_reads_total", "Reads of the object store.",
                        c->store.reads);
    metrics_write_count(j, "cobord_warden_store_retries_total", "Of these, tried again.",
                        c->store.retries);
    metrics_write_count(j, "cobord_warden_store_failures_total", "Reads that failed for good.",
                        c->store.failures);
    metrics_write_count(j, "cobord_warden_l2_hits_total", "Slab files read.", c->disk.hits);
    metrics_write_count(j, "cobord_warden_l2_writes_total", "Slab files written.", c->disk.writes);
    metrics_write_count(j, "cobord_warden_l2_failures_total",
                        "Slab files that could not be written, or a disk that could not be used.",
                        c->disk.failures);
    metrics_write_count(j, "cobord_warden_l3_bytes_total", "Bytes read from the store.",
                        c->store.bytes);
    metrics_write_count(j, "cobord_warden_bad_total", "Bad entries found, at any level.",
                        c->memory.bad + c->disk.bad + c->store_bad);
    if (r->identity.is_shard) write_row_metrics(&r->rows, j);
}
