/* SPDX-License-Identifier: Apache-2.0 */
/* A text falls into runs: a character that joins nothing before it, and all that may join it.
 *
 *   text  ... | e U+0301 U+0323 | x | U+1100 U+1161 U+11A8 | 0xFF | ...
 *                 decompose -> sort marks by class -> compose -> write
 *
 * A run can be the whole text (a megabyte of combining marks), so it lives in scratch memory and is sorted in
 * place with a heap: O(n log n), no recursion. An entry is class << 56 | place << 24 | character: sorting the entries
 * sorts by class and keeps equal classes in their order. Texts above 2^32 bytes are refused by the caller. */
#include "text/nfc.h"

#include <string.h>

#include "base/bytes.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* An invalid byte b rides along as character RAW + b. */
enum { RAW = 0x200000 };

typedef struct Run {
    uint64_t *entries;
    size_t count;
    uint8_t *out;
    size_t out_bytes;
} Run;

static uint32_t entry_character(uint64_t entry) { return (uint32_t)entry & 0xFFFFFF; }
static unsigned entry_order(uint64_t entry) { return (unsigned)(entry >> 56); }

bool nfc_is_plain(const uint8_t *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t length;
        if (unicode_class(utf8_read(text + at, bytes - at, &length)) & UNICODE_CHECK) return false;
        at += length;
    }
    return true;
}

/* The most characters that decomposition makes of n bytes is 3 of 2 bytes (U+01D5). */
static size_t entries_max(size_t bytes) { return bytes + bytes / 2 + UNICODE_PARTS_MAX; }

size_t nfc_scratch_bytes(size_t bytes)
{
    return arena_bytes(entries_max(bytes) * sizeof(uint64_t));
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t value = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= value) break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static void sort_entries(uint64_t *entries, size_t count)
{
    size_t sorted = 1;
    while (sorted < count && entries[sorted - 1] <= entries[sorted]) sorted++;
    if (sorted >= count) return;
    for (size_t i = count / 2; i-- > 0;) sift_down(entries, count, i);
    for (size_t end = count; --end > 0;) {
        uint64_t last = entries[end];
        entries[end] = entries[0];
        entries[0] = last;
        sift_down(entries, end, 0);
    }
}

/* Canonical order: every stretch of characters with a class other than 0 is sorted by class. */
static void order_run(Run *run)
{
    for (size_t at = 0; at < run->count;) {
        size_t start = at;
        while (at < run->count && entry_order(run->entries[at])) at++;
        if (at - start > 1) sort_entries(run->entries + start, at - start);
        if (at == start) at++;
    }
}

/* A character composes with the last starter unless something between them has the same or a higher class. */
static void compose_run(Run *run)
{
    size_t starter = SIZE_MAX, kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        uint64_t entry = run->entries[i];
        bool adjacent = kept > 0 && starter == kept - 1;
        bool open = starter != SIZE_MAX &&
                    (adjacent || (entry_order(run->entries[kept - 1]) < entry_order(entry)));
        uint32_t both = 0;
        if (open)
            both = unicode_compose(entry_character(run->entries[starter]), entry_character(entry));
        if (both) {
            run->entries[starter] = both;
            continue;
        }
        if (entry_order(entry) == 0) starter = kept;
        run->entries[kept++] = entry;
    }
    run->count = kept;
}

static void flush_run(Run *run)
{
    if (run->count > 1) {
        order_run(run);
        compose_run(run);
    }
    for (size_t i = 0; i < run->count; i++) {
        uint32_t c = entry_character(run->entries[i]);
        if (c >= RAW) run->out[run->out_bytes++] = (uint8_t)(c - RAW);
        else run->out_bytes += utf8_write(c, run->out + run->out_bytes);
    }
    run->count = 0;
}

static void add_character(Run *run, uint32_t c)
{
    uint32_t parts[UNICODE_PARTS_MAX];
    uint32_t count = unicode_decompose(c, parts);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t order = unicode_order(parts[i]);
        run->entries[run->count] = order << 56 | (uint64_t)run->count << 24 | parts[i];
        run->count++;
    }
}

Error nfc_normalize(const uint8_t *text, size_t bytes, Arena *scratch, uint8_t *out,
                    size_t *out_bytes, Why *why)
{
    size_t mark = arena_mark(scratch);
    Run run = {ARENA_NEW(scratch, uint64_t, entries_max(bytes)), 0, out, 0};
    if (!run.entries)
        return error_why(why, ERR_MEMORY, "no room to normalize %zu bytes of text", bytes);
    for (size_t at = 0; at < bytes;) {
        uint32_t length, c = utf8_read(text + at, bytes - at, &length);
        if (!(unicode_class(c) & UNICODE_JOINS)) flush_run(&run);
        add_character(&run, c == UTF8_INVALID ? (uint32_t)RAW + text[at] : c);
        at += length;
    }
    flush_run(&run);
    arena_reset(scratch, mark);
    *out_bytes = run.out_bytes;
    return OK;
}
