/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_vocab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/warden_answer.h"
#include "host/log.h"

enum { BATCH_ROWS = 256, READS_MAX = 3, WARM_MAX = 1024, STORE_THREADS = 7 /* beside one's own */ };

struct WardenVocab {
    WardenVocabOptions options;
    WardenLevels *levels;
    const KnotIndex *index;
    const KnotTensor *tensor;
    uint32_t row_bytes;
    pthread_mutex_t lock; /* of everything below */
    WardenRows *memory;
    void *arena_memory;
    RowStore *rows; /* or NULL */
    bool rows_lost; /* there should be one */
    float *values;  /* [BATCH_ROWS][cols] */
    uint32_t *warm; /* ids that the row store had and memory should have: after the response */
    uint32_t warm_count;
    uint64_t store_rows, store_bad;
    /* Of the figures alone: who asks for them does not wait for the store. */
    pthread_mutex_t counters_lock;
    WardenVocabCounters counters;
};

static void publish(WardenVocab *v)
{
    WardenVocabCounters c = {.memory = warden_rows_counters(v->memory),
                             .store_rows = v->store_rows,
                             .store_bad = v->store_bad,
                             .has_rows = v->rows || v->rows_lost,
                             .rows.failures = v->rows_lost};
    if (v->rows) c.rows = row_store_counters(v->rows);
    (void)pthread_mutex_lock(&v->counters_lock);
    v->counters = c;
    (void)pthread_mutex_unlock(&v->counters_lock);
}

/* --- opening --- */

static Error open_memory(WardenVocab *v, Why *why)
{
    WardenRowsConfig config = {v->options.id_first, v->options.id_last, v->row_bytes,
                               v->options.budget_bytes};
    size_t bytes = (size_t)warden_rows_bytes(&config);
    v->arena_memory = malloc(bytes);
    v->values = malloc((size_t)BATCH_ROWS * v->tensor->cols * sizeof *v->values);
    v->warm = malloc(WARM_MAX * sizeof *v->warm);
    if (!v->arena_memory || !v->values || !v->warm)
        return error_why(why, ERR_MEMORY, "%zu bytes for embedding rows", bytes);
    Arena arena = arena_make(v->arena_memory, bytes);
    return warden_rows_build(&config, &arena, &v->memory, why);
}

/* A disk that is full, or cannot be written, costs the cache and not the warden. */
static Error open_rows(WardenVocab *v, Why *why)
{
    if (!v->options.row_store[0]) return OK;
    Error e =
        row_store_open(v->options.row_store, v->index->knot.id, v->tensor->cols, &v->rows, why);
    if (e != ERR_IO && e != ERR_NO_SPACE) return e;
    log_say(LOG_ERROR, "cache of rows: %s: %s; going on without it", error_text(e), why->text);
    v->rows_lost = true;
    return OK;
}

static Error open_parts(WardenVocab *v, Why *why)
{
    TRY(warden_answer_find_vocab(v->index, v->options.id_last, &v->tensor, &v->row_bytes, why));
    TRY(open_memory(v, why));
    TRY(open_rows(v, why));
    publish(v);
    return OK;
}

Error warden_vocab_open(const WardenVocabOptions *options, WardenLevels *levels, WardenVocab **out,
                        Why *why)
{
    WardenVocab *v = calloc(1, sizeof *v);
    if (!v) return error_why(why, ERR_MEMORY, "no memory for a warden");
    v->options = *options;
    v->levels = levels;
    v->index = warden_levels_index(levels);
    (void)pthread_mutex_init(&v->lock, NULL);
    (void)pthread_mutex_init(&v->counters_lock, NULL);
    Error e = open_parts(v, why);
    if (e) warden_vocab_close(v);
    else *out = v;
    return e;
}

void warden_vocab_close(WardenVocab *v)
{
    if (!v) return;
    if (v->rows) row_store_close(v->rows);
    free(v->arena_memory);
    free(v->values);
    free(v->warm);
    (void)pthread_mutex_destroy(&v->lock);
    (void)pthread_mutex_destroy(&v->counters_lock);
    free(v);
}

const KnotTensor *warden_vocab_tensor(const WardenVocab *v) { return v->tensor; }

/* --- reading --- */

static bool is_right(const WardenVocab *v, uint32_t id, const uint8_t *bytes)
{
    return warden_answer_row_is_right(v->index, id, bytes, v->row_bytes);
}

static bool read_memory(WardenVocab *v, WardenVocabRow *row)
{
    const uint8_t *bytes = warden_rows_get(v->memory, row->id);
    if (!bytes) return false;
    memcpy(row->bytes, bytes, v->row_bytes);
    if (is_right(v, row->id, row->bytes)) return true;
    (void)warden_rows_forget(v->memory, row->id, true);
    return false;
}

/* Rows of the store, several at once: each is a call of its own, and a store may be far away. */
typedef struct StoreJob {
    WardenVocab *v;
    WardenVocabRow *const *rows;
    uint32_t count;
    atomic_uint next, reads, bad;
    pthread_mutex_t lock; /* of the first error */
    Error error;
    Why why;
} StoreJob;

static Error read_store(StoreJob *j, uint32_t id, uint8_t *out, Why *why)
{
    const WardenVocab *v = j->v;
    uint64_t at = v->tensor->offset + (uint64_t)id * v->row_bytes;
    for (int i = 0; i < READS_MAX; i++) {
        TRY(warden_levels_read_row(v->levels, at, v->row_bytes, out, why));
        atomic_fetch_add(&j->reads, 1);
        if (is_right(v, id, out)) return OK;
        atomic_fetch_add(&j->bad, 1);
    }
    return error_why(why, ERR_CHECKSUM, "token_embd_weight, row %u of the store", id);
}

static void *store_thread(void *context)
{
    StoreJob *j = context;
    for (uint32_t i; (i = atomic_fetch_add(&j->next, 1)) < j->count;) {
        Why why;
        Error e = read_store(j, j->rows[i]->id, j->rows[i]->bytes, &why);
        if (e == OK) continue;
        (void)pthread_mutex_lock(&j->lock);
        if (j->error == OK) j->why = why;
        if (j->error == OK) j->error = e;
        (void)pthread_mutex_unlock(&j->lock);
        atomic_store(&j->next, j->count);
    }
    return NULL;
}

static Error read_stored(WardenVocab *v, WardenVocabRow *const *rows, uint32_t count, Why *why)
{
    pthread_t threads[STORE_THREADS];
    uint32_t more = 0;
    StoreJob j = {.v = v, .rows = rows, .count = count};
    (void)pthread_mutex_init(&j.lock, NULL);
    while (more < STORE_THREADS && more + 1 < count &&
           pthread_create(&threads[more], NULL, store_thread, &j) == 0)
        more++;
    (void)store_thread(&j);
    for (uint32_t i = 0; i < more; i++) (void)pthread_join(threads[i], NULL);
    (void)pthread_mutex_destroy(&j.lock);
    v->store_rows += atomic_load(&j.reads);
    v->store_bad += atomic_load(&j.bad);
    if (j.error) *why = j.why;
    return j.error;
}

/* The store's row goes to memory at once and to the row store when the answer has left. */
static Error keep_row(WardenVocab *v, const WardenVocabRow *row, Why *why)
{
    warden_rows_put(v->memory, row->id, row->bytes);
    if (!v->rows) return OK;
    TRY(block_dequantize_row(v->tensor->type, row->bytes, v->tensor->cols, v->values, why));
    row_store_put(v->rows, row->id, v->values);
    return OK;
}

/* Asks the row store for missing[count], at most BATCH_ROWS. */
static void read_rows(WardenVocab *v, WardenVocabRow *const *missing, uint32_t count, bool *found)
{
    uint32_t ids[BATCH_ROWS] = {0}, cols = v->tensor->cols;
    memset(found, 0, count * sizeof *found);
    if (!v->rows) return;
    for (uint32_t i = 0; i < count; i++) ids[i] = missing[i]->id;
    row_store_get(v->rows, ids, count, v->values, found);
    for (uint32_t i = 0; i < count; i++) {
        if (!found[i]) continue;
        memcpy(missing[i]->bytes, v->values + (size_t)i * cols, cols * sizeof(float));
        missing[i]->is_f32 = true;
        if (v->warm_count < WARM_MAX) v->warm[v->warm_count++] = ids[i];
    }
}

static Error read_missing(WardenVocab *v, WardenVocabRow *const *missing, uint32_t count, Why *why)
{
    bool found[BATCH_ROWS];
    WardenVocabRow *below[BATCH_ROWS] = {0};
    uint32_t below_count = 0;
    if (!count) return OK;
    read_rows(v, missing, count, found);
    for (uint32_t i = 0; i < count; i++)
        if (!found[i]) below[below_count++] = missing[i];
    TRY(read_stored(v, below, below_count, why));
    for (uint32_t i = 0; i < below_count; i++) TRY(keep_row(v, below[i], why));
    return OK;
}

static Error read_all(WardenVocab *v, WardenVocabRow *rows, uint32_t count, Why *why)
{
    WardenVocabRow *missing[BATCH_ROWS];
    uint32_t misses = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (read_memory(v, &rows[i])) continue;
        missing[misses++] = &rows[i];
        if (misses < BATCH_ROWS) continue;
        TRY(read_missing(v, missing, misses, why));
        misses = 0;
    }
    return read_missing(v, missing, misses, why);
}

Error warden_vocab_read(WardenVocab *v, WardenVocabRow *rows, uint32_t count, uint8_t *room,
                        Why *why)
{
    for (uint32_t i = 0; i < count; i++) {
        rows[i].is_f32 = false;
        rows[i].bytes = room + (size_t)i * v->tensor->cols * sizeof(float);
    }
    (void)pthread_mutex_lock(&v->lock);
    Error e = read_all(v, rows, count, why);
    publish(v);
    (void)pthread_mutex_unlock(&v->lock);
    return e;
}

/* --- after the response --- */

static void warm_up(WardenVocab *v)
{
    Why why;
    uint8_t *bytes = malloc(v->row_bytes);
    uint32_t count = warden_rows_room(v->memory) ? v->warm_count : 0;
    for (uint32_t i = 0; bytes && i < count; i++) {
        WardenVocabRow row = {v->warm[i], false, bytes}, *rows = &row;
        if (warden_rows_has(v->memory, row.id)) continue;
        if (read_stored(v, &rows, 1, &why) != OK) break; /* the store is away: float32 serves */
        warden_rows_put(v->memory, row.id, bytes);
    }
    v->warm_count = 0;
    free(bytes);
}

void warden_vocab_settle(WardenVocab *v)
{
    (void)pthread_mutex_lock(&v->lock);
    warm_up(v);
    if (v->rows) row_store_settle(v->rows);
    publish(v);
    (void)pthread_mutex_unlock(&v->lock);
}

void warden_vocab_forget(WardenVocab *v, uint32_t id)
{
    (void)pthread_mutex_lock(&v->lock);
    (void)warden_rows_forget(v->memory, id, false);
    if (v->rows) row_store_delete(v->rows, id);
    publish(v);
    (void)pthread_mutex_unlock(&v->lock);
}

WardenVocabCounters warden_vocab_counters(WardenVocab *v)
{
    (void)pthread_mutex_lock(&v->counters_lock);
    WardenVocabCounters c = v->counters;
    (void)pthread_mutex_unlock(&v->counters_lock);
    return c;
}
