/* SPDX-License-Identifier: Apache-2.0 */
/* A file of API keys. What is accepted has fine names that are found again, each once, and limits within bounds. */
#include <stdlib.h>
#include <string.h>

#include "api/keys.h"

static void check(const Keys *keys)
{
    if (keys->count > KEYS_MAX) abort();
    for (uint32_t i = 0; i < keys->count; i++) {
        const KeysEntry *entry = &keys->entries[i];
        if (!keys_name_is_fine(entry->name, strlen(entry->name))) abort();
        if (keys_find_name(keys, entry->name) != i) abort();
        if (entry->limits.requests_per_minute > KEYS_LIMIT_MAX ||
            entry->limits.tokens_per_minute > KEYS_LIMIT_MAX ||
            entry->limits.concurrent > KEYS_LIMIT_MAX)
            abort();
        for (uint32_t k = 0; k < i; k++)
            if (digest_equals(keys->digests[k], keys->digests[i])) abort();
    }
    if (keys_find(keys, "", 0) != KEYS_NONE) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Keys keys;
    Why why = {{0}};
    if (size > 65536) return 0;
    size_t room = keys_bytes(size);
    void *memory = malloc(room);
    Arena arena = arena_make(memory, room);
    Error error = keys_parse((const char *)data, size, &arena, &keys, &why);
    if (error == ERR_MEMORY) abort(); /* the size surely suffices */
    if (error == OK) check(&keys);
    else if (!why.text[0]) abort();
    free(memory);
    return 0;
}
