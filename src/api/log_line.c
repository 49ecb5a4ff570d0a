/* SPDX-License-Identifier: Apache-2.0 */
#include "api/log_line.h"

#include <string.h>

#include "api/json_writer.h"

enum { TEXT_BYTES_MAX = 1200, SHORT_BYTES_MAX = 128 };

/* ---- The time ---- */

static char *write_digits(char *to, uint64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--, value /= 10) to[i] = (char)('0' + value % 10);
    return to + count;
}

/* Days since 1970 to a date, in years that begin in March, so that the leap day is a year's last.
 * Source  Howard Hinnant, chrono-compatible low-level date algorithms: civil_from_days. */
static char *write_date(char *to, uint64_t days)
{
    uint64_t z = days + 719468, era = z / 146097, day = z % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    uint64_t of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    to = write_digits(to, year + era * 400 + (month >= 10), 4);
    *to++ = '-';
    to = write_digits(to, month < 10 ? month + 3 : month - 9, 2);
    *to++ = '-';
    return write_digits(to, of_year - (153 * month + 2) / 5 + 1, 2);
}

void log_line_time(uint64_t unix_ms, char out[LOG_TIME_BYTES])
{
    uint64_t ms = unix_ms % 86400000;
    char *to = write_date(out, unix_ms / 86400000);
    *to++ = 'T';
    to = write_digits(to, ms / 3600000, 2);
    *to++ = ':';
    to = write_digits(to, ms / 60000 % 60, 2);
    *to++ = ':';
    to = write_digits(to, ms / 1000 % 60, 2);
    *to++ = '.';
    to = write_digits(to, ms % 1000, 3);
    *to++ = 'Z';
    *to = '\0';
}

/* ---- Fields ---- */

typedef struct Line {
    JsonWriter w;
    LogFormat format;
    size_t text_max; /* of one text */
} Line;

static size_t cut(const Line *l, const char *text)
{
    size_t n = 0;
    while (n < l->text_max && text[n]) n++;
    while (n && n == l->text_max && ((uint8_t)text[n] & 0xc0) == 0x80) n--; /* no half character */
    return n;
}

/* U+0080 to U+009F: two bytes that terminals obey as they do ESC and a letter. */
static bool is_c1(const char *text, size_t bytes)
{
    return bytes > 1 && (uint8_t)text[0] == 0xc2 && (uint8_t)text[1] >= 0x80 &&
           (uint8_t)text[1] < 0xa0;
}

static bool is_word(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f || text[i] == '"' || text[i] == '\\') return false;
    return bytes > 0;
}

static void name(Line *l, const char *field)
{
    if (l->format == LOG_JSON) {
        json_writer_member(&l->w, field);
        return;
    }
    json_writer_raw(&l->w, " ");
    json_writer_raw(&l->w, field);
    json_writer_raw(&l->w, "=");
}

/* Words stand in text as they are, anything else between quotes. */
static void put_value(Line *l, const char *text)
{
    char tame[TEXT_BYTES_MAX];
    size_t bytes = cut(l, text);
    if (l->format == LOG_JSON) {
        json_writer_string(&l->w, text, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        bool c1 = is_c1(text + i, bytes - i);
        tame[i] = c1 ? '?' : text[i];
        if (c1) tame[++i] = '?';
    }
    if (is_word(tame, bytes)) json_writer_bytes(&l->w, tame, bytes);
    else json_writer_string(&l->w, tame, bytes);
}

static void add_text(Line *l, const char *field, const char *text)
{
    if (!text || !*text) return;
    name(l, field);
    put_value(l, text);
}

static void add_count(Line *l, const char *field, uint64_t value)
{
    if (!value) return;
    name(l, field);
    json_writer_u64(&l->w, value);
}

static void add_ms(Line *l, const char *field, uint64_t us)
{
    if (!us) return;
    name(l, field);
    json_writer_thousandths(&l->w, us);
}

static void add_fields(Line *l, const LogEntry *e)
{
    add_text(l, "to", e->to);
    if (l->format == LOG_JSON) {
        add_text(l, "method", e->method);
        add_text(l, "path", e->path);
        add_count(l, "status", e->status);
    }
    add_ms(l, "ms", e->us);
    add_ms(l, "ttft_ms", e->first_us);
    add_count(l, "prompt_tokens", e->prompt_tokens);
    add_count(l, "completion_tokens", e->completion_tokens);
    add_count(l, "cached_tokens", e->cached_tokens);
    add_count(l, "bytes_sent", e->bytes_sent);
    add_count(l, "bytes_received", e->bytes_received);
    add_text(l, "key", e->key_name);
    add_text(l, "error", e->error);
    add_text(l, "request_id", e->request_id);
    add_text(l, "request_ids", e->request_ids);
    if (!e->trace || !e->trace->trace_id[0]) return;
    add_text(l, "trace_id", e->trace->trace_id);
    add_text(l, "span_id", e->trace->span_id);
    add_text(l, "parent_id", e->trace->parent_id);
}

/* ---- Lines ---- */

static void write_json(Line *l, const LogEntry *e, uint64_t unix_ms, const char *node)
{
    static const char *const levels[] = {"error", "info", "debug"};
    char time[LOG_TIME_BYTES], message[TEXT_BYTES_MAX + 1];
    log_line_time(unix_ms, time);
    json_writer_raw(&l->w, "{");
    add_text(l, "time", time);
    add_text(l, "level", levels[e->level]);
    add_text(l, "node", node);
    add_text(l, "event", e->event);
    JsonWriter m = json_writer_make(message, l->text_max);
    if (e->message) json_writer_bytes(&m, e->message, cut(l, e->message));
    if (e->message && e->detail && m.max - m.used > 2) {
        size_t bytes = cut(l, e->detail), left = m.max - m.used - 2;
        json_writer_raw(&m, ": ");
        json_writer_bytes(&m, e->detail, bytes < left ? bytes : left);
    }
    message[m.used] = '\0';
    add_text(l, "message", message);
    add_fields(l, e);
    json_writer_raw(&l->w, "}\n");
}

/* What a person wrote for persons stands as it is, but for what a terminal would obey. */
static void add_plain(Line *l, const char *text)
{
    for (size_t i = 0, bytes = cut(l, text); i < bytes; i++) {
        bool c1 = is_c1(text + i, bytes - i);
        bool control = c1 || (uint8_t)text[i] < ' ' || text[i] == 0x7f;
        json_writer_bytes(&l->w, control ? "?" : text + i, 1);
        i += c1;
    }
}

static void write_text(Line *l, const LogEntry *e)
{
    json_writer_raw(&l->w, "cobord: ");
    if (e->message) add_plain(l, e->message);
    if (e->message && e->detail) {
        json_writer_raw(&l->w, ": ");
        add_plain(l, e->detail);
    }
    if (!e->message) {
        put_value(l, e->method ? e->method : e->event); /* a method is any bytes without blanks */
        json_writer_raw(&l->w, " ");
        if (e->path) put_value(l, e->path);
        json_writer_raw(&l->w, " ");
        json_writer_u64(&l->w, e->status);
    }
    add_fields(l, e);
    json_writer_raw(&l->w, "\n");
}

static size_t write_line(const LogEntry *e, LogFormat format, uint64_t unix_ms, const char *node,
                         size_t text_max, char out[LOG_LINE_BYTES])
{
    Line l = {json_writer_make(out, LOG_LINE_BYTES), format, text_max};
    if (format == LOG_JSON) write_json(&l, e, unix_ms, node);
    else write_text(&l, e);
    return l.w.full ? 0 : l.w.used;
}

/* Texts that grow when they are escaped may fill the line: then with less of them. */
size_t log_line_write(const LogEntry *e, LogFormat format, uint64_t unix_ms, const char *node,
                      char out[LOG_LINE_BYTES])
{
    size_t bytes = write_line(e, format, unix_ms, node, TEXT_BYTES_MAX, out);
    return bytes ? bytes : write_line(e, format, unix_ms, node, SHORT_BYTES_MAX, out);
}
