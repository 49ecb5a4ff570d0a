/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/emit.h"

#include <string.h>
#include <yyjson.h>

static void emit_bytes(Emit *e, const char *bytes, size_t count)
{
    if (e->cut || count > e->room - e->used) {
        e->cut = true;
        return;
    }
    memcpy(e->out + e->used, bytes, count);
    e->used += count;
}

void emit_text(Emit *e, const char *text) { emit_bytes(e, text, strlen(text)); }

void emit_u64(Emit *e, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    emit_bytes(e, digits + at, sizeof digits - at);
}

void emit_hex64(Emit *e, uint64_t value)
{
    char digits[16];
    for (int i = 0; i < 16; i++) digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
    emit_bytes(e, digits, sizeof digits);
}

void emit_f32(Emit *e, float value)
{
    char pool[4096];
    yyjson_alc allocator;
    yyjson_mut_val number;
    size_t length = 0;
    if (!yyjson_alc_pool_init(&allocator, pool, sizeof pool)) return;
    memset(&number, 0, sizeof number);
    yyjson_mut_set_real(&number, (double)value);
    char *text = yyjson_mut_val_write_opts(&number, YYJSON_WRITE_NOFLAG, &allocator, &length, NULL);
    if (text) emit_bytes(e, text, length);
    else e->cut = true;
}

void emit_string(Emit *e, const char *text)
{
    emit_bytes(e, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char escaped[6] = {
            '\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
        char quoted[2] = {'\\', (char)c};
        if (c < 0x20 || c == 0x7f) emit_bytes(e, escaped, sizeof escaped);
        else if (c == '"' || c == '\\') emit_bytes(e, quoted, sizeof quoted);
        else emit_bytes(e, text, 1);
    }
    emit_bytes(e, "\"", 1);
}
