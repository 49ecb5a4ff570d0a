/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, checks, and what waits to be written; the backends move the bytes.
 *
 *   get ----> backend.get ----> length and hash ----> out, found
 *                                    | bad: a miss, counted
 *   put ----> puts[] --.             v
 *   delete -----------------> deletes[] ---- settle ----> backend.write, backend.sweep
 *
 * What waits is bounded: what finds no room is not written, which only makes a later miss. A delete takes back a
 * put of the same row that still waits, so deletes can go first. */
#include "host/row_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "host/log.h"
#include "host/row_store_backend.h"

enum {
    ROW_STORE_HIDDEN_MAX = 1 << 20,
    ROW_STORE_PENDING_BYTES_MAX = 8 << 20,
    ROW_STORE_DELETES_MAX = 4096,
    ROW_STORE_BATCH = 256, /* rows a backend is asked for at once */
    ROW_STORE_WARN_S = 60,
    ROW_STORE_SWEEP_S = 60
};

struct RowStore {
    RowBackend backend;
    uint64_t knot_id;
    uint32_t hidden;
    RowStoreCounters counters;
    uint32_t *put_rows, put_count, put_room; /* grown when needed, up to PENDING_BYTES_MAX */
    uint8_t *put_values;
    uint32_t delete_rows[ROW_STORE_DELETES_MAX], delete_count;
    RowKey keys[ROW_STORE_BATCH];
    uint64_t warned_s, swept_s;
};

static void row_store_failed(RowStore *s, Error error, const Why *why)
{
    s->counters.failures++;
    uint64_t now = clock_now_s();
    if (s->warned_s && now - s->warned_s < ROW_STORE_WARN_S) return;
    s->warned_s = now;
    log_say(LOG_ERROR, "cache of rows: %s: %s; going on without it", error_text(error), why->text);
}

static Error row_store_open_backend(const char *where, RowBackend *out, Why *why)
{
    if (strncmp(where, "sqlite:", 7) == 0) return row_store_sqlite_open(where + 7, out, why);
    if (strncmp(where, "redis://", 8) == 0) return row_store_redis_open(where + 8, out, why);
    return error_why(why, ERR_USAGE,
                     "a cache of rows is sqlite:PATH or redis://HOST:PORT[/DB], not %.*s",
                     (int)strcspn(where, ":"), where);
}

Error row_store_open(const char *where, uint64_t knot_id, uint32_t hidden, RowStore **out, Why *why)
{
    if (hidden == 0 || hidden > ROW_STORE_HIDDEN_MAX)
        return error_why(why, ERR_RANGE, "rows of %u numbers", (unsigned)hidden);
    RowStore *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a cache of rows");
    s->knot_id = knot_id;
    s->hidden = hidden;
    s->backend.value_bytes = row_value_bytes(s->hidden);
    Error error = row_store_open_backend(where, &s->backend, why);
    if (error != OK) {
        free(s);
        return error;
    }
    *out = s;
    return OK;
}

void row_store_close(RowStore *s)
{
    if (!s) return;
    row_store_settle(s);
    s->backend.close(&s->backend);
    free(s->put_rows);
    free(s->put_values);
    free(s);
}

/* --- read --- */

typedef struct RowStoreGet {
    RowStore *store;
    const uint32_t *rows;
    float *out;
    bool *found;
} RowStoreGet;

static void row_store_take(void *context, uint32_t index, const uint8_t *bytes, size_t length)
{
    RowStoreGet *g = context;
    RowStore *s = g->store;
    if (!row_value_is_good(bytes, length, s->hidden)) {
        s->counters.bad++;
        row_store_delete(s, g->rows[index]);
        return;
    }
    memcpy(g->out + (size_t)index * s->hidden, bytes, length - ROW_VALUE_HASH_BYTES);
    g->found[index] = true;
}

static void row_store_get_batch(RowStoreGet *g, uint32_t count)
{
    RowStore *s = g->store;
    Why why = {{0}};
    for (uint32_t i = 0; i < count; i++) row_value_key(s->knot_id, g->rows[i], s->keys[i].text);
    Error error = s->backend.get(&s->backend, s->keys, count, row_store_take, g, &why);
    if (error != OK) row_store_failed(s, error, &why);
    for (uint32_t i = 0; i < count; i++)
        if (g->found[i]) s->counters.hits++;
        else s->counters.misses++;
}

void row_store_get(RowStore *s, const uint32_t *rows, uint32_t count, float *out, bool *found)
{
    memset(found, 0, count * sizeof *found);
    for (uint32_t i = 0; i < count; i += ROW_STORE_BATCH) {
        uint32_t batch = count - i < ROW_STORE_BATCH ? count - i : ROW_STORE_BATCH;
        RowStoreGet g = {s, rows + i, out + (size_t)i * s->hidden, found + i};
        row_store_get_batch(&g, batch);
    }
}

/* --- what waits --- */

static bool row_store_grow(RowStore *s)
{
    size_t value = row_value_bytes(s->hidden);
    uint32_t most = (uint32_t)(ROW_STORE_PENDING_BYTES_MAX / value);
    if (most == 0) most = 1;
    uint32_t room = s->put_room ? s->put_room * 2 : 16;
    if (room > most) room = most;
    if (room <= s->put_count) return false;
    uint32_t *rows = realloc(s->put_rows, room * sizeof *rows);
    if (rows) s->put_rows = rows;
    uint8_t *values = rows ? realloc(s->put_values, room * value) : NULL;
    if (!values) return false;
    s->put_values = values;
    s->put_room = room;
    return true;
}

void row_store_put(RowStore *s, uint32_t row, const float *values)
{
    if (s->put_count == s->put_room && !row_store_grow(s)) {
        s->counters.failures++;
        return;
    }
    uint8_t *to = s->put_values + s->put_count * row_value_bytes(s->hidden);
    memcpy(to, values, (size_t)s->hidden * sizeof(float));
    row_value_seal(to, s->hidden);
    s->put_rows[s->put_count++] = row;
}

void row_store_delete(RowStore *s, uint32_t row)
{
    size_t value = row_value_bytes(s->hidden);
    for (uint32_t i = s->put_count; i-- > 0;) {
        if (s->put_rows[i] != row) continue;
        s->put_count--;
        s->put_rows[i] = s->put_rows[s->put_count];
        memmove(s->put_values + i * value, s->put_values + s->put_count * value, value);
    }
    if (s->delete_count == ROW_STORE_DELETES_MAX) s->counters.failures++;
    else s->delete_rows[s->delete_count++] = row;
}

/* --- settle --- */

/* Deletes come in whole batches before the first put. */
static Error row_store_write_batch(RowStore *s, const uint32_t *rows, uint32_t count,
                                   const uint8_t *values, Why *why)
{
    for (uint32_t i = 0; i < count; i++) row_value_key(s->knot_id, rows[i], s->keys[i].text);
    uint32_t put = values ? count : 0;
    return s->backend.write(&s->backend, s->keys, count - put, s->keys, values, put, why);
}

static Error row_store_write(RowStore *s, const uint32_t *rows, uint32_t count,
                             const uint8_t *values, Why *why)
{
    for (uint32_t i = 0; i < count; i += ROW_STORE_BATCH) {
        uint32_t batch = count - i < ROW_STORE_BATCH ? count - i : ROW_STORE_BATCH;
        const uint8_t *from = values ? values + i * row_value_bytes(s->hidden) : NULL;
        TRY(row_store_write_batch(s, rows + i, batch, from, why));
        if (values) s->counters.writes += batch;
    }
    return OK;
}

/* A minute apart, since a sweep is a write; at once again while there is more. */
static void row_store_sweep(RowStore *s)
{
    uint64_t now = clock_now_s();
    if (!s->backend.sweep || (s->swept_s && now - s->swept_s < ROW_STORE_SWEEP_S)) return;
    Why why = {{0}};
    s->swept_s = now;
    Error error = s->backend.sweep(&s->backend, &why);
    if (error == ERR_AGAIN) s->swept_s = 0;
    else if (error != OK) row_store_failed(s, error, &why);
}

void row_store_settle(RowStore *s)
{
    Why why = {{0}};
    Error error = OK;
    if (s->delete_count) error = row_store_write(s, s->delete_rows, s->delete_count, NULL, &why);
    if (error == OK && s->put_count)
        error = row_store_write(s, s->put_rows, s->put_count, s->put_values, &why);
    /* What failed is let go: a bad entry is found again, a missing one is read from below. */
    s->delete_count = s->put_count = 0;
    if (error != OK) row_store_failed(s, error, &why);
    else row_store_sweep(s);
}

RowStoreCounters row_store_counters(const RowStore *s) { return s->counters; }
