/* SPDX-License-Identifier: Apache-2.0 */
/* See turns.h. A Writer gathers the plain text since the last marker; a marker tokenizes it and adds its own id.
 *
 *   <|im_start|>   user \n What is 2+2?   <|im_end|>   \n   <|im_start|>   assistant \n
 *        id        `------ plain ------'      id      plain      id        `- plain -'   */
#include "text/turns.h"

#include <string.h>

enum { DEFAULT_SYSTEM_MAX = 1024, FRAME_BYTES = 64 };

typedef struct Markers {
    const char *open, *close; /* of a turn */
    const char *head_end;     /* Llama 3: behind the role */
} Markers;

static const Markers MARKERS[] = {
    [TURNS_NONE] = {0},
    [TURNS_CHATML] = {"<|im_start|>", "<|im_end|>", NULL},
    [TURNS_GEMMA] = {"<start_of_turn>", "<end_of_turn>", NULL},
    [TURNS_LLAMA3] = {"<|start_header_id|>", "<|eot_id|>", "<|end_header_id|>"}};

typedef struct Writer {
    const Tokenizer *tokenizer;
    TurnFormat format;
    uint8_t *plain; /* text since the last marker */
    size_t plain_bytes;
    Arena *scratch;
    uint32_t *ids;
    size_t ids_max, ids_count;
    Why *why;
} Writer;

typedef struct Text {
    const uint8_t *bytes;
    size_t count;
} Text;

static bool has_marker(const Tokenizer *t, const char *name)
{
    uint32_t id = name ? tokenizer_find(t, name) : VOCAB_NO_TOKEN;
    return !name || (id != VOCAB_NO_TOKEN && tokenizer_is_control(t, id));
}

TurnFormat turns_format(const Tokenizer *t)
{
    for (TurnFormat f = TURNS_CHATML; f <= TURNS_LLAMA3; f++) {
        const Markers *m = &MARKERS[f];
        if (has_marker(t, m->open) && has_marker(t, m->close) && has_marker(t, m->head_end))
            return f;
    }
    return TURNS_NONE;
}

static void put_bytes(Writer *w, const uint8_t *bytes, size_t count)
{
    if (count) memcpy(w->plain + w->plain_bytes, bytes, count);
    w->plain_bytes += count;
}

static void put_words(Writer *w, const char *words)
{
    put_bytes(w, (const uint8_t *)words, strlen(words));
}

static Error flush(Writer *w)
{
    size_t count = 0;
    TRY(tokenizer_encode(w->tokenizer, w->plain, w->plain_bytes, 0, w->scratch,
                         w->ids + w->ids_count, w->ids_max - w->ids_count, &count, w->why));
    w->ids_count += count;
    w->plain_bytes = 0;
    return OK;
}

static Error put_id(Writer *w, uint32_t id)
{
    TRY(flush(w));
    if (w->ids_count == w->ids_max)
        return error_why(w->why, ERR_CAPACITY, "the conversation has more than %zu tokens",
                         w->ids_max);
    w->ids[w->ids_count++] = id;
    return OK;
}

static Error put_marker(Writer *w, const char *name)
{
    return put_id(w, tokenizer_find(w->tokenizer, name));
}

static bool is_role(const Turn *turn, const char *role) { return strcmp(turn->role, role) == 0; }

static bool is_blank(uint8_t c) { return c == ' ' || (c >= 9 && c <= 13); }

static Text trimmed(const Writer *w, const uint8_t *bytes, size_t count)
{
    if (w->format == TURNS_CHATML) return (Text){bytes, count};
    while (count && is_blank(bytes[count - 1])) count--;
    while (count && is_blank(bytes[0])) bytes++, count--;
    return (Text){bytes, count};
}

static Error open_turn(Writer *w, const char *role)
{
    const Markers *m = &MARKERS[w->format];
    TRY(put_marker(w, m->open));
    put_words(w, role);
    if (m->head_end) TRY(put_marker(w, m->head_end));
    put_words(w, m->head_end ? "\n\n" : "\n");
    return OK;
}

static Error close_turn(Writer *w)
{
    TRY(put_marker(w, MARKERS[w->format].close));
    if (w->format != TURNS_LLAMA3) put_words(w, "\n");
    return OK;
}

static Error put_turn(Writer *w, const char *role, const uint8_t *bytes, size_t count)
{
    Text text = trimmed(w, bytes, count);
    TRY(open_turn(w, role));
    put_bytes(w, text.bytes, text.count);
    return close_turn(w);
}

static const uint8_t *find_bytes(const uint8_t *in, size_t bytes, const char *what)
{
    size_t length = strlen(what);
    for (size_t i = 0; i + length <= bytes; i++)
        if (memcmp(in + i, what, length) == 0) return in + i;
    return NULL;
}

/* The words behind "<|im_start|>system" and a line break (as such, or written \n) up to "<|im_end|>", if
 * they are plain words: no quote, brace or backslash, which would be the template's own code. */
static Text default_system(const Vocab *v)
{
    static const char open[] = "<|im_start|>system";
    if (!v->chat_template_bytes) return (Text){NULL, 0};
    const uint8_t *at = v->chat_template, *end = at + v->chat_template_bytes;
    while (at != end && (at = find_bytes(at, (size_t)(end - at), open)) != NULL) {
        at += sizeof open - 1;
        const uint8_t *from = at;
        if (end - from >= 2 && from[0] == '\\' && from[1] == 'n') from += 2;
        else if (from != end && *from == '\n') from++;
        else continue;
        const uint8_t *to = find_bytes(from, (size_t)(end - from), "<|im_end|>");
        if (!to || to - from > DEFAULT_SYSTEM_MAX || to == from) continue;
        const uint8_t *c = from;
        while (c != to && !strchr("'\"{}\\", *c)) c++;
        if (c == to) return (Text){from, (size_t)(to - from)};
    }
    return (Text){NULL, 0};
}

static Error begin(Writer *w, const Turn *turns, size_t count, bool first)
{
    const Vocab *v = tokenizer_vocab(w->tokenizer);
    if (!first) {
        if (w->format != TURNS_LLAMA3) put_words(w, "\n");
        return OK;
    }
    if (v->add_bos && v->bos < v->tokens) TRY(put_id(w, v->bos));
    Text words = default_system(v);
    bool given = count > 0 && is_role(&turns[0], "system");
    if (w->format != TURNS_CHATML || given || words.count == 0) return OK;
    return put_turn(w, "system", words.bytes, words.count);
}

/* Gemma's user turn with the system texts that stand right before it: turns[from..to), the last of them the
 * user's (or a system text that no user turn follows). Only the user's text is trimmed. */
static Error put_gemma_user(Writer *w, const Turn *turns, size_t from, size_t to)
{
    TRY(open_turn(w, "user"));
    for (size_t i = from; i < to; i++) {
        bool system = is_role(&turns[i], "system");
        Text text = system ? (Text){turns[i].text, turns[i].bytes}
                           : trimmed(w, turns[i].text, turns[i].bytes);
        put_bytes(w, text.bytes, text.count);
        if (system && i + 1 < to) put_words(w, "\n\n");
    }
    return close_turn(w);
}

static Error put_gemma(Writer *w, const Turn *turns, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (is_role(&turns[i], "assistant")) {
            TRY(put_turn(w, "model", turns[i].text, turns[i].bytes));
            i++;
            continue;
        }
        size_t to = i;
        while (to < count && is_role(&turns[to], "system")) to++;
        if (to < count && is_role(&turns[to], "user")) to++;
        TRY(put_gemma_user(w, turns, i, to));
        i = to;
    }
    return OK;
}

static bool skipped(const Writer *w, const Turn *turn)
{
    return w->format == TURNS_CHATML && is_role(turn, "system") && turn->bytes == 0;
}

static Error put_turns(Writer *w, const Turn *turns, size_t count)
{
    if (w->format == TURNS_GEMMA) return put_gemma(w, turns, count);
    for (size_t i = 0; i < count; i++)
        if (!skipped(w, &turns[i])) TRY(put_turn(w, turns[i].role, turns[i].text, turns[i].bytes));
    return OK;
}

static Error check_roles(const Turn *turns, size_t count, Why *why)
{
    for (size_t i = 0; i < count; i++)
        if (!is_role(&turns[i], "system") && !is_role(&turns[i], "user") &&
            !is_role(&turns[i], "assistant"))
            return error_why(why, ERR_USAGE,
                             "message %zu has the role \"%.*s\"; system, user and assistant exist",
                             i, 40, turns[i].role);
    return OK;
}

/* All texts, since Gemma may gather several in one piece. */
static size_t plain_max(const Turn *turns, size_t count)
{
    size_t bytes = DEFAULT_SYSTEM_MAX + FRAME_BYTES;
    for (size_t i = 0; i < count; i++) bytes += turns[i].bytes + FRAME_BYTES;
    return bytes;
}

size_t turns_scratch_bytes(const Tokenizer *t, const Turn *turns, size_t count)
{
    size_t plain = plain_max(turns, count);
    return arena_bytes(plain) + tokenizer_scratch_bytes(t, plain) + ARENA_ALIGN;
}

size_t turns_ids_max(const Turn *turns, size_t count) { return 4 * plain_max(turns, count) + 4; }

static Error put_all(Writer *w, const Turn *turns, size_t count, bool first)
{
    w->plain = arena_take(w->scratch, plain_max(turns, count));
    if (!w->plain)
        return error_why(w->why, ERR_MEMORY, "no room for a conversation of %zu messages", count);
    TRY(begin(w, turns, count, first));
    TRY(put_turns(w, turns, count));
    TRY(open_turn(w, w->format == TURNS_GEMMA ? "model" : "assistant"));
    return flush(w);
}

Error turns_encode(const Tokenizer *t, const Turn *turns, size_t count, bool first, Arena *scratch,
                   uint32_t *ids, size_t ids_max, size_t *ids_count, Why *why)
{
    size_t mark = arena_mark(scratch);
    Writer w = {.tokenizer = t,
                .format = turns_format(t),
                .scratch = scratch,
                .ids = ids,
                .ids_max = ids_max,
                .why = why};
    if (w.format == TURNS_NONE)
        return error_why(why, ERR_UNSUPPORTED,
                         "the vocabulary has no markers of turns that this build knows");
    TRY(check_roles(turns, count, why));
    Error error = put_all(&w, turns, count, first);
    arena_reset(scratch, mark);
    *ids_count = w.ids_count;
    return error;
}
