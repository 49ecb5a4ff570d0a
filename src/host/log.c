/* SPDX-License-Identifier: Apache-2.0 */
#include "host/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mask.h"

enum { WAIT_MS = 10, AT_ONCE_BYTES = 4096 };

static struct {
    LogFormat format;
    LogLevel level;
    const char *node;
    pthread_mutex_t lock; /* between the look and the write nobody else writes */
    bool full;            /* the last line could not go */
    bool cut;             /* of the last line the end could not: what follows begins a new one */
    unsigned long long untold;
    atomic_ullong dropped;
} process = {.level = LOG_INFO, .node = "cobord", .lock = PTHREAD_MUTEX_INITIALIZER};

void log_open(LogFormat format, LogLevel level, const char *node)
{
    process.format = format;
    process.level = level;
    process.node = node;
}

bool log_wants(LogLevel level) { return level <= process.level; }
bool log_is_json(void) { return process.format == LOG_JSON; }
unsigned long long log_dropped(void) { return process.dropped; }

uint64_t log_time_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A pipe that poll calls writable takes AT_ONCE_BYTES at once. */
static bool can_write(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n = poll(&p, 1, process.full ? 0 : WAIT_MS);
    process.full = n == 0;
    return n != 0;
}

/* Result  false: nobody takes it, or the rest of it. */
static bool put_line(const char *line, size_t bytes)
{
    size_t all = bytes;
    if (process.cut && (!can_write() || write(STDERR_FILENO, "\n", 1) != 1)) return false;
    process.cut = false;
    while (bytes && can_write()) {
        ssize_t n = write(STDERR_FILENO, line, bytes < AT_ONCE_BYTES ? bytes : AT_ONCE_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        line += n;
        bytes -= (size_t)n;
    }
    process.cut = bytes && bytes < all;
    return bytes == 0;
}

static bool put(const LogEntry *e)
{
    char line[LOG_LINE_BYTES];
    size_t bytes = log_line_write(e, process.format, log_time_ms(), process.node, line);
    return put_line(line, bytes);
}

static void put_untold(void)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%llu lines of the log were dropped: nobody took them",
                   process.untold);
    if (put(&(LogEntry){.level = LOG_ERROR, .event = "dropped", .message = text}))
        process.untold = 0;
}

void log_entry(const LogEntry *e)
{
    if (!log_wants(e->level)) return;
    int before = errno;
    pthread_mutex_lock(&process.lock);
    if (process.untold && can_write()) put_untold();
    if (!put(e)) {
        process.untold++;
        process.dropped++;
    }
    pthread_mutex_unlock(&process.lock);
    errno = before;
}

void log_pass(const char *line, size_t bytes)
{
    pthread_mutex_lock(&process.lock);
    if (process.untold && can_write()) put_untold();
    if (!put_line(line, bytes)) {
        process.untold++;
        process.dropped++;
    }
    pthread_mutex_unlock(&process.lock);
}

void log_say(LogLevel level, const char *format, ...)
{
    char said[2 * WHY_MAX], text[2 * WHY_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    mask_copy(text, sizeof text, said);
    log_entry(&(LogEntry){.level = level, .event = "note", .message = text});
}
