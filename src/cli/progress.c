/* SPDX-License-Identifier: Apache-2.0 */
/* The rate is over a sliding window of some seconds, so that it follows the network and does not
 * jump. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/options.h"
#include "host/clock.h"

enum {
    PROGRESS_SAMPLES = 32, /* of the rate's window */
    PROGRESS_SAMPLE_MS = 250,
    PROGRESS_TERMINAL_MS = 100, /* between redraws */
    PROGRESS_PLAIN_MS = 5000,   /* between lines without a terminal */
    PROGRESS_LINE_BYTES = 256
};

static struct {
    bool active, terminal, drawn;
    char stage[32];
    uint64_t done, total, first, start_ms,
        drawn_ms; /* first: what was there before (a resumed download) */
    struct {
        uint64_t ms, done;
    } samples[PROGRESS_SAMPLES];
    unsigned sample_count;
} progress;

void progress_print_bytes(char *out, uint64_t out_bytes, uint64_t value)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double v = (double)value;
    unsigned unit = 0;
    while (v >= 999.5 && unit < 4) {
        v /= 1000;
        unit++;
    }
    (void)snprintf(out, out_bytes, unit && v < 9.95 ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

static void progress_print_left(char *out, size_t out_bytes, double seconds)
{
    if (seconds < 0 || seconds > 359999) (void)snprintf(out, out_bytes, "--");
    else if (seconds < 99.5) (void)snprintf(out, out_bytes, "%.0f s", seconds);
    else if (seconds < 5940) (void)snprintf(out, out_bytes, "%.0f min", seconds / 60);
    else (void)snprintf(out, out_bytes, "%.1f h", seconds / 3600);
}

static void progress_sample(uint64_t now_ms)
{
    unsigned n = progress.sample_count;
    if (n && now_ms - progress.samples[(n - 1) % PROGRESS_SAMPLES].ms < PROGRESS_SAMPLE_MS) return;
    progress.samples[n % PROGRESS_SAMPLES].ms = now_ms;
    progress.samples[n % PROGRESS_SAMPLES].done = progress.done;
    progress.sample_count++;
}

/* Bytes per second over the window; 0 while there is nothing to go by. */
static double progress_rate(uint64_t now_ms)
{
    unsigned n = progress.sample_count;
    if (n == 0) return 0;
    unsigned oldest = n > PROGRESS_SAMPLES ? n - PROGRESS_SAMPLES : 0;
    uint64_t from_ms = progress.samples[oldest % PROGRESS_SAMPLES].ms;
    uint64_t from = progress.samples[oldest % PROGRESS_SAMPLES].done;
    if (now_ms <= from_ms || progress.done < from) return 0;
    return (double)(progress.done - from) * 1000 / (double)(now_ms - from_ms);
}

static unsigned progress_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/* The figures at the right: percent, bytes, rate, time left. */
static void progress_figures(char *out, size_t out_bytes, uint64_t now_ms)
{
    char done[16], total[16], per_second[16], left[16];
    double rate = progress_rate(now_ms);
    progress_print_bytes(done, sizeof done, progress.done);
    progress_print_bytes(total, sizeof total, progress.total);
    progress_print_bytes(per_second, sizeof per_second, (uint64_t)rate);
    if (!progress.total) {
        (void)snprintf(out, out_bytes, "%s  %s/s", done, per_second);
        return;
    }
    uint64_t rest = progress.total > progress.done ? progress.total - progress.done : 0;
    progress_print_left(left, sizeof left, rate > 0 ? (double)rest / rate : rest ? -1 : 0);
    (void)snprintf(out, out_bytes, "%3.0f %%  %s of %s  %s/s  %s left",
                   100.0 * (double)progress.done / (double)progress.total, done, total, per_second,
                   left);
}

static void progress_draw_terminal(uint64_t now_ms)
{
    char figures[120], line[PROGRESS_LINE_BYTES];
    progress_figures(figures, sizeof figures, now_ms);
    unsigned width = progress_width();
    if (width > PROGRESS_LINE_BYTES - 1) width = PROGRESS_LINE_BYTES - 1;
    size_t head = strlen(progress.stage) + 2, tail = strlen(figures) + 5;
    size_t room = width > head + tail ? width - head - tail : 0;
    if (room > 40) room = 40;
    if (progress.total && room >= 8) {
        char bar[41];
        size_t full = (size_t)((double)room * (double)progress.done / (double)progress.total);
        if (full > room) full = room;
        memset(bar, '=', full);
        memset(bar + full, ' ', room - full);
        if (full < room) bar[full] = '>';
        bar[room] = 0;
        (void)snprintf(line, sizeof line, "%s  [%s]  %s", progress.stage, bar, figures);
    } else {
        (void)snprintf(line, sizeof line, "%s  %s", progress.stage, figures);
    }
    if (width > 1) line[width - 1] = 0; /* never reaches the last column, so never wraps */
    fprintf(stderr, "\r%s\x1b[K", line);
    fflush(stderr);
    progress.drawn = true;
}

static void progress_draw_plain(uint64_t now_ms)
{
    char figures[120];
    progress_figures(figures, sizeof figures, now_ms);
    fprintf(stderr, "%s  %s\n", progress.stage, figures);
    progress.drawn = true;
}

static void progress_start(const char *stage, uint64_t now_ms)
{
    memset(&progress, 0, sizeof progress);
    progress.active = true;
    progress.terminal = isatty(STDERR_FILENO) == 1;
    (void)snprintf(progress.stage, sizeof progress.stage, "%s", stage);
    progress.start_ms = progress.drawn_ms = now_ms;
}

void progress_step(const char *stage, uint64_t done, uint64_t total)
{
    uint64_t now = clock_now_ms();
    if (progress.active && strncmp(progress.stage, stage, sizeof progress.stage - 1) != 0)
        progress_end(true);
    if (!progress.active) {
        progress_start(stage, now);
        progress.first = done;
    }
    progress.done = total && done > total ? total : done;
    progress.total = total;
    progress_sample(now);
    uint64_t pause = progress.terminal ? PROGRESS_TERMINAL_MS : PROGRESS_PLAIN_MS;
    if (now - progress.drawn_ms < pause) return;
    progress.drawn_ms = now;
    if (progress.terminal) progress_draw_terminal(now);
    else progress_draw_plain(now);
}

void progress_note(const char *line)
{
    progress_interrupt();
    options_print_safely(stderr, line);
    fputc('\n', stderr);
}

void progress_end(bool complete)
{
    if (!progress.active) return;
    uint64_t now = clock_now_ms();
    char bytes[16], rate[16];
    if (complete) {
        /* Short work that never drew leaves no line on a terminal either. */
        uint64_t ms = now - progress.start_ms;
        progress_interrupt();
        if (progress.done > progress.first && (progress.drawn || ms > 1000)) {
            progress_print_bytes(bytes, sizeof bytes,
                                 progress.total ? progress.total : progress.done);
            progress_print_bytes(rate, sizeof rate,
                                 ms ? (progress.done - progress.first) * 1000 / ms : 0);
            fprintf(stderr, "%s  %s in %.1f s, %s/s\n", progress.stage, bytes, (double)ms / 1000,
                    rate);
        }
    } else {
        progress_interrupt();
    }
    progress.active = false;
}

void progress_interrupt(void)
{
    if (progress.active && progress.terminal && progress.drawn) {
        fputs("\r\x1b[K", stderr);
        fflush(stderr);
    }
}

static void progress_tell_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context;
    progress_step(stage, done, total);
}

static void progress_tell_note(void *context, const char *line)
{
    (void)context;
    progress_note(line);
}

const Tell *progress_tell(void)
{
    static const Tell tell = {progress_tell_step, progress_tell_note, NULL};
    return &tell;
}
