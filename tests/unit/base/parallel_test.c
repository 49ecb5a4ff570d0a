/* SPDX-License-Identifier: Apache-2.0 */
/* The serial port: every item once, in order, on worker 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/parallel.h"

typedef struct Seen {
    uint32_t items[8];
    uint32_t count;
} Seen;

static void note(void *argument, uint32_t item, uint32_t worker)
{
    Seen *seen = argument;
    assert_int_equal(worker, 0);
    assert_true(seen->count < 8);
    seen->items[seen->count++] = item;
}

static void serial_runs_in_order(void **state)
{
    (void)state;
    Seen seen = {{0}, 0};
    assert_int_equal(parallel_serial.workers, 1);
    parallel_run(&parallel_serial, note, &seen, 5);
    assert_int_equal(seen.count, 5);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(seen.items[i], i);
    parallel_run(&parallel_serial, note, &seen, 0);
    assert_int_equal(seen.count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(serial_runs_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
