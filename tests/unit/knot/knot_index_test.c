/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a knot whose bytes are elsewhere: what it asks for, what it refuses, what it knows. Damage to its tables
 * over a larger file is in unit/host/warden_levels_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "knot/knot_index.h"
#include "tiny_knot.h"

static TinyKnot file;
static uint64_t file_id;

static int setup(void **state)
{
    (void)state;
    Tiny t;
    Why why = {""};
    tiny_model(&t, BLOCK_Q8_0, false);
    Error e = tiny_encode(t.bytes, t.used, 2, &file, &why);
    tiny_free(&t);
    TinyParsed p;
    if (e || tiny_knot_parse(file.bytes, file.used, file.used, &p) != OK) return -1;
    file_id = p.knot.id;
    tiny_parsed_free(&p);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(file.bytes);
    return 0;
}

static void close_index(KnotIndex *x)
{
    free(x->header);
    free(x->row_hashes);
    free(x->block_hashes);
    free(x->tensor_hashes);
    free(x->memory);
}

/* One need; a bit of the file's byte `spoiled` is wrong `*lies` times. Counts the bytes read. */
static Error bring(KnotIndexOpening *o, const KnotIndexNeed *need, size_t spoiled, int *lies,
                   uint64_t *read)
{
    assert_true(need->offset <= file.used && need->bytes <= file.used - need->offset);
    uint8_t *memory = need->memory_bytes
                          ? realloc(need->grows ? o->index->header : NULL, need->memory_bytes)
                          : NULL;
    uint8_t *scratch = malloc(need->scratch_bytes ? need->scratch_bytes : 1);
    uint8_t *to = need->into_scratch ? scratch : memory + need->at;
    if (need->bytes) memcpy(to, file.bytes + need->offset, (size_t)need->bytes);
    /* not in the probe, which may have all of a small file */
    if (need->offset && spoiled >= need->offset && spoiled - need->offset < need->bytes && *lies) {
        to[spoiled - need->offset] ^= 1;
        --*lies;
    }
    *read += need->bytes;
    Error e = knot_index_give(o, memory, scratch, NULL);
    free(scratch);
    return e;
}

static Error open_index(uint64_t id, size_t spoiled, int lies, KnotIndex *out)
{
    KnotIndexNeed need;
    uint64_t read = 0;
    KnotIndexOpening o = knot_index_start(id, file.used, out);
    Error e = OK;
    while (e == OK && knot_index_need(&o, &need)) e = bring(&o, &need, spoiled, &lies, &read);
    assert_true(read < 4 * (uint64_t)file.used);
    return e;
}

static void opens_and_knows_hashes(void **state)
{
    (void)state;
    KnotIndex x;
    assert_int_equal(open_index(file_id, SIZE_MAX, 0, &x), OK);
    const KnotTensor *t = knot_find(&x.knot, "token_embd_weight");
    const uint8_t *rows = file.bytes + x.knot.payload_offset + t->offset;
    size_t row_bytes = (size_t)(t->bytes / t->rows);
    uint64_t hash;
    assert_true(knot_index_row_hash(&x, 3, &hash));
    assert_true(hash == hash_xxh64(rows + 3 * row_bytes, row_bytes));
    assert_false(knot_index_row_hash(&x, t->rows, &hash));
    assert_true(knot_index_tensor_hash(&x, t, &hash));
    assert_true(hash == hash_xxh64(rows, (size_t)t->bytes));
    close_index(&x);
    assert_int_equal(open_index(file_id + 1, SIZE_MAX, 0, &x), ERR_UNSUPPORTED);
    close_index(&x);
}

static void stale_tensor_hashes_are_read_again(void **state)
{
    (void)state;
    KnotIndex x;
    assert_int_equal(open_index(file_id, SIZE_MAX, 0, &x), OK);
    size_t at = (size_t)(x.knot.payload_offset + x.knot.tensor_hashes.offset);
    size_t rows = (size_t)(x.knot.payload_offset + x.knot.embedding_row_hashes.offset);
    close_index(&x);
    assert_int_equal(open_index(file_id, at, KNOT_INDEX_READS_MAX - 1, &x), OK);
    close_index(&x);
    assert_int_equal(open_index(file_id, at, KNOT_INDEX_READS_MAX, &x), ERR_CHECKSUM);
    close_index(&x);
    assert_int_equal(open_index(file_id, rows, 1, &x), ERR_CHECKSUM);
    close_index(&x);
}

/* Whatever range of the file: what is known is there, the rest is named and lies before the block hashes. */
static void copies_what_it_knows(void **state)
{
    (void)state;
    KnotIndex x;
    assert_int_equal(open_index(file_id, SIZE_MAX, 0, &x), OK);
    uint8_t *out = malloc(file.used);
    const size_t edges[] = {0,
                            1,
                            x.header_bytes - 1,
                            x.header_bytes,
                            (size_t)x.knot.payload_offset - 1,
                            (size_t)x.knot.payload_offset,
                            (size_t)x.knot.payload_offset + 100,
                            (size_t)(x.knot.payload_offset + x.knot.block_hashes.offset) - 1,
                            (size_t)(x.knot.payload_offset + x.knot.block_hashes.offset),
                            file.used - 1,
                            file.used};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    for (int i = 0; i < EDGES; i++)
        for (int j = i; j < EDGES; j++) {
            size_t bytes = edges[j] - edges[i];
            KnotIndexRest rest;
            memset(out, 0xee, file.used);
            knot_index_copy(&x, edges[i], bytes, out, &rest);
            assert_true(rest.offset + rest.bytes <= x.knot.block_hashes.offset);
            if (rest.bytes)
                memcpy(out + rest.at, file.bytes + x.knot.payload_offset + rest.offset,
                       (size_t)rest.bytes);
            assert_memory_equal(out, file.bytes + edges[i], bytes);
            if (bytes < file.used) assert_int_equal(out[bytes], 0xee);
        }
    free(out);
    close_index(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_and_knows_hashes),
        cmocka_unit_test(stale_tensor_hashes_are_read_again),
        cmocka_unit_test(copies_what_it_knows),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
