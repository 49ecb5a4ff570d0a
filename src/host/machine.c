/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of src/serve: Linux. */
#include "serve/machine.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "host/clock.h"
#include "host/log.h"
#include "host/memory.h"
#include "host/process.h"

enum { PAGE_BYTES = 4096 };

uint64_t machine_now_ns(void) { return clock_now_ns(); }
uint64_t machine_wall_ns(void) { return clock_now_ns(); }
uint64_t machine_time_s(void) { return (uint64_t)time(NULL); }
uint64_t machine_resident_bytes(void) { return memory_resident(); }

uint64_t machine_random(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint64_t)time(NULL);
    return number;
}

void machine_log(const LogEntry *entry) { log_entry(entry); }
bool machine_logs(LogLevel level) { return log_wants(level); }

void machine_process(MetricsProcess *out) { process_figures(out); }

/* ---- Pages ---- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

void *machine_take(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void machine_trim(void *memory, size_t taken, size_t kept)
{
    kept = whole_pages(kept);
    if (kept < taken) (void)munmap((uint8_t *)memory + kept, taken - kept);
}

void machine_give(void *memory, size_t bytes)
{
    if (memory) (void)munmap(memory, bytes);
}

/* ---- Locks ---- */

struct MachineLock {
    pthread_mutex_t mutex;
};

MachineLock *machine_lock_make(void)
{
    MachineLock *lock = malloc(sizeof *lock);
    if (lock) pthread_mutex_init(&lock->mutex, NULL);
    return lock;
}

void machine_lock_free(MachineLock *lock)
{
    if (!lock) return;
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

void machine_lock(MachineLock *lock) { pthread_mutex_lock(&lock->mutex); }
void machine_unlock(MachineLock *lock) { pthread_mutex_unlock(&lock->mutex); }
