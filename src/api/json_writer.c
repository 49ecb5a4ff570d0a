/* SPDX-License-Identifier: Apache-2.0 */
#include "api/json_writer.h"

#include <string.h>

#include "base/error.h"
#include "text/jinja_number.h"
#include "text/utf8.h"

JsonWriter json_writer_make(char *bytes, size_t max)
{
    return (JsonWriter){.bytes = bytes, .max = max};
}

void json_writer_bytes(JsonWriter *w, const void *bytes, size_t count)
{
    if (w->full || count > w->max - w->used) {
        w->full = true;
        return;
    }
    if (count) memcpy(w->bytes + w->used, bytes, count);
    w->used += count;
}

void json_writer_raw(JsonWriter *w, const char *text) { json_writer_bytes(w, text, strlen(text)); }

static const char hex[] = "0123456789abcdef";

/* One ASCII character that a string cannot hold as it is. */
static void escape(JsonWriter *w, uint8_t c)
{
    static const char named[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (const char *n = named; *n; n += 2)
        if ((uint8_t)n[0] == c) {
            json_writer_bytes(w, (char[]){'\\', n[1]}, 2);
            return;
        }
    json_writer_bytes(w, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
}

/* How many bytes from the front need no escape. */
static size_t plain_run(const uint8_t *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes) {
        if (text[n] < 0x80) {
            if (text[n] < 0x20 || text[n] == '"' || text[n] == '\\' || text[n] == 0x7f) return n;
            n++;
            continue;
        }
        int length = utf8_look(text + n, bytes - n);
        if (length <= 0) return n;
        n += (size_t)length;
    }
    return n;
}

void json_writer_string(JsonWriter *w, const void *text, size_t bytes)
{
    const uint8_t *at = text, *end = bytes ? at + bytes : at; /* no text may be NULL */
    json_writer_raw(w, "\"");
    while (at != end) {
        size_t run = plain_run(at, (size_t)(end - at));
        json_writer_bytes(w, at, run);
        at += run;
        if (at == end) break;
        int length = utf8_look(at, (size_t)(end - at));
        if (length == 1) {
            escape(w, *at++);
            continue;
        }
        json_writer_raw(w, "\xEF\xBF\xBD");
        at = length < 0 ? at - length : end;
    }
    json_writer_raw(w, "\"");
}

void json_writer_text(JsonWriter *w, const char *text)
{
    json_writer_string(w, text, strlen(text));
}

void json_writer_u64(JsonWriter *w, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    json_writer_bytes(w, digits + at, sizeof digits - at);
}

void json_writer_hex64(JsonWriter *w, uint64_t value)
{
    char digits[16];
    for (size_t i = sizeof digits; i-- > 0; value >>= 4) digits[i] = hex[value & 15];
    json_writer_bytes(w, digits, sizeof digits);
}

void json_writer_thousandths(JsonWriter *w, uint64_t value)
{
    unsigned rest = (unsigned)(value % 1000);
    json_writer_u64(w, value / 1000);
    json_writer_bytes(w,
                      (char[]){'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                               (char)('0' + rest % 10)},
                      4);
}

void json_writer_float(JsonWriter *w, double value)
{
    char text[JINJA_NUMBER_BYTES];
    ASSERT(value - value == 0);
    json_writer_bytes(w, text, jinja_number_write_float(value, text));
}

void json_writer_bool(JsonWriter *w, bool value) { json_writer_raw(w, value ? "true" : "false"); }

void json_writer_member(JsonWriter *w, const char *name)
{
    bool first = w->used == 0 || w->bytes[w->used - 1] == '{';
    json_writer_raw(w, first ? "\"" : ",\"");
    json_writer_raw(w, name);
    json_writer_raw(w, "\":");
}

void json_writer_member_u64(JsonWriter *w, const char *name, uint64_t value)
{
    json_writer_member(w, name);
    json_writer_u64(w, value);
}

void json_writer_member_text(JsonWriter *w, const char *name, const char *text)
{
    json_writer_member(w, name);
    json_writer_text(w, text);
}

void json_writer_member_bool(JsonWriter *w, const char *name, bool value)
{
    json_writer_member(w, name);
    json_writer_bool(w, value);
}
