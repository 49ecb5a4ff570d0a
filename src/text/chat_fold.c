/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations with tools for models whose template has none: chat_fold of chat.h. The texts are made by small
 * templates of our own, so that their JSON is written as any template's. */
#include <string.h>

#include "text/chat.h"

enum {
    FOLD_MEMORY = 2 << 20,
    FOLD_MEMORY_PER_TURN = 16 << 10,
    FOLD_MEMORY_PER_BYTE = 24,
    FOLD_STEPS = 200000,
    FOLD_STEPS_PER_BYTE = 16,
    FOLD_TEXT_MAX = 64 << 20
};

static const char TOOLS[] =
    "{{ content }}{% if content %}{{ '\\n\\n' }}{% endif %}"
    "# Tools\n\nThese functions can be called; each line describes one:\n<tools>"
    "{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}{{ '\\n' }}</tools>\n\n"
    "A call is a JSON object with the function's name and its arguments between <tool_call> and </tool_call>:\n"
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"PARAMETER\": VALUE}}\n</tool_call>\n"
    "Its result comes back between <tool_response> and </tool_response>.";

static const char CALLS[] =
    "{{ content }}{% for call in calls %}{% if content or not loop.first %}{{ '\\n' }}{% endif %}"
    "<tool_call>\n{\"name\": {{ call.function.name | tojson }}, \"arguments\": "
    "{{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}";

static const char ANSWER[] = "<tool_response>\n", ANSWER_END[] = "\n</tool_response>";

static bool is_role(const Turn *turn, const char *role) { return strcmp(turn->role, role) == 0; }

static bool needs(const Chat *c, const ChatTurns *turns)
{
    return !c->knows_tools && chat_has_tools(turns);
}

size_t chat_fold_bytes(const Chat *c, const ChatTurns *turns)
{
    if (!needs(c, turns)) return ARENA_ALIGN;
    return FOLD_MEMORY + FOLD_MEMORY_PER_TURN * turns->count +
           FOLD_MEMORY_PER_BYTE * chat_turns_bytes(turns);
}

typedef struct Fold {
    const ChatTurns *from;
    Arena *arena;
    Turn *turns;
    size_t count;
    Why *why;
} Fold;

/* The text of a template of ours that sees a turn's text and one list. */
static Error write_text(Fold *f, const char *source, const Turn *turn, const char *list_name,
                        const JinjaValue *list, Turn *out)
{
    Jinja jinja;
    JinjaText text, content = {turn->text, NULL, turn->bytes, JINJA_FOREIGN};
    JinjaDict *names = jinja_value_dict(f->arena, 2);
    JinjaLimits limits = {.steps = FOLD_STEPS + FOLD_STEPS_PER_BYTE * chat_turns_bytes(f->from),
                          .bytes = FOLD_TEXT_MAX};
    TRY(jinja_parse((const uint8_t *)source, strlen(source), f->arena, &jinja, f->why));
    if (!names || !jinja_value_put_words(f->arena, names, "content", jinja_value_text(content)) ||
        !jinja_value_put_words(f->arena, names, list_name, *list))
        return error_why(f->why, ERR_MEMORY, "no memory for tools");
    TRY(jinja_render(&jinja, names, &limits, f->arena, &text, f->why));
    out->text = text.bytes;
    out->bytes = text.count;
    return OK;
}

static Error fold_system(Fold *f, const Turn *given)
{
    static const Turn nothing = {.role = "system"};
    Turn *turn = &f->turns[f->count++];
    *turn = given ? *given : nothing;
    return write_text(f, TOOLS, given ? given : &nothing, "tools", f->from->tools, turn);
}

static Error fold_calls(Fold *f, const Turn *turn)
{
    Turn *out = &f->turns[f->count++];
    *out = (Turn){.role = turn->role};
    return write_text(f, CALLS, turn, "calls", turn->calls, out);
}

static void append(uint8_t *text, size_t *used, const void *bytes, size_t count)
{
    if (count) memcpy(text + *used, bytes, count);
    *used += count;
}

/* The tool's turns from..to as one of the user. */
static Error fold_answers(Fold *f, size_t from, size_t to)
{
    size_t room = 0, used = 0;
    for (size_t i = from; i < to; i++)
        room += f->from->turns[i].bytes + sizeof ANSWER + sizeof ANSWER_END;
    uint8_t *text = arena_take_raw(f->arena, room);
    if (!text) return error_why(f->why, ERR_MEMORY, "no memory for the results of tools");
    for (size_t i = from; i < to; i++) {
        const Turn *turn = &f->from->turns[i];
        if (i > from) append(text, &used, "\n", 1);
        append(text, &used, ANSWER, sizeof ANSWER - 1);
        append(text, &used, turn->text, turn->bytes);
        append(text, &used, ANSWER_END, sizeof ANSWER_END - 1);
    }
    f->turns[f->count++] = (Turn){.role = "user", .text = text, .bytes = used};
    return OK;
}

static Error fold_turns(Fold *f)
{
    const ChatTurns *all = f->from;
    size_t at = 0;
    if (all->tools) {
        bool given = all->count && is_role(&all->turns[0], "system");
        TRY(fold_system(f, given ? &all->turns[0] : NULL));
        at += given;
    }
    while (at < all->count) {
        size_t to = at;
        while (to < all->count && is_role(&all->turns[to], "tool")) to++;
        if (to > at) TRY(fold_answers(f, at, to));
        else if (all->turns[at].calls) TRY(fold_calls(f, &all->turns[at]));
        else f->turns[f->count++] = all->turns[at];
        at = to > at ? to : at + 1;
    }
    return OK;
}

Error chat_fold(const Chat *c, const ChatTurns *turns, Arena *arena, ChatTurns *out, Why *why)
{
    *out = *turns;
    if (!needs(c, turns)) return OK;
    Fold f = {.from = turns,
              .arena = arena,
              .turns = ARENA_NEW(arena, Turn, turns->count + 1),
              .why = why};
    if (!f.turns) return error_why(why, ERR_MEMORY, "no memory for %zu messages", turns->count);
    TRY(fold_turns(&f));
    *out = (ChatTurns){.turns = f.turns, .count = f.count, .now_s = turns->now_s};
    return OK;
}
