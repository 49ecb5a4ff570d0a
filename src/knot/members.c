/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/members.h"

#include <string.h>

Error members_find(Members m, const char *name, yyjson_val **out, Why *why)
{
    *out = NULL;
    size_t i, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(m.object, i, count, key, value)
    {
        if (!yyjson_equals_str(key, name)) continue;
        if (*out)
            return error_why(why, ERR_DUPLICATE, "%s: member `%s` appears twice", m.where, name);
        *out = value;
    }
    return OK;
}

Error members_u64(Members m, const char *name, uint64_t max, uint64_t absent, uint64_t *out,
                  Why *why)
{
    yyjson_val *v;
    TRY(members_find(m, name, &v, why));
    *out = absent;
    if (!v) return OK;
    if (!yyjson_is_uint(v))
        return error_why(why, ERR_FORMAT, "%s: `%s` is not a whole number", m.where, name);
    *out = yyjson_get_uint(v);
    if (*out <= max) return OK;
    return error_why(why, ERR_RANGE, "%s: `%s` is %llu, the limit is %llu", m.where, name,
                     (unsigned long long)*out, (unsigned long long)max);
}

Error members_u32(Members m, const char *name, uint32_t absent, uint32_t *out, Why *why)
{
    uint64_t v;
    TRY(members_u64(m, name, UINT32_MAX, absent, &v, why));
    *out = (uint32_t)v;
    return OK;
}

Error members_f32(Members m, const char *name, float *out, Why *why)
{
    yyjson_val *v;
    TRY(members_find(m, name, &v, why));
    *out = 0.0f;
    if (!v) return OK;
    if (!yyjson_is_num(v))
        return error_why(why, ERR_FORMAT, "%s: `%s` is not a number", m.where, name);
    double d = yyjson_get_num(v);
    if (!(d >= -3.4e38 && d <= 3.4e38))
        return error_why(why, ERR_RANGE, "%s: `%s` is too large", m.where, name);
    *out = (float)d;
    return OK;
}

Error members_text(Members m, const char *name, char *out, size_t out_bytes, Why *why)
{
    yyjson_val *v;
    TRY(members_find(m, name, &v, why));
    out[0] = '\0';
    if (!v) return OK;
    if (!yyjson_is_str(v))
        return error_why(why, ERR_FORMAT, "%s: `%s` is not a text", m.where, name);
    const char *text = yyjson_get_str(v);
    size_t bytes = yyjson_get_len(v);
    if (bytes >= out_bytes || memchr(text, 0, bytes))
        return error_why(why, ERR_RANGE, "%s: `%s` is longer than %zu bytes or has a NUL", m.where,
                         name, out_bytes - 1);
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return OK;
}
