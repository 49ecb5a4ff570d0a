/* SPDX-License-Identifier: Apache-2.0 */
#include "host/solo.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/chat_memory.h"

/* Small enough for the slack of the plan. */
static const uint64_t ROOM_FREE_BYTES = (uint64_t)1 << 20;

/* --- The conversation's way to ids --- */

Error solo_open(Solo *s, const OpenModel *model, Engine *engine, Why *why)
{
    *s = (Solo){.model = model, .engine = engine};
    Error error = chat_memory_make(model->tokenizer, &s->chat, &s->chat_memory, why);
    if (error != OK) solo_close(s);
    return error;
}

void solo_close(Solo *s)
{
    free(s->chat_memory);
    s->chat_memory = NULL;
}

/* Tokenizing takes many bytes for each of the text. */
static Error take(uint64_t room, size_t bytes, size_t ids_max, void **memory, uint32_t **ids,
                  Why *why)
{
    uint64_t sum = (uint64_t)bytes + ids_max * sizeof **ids;
    if (room && sum > ROOM_FREE_BYTES && sum > room)
        return error_why(why, ERR_MEMORY,
                         "tokenizing the prompt takes %llu MiB, more than is left. Shorten it, or "
                         "give more memory.",
                         (unsigned long long)(sum >> 20));
    *memory = malloc(bytes ? bytes : 1);
    *ids = malloc(ids_max * sizeof **ids + 1);
    if (*memory && *ids) return OK;
    free(*memory);
    free(*ids);
    *ids = NULL;
    return error_why(why, ERR_MEMORY, "no memory to tokenize the prompt");
}

/* Memory of the way goes; ids of a way that failed too. */
static Error give_back(Error error, void *memory, uint32_t **ids)
{
    free(memory);
    if (error == OK) return OK;
    free(*ids);
    *ids = NULL;
    return error;
}

Error solo_text_ids(const Solo *s, const uint8_t *text, size_t bytes, unsigned flags, uint64_t room,
                    uint32_t **ids, size_t *count, Why *why)
{
    const Tokenizer *t = s->model->tokenizer;
    size_t max = tokenizer_ids_max(t, bytes), scratch_bytes = tokenizer_scratch_bytes(t, bytes);
    void *memory;
    *ids = NULL;
    TRY(take(room, scratch_bytes, max, &memory, ids, why));
    Arena scratch = arena_make(memory, scratch_bytes);
    Error error = tokenizer_encode(t, text, bytes, flags, &scratch, *ids, max, count, why);
    return give_back(error, memory, ids);
}

static Error encode_chat(const Solo *s, const ChatTurns *turns, JinjaText text, uint64_t room,
                         uint32_t **ids, size_t *count, Why *why)
{
    size_t max = chat_ids_max(&s->chat, turns, text),
           bytes = chat_scratch_bytes(&s->chat, turns, text);
    void *memory;
    TRY(take(room, bytes, max, &memory, ids, why));
    Arena scratch = arena_make(memory, bytes);
    Error error = chat_encode(&s->chat, turns, text, &scratch, *ids, max, count, why);
    return give_back(error, memory, ids);
}

Error solo_turns_ids(const Solo *s, ChatTurns turns, uint64_t room, uint32_t **ids, size_t *count,
                     Why *why)
{
    *ids = NULL;
    if (!turns.count) return error_why(why, ERR_USAGE, "a conversation without a message");
    const Turn *last = &turns.turns[turns.count - 1];
    if (s->chat.way == CHAT_NONE)
        return solo_text_ids(s, last->text, last->bytes, TOKENIZE_SPECIALS | TOKENIZE_BOS, room,
                             ids, count, why);
    turns.now_s = (int64_t)time(NULL);
    JinjaText text;
    size_t bytes = chat_text_bytes(&s->chat, &turns);
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) return error_why(why, ERR_MEMORY, "no memory for the conversation");
    Arena arena = arena_make(memory, bytes);
    Error error = chat_text(&s->chat, &turns, &arena, &text, why);
    if (error == OK) error = encode_chat(s, &turns, text, room, ids, count, why);
    free(memory);
    return error;
}

/* --- An answer --- */

/* Forgets what no longer agrees with `ids`. */
static uint32_t keep_common(Coordinator *c, const uint32_t *ids, size_t count)
{
    uint32_t said, same = 0;
    const uint32_t *tokens = coordinator_tokens(c, 0, &said);
    while (same < said && same < count && tokens[same] == ids[same]) same++;
    coordinator_truncate(c, 0, same);
    return same;
}

Error solo_start(Solo *s, const SoloRequest *q, uint32_t *kept, Why *why)
{
    Coordinator *c = engine_coordinator(s->engine);
    uint32_t context = engine_plan(s->engine)->context;
    if (q->count > context)
        return error_why(
            why, ERR_CAPACITY,
            "the prompt has %zu tokens and the context %u positions. Shorten it, or give "
            "more context or memory.",
            q->count, context);
    uint32_t same = keep_common(c, q->ids, q->count);
    *kept = same;
    s->ids = NULL;
    s->id_count = 0;
    s->end = SOLO_GOES_ON;
    s->flushed = false;
    s->reading = q->reading;
    s->context = q->context;
    detokenizer_start(&s->detokenizer, s->model->tokenizer, false);
    for (size_t i = 0; i < q->stop_count; i++)
        TRY(detokenizer_add_stop(&s->detokenizer, q->stops[i], strlen(q->stops[i]), why));
    TRY(coordinator_start(c, 0, same ? q->ids + same : q->ids, (uint32_t)q->count - same,
                          q->tokens_max, q->params, why));
    Error error = q->mask ? coordinator_constrain(c, 0, q->mask, why) : OK;
    if (error != OK) coordinator_stop(c, 0);
    return error;
}

/* Works until there are next tokens, or none is left. */
static Error step(Solo *s, Why *why)
{
    const CoordinatorEvent *event;
    uint32_t events;
    Coordinator *c = engine_coordinator(s->engine);
    for (;;) {
        if (!engine_step(s->engine, &event, &events, why)) {
            uint32_t said;
            (void)coordinator_tokens(c, 0, &said);
            s->end = said > engine_plan(s->engine)->context ? SOLO_END_CONTEXT : SOLO_END_TOKENS;
            return OK;
        }
        if (events) break;
        if (s->reading) s->reading(s->context, coordinator_fed(c, 0));
    }
    s->reading = NULL;
    s->ids = event->tokens;
    s->id_count = event->token_count;
    return event->error;
}

static Error push(Solo *s, uint32_t id, size_t *bytes, Why *why)
{
    bool stopped = false;
    if (tokenizer_is_end(s->model->tokenizer, id)) {
        s->end = SOLO_END_TOKEN;
        return OK;
    }
    TRY(detokenizer_push(&s->detokenizer, id, s->text, DETOKENIZER_OUT_BYTES_MAX, bytes, &stopped,
                         why));
    if (stopped) s->end = SOLO_END_STOP;
    return OK;
}

/* The last piece has the text that was held back; after a stop string nothing is. */
static Error flush(Solo *s, size_t *bytes, Why *why)
{
    solo_stop(s);
    s->flushed = true;
    if (s->end == SOLO_END_STOP) return OK;
    return detokenizer_end(&s->detokenizer, s->text, DETOKENIZER_OUT_BYTES_MAX, bytes, why);
}

Error solo_next(Solo *s, SoloPiece *out, Why *why)
{
    size_t bytes = 0;
    *out = (SoloPiece){.text = s->text, .id = SOLO_NO_ID};
    ASSERT(!s->flushed);
    while (!s->id_count && s->end == SOLO_GOES_ON) TRY(step(s, why));
    if (s->end == SOLO_GOES_ON) {
        out->id = *s->ids++;
        s->id_count--;
        TRY(push(s, out->id, &bytes, why));
    } else {
        TRY(flush(s, &bytes, why));
        out->end = s->end;
    }
    s->text[bytes] = '\0';
    out->bytes = bytes;
    return OK;
}

void solo_stop(Solo *s) { coordinator_stop(engine_coordinator(s->engine), 0); }
