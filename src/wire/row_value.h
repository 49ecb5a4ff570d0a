/* SPDX-License-Identifier: Apache-2.0 */
/* An embedding row as a key-value store keeps it, on every host: float32, with a hash, since the store is not trusted.
 *
 *   key    cobord:row:KNOT_ID(16 hex):ROW
 *   value  f32 x hidden | u64 XXH64 of them, little-endian
 *
 * A value lives 24 hours. One of another length, or with another hash, is bad: a miss, and to be deleted. */
#ifndef COBORD_WIRE_ROW_VALUE_H
#define COBORD_WIRE_ROW_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ROW_VALUE_HASH_BYTES = 8,
    ROW_VALUE_KEY_BYTES = 48, /* "cobord:row:" 16 digits ":" up to 10 digits, NUL */
    ROW_VALUE_TTL_S = 24 * 60 * 60
};

static inline size_t row_value_bytes(uint32_t hidden)
{
    return (size_t)hidden * sizeof(float) + ROW_VALUE_HASH_BYTES;
}

/* Into out; returns out. */
char *row_value_key(uint64_t knot_id, uint32_t row, char out[ROW_VALUE_KEY_BYTES]);
/* Writes the hash behind the numbers. Shapes  value[row_value_bytes(hidden)]. */
void row_value_seal(uint8_t *value, uint32_t hidden);
bool row_value_is_good(const uint8_t *value, size_t length, uint32_t hidden);

#endif
