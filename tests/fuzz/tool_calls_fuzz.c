/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools in any text: the same in one piece and in small ones; every whole call's arguments are a JSON
 * object by yyjson too; no byte of text is lost when there was no call, but, where a grammar keeps the form, those
 * of one that the end cuts. Input: one byte of how it is cut, then the text. */
#include <yyjson.h>

#include "../unit/text/tool_calls_log.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())

typedef struct Seen {
    char *arguments;
    size_t bytes, text, calls;
    ToolCallsLog log;
} Seen;

static void fuzz_take(void *to, ToolCallsKind kind, const uint8_t *bytes, size_t count)
{
    Seen *seen = to;
    tool_calls_log_take(&seen->log, kind, bytes, count);
    if (kind == TOOL_CALLS_TEXT) seen->text += count;
    if (kind == TOOL_CALLS_NAME) {
        CHECK(tool_calls_is_name(bytes, count));
        seen->bytes = 0; /* of a call that broke */
    }
    if (kind == TOOL_CALLS_ARGUMENTS) {
        memcpy(seen->arguments + seen->bytes, bytes, count);
        seen->bytes += count;
    }
    if (kind != TOOL_CALLS_END) return;
    yyjson_doc *doc = yyjson_read(seen->arguments, seen->bytes, YYJSON_READ_ALLOW_INVALID_UNICODE);
    CHECK(yyjson_is_obj(yyjson_doc_get_root(doc)));
    yyjson_doc_free(doc);
    seen->bytes = 0;
    seen->calls++;
}

static bool begins_call(const uint8_t *text, size_t at, size_t bytes)
{
    while (at < bytes && strchr(" \n\r\t", text[at]) && text[at]) at++;
    return at < bytes && text[at] && strchr("<`{", text[at]);
}

/* In one piece. Owner  the caller frees the log's text. */
static ToolCallsLog fuzz_whole(const uint8_t *text, size_t bytes, uint8_t *held, bool eager,
                               bool known)
{
    ToolCalls p;
    Seen seen = {.arguments = malloc(bytes + 3), .log = {.last = -1}};
    CHECK(seen.arguments);
    tool_calls_log_add(&seen.log, "", 0);
    tool_calls_start(&p, held, TOOL_CALLS_ROOM_MIN, eager, (ToolCallsTake){fuzz_take, &seen});
    if (known) tool_calls_know(&p, tool_calls_log_names, 2);
    tool_calls_push(&p, text, bytes);
    tool_calls_end(&p);
    CHECK(p.whole == seen.calls && p.begun >= p.whole);
    CHECK(eager || p.begun == p.whole);
    CHECK(seen.calls || p.begun || seen.text == bytes ||
          (eager && begins_call(text, seen.text, bytes)));
    free(seen.arguments);
    return seen.log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t held[TOOL_CALLS_ROOM_MIN];
    if (!size) return 0;
    for (int way = 0; way < 4; way++) {
        bool eager = way & 1, known = way & 2;
        ToolCallsLog whole = fuzz_whole(data + 1, size - 1, held, eager, known),
                     cut = tool_calls_log(data + 1, size - 1, TOOL_CALLS_ROOM_MIN, eager, known, 0,
                                          1 + data[0] % 16);
        CHECK(whole.bytes == cut.bytes && memcmp(whole.text, cut.text, cut.bytes) == 0);
        free(whole.text);
        free(cut.text);
    }
    return 0;
}
