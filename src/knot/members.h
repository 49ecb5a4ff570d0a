/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a JSON object that came from outside: each known one at most once (a repeated key that
 * silently wins last is how two readers of one file come to disagree), of the right kind, and in
 * range. `where` names the object in errors. */
#ifndef COBORD_KNOT_MEMBERS_H
#define COBORD_KNOT_MEMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/error.h"

typedef struct Members {
    yyjson_val *object;
    const char *where;
} Members;

/* *out is NULL when there is none. Errors  ERR_DUPLICATE. */
MUST_CHECK Error members_find(Members m, const char *name, yyjson_val **out, Why *why);

/* An integer 0..max; `absent` when there is none. Errors  ERR_FORMAT, ERR_RANGE, ERR_DUPLICATE. */
MUST_CHECK Error members_u64(Members m, const char *name, uint64_t max, uint64_t absent,
                             uint64_t *out, Why *why);
MUST_CHECK Error members_u32(Members m, const char *name, uint32_t absent, uint32_t *out, Why *why);

/* A finite number as f32; 0 when there is none. */
MUST_CHECK Error members_f32(Members m, const char *name, float *out, Why *why);

/* Copies a text into out[out_bytes], NUL-terminated; "" when there is none. Errors  ERR_RANGE too
 * long or with a NUL. */
MUST_CHECK Error members_text(Members m, const char *name, char *out, size_t out_bytes, Why *why);

#endif
