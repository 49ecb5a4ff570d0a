/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "reserve.h"
#include "serve/machine.h"

enum { PAGE_BYTES = 65536, LINES_MAX = 16, CHANCE_NUMBERS = MACHINE_CHANCE_BYTES / 8 };

typedef struct MachineLine {
    LogLevel level;
    char text[LOG_LINE_BYTES];
} MachineLine;

static struct {
    uint64_t day_ms, steady_ns;
    bool rests;
    uint64_t chance[CHANCE_NUMBERS];
    uint32_t chance_at;
    LogFormat format;
    LogLevel level;
    const char *node;
    uint32_t first, count; /* of lines */
    uint64_t bytes_max;    /* of the module's memory */
} machine = {.level = LOG_INFO, .node = "coordinator-0"};

/* A ring; what nobody takes is written over. Apart from what has values at the start, which is part of the module's
 * file, zeros and all. */
static MachineLine lines[LINES_MAX];

/* ---- Time and chance ---- */

void machine_set_time(double now_ms)
{
    uint64_t now = now_ms > 0 ? (uint64_t)now_ms : 0;
    if (now > machine.day_ms && machine.day_ms && !machine.rests)
        machine.steady_ns += (now - machine.day_ms) * 1000000;
    if (!machine.steady_ns) machine.steady_ns = 1000000000; /* 0 means never */
    machine.day_ms = now;
    machine.rests = false;
}

void machine_rest(void) { machine.rests = true; }

uint64_t machine_now_ns(void) { return machine.steady_ns; }
uint64_t machine_wall_ns(void) { return machine.day_ms * 1000000; }
uint64_t machine_time_s(void) { return machine.day_ms / 1000; }
void machine_process(MetricsProcess *out)
{
    *out = (MetricsProcess){.resident_bytes = reserve_bytes(), .budget_bytes = machine.bytes_max};
}

uint64_t machine_resident_bytes(void) { return reserve_bytes(); }

uint8_t *machine_chance(void)
{
    machine.chance_at = 0;
    return (uint8_t *)machine.chance;
}

/* A request takes six. When more requests have sent their heads before any of them is taken in than were drawn for,
 * numbers are taken twice: so each that is gone is replaced by the hash of all. */
uint64_t machine_random(void)
{
    uint64_t *drawn = &machine.chance[machine.chance_at++ % CHANCE_NUMBERS], number = *drawn;
    *drawn = hash_xxh64(machine.chance, sizeof machine.chance);
    return number;
}

/* ---- The log ---- */

void machine_open_log(LogFormat format, LogLevel level, const char *node)
{
    machine.format = format;
    machine.level = level;
    machine.node = node;
}

bool machine_logs(LogLevel level) { return level <= machine.level; }

void machine_log(const LogEntry *entry)
{
    if (!machine_logs(entry->level)) return;
    if (machine.count == LINES_MAX) machine.first++, machine.count--;
    MachineLine *to = &lines[(machine.first + machine.count++) % LINES_MAX];
    size_t bytes = log_line_write(entry, machine.format, machine.day_ms, machine.node, to->text);
    to->text[bytes ? bytes - 1 : 0] = '\0'; /* in place of the line's end */
    to->level = entry->level;
}

const char *machine_take_line(LogLevel *level)
{
    if (!machine.count) return NULL;
    machine.count--;
    const MachineLine *line = &lines[machine.first++ % LINES_MAX];
    *level = line->level;
    return line->text;
}

/* ---- Where malloc gets its memory: libc's own knows no limit but the module's ---- */

void machine_limit_memory(uint64_t bytes) { machine.bytes_max = bytes; }

/* Whole pages, and never back: so it is asked. */
void *sbrk(intptr_t bytes)
{
    uint64_t have = reserve_bytes();
    ASSERT(bytes >= 0 && bytes % PAGE_BYTES == 0);
    if (!bytes) return (void *)(uintptr_t)have;
    if (machine.bytes_max && have + (uint64_t)bytes > machine.bytes_max) return (void *)-1;
    size_t pages = __builtin_wasm_memory_grow(0, (size_t)bytes / PAGE_BYTES);
    return pages == (size_t)-1 ? (void *)-1 : (void *)(pages * PAGE_BYTES);
}

/* ---- Memory: a malloc's end can be given back where it is ---- */

void *machine_take(size_t bytes) { return malloc(bytes); }

void machine_trim(void *memory, size_t taken, size_t kept)
{
    if (kept < taken) ASSERT(realloc(memory, kept) == memory);
}

void machine_give(void *memory, size_t bytes)
{
    (void)bytes;
    free(memory);
}

/* ---- One thread ---- */

struct MachineLock {
    char nothing;
};

MachineLock *machine_lock_make(void)
{
    static MachineLock only;
    return &only;
}
void machine_lock_free(MachineLock *lock) { (void)lock; }
void machine_lock(MachineLock *lock) { (void)lock; }
void machine_unlock(MachineLock *lock) { (void)lock; }
