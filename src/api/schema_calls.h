/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that call tools, as a Grammar: what text/tool_calls.h reads, with arguments that each tool's schema
 * accepts.
 *
 *   must, one     <tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>
 *   must, many    one or more of them, a line end between
 *   may           any text in which <tool_call> does not occur, then nothing or calls as above
 *
 * ARGUMENTS are an object by schema.h's rules; {} for a tool without parameters or with an empty list of them. */
#ifndef COBORD_API_SCHEMA_CALLS_H
#define COBORD_API_SCHEMA_CALLS_H

#include "api/schema.h"

typedef struct SchemaTool {
    const char *name; /* tool_calls_is_name */
    size_t name_bytes;
    yyjson_val *parameters; /* a schema; NULL: none */
    bool any;               /* whatever the schema says, any object */
} SchemaTool;

typedef struct SchemaCalls {
    const SchemaTool *tools;
    uint32_t count; /* 1 or more */
    bool must, many;
} SchemaCalls;

/* schema_scratch_bytes of `scratch` suffice. Owner  tools and schemas may go afterwards.
 * Errors  schema.h's; *fault is then the tool's index, `count` when it is no tool's alone. */
MUST_CHECK Error schema_calls_grammar(const SchemaCalls *calls, Arena *scratch, Arena *arena,
                                      Grammar *out, uint32_t *fault, Why *why);

#endif
