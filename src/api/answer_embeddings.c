/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's embeddings: a whole answer of one vector a text, as numbers or as base64 of little-endian float32.
 *
 *   {"object":"list","data":[{"object":"embedding","index":0,"embedding":[...]}, ...],"model":...,"usage":{...}}
 *
 * The model was not trained for it, so the object says how they are made: "pooling":"mean". */
#include <string.h>

#include "api/answer_state.h"
#include "base/error.h"

bool answer_embed(const double *sums, uint32_t count, uint8_t *out)
{
    double squares = 0;
    for (uint32_t i = 0; i < count; i++) squares += sums[i] * sums[i];
    double length = __builtin_sqrt(squares);
    if (length - length != 0) return false;
    for (uint32_t i = 0; i < count; i++) {
        float value = length > 0 ? (float)(sums[i] / length) : 0;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        for (uint32_t b = 0; b < 4; b++) out[4 * i + b] = (uint8_t)(bits >> 8 * b);
    }
    return true;
}

static void write_base64(JsonWriter *w, const uint8_t *bytes, size_t count)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json_writer_raw(w, "\"");
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? bytes[i + 2] : 0);
        char out[4] = {letters[group >> 18], letters[group >> 12 & 63], letters[group >> 6 & 63],
                       letters[group & 63]};
        if (left < 3) out[3] = '=';
        if (left < 2) out[2] = '=';
        json_writer_bytes(w, out, sizeof out);
    }
    json_writer_raw(w, "\"");
}

static void write_numbers(JsonWriter *w, const uint8_t *bytes, size_t count)
{
    json_writer_raw(w, "[");
    for (size_t i = 0; i + 4 <= count; i += 4) {
        float value;
        uint32_t bits = 0;
        for (uint32_t b = 0; b < 4; b++) bits |= (uint32_t)bytes[i + b] << 8 * b;
        memcpy(&value, &bits, sizeof value);
        if (i) json_writer_raw(w, ",");
        json_writer_float(w, (double)value);
    }
    json_writer_raw(w, "]");
}

static void begin(AnswerHead *head, JsonWriter *w)
{
    (void)head;
    json_writer_raw(w, "{\"object\":\"list\",\"data\":[");
}

static void choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish)
{
    (void)finish;
    json_writer_raw(w, index ? "," : "");
    json_writer_raw(w, "{\"object\":\"embedding\",\"index\":");
    json_writer_u64(w, index);
    json_writer_raw(w, ",\"embedding\":");
    (head->base64 ? write_base64 : write_numbers)(w, piece->text, piece->bytes);
    json_writer_raw(w, "}");
}

static void end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    json_writer_raw(w, "]");
    json_writer_member_text(w, "model", head->model);
    json_writer_member_text(w, "pooling", "mean");
    if (head->degraded) json_writer_member_bool(w, "degraded", true);
    json_writer_raw(w, ",\"usage\":{");
    json_writer_member_u64(w, "prompt_tokens", usage->prompt);
    json_writer_member_u64(w, "total_tokens", usage->prompt);
    answer_write_hops(w, usage);
    json_writer_raw(w, "}}");
}

/* There are no streams of them. */
const AnswerTable answer_embeddings = {
    .prefix = "embd-", .type = "application/json", .begin = begin, .choice = choice, .end = end};
