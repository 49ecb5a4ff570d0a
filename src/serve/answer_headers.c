/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/answer_headers.h"

#include <stdlib.h>
#include <string.h>

/* One that could end the head early, or begin another line, must never get there. */
static bool is_line(const char *line)
{
    const char *colon = strchr(line, ':');
    if (!colon || colon == line || colon[1] != ' ') return false;
    for (const char *at = line; *at; at++)
        if (*at < ' ' || *at == 0x7f || (at < colon && *at == ' ')) return false;
    return true;
}

bool answer_headers_add(AnswerHeaders *h, const char *line)
{
    size_t count = strlen(line);
    if (!is_line(line) || count + 2 > ANSWER_HEADERS_BYTES_MAX - h->bytes) return false;
    char *grown = realloc(h->text, h->bytes + count + 2);
    if (!grown) return false;
    h->text = grown;
    memcpy(h->text + h->bytes, line, count);
    h->bytes += count + 1;
    h->text[h->bytes - 1] = '\n';
    h->text[h->bytes] = '\0';
    return true;
}

void answer_headers_free(AnswerHeaders *h)
{
    free(h->text);
    *h = (AnswerHeaders){0};
}
