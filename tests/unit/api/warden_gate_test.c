/* SPDX-License-Identifier: Apache-2.0 */
/* What requests want of a warden: identities in headers and in a body, queries, what is to be invalidated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../wire/small_tensors.h"
#include "api/warden_gate.h"

static Knot knot;
static uint8_t memory[1 << 18], pool[WARDEN_CONFIGURE_POOL_BYTES];
static const WardenSelf layer = {{0x0123456789abcdef, false, 0, 8}, 4, "a.knot"};
static const WardenSelf shard = {{0x0123456789abcdef, true, 10, 30}, 4, "a.knot"};
static Why why;

static int setup(void **state)
{
    (void)state;
    return small_tensors_make(&knot, memory, sizeof memory) ? 0 : -1;
}

static void knot_ids_have_16_digits(void **state)
{
    (void)state;
    uint64_t id;
    assert_int_equal(warden_gate_knot_id("0123456789abcDEF", &id, &why), OK);
    assert_int_equal(id, 0x0123456789abcdef);
    static const char *const wrong[] = {"",
                                        "123",
                                        "0123456789abcdef0",
                                        "0x23456789abcdef",
                                        "-123456789abcdef",
                                        " 123456789abcdef",
                                        "0123456789abcdeg"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(warden_gate_knot_id(wrong[i], &id, &why), ERR_USAGE);
}

static Error ask(const WardenSelf *self, WardenAsked asked)
{
    return warden_gate_matches(self, &asked, &why);
}

static void headers_name_an_identity(void **state)
{
    (void)state;
    assert_int_equal(ask(&layer, (WardenAsked){0}), OK);
    assert_int_equal(ask(&layer, (WardenAsked){"0123456789abcdef", "a.knot", "0", "2", NULL, NULL}),
                     OK);
    assert_int_equal(ask(&layer, (WardenAsked){.layer_last = "2"}), OK);
    assert_int_equal(ask(&layer, (WardenAsked){.layer_last = "end"}), ERR_UNSUPPORTED);
    assert_int_equal(ask(&layer, (WardenAsked){.layer_first = "x"}), ERR_USAGE);
    assert_int_equal(ask(&layer, (WardenAsked){.layer_last = "9"}), ERR_USAGE);
    assert_int_equal(ask(&layer, (WardenAsked){.knot_id = "1"}), ERR_USAGE);
    assert_int_equal(ask(&layer, (WardenAsked){.id_first = "0"}), ERR_UNSUPPORTED);
    assert_int_equal(ask(&layer, (WardenAsked){.id_first = "0", .layer_first = "0"}), ERR_USAGE);
    assert_int_equal(ask(&layer, (WardenAsked){.knot_key = "b.knot"}), ERR_UNSUPPORTED);
    assert_int_equal(ask(&shard, (WardenAsked){.id_first = "10", .id_last = "30"}), OK);
    assert_int_equal(ask(&shard, (WardenAsked){.id_first = "11", .id_last = "30"}),
                     ERR_UNSUPPORTED);
    static const char *const wrong[] = {"",   "-1",         "1x",
                                        " 1", "4294967296", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(ask(&shard, (WardenAsked){.id_last = wrong[i]}), ERR_USAGE);
}

static Error configure(const WardenSelf *self, const char *body)
{
    return warden_gate_configure(self, (const uint8_t *)body, strlen(body), pool, &why);
}

static void bodies_name_all_of_it(void **state)
{
    (void)state;
#define WHO "\"knot_id\":\"0123456789abcdef\",\"knot_key\":\"a.knot\""
    assert_int_equal(configure(&layer, "{" WHO ",\"layer_start\":0,\"layer_end\":2}"), OK);
    assert_int_equal(configure(&layer, "{" WHO ",\"layer_start\":\"0\",\"layer_end\":\"2\"}"), OK);
    assert_int_equal(configure(&shard, "{" WHO ",\"vocab_start\":10,\"vocab_end\":30}"), OK);
    assert_int_equal(configure(&layer, "{" WHO ",\"vocab_start\":10,\"vocab_end\":30}"),
                     ERR_UNSUPPORTED);
    assert_int_equal(configure(&layer, "{" WHO "}"), ERR_FORMAT);
    assert_int_equal(configure(&layer, "{" WHO ",\"layer_start\":0}"), ERR_FORMAT);
    assert_int_equal(configure(&layer, "{\"layer_start\":0,\"layer_end\":2}"), ERR_FORMAT);
    assert_int_equal(configure(&layer, "[]"), ERR_FORMAT);
    assert_int_equal(configure(&layer, ""), ERR_FORMAT);
    assert_int_equal(configure(&layer, "{" WHO ",\"layer_start\":-1,\"layer_end\":2}"), ERR_FORMAT);
}

/* The most memory that the reader can want of a body is there; one byte more is refused. */
static void the_largest_bodies_are_read(void **state)
{
    (void)state;
    static char body[WARDEN_CONFIGURE_BYTES_MAX + 2];
    memset(body, '[', WARDEN_CONFIGURE_BYTES_MAX / 2);
    memset(body + WARDEN_CONFIGURE_BYTES_MAX / 2, ']', WARDEN_CONFIGURE_BYTES_MAX / 2);
    assert_int_equal(configure(&layer, body), ERR_FORMAT);
    static const char right[] = "{" WHO ",\"layer_start\":0,\"layer_end\":2,\"x\":[0";
    size_t n = sizeof right - 1;
    memcpy(body, right, n);
    while (n < WARDEN_CONFIGURE_BYTES_MAX - 2) body[n] = n % 2 ? '0' : ',', n++;
    body[n - 1] = '0';
    memcpy(body + n, "]}", 2);
    if (body[n - 2] != ',') body[n - 2] = ' ';
    for (size_t i = sizeof right - 1; i + 1 < n; i++)
        if (body[i] == '0' && body[i + 1] == '0') body[i + 1] = ' ';
    assert_int_equal(configure(&layer, body), OK);
    body[WARDEN_CONFIGURE_BYTES_MAX] = ' ';
    assert_int_equal(configure(&layer, body), ERR_TOO_LARGE);
}

static void queries_name_rows_and_bytes(void **state)
{
    (void)state;
    AwfrPiece p;
    uint64_t first, bytes;
    assert_int_equal(warden_gate_tensor(&knot, "token_embd_weight", "", &p, &why), OK);
    assert_int_equal(p.row_count, 50);
    assert_int_equal(warden_gate_tensor(&knot, "token_embd_weight", "rows=3-9", &p, &why), OK);
    assert_int_equal(p.row_first, 3);
    assert_int_equal(p.row_count, 6);
    assert_int_equal(warden_gate_tensor(&knot, "nothing", "", &p, &why), ERR_MISSING_TENSOR);
    static const char *const wrong[] = {"rows",
                                        "rows=",
                                        "rows=1",
                                        "rows=1-",
                                        "rows=-1",
                                        "rows=2-2",
                                        "rows=3-2",
                                        "rows=0-1x",
                                        "rows=0-1&x",
                                        "row=0-1",
                                        "rows=0-4294967296",
                                        "rows=0-9999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(warden_gate_tensor(&knot, "token_embd_weight", wrong[i], &p, &why),
                         ERR_USAGE);
    assert_int_equal(warden_gate_bytes(&knot, "bytes=0-0", &first, &bytes, &why), OK);
    assert_int_equal(bytes, 1);
    assert_int_equal(warden_gate_bytes(&knot, "bytes=5-99", &first, &bytes, &why), OK);
    assert_int_equal(first, 5);
    assert_int_equal(bytes, 95);
    assert_int_equal(warden_gate_bytes(&knot, "bytes=5-4", &first, &bytes, &why), ERR_RANGE);
    assert_int_equal(warden_gate_bytes(&knot, "bytes=0-999999", &first, &bytes, &why), ERR_RANGE);
    assert_int_equal(warden_gate_bytes(&knot, "rows=0-1", &first, &bytes, &why), ERR_USAGE);
    Knot large = knot;
    large.file_bytes = 1 << 30;
    assert_int_equal(warden_gate_bytes(&large, "bytes=0-4194303", &first, &bytes, &why), OK);
    assert_int_equal(warden_gate_bytes(&large, "bytes=0-4194304", &first, &bytes, &why),
                     ERR_TOO_LARGE);
}

static void rows_and_tensors_are_invalidated(void **state)
{
    (void)state;
    const KnotTensor *t;
    uint32_t row;
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "29", &t, &row, &why), OK);
    assert_null(t);
    assert_int_equal(row, 29);
    assert_int_equal(warden_gate_invalidate(&layer, &knot, "blk_0_ffn_up_weight", &t, &row, &why),
                     OK);
    assert_ptr_equal(t, &knot.tensors[2]);
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "30", &t, &row, &why), ERR_RANGE);
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "9", &t, &row, &why), ERR_RANGE);
    assert_int_equal(warden_gate_invalidate(&layer, &knot, "15", &t, &row, &why), ERR_RANGE);
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "99999999999999999999", &t, &row, &why),
                     ERR_RANGE);
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "29x", &t, &row, &why),
                     ERR_MISSING_TENSOR);
    assert_int_equal(warden_gate_invalidate(&shard, &knot, "-1", &t, &row, &why),
                     ERR_MISSING_TENSOR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knot_ids_have_16_digits),
        cmocka_unit_test(headers_name_an_identity),
        cmocka_unit_test(bodies_name_all_of_it),
        cmocka_unit_test(the_largest_bodies_are_read),
        cmocka_unit_test(queries_name_rows_and_bytes),
        cmocka_unit_test(rows_and_tensors_are_invalidated),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
