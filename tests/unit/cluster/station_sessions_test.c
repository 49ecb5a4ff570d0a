/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of a station: request ids that fence out late frames, room for new ones, copies; and
 * random frames against the rules of docs/format/frame.md, section 9. */
#include "tiny_station.h"

/* ---- Request ids ----------------------------------------------------------------------------- */

/* A frame is held up, its retry overtakes it, a rejected draft is cut away: the late twin is refused
 * and its rows are nowhere. */
static void late_twins_are_refused(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 2}, &usual);
    two_sessions(&n);
    static const ForwardSequence old[] = {{6, 0, 0, 0, 1}, {3, 0, 0, 4, 2}};
    Forward late = {11, FORWARD_VERIFY, ROWS_F32, 3, old, 2, NULL, 0};
    inputs(x, 3, 66);
    Body twin = body_of(&n.terms, &late, x, g);
    refused_field(&n, &twin, 32, 9, 8, ERR_SUPERSEDED); /* the id of the frame before */
    Body answer;
    assert_int_equal(serve(&n, &twin, &answer, &why), OK);
    free(answer.bytes);
    refused(&n, twin.bytes, twin.count, ERR_SUPERSEDED); /* the same bytes again */
    assert_int_equal(say(&n, 12, &(ForwardSequence){3, 0, 0, 4, 1}, 1, x, &why), OK);
    refused(&n, twin.bytes, twin.count, ERR_SUPERSEDED);
    assert_int_equal(say(&n, 13, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), OK);
    float got[TINY_HIDDEN];
    memcpy(got, x, sizeof got);
    Node fresh;
    node_open(&fresh, &t, (PhaseRange){0, 2}, &usual);
    assert_int_equal(say(&fresh, 1, &(ForwardSequence){3, 0, 0, 0, 6}, 1, x, &why), OK);
    assert_memory_equal(got, x + 5 * TINY_HIDDEN, sizeof got);
    free(twin.bytes);
    node_close(&fresh);
    node_close(&n);
    tiny_free(&t);
}

/* A refused frame's id does not count, also when only one of its sequences was at fault. */
static void ids_of_refused_frames_do_not_count(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    static const ForwardSequence q[] = {{4, 0, 0, 2, 1}, {3, 0, 0, 9, 1}};
    TinyModel t;
    Node n;
    Why why = {{0}};
    uint32_t rows;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &usual);
    two_sessions(&n);
    Forward f = {500, FORWARD_DECODE, ROWS_F32, 2, q, 2, NULL, 0};
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), ERR_POSITION);
    assert_int_equal(say(&n, 11, &(ForwardSequence){4, 0, 0, 2, 1}, 2, x, &why), OK);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), OK);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 6, 1}, 1, x, &why), ERR_SUPERSEDED);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Sessions come and go -------------------------------------------------------------------- */

static void least_recent_sessions_make_room(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    uint32_t rows;
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 3, 6});
    for (uint64_t s = 1; s <= 3; s++)
        assert_int_equal(say(&n, s, &(ForwardSequence){s, 0, 0, 0, 2}, 1, x, &why), OK);
    assert_int_equal(say(&n, 4, &(ForwardSequence){1, 0, 0, 2, 1}, 1, x, &why), OK);
    assert_int_equal(say(&n, 5, &(ForwardSequence){9, 0, 0, 0, 1}, 1, x, &why), OK); /* for 2 */
    assert_int_equal(station_service_sessions(n.service), 3);
    assert_int_equal(station_service_evictions(n.service), 1);
    assert_int_equal(say(&n, 6, &(ForwardSequence){2, 0, 0, 2, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 6, &(ForwardSequence){1, 0, 0, 3, 1}, 1, x, &why), OK);
    /* The least recent, 3, is named by the frame itself: 9 goes. */
    static const ForwardSequence q[] = {{3, 0, 0, 2, 1}, {12, 0, 0, 0, 1}};
    Forward f = {7, FORWARD_DECODE, ROWS_F32, 2, q, 2, NULL, 0};
    inputs(x, 2, 1);
    assert_int_equal(send(&n, &f, x, g, &rows, &why), OK);
    assert_int_equal(say(&n, 8, &(ForwardSequence){9, 0, 0, 1, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 8, &(ForwardSequence){1, 0, 0, 4, 1}, 1, x, &why), OK);
    /* An evicted session starts anew, with any request id. */
    assert_int_equal(say(&n, 1, &(ForwardSequence){2, 0, 0, 0, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* Blocks run out before slots do: what others left behind goes, what the frame needs stays. */
static void sessions_make_room_for_blocks(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, SESSIONS, 3});
    for (uint64_t s = 1; s <= 3; s++)
        assert_int_equal(say(&n, s, &(ForwardSequence){s, 0, 0, 0, 1}, 1, x, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 0);
    assert_int_equal(say(&n, 4, &(ForwardSequence){4, 0, 0, 0, 1}, 1, x, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 3);
    uint64_t request = 5;
    for (uint32_t at = 1; at < CONTEXT - ROWS; at += ROWS)
        assert_int_equal(say(&n, request++, &(ForwardSequence){4, 0, 0, at, ROWS}, 1, x, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 1);
    assert_int_equal(station_service_evictions(n.service), 3);
    /* A copy of 169 positions needs 3 blocks more, and its parent cannot go. */
    Snapshot before = snapshot(&n);
    assert_int_equal(say(&n, request, &(ForwardSequence){5, 4, 169, 169, 1}, 1, x, &why),
                     ERR_CAPACITY);
    assert_non_null(strstr(why.text, "3 blocks of 64 positions wanted, 0 can"));
    Snapshot after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(say(&n, request, &(ForwardSequence){4, 0, 0, 169, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

static void dropped_sessions_are_gone(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &usual);
    two_sessions(&n);
    assert_false(station_service_drop(n.service, 5));
    assert_false(station_service_drop(n.service, 0));
    assert_true(station_service_drop(n.service, 3));
    assert_false(station_service_drop(n.service, 3));
    assert_int_equal(station_service_sessions(n.service), 1);
    assert_int_equal(station_blocks_free(n.station), BLOCKS - 1);
    assert_int_equal(say(&n, 11, &(ForwardSequence){3, 0, 0, 5, 1}, 1, x, &why), ERR_SESSION);
    assert_int_equal(say(&n, 11, &(ForwardSequence){4, 0, 0, 2, 1}, 2, x, &why), OK);
    assert_int_equal(say(&n, 1, &(ForwardSequence){3, 0, 0, 0, 1}, 1, x, &why), OK);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static Error ask(Node *n, uint64_t request, const ForwardSequence *q, uint32_t count, Why *why)
{
    static float x[ROWS * TINY_HIDDEN], g[ROWS * TINY_FFN];
    uint32_t rows = 0, got;
    for (uint32_t i = 0; i < count; i++) rows += q[i].rows;
    Forward f = {request, FORWARD_PREFILL, ROWS_F32, rows, q, count, NULL, 0};
    inputs(x, rows, (uint32_t)request);
    return send(n, &f, x, g, &got, why);
}

/* Four chunks of 20 positions of session 1: two blocks of cache. */
static void long_session(Node *n)
{
    static float x[ROWS * TINY_HIDDEN];
    Why why = {{0}};
    for (uint32_t at = 0; at < 80; at += 20)
        assert_int_equal(say(n, at + 1, &(ForwardSequence){1, 0, 0, at, 20}, 3, x, &why), OK);
}

static void copies_have_the_bits_of_a_replay(void **state)
{
    (void)state;
    static const CacheType caches[] = {CACHE_F16, CACHE_Q8_0};
    static float got[ROWS * TINY_HIDDEN], want[ROWS * TINY_HIDDEN];
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (int c = 0; c < 2; c++) {
        Node n, fresh;
        NodeShape shape = {caches[c], SESSIONS, BLOCKS};
        node_open(&n, &t, whole(&t), &shape);
        node_open(&fresh, &t, whole(&t), &shape);
        long_session(&n);
        long_session(&fresh);
        /* The copy goes its own way from 70; the parent goes on from 80, unchanged. */
        assert_int_equal(say(&n, 90, &(ForwardSequence){2, 1, 75, 70, 4}, 8, got, &why), OK);
        assert_int_equal(say(&fresh, 90, &(ForwardSequence){1, 0, 0, 70, 4}, 8, want, &why), OK);
        assert_memory_equal(got, want, 4 * TINY_HIDDEN * sizeof(float));
        node_close(&fresh);
        node_open(&fresh, &t, whole(&t), &shape);
        long_session(&fresh);
        assert_int_equal(say(&n, 91, &(ForwardSequence){1, 0, 0, 80, 4}, 3, got, &why), OK);
        assert_int_equal(say(&fresh, 91, &(ForwardSequence){1, 0, 0, 80, 4}, 3, want, &why), OK);
        assert_memory_equal(got, want, 4 * TINY_HIDDEN * sizeof(float));
        /* Over a session that held something else. */
        assert_int_equal(say(&n, 92, &(ForwardSequence){2, 1, 82, 81, 3}, 3, got, &why), OK);
        assert_memory_equal(got, want + TINY_HIDDEN, 3 * TINY_HIDDEN * sizeof(float));
        node_close(&fresh);
        node_close(&n);
    }
    tiny_free(&t);
}

static void copies_are_made_before_rows(void **state)
{
    (void)state;
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 4, 8});
    long_session(&n);
    /* The parent is cut to 10 in the frame that copies its 80; two copies at once. */
    static const ForwardSequence q[] = {{1, 0, 0, 10, 1}, {2, 1, 80, 80, 1}, {3, 1, 64, 64, 0}};
    assert_int_equal(ask(&n, 100, q, 3, &why), OK);
    assert_int_equal(station_service_sessions(n.service), 3);
    assert_int_equal(station_blocks_free(n.station), 8 - 1 - 2 - 1);
    static const ForwardSequence next[] = {{1, 0, 0, 11, 1}, {2, 0, 0, 81, 1}, {3, 0, 0, 64, 1}};
    assert_int_equal(ask(&n, 101, next, 3, &why), OK);
    /* A copy of nothing is a new session. */
    static const ForwardSequence none[] = {{3, 2, 5, 0, 1}};
    assert_int_equal(ask(&n, 102, none, 1, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 8 - 1 - 2 - 1);
    node_close(&n);
    tiny_free(&t);
}

/* Five blocks: the parent's two, two of 2, one of 3. 3 grows by what 2 gives back. */
static void copies_give_their_blocks_back_first(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 4, 5});
    long_session(&n);
    assert_int_equal(say(&n, 90, &(ForwardSequence){2, 1, 70, 70, 1}, 1, x, &why), OK);
    assert_int_equal(say(&n, 91, &(ForwardSequence){3, 0, 0, 0, 1}, 1, x, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 0);
    static const ForwardSequence q[] = {{3, 1, 80, 80, 1}, {2, 1, 80, 10, 1}};
    assert_int_equal(ask(&n, 100, q, 2, &why), OK);
    assert_int_equal(station_blocks_free(n.station), 0);
    assert_int_equal(station_service_evictions(n.service), 0);
    node_close(&n);
    tiny_free(&t);
}

/* While the copy is made its parent still has the blocks that the same frame cuts away. */
static void copies_need_room_beside_their_parents(void **state)
{
    (void)state;
    static float x[ROWS * TINY_HIDDEN];
    static const ForwardSequence q[] = {{1, 0, 0, 10, 1}, {2, 1, 80, 80, 1}};
    TinyModel t;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    for (uint32_t blocks = 3; blocks <= 4; blocks++) {
        Node n;
        node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 4, blocks});
        long_session(&n);
        if (blocks == 4)
            assert_int_equal(say(&n, 90, &(ForwardSequence){3, 0, 0, 0, 1}, 1, x, &why), OK);
        Snapshot before = snapshot(&n);
        assert_int_equal(ask(&n, 100, q, 2, &why), blocks == 4 ? OK : ERR_CAPACITY);
        Snapshot after = snapshot(&n);
        if (blocks == 3) assert_memory_equal(&before, &after, sizeof before);
        else assert_int_equal(after.evictions, 1); /* 3 went, for a moment's need */
        node_close(&n);
    }
    tiny_free(&t);
}

static void wrong_copies_are_refused(void **state)
{
    (void)state;
    TinyModel t;
    Node n;
    Why why = {{0}};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, 2, 8});
    long_session(&n);
    Snapshot before = snapshot(&n);
    static const ForwardSequence unknown[] = {{2, 9, 4, 4, 1}}, longer[] = {{2, 1, 81, 80, 1}},
                                 chain[] = {{2, 1, 4, 4, 1}, {1, 2, 4, 4, 1}};
    assert_int_equal(ask(&n, 100, unknown, 1, &why), ERR_SESSION);
    assert_non_null(strstr(why.text, "its parent 9 is not known"));
    assert_int_equal(ask(&n, 100, longer, 1, &why), ERR_POSITION);
    assert_non_null(strstr(why.text, "81 positions of its parent 1, which has 80"));
    assert_int_equal(ask(&n, 100, chain, 2, &why), ERR_RANGE);
    Snapshot after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    static const ForwardSequence two[] = {{2, 1, 4, 4, 1}, {3, 1, 4, 4, 1}};
    assert_int_equal(ask(&n, 100, two, 2, &why), ERR_CAPACITY); /* and the parent must stay */
    after = snapshot(&n);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(ask(&n, 100, two, 1, &why), OK);
    assert_int_equal(ask(&n, 101, chain, 2, &why), ERR_RANGE);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Anything, against a model --------------------------------------------------------------- */

enum { NAMES = 9 };
typedef struct Known {
    bool there;
    uint32_t length;
    uint64_t request, used;
} Known;

/* What the rules of docs/format/frame.md say about one sequence without a parent. */
static Error expected(const Known *known, const ForwardSequence *q, uint64_t request)
{
    const Known *k = &known[q->session];
    if (k->there && request <= k->request) return ERR_SUPERSEDED;
    if (!k->there) return q->position > 0 ? ERR_SESSION : OK;
    return q->position > k->length ? ERR_POSITION : OK;
}

static uint32_t known_blocks(const Known *known)
{
    uint32_t blocks = 0;
    for (int i = 1; i < NAMES; i++) blocks += known[i].there ? (known[i].length + 63) / 64 : 0;
    return blocks;
}

static int known_count(const Known *known)
{
    int count = 0;
    for (int i = 1; i < NAMES; i++) count += known[i].there;
    return count;
}

/* The frame has passed: in the model too, one other session goes after the other. */
static void known_take(Known *known, const ForwardSequence *q, uint64_t request, uint64_t now,
                       int slots, uint32_t blocks)
{
    for (;;) {
        Known after[NAMES];
        memcpy(after, known, sizeof after);
        after[q->session] = (Known){true, q->position + q->rows, request, now};
        if (known_count(after) <= slots && known_blocks(after) <= blocks) {
            memcpy(known, after, sizeof after);
            return;
        }
        int best = 0;
        for (int i = 1; i < NAMES; i++)
            if (known[i].there && i != (int)q->session &&
                (!best || known[i].used < known[best].used))
                best = i;
        assert_int_not_equal(best, 0);
        known[best].there = false;
    }
}

static void random_frames_follow_the_rules(void **state)
{
    (void)state;
    enum { SLOTS = 4, FEW = 6, FRAMES = 1500 };
    static float x[ROWS * TINY_HIDDEN];
    TinyModel t;
    Node n;
    TinyMaker random = {.random = 4242};
    Known known[NAMES] = {{0}};
    int outcomes[4] = {0};
    tiny_make(&t, true, NULL);
    node_open(&n, &t, (PhaseRange){0, 1}, &(NodeShape){CACHE_F16, SLOTS, FEW});
    for (uint64_t i = 1; i <= FRAMES; i++) {
        Why why = {{0}};
        ForwardSequence q = {1 + tiny_random(&random) % (NAMES - 1), 0, 0, 0, 0};
        uint32_t length = known[q.session].there ? known[q.session].length : 0;
        q.position = tiny_random(&random) % 4 ? length : tiny_random(&random) % (length + 3);
        q.rows = tiny_random(&random) % 9;
        if (q.position + q.rows > CONTEXT) q.position = 0;
        uint64_t request = tiny_random(&random) % 8 ? 10 * i : 10 * (i - tiny_random(&random) % i);
        Error want = expected(known, &q, request), got = say(&n, request, &q, 1, x, &why);
        if (got != want) fail_msg("frame %d: %d, expected %d: %s", (int)i, got, want, why.text);
        if (want == OK) known_take(known, &q, request, i, SLOTS, FEW);
        outcomes[want == OK ? 0 : want == ERR_SUPERSEDED ? 1 : want == ERR_SESSION ? 2 : 3]++;
        assert_int_equal(station_service_sessions(n.service), known_count(known));
        assert_int_equal(FEW - station_blocks_free(n.station), known_blocks(known));
    }
    for (int i = 0; i < 4; i++) assert_true(outcomes[i] > 10);
    node_close(&n);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_twins_are_refused),
        cmocka_unit_test(ids_of_refused_frames_do_not_count),
        cmocka_unit_test(least_recent_sessions_make_room),
        cmocka_unit_test(sessions_make_room_for_blocks),
        cmocka_unit_test(dropped_sessions_are_gone),
        cmocka_unit_test(copies_have_the_bits_of_a_replay),
        cmocka_unit_test(copies_are_made_before_rows),
        cmocka_unit_test(copies_give_their_blocks_back_first),
        cmocka_unit_test(copies_need_room_beside_their_parents),
        cmocka_unit_test(wrong_copies_are_refused),
        cmocka_unit_test(random_frames_follow_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
