/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a key-value store that anybody may have written, and their keys. Only a value of the right length with
 * the right hash is good; one bit turned in a good one makes it bad. */
#include "feed.h"
#include "wire/row_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    char key[ROW_VALUE_KEY_BYTES], again[ROW_VALUE_KEY_BYTES];
    uint32_t hidden = 1 + feed_below(&f, 40), row = feed_u32(&f);
    uint64_t knot_id = feed_u64(&f);
    uint32_t flip = (uint32_t)feed_bits(&f, 2);
    CHECK(row_value_key(knot_id, row, key) == key && memchr(key, 0, sizeof key));
    CHECK(strncmp(key, "cobord:row:", 11) == 0 && key[27] == ':');
    CHECK(strtoull(key + 11, NULL, 16) == knot_id && strtoul(key + 28, NULL, 10) == row);
    if (row) CHECK(strcmp(row_value_key(knot_id, row - 1, again), key) != 0);
    size_t length, whole = row_value_bytes(hidden);
    uint8_t *value = feed_rest(&f, &length);
    bool good = row_value_is_good(value, length, hidden);
    CHECK(!good || length == whole);
    value = realloc(value, whole);
    CHECK(value);
    for (size_t i = length; i < whole; i++) value[i] = (uint8_t)(i * 7);
    row_value_seal(value, hidden);
    CHECK(row_value_is_good(value, whole, hidden) && !row_value_is_good(value, whole - 1, hidden));
    value[flip / 8 % whole] ^= (uint8_t)(1u << flip % 8);
    CHECK(!row_value_is_good(value, whole, hidden));
    free(value);
    return 0;
}
