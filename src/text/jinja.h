/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: an interpreter for what they use of Jinja, with Python's results, as Hugging Face's loaders set it
 * up (trim_blocks, lstrip_blocks, loop controls, {% generation %}, an immutable sandbox, its tojson,
 * raise_exception and strftime_now). docs/chat-templates.md lists what exists. A template reaches nothing but
 * the values that it is given.
 *
 *   source --lexer--> tokens --parser--> tree --with values--> text, every byte marked as own or foreign
 *
 * Limits  of the source JINJA_SOURCE_MAX; of the nesting JINJA_NESTING_MAX and JINJA_DEPTH_MAX; of a rendering
 * those in JinjaLimits, and the arena, whose memory is all that a rendering can use. */
#ifndef COBORD_TEXT_JINJA_H
#define COBORD_TEXT_JINJA_H

#include "text/jinja_tree.h"

enum { JINJA_SOURCE_MAX = 1 << 20 };

typedef struct Jinja {
    const uint8_t *source;
    size_t source_bytes;
    JinjaNode *body;
} Jinja;

typedef struct JinjaLimits {
    uint64_t steps;
    size_t bytes;  /* of any text, the result included */
    int64_t now_s; /* what strftime_now says: seconds since 1970, UTC */
} JinjaLimits;

/* jinja_bytes(bytes) of arena suffice. Owner  the source must outlive the template.
 * Errors  ERR_FORMAT with line and column in `why`, ERR_TOO_LARGE, ERR_MEMORY. */
size_t jinja_bytes(size_t source_bytes);
MUST_CHECK Error jinja_parse(const uint8_t *source, size_t bytes, Arena *arena, Jinja *out,
                             Why *why);

/* Renders with the names in `globals`. The text lies in the arena, or in the source and the values.
 * Errors  ERR_USAGE: the template refuses by raise_exception, `why` is its message; ERR_TYPE, ERR_UNSUPPORTED,
 * ERR_TOO_LARGE (a limit) with line and column. */
MUST_CHECK Error jinja_render(const Jinja *j, const JinjaDict *globals, const JinjaLimits *limits,
                              Arena *arena, JinjaText *out, Why *why);

#endif
