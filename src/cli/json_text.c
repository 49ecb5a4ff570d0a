/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json_text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

void json_text_print_bytes(const char *text, size_t bytes)
{
    putchar('"');
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        int length = utf8_look((const uint8_t *)text + i, bytes - i);
        if (length <= 0) {
            fputs("\\ufffd", stdout);
            i++;
            continue;
        }
        if (c < 0x20 || c == 0x7f) printf("\\u%04x", c);
        else if (c == '"' || c == '\\') printf("\\%c", c);
        else fwrite(text + i, 1, (size_t)length, stdout);
        i += (size_t)length;
    }
    putchar('"');
}

void json_text_print(const char *text) { json_text_print_bytes(text, strlen(text)); }
