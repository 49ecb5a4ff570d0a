/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON string: quotes, escapes, and U+FFFD for what is no UTF-8. */
#ifndef COBORD_CLI_JSON_TEXT_H
#define COBORD_CLI_JSON_TEXT_H

#include <stddef.h>
#include <stdio.h>

void json_text_put(FILE *out, const char *text);
/* On standard output. */
void json_text_print(const char *text);
void json_text_print_bytes(const char *text, size_t bytes);

#endif
