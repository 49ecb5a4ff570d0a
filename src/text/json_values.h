/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as a template's values: objects in their order, a name given twice with its last value. Every text is
 * foreign, as a message's, so none of its bytes can become part of a control token. */
#ifndef COBORD_TEXT_JSON_VALUES_H
#define COBORD_TEXT_JSON_VALUES_H

#include <yyjson.h>

#include "text/jinja_value.h"

/* Of arena, for each value of the JSON; names of members are none. */
enum { JSON_VALUES_BYTES = 288 };

/* Recurses as deep as the JSON nests. A name is compared with all before it. Owner  texts stay the JSON's.
 * Result  false: no memory. */
bool json_values_make(Arena *arena, yyjson_val *json, JinjaValue *out);

#endif
