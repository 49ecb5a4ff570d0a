/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights: whatever the order of the tiles, what is in memory is what the window says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/weights.h"

enum { UNIT = KNOT_FILE_DROP_UNIT, FILE_UNITS = 8, HEADER_BYTES = 4096 };

/* Anonymous pages in the place of a file: dropping one makes it zero. */
static KnotFile *make_file(KnotFile *f)
{
    memset(f, 0, sizeof *f);
    f->map =
        mmap(NULL, FILE_UNITS * UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->map != MAP_FAILED);
    memset(f->map, 1, FILE_UNITS * UNIT);
    f->knot.payload_offset = HEADER_BYTES;
    f->knot.file_bytes = FILE_UNITS * UNIT;
    f->knot.payload_bytes = f->knot.file_bytes - HEADER_BYTES;
    return f;
}

/* One digit a unit: 1 while its middle is in memory. */
static const char *held(const KnotFile *f)
{
    static char digits[FILE_UNITS + 1];
    for (int i = 0; i < FILE_UNITS; i++) digits[i] = f->map[i * UNIT + UNIT / 2] ? '1' : '0';
    return digits;
}

/* What was never asked for is gone from the start. */
static void start(Weights *w, KnotFile *f, uint64_t pinned_bytes, uint64_t window_bytes)
{
    weights_start(w, make_file(f), pinned_bytes, window_bytes);
    memset(f->map + HEADER_BYTES + pinned_bytes, 0,
           FILE_UNITS * UNIT - HEADER_BYTES - pinned_bytes);
}

/* Touches a tile, as a product would; what is then in memory is what the counter says. */
static const char *touch(Weights *w, uint64_t offset, uint64_t bytes)
{
    const uint8_t *tile = weights_tile(w, offset - HEADER_BYTES, bytes);
    assert_ptr_equal(tile, w->file->map + offset);
    uint64_t first = offset / UNIT, last = (offset + bytes + UNIT - 1) / UNIT, units = 0;
    for (uint64_t i = first; i < last; i++) w->file->map[i * UNIT + UNIT / 2] = 1;
    if (weights_unsettled(w)) weights_settle(w);
    const char *now = held(w->file);
    for (const char *digit = now; *digit; digit++) units += *digit == '1';
    assert_int_equal(w->counters.resident_bytes, units * UNIT);
    return now;
}

static void forwards(void **state)
{
    (void)state;
    KnotFile f;
    Weights w;
    start(&w, &f, 0, 0);
    assert_string_equal(touch(&w, 1 * UNIT, UNIT + 100), "01100000");
    assert_string_equal(touch(&w, 2 * UNIT + 100, UNIT), "00110000");
    assert_string_equal(touch(&w, 6 * UNIT, 100), "00000010");
    weights_drop(&w);
    assert_string_equal(held(&f), "00000000");
    assert_int_equal(w.counters.resident_bytes_max, 3 * UNIT); /* until the used page is dropped */
    munmap(f.map, FILE_UNITS * UNIT);
}

static void until_the_window_is_full(void **state)
{
    (void)state;
    KnotFile f;
    Weights w;
    start(&w, &f, 0, 6 * UNIT);
    assert_string_equal(touch(&w, 1 * UNIT, UNIT), "01000000");
    assert_string_equal(touch(&w, 2 * UNIT, UNIT), "01100000");
    assert_string_equal(touch(&w, 3 * UNIT, UNIT), "01110000");
    assert_string_equal(touch(&w, 4 * UNIT, UNIT), "00001000");
    assert_string_equal(touch(&w, 5 * UNIT, UNIT), "00001100");
    assert_string_equal(touch(&w, 1 * UNIT, UNIT), "01000000");
    assert_int_equal(w.counters.resident_bytes_max, 4 * UNIT);
    munmap(f.map, FILE_UNITS * UNIT);
}

/* Rows of an embedding come in any order: one that crosses a border, then one before the border. */
static void backwards(void **state)
{
    (void)state;
    for (uint64_t window_units = 0; window_units < 5; window_units++) {
        KnotFile f;
        Weights w;
        start(&w, &f, 0, window_units * UNIT);
        assert_string_equal(touch(&w, 3 * UNIT - 50, 100), "00110000");
        (void)touch(&w, 2 * UNIT + 500, 100);
        (void)touch(&w, 4 * UNIT - 50, 100);
        (void)touch(&w, 3 * UNIT + 500, 100);
        assert_string_equal(touch(&w, 1 * UNIT, 100), "01000000");
        munmap(f.map, FILE_UNITS * UNIT);
    }
}

static void pinned_stays(void **state)
{
    (void)state;
    KnotFile f;
    Weights w;
    start(&w, &f, 2 * UNIT - HEADER_BYTES, 0);
    weights_tile(&w, 3 * UNIT - HEADER_BYTES, 100);
    f.map[3 * UNIT + UNIT / 2] = 1;
    weights_tile(&w, 0, 2 * UNIT - HEADER_BYTES);
    assert_string_equal(held(&f), "11010000");
    weights_drop(&w);
    assert_string_equal(held(&f), "11000000");
    munmap(f.map, FILE_UNITS * UNIT);
}

/* The same, though what is in memory is more than the streamed pages that the counter counts. */
static const char *touch_beside_pinned(Weights *w, uint64_t first_unit, uint64_t units)
{
    weights_tile(w, first_unit * UNIT - HEADER_BYTES, units * UNIT);
    for (uint64_t i = 0; i < units; i++) w->file->map[(first_unit + i) * UNIT + UNIT / 2] = 1;
    if (weights_unsettled(w)) weights_settle(w);
    return held(w->file);
}

static void pinned_may_lie_in_the_middle(void **state)
{
    (void)state;
    KnotFile f;
    Weights w;
    start(&w, &f, 0, 0);
    weights_pin(&w, 3 * UNIT - HEADER_BYTES, 5 * UNIT - HEADER_BYTES);
    assert_string_equal(touch_beside_pinned(&w, 3, 2), "00011000");
    assert_int_equal(w.counters.resident_bytes, 0);
    assert_string_equal(touch_beside_pinned(&w, 2, 1), "00111000");
    assert_string_equal(touch_beside_pinned(&w, 5, 1), "00011100");
    assert_string_equal(touch_beside_pinned(&w, 2, 2), "00111000"); /* half of it is pinned */
    weights_drop(&w);
    assert_string_equal(held(&f), "00011000");
    munmap(f.map, FILE_UNITS * UNIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards),
        cmocka_unit_test(until_the_window_is_full),
        cmocka_unit_test(backwards),
        cmocka_unit_test(pinned_stays),
        cmocka_unit_test(pinned_may_lie_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
