/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_state.h"

#include "api/warden_report.h"
#include "host/memory.h"

static WardenReport report_of(WardenRole *w)
{
    const Node *n = w->node;
    WardenReport r = {.version = n->options->version ? n->options->version : "",
                      .id = n->self->id,
                      .role = cluster_file_role_name(n->self->role),
                      .knot_key = w->self.knot_key,
                      .identity = w->self.identity,
                      .layers = w->self.layers,
                      .memory.budget_bytes = n->cluster->warden_memory_bytes,
                      .memory.cache_bytes = w->slab_budget_bytes + w->row_budget_bytes,
                      .memory.resident_bytes = memory_resident(),
                      .memory.peak_bytes = memory_peak(),
                      .levels = warden_levels_counters(w->levels)};
    /* Slabs are in a memory file, which is not resident here but as much this process's. */
    r.memory.need_bytes = r.memory.resident_bytes + r.levels.memory.held_bytes;
    if (w->vocab) r.rows = warden_vocab_counters(w->vocab);
    return r;
}

void warden_state_write(WardenRole *w, char *text, size_t room)
{
    WardenReport r = report_of(w);
    JsonWriter j = json_writer_make(text, room - 1);
    warden_report_write(&r, &j);
    ASSERT(!j.full);
    text[j.used] = '\0';
}

void warden_state_metrics(WardenRole *w, char *text, size_t room)
{
    WardenReport r = report_of(w);
    JsonWriter j = json_writer_make(text, room - 1);
    warden_report_write_metrics(&r, &j);
    ASSERT(!j.full);
    text[j.used] = '\0';
}
