/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON schema to a Grammar whose every text is JSON that the schema accepts. The texts are a part of what the schema
 * accepts, never more (docs/format/schema.md has the table):
 *
 *   kept      type, enum, const, anyOf, allOf, oneOf where two branches can never both hold, $ref to #..., $defs,
 *             definitions; properties, required, additionalProperties; items, prefixItems, minItems, maxItems;
 *             minLength, maxLength, pattern, format; minimum, maximum, exclusiveMinimum, exclusiveMaximum
 *   ignored   title, description, default, examples, deprecated, readOnly, writeOnly, $schema, $comment, discriminator,
 *             $id at the root: they say nothing about what is accepted
 *   refused   anything else, by its name and path
 *
 * Properties are written in the schema's order; others, where additionalProperties allows them, after those. Space
 * between the parts: after { [ , : and before } ] one space, or a line end and up to SCHEMA_INDENT_MAX spaces.
 *
 *   schema --> view: all schemas that apply at a place ($ref, allOf, a branch of anyOf) --> a rule for each view
 *
 * Views that were met before are the same rule, so schemas may be recursive. Rules wait in a list until their turn:
 * nothing here recurses deeper than the JSON nests. */
#ifndef COBORD_API_SCHEMA_H
#define COBORD_API_SCHEMA_H

#include <yyjson.h>

#include "base/arena.h"
#include "text/grammar.h"

enum { SCHEMA_INDENT_MAX = 40, SCHEMA_VIEW_MAX = 24, SCHEMA_PROPERTIES_MAX = 512 };

size_t schema_scratch_bytes(void);
/* `root` NULL: any JSON object. Owner  the schema may go afterwards.
 * Errors  ERR_UNSUPPORTED (a keyword or a combination, with its path), ERR_FORMAT (no schema), ERR_NOT_FOUND ($ref),
 *         ERR_RANGE (nothing satisfies it), ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error schema_grammar(yyjson_val *root, Arena *scratch, Arena *arena, Grammar *out,
                                Why *why);

#endif
