/* SPDX-License-Identifier: Apache-2.0 */
#include "api/trace.h"

#include <stddef.h>
#include <string.h>

enum { VERSION_AT = 0, ID_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, END_AT = 55 };

static void write_hex(uint64_t value, char *out)
{
    for (int i = 15; i >= 0; i--, value >>= 4) out[i] = "0123456789abcdef"[value & 15];
}

/* Never all zeros, which would be none. */
static void make_span(uint64_t random, char out[TRACE_SPAN_BYTES])
{
    write_hex(random ? random : 1, out);
    out[16] = '\0';
}

Trace trace_begin(uint64_t random_1, uint64_t random_2, uint64_t random_3)
{
    Trace t = {.flags = 0};
    write_hex(random_1 ? random_1 : 1, t.trace_id);
    write_hex(random_2, t.trace_id + 16);
    make_span(random_3, t.span_id);
    return t;
}

Trace trace_below(const Trace *parent, uint64_t random)
{
    Trace t = *parent;
    memcpy(t.parent_id, parent->span_id, sizeof t.parent_id);
    make_span(random, t.span_id);
    return t;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `count` digits; with `some`, not all of them zeros. */
static bool is_hex(const char *text, size_t count, bool some)
{
    for (size_t i = 0; i < count; i++) {
        if (digit(text[i]) < 0) return false;
        some = some && text[i] == '0';
    }
    return !some;
}

bool trace_continue(const char *header, uint64_t random, Trace *out)
{
    size_t bytes = header ? strlen(header) : 0;
    if (bytes < END_AT || !is_hex(header, 2, false) || memcmp(header, "ff", 2) == 0) return false;
    bool later = memcmp(header, "00", 2) != 0; /* what a later version puts behind is not ours */
    if (later ? bytes > END_AT && header[END_AT] != '-' : bytes != END_AT) return false;
    if (header[ID_AT - 1] != '-' || header[SPAN_AT - 1] != '-' || header[FLAGS_AT - 1] != '-' ||
        !is_hex(header + ID_AT, 32, true) || !is_hex(header + SPAN_AT, 16, true) ||
        !is_hex(header + FLAGS_AT, 2, false))
        return false;
    *out = (Trace){.flags = (uint8_t)(digit(header[FLAGS_AT + 1]) & 1)};
    memcpy(out->trace_id, header + ID_AT, 32);
    memcpy(out->parent_id, header + SPAN_AT, 16);
    make_span(random, out->span_id);
    return true;
}

void trace_write(const Trace *t, char out[TRACE_PARENT_BYTES])
{
    memcpy(out + VERSION_AT, "00-", 3);
    memcpy(out + ID_AT, t->trace_id, 32);
    out[SPAN_AT - 1] = out[FLAGS_AT - 1] = '-';
    memcpy(out + SPAN_AT, t->span_id, 16);
    out[FLAGS_AT] = '0';
    out[FLAGS_AT + 1] = t->flags & 1 ? '1' : '0';
    out[END_AT] = '\0';
}

bool trace_is_request_id(const char *text)
{
    size_t n = 0;
    for (; text && text[n]; n++) {
        char c = text[n];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '.' || c == '_' || c == '-';
        if (!plain || n + 1 == TRACE_REQUEST_BYTES) return false;
    }
    return n > 0;
}

void trace_make_request_id(uint64_t random, char out[TRACE_REQUEST_BYTES])
{
    memcpy(out, "req_", 4);
    write_hex(random, out + 4);
    out[20] = '\0';
}
