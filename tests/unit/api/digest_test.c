/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/digest.h"

static void assert_digest(const char *text, size_t bytes, const char *expected)
{
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_HEX_BYTES];
    digest_sha256(text, bytes, digest);
    digest_to_hex(digest, hex);
    assert_string_equal(hex, expected);
}

/* Source  NIST, examples of FIPS 180-4; the others are of coreutils' sha256sum. */
static void known_digests(void **state)
{
    (void)state;
    static char a[1000000];
    memset(a, 'a', sizeof a);
    assert_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_digest(two, strlen(two),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_digest(a, sizeof a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_digest(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_digest(a, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    assert_digest(a, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    assert_digest(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

static void hexadecimal(void **state)
{
    (void)state;
    uint8_t digest[DIGEST_BYTES], other[DIGEST_BYTES];
    char hex[DIGEST_HEX_BYTES], upper[DIGEST_HEX_BYTES];
    digest_sha256("key", 3, digest);
    digest_to_hex(digest, hex);
    assert_true(digest_from_hex(hex, 64, other));
    assert_true(digest_equals(digest, other));
    for (int i = 0; i < DIGEST_HEX_BYTES; i++)
        upper[i] = hex[i] >= 'a' ? (char)(hex[i] - 'a' + 'A') : hex[i];
    assert_true(digest_from_hex(upper, 64, other));
    assert_true(digest_equals(digest, other));
    other[31] ^= 1;
    assert_false(digest_equals(digest, other));
    assert_false(digest_from_hex(hex, 63, other));
    hex[63] = 'g';
    assert_false(digest_from_hex(hex, 64, other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_digests),
                                       cmocka_unit_test(hexadecimal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
