/* SPDX-License-Identifier: Apache-2.0 */
/* Wardens of a WebAssembly instance, as native code: every answer is right or an error, whatever memory keeps, whatever
 * values are in the key-value store, and whichever wish of a request fails or brings wrong bytes. */
#include "warden_rig.h"

enum { MIB = 1 << 20, LAYER_FIXED = 10 * MIB, SHARD_FIXED = 15 * MIB };

static uint64_t dice_state = 11;
static uint64_t dice(uint64_t sides)
{
    dice_state += 0x9e3779b97f4a7c15u;
    return hash_mix64(dice_state) % sides;
}

static const uint8_t *bytes_of_file(uint64_t at) { return (const uint8_t *)rig.file.map + at; }

static const KnotTensor *tensor(const char *name)
{
    const KnotTensor *t = knot_find(&rig.file.knot, name);
    assert_non_null(t);
    return t;
}

/* --- plain bytes and tensors --- */

static bool ask_bytes(uint64_t first, uint64_t bytes)
{
    char query[64];
    (void)snprintf(query, sizeof query, "bytes=%llu-%llu", (unsigned long long)first,
                   (unsigned long long)(first + bytes - 1));
    (void)rig_ask("GET", "/knot", "", query, NULL, 0);
    return rig.status == 200;
}

static bool is_file(uint64_t first, uint64_t bytes)
{
    return rig.reply_bytes == bytes && memcmp(rig.reply, bytes_of_file(first), (size_t)bytes) == 0;
}

static void any_range_is_right(void **state)
{
    (void)state;
    uint64_t file = rig.file.knot.file_bytes;
    assert_true(file > 4 * (uint64_t)WARDEN_SLAB_BYTES);
    for (uint64_t slabs = 0; slabs <= 6; slabs += 2) {
        rig_open(false, "0", "end", LAYER_FIXED + slabs * WARDEN_SLAB_BYTES, false);
        assert_true(rig.opened);
        for (int i = 0; i < 60; i++) {
            uint64_t first = dice(file), bytes = 1 + dice(WARDEN_ANSWER_BYTES_MAX);
            if (bytes > file - first) bytes = file - first;
            assert_true(ask_bytes(first, bytes) && is_file(first, bytes));
        }
        WardenLevelsCounters c = node_warden_slabs_counters(&rig.node);
        assert_true(rig.taken <= rig.node.budget_bytes);
        assert_true(c.memory.held_bytes <= slabs * WARDEN_SLAB_BYTES);
        assert_int_equal(c.memory.hits > 0, slabs > 0);
        assert_int_equal(c.memory.bad + c.store_bad + c.store.failures, 0);
        assert_true(c.store.reads > 0);
    }
}

static void memory_turns_bad_and_is_read_again(void **state)
{
    (void)state;
    rig_open(false, "0", "end", LAYER_FIXED + 6 * WARDEN_SLAB_BYTES, false);
    NodeWarden *w = node_warden_of(&rig.node);
    assert_true(ask_bytes(rig.file.knot.payload_offset, 1000));
    w->slabs.memory[(size_t)w->slabs.place[0] * WARDEN_SLAB_BYTES + 50] ^= 1;
    assert_true(ask_bytes(rig.file.knot.payload_offset, 1000));
    assert_true(is_file(rig.file.knot.payload_offset, 1000));
    WardenLevelsCounters c = node_warden_slabs_counters(&rig.node);
    assert_int_equal(c.memory.bad, 1);
    assert_int_equal(c.store.reads, 2);
    assert_true(ask_bytes(rig.file.knot.payload_offset, 1000));
    assert_int_equal(node_warden_slabs_counters(&rig.node).store.reads, 2);
}

static AwfrTerms terms(uint32_t count)
{
    return (AwfrTerms){.identity = {rig.file.knot.id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &rig.file.knot,
                       .pieces_max = count,
                       .payload_bytes_max = 16 * MIB};
}

static AwfrPiece got[AWFR_PIECES_MAX];
static const uint8_t *payload;

/* The answer to `asked`, as a client reads it. */
static bool ask_pieces(AwfrPiece *asked, uint32_t count)
{
    static uint8_t header[FRAME_HEADER_BYTES_MAX];
    AwfrTerms t = terms(count);
    uint64_t bytes;
    uint32_t got_count;
    FrameHead head;
    assert_int_equal(awfr_lay_out(asked, count, &bytes, NULL), OK);
    size_t size = awfr_header_size(asked, count);
    awfr_write(FRAME_TENSORS, &t, 3, asked, count, header);
    (void)rig_ask("POST", "/tensors", "", "", header, size);
    if (rig.status != 200) return false;
    assert_int_equal(awfr_read(FRAME_TENSORS_ANSWER, rig.reply, rig.reply_bytes, &t, got,
                               &got_count, &head, NULL),
                     OK);
    payload = rig.reply + head.header_bytes;
    assert_int_equal(head.header_bytes + head.payload_bytes, rig.reply_bytes);
    assert_int_equal(awfr_check_answer(asked, count, got, got_count, NULL), OK);
    assert_int_equal(awfr_check_gaps(got, count, payload, NULL), OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(awfr_check_piece(&got[i], payload + got[i].at, NULL), OK);
    return true;
}

/* Piece `i` is the file's, or its row as float32. */
static void check_piece(uint32_t i)
{
    static float values[4096];
    const AwfrPiece *p = &got[i];
    const uint8_t *raw =
        bytes_of_file(rig.file.knot.payload_offset + knot_row_offset(p->tensor, p->row_first));
    const void *right = raw;
    if (p->as_f32) {
        assert_int_equal(block_dequantize_row(p->tensor->type, raw, p->tensor->cols, values, NULL),
                         OK);
        right = values;
    }
    assert_memory_equal(payload + p->at, right, (size_t)p->bytes);
}

static void tensors_are_the_files(void **state)
{
    (void)state;
    rig_open(false, "2", "6.ffn_up", LAYER_FIXED + 2 * WARDEN_SLAB_BYTES, false);
    AwfrPiece asked[] = {
        {.tensor = tensor("blk_2_attn_q_weight"), .row_first = 16, .row_count = 64},
        {.tensor = tensor("output_norm_weight"), .row_count = 1},
        {.tensor = tensor("blk_5_ffn_down_weight"), .row_first = 0, .row_count = 512}};
    for (int i = 0; i < 2; i++) {
        assert_true(ask_pieces(asked, 3));
        for (uint32_t p = 0; p < 3; p++) check_piece(p);
    }
    AwfrPiece other = {.tensor = tensor("blk_6_ffn_down_weight"), .row_count = 16};
    assert_false(ask_pieces(&other, 1));
    assert_int_equal(rig.error, ERR_RANGE);
    (void)rig_ask("GET", "/tensor/", "blk_3_attn_q_weight", "rows=0-16", NULL, 0);
    assert_int_equal(rig.status, 200);
    (void)rig_ask("GET", "/tensor/", "blk_3_attn_q", "", NULL, 0);
    assert_int_equal(rig.error, ERR_MISSING_TENSOR);
}

/* --- rows --- */

enum { ROWS = 150, MANY = 400 };
static AwfrPiece row_pieces[MANY];

static void choose_rows(uint32_t count)
{
    const KnotTensor *t = tensor("token_embd_weight");
    for (uint32_t i = 0; i < count; i++)
        row_pieces[i] =
            (AwfrPiece){.tensor = t, .row_first = 100 + (uint32_t)dice(1800), .row_count = 1};
}

static void check_rows(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) check_piece(i);
}

static void open_shard(uint64_t budget) { rig_open(true, "100", "1900", budget, true); }

static void rows_are_right_at_every_level(void **state)
{
    (void)state;
    for (uint64_t more = 0; more <= 8; more += 4) { /* no room for rows, then for some, for all */
        while (rig.value_count) rig_delete(rig.values[0].key);
        open_shard(SHARD_FIXED + more * MIB / 8);
        assert_true(rig.opened);
        for (int pass = 0; pass < 4; pass++) {
            choose_rows(ROWS);
            if (rig.value_count > RIG_VALUES_MAX - ROWS) break;
            assert_true(ask_pieces(row_pieces, ROWS));
            check_rows(ROWS);
            open_shard(rig.node.budget_bytes); /* memory is lost, values stay */
            assert_true(ask_pieces(row_pieces, ROWS));
            check_rows(ROWS);
            WardenVocabCounters c = node_warden_rows_counters(node_warden_of(&rig.node));
            assert_int_equal(c.rows.hits, ROWS);
            assert_int_equal(c.rows.bad + c.store_bad + c.rows.failures, 0);
            assert_true(rig.taken <= rig.node.budget_bytes);
        }
    }
}

static void memory_of_rows_is_used_and_checked(void **state)
{
    (void)state;
    open_shard(SHARD_FIXED + 8 * MIB);
    NodeWarden *w = node_warden_of(&rig.node);
    choose_rows(20);
    assert_true(ask_pieces(row_pieces, 20));
    uint64_t rows = node_warden_rows_counters(w).store_rows;
    uint8_t *held = (uint8_t *)(uintptr_t)warden_rows_get(w->rows.memory, row_pieces[0].row_first);
    assert_true(ask_pieces(row_pieces, 20));
    assert_int_equal(node_warden_rows_counters(w).store_rows, rows);
    held[3] ^= 1;
    assert_true(ask_pieces(row_pieces, 20));
    check_rows(20);
    assert_int_equal(node_warden_rows_counters(w).memory.bad, 1);
}

static void bad_values_are_found_and_replaced(void **state)
{
    (void)state;
    while (rig.value_count) rig_delete(rig.values[0].key);
    open_shard(SHARD_FIXED + 8 * MIB);
    for (uint32_t i = 0; i < 4; i++)
        row_pieces[i] = (AwfrPiece){
            .tensor = tensor("token_embd_weight"), .row_first = 200 + i, .row_count = 1};
    assert_true(ask_pieces(row_pieces, 4));
    assert_int_equal(rig.value_count, 4);
    char key[ROW_VALUE_KEY_BYTES];
    static uint8_t value[4 * 4096 + 16];
    for (uint32_t i = 0; i < 3; i++) {
        RigValue *v = rig_value(row_value_key(rig.file.knot.id, 200 + i, key));
        size_t length = v->length;
        memcpy(value, v->bytes, length);
        if (i == 0) value[9] ^= 1;
        rig_put(key, value, i == 1 ? length - 4 : i == 2 ? length + 1 : length);
    }
    open_shard(SHARD_FIXED + 8 * MIB);
    assert_true(ask_pieces(row_pieces, 4));
    check_rows(4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(got[i].as_f32, i == 3);
    WardenVocabCounters c = node_warden_rows_counters(node_warden_of(&rig.node));
    assert_int_equal(c.rows.bad, 3);
    assert_int_equal(c.rows.writes, 3);
    for (uint32_t i = 0; i < 4; i++) {
        const RigValue *v = rig_value(row_value_key(rig.file.knot.id, 200 + i, key));
        assert_true(row_value_is_good(v->bytes, v->length, 512));
    }
    (void)rig_ask("POST", "/invalidate/", "201", "", NULL, 0);
    assert_int_equal(rig.status, 200);
    assert_null(rig_value(row_value_key(rig.file.knot.id, 201, key)));
    assert_int_equal(rig.value_count, 3);
}

/* An invocation may not do more: the other rows come from the bucket, and are right. */
static void values_of_a_request_are_bounded(void **state)
{
    (void)state;
    while (rig.value_count) rig_delete(rig.values[0].key);
    for (uint32_t i = 0; i < MANY; i++)
        row_pieces[i] = (AwfrPiece){
            .tensor = tensor("token_embd_weight"), .row_first = 100 + i, .row_count = 1};
    for (uint32_t pass = 0; pass < 2; pass++) {
        open_shard(SHARD_FIXED);
        assert_true(ask_pieces(row_pieces, MANY));
        check_rows(MANY);
        WardenVocabCounters c = node_warden_rows_counters(node_warden_of(&rig.node));
        assert_int_equal(c.rows.hits + c.rows.misses, NODE_WARDEN_VALUES_MAX);
        assert_int_equal(c.rows.hits, pass ? NODE_WARDEN_VALUES_MAX : 0);
        assert_int_equal(c.rows.writes,
                         pass ? MANY - NODE_WARDEN_VALUES_MAX : NODE_WARDEN_VALUES_MAX);
    }
}

/* --- faults --- */

static void choose_rows_and_a_tile(void)
{
    for (uint32_t i = 0; i < 9; i++)
        row_pieces[i] = (AwfrPiece){
            .tensor = tensor("token_embd_weight"), .row_first = 200 + 7 * i, .row_count = 1};
    row_pieces[4] =
        (AwfrPiece){.tensor = tensor("output_weight"), .row_first = 112, .row_count = 32};
}

/* A cold node and one request, whose wish `at`, and `times` - 1 behind it, go wrong. Result  the wishes it had. */
static int meet_fault(RigFault fault, int at, int times)
{
    open_shard(SHARD_FIXED + 4 * MIB);
    rig_fault(fault, at, times);
    choose_rows_and_a_tile();
    bool good = ask_pieces(row_pieces, 9);
    int wishes = rig.wishes;
    if (good) check_rows(9);
    else assert_true(rig.error == ERR_UNREACHABLE || rig.error == ERR_CHECKSUM);
    assert_true(good || times > 1); /* one fault is mended */
    rig_fault(fault, 0, 0);
    assert_true(ask_pieces(row_pieces, 9));
    check_rows(9);
    return wishes;
}

/* Each wish fails, brings a wrong bit, or too little: once, then from there on all. */
static void every_fault_is_an_error_or_nothing(void **state)
{
    (void)state;
    for (int fault = 0; fault < RIG_FAULTS; fault++)
        for (int all = 0; all < 2; all++) {
            int wishes = 1;
            for (int at = 0; at < wishes && at < 60; at++) {
                if (at % 5 == 0) /* with and without values */
                    while (rig.value_count) rig_delete(rig.values[0].key);
                int had = meet_fault((RigFault)fault, at, all ? RIG_ALWAYS : 1);
                wishes = had > wishes ? had : wishes;
            }
            assert_true(wishes > 15);
        }
}

static void slabs_that_fail_are_not_kept(void **state)
{
    (void)state;
    uint64_t at = rig.file.knot.payload_offset;
    for (int fault = 0; fault < RIG_FAULTS; fault++) {
        rig_open(false, "0", "end", LAYER_FIXED + 2 * WARDEN_SLAB_BYTES, false);
        for (int i = 0; i < 5; i++) {
            rig_fault((RigFault)fault, 0, RIG_ALWAYS);
            assert_false(ask_bytes(at, 100));
            assert_int_equal(rig.error, fault == RIG_WRONG ? ERR_CHECKSUM : ERR_UNREACHABLE);
            assert_int_equal(rig.wishes, NODE_WARDEN_READS_MAX);
        }
        rig_fault((RigFault)fault, 0, NODE_WARDEN_READS_MAX - 1);
        assert_true(ask_bytes(at, 100) && is_file(at, 100));
        for (int i = 0; i < 40; i++) { /* no place was lost */
            uint64_t first = dice(rig.file.knot.file_bytes - 5000);
            rig_fault((RigFault)fault, (int)dice(2), (int)dice(5));
            if (ask_bytes(first, 5000)) assert_true(is_file(first, 5000));
            else assert_true(rig.fault_times >= NODE_WARDEN_READS_MAX);
        }
        NodeWardenSlabs *s = &node_warden_of(&rig.node)->slabs;
        uint32_t held = (uint32_t)((warden_counters(s->policy).held_bytes + WARDEN_SLAB_BYTES - 1) /
                                   WARDEN_SLAB_BYTES);
        assert_int_equal(s->spare_count + held, s->room);
    }
}

/* --- opening --- */

static void budgets_and_ranges_are_checked(void **state)
{
    (void)state;
    rig_open(false, "0", "end", 8 * MIB, false);
    assert_int_equal(rig.error, ERR_PLAN);
    assert_non_null(strstr(rig.why.text, "8 MiB"));
    rig_open(true, "100", "1900", 12 * MIB, false);
    assert_int_equal(rig.error, ERR_PLAN);
    static const char *const layers[][2] = {{"0", "9"}, {"3", "3"}, {"x", "end"}, {"", "end"}};
    for (int i = 0; i < 4; i++) {
        rig_open(false, layers[i][0], layers[i][1], 64 * MIB, false);
        assert_int_equal(rig.error, ERR_USAGE);
    }
    static const char *const ids[][2] = {{"5", "5"}, {"0", "9999"}, {"", "5"}};
    for (int i = 0; i < 3; i++) {
        rig_open(true, ids[i][0], ids[i][1], 64 * MIB, false);
        assert_int_equal(rig.error, ERR_USAGE);
    }
    rig_open(true, "0", "2000", 64 * MIB, false);
    assert_true(rig.opened);
}

static int tear_down(void **state)
{
    rig_close();
    free(rig.reply);
    while (rig.value_count) rig_delete(rig.values[0].key);
    return rig_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_is_right),
        cmocka_unit_test(memory_turns_bad_and_is_read_again),
        cmocka_unit_test(tensors_are_the_files),
        cmocka_unit_test(rows_are_right_at_every_level),
        cmocka_unit_test(memory_of_rows_is_used_and_checked),
        cmocka_unit_test(bad_values_are_found_and_replaced),
        cmocka_unit_test(values_of_a_request_are_bounded),
        cmocka_unit_test(every_fault_is_an_error_or_nothing),
        cmocka_unit_test(slabs_that_fail_are_not_kept),
        cmocka_unit_test(budgets_and_ranges_are_checked),
    };
    return cmocka_run_group_tests(tests, rig_make, tear_down);
}
