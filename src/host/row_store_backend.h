/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind a row store: values under keys that expire, one file per kind. row_store.c makes the keys,
 * checks the values and keeps what is to be written; a backend only moves bytes and never trusts a length. */
#ifndef COBORD_HOST_ROW_STORE_BACKEND_H
#define COBORD_HOST_ROW_STORE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/row_value.h"

typedef struct RowKey {
    char text[ROW_VALUE_KEY_BYTES];
} RowKey;

/* A value that is there, whatever its length: `bytes` may be cut, `length` is then still another than value_bytes.
 * `length` SIZE_MAX: something is there that is no value at all. */
typedef void (*RowTake)(void *context, uint32_t index, const uint8_t *bytes, size_t length);

typedef struct RowBackend {
    void *state;
    size_t value_bytes;
    /* Calls `take` for those of keys[count] that are there. Errors  ERR_UNREACHABLE, ERR_IO: what was not taken is
     * missing. Never longer than about a second. */
    Error (*get)(struct RowBackend *b, const RowKey *keys, uint32_t count, RowTake take,
                 void *context, Why *why);
    /* First deletes, then writes values[put_count][value_bytes], which live ROW_VALUE_TTL_S. */
    Error (*write)(struct RowBackend *b, const RowKey *deleted, uint32_t delete_count,
                   const RowKey *put, const uint8_t *values, uint32_t put_count, Why *why);
    /* Removes some of what has expired; NULL where the other side does that itself. */
    Error (*sweep)(struct RowBackend *b, Why *why);
    void (*close)(struct RowBackend *b);
} RowBackend;

/* `where` behind "sqlite:" and "redis://". Errors  ERR_USAGE, ERR_IO, ERR_MEMORY. */
MUST_CHECK Error row_store_sqlite_open(const char *where, RowBackend *out, Why *why);
MUST_CHECK Error row_store_redis_open(const char *where, RowBackend *out, Why *why);

#endif
