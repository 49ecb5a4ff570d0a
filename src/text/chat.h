/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation to ids: by the turns that are built in (turns.h), or by the template that the model's file
 * has.
 *
 *   the template is missing, not to be parsed, or fails on a user's message   turns, if their format is known
 *   the vocabulary has no known format                                        the template
 *   both give the same ids for every probe that the template renders          turns
 *   they differ                                                               the template
 *
 * The probes are four small conversations, with and without a system message and an answer. Where both agree
 * the turns are taken, since they also know what a template may refuse (a late system message). Text of
 * messages never becomes a control token in either way.
 *
 * Conversations with tools (declared, called, answered) are the template's when it shows a tool that it is
 * given. Else they are told in the messages' text first (chat_fold), in Hermes' convention, and go the usual
 * way. */
#ifndef COBORD_TEXT_CHAT_H
#define COBORD_TEXT_CHAT_H

#include "text/jinja.h"
#include "text/turns.h"

typedef enum ChatWay { CHAT_NONE, CHAT_TURNS, CHAT_TEMPLATE } ChatWay;

typedef struct Chat {
    const Tokenizer *tokenizer;
    ChatWay way;
    Jinja jinja;      /* when the way is the template, or it knows tools */
    bool knows_tools; /* the template does */
    Why fault;        /* why the file's template cannot be used, with line and column; "" */
} Chat;

/* Never fails: a template that cannot be used leaves the turns. chat_bytes of `arena` keep the template;
 * chat_probe_bytes of `scratch` are needed for the choice. Owner  the tokenizer and its vocabulary outlive it.
 * Thread  read-only afterwards. */
size_t chat_bytes(const Tokenizer *t);
size_t chat_probe_bytes(const Tokenizer *t);
void chat_make(const Tokenizer *t, Arena *arena, Arena *scratch, Chat *out);

/* What a template sees beside the messages; `now_s` is what strftime_now says, in UTC. */
typedef struct ChatTurns {
    const Turn *turns;
    size_t count;
    int64_t now_s;
    /* A list of {"type", "function": {"name", "description", "parameters"}}; NULL: none. */
    const JinjaValue *tools;
    size_t tool_bytes; /* at least what tools and calls are as JSON text */
} ChatTurns;

/* Tools are declared, called or answered. */
bool chat_has_tools(const ChatTurns *turns);
/* Of all texts, tools and calls. */
size_t chat_turns_bytes(const ChatTurns *turns);

/* A conversation that the model's template cannot be told as it is, as one of plain messages:
 *
 *   tools           behind the first system message, or as one
 *   calls           behind the assistant's text: <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>
 *   tool's turns    <tool_response>\n...\n</tool_response> in a user's turn, one for those that follow each other
 *
 * chat_fold_bytes of `arena` suffice; `out` is `turns` where nothing is to be told. Owner  out lives in the
 * arena. Errors  ERR_MEMORY, ERR_TOO_LARGE. */
size_t chat_fold_bytes(const Chat *c, const ChatTurns *turns);
MUST_CHECK Error chat_fold(const Chat *c, const ChatTurns *turns, Arena *arena, ChatTurns *out,
                           Why *why);

/* A whole conversation and the opening of the answer, in two steps, since only the text's length tells the room
 * for ids: the text in `arena` of chat_text_bytes, then ids[chat_ids_max(text)], exactly one BOS in front where
 * the model wants one. With CHAT_TURNS there is no text: the second step does all. Errors  ERR_USAGE: the
 * template refuses, in its own words; others of jinja.h and turns.h. */
size_t chat_text_bytes(const Chat *c, const ChatTurns *turns);
MUST_CHECK Error chat_text(const Chat *c, const ChatTurns *turns, Arena *arena, JinjaText *out,
                           Why *why);
size_t chat_ids_max(const Chat *c, const ChatTurns *turns, JinjaText text);
size_t chat_scratch_bytes(const Chat *c, const ChatTurns *turns, JinjaText text);
MUST_CHECK Error chat_encode(const Chat *c, const ChatTurns *turns, JinjaText text, Arena *scratch,
                             uint32_t *ids, size_t ids_max, size_t *ids_count, Why *why);

#endif
