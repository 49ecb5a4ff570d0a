/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities as OpenAI's two paths show them.
 *
 *   chat         {"content":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[...]}, ...],"refusal":null}
 *   completion   {"text_offset":[..],"tokens":[..],"token_logprobs":[..],"top_logprobs":[{"Hi":-0.5, ...}, ...]}
 *
 * A token that is a part of a character has its bytes; as text it is U+FFFD in a chat, and "bytes:\xe2\x9c" in a
 * completion, where texts are keys and must differ. The token itself is always in a completion's top_logprobs. */
#include <string.h>

#include "api/answer_state.h"
#include "base/error.h"
#include "text/utf8.h"

enum { SCORE_BYTES = 192, SCORE_GROWTH = 12 };

typedef struct Piece {
    uint8_t bytes[TOKENIZER_PIECE_BYTES_MAX];
    size_t count;
} Piece;

static void read_piece(const AnswerHead *head, uint32_t id, Piece *out)
{
    out->count = 0;
    Why why;
    /* An id of the model's beyond its vocabulary of texts has none. */
    if (tokenizer_piece(head->tokenizer, id, true, out->bytes, sizeof out->bytes, &out->count,
                        &why) != OK)
        out->count = 0;
}

size_t answer_scores_bytes(const AnswerHead *head, const AnswerScore *scores, uint32_t count)
{
    size_t bytes = ANSWER_EVENT_BYTES;
    Piece piece;
    for (uint32_t i = 0; i < count; i++) {
        read_piece(head, scores[i].token, &piece);
        /* Twice: the token itself may stand among the likeliest, too. */
        bytes += 2 * (SCORE_BYTES + SCORE_GROWTH * piece.count);
        for (uint32_t k = 0; k < scores[i].top_count; k++) {
            read_piece(head, scores[i].top[k].id, &piece);
            bytes += SCORE_BYTES + SCORE_GROWTH * piece.count;
        }
    }
    return bytes;
}

/* JSON has no infinity: what can never come has OpenAI's figure for it. */
static void write_logprob(JsonWriter *w, float logprob)
{
    bool finite = logprob - logprob == 0;
    json_writer_float(w, finite ? (double)logprob : -9999.0);
}

/* ---- Chat ---- */

static void write_entry(const AnswerHead *head, JsonWriter *w, uint32_t id, float logprob)
{
    Piece piece;
    read_piece(head, id, &piece);
    json_writer_raw(w, "{\"token\":");
    json_writer_string(w, piece.bytes, piece.count);
    json_writer_raw(w, ",\"logprob\":");
    write_logprob(w, logprob);
    json_writer_raw(w, ",\"bytes\":[");
    for (size_t i = 0; i < piece.count; i++) {
        if (i) json_writer_raw(w, ",");
        json_writer_u64(w, piece.bytes[i]);
    }
    json_writer_raw(w, "]");
}

static void write_content(const AnswerHead *head, JsonWriter *w, const AnswerScore *scores,
                          uint32_t count)
{
    json_writer_raw(w, "{\"content\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        write_entry(head, w, scores[i].token, scores[i].logprob);
        json_writer_raw(w, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < scores[i].top_count; k++) {
            if (k) json_writer_raw(w, ",");
            write_entry(head, w, scores[i].top[k].id, scores[i].top[k].logit);
            json_writer_raw(w, "}");
        }
        json_writer_raw(w, "]}");
    }
    json_writer_raw(w, "],\"refusal\":null}");
}

/* ---- Completions ---- */

static void write_name(JsonWriter *w, const Piece *piece)
{
    static const char hex[] = "0123456789abcdef";
    if (utf8_is_text(piece->bytes, piece->count)) {
        json_writer_string(w, piece->bytes, piece->count);
        return;
    }
    json_writer_raw(w, "\"bytes:");
    for (size_t i = 0; i < piece->count; i++) {
        uint8_t byte = piece->bytes[i];
        json_writer_bytes(w, (char[]){'\\', '\\', 'x', hex[byte >> 4], hex[byte & 15]}, 5);
    }
    json_writer_raw(w, "\"");
}

static void write_token(const AnswerHead *head, JsonWriter *w, uint32_t id)
{
    Piece piece;
    read_piece(head, id, &piece);
    write_name(w, &piece);
}

/* Whether one of the likelier ones has the same text: two ids may. */
static bool is_named(const AnswerHead *head, const AnswerScore *score, uint32_t before,
                     const Piece *piece)
{
    Piece other;
    for (uint32_t k = 0; k < before; k++) {
        read_piece(head, score->top[k].id, &other);
        if (other.count == piece->count && memcmp(other.bytes, piece->bytes, other.count) == 0)
            return true;
    }
    return false;
}

static void write_top(const AnswerHead *head, JsonWriter *w, const AnswerScore *score)
{
    Piece piece;
    bool first = true;
    json_writer_raw(w, "{");
    for (uint32_t k = 0; k <= score->top_count; k++) {
        bool own = k == score->top_count;
        read_piece(head, own ? score->token : score->top[k].id, &piece);
        if (is_named(head, score, k, &piece)) continue;
        if (!first) json_writer_raw(w, ",");
        first = false;
        write_name(w, &piece);
        json_writer_raw(w, ":");
        write_logprob(w, own ? score->logprob : score->top[k].logit);
    }
    json_writer_raw(w, "}");
}

static void write_lists(const AnswerHead *head, JsonWriter *w, const AnswerScore *scores,
                        uint32_t count)
{
    json_writer_raw(w, "{\"text_offset\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        json_writer_u64(w, scores[i].offset);
    }
    json_writer_raw(w, "],\"tokens\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        write_token(head, w, scores[i].token);
    }
    json_writer_raw(w, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        if (scores[i].unscored) json_writer_raw(w, "null");
        else write_logprob(w, scores[i].logprob);
    }
    json_writer_raw(w, "],\"top_logprobs\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        if (scores[i].unscored) json_writer_raw(w, "null");
        else write_top(head, w, &scores[i]);
    }
    json_writer_raw(w, "]}");
}

/* ---- Both ---- */

void answer_scores_write(const AnswerHead *head, JsonWriter *w, const AnswerPiece *piece)
{
    json_writer_raw(w, ",\"logprobs\":");
    if (!piece || !piece->scores) json_writer_raw(w, "null");
    else if (head->dialect == ANSWER_CHAT)
        write_content(head, w, piece->scores, piece->score_count);
    else write_lists(head, w, piece->scores, piece->score_count);
}
