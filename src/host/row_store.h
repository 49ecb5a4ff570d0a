/* SPDX-License-Identifier: Apache-2.0 */
/* L2 of embedding rows: a key-value store outside the process, rows as float32 (wire/row_value.h).
 *
 *   sqlite:PATH            a file in WAL mode (the default)
 *   redis://HOST:PORT[/DB] Redis or Valkey; COBORD_REDIS_PASSWORD
 *
 * Each value that is read is checked, length and hash: a bad one is a miss, is counted, and deleted
 * later, by row_store_settle, so that the deletion never delays the request. What cannot be reached is
 * a miss too, with a warning a minute. */
#ifndef COBORD_HOST_ROW_STORE_H
#define COBORD_HOST_ROW_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/warden_counters.h"

typedef struct RowStore RowStore;

/* Thread  one at a time. Errors  ERR_USAGE, ERR_IO (sqlite; an unreachable Redis is tried again later). */
MUST_CHECK Error row_store_open(const char *where, uint64_t knot_id, uint32_t hidden,
                                RowStore **out, Why *why);
void row_store_close(RowStore *s);

/* Shapes  rows[count] to out[count][hidden], found[count]. One round trip. */
void row_store_get(RowStore *s, const uint32_t *rows, uint32_t count, float *out, bool *found);
/* Remembers rows to be written by row_store_settle: after the response. */
void row_store_put(RowStore *s, uint32_t row, const float *values);
void row_store_delete(RowStore *s, uint32_t row);
/* Writes and deletes what is due. */
void row_store_settle(RowStore *s);
RowStoreCounters row_store_counters(const RowStore *s);

#endif
