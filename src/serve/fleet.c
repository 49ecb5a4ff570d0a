/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/fleet.h"

#include <string.h>
#include <yyjson.h>

#include "knot/emit.h"
#include "quant/numerics.h"
#include "wire/frame.h"

static void explain(FleetReport *report, const char *text)
{
    size_t bytes = strnlen(text, sizeof report->error - 1);
    memcpy(report->error, text, bytes);
    report->error[bytes] = '\0';
}

static void copy_text(yyjson_val *object, const char *name, char *out, size_t room)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, name));
    size_t bytes = 0;
    for (; text && text[bytes] && bytes < room - 1; bytes++) {
        char c = text[bytes];
        out[bytes] = c < ' ' || c > '~' ? '?' : c; /* it goes to a terminal */
    }
    out[bytes] = '\0';
}

static uint64_t number_of(yyjson_val *object, const char *name)
{
    return yyjson_get_uint(yyjson_obj_get(object, name));
}

/* What a node of this cluster must say; what it does not say is not held against it. */
static void check_identity(const ClusterFile *c, uint32_t node, yyjson_val *root,
                           FleetReport *report)
{
    char id[CLUSTER_FILE_ID_BYTES], knot[20], ours[17];
    Emit e = emit_make(ours, sizeof ours - 1);
    Why why = {{0}};
    Error error = OK;
    uint64_t frames = number_of(root, "frame_version"),
             numerics = number_of(root, "numerics_version");
    copy_text(root, "id", id, sizeof id);
    copy_text(root, "knot_id", knot, sizeof knot);
    emit_hex64(&e, c->knot_id);
    ours[e.used] = '\0';
    if (id[0] && strcmp(id, c->nodes[node].id) != 0)
        error = error_why(&why, ERR_UNSUPPORTED, "%s answers at its address", id);
    else if (knot[0] && strcmp(knot, ours) != 0)
        error = error_why(&why, ERR_UNSUPPORTED, "it has knot %s, the cluster file means %s", knot,
                          ours);
    else if (frames && frames != FRAME_VERSION)
        error = error_why(&why, ERR_UNSUPPORTED,
                          "it speaks version %llu of the frames, the coordinator %u",
                          (unsigned long long)frames, (unsigned)FRAME_VERSION);
    else if (numerics && numerics != NUMERICS_VERSION)
        error = error_why(&why, ERR_UNSUPPORTED,
                          "it computes by version %llu of the numerics, the coordinator by %u",
                          (unsigned long long)numerics, (unsigned)NUMERICS_VERSION);
    if (error != OK) explain(report, why.text);
}

/* Layers or tiles, and embedding rows. */
static uint64_t sum_of(yyjson_val *root, const char *level, const char *rows, const char *name)
{
    return number_of(yyjson_obj_get(root, level), name) +
           number_of(yyjson_obj_get(root, rows), name);
}

static void read_members(FleetReport *report, yyjson_val *root)
{
    yyjson_val *memory = yyjson_obj_get(root, "memory"), *weights = yyjson_obj_get(root, "weights");
    report->ready = yyjson_get_bool(yyjson_obj_get(root, "ready"));
    copy_text(root, "state", report->state, sizeof report->state);
    copy_text(root, "version", report->version, sizeof report->version);
    copy_text(root, "owns", report->owns, sizeof report->owns);
    report->memory.budget_bytes = number_of(memory, "budget_bytes");
    report->memory.need_bytes = number_of(memory, "need_bytes");
    report->memory.resident_bytes = number_of(memory, "resident_bytes");
    report->memory.peak_bytes = number_of(memory, "peak_bytes");
    report->has_weights = weights != NULL;
    report->weights_resident = yyjson_get_bool(yyjson_obj_get(weights, "resident"));
    report->weight_bytes = number_of(weights, "bytes");
    report->pinned_bytes = number_of(weights, "pinned_bytes");
    report->has_hits = yyjson_obj_get(root, "l1") != NULL;
    report->hits = sum_of(root, "l1", "rows_l1", "hits");
    report->misses = sum_of(root, "l1", "rows_l1", "misses");
    report->cached_bytes = sum_of(root, "l1", "rows_l1", "bytes");
    report->l2_hits = sum_of(root, "l2", "rows_l2", "hits");
    report->l2_misses = sum_of(root, "l2", "rows_l2", "misses");
    report->store_bytes = number_of(yyjson_obj_get(root, "l3"), "bytes");
}

static void read_body(const ClusterFile *c, uint32_t node, unsigned status, const char *body,
                      size_t bytes, FleetReport *report)
{
    yyjson_doc *doc = yyjson_read(body, bytes, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc);
    Why why;
    if (yyjson_is_obj(root) && yyjson_obj_get(root, "ready")) {
        read_members(report, root);
        check_identity(c, node, root, report);
    } else if (error_why(&why, ERR_FORMAT, "its answer is no node's (status %u)", status) != OK) {
        explain(report, why.text);
    }
    yyjson_doc_free(doc);
}

static void begin(FleetReport *report, bool heard)
{
    report->asked = true;
    report->heard = heard;
    report->ready = false;
    report->error[0] = report->state[0] = '\0';
}

void fleet_hear(const ClusterFile *c, uint32_t node, unsigned status, const char *body,
                size_t bytes, FleetReport *report)
{
    begin(report, true);
    if (status == 401) explain(report, "it does not take our cluster key");
    else read_body(c, node, status, body, bytes, report);
}

void fleet_miss(FleetReport *report, const char *why)
{
    begin(report, false);
    explain(report, why);
}
