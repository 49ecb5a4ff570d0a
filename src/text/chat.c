/* SPDX-License-Identifier: Apache-2.0 */
/* See chat.h. */
#include "text/chat.h"

#include <string.h>

#include "text/jinja_text.h"

/* Steps and memory grow with the conversation, so that a long one is no reason to fail. */
enum {
    CHAT_STEPS = 2000000,
    CHAT_STEPS_PER_TURN = 2000,
    CHAT_STEPS_PER_TOOL_BYTE = 16,
    CHAT_MEMORY = 4 << 20,
    CHAT_MEMORY_PER_TURN = 32 << 10,
    CHAT_MEMORY_PER_BYTE = 24,
    CHAT_TEXT_MAX = 64 << 20,
    CHAT_PROBE_IDS = 8192,
    CHAT_PROBES = 4
};

/* ---- Text ---- */

size_t chat_turns_bytes(const ChatTurns *turns)
{
    size_t bytes = turns->tool_bytes;
    for (size_t i = 0; i < turns->count; i++) bytes += turns->turns[i].bytes;
    return bytes;
}

bool chat_has_tools(const ChatTurns *turns)
{
    if (turns->tools) return true;
    for (size_t i = 0; i < turns->count; i++)
        if (turns->turns[i].calls || strcmp(turns->turns[i].role, "tool") == 0) return true;
    return false;
}

static bool by_template(const Chat *c, const ChatTurns *turns)
{
    return c->way == CHAT_TEMPLATE || (c->knows_tools && chat_has_tools(turns));
}

size_t chat_text_bytes(const Chat *c, const ChatTurns *turns)
{
    if (!by_template(c, turns)) return ARENA_ALIGN;
    return CHAT_MEMORY + CHAT_MEMORY_PER_TURN * turns->count +
           CHAT_MEMORY_PER_BYTE * chat_turns_bytes(turns);
}

/* The text of a token as the file writes it, for bos_token and its like; not set where there is none. */
static bool put_token(Arena *arena, JinjaDict *names, const char *name, const Vocab *v, uint32_t id)
{
    uint32_t bytes;
    if (id >= v->tokens) return true;
    const uint8_t *text = vocab_token(v, id, &bytes);
    return jinja_value_put_words(arena, names, name,
                                 jinja_value_text((JinjaText){text, NULL, bytes, JINJA_OWN}));
}

/* A client's words under a name; not set where there are none. */
static bool put_words(Arena *arena, JinjaDict *names, const char *name, const char *words)
{
    if (!words) return true;
    JinjaText text = {(const uint8_t *)words, NULL, strlen(words), JINJA_FOREIGN};
    return jinja_value_put_words(arena, names, name, jinja_value_text(text));
}

static bool put_message(Arena *arena, const Turn *turn, JinjaValue *out)
{
    JinjaDict *message = jinja_value_dict(arena, 4);
    JinjaText text = {turn->text, NULL, turn->bytes, JINJA_FOREIGN};
    *out = (JinjaValue){.kind = JINJA_DICT, .dict = message};
    return message &&
           jinja_value_put_words(arena, message, "role",
                                 jinja_value_text(jinja_value_words(turn->role))) &&
           jinja_value_put_words(arena, message, "content",
                                 turn->silent ? jinja_value_none() : jinja_value_text(text)) &&
           (!turn->calls || jinja_value_put_words(arena, message, "tool_calls", *turn->calls)) &&
           put_words(arena, message, "tool_call_id", turn->call_id) &&
           put_words(arena, message, "name", turn->name);
}

static JinjaDict *make_names(const Vocab *v, const ChatTurns *turns, Arena *arena)
{
    JinjaDict *names = jinja_value_dict(arena, 8);
    JinjaList *messages = jinja_value_list(arena, turns->count);
    if (!names || !messages) return NULL;
    for (size_t i = 0; i < turns->count; i++)
        if (!put_message(arena, &turns->turns[i], &messages->items[i])) return NULL;
    JinjaValue list = {.kind = JINJA_LIST, .list = messages};
    bool fine =
        jinja_value_put_words(arena, names, "messages", list) &&
        jinja_value_put_words(arena, names, "add_generation_prompt", jinja_value_bool(true)) &&
        jinja_value_put_words(arena, names, "tools",
                              turns->tools ? *turns->tools : jinja_value_none()) &&
        jinja_value_put_words(arena, names, "documents", jinja_value_none()) &&
        put_token(arena, names, "bos_token", v, v->bos) &&
        put_token(arena, names, "eos_token", v, v->eos) &&
        put_token(arena, names, "unk_token", v, v->unknown) &&
        put_token(arena, names, "pad_token", v, v->pad);
    return fine ? names : NULL;
}

static Error render(const Tokenizer *t, const Jinja *jinja, const ChatTurns *turns, Arena *arena,
                    JinjaText *out, Why *why)
{
    JinjaDict *names = make_names(tokenizer_vocab(t), turns, arena);
    if (!names)
        return error_why(why, ERR_MEMORY, "no memory for a conversation of %zu messages",
                         turns->count);
    JinjaLimits limits = {.steps = CHAT_STEPS + CHAT_STEPS_PER_TURN * (uint64_t)turns->count +
                                   CHAT_STEPS_PER_TOOL_BYTE * (uint64_t)turns->tool_bytes,
                          .bytes = CHAT_TEXT_MAX,
                          .now_s = turns->now_s};
    return jinja_render(jinja, names, &limits, arena, out, why);
}

Error chat_text(const Chat *c, const ChatTurns *turns, Arena *arena, JinjaText *out, Why *why)
{
    *out = (JinjaText){0};
    return by_template(c, turns) ? render(c->tokenizer, &c->jinja, turns, arena, out, why) : OK;
}

/* ---- Ids ---- */

size_t chat_ids_max(const Chat *c, const ChatTurns *turns, JinjaText text)
{
    if (!by_template(c, turns)) return turns_ids_max(turns->turns, turns->count);
    return tokenizer_ids_max(c->tokenizer, text.count) + 1;
}

size_t chat_scratch_bytes(const Chat *c, const ChatTurns *turns, JinjaText text)
{
    if (!by_template(c, turns))
        return turns_scratch_bytes(c->tokenizer, turns->turns, turns->count);
    return tokenizer_scratch_bytes(c->tokenizer, text.count) + arena_bytes(text.count);
}

static Error encode_text(const Tokenizer *t, JinjaText text, Arena *scratch, uint32_t *ids,
                         size_t ids_max, size_t *ids_count, Why *why)
{
    const uint8_t *foreign = text.marks;
    uint8_t *all = NULL;
    if (text.mark != JINJA_MIXED) {
        all = arena_take_raw(scratch, text.count);
        if (!all)
            return error_why(why, ERR_MEMORY, "no room for the marks of %zu bytes", text.count);
        if (text.count) memset(all, text.mark == JINJA_FOREIGN, text.count);
        foreign = all;
    }
    return tokenizer_encode_marked(t, text.bytes, foreign, text.count, TOKENIZE_BOS, scratch, ids,
                                   ids_max, ids_count, why);
}

Error chat_encode(const Chat *c, const ChatTurns *turns, JinjaText text, Arena *scratch,
                  uint32_t *ids, size_t ids_max, size_t *ids_count, Why *why)
{
    if (!by_template(c, turns))
        return turns_encode(c->tokenizer, turns->turns, turns->count, true, scratch, ids, ids_max,
                            ids_count, why);
    size_t mark = arena_mark(scratch);
    Error error = encode_text(c->tokenizer, text, scratch, ids, ids_max, ids_count, why);
    arena_reset(scratch, mark);
    return error;
}

/* ---- The choice ---- */

#define PROBE_TURN(who, words) \
    {.role = who, .text = (const uint8_t *)(words), .bytes = sizeof(words) - 1}
static const Turn PROBE[] = {PROBE_TURN("system", "Be kind."), PROBE_TURN("user", "Hello there"),
                             PROBE_TURN("assistant", "Good day."),
                             PROBE_TURN("user", "And now?\n2 + 2")};
/* from, count: user; system, user; user, assistant, user; all */
static const size_t PROBES[CHAT_PROBES][2] = {{1, 1}, {0, 2}, {1, 3}, {0, 4}};

size_t chat_bytes(const Tokenizer *t)
{
    return jinja_bytes(tokenizer_vocab(t)->chat_template_bytes);
}

size_t chat_probe_bytes(const Tokenizer *t)
{
    return CHAT_MEMORY + 2 * arena_bytes(CHAT_PROBE_IDS * sizeof(uint32_t)) +
           2 * tokenizer_scratch_bytes(t, CHAT_PROBE_IDS) + turns_scratch_bytes(t, PROBE, 4);
}

static Error probe_ids(const Chat *c, const ChatTurns *turns, Arena *scratch, uint32_t *ids,
                       size_t *count, Why *why)
{
    JinjaText text;
    TRY(chat_text(c, turns, scratch, &text, why));
    if (text.count > CHAT_PROBE_IDS)
        return error_why(why, ERR_TOO_LARGE, "a greeting of %zu bytes", text.count);
    return chat_encode(c, turns, text, scratch, ids, CHAT_PROBE_IDS, count, why);
}

/* Whether both give the same, or one gives nothing. */
static bool agrees(const Chat *c, const ChatTurns *turns, Arena *scratch)
{
    Chat built_in = {.tokenizer = c->tokenizer, .way = CHAT_TURNS};
    size_t mark = arena_mark(scratch), a_count = 0, b_count = 0;
    uint32_t *a = ARENA_NEW(scratch, uint32_t, CHAT_PROBE_IDS),
             *b = ARENA_NEW(scratch, uint32_t, CHAT_PROBE_IDS);
    bool rendered = a && b && probe_ids(c, turns, scratch, a, &a_count, NULL) == OK,
         both = rendered && probe_ids(&built_in, turns, scratch, b, &b_count, NULL) == OK;
    bool same = both && a_count == b_count && memcmp(a, b, a_count * sizeof *a) == 0;
    arena_reset(scratch, mark);
    return same || !rendered;
}

static Error try_template(const Tokenizer *t, Arena *arena, Arena *scratch, Chat *out)
{
    const Vocab *v = tokenizer_vocab(t);
    const ChatTurns greeting = {.turns = PROBE + 1, .count = 1};
    size_t mark = arena_mark(scratch), count;
    TRY(jinja_parse(v->chat_template, v->chat_template_bytes, arena, &out->jinja, &out->fault));
    out->way = CHAT_TEMPLATE;
    uint32_t *ids = ARENA_NEW(scratch, uint32_t, CHAT_PROBE_IDS);
    Error error = ids ? probe_ids(out, &greeting, scratch, ids, &count, &out->fault)
                      : error_why(&out->fault, ERR_MEMORY, "no memory to try the template");
    arena_reset(scratch, mark);
    return error;
}

/* A tool of a name that no template has by itself. */
static const char PROBE_TOOL[] = "cobord_probe_tool";

static bool make_probe_tool(Arena *arena, JinjaValue *out)
{
    JinjaDict *tool = jinja_value_dict(arena, 2), *function = jinja_value_dict(arena, 3),
              *parameters = jinja_value_dict(arena, 2);
    JinjaList *list = jinja_value_list(arena, 1);
    JinjaValue name = jinja_value_text(jinja_value_words(PROBE_TOOL)),
               no = {.kind = JINJA_DICT, .dict = jinja_value_dict(arena, 1)};
    if (!tool || !function || !parameters || !list || !no.dict) return false;
    list->items[0] = (JinjaValue){.kind = JINJA_DICT, .dict = tool};
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    JinjaValue object = jinja_value_text(jinja_value_words("object"));
    return jinja_value_put_words(arena, parameters, "type", object) &&
           jinja_value_put_words(arena, parameters, "properties", no) &&
           jinja_value_put_words(arena, function, "name", name) &&
           jinja_value_put_words(arena, function, "description", name) &&
           jinja_value_put_words(arena, function, "parameters",
                                 (JinjaValue){.kind = JINJA_DICT, .dict = parameters}) &&
           jinja_value_put_words(arena, tool, "type",
                                 jinja_value_text(jinja_value_words("function"))) &&
           jinja_value_put_words(arena, tool, "function",
                                 (JinjaValue){.kind = JINJA_DICT, .dict = function});
}

/* Whether a tool's name comes out of the template. */
static bool shows_tools(const Chat *c, Arena *scratch)
{
    size_t mark = arena_mark(scratch);
    JinjaValue tools;
    JinjaText text = {0}, name = jinja_value_words(PROBE_TOOL);
    bool shows = make_probe_tool(scratch, &tools);
    const ChatTurns turns = {.turns = PROBE, .count = 2, .tools = &tools, .tool_bytes = 1024};
    shows = shows && render(c->tokenizer, &c->jinja, &turns, scratch, &text, NULL) == OK &&
            jinja_text_find(text, name, 0) < text.count;
    arena_reset(scratch, mark);
    return shows;
}

void chat_make(const Tokenizer *t, Arena *arena, Arena *scratch, Chat *out)
{
    ChatWay known = turns_format(t) == TURNS_NONE ? CHAT_NONE : CHAT_TURNS;
    *out = (Chat){.tokenizer = t, .way = known};
    if (!tokenizer_vocab(t)->chat_template_bytes) return;
    if (try_template(t, arena, scratch, out) != OK) {
        out->way = known;
        return;
    }
    out->knows_tools = shows_tools(out, scratch);
    if (known == CHAT_NONE) return;
    bool same = true;
    for (size_t i = 0; i < CHAT_PROBES && same; i++)
        same = agrees(out, &(ChatTurns){.turns = PROBE + PROBES[i][0], .count = PROBES[i][1]},
                      scratch);
    if (same) out->way = CHAT_TURNS;
}
