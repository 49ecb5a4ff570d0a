/* SPDX-License-Identifier: Apache-2.0 */
/* A warden's levels over a real file: any range is right whatever memory and disk keep, many
 * threads at once, with bytes that turn bad in between; and the tables that all checks rest on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "host/encode_loop.h"
#include "host/knot_file.h"
#include "host/places.h"
#include "host/pool.h"
#include "host/warden_vocab.h"
#include "knot/synth.h"

static const SynthShape shape = {"levels", "qwen2", 8,    512, 2048, 8, 2,
                                 64,       2000,    2000, 512, 1e6f, 0, false};
enum { ARENA = 64 << 20, THREADS = 6, READ_MAX = 5 << 20, TABLES_BYTES_MAX = 32 << 20 };

static char folder[64], path[128];
static uint8_t *file;
static uint64_t file_bytes;
static Knot knot; /* of the whole file */
static KnotFile opened;

static Error read_rows(void *context, uint32_t source, uint64_t offset, uint8_t *out, size_t bytes,
                       Why *why)
{
    (void)why;
    const EncodeInput *input = context;
    const GgufTensor *t = &input->tensors[source];
    size_t row = (size_t)(t->bytes / t->rows);
    synth_rows(input, source, 7, (uint32_t)(offset / row), (uint32_t)(bytes / row), out);
    return OK;
}

static void make_knot(unsigned version, const char *to)
{
    Why why;
    EncodeInput input;
    Pool *pool;
    void *memory = malloc(ARENA);
    Arena arena = arena_make(memory, ARENA);
    assert_int_equal(synth_input(&shape, &arena, &input, &why), OK);
    input.version = version;
    EncodeReader reader = {read_rows, &input};
    assert_int_equal(pool_start(1, &pool, &why), OK);
    Parallel parallel = pool_parallel(pool);
    assert_int_equal(encode_loop_run(&input, &reader, to, &parallel, &arena, NULL, &why), OK);
    pool_stop(pool);
    free(memory);
}

static int set_up(void **state)
{
    (void)state;
    Why why;
    (void)snprintf(folder, sizeof folder, "/tmp/cobord-levels-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/a.knot", folder);
    make_knot(2, path);
    assert_int_equal(knot_file_open(path, &opened, &why), OK);
    knot = opened.knot;
    file_bytes = knot.file_bytes;
    file = opened.map;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    knot_file_close(&opened);
    places_remove(folder);
    return 0;
}

static WardenLevels *open_levels(Store *store, uint64_t budget, const char *directory)
{
    Why why;
    WardenLevels *l;
    WardenLevelsOptions options = {.identity = {knot.id, false, 0, shape.layers * PHASES},
                                   .store = store,
                                   .object = "a.knot",
                                   .budget_bytes = budget,
                                   .tables_bytes_max = TABLES_BYTES_MAX,
                                   .directory = directory};
    if (warden_levels_open(&options, &l, &why) != OK) fail_msg("%s", why.text);
    return l;
}

static Store *open_store(void)
{
    Why why;
    Store *store;
    assert_int_equal(store_open(folder, &store, &why), OK);
    return store;
}

static uint64_t dice(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return hash_mix64(*state);
}

static bool read_is_right(WardenLevels *l, uint64_t random, uint8_t *buffer)
{
    Why why;
    WardenLater later = {0};
    uint64_t bytes = 1 + random % READ_MAX, at = (random >> 24) % file_bytes;
    if (bytes > file_bytes - at) bytes = file_bytes - at;
    Error e = warden_levels_read_file(l, at, bytes, buffer, &later, &why);
    warden_levels_settle(l, &later);
    return e == OK && memcmp(buffer, file + at, (size_t)bytes) == 0;
}

static void any_range_is_right(void **state)
{
    (void)state;
    uint8_t *buffer = malloc(READ_MAX);
    Store *store = open_store();
    assert_true(file_bytes > 4 * (uint64_t)WARDEN_SLAB_BYTES);
    for (uint32_t room = 0; room <= 8; room += 2)
        for (int disk = 0; disk < 2; disk++) {
            char directory[128];
            uint64_t seed = room * 2 + (uint64_t)disk;
            (void)snprintf(directory, sizeof directory, "%s/l2-%u", folder, room);
            WardenLevels *l =
                open_levels(store, (uint64_t)room * WARDEN_SLAB_BYTES, disk ? directory : "");
            for (int i = 0; i < 25; i++) assert_true(read_is_right(l, dice(&seed), buffer));
            WardenLevelsCounters c = warden_levels_counters(l);
            assert_true(c.memory.held_bytes <= (uint64_t)room * WARDEN_SLAB_BYTES);
            assert_int_equal(c.memory.bad + c.disk.bad + c.store_bad, 0);
            assert_int_equal(c.memory.hits > 0, room > 0);
            if (disk && room < 4) assert_true(c.disk.hits > 0);
            warden_levels_close(l);
        }
    store_close(store);
    free(buffer);
}

typedef struct Crowd {
    WardenLevels *levels;
    int memory; /* of the levels, found among our own descriptors */
    const char *directory;
    atomic_int wrong;
    atomic_uint next;
} Crowd;

/* Spoils a byte that no header or table has; a read that is under way may see it, and must notice. */
static void spoil(Crowd *c, uint64_t random)
{
    uint64_t at = knot.payload_offset + random % (knot.tokenizer.offset);
    uint8_t byte;
    if (c->memory >= 0 && pread(c->memory, &byte, 1, (off_t)at) == 1) {
        byte ^= 0x20;
        (void)!pwrite(c->memory, &byte, 1, (off_t)at);
    }
}

static void *reader(void *context)
{
    Crowd *c = context;
    uint8_t *buffer = malloc(READ_MAX);
    uint64_t seed = atomic_fetch_add(&c->next, 1) * 1000003;
    for (int i = 0; i < 40; i++) {
        uint64_t random = dice(&seed);
        if (random % 7 == 0)
            warden_levels_forget(c->levels, random % knot.tokenizer.offset, 1 + random % 1000);
        else if (random % 7 == 1) spoil(c, random >> 8);
        else if (!read_is_right(c->levels, random, buffer)) atomic_fetch_add(&c->wrong, 1);
    }
    free(buffer);
    return NULL;
}

static int find_memory_file(void)
{
    for (int fd = 3; fd < 64; fd++) {
        char name[64], target[256];
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, target, sizeof target - 1);
        if (n > 0 && (target[n] = '\0', strstr(target, "cobord-warden"))) return fd;
    }
    return -1;
}

static void a_crowd_reads_right_bytes(void **state)
{
    (void)state;
    Store *store = open_store();
    for (uint64_t room = 1; room <= 5; room += 2) {
        char directory[128];
        pthread_t threads[THREADS];
        (void)snprintf(directory, sizeof directory, "%s/crowd", folder);
        Crowd c = {.levels = open_levels(store, room * WARDEN_SLAB_BYTES, directory)};
        c.memory = find_memory_file();
        assert_true(c.memory >= 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, reader, &c), 0);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&c.wrong), 0);
        assert_true(warden_levels_counters(c.levels).memory.held_bytes <= room * WARDEN_SLAB_BYTES);
        warden_levels_close(c.levels);
    }
    store_close(store);
}

static void count_beat(void *context) { ++*(int *)context; }

static void shared_memory_is_whole_and_sealed(void **state)
{
    (void)state;
    Why why;
    int fd, beats = 0;
    Store *store = open_store();
    WardenLevels *small = open_levels(store, 2 * WARDEN_SLAB_BYTES, "");
    assert_int_equal(warden_levels_share(small, count_beat, &beats, &fd, &why), ERR_CAPACITY);
    warden_levels_close(small);
    WardenLevels *l = open_levels(store, file_bytes + WARDEN_SLAB_BYTES, "");
    assert_int_equal(warden_levels_share(l, count_beat, &beats, &fd, &why), OK);
    assert_true(pwrite(fd, "x", 1, 100000) < 0);
    assert_true(beats > 4);
    uint8_t *copy = malloc((size_t)file_bytes);
    assert_int_equal(pread(fd, copy, (size_t)file_bytes, 0), file_bytes);
    for (uint32_t i = 0; i < knot.tensor_count; i++) {
        const KnotTensor *t = &knot.tensors[i];
        uint64_t at = knot.payload_offset + t->offset;
        if (strncmp(t->name, "blk_", 4) == 0)
            assert_memory_equal(copy + at, file + at, (size_t)t->bytes);
    }
    assert_memory_equal(copy, file, (size_t)knot.payload_offset);
    warden_levels_forget(l, knot.tensors[5].offset, knot.tensors[5].bytes);
    assert_int_equal(warden_levels_share(l, count_beat, &beats, &fd, &why),
                     ERR_CAPACITY); /* not whole any more */
    assert_true(read_is_right(l, 12345678901, copy));
    free(copy);
    warden_levels_close(l);
    store_close(store);
}

/* ---- tables ---- */

typedef struct Bytes {
    const uint8_t *data;
    uint64_t bytes, spoiled,
        lies; /* at `spoiled` one bit is wrong, the first `lies` times it is read */
} Bytes;

static Error bytes_size(void *context, uint64_t *bytes, Why *why)
{
    (void)why;
    *bytes = ((Bytes *)context)->bytes;
    return OK;
}

static Error bytes_read(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    Bytes *b = context;
    if (offset > b->bytes || bytes > b->bytes - offset)
        return error_why(why, ERR_IO, "beyond the end");
    memcpy(out, b->data + offset, (size_t)bytes);
    if (b->spoiled >= offset && b->spoiled - offset < bytes && b->lies) {
        out[b->spoiled - offset] ^= 1;
        b->lies--;
    }
    return OK;
}

static Error open_index_within(Bytes *b, uint64_t id, uint64_t bytes_max)
{
    Why why;
    KnotIndex index;
    KnotSource source = {bytes_size, bytes_read, b};
    Error e = knot_source_open(&source, id, bytes_max, &index, &why);
    if (e == OK) knot_source_close(&index);
    return e;
}

static Error open_index(Bytes *b, uint64_t id)
{
    return open_index_within(b, id, TABLES_BYTES_MAX);
}

static void tables_are_checked(void **state)
{
    (void)state;
    Bytes good = {file, file_bytes, UINT64_MAX, 0};
    assert_int_equal(open_index(&good, knot.id), OK);
    assert_int_equal(open_index(&good, knot.id + 1), ERR_UNSUPPORTED);
    for (uint64_t room = 0; room < 64 << 10; room += 1000)
        assert_int_equal(open_index_within(&good, knot.id, room), ERR_TOO_LARGE);
    uint64_t payload = knot.payload_offset;
    const KnotSection sections[] = {knot.embedding_row_hashes, knot.block_hashes,
                                    knot.tensor_hashes};
    for (int i = 0; i < 3; i++)
        for (uint64_t at = 0; at < sections[i].bytes; at += sections[i].bytes / 5 + 1) {
            Bytes bad = {file, file_bytes, payload + sections[i].offset + at, UINT64_MAX};
            assert_int_equal(open_index(&bad, knot.id), ERR_CHECKSUM);
        }
    for (uint64_t at = 0; at < 3000; at += 37) {
        Bytes bad = {file, file_bytes, at, UINT64_MAX};
        assert_int_not_equal(open_index(&bad, knot.id), OK);
    }
    Bytes stale = {file, file_bytes, payload + knot.tensor_hashes.offset,
                   1}; /* wrong once: read again */
    assert_int_equal(open_index(&stale, knot.id), OK);
    for (uint64_t bytes = 0; bytes < file_bytes; bytes += file_bytes / 50) {
        Bytes cut = {file, bytes, UINT64_MAX, 0};
        assert_int_not_equal(open_index(&cut, knot.id), OK);
    }
}

static void version_1_has_no_hashes(void **state)
{
    (void)state;
    char old[128];
    KnotFile f;
    Why why;
    (void)snprintf(old, sizeof old, "%s/old.knot", folder);
    make_knot(1, old);
    assert_int_equal(knot_file_open(old, &f, &why), OK);
    Bytes b = {f.map, f.knot.file_bytes, UINT64_MAX, 0};
    assert_int_equal(open_index(&b, f.knot.id), ERR_UNSUPPORTED);
    knot_file_close(&f);
}

/* ---- rows ---- */

static void rows_are_right(void **state)
{
    (void)state;
    enum { ROWS = 300 };
    Why why;
    Store *store = open_store();
    WardenLevels *l = open_levels(store, 0, "");
    WardenVocab *v;
    WardenVocabOptions options = {100, 1900, 20000, ""};
    assert_int_equal(warden_vocab_open(&options, l, &v, &why), OK);
    const KnotTensor *t = warden_vocab_tensor(v);
    size_t row_bytes = (size_t)(t->bytes / t->rows);
    WardenVocabRow rows[ROWS];
    uint8_t *room = malloc((size_t)ROWS * t->cols * sizeof(float));
    uint64_t seed = 5;
    for (int pass = 0; pass < 20; pass++) {
        uint32_t count = (uint32_t)(dice(&seed) % ROWS);
        for (uint32_t i = 0; i < count; i++) rows[i].id = 100 + (uint32_t)(dice(&seed) % 1800);
        assert_int_equal(warden_vocab_read(v, rows, count, room, &why), OK);
        for (uint32_t i = 0; i < count; i++)
            assert_memory_equal(rows[i].bytes,
                                file + knot.payload_offset + t->offset + rows[i].id * row_bytes,
                                row_bytes);
        warden_vocab_settle(v);
        if (count) warden_vocab_forget(v, rows[0].id);
    }
    WardenVocabCounters c = warden_vocab_counters(v);
    assert_true(c.memory.hits > 0 && c.memory.evictions > 0 && c.memory.held_bytes <= 20000);
    assert_int_equal(c.memory.misses, c.store_rows);
    free(room);
    warden_vocab_close(v);
    warden_levels_close(l);
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_is_right),
        cmocka_unit_test(a_crowd_reads_right_bytes),
        cmocka_unit_test(shared_memory_is_whole_and_sealed),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(version_1_has_no_hashes),
        cmocka_unit_test(rows_are_right),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
