/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What a thread may be told of its last failure: the list's words, and the Why. */
static _Thread_local char last_error[WHY_MAX + 64];

#define SAME(name) \
    _Static_assert((int)COBORD_##name == (int)name, #name " has another number in cobord.h")
SAME(ERR_INTERNAL);
SAME(ERR_MEMORY);
SAME(ERR_IO);
SAME(ERR_NO_SPACE);
SAME(ERR_CAPACITY);
SAME(ERR_NOT_AVAILABLE);
SAME(ERR_USAGE);
SAME(ERR_FORMAT);
SAME(ERR_TRUNCATED);
SAME(ERR_UNSUPPORTED);
SAME(ERR_MISSING_TENSOR);
SAME(ERR_TYPE);
SAME(ERR_SHAPE);
SAME(ERR_CHECKSUM);
SAME(ERR_STALE);
SAME(ERR_NOT_FINITE);
SAME(ERR_RANGE);
SAME(ERR_DUPLICATE);
SAME(ERR_NOT_FOUND);
SAME(ERR_TOO_LARGE);
SAME(ERR_PLAN);
SAME(ERR_AGAIN);
SAME(ERR_CANCELLED);
#undef SAME

int library_result(Error error, const Why *why)
{
    if (error == OK) return COBORD_OK;
    bool details = why && why->text[0];
    (void)snprintf(last_error, sizeof last_error, "%s%s%s", error_text(error), details ? ": " : "",
                   details ? why->text : "");
    return (int)error;
}

Error library_take(const void *given, size_t size, void *defaults, size_t known, const char *name,
                   Why *why)
{
    if (size < sizeof(size_t) || size > UINT16_MAX)
        return error_why(why, ERR_USAGE, "%s.size is %zu: call %s_init first", name, size, name);
    const uint8_t *bytes = given;
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return error_why(why, ERR_USAGE,
                             "%s has a field that this library, version %s, does not know", name,
                             COBORD_VERSION);
    memcpy(defaults, given, size < known ? size : known);
    return OK;
}

const char *cobord_version(void) { return COBORD_VERSION; }
const char *cobord_error_text(int error) { return error_text((Error)error); }
const char *cobord_last_error(void) { return last_error; }
