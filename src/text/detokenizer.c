/* SPDX-License-Identifier: Apache-2.0 */
/* See detokenizer.h. Invariants between two bytes: `pending` is a beginning of a character; `held` is the
 * longest end of the text so far that begins a stop string, and no whole stop string.
 *
 * How much comes out of one push: at most TOKENIZER_PIECE_BYTES_MAX + 3 bytes, each as U+FFFD (3 bytes), and
 * what was held. */
#include "text/detokenizer.h"

#include <string.h>

#include "text/tool_calls.h"
#include "text/utf8.h"

enum { OUT_MAX = 3 * (TOKENIZER_PIECE_BYTES_MAX + 4) + DETOKENIZER_STOP_BYTES_MAX };
_Static_assert((int)OUT_MAX <= (int)DETOKENIZER_OUT_BYTES_MAX, "one push fits the promised buffer");

typedef struct Out {
    uint8_t *bytes;
    size_t count;
} Out;

void detokenizer_start(Detokenizer *d, const Tokenizer *t, bool specials)
{
    memset(d, 0, sizeof *d);
    d->tokenizer = t;
    d->specials = specials;
    d->strip_space = true;
}

Error detokenizer_add_stop(Detokenizer *d, const char *stop, size_t bytes, Why *why)
{
    if (bytes == 0) return error_why(why, ERR_RANGE, "a stop string is empty");
    if (bytes > DETOKENIZER_STOP_BYTES_MAX)
        return error_why(why, ERR_RANGE, "a stop string of %zu bytes, at most %d are allowed",
                         bytes, (int)DETOKENIZER_STOP_BYTES_MAX);
    if (d->stop_count == DETOKENIZER_STOPS_MAX)
        return error_why(why, ERR_RANGE, "more than %d stop strings", (int)DETOKENIZER_STOPS_MAX);
    d->stops[d->stop_count] = stop;
    d->stop_bytes[d->stop_count++] = (uint32_t)bytes;
    return OK;
}

/* The length of the longest stop that the held text ends with, 0 when none. */
static uint32_t complete_stop(const Detokenizer *d)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < d->stop_count; i++) {
        uint32_t bytes = d->stop_bytes[i];
        bool ends = bytes <= d->held_bytes && bytes > longest &&
                    memcmp(d->held + d->held_bytes - bytes, d->stops[i], bytes) == 0;
        if (ends) longest = bytes;
    }
    return longest;
}

/* True when held text from `from` on begins a stop. */
static bool begins_stop(const Detokenizer *d, uint32_t from)
{
    uint32_t bytes = d->held_bytes - from;
    for (uint32_t i = 0; i < d->stop_count; i++)
        if (bytes < d->stop_bytes[i] && memcmp(d->held + from, d->stops[i], bytes) == 0)
            return true;
    return false;
}

static void release(Detokenizer *d, uint32_t bytes, Out *out)
{
    memcpy(out->bytes + out->count, d->held, bytes);
    out->count += bytes;
    d->held_bytes -= bytes;
    memmove(d->held, d->held + bytes, d->held_bytes);
}

/* One byte of finished text. `held` never overflows: what it keeps is shorter than the longest stop. */
static void add_byte(Detokenizer *d, uint8_t byte, Out *out)
{
    d->held[d->held_bytes++] = byte;
    uint32_t stop = complete_stop(d);
    if (stop) {
        release(d, d->held_bytes - stop, out);
        d->held_bytes = 0;
        d->stopped = true;
        return;
    }
    uint32_t from = 0;
    while (from < d->held_bytes && !begins_stop(d, from)) from++;
    release(d, from, out);
}

static void add_text(Detokenizer *d, const uint8_t *text, size_t bytes, Out *out)
{
    for (size_t i = 0; i < bytes && !d->stopped; i++) {
        if (d->stop_count) add_byte(d, text[i], out);
        else out->bytes[out->count++] = text[i];
    }
}

static void drop_pending(Detokenizer *d, uint32_t bytes)
{
    d->pending_bytes -= bytes;
    memmove(d->pending, d->pending + bytes, d->pending_bytes);
}

/* Passes on what is decided in `pending`: whole characters, and U+FFFD for what can be none. */
static void settle(Detokenizer *d, bool end, Out *out)
{
    static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};
    while (d->pending_bytes) {
        int found = utf8_look(d->pending, d->pending_bytes);
        if (found == 0 && !end) return;
        uint32_t bytes = found > 0   ? (uint32_t)found
                         : found < 0 ? (uint32_t)-found
                                     : d->pending_bytes;
        if (found > 0) add_text(d, d->pending, bytes, out);
        else add_text(d, replacement, sizeof replacement, out);
        drop_pending(d, bytes);
    }
}

/* The space that tokenizer_encode put in front, taken away again. */
static size_t leading_space(Detokenizer *d, uint32_t id, const uint8_t *piece, size_t bytes)
{
    const Vocab *v = tokenizer_vocab(d->tokenizer);
    if (v->model != VOCAB_SENTENCEPIECE || !v->add_space_prefix) return 0;
    bool strip = d->strip_space && vocab_type(v, id) == VOCAB_NORMAL && bytes && piece[0] == ' ';
    d->strip_space = tokenizer_is_control(d->tokenizer, id);
    return strip ? 1 : 0;
}

static bool is_tag(const Detokenizer *d, uint32_t id)
{
    static const char *const tags[] = {TOOL_CALLS_OPEN, TOOL_CALLS_CLOSE};
    const Vocab *v = tokenizer_vocab(d->tokenizer);
    uint32_t bytes;
    if (id >= v->tokens) return false;
    const uint8_t *text = vocab_token(v, id, &bytes);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (strlen(tags[i]) == bytes && memcmp(tags[i], text, bytes) == 0) return true;
    return false;
}

Error detokenizer_push(Detokenizer *d, uint32_t id, uint8_t *out, size_t out_max, size_t *out_bytes,
                       bool *stopped, Why *why)
{
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    size_t bytes;
    *out_bytes = 0;
    *stopped = d->stopped;
    if (d->stopped) return OK;
    bool specials = d->specials || (d->tags && is_tag(d, id));
    TRY(tokenizer_piece(d->tokenizer, id, specials, piece, sizeof piece, &bytes, why));
    if (out_max < 3 * (bytes + 4) + d->held_bytes)
        return error_why(why, ERR_CAPACITY, "%zu bytes for the text of token %u", out_max, id);
    Out text = {out, 0};
    for (size_t i = leading_space(d, id, piece, bytes); i < bytes; i++) {
        d->pending[d->pending_bytes++] = piece[i];
        settle(d, false, &text);
    }
    *out_bytes = text.count;
    *stopped = d->stopped;
    return OK;
}

Error detokenizer_end(Detokenizer *d, uint8_t *out, size_t out_max, size_t *out_bytes, Why *why)
{
    *out_bytes = 0;
    if (d->stopped) return OK;
    if (out_max < 3 * sizeof d->pending + d->held_bytes)
        return error_why(why, ERR_CAPACITY, "%zu bytes for the end of a text", out_max);
    Out text = {out, 0};
    settle(d, true, &text);
    if (!d->stopped) release(d, d->held_bytes, &text);
    *out_bytes = text.count;
    return OK;
}
