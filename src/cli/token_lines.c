/* SPDX-License-Identifier: Apache-2.0 */
/* See token_lines.h. Every line answers with one line, so an empty line is a mistake, not a pause. */
#include "cli/token_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"

/* Bytes of a line or of the whole input, growing up to the limit. */
typedef struct Buffer {
    uint8_t *bytes;
    size_t count, room;
} Buffer;

static Error grow(Buffer *b, Why *why)
{
    if (b->count < b->room) return OK;
    if (b->room >= TOKEN_LINES_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "more than %u bytes", (unsigned)TOKEN_LINES_BYTES_MAX);
    size_t room = b->room ? 2 * b->room : 1 << 16;
    uint8_t *bytes = realloc(b->bytes, room);
    if (!bytes) return error_why(why, ERR_MEMORY, "%zu bytes of input", room);
    b->bytes = bytes;
    b->room = room;
    return OK;
}

/* Up to and without the next line break; *more is false when the input ended before a single byte. */
static Error read_line(Buffer *b, bool *more, Why *why)
{
    int c;
    b->count = 0;
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        TRY(grow(b, why));
        b->bytes[b->count++] = (uint8_t)c;
    }
    if (ferror(stdin))
        return error_why(why, ERR_IO, "cannot read standard input: %s", strerror(errno));
    *more = c != EOF || b->count > 0;
    return OK;
}

static Error give_line(const Buffer *b, TokenLine each, void *context, Why *why)
{
    yyjson_read_err fault;
    yyjson_doc *doc = yyjson_read_opts((char *)b->bytes, b->count, 0, NULL, &fault);
    if (!doc)
        return error_why(why, ERR_FORMAT, "no JSON: %s at byte %zu",
                         b->count ? fault.msg : "an empty line", fault.pos);
    yyjson_val *line = yyjson_doc_get_root(doc);
    Error error = yyjson_is_obj(line) ? each(context, line, why)
                                      : error_why(why, ERR_FORMAT, "JSON, but no object {...}");
    yyjson_doc_free(doc);
    return error;
}

int token_lines_each(TokenLine each, void *context)
{
    Buffer b = {0};
    Why why = {{0}};
    Error error = OK;
    bool more = true;
    unsigned long long number = 0;
    while (error == OK) {
        error = read_line(&b, &more, &why);
        if (error == OK && !more) break;
        number++;
        if (error == OK) error = give_line(&b, each, context, &why);
    }
    free(b.bytes);
    if (error == OK) return 0;
    char thing[64];
    snprintf(thing, sizeof thing, "line %llu of standard input", number);
    (void)complain(error, &why, thing, "Give one JSON object a line (see: cobord help tokenize)");
    return 1;
}

Error token_lines_all(uint8_t **text, size_t *bytes, Why *why)
{
    Buffer b = {0};
    Error error = OK;
    while (error == OK && !feof(stdin) && !ferror(stdin)) {
        error = grow(&b, why);
        if (error == OK) b.count += fread(b.bytes + b.count, 1, b.room - b.count, stdin);
    }
    *text = b.bytes;
    *bytes = b.count;
    if (error == OK && ferror(stdin))
        error = error_why(why, ERR_IO, "cannot read standard input: %s", strerror(errno));
    return error;
}
