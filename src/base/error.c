/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the error list, and a small bounded formatter: the pure rooms have no stdio. */
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/mask.h"

const char *error_text(Error error)
{
    switch (error) {
#define ERROR_ENTRY(name, number, text) \
    case name: return text;
        ERROR_LIST(ERROR_ENTRY)
#undef ERROR_ENTRY
    }
    return "unknown error";
}

typedef struct Out {
    char *bytes;
    size_t length, room;
} Out;

static void out_char(Out *out, char c)
{
    if (out->length < out->room) out->bytes[out->length++] = c;
}

static void out_escaped(Out *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    if (c >= 0x20 && c < 0x7f) {
        out_char(out, (char)c);
        return;
    }
    out_char(out, '\\');
    out_char(out, 'x');
    out_char(out, hex[c >> 4]);
    out_char(out, hex[c & 15]);
}

static void out_string(Out *out, const char *text, size_t bytes_max)
{
    size_t bytes = 0;
    if (!text) text = "(none)";
    while (bytes < bytes_max && text[bytes]) bytes++;
    for (size_t i = 0; i < bytes;) {
        size_t hidden = mask_bytes(text, bytes, i);
        for (const char *mask = MASK_SHOWN; hidden && *mask; mask++) out_char(out, *mask);
        if (!hidden) out_escaped(out, (unsigned char)text[i]);
        i += hidden ? hidden : 1;
    }
}

static void out_number(Out *out, uint64_t value, unsigned base, bool negative)
{
    char digits[24];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    if (negative) out_char(out, '-');
    while (n) out_char(out, digits[--n]);
}

enum NumberSize { SIZE_INT, SIZE_LONG_LONG, SIZE_LONG, SIZE_SIZE };

static uint64_t next_unsigned(va_list *args, enum NumberSize size)
{
    switch (size) {
    case SIZE_LONG_LONG: return va_arg(*args, unsigned long long);
    case SIZE_LONG: return va_arg(*args, unsigned long);
    case SIZE_SIZE: return va_arg(*args, size_t);
    default: return va_arg(*args, unsigned);
    }
}

static int64_t next_signed(va_list *args, enum NumberSize size)
{
    switch (size) {
    case SIZE_LONG_LONG: return va_arg(*args, long long);
    case SIZE_LONG: return va_arg(*args, long);
    case SIZE_SIZE: return (int64_t)va_arg(*args, ptrdiff_t);
    default: return va_arg(*args, int);
    }
}

static const char *number_size(const char *f, enum NumberSize *size)
{
    *size = SIZE_INT;
    if (f[0] == 'l' && f[1] == 'l') {
        *size = SIZE_LONG_LONG;
        return f + 2;
    }
    if (f[0] == 'l') {
        *size = SIZE_LONG;
        return f + 1;
    }
    if (f[0] == 'z') {
        *size = SIZE_SIZE;
        return f + 1;
    }
    return f;
}

static void out_signed(Out *out, int64_t value)
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    out_number(out, magnitude, 10, value < 0);
}

/* Handles what follows one '%'; returns the first character after the conversion. */
static const char *out_conversion(Out *out, const char *f, va_list *args)
{
    enum NumberSize size;
    if (f[0] == '.' && f[1] == '*' && f[2] == 's') {
        int bytes = va_arg(*args, int);
        out_string(out, va_arg(*args, const char *), bytes > 0 ? (size_t)bytes : 0);
        return f + 3;
    }
    f = number_size(f, &size);
    switch (*f) {
    case 's': out_string(out, va_arg(*args, const char *), SIZE_MAX); break;
    case 'c': out_escaped(out, (unsigned char)va_arg(*args, int)); break;
    case 'd': out_signed(out, next_signed(args, size)); break;
    case 'u': out_number(out, next_unsigned(args, size), 10, false); break;
    case 'x': out_number(out, next_unsigned(args, size), 16, false); break;
    case '%': out_char(out, '%'); break;
    default: error_abort(__FILE__, __LINE__, "unknown conversion in a Why");
    }
    return f + 1;
}

Error error_why(Why *why, Error error, const char *format, ...)
{
    if (!why) return error;
    Out out = {why->text, 0, WHY_MAX - 1};
    va_list args;
    va_start(args, format);
    for (const char *f = format; *f;)
        if (*f == '%') f = out_conversion(&out, f + 1, &args);
        else out_char(&out, *f++);
    va_end(args);
    why->text[out.length] = '\0';
    return error;
}

_Noreturn void error_abort(const char *file, int line, const char *text)
{
    /* volatile, so that a debugger or a core file shows them at the trap */
    volatile const char *where = file, *what = text;
    volatile int at = line;
    (void)where, (void)what, (void)at;
    __builtin_trap();
}
