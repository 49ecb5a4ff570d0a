/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yyjson.h>

#include "api/json_writer.h"
#include "api/metrics.h"
#include "host/memory.h"
#include "wire/frame.h"

/* --- identity --- */

static Error take_knot_id(const char *text, uint64_t *out, Why *why)
{
    char *end = NULL;
    *out = strlen(text) == 16 ? strtoull(text, &end, 16) : 0;
    if (end && *end == '\0' && text[0] != '-' && text[0] != '+' && text[0] != ' ') return OK;
    return error_why(why, ERR_USAGE, "\"%s\" is no knot_id: 16 hexadecimal digits", text);
}

static Error take_bound(const WardenRole *w, bool is_shard, const char *text, uint32_t *out,
                        Why *why)
{
    if (!is_shard) return phase_parse_bound(text, strlen(text), w->node->cluster->layers, out, why);
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= UINT32_MAX) return OK;
    return error_why(why, ERR_USAGE, "\"%s\" is no id", text);
}

Error warden_state_matches(const WardenRole *w, const WardenAsked *a, Why *why)
{
    WardenIdentity asked = w->identity;
    bool layers = a->layer_first || a->layer_last, ids = a->id_first || a->id_last;
    if (layers && ids)
        return error_why(why, ERR_USAGE, "a request for a layer warden and for a shard warden");
    if (a->knot_id) TRY(take_knot_id(a->knot_id, &asked.knot_id, why));
    if (layers || ids) asked.is_shard = ids;
    const char *first = ids ? a->id_first : a->layer_first,
               *last = ids ? a->id_last : a->layer_last;
    if (first) TRY(take_bound(w, asked.is_shard, first, &asked.first, why));
    if (last) TRY(take_bound(w, asked.is_shard, last, &asked.last, why));
    TRY(warden_identity_check(&w->identity, &asked, w->node->cluster->layers, why));
    const char *key = w->node->cluster->knot_key;
    if (!a->knot_key || strcmp(a->knot_key, key) == 0) return OK;
    return error_why(why, ERR_UNSUPPORTED, "the request is for \"%s\", this warden reads \"%s\"",
                     a->knot_key, key);
}

/* A number or a text, as text. */
static const char *member_text(yyjson_val *object, const char *name, char room[24])
{
    yyjson_val *v = yyjson_obj_get(object, name);
    if (yyjson_is_str(v)) return yyjson_get_str(v);
    if (!yyjson_is_uint(v)) return NULL;
    (void)snprintf(room, 24, "%" PRIu64, yyjson_get_uint(v));
    return room;
}

static Error configure_object(const WardenRole *w, yyjson_val *o, Why *why)
{
    char room[4][24];
    WardenAsked a = {.knot_id = yyjson_get_str(yyjson_obj_get(o, "knot_id")),
                     .knot_key = yyjson_get_str(yyjson_obj_get(o, "knot_key")),
                     .layer_first = member_text(o, "layer_start", room[0]),
                     .layer_last = member_text(o, "layer_end", room[1]),
                     .id_first = member_text(o, "vocab_start", room[2]),
                     .id_last = member_text(o, "vocab_end", room[3])};
    if (!a.knot_id || !a.knot_key ||
        !((a.layer_first && a.layer_last) || (a.id_first && a.id_last)))
        return error_why(why, ERR_FORMAT,
                         "configure needs knot_id, knot_key, and layer_start and layer_end or "
                         "vocab_start and vocab_end");
    return warden_state_matches(w, &a, why);
}

Error warden_state_configure(const WardenRole *w, const uint8_t *body, size_t bytes, Why *why)
{
    enum { CONFIGURE_BYTES_MAX = 4096 };
    if (bytes > CONFIGURE_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "%zu bytes to configure a warden", bytes);
    yyjson_doc *doc = yyjson_read((const char *)body, bytes, 0);
    yyjson_val *o = yyjson_doc_get_root(doc);
    Error e = yyjson_is_obj(o) ? configure_object(w, o, why)
                               : error_why(why, ERR_FORMAT, "the body is no JSON object");
    yyjson_doc_free(doc);
    return e;
}

/* --- figures --- */

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
static void write_identity(const WardenRole *w, JsonWriter *j)
{
    char knot_id[17];
    (void)snprintf(knot_id, sizeof knot_id, "%016" PRIx64, w->identity.knot_id);
    const char *version = w->node->options->version;
    json_writer_member_text(j, "version", version ? version : "");
    json_writer_member_u64(j, "frame_version", FRAME_VERSION);
    json_writer_member_text(j, "knot_id", knot_id);
}

void warden_state_write(WardenRole *w, char *text, size_t room)
{
    JsonWriter j = json_writer_make(text, room - 1);
    WardenLevelsCounters levels = warden_levels_counters(w->levels);
    WardenVocabCounters rows = {0};
    if (w->vocab) rows = warden_vocab_counters(w->vocab);
    /* Slabs are in a memory file, which is not resident here but as much this process's. */
    const Figure memory[] = {{"budget_bytes", w->node->cluster->warden_memory_bytes},
                             {"need_bytes", memory_resident() + levels.memory.held_bytes},
                             {"cache_bytes", w->slab_budget_bytes + w->row_budget_bytes},
                             {"resident_bytes", memory_resident()},
                             {"peak_bytes", memory_peak()}};
    json_writer_raw(&j, "{");
    json_writer_member_bool(&j, "ready", true);
    json_writer_member_text(&j, "state", "ready");
    json_writer_member_text(&j, "id", w->node->self->id);
    json_writer_member_text(&j, "role", cluster_file_role_name(w->node->self->role));
    write_identity(w, &j);
    json_writer_member_text(&j, "identity", w->identity_text);
    json_writer_member_text(&j, "knot_key", w->node->cluster->knot_key);
    WRITE_LEVEL(&j, "memory", memory);
    write_levels(&j, &levels);
    if (w->vocab) write_rows(&j, &rows);
    json_writer_raw(&j, "}");
    ASSERT(!j.full);
    text[j.used] = '\0';
}

void warden_state_metrics(WardenRole *w, char *text, size_t room)
{
    JsonWriter j = json_writer_make(text, room - 1);
    WardenLevelsCounters c = warden_levels_counters(w->levels);
    metrics_write_count(&j, "cobord_warden_l1_hits_total", "Slabs found in memory.", c.memory.hits);
    metrics_write_count(&j, "cobord_warden_l1_misses_total", "Slabs read from below.",
                        c.memory.misses);
    metrics_write_gauge(&j, "cobord_warden_l1_bytes", "Slabs in memory.", c.memory.held_bytes);
    metrics_write_count(&j, "cobord_warden_l2_hits_total", "Slab files read.", c.disk.hits);
    metrics_write_count(&j, "cobord_warden_l2_writes_total", "Slab files written.", c.disk.writes);
    metrics_write_count(&j, "cobord_warden_l3_bytes_total", "Bytes read from the store.",
                        c.store.bytes);
    metrics_write_count(&j, "cobord_warden_bad_total", "Bad entries found, at any level.",
                        c.memory.bad + c.disk.bad + c.store_bad);
    if (w->vocab) {
        WardenVocabCounters r = warden_vocab_counters(w->vocab);
        metrics_write_count(&j, "cobord_warden_rows_l1_hits_total", "Rows found in memory.",
                            r.memory.hits);
        metrics_write_count(&j, "cobord_warden_rows_l1_misses_total", "Rows not in memory.",
                            r.memory.misses);
        metrics_write_count(&j, "cobord_warden_rows_l2_hits_total", "Rows found in the row store.",
                            r.rows.hits);
        metrics_write_count(&j, "cobord_warden_rows_l3_total", "Rows read from the store.",
                            r.store_rows);
        metrics_write_count(&j, "cobord_warden_rows_bad_total", "Bad rows found, at any level.",
                            r.memory.bad + r.rows.bad + r.store_bad);
    }
    ASSERT(!j.full);
    text[j.used] = '\0';
}
