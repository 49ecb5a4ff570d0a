/* SPDX-License-Identifier: Apache-2.0 */
/* The rate is over a sliding window of some seconds, so that it follows the network and does not
 * jump. */
#include "cli/progress.h"

#include <stdarg.h>
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
    unsigned width; /* of the terminal when it was last drawn */
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

/* Asked for each time, so a terminal may change its size at any time. */
static unsigned progress_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col < PROGRESS_LINE_BYTES ? size.ws_col : PROGRESS_LINE_BYTES - 1;
}

/* Where the text that has at most `columns` columns ends: characters of UTF-8, one column each. */
static size_t progress_cut(const char *text, size_t columns)
{
    size_t at = 0;
    for (; text[at]; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && columns-- == 0) break;
    return at;
}

/* The line replaces what stands there. The cursor goes back to its start: when the terminal becomes
 * narrower and breaks the line, all of it is still after the cursor. It never reaches the last
 * column, so it never wraps by itself. */
static void progress_put(const char *line, unsigned width)
{
    size_t shown = progress_cut(line, width > 1 ? width - 1 : 1);
    fprintf(stderr, "\r%.*s\x1b[%s\r", (int)shown, line, width < progress.width ? "J" : "K");
    fflush(stderr);
    progress.width = width;
    progress.drawn = true;
}

/* How much is said: percent, time left, bytes, rate come in this order as there is room. */
enum { PROGRESS_PERCENT, PROGRESS_LEFT, PROGRESS_BYTES, PROGRESS_RATE };

/* What stands right of the bar. */
static void progress_figures(char *out, size_t out_bytes, unsigned much, uint64_t now_ms)
{
    char done[16], total[16], per_second[24], left[24], bytes[48] = "";
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
    if (much >= PROGRESS_BYTES) (void)snprintf(bytes, sizeof bytes, "  %s of %s", done, total);
    int length = snprintf(out, out_bytes, "%3.0f %%%s",
                          100.0 * (double)progress.done / (double)progress.total, bytes);
    if (much >= PROGRESS_RATE)
        length += snprintf(out + length, out_bytes - (size_t)length, "  %s/s", per_second);
    if (much >= PROGRESS_LEFT)
        (void)snprintf(out + length, out_bytes - (size_t)length, "  %s left", left);
}

/* The bar for `room` columns, its brackets included. */
static void progress_bar(char *out, size_t room)
{
    size_t inside = room - 2;
    size_t full = (size_t)((double)inside * (double)progress.done / (double)progress.total);
    if (full > inside) full = inside;
    out[0] = '[';
    memset(out + 1, '=', full);
    memset(out + 1 + full, ' ', inside - full);
    if (full < inside) out[1 + full] = '>';
    out[room - 1] = ']';
    out[room] = 0;
}

/* Room is kept for the longest figures, so that the bar keeps its place and length. */
static void progress_draw_terminal(uint64_t now_ms)
{
    static const unsigned tails[] = {5, 18, 36,
                                     48}; /* "100 %  999 MB of 999 MB  999 MB/s  99 min left" */
    enum { BAR_MIN = 8, BAR_MAX = 42 };
    char figures[120], bar[BAR_MAX + 1], line[PROGRESS_LINE_BYTES];
    unsigned width = progress_width(), much = PROGRESS_RATE;
    size_t head = strlen(progress.stage) + 2;
    while (much > PROGRESS_PERCENT && head + BAR_MIN + 2 + tails[much] > width - 1) much--;
    progress_figures(figures, sizeof figures, much, now_ms);
    size_t taken = head + 2 + tails[much] + 1, room = width > taken ? width - taken : 0;
    if (progress.total && room >= BAR_MIN) {
        progress_bar(bar, room < BAR_MAX ? room : BAR_MAX);
        (void)snprintf(line, sizeof line, "%s  %s  %s", progress.stage, bar, figures);
    } else {
        (void)snprintf(line, sizeof line, "%s  %s", progress.stage, figures);
    }
    progress_put(line, width);
}

static void progress_draw_plain(uint64_t now_ms)
{
    char figures[120];
    progress_figures(figures, sizeof figures, PROGRESS_RATE, now_ms);
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
        fputs("\r\x1b[J", stderr); /* all of it, also when it was broken into two since */
        fflush(stderr);
    }
}

void progress_line(const char *format, ...)
{
    char line[PROGRESS_LINE_BYTES];
    va_list list;
    if (isatty(STDERR_FILENO) != 1) return;
    va_start(list, format);
    (void)vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (!progress.active || progress.stage[0]) progress_start("", clock_now_ms());
    progress_put(line, progress_width());
}

static void progress_tell_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context;
    progress_step(stage, done, total);
}

static void progress_tell_end(void *context)
{
    (void)context;
    progress_end(true);
}

static void progress_tell_note(void *context, const char *line)
{
    (void)context;
    progress_note(line);
}

const Tell *progress_tell(void)
{
    static const Tell tell = {
        .step = progress_tell_step, .end = progress_tell_end, .note = progress_tell_note};
    return &tell;
}
