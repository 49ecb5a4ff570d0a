/* SPDX-License-Identifier: Apache-2.0 */
/* A look at JSON before it is parsed: how deep it nests and how many values it has, without memory or recursion, so
 * that neither can hurt the parser. Whether it is JSON at all is the parser's to say. */
#ifndef COBORD_API_JSON_SCAN_H
#define COBORD_API_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include <yyjson.h>

#include "base/arena.h"
#include "api/refusal.h"

enum { JSON_SCAN_DEPTH_MAX = 64, JSON_SCAN_VALUES_MAX = 1 << 18 };

typedef struct JsonScan {
    size_t depth, values; /* values: an upper bound, keys included */
} JsonScan;

JsonScan json_scan(const uint8_t *text, size_t bytes);

/* Parses a body that is an object. What json_scan_bytes says suffices for `arena`; pages that a plain body does not
 * need are never touched. Result  NULL with the refusal: empty, too deep, too many values, no JSON, no object. */
size_t json_scan_bytes(size_t body_bytes);
yyjson_val *json_scan_object(const uint8_t *body, size_t bytes, Arena *arena, Refusal *refusal);

#endif
