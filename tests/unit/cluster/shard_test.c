/* SPDX-License-Identifier: Apache-2.0 */
/* Shards: ranges, embeddings whose partials add up, and logits that do not depend on how the
 * vocabulary is cut. */
#include "tiny_model.h"

#include "cluster/shard.h"

enum { ROWS = 3 };

typedef struct Deck {
    Shard *shard[8];
    void *memory[8], *scratch;
    uint32_t count, length[8];
} Deck;

static void deck_open(Deck *d, const TinyModel *t, uint32_t count, uint64_t tile)
{
    Why why = {{0}};
    *d = (Deck){.count = count, .scratch = malloc(1 << 20)};
    for (uint32_t i = 0; i < count; i++) {
        ShardConfig c = {.knot = &t->knot,
                         .hyper = &t->hyper,
                         .rows_max = ROWS,
                         .workers = 1,
                         .tile_bytes_max = tile,
                         .kernels = kernels_for(ISA_SCALAR)};
        assert_int_equal(shard_range(TINY_VOCABULARY, count, i, &c.id_first, &c.id_last, &why), OK);
        d->length[i] = c.id_last - c.id_first;
        ShardSizes sizes;
        assert_int_equal(shard_sizes(&c, &sizes, &why), OK);
        assert_true(sizes.scratch_bytes <= 1 << 20);
        size_t bytes = (size_t)(sizes.floor_bytes + sizes.logits_bytes);
        d->memory[i] = malloc(bytes);
        Arena arena = arena_make(d->memory[i], bytes);
        assert_int_equal(shard_build(&c, &arena, d->scratch, &d->shard[i], &why), OK);
    }
}

static void deck_close(Deck *d)
{
    for (uint32_t i = 0; i < d->count; i++) free(d->memory[i]);
    free(d->scratch);
}

static Error drive(Shard *s, const TinyModel *t, Why *why)
{
    ShardWish wish;
    for (shard_next(s, &wish); wish.kind != SHARD_DONE; shard_next(s, &wish)) {
        uint8_t *copy = malloc((size_t)wish.bytes);
        memcpy(copy, t->payload + wish.offset, (size_t)wish.bytes);
        Error error = shard_give(s, copy, &parallel_serial, why);
        free(copy);
        TRY(error);
    }
    return OK;
}

static void ranges_meet(void **state)
{
    (void)state;
    static const uint32_t vocabularies[] = {1, 7, 151936, 32003, 128257},
                          counts[] = {1, 2, 3, 5, 7, 8};
    Why why = {{0}};
    for (size_t v = 0; v < 5; v++)
        for (size_t c = 0; c < 6; c++) {
            uint32_t expected = 0, first, last, longest = 0, shortest = UINT32_MAX;
            if (counts[c] > vocabularies[v]) {
                assert_int_equal(shard_range(vocabularies[v], counts[c], 0, &first, &last, &why),
                                 ERR_RANGE);
                continue;
            }
            for (uint32_t i = 0; i < counts[c]; i++) {
                assert_int_equal(shard_range(vocabularies[v], counts[c], i, &first, &last, &why),
                                 OK);
                assert_int_equal(first, expected);
                assert_true(last > first);
                if (i > 0)
                    assert_true(last - first <= shortest); /* the remainder goes to the first */
                if (last - first > longest) longest = last - first;
                if (last - first < shortest) shortest = last - first;
                expected = last;
            }
            assert_int_equal(expected, vocabularies[v]);
            assert_true(longest - shortest <= 1);
        }
    uint32_t first, last;
    assert_int_equal(shard_range(151936, 8, 3, &first, &last, &why), OK);
    assert_int_equal(first, 3 * 18992);
    assert_int_equal(shard_range(10, 0, 0, &first, &last, &why), ERR_RANGE);
}

static void embeddings_add_up(void **state)
{
    (void)state;
    static const uint32_t ids[] = {0, 300, 150, 37, 38, 300}, counts[] = {1, 2, 7, 8};
    enum { IDS = 6 };
    TinyModel t;
    Why why = {{0}};
    float want[TINY_HIDDEN], sum[IDS * TINY_HIDDEN], partial[IDS * TINY_HIDDEN];
    tiny_make(&t, true, NULL);
    const KnotTensor *table = knot_find(&t.knot, "token_embd_weight");
    for (size_t c = 0; c < 4; c++) {
        Deck d;
        deck_open(&d, &t, counts[c], 0);
        memset(sum, 0, sizeof sum);
        for (uint32_t i = 0; i < d.count; i++) {
            memset(partial, 0xff, sizeof partial);
            assert_int_equal(shard_begin_embed(d.shard[i], ids, IDS, partial, &why), OK);
            assert_int_equal(drive(d.shard[i], &t, &why), OK);
            shard_merge(sum, partial, IDS * TINY_HIDDEN);
        }
        for (int i = 0; i < IDS; i++) {
            assert_int_equal(block_dequantize_row(table->type,
                                                  t.payload + table->offset +
                                                      ids[i] * (table->bytes / TINY_ROWS),
                                                  TINY_HIDDEN, want, &why),
                             OK);
            for (int k = 0; k < TINY_HIDDEN; k++) assert_true(sum[i * TINY_HIDDEN + k] == want[k]);
        }
        uint32_t beyond = TINY_VOCABULARY; /* a padding row */
        assert_int_equal(shard_begin_embed(d.shard[0], &beyond, 1, partial, &why), ERR_RANGE);
        deck_close(&d);
    }
    tiny_free(&t);
}

/* What it says beforehand is what it asks for. */
static void wanted_rows_come_in_order(void **state)
{
    (void)state;
    static const uint32_t ids[] = {0, 300, 150, 37, 38, 300};
    enum { IDS = 6 };
    TinyModel t;
    Why why;
    float partial[IDS * TINY_HIDDEN];
    tiny_make(&t, true, NULL);
    const KnotTensor *table = knot_find(&t.knot, "token_embd_weight");
    Deck d;
    deck_open(&d, &t, 2, 0);
    for (uint32_t i = 0; i < d.count; i++) {
        uint32_t wanted[IDS];
        ShardWish wish;
        assert_int_equal(shard_begin_embed(d.shard[i], ids, IDS, partial, &why), OK);
        uint32_t count = shard_wanted_rows(d.shard[i], wanted, IDS), at = 0;
        assert_int_equal(shard_wanted_rows(d.shard[i], NULL, 0), count);
        for (shard_next(d.shard[i], &wish); wish.kind == SHARD_TILE;
             shard_next(d.shard[i], &wish)) {
            assert_int_equal(wish.row_first, wanted[at++]);
            const uint8_t *bytes =
                t.payload + table->offset + wish.row_first * (table->bytes / TINY_ROWS);
            assert_int_equal(shard_give(d.shard[i], bytes, &parallel_serial, &why), OK);
        }
        assert_int_equal(at, count);
        assert_int_equal(shard_wanted_rows(d.shard[i], NULL, 0), 0);
    }
    deck_close(&d);
    tiny_free(&t);
}

static void logits_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const struct {
        uint32_t count;
        uint64_t tile;
    } cuts[] = {{1, 0}, {2, 1}, {3, 5000}, {5, 0}, {7, 3000}, {8, 1}};
    static float hidden[ROWS * TINY_HIDDEN], want[ROWS][TINY_VOCABULARY];
    Why why = {{0}};
    TinyMaker random = {.random = 99};
    for (int i = 0; i < ROWS * TINY_HIDDEN; i++)
        hidden[i] = (float)(tiny_random(&random) % 2001) * 1e-3f - 1;
    for (int x16 = 0; x16 < 2; x16++) {
        TinyModel t;
        tiny_make(&t, x16, NULL);
        uint64_t sums[4];
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            Deck d;
            deck_open(&d, &t, cuts[c].count, cuts[c].tile);
            LogSum sum;
            logsum_start(&sum);
            uint32_t at = 0;
            for (uint32_t i = 0; i < d.count; i++) {
                assert_int_equal(shard_begin_logits(d.shard[i], hidden, ROWS, &why), OK);
                assert_int_equal(drive(d.shard[i], &t, &why), OK);
                for (int r = 0; r < ROWS; r++) {
                    const float *got = shard_logits(d.shard[i], (uint32_t)r);
                    if (c == 0 && x16 == 0) memcpy(want[r], got, d.length[i] * sizeof(float));
                    assert_memory_equal(got, want[r] + at, d.length[i] * sizeof(float));
                }
                shard_top(d.shard[i], 1, 0, NULL, &sum, 0.7f);
                at += d.length[i];
            }
            assert_int_equal(at, TINY_VOCABULARY);
            double log = logsum_log(&sum);
            uint64_t bits;
            memcpy(&bits, &log, sizeof bits);
            if (c == 0) sums[0] = bits;
            assert_int_equal(bits, sums[0]);
            assert_int_equal(shard_begin_logits(d.shard[0], hidden, ROWS + 1, &why), ERR_CAPACITY);
            assert_int_equal(shard_begin_logits(d.shard[0], hidden, 0, &why),
                             OK); /* zero rows are legal */
            ShardWish wish;
            shard_next(d.shard[0], &wish);
            assert_int_equal(wish.kind, SHARD_DONE);
            deck_close(&d);
        }
        tiny_free(&t);
    }
}

static void a_bad_head_row_is_named(void **state)
{
    (void)state;
    static float hidden[TINY_HIDDEN];
    TinyModel t;
    Deck d;
    Why why = {{0}};
    tiny_make(&t, false, NULL);
    for (int i = 0; i < TINY_HIDDEN; i++) hidden[i] = 1;
    const KnotTensor *head = knot_find(&t.knot, "output_weight");
    uint64_t row = head->bytes / TINY_ROWS;
    uint16_t nan = 0x7e00;
    memcpy(t.payload + head->offset + 200 * row + 208, &nan, 2);
    deck_open(&d, &t, 2, 0);
    assert_int_equal(shard_begin_logits(d.shard[1], hidden, 1, &why), OK);
    assert_int_equal(drive(d.shard[1], &t, &why), ERR_NOT_FINITE);
    assert_non_null(strstr(why.text, "id 200"));
    assert_int_equal(shard_begin_logits(d.shard[0], hidden, 1, &why), OK); /* the others go on */
    assert_int_equal(drive(d.shard[0], &t, &why), OK);
    deck_close(&d);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_meet),
        cmocka_unit_test(embeddings_add_up),
        cmocka_unit_test(wanted_rows_come_in_order),
        cmocka_unit_test(logits_do_not_depend_on_the_cut),
        cmocka_unit_test(a_bad_head_row_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
