/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node_error.h"

#include <string.h>
#include <yyjson.h>

static const struct {
    Error error;
    const char *name;
} node_errors[] = {
#define ERROR_ENTRY(name, number, text) {name, #name},
    ERROR_LIST(ERROR_ENTRY)
#undef ERROR_ENTRY
};
enum { NODE_ERRORS = sizeof node_errors / sizeof node_errors[0], NODE_ERROR_CODE_MAX = 32 };

unsigned node_error_status(Error error)
{
    switch (error) {
    case ERR_USAGE:
    case ERR_FORMAT:
    case ERR_TRUNCATED:
    case ERR_TYPE:
    case ERR_SHAPE:
    case ERR_CHECKSUM:
    case ERR_RANGE:
    case ERR_DUPLICATE: return 400;
    case ERR_KEY: return 401;
    case ERR_NOT_FOUND:
    case ERR_MISSING_TENSOR: return 404;
    case ERR_POSITION:
    case ERR_SUPERSEDED:
    case ERR_UNSUPPORTED: return 409;
    case ERR_SESSION: return 410;
    case ERR_TOO_LARGE: return 413;
    case ERR_AGAIN:
    case ERR_CAPACITY:
    case ERR_CANCELLED:
    case ERR_MEMORY:
    case ERR_UNREACHABLE:
    case ERR_NO_SPACE: return 503;
    default: return 500;
    }
}

bool node_error_is_retryable(Error error)
{
    switch (error) {
    case ERR_CHECKSUM: /* damaged on the way */
    case ERR_TRUNCATED:
    case ERR_SESSION: /* after a replay */
    case ERR_POSITION:
    case ERR_IO: /* of one machine's disk */ return true;
    default: return node_error_status(error) == 503;
    }
}

/* --- Writing --- */

typedef struct Line {
    char *bytes;
    size_t length;
} Line;

static void line_char(Line *line, char c)
{
    if (line->length < NODE_ERROR_BYTES_MAX) line->bytes[line->length++] = c;
}

static void line_text(Line *line, const char *text)
{
    while (*text) line_char(line, *text++);
}

static void line_quoted(Line *line, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    line_char(line, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f) {
            line_text(line, "\\u00");
            line_char(line, hex[c >> 4]);
            line_char(line, hex[c & 15]);
            continue;
        }
        if (c == '"' || c == '\\') line_char(line, '\\');
        line_char(line, (char)c);
    }
    line_char(line, '"');
}

/* The name in lower case without ERR_. */
static void node_error_code(Error error, char out[NODE_ERROR_CODE_MAX])
{
    const char *name = "ERR_INTERNAL";
    for (size_t i = 0; i < NODE_ERRORS; i++)
        if (node_errors[i].error == error) name = node_errors[i].name;
    size_t n = 0;
    for (name += error == OK ? 0 : 4; *name && n + 1 < NODE_ERROR_CODE_MAX; name++)
        out[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
    out[n] = '\0';
}

_Static_assert(6 * WHY_MAX + 2 * NODE_ERROR_CODE_MAX <= NODE_ERROR_BYTES_MAX,
               "the longest message fits");

size_t node_error_write(Error error, const Why *why, char out[NODE_ERROR_BYTES_MAX])
{
    ASSERT(error != OK);
    char code[NODE_ERROR_CODE_MAX];
    Line line = {out, 0};
    node_error_code(error, code);
    line_text(&line, "{\"error\":{\"message\":");
    line_quoted(&line, why && why->text[0] ? why->text : error_text(error));
    line_text(&line, ",\"type\":\"node_error\",\"param\":null,\"code\":");
    line_quoted(&line, code);
    line_text(&line, ",\"retryable\":");
    line_text(&line, node_error_is_retryable(error) ? "true}}" : "false}}");
    return line.length;
}

/* --- Reading --- */

/* A body that no node wrote: of something between the nodes, or of another program. */
static Error node_error_foreign(unsigned status, const uint8_t *body, size_t bytes, Why *why)
{
    bool between = status >= 500 || status == 408 || status == 429;
    return error_why(why, between ? ERR_UNREACHABLE : ERR_FORMAT,
                     "status %u with a body that no node wrote: \"%.*s\"", status,
                     bytes < 80 ? (int)bytes : 80, bytes ? (const char *)body : "");
}

static Error node_error_of_code(const char *code)
{
    for (size_t i = 0; code && i < NODE_ERRORS; i++) {
        char name[NODE_ERROR_CODE_MAX];
        node_error_code(node_errors[i].error, name);
        if (strcmp(name, code) == 0) return node_errors[i].error;
    }
    return OK;
}

static Error node_error_of_json(yyjson_val *root, unsigned status, Why *why)
{
    yyjson_val *object = yyjson_obj_get(root, "error");
    const char *type = yyjson_get_str(yyjson_obj_get(object, "type"));
    const char *message = yyjson_get_str(yyjson_obj_get(object, "message"));
    Error error = node_error_of_code(yyjson_get_str(yyjson_obj_get(object, "code")));
    if (error == OK || !message || !message[0] || !type || strcmp(type, "node_error") != 0)
        return OK;
    bool of_method = error == ERR_USAGE && status == 405;
    if (node_error_status(error) != status && !of_method) return OK;
    return error_why(why, error, "%s", message);
}

Error node_error_read(unsigned status, const uint8_t *body, size_t bytes, Why *why)
{
    /* yyjson_read_max_memory_usage(): at most 13 bytes for each of the body's */
    char pool[13 * NODE_ERROR_BYTES_MAX + 1024];
    yyjson_alc allocator;
    Error error = OK;
    if (bytes && bytes <= NODE_ERROR_BYTES_MAX &&
        yyjson_alc_pool_init(&allocator, pool, sizeof pool)) {
        yyjson_doc *document =
            yyjson_read_opts((char *)(uintptr_t)body, bytes, YYJSON_READ_NOFLAG, &allocator, NULL);
        if (document) error = node_error_of_json(yyjson_doc_get_root(document), status, why);
    }
    return error == OK ? node_error_foreign(status, body, bytes, why) : error;
}
