/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of the script: "NAME=value" lines, looked up by name. */
#include <string.h>

#include "node_loop.h"

static char settings[NODE_TEXT_BYTES + 1]; /* NAME=value, NUL after each */

bool node_settings_take(const char *text, uint32_t bytes)
{
    if (bytes > NODE_TEXT_BYTES) return false;
    memcpy(settings, text, bytes);
    settings[bytes] = '\0';
    for (uint32_t i = 0; i < bytes; i++)
        if (settings[i] == '\n') settings[i] = '\0';
    return true;
}

const char *node_setting(const Node *n, const char *name)
{
    size_t length = strlen(name);
    (void)n;
    for (const char *at = settings; at < settings + sizeof settings && *at; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
    return NULL;
}

static Error refuse(const char *name, const char *text, uint64_t least, uint64_t most, Why *why)
{
    return error_why(why, ERR_USAGE, "%s is \"%s\", not a number from %llu to %llu", name, text,
                     (unsigned long long)least, (unsigned long long)most);
}

Error node_setting_number(const Node *n, const char *name, uint64_t fallback, uint64_t least,
                          uint64_t most, uint64_t *out, Why *why)
{
    const char *text = node_setting(n, name), *at = text;
    uint64_t value = 0;
    *out = fallback;
    if (!text) return OK;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (unsigned)(*at - '0'), &value))
            return refuse(name, text, least, most, why);
    if (at == text || *at || value < least || value > most)
        return refuse(name, text, least, most, why);
    *out = value;
    return OK;
}
