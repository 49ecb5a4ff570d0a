/* SPDX-License-Identifier: Apache-2.0 */
/* The file of API keys:
 *
 *   {"keys": [
 *     {"name": "alice", "sha256": "9f86..", "requests_per_minute": 60, "tokens_per_minute": 20000, "concurrent": 4},
 *     {"name": "ops", "key": "sk-..", "admin": true}
 *   ]}
 *
 * `key` is the key itself, `sha256` its hash in hexadecimal: one of them. A limit that is left out is none. Names are
 * public (logs, metrics), keys are not: of either only the hash stays, and no message has bytes of a key in it.
 *
 * Limits: KEYS_MAX keys, KEYS_TEXT_BYTES_MAX of text. What is not understood is refused: a misspelt limit would be
 * none. Who may do how much: api/key_limits.h. */
#ifndef COBORD_API_KEYS_H
#define COBORD_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/digest.h"
#include "api/key_limits.h"
#include "base/arena.h"
#include "base/error.h"

enum {
    KEYS_MAX = 10000,
    KEYS_TEXT_BYTES_MAX = 4 << 20,
    KEYS_NAME_BYTES = 65,
    KEYS_SECRET_BYTES_MIN = 8,
    KEYS_SECRET_BYTES_MAX = 512,
    KEYS_LIMIT_MAX = 1000000000
};

typedef struct KeysEntry {
    char name[KEYS_NAME_BYTES]; /* 1..64 of A-Z a-z 0-9 . _ - */
    bool admin;                 /* may read what is everybody's */
    KeyLimits limits;
} KeysEntry;

typedef struct Keys {
    KeysEntry *entries;
    uint8_t (*digests)[DIGEST_BYTES];
    uint32_t count;
    uint32_t *places; /* of names, by their hash: index + 1 */
    uint32_t place_count;
} Keys;

/* Owner  the table is in the arena, for which keys_bytes(bytes) suffices; the text may go.
 * Errors  ERR_FORMAT, ERR_DUPLICATE, ERR_TOO_LARGE: `why` names line, key and field. */
size_t keys_bytes(size_t text_bytes);
MUST_CHECK Error keys_parse(const char *text, size_t bytes, Arena *arena, Keys *out, Why *why);

/* Result  an index, or KEYS_NONE. In a time that depends on the number of keys and the length of `key` only. */
#define KEYS_NONE UINT32_MAX
uint32_t keys_find(const Keys *keys, const char *key, size_t bytes);
uint32_t keys_find_name(const Keys *keys, const char *name);

/* Whether a new key may have such a name. */
bool keys_name_is_fine(const char *name, size_t bytes);

#endif
