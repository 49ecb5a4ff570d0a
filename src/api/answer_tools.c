/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools as chat completions have them.
 *
 *   whole    "tool_calls":[{"id":"call_...","type":"function","function":{"name":"f","arguments":"{...}"}}, ...]
 *   stream   "tool_calls":[{"index":0,"id":...,"type":...,"function":{"name":"f","arguments":""}}, ...]
 *            "tool_calls":[{"index":0,"function":{"arguments":"{..."}}, ...] */
#include <string.h>

#include "api/answer_state.h"

enum { CALL_DIGITS = 16 };

static void write_id(const AnswerHead *head, JsonWriter *w, uint32_t choice, uint32_t call)
{
    size_t bytes =
        strlen(head->id); /* half of its digits suffice, and clients take 40 characters */
    const char *number = head->id + (bytes < CALL_DIGITS ? 0 : bytes - CALL_DIGITS);
    json_writer_raw(w, "\"call_");
    json_writer_raw(w, number);
    json_writer_raw(w, "_");
    json_writer_u64(w, choice);
    json_writer_raw(w, "_");
    json_writer_u64(w, call);
    json_writer_raw(w, "\"");
}

static void write_function(JsonWriter *w, const AnswerTool *t)
{
    json_writer_raw(w, "\"function\":{");
    if (t->name_bytes) {
        json_writer_raw(w, "\"name\":");
        json_writer_string(w, t->name, t->name_bytes);
        json_writer_raw(w, ",");
    }
    json_writer_raw(w, "\"arguments\":");
    json_writer_string(w, t->arguments, t->bytes);
    json_writer_raw(w, "}}");
}

void answer_tools_write(const AnswerHead *head, JsonWriter *w, uint32_t choice,
                        const AnswerPiece *piece, bool stream)
{
    json_writer_raw(w, "\"tool_calls\":[");
    for (uint32_t i = 0; i < piece->tool_count; i++) {
        const AnswerTool *t = &piece->tools[i];
        json_writer_raw(w, i ? ",{" : "{");
        if (stream) {
            json_writer_raw(w, "\"index\":");
            json_writer_u64(w, t->index);
            json_writer_raw(w, ",");
        }
        if (t->name_bytes) {
            json_writer_raw(w, "\"id\":");
            write_id(head, w, choice, t->index);
            json_writer_raw(w, ",\"type\":\"function\",");
        }
        write_function(w, t);
    }
    json_writer_raw(w, "]");
}
