/* SPDX-License-Identifier: Apache-2.0 */
/* Text and ids. */
#include <stdlib.h>
#include <string.h>

#include "library/library.h"

/* Ids that were made into the caller's array; they go. */
static Error give_ids(Error error, uint32_t *made, size_t count, uint32_t *ids, size_t ids_max,
                      size_t *out_count, Why *why)
{
    if (error == OK) {
        *out_count = count;
        if (count > ids_max)
            error = error_why(why, ERR_CAPACITY, "%zu ids, and room for %zu", count, ids_max);
        else if (count) memcpy(ids, made, count * sizeof *ids);
    }
    free(made);
    return error;
}

int cobord_tokenize(const cobord_model *m, const char *text, size_t bytes, unsigned flags,
                    uint32_t *ids, size_t ids_max, size_t *count)
{
    Why why = {{0}};
    uint32_t *made = NULL;
    size_t n = 0;
    if (!m || (!text && bytes) || (!ids && ids_max) || !count)
        return library_result(error_why(&why, ERR_USAGE, "cobord_tokenize got NULL"), &why);
    if (flags & ~(unsigned)(COBORD_SPECIALS | COBORD_BOS))
        return library_result(error_why(&why, ERR_USAGE, "cobord_tokenize: unknown flags"), &why);
    unsigned how =
        (flags & COBORD_SPECIALS ? TOKENIZE_SPECIALS : 0) | (flags & COBORD_BOS ? TOKENIZE_BOS : 0);
    Error error = solo_text_ids(&m->solo, (const uint8_t *)(text ? text : ""), bytes, how, 0, &made,
                                &n, &why);
    return library_result(give_ids(error, made, n, ids, ids_max, count, &why), &why);
}

/* Adds what `from` has to what there is; counts when there is no room. */
static void add(char *text, size_t text_max, size_t *used, const uint8_t *from, size_t bytes)
{
    if (bytes && *used + bytes < text_max) memcpy(text + *used, from, bytes);
    *used += bytes;
}

static Error write_text(const cobord_model *m, const uint32_t *ids, size_t count, bool specials,
                        char *text, size_t text_max, size_t *used, Why *why)
{
    Detokenizer d;
    uint8_t piece[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes;
    bool stopped;
    *used = 0;
    detokenizer_start(&d, m->open.tokenizer, specials);
    for (size_t i = 0; i < count; i++) {
        TRY(detokenizer_push(&d, ids[i], piece, sizeof piece, &bytes, &stopped, why));
        add(text, text_max, used, piece, bytes);
    }
    TRY(detokenizer_end(&d, piece, sizeof piece, &bytes, why));
    add(text, text_max, used, piece, bytes);
    return OK;
}

/* Counts first, since nothing may be written when the room is too small. */
static Error detokenize(const cobord_model *m, const uint32_t *ids, size_t count, bool specials,
                        char *text, size_t text_max, size_t *bytes, Why *why)
{
    size_t used;
    TRY(write_text(m, ids, count, specials, NULL, 0, &used, why));
    *bytes = used;
    if (used >= text_max)
        return error_why(why, ERR_CAPACITY, "%zu bytes and a NUL, and room for %zu", used,
                         text_max);
    TRY(write_text(m, ids, count, specials, text, text_max, &used, why));
    text[used] = '\0';
    return OK;
}

int cobord_detokenize(const cobord_model *m, const uint32_t *ids, size_t count, unsigned flags,
                      char *text, size_t text_max, size_t *bytes)
{
    Why why = {{0}};
    if (!m || (!ids && count) || (!text && text_max) || !bytes)
        return library_result(error_why(&why, ERR_USAGE, "cobord_detokenize got NULL"), &why);
    if (flags & ~(unsigned)COBORD_SPECIALS)
        return library_result(error_why(&why, ERR_USAGE, "cobord_detokenize: unknown flags"), &why);
    return library_result(detokenize(m, ids, count, flags, text, text_max, bytes, &why), &why);
}

static Error read_messages(const cobord_message *messages, size_t count, Turn *turns, Why *why)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < count; i++) {
        const char *role = messages[i].role, *text = messages[i].text, *known = NULL;
        for (size_t r = 0; role && r < sizeof roles / sizeof *roles; r++)
            if (strcmp(role, roles[r]) == 0) known = roles[r];
        if (!known)
            return error_why(why, ERR_USAGE,
                             "message %zu: role \"%s\" is none of system, user, assistant", i,
                             role ? role : "");
        if (!text) return error_why(why, ERR_USAGE, "message %zu has no text", i);
        turns[i] = (Turn){.role = known, .text = (const uint8_t *)text, .bytes = strlen(text)};
    }
    return OK;
}

/* Owner  the caller frees *ids. */
static Error chat_ids(const cobord_model *m, const cobord_message *messages, size_t count,
                      uint32_t **ids, size_t *id_count, Why *why)
{
    *ids = NULL;
    if (!m || !messages || !count)
        return error_why(why, ERR_USAGE, "a conversation without a message");
    if (count > LIBRARY_MESSAGES_MAX)
        return error_why(why, ERR_TOO_LARGE, "%zu messages; at most %d", count,
                         LIBRARY_MESSAGES_MAX);
    Turn *turns = calloc(count, sizeof *turns);
    if (!turns) return error_why(why, ERR_MEMORY, "no memory for %zu messages", count);
    Error error = read_messages(messages, count, turns, why);
    ChatTurns all = {.turns = turns, .count = count};
    if (error == OK) error = solo_turns_ids(&m->solo, all, 0, ids, id_count, why);
    free(turns);
    return error;
}

int cobord_apply_chat(const cobord_model *m, const cobord_message *messages, size_t message_count,
                      uint32_t *ids, size_t ids_max, size_t *count)
{
    Why why = {{0}};
    uint32_t *made = NULL;
    size_t n = 0;
    if ((!ids && ids_max) || !count)
        return library_result(error_why(&why, ERR_USAGE, "cobord_apply_chat got NULL"), &why);
    Error error = chat_ids(m, messages, message_count, &made, &n, &why);
    return library_result(give_ids(error, made, n, ids, ids_max, count, &why), &why);
}

int cobord_chat(cobord_model *m, const cobord_message *messages, size_t message_count,
                const cobord_settings *settings, cobord_callback callback, void *user,
                cobord_result *result)
{
    Why why = {{0}};
    uint32_t *ids;
    size_t count = 0;
    int code = library_result(chat_ids(m, messages, message_count, &ids, &count, &why), &why);
    if (code == COBORD_OK) code = cobord_generate(m, ids, count, settings, callback, user, result);
    free(ids);
    return code;
}
