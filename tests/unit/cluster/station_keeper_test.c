/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions in rows: whenever the instance goes, what comes back is what the coordinator was told,
 * or less of it, and never anything else. */
#include "tiny_station.h"

#include "cluster/station_keeper.h"

enum { STORE_MAX = 1024, NAMES = 9, ROW_POSITIONS = 10, STEPS = 300 };

/* ---- The object's table ---- */

typedef struct StoredRow {
    uint64_t session;
    uint32_t number;
    uint64_t bytes;
    uint8_t *data;
} StoredRow;

static StoredRow store[STORE_MAX];
static uint32_t stored;

static void drop_row(uint32_t i)
{
    free(store[i].data);
    store[i] = store[--stored];
}

static void delete_rows(uint64_t session, uint32_t number)
{
    for (uint32_t i = stored; i-- > 0;)
        if (store[i].session == session && store[i].number >= number) drop_row(i);
}

static void put_row(const StationKeeperRow *row, const uint8_t *data)
{
    for (uint32_t i = stored; i-- > 0;)
        if (store[i].session == row->session && store[i].number == row->number) drop_row(i);
    assert_true(stored < STORE_MAX);
    store[stored] = (StoredRow){row->session, row->number, row->bytes, malloc(row->bytes)};
    memcpy(store[stored++].data, data, row->bytes);
}

static int by_key(const void *a, const void *b)
{
    const StoredRow *x = a, *y = b;
    char k[2][STATION_KEEPER_KEY_BYTES];
    station_keeper_key(x->session, k[0]);
    station_keeper_key(y->session, k[1]);
    int order = strcmp(k[0], k[1]);
    return order ? order : x->number < y->number ? -1 : 1;
}

static void empty_store(void)
{
    while (stored) drop_row(stored - 1);
}

/* ---- A station with a keeper ---- */

typedef struct Rig {
    TinyModel model;
    Node node;
    StationKeeper *keeper;
    StationKeeperTerms terms;
    void *memory;
    uint8_t *row;
    size_t position_bytes;
} Rig;

static void rig_start(Rig *r, const NodeShape *shape, PhaseRange range)
{
    Why why = {{0}};
    node_open(&r->node, &r->model, range, shape);
    r->position_bytes = (size_t)station_position_bytes(r->node.station);
    r->terms = (StationKeeperTerms){.knot_id = KNOT_ID,
                                    .cache = shape->cache,
                                    .range = range,
                                    .context = CONTEXT,
                                    .row_bytes_max = STATION_KEEPER_HEADER_BYTES +
                                                     ROW_POSITIONS * r->position_bytes + 5};
    size_t bytes = (size_t)station_keeper_bytes(&r->terms, shape->sessions);
    r->memory = malloc(bytes);
    r->row = malloc((size_t)r->terms.row_bytes_max);
    Arena arena = arena_make(r->memory, bytes);
    StationSessions *table = station_service_table(r->node.service);
    assert_int_equal(
        station_keeper_build(&r->terms, r->node.station, table, &arena, &r->keeper, &why), OK);
    qsort(store, stored, sizeof *store, by_key);
    for (uint32_t i = 0; i < stored; i++)
        (void)!station_keeper_restore(r->keeper, store[i].data, store[i].bytes, &why);
    for (uint64_t lost; station_keeper_lost(r->keeper, &lost);) delete_rows(lost, 0);
}

static void rig_stop(Rig *r)
{
    node_close(&r->node);
    free(r->memory);
    free(r->row);
}

static void cut_all(Rig *r)
{
    StationKeeperRow row;
    while (station_keeper_cut(r->keeper, &row)) delete_rows(row.session, row.number);
}

/* At most `most` rows. */
static void put_some(Rig *r, uint32_t most)
{
    StationKeeperRow row;
    for (uint32_t i = 0; i < most && station_keeper_put(r->keeper, r->row, &row); i++) {
        assert_true(row.bytes <= r->terms.row_bytes_max);
        put_row(&row, r->row);
    }
}

static uint32_t slot_of(const Rig *r, uint64_t name)
{
    const StationSessions *t = station_service_table(r->node.service);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->slots[i].name == name) return i;
    return UINT32_MAX;
}

/* ---- What the coordinator was told ---- */

typedef struct Told {
    uint32_t length;
    uint8_t *positions; /* [CONTEXT] */
} Told;

static Told told[NAMES + 1];

static void tell_all(const Rig *r)
{
    for (uint64_t name = 1; name <= NAMES; name++) {
        uint32_t slot = slot_of(r, name);
        told[name].length = slot == UINT32_MAX ? 0 : station_length(r->node.station, slot);
        station_save(r->node.station, slot == UINT32_MAX ? 0 : slot, 0, told[name].length,
                     told[name].positions);
    }
}

static void check_all(const Rig *r, uint32_t *restored)
{
    uint8_t *has = malloc(CONTEXT * r->position_bytes + 1);
    for (uint64_t name = 1; name <= NAMES; name++) {
        uint32_t slot = slot_of(r, name);
        if (slot == UINT32_MAX) continue;
        uint32_t length = station_length(r->node.station, slot);
        assert_true(length && length <= told[name].length);
        station_save(r->node.station, slot, 0, length, has);
        assert_memory_equal(has, told[name].positions, length * r->position_bytes);
        *restored += length;
    }
    free(has);
}

/* ---- Any moment ---- */

static uint32_t seed;
static uint32_t any(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* A frame of one session: goes on, back a little, from the start, or as a copy. */
static Error any_frame(Rig *r, uint64_t request, Why *why)
{
    static float x[ROWS * TINY_HIDDEN];
    uint64_t name = 1 + any(NAMES), parent = 1 + any(NAMES);
    uint32_t slot = slot_of(r, name), from = slot_of(r, parent);
    uint32_t length = slot == UINT32_MAX ? 0 : station_length(r->node.station, slot);
    ForwardSequence q = {.session = name, .rows = 1 + any(any(3) ? 2 : ROWS)};
    q.position = any(3) ? length : any(length + 1);
    if (!any(5) && from != UINT32_MAX && parent != name) {
        q.parent = parent;
        q.parent_length = station_length(r->node.station, from);
        q.position = any(q.parent_length + 1);
    }
    return say(&r->node, request, &q, 1 + any(5), x, why);
}

static void whenever_it_goes(const NodeShape *shape, bool x16)
{
    Rig r;
    Why why;
    uint32_t crashes = 0, restored = 0;
    tiny_make(&r.model, x16, NULL);
    rig_start(&r, shape, whole(&r.model));
    for (int i = 1; i <= NAMES; i++) told[i] = (Told){0, malloc(CONTEXT * r.position_bytes)};
    for (uint64_t step = 1; step <= STEPS; step++) {
        uint32_t when = any(40); /* 0 before the cuts, 1 before the answer, 2 amid the puts */
        if (any(20) == 0) (void)station_service_drop(r.node.service, 1 + any(NAMES));
        else (void)!any_frame(&r, step, &why);
        if (when > 0) cut_all(&r);
        if (when > 1) {
            tell_all(&r);
            put_some(&r, when == 2 ? any(3) : UINT32_MAX);
        }
        if (when > 2) continue;
        rig_stop(&r);
        rig_start(&r, shape, whole(&r.model));
        check_all(&r, &restored);
        tell_all(&r); /* by a 409 or 410 it learns what is left */
        crashes++;
    }
    assert_true(crashes > STEPS / 20 && restored > 10 * crashes);
    for (int i = 1; i <= NAMES; i++) free(told[i].positions);
    rig_stop(&r);
    empty_store();
    tiny_free(&r.model);
}

static void nothing_else_comes_back(void **state)
{
    (void)state;
    static const NodeShape shapes[] = {
        {CACHE_F16, SESSIONS, BLOCKS}, {CACHE_Q8_0, SESSIONS, BLOCKS}, {CACHE_F16, 3, 6}};
    for (seed = 1; seed <= 3; seed++) {
        uint32_t kept = seed;
        whenever_it_goes(&shapes[kept - 1], kept & 1);
        seed = kept;
    }
}

/* ---- Rows that are of no use ---- */

static void say_rows(Rig *r, uint64_t session, uint32_t position, uint32_t rows, uint64_t request)
{
    static float x[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    ForwardSequence q = {.session = session, .position = position, .rows = rows};
    assert_int_equal(say(&r->node, request, &q, 3, x, &why), OK);
    cut_all(r);
    put_some(r, UINT32_MAX);
}

static void bad_rows_end_their_session(void **state)
{
    (void)state;
    Rig r;
    tiny_make(&r.model, true, NULL);
    for (uint32_t at = 0; at < 110; at++) {
        rig_start(&r, &usual, whole(&r.model));
        say_rows(&r, 5, 0, 3, 1);
        say_rows(&r, 6, 0, 2, 2);
        say_rows(&r, 6, 2, 2, 3);
        rig_stop(&r);
        qsort(store, stored, sizeof *store, by_key);
        store[2].data[at] ^= 1; /* the second row of session 6 */
        rig_start(&r, &usual, whole(&r.model));
        assert_int_equal(station_length(r.node.station, slot_of(&r, 5)), 3);
        bool name = at >= 32 && at < 40; /* its row is then another session's, and has a gap */
        assert_true((slot_of(&r, 6) != UINT32_MAX) == name);
        rig_stop(&r);
        empty_store();
    }
    tiny_free(&r.model);
}

static void rows_of_another_range_are_not_taken(void **state)
{
    (void)state;
    Rig r;
    Why why;
    tiny_make(&r.model, true, NULL);
    rig_start(&r, &usual, whole(&r.model));
    say_rows(&r, 5, 0, 3, 1);
    rig_stop(&r);
    rig_start(&r, &usual, (PhaseRange){0, 2 * PHASES});
    assert_int_equal(slot_of(&r, 5), UINT32_MAX);
    assert_int_equal(stored, 0);
    uint8_t few[8] = {0};
    assert_int_equal(station_keeper_restore(r.keeper, few, sizeof few, &why), ERR_FORMAT);
    rig_stop(&r);
    tiny_free(&r.model);
}

static void a_range_without_attention_keeps_lengths(void **state)
{
    (void)state;
    Rig r;
    tiny_make(&r.model, true, NULL);
    PhaseRange ffn = {phase_bound(1, PHASE_FFN_GATE), phase_bound(2, PHASE_ATTN)};
    rig_start(&r, &usual, ffn);
    assert_int_equal(r.position_bytes, 0);
    say_rows(&r, 5, 0, 7, 1);
    say_rows(&r, 5, 7, 2, 2);
    assert_int_equal(stored, 2);
    rig_stop(&r);
    rig_start(&r, &usual, ffn);
    assert_int_equal(station_length(r.node.station, slot_of(&r, 5)), 9);
    rig_stop(&r);
    empty_store();
    tiny_free(&r.model);
}

static void a_position_must_fit_a_row(void **state)
{
    (void)state;
    Rig r;
    Why why;
    tiny_make(&r.model, true, NULL);
    rig_start(&r, &usual, whole(&r.model));
    StationKeeperTerms small = r.terms;
    small.row_bytes_max = STATION_KEEPER_HEADER_BYTES + r.position_bytes - 1;
    StationKeeper *keeper;
    Arena arena = arena_make(r.memory, (size_t)station_keeper_bytes(&r.terms, usual.sessions));
    assert_int_equal(station_keeper_build(&small, r.node.station,
                                          station_service_table(r.node.service), &arena, &keeper,
                                          &why),
                     ERR_CAPACITY);
    rig_stop(&r);
    tiny_free(&r.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_else_comes_back),
        cmocka_unit_test(bad_rows_end_their_session),
        cmocka_unit_test(rows_of_another_range_are_not_taken),
        cmocka_unit_test(a_range_without_attention_keeps_lengths),
        cmocka_unit_test(a_position_must_fit_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
