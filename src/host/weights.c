/* SPDX-License-Identifier: Apache-2.0 */
#include "host/weights.h"

static const uint64_t LARGE_PAGE_BYTES = KNOT_FILE_DROP_UNIT;

static uint64_t page_floor(uint64_t x) { return x / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES; }
static uint64_t page_ceil(uint64_t x) { return page_floor(x + LARGE_PAGE_BYTES - 1); }

void weights_start(Weights *w, const KnotFile *file, uint64_t pinned_bytes, uint64_t window_bytes)
{
    *w = (Weights){.file = file, .pinned_last = pinned_bytes, .window_bytes = window_bytes};
}

void weights_pin(Weights *w, uint64_t first, uint64_t last)
{
    w->pinned_first = first;
    w->pinned_last = last;
}

static void drop_range(Weights *w, uint64_t first, uint64_t last)
{
    if (first >= last) return;
    knot_file_drop(w->file, first, last - first);
    w->counters.dropped_bytes += last - first;
}

/* Gives back [first, last) of the file, but nothing of the header and the pinned range. */
static void drop_pages(Weights *w, uint64_t first, uint64_t last)
{
    uint64_t payload = w->file->knot.payload_offset;
    if (last > w->file->knot.file_bytes) last = w->file->knot.file_bytes;
    first = first > payload ? first - payload : 0;
    last = last > payload ? last - payload : 0;
    if (w->pinned_first >= w->pinned_last) {
        drop_range(w, first, last);
        return;
    }
    drop_range(w, first, last < w->pinned_first ? last : w->pinned_first);
    drop_range(w, first > w->pinned_last ? first : w->pinned_last, last);
}

static void set_touched(Weights *w, uint64_t used, uint64_t first, uint64_t last)
{
    w->used_first = used;
    w->touched_first = first;
    w->touched_last = last;
    w->counters.resident_bytes = last - used;
    if (last - used > w->counters.resident_bytes_max) w->counters.resident_bytes_max = last - used;
}

void weights_settle(Weights *w)
{
    drop_pages(w, w->used_first, w->touched_first);
    set_touched(w, w->touched_first, w->touched_first, w->touched_last);
}

/* What was used stays while it and the new tile fill less than half of the window; then it is to
 * be dropped, and the other
 * half holds the tiles that come meanwhile. */
static void make_room(Weights *w, uint64_t first, uint64_t last)
{
    weights_settle(w);
    if (first < w->touched_first || first > w->touched_last) weights_drop(w);
    if (w->touched_last == 0) w->touched_first = first;
    if (last < w->touched_last) last = w->touched_last;
    uint64_t used = w->touched_first;
    set_touched(w, used, last - used <= w->window_bytes / 2 ? used : first, last);
}

const uint8_t *weights_tile(Weights *w, uint64_t offset, uint64_t bytes)
{
    w->counters.tiles++;
    w->counters.bytes += bytes;
    if (offset < w->pinned_first || offset + bytes > w->pinned_last) {
        uint64_t begin = w->file->knot.payload_offset + offset;
        make_room(w, page_floor(begin), page_ceil(begin + bytes));
    }
    return knot_file_payload(w->file, offset);
}

void weights_drop(Weights *w)
{
    drop_pages(w, w->used_first, w->touched_last);
    set_touched(w, 0, 0, 0);
}

void weights_phase_loaded(Weights *w) { w->counters.phase_loads++; }
void weights_phase_evicted(Weights *w) { w->counters.phase_evictions++; }
