/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C against published values (RFC 3720, section B.4; the check value of the CRC catalogues) and
 * against the definition, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"

static void test_published(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0}, ones[32], rising[32], falling[32];
    static const uint8_t read_command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) rising[i] = (uint8_t)i, falling[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c_update(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c_update(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(crc32c_update(0, ones, 32), 0x62a8ab43);
    assert_int_equal(crc32c_update(0, rising, 32), 0x46dd794e);
    assert_int_equal(crc32c_update(0, falling, 32), 0x113fdb5c);
    assert_int_equal(crc32c_update(0, read_command, 48), 0xd9963a56);
    assert_int_equal(crc32c_update(0, NULL, 0), 0);
}

static uint32_t by_bits(const uint8_t *bytes, size_t length)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
    return ~crc;
}

/* Every entry of every table is used: 4096 random bytes leave none out, at every alignment. */
static void test_definition_and_pieces(void **state)
{
    (void)state;
    static uint8_t bytes[4096 + 64];
    srand48(5);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(lrand48() >> 7);
    for (size_t at = 0; at < 9; at++)
        for (size_t length = 0; length < 40; length++)
            assert_int_equal(crc32c_update(0, bytes + at, length), by_bits(bytes + at, length));
    for (size_t at = 0; at < 64; at++)
        assert_int_equal(crc32c_update(0, bytes + at, 4096), by_bits(bytes + at, 4096));
    for (size_t cut = 0; cut < 256; cut++) {
        uint32_t crc = crc32c_update(0, bytes, cut);
        assert_int_equal(crc32c_update(crc, bytes + cut, 256 - cut), by_bits(bytes, 256));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_definition_and_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
