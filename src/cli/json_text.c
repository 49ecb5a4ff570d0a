/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json_text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

static void json_text_put_bytes(FILE *out, const char *text, size_t bytes)
{
    fputc('"', out);
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        int length = utf8_look((const uint8_t *)text + i, bytes - i);
        if (length <= 0) {
            fputs("\\ufffd", out);
            i++;
            continue;
        }
        if (c < 0x20 || c == 0x7f) fprintf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
        else fwrite(text + i, 1, (size_t)length, out);
        i += (size_t)length;
    }
    fputc('"', out);
}

void json_text_print_bytes(const char *text, size_t bytes)
{
    json_text_put_bytes(stdout, text, bytes);
}
void json_text_put(FILE *out, const char *text) { json_text_put_bytes(out, text, strlen(text)); }
void json_text_print(const char *text) { json_text_print_bytes(text, strlen(text)); }
