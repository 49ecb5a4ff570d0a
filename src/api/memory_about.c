/* SPDX-License-Identifier: Apache-2.0 */
#include "api/memory_about.h"

void memory_about_write(const MemoryAbout *m, JsonWriter *w)
{
    json_writer_member(w, "memory");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "budget_bytes", m->budget_bytes);
    json_writer_member_u64(w, "need_bytes", m->need_bytes);
    if (m->cache_bytes) json_writer_member_u64(w, "cache_bytes", m->cache_bytes);
    json_writer_member_u64(w, "resident_bytes", m->resident_bytes);
    json_writer_member_u64(w, "peak_bytes", m->peak_bytes);
    json_writer_raw(w, "}");
}
