/* SPDX-License-Identifier: Apache-2.0 */
/* GET /cluster of one process: its roles as if they were a cluster's nodes, without what only a way between
 * processes has: addresses, calls, bytes. What it has in memory is said once, of the process. */
#include "serve/fleet.h"

/* ---- One role ---- */

static void write_owns(const Plan *plan, const PlanRole *role, JsonWriter *w)
{
    char range[PHASE_RANGE_TEXT_MAX];
    if (!role->is_shard) {
        uint32_t layers = plan->request.hyper->layers;
        json_writer_member_text(w, "range", phase_range_text(role->range, layers, range));
        return;
    }
    json_writer_member(w, "ids");
    json_writer_raw(w, "[");
    json_writer_u64(w, role->id_first);
    json_writer_raw(w, ",");
    json_writer_u64(w, role->id_last);
    json_writer_raw(w, "]");
}

static void write_hop(const FleetWholeTimes *t, uint32_t role, bool is_shard, JsonWriter *w)
{
    json_writer_member(w, "hops");
    json_writer_raw(w, "{");
    if (t->steps) {
        json_writer_member(w, is_shard ? "logits" : "forward");
        json_writer_raw(w, "{");
        json_writer_member_u64(w, "rows", is_shard ? 1 : t->rows);
        json_writer_member_u64(w, "us", t->role_us[role]);
        json_writer_raw(w, "}");
    }
    json_writer_raw(w, "}");
}

static void write_role(const FleetWhole *f, uint32_t role, JsonWriter *w)
{
    const Plan *plan = f->plan;
    const PlanRole *r = &plan->role[role];
    char name[PLAN_ROLE_NAME_BYTES];
    plan_role_name(plan, r, name);
    json_writer_raw(w, role ? ",{" : "{");
    json_writer_member_text(w, "id", name);
    json_writer_member_text(w, "role", r->is_shard ? "shard" : "station");
    write_owns(plan, r, w);
    json_writer_member_u64(w, "part", r->is_shard ? role - plan->request.stations : role);
    json_writer_member_bool(w, "replica", false);
    json_writer_member_text(w, "state", "ready");
    json_writer_member_bool(w, "ready", true);
    write_hop(&f->times, role, r->is_shard, w);
    json_writer_raw(w, "}");
}

/* ---- The process ---- */

static void write_step(const FleetWhole *f, JsonWriter *w)
{
    const FleetWholeTimes *t = &f->times;
    uint64_t us[2] = {0}; /* stations, shards */
    for (uint32_t i = 0; i < f->plan->role_count; i++)
        us[f->plan->role[i].is_shard] += t->role_us[i];
    json_writer_member(w, "step");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "count", t->steps);
    json_writer_member_u64(w, "rows", t->rows);
    json_writer_member_u64(w, "embed_us", t->embed_us);
    json_writer_member_u64(w, "forward_us", us[0]);
    json_writer_member_u64(w, "logits_us", us[1]);
    json_writer_member_u64(w, "own_us", t->own_us);
    json_writer_raw(w, "}");
}

static void write_process(const FleetWhole *f, JsonWriter *w)
{
    const Plan *plan = f->plan;
    json_writer_member(w, "coordinator");
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", "self");
    memory_about_write(&f->memory, w);
    json_writer_member(w, "weights");
    json_writer_raw(w, "{");
    json_writer_member_bool(w, "resident", plan->resident);
    json_writer_member_u64(w, "bytes", plan->request.knot->payload_bytes);
    json_writer_member_u64(w, "pinned_bytes", plan->pinned_bytes);
    json_writer_raw(w, "}}");
}

static void write_head(const FleetWhole *f, JsonWriter *w)
{
    const Plan *plan = f->plan;
    json_writer_member_text(w, "kind", "process");
    json_writer_member_text(w, "model", f->model);
    json_writer_member(w, "knot_id");
    json_writer_raw(w, "\"");
    json_writer_hex64(w, f->knot_id);
    json_writer_raw(w, "\"");
    json_writer_member_text(w, "version", f->version);
    json_writer_member_bool(w, "ready", true);
    json_writer_member_bool(w, "complete", true);
    json_writer_member_u64(w, "uptime_seconds", f->uptime_ms / 1000);
    json_writer_member_u64(w, "uptime_ms", f->uptime_ms);
    json_writer_member_u64(w, "refresh_ms", 1000);
    json_writer_member_u64(w, "layers", plan->request.hyper->layers);
    json_writer_member_u64(w, "vocabulary", plan->request.hyper->vocabulary);
    json_writer_member_u64(w, "context", plan->context);
    json_writer_member_u64(w, "chunk", plan->chunk);
    json_writer_member_text(w, "cache_type", plan->request.cache == CACHE_F16 ? "f16" : "q8_0");
    write_step(f, w);
    write_process(f, w);
}

size_t fleet_whole_describe(const FleetWhole *f, char *out, size_t room)
{
    JsonWriter w = json_writer_make(out, room);
    write_head(f, &w);
    json_writer_raw(&w, ",\"nodes\":[");
    for (uint32_t i = 0; i < f->plan->role_count; i++) write_role(f, i, &w);
    json_writer_raw(&w, "]");
    return w.full ? 0 : w.used;
}
