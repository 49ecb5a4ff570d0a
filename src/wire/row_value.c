/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/row_value.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "knot/emit.h"

char *row_value_key(uint64_t knot_id, uint32_t row, char out[ROW_VALUE_KEY_BYTES])
{
    Emit e = emit_make(out, ROW_VALUE_KEY_BYTES - 1);
    emit_text(&e, "cobord:row:");
    emit_hex64(&e, knot_id);
    emit_text(&e, ":");
    emit_u64(&e, row);
    out[e.used] = '\0';
    return out;
}

void row_value_seal(uint8_t *value, uint32_t hidden)
{
    size_t bytes = (size_t)hidden * sizeof(float);
    bytes_store64(value + bytes, hash_xxh64(value, bytes));
}

bool row_value_is_good(const uint8_t *value, size_t length, uint32_t hidden)
{
    if (length != row_value_bytes(hidden)) return false;
    size_t bytes = length - ROW_VALUE_HASH_BYTES;
    return bytes_load64(value + bytes) == hash_xxh64(value, bytes);
}
