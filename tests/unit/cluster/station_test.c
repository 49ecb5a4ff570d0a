/* SPDX-License-Identifier: Apache-2.0 */
/* A station gives the same bits however its phases are cut, tiled, chunked and batched, and
 * refuses frames that are wrong. */
#include "tiny_model.h"

#include "cluster/plan.h"

enum { TOKENS = 70, CONTEXT = 128 };

typedef struct Cut {
    const char *ranges;
    uint32_t chunk;
    uint64_t tile;
    CacheType cache;
    uint32_t sessions;
} Cut;

typedef struct Line {
    Station *station[16];
    uint32_t count;
    void *memory[16], *scratch;
    uint64_t loads, evictions;
} Line;

static StationConfig config_of(const TinyModel *t, const Cut *cut, PhaseRange range)
{
    return (StationConfig){.knot = &t->knot,
                           .hyper = &t->hyper,
                           .range = range,
                           .cache = cut->cache,
                           .rows_max = TOKENS,
                           .sessions_max = cut->sessions ? cut->sessions : 1,
                           .context = CONTEXT,
                           .blocks = (cut->sessions ? cut->sessions : 1) * 2,
                           .workers = 1,
                           .tile_bytes_max = cut->tile,
                           .kernels = kernels_for(ISA_SCALAR),
                           .ops = ops_for(ISA_SCALAR)};
}

static void line_open(Line *line, const TinyModel *t, const Cut *cut)
{
    PhaseRange ranges[16];
    Why why = {{0}};
    *line = (Line){0};
    assert_int_equal(phase_parse_ranges(cut->ranges, TINY_LAYERS, ranges, 16, &line->count, &why),
                     OK);
    line->scratch = malloc(8 << 20);
    for (uint32_t i = 0; i < line->count; i++) {
        StationConfig config = config_of(t, cut, ranges[i]);
        StationSizes sizes;
        assert_int_equal(station_sizes(&config, &sizes, &why), OK);
        assert_true(sizes.scratch_bytes <= 8 << 20);
        size_t bytes = (size_t)(sizes.floor_bytes + sizes.cache_bytes);
        line->memory[i] = malloc(bytes);
        memset(line->memory[i], 0xff, bytes); /* NaN wherever nothing was written */
        Arena arena = arena_make(line->memory[i], bytes);
        assert_int_equal(station_build(&config, &arena, line->scratch, &line->station[i], &why),
                         OK);
        for (uint32_t f = 0; f < station_floor_count(line->station[i]); f++) {
            float *to;
            const KnotTensor *v = station_floor_tensor(line->station[i], f, &to);
            memcpy(to, t->payload + v->offset, v->cols * sizeof(float));
        }
    }
}

static void line_close(Line *line)
{
    for (uint32_t i = 0; i < line->count; i++) free(line->memory[i]);
    free(line->scratch);
}

/* Drives one station over a frame; tiles are handed out as copies of exactly the bytes wished for. */
static Error drive(Line *line, Station *s, const TinyModel *t, const StationFrame *frame, Why *why)
{
    TRY(station_begin(s, frame, &parallel_serial, why));
    for (;;) {
        StationWish wish;
        station_next(s, &wish);
        if (wish.kind == STATION_DONE) return OK;
        line->loads += wish.kind == STATION_LOAD;
        line->evictions += wish.kind == STATION_EVICT;
        if (wish.kind != STATION_TILE) continue;
        uint8_t *copy = malloc((size_t)wish.bytes);
        memcpy(copy, t->payload + wish.offset, (size_t)wish.bytes);
        Error error = station_give(s, copy, &parallel_serial, why);
        free(copy);
        TRY(error);
    }
}

static Error forward(Line *line, const TinyModel *t, float *x, uint32_t rows,
                     const StationSequence *sequences, uint32_t count, Why *why)
{
    float *g = malloc(rows * TINY_FFN * sizeof(float) + 1);
    StationFrame frame = {
        .x = x, .g = g, .rows = rows, .sequences = sequences, .sequence_count = count};
    Error error = OK;
    for (uint32_t i = 0; error == OK && i < line->count; i++)
        error = drive(line, line->station[i], t, &frame, why);
    free(g);
    return error;
}

static void inputs(float *x, uint32_t rows, uint32_t seed)
{
    TinyMaker m = {.random = seed};
    for (uint32_t i = 0; i < rows * TINY_HIDDEN; i++)
        x[i] = (float)(tiny_random(&m) % 2001) * 1e-3f - 1.0f;
}

static void run_cut(const TinyModel *t, const Cut *cut, float *x)
{
    Line line;
    Why why = {{0}};
    line_open(&line, t, cut);
    inputs(x, TOKENS, 11);
    for (uint32_t at = 0; at < TOKENS; at += cut->chunk) {
        uint32_t rows = TOKENS - at < cut->chunk ? TOKENS - at : cut->chunk;
        StationSequence sequence = {0, at, rows, 0, 0};
        if (forward(&line, t, x + at * TINY_HIDDEN, rows, &sequence, 1, &why) != OK)
            fail_msg("%s", why.text);
    }
    uint32_t passes = (TOKENS + cut->chunk - 1) / cut->chunk;
    assert_int_equal(line.loads, passes * TINY_LAYERS * PHASES);
    assert_int_equal(line.evictions, line.loads);
    line_close(&line);
}

static void same_bits_for_every_cut(void **state)
{
    (void)state;
    static const Cut cuts[] = {
        {"0-3", 1, 0, CACHE_F16, 0},
        {"0-3", 7, 1, CACHE_F16, 0},
        {"0-1,1-3", 64, 20000, CACHE_F16, 0},
        {"0-1.ffn_gate,1.ffn_gate-1.ffn_up,1.ffn_up-1.ffn_down,1.ffn_down-2.attn,2.attn-end", 33,
         4096, CACHE_F16, 0},
    };
    for (int x16 = 0; x16 < 2; x16++) {
        TinyModel t;
        static float want[TOKENS * TINY_HIDDEN], got[TOKENS * TINY_HIDDEN];
        tiny_make(&t, x16, NULL);
        run_cut(&t, &(Cut){"0-3", TOKENS, 0, CACHE_F16, 0}, want);
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            run_cut(&t, &cuts[i], got);
            assert_memory_equal(got, want, sizeof want);
        }
        run_cut(&t, &(Cut){"0-3", 5, 0, CACHE_Q8_0, 0}, got);
        assert_memory_not_equal(got, want, sizeof want); /* the cache type is part of the numbers */
        tiny_free(&t);
    }
}

static void layouts_agree(void **state)
{
    (void)state;
    static float rows[TOKENS * TINY_HIDDEN], x16[TOKENS * TINY_HIDDEN];
    TinyModel t;
    tiny_make(&t, false, NULL);
    run_cut(&t, &(Cut){"0-3", 16, 0, CACHE_F16, 0}, rows);
    tiny_free(&t);
    tiny_make(&t, true, NULL);
    run_cut(&t, &(Cut){"0-3", 16, 0, CACHE_F16, 0}, x16);
    tiny_free(&t);
    assert_memory_equal(rows, x16, sizeof rows);
}

/* Three sequences of different length in one frame, against each alone. */
static void batches_do_not_change_bits(void **state)
{
    (void)state;
    enum { ROWS = 12 };
    static const StationSequence batch[] = {{0, 0, 3, 0, 0}, {1, 0, 5, 0, 0}, {2, 0, 4, 0, 0}};
    TinyModel t;
    Line line;
    Why why = {{0}};
    static float all[ROWS * TINY_HIDDEN], one[ROWS * TINY_HIDDEN];
    Cut cut = {"0-2,2-3", 1, 0, CACHE_F16, 3};
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &cut);
    inputs(all, ROWS, 5);
    assert_int_equal(forward(&line, &t, all, ROWS, batch, 3, &why), OK);
    line_close(&line);
    uint32_t row = 0;
    for (int i = 0; i < 3; i++) {
        line_open(&line, &t, &cut);
        inputs(one, ROWS, 5);
        StationSequence alone = {0, 0, batch[i].rows, 0, 0};
        assert_int_equal(
            forward(&line, &t, one + row * TINY_HIDDEN, batch[i].rows, &alone, 1, &why), OK);
        assert_memory_equal(one + row * TINY_HIDDEN, all + row * TINY_HIDDEN,
                            batch[i].rows * TINY_HIDDEN * sizeof(float));
        row += batch[i].rows;
        line_close(&line);
    }
    tiny_free(&t);
}

/* Rows that nobody asked for are left out of the last layer; those asked for keep their bits, and
 * so does the cache. */
static void unwanted_rows_change_nothing(void **state)
{
    (void)state;
    enum { ROWS = 40 };
    static const uint32_t wanted[] = {3, 4, 39};
    static float all[ROWS * TINY_HIDDEN], some[ROWS * TINY_HIDDEN], next[2][TINY_HIDDEN],
        g[ROWS * TINY_FFN];
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (int drop = 0; drop < 2; drop++) {
        Line line;
        float *x = drop ? some : all;
        line_open(&line, &t, &(Cut){"0-2,2-3", 1, 0, CACHE_F16, 1});
        assert_true(station_drops_unwanted(line.station[1]));
        assert_false(station_drops_unwanted(line.station[0]));
        inputs(x, ROWS, 17);
        StationSequence sequence = {0, 0, ROWS, 0, 0};
        StationFrame frame = {x, g, ROWS, &sequence, 1, drop ? wanted : NULL, 3};
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(drive(&line, line.station[i], &t, &frame, &why), OK);
        inputs(next[drop], 1, 18);
        assert_int_equal(
            forward(&line, &t, next[drop], 1, &(StationSequence){0, ROWS, 1, 0, 0}, 1, &why), OK);
        line_close(&line);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_memory_equal(some + i * TINY_HIDDEN, all + wanted[i] * TINY_HIDDEN,
                            TINY_HIDDEN * sizeof(float));
    assert_memory_equal(next[0], next[1], sizeof next[0]);
    tiny_free(&t);
}

/* A copy of the first positions goes on with the bits of its parent, and may take as many blocks. */
static void copies_go_on_like_their_parent(void **state)
{
    (void)state;
    enum { HELD = 70, MORE = 3 };
    static float x[HELD * TINY_HIDDEN], want[MORE * TINY_HIDDEN], got[MORE * TINY_HIDDEN];
    TinyModel t;
    Line line;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &(Cut){"0-3", 1, 0, CACHE_F16, 2}); /* two sessions of two blocks */
    Station *s = line.station[0];
    inputs(x, HELD, 3);
    assert_int_equal(forward(&line, &t, x, HELD, &(StationSequence){0, 0, HELD, 0, 0}, 1, &why),
                     OK);
    assert_int_equal(station_fork(s, 0, 1, HELD, &why), OK);
    assert_int_equal(station_length(s, 1), HELD);
    assert_int_equal(station_blocks_free(s), 0);
    assert_int_equal(station_fork(s, 0, 1, 64, &why), OK); /* shorter: a block goes back */
    assert_int_equal(station_length(s, 1), 64);
    assert_int_equal(station_blocks_free(s), 1);
    inputs(got, MORE, 4);
    assert_int_equal(forward(&line, &t, got, MORE, &(StationSequence){1, 64, MORE, 0, 0}, 1, &why),
                     OK);
    inputs(want, MORE, 4);
    assert_int_equal(forward(&line, &t, want, MORE, &(StationSequence){0, 64, MORE, 0, 0}, 1, &why),
                     OK);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(station_fork(s, 0, 1, 68, &why), ERR_POSITION);
    assert_non_null(strstr(why.text, "68 positions of session 0, which has 67"));
    assert_int_equal(station_fork(s, 0, 2, 1, &why), ERR_SESSION);
    assert_int_equal(station_fork(s, 1, 1, 1, &why), ERR_SESSION);
    assert_int_equal(station_fork(s, 0, 1, 0, &why), OK);
    assert_int_equal(station_length(s, 1), 0);
    line_close(&line);
    tiny_free(&t);
}

/* A frame in which sessions become copies of another's beginning, which goes on in the same frame; both then go on
 * with the bits of a session that never shared anything. */
static void frames_fork_sessions(void **state)
{
    (void)state;
    enum { HELD = 70, CUT = 66, MORE = 3 };
    static float x[HELD * TINY_HIDDEN], want[MORE * TINY_HIDDEN], got[3 * MORE * TINY_HIDDEN];
    static const StationSequence forks[] = {
        {1, CUT, MORE, true, 0}, {0, HELD, MORE, 0, 0}, {2, CUT, MORE, true, 0}};
    TinyModel t;
    Line line;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &(Cut){"0-2,2-3", 1, 0, CACHE_F16, 4});
    Station *s = line.station[0];
    inputs(x, HELD, 3);
    assert_int_equal(forward(&line, &t, x, HELD, &(StationSequence){0, 0, HELD, 0, 0}, 1, &why),
                     OK);
    inputs(x, HELD, 3);
    for (int i = 0; i < 3; i++) inputs(got + i * MORE * TINY_HIDDEN, MORE, 4);
    assert_int_equal(forward(&line, &t, got, 3 * MORE, forks, 3, &why), OK);
    assert_int_equal(station_length(s, 0), HELD + MORE);
    assert_int_equal(station_length(s, 1), CUT + MORE);
    for (int i = 0; i < 3; i++) { /* a session of its own for each, fresh */
        uint32_t held = i == 1 ? HELD : CUT;
        inputs(want, MORE, 4);
        assert_int_equal(forward(&line, &t, x, held, &(StationSequence){3, 0, held, 0, 0}, 1, &why),
                         OK);
        assert_int_equal(
            forward(&line, &t, want, MORE, &(StationSequence){3, held, MORE, 0, 0}, 1, &why), OK);
        assert_memory_equal(got + i * MORE * TINY_HIDDEN, want, sizeof want);
        inputs(x, HELD, 3);
    }
    line_close(&line);
    tiny_free(&t);
}

static void wrong_forks_are_refused(void **state)
{
    (void)state;
    static const StationSequence chain[] = {{1, 3, 1, true, 0}, {2, 3, 1, true, 1}};
    static const StationSequence swap[] = {{0, 3, 1, true, 1}, {1, 3, 1, true, 0}};
    static float x[4 * TINY_HIDDEN];
    TinyModel t;
    Line line;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &(Cut){"0-3", 1, 0, CACHE_F16, 3});
    inputs(x, 4, 3);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(forward(&line, &t, x, 4, &(StationSequence){i, 0, 4, 0, 0}, 1, &why), OK);
    inputs(x, 4, 3);
    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){2, 5, 1, true, 0}, 1, &why),
                     ERR_POSITION);
    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){2, 1, 1, true, 2}, 1, &why),
                     ERR_SESSION);
    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){2, 1, 1, true, 3}, 1, &why),
                     ERR_SESSION);
    assert_int_equal(forward(&line, &t, x, 2, chain, 2, &why), ERR_RANGE);
    assert_non_null(strstr(why.text, "session 2: its parent 1 becomes a copy in the same frame"));
    assert_int_equal(forward(&line, &t, x, 2, swap, 2, &why), ERR_RANGE);
    assert_int_equal(station_length(line.station[0], 1), 4);
    assert_int_equal(station_length(line.station[0], 2), 0);
    line_close(&line);
    tiny_free(&t);
}

/* Going back to an earlier position forgets what came after, and nothing else. */
static void positions_are_checked(void **state)
{
    (void)state;
    TinyModel t;
    Line line;
    Why why = {{0}};
    Cut cut = {"0-3", 1, 0, CACHE_F16, 2};
    static float x[10 * TINY_HIDDEN], again[10 * TINY_HIDDEN];
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &cut);
    inputs(x, 10, 3);
    assert_int_equal(forward(&line, &t, x, 10, &(StationSequence){0, 0, 10, 0, 0}, 1, &why), OK);
    assert_int_equal(station_length(line.station[0], 0), 10);
    inputs(again, 10, 3);
    assert_int_equal(
        forward(&line, &t, again + 4 * TINY_HIDDEN, 6, &(StationSequence){0, 4, 6, 0, 0}, 1, &why),
        OK);
    assert_memory_equal(again + 4 * TINY_HIDDEN, x + 4 * TINY_HIDDEN,
                        6 * TINY_HIDDEN * sizeof(float));

    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){0, 12, 1, 0, 0}, 1, &why),
                     ERR_POSITION);
    assert_non_null(strstr(why.text, "expected 10"));
    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){2, 0, 1, 0, 0}, 1, &why),
                     ERR_SESSION);
    assert_int_equal(forward(&line, &t, x, 2, &(StationSequence){1, 0, 1, 0, 0}, 1, &why),
                     ERR_RANGE);
    StationSequence twice[] = {{1, 0, 1, 0, 0}, {1, 1, 1, 0, 0}};
    assert_int_equal(forward(&line, &t, x, 2, twice, 2, &why), ERR_DUPLICATE);
    assert_int_equal(station_length(line.station[0], 0), 10);
    assert_int_equal(forward(&line, &t, x, 0, NULL, 0, &why), OK); /* no rows is legal and cheap */
    line_close(&line);
    tiny_free(&t);
}

static void capacity_is_checked(void **state)
{
    (void)state;
    TinyModel t;
    Line line;
    Why why = {{0}};
    Cut cut = {"0-3", 1, 0, CACHE_F16, 1};
    static float x[TOKENS * TINY_HIDDEN];
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &cut);
    inputs(x, TOKENS, 3);
    assert_int_equal(forward(&line, &t, x, TOKENS, &(StationSequence){0, 0, TOKENS, 0, 0}, 1, &why),
                     OK);
    inputs(x, TOKENS, 3);
    assert_int_equal(forward(&line, &t, x, CONTEXT - TOKENS,
                             &(StationSequence){0, TOKENS, CONTEXT - TOKENS, 0, 0}, 1, &why),
                     OK);
    assert_int_equal(station_blocks_free(line.station[0]), 0);
    assert_int_equal(forward(&line, &t, x, 1, &(StationSequence){0, CONTEXT, 1, 0, 0}, 1, &why),
                     ERR_CAPACITY);
    station_truncate(line.station[0], 0, 64);
    assert_int_equal(station_blocks_free(line.station[0]), 1);
    station_truncate(line.station[0], 0, 0);
    assert_int_equal(station_blocks_free(line.station[0]), 2);
    assert_int_equal(station_length(line.station[0], 0), 0);
    line_close(&line);
    tiny_free(&t);
}

static void faults_are_named(void **state)
{
    (void)state;
    TinyModel t;
    Line line;
    Why why = {{0}};
    Cut cut = {"0-3", 1, 0, CACHE_F16, 1};
    static float x[4 * TINY_HIDDEN];
    tiny_make(&t, true, NULL);
    line_open(&line, &t, &cut);
    inputs(x, 4, 3);
    x[TINY_HIDDEN + 5] = __builtin_nanf("");
    assert_int_equal(forward(&line, &t, x, 4, &(StationSequence){0, 0, 4, 0, 0}, 1, &why),
                     ERR_NOT_FINITE);

    const KnotTensor *up = knot_find(&t.knot, "blk_1_ffn_up_weight");
    uint8_t kept = t.payload[up->offset + 1];
    t.payload[up->offset + 1] = 0x7c; /* row 0's first scale becomes infinite or NaN */
    inputs(x, 4, 3);
    assert_int_equal(forward(&line, &t, x, 4, &(StationSequence){0, 0, 4, 0, 0}, 1, &why),
                     ERR_NOT_FINITE);
    assert_non_null(strstr(why.text, "layer 1, phase ffn_up, tensor blk_1_ffn_up_weight"));
    assert_int_equal(station_length(line.station[0], 0), 0);
    t.payload[up->offset + 1] = kept;
    inputs(x, 4, 3);
    assert_int_equal(forward(&line, &t, x, 4, &(StationSequence){0, 0, 4, 0, 0}, 1, &why), OK);
    line_close(&line);
    tiny_free(&t);

    tiny_make(&t, false, "blk_2_ffn_gate_weight");
    StationConfig config = config_of(&t, &cut, (PhaseRange){0, 12});
    StationSizes sizes;
    assert_int_equal(station_sizes(&config, &sizes, &why), ERR_MISSING_TENSOR);
    assert_non_null(strstr(why.text, "layer 2, phase ffn_gate: blk_2_ffn_gate_weight"));
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_every_cut),
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(batches_do_not_change_bits),
        cmocka_unit_test(unwanted_rows_change_nothing),
        cmocka_unit_test(copies_go_on_like_their_parent),
        cmocka_unit_test(frames_fork_sessions),
        cmocka_unit_test(wrong_forks_are_refused),
        cmocka_unit_test(positions_are_checked),
        cmocka_unit_test(capacity_is_checked),
        cmocka_unit_test(faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
