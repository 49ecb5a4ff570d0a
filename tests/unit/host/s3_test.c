/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures are Amazon's; settings are checked and never printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "host/s3.h"

static Error sign(const S3Access *a, const char *url, const char *range, int64_t now, S3Lines *out)
{
    S3Request request = {.method = "GET", .url = url, .range = range};
    return s3_sign(a, &request, now, out, NULL);
}

static void clean_environment(void)
{
    static const char *const names[] = {
        "COBORD_S3_ENDPOINT",    "AWS_REGION",        "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

/* Source  Amazon S3 API Reference, "Signature Calculations for the Authorization Header", Example: GET Object. */
static void amazons_example(void **state)
{
    (void)state;
    S3Access a = {.region = "us-east-1",
                  .key_id = "AKIAIOSFODNN7EXAMPLE",
                  .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    S3Lines lines;
    int64_t day = 1369353600; /* 2013-05-24T00:00:00Z */
    assert_int_equal(
        sign(&a, "https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9", day, &lines), OK);
    assert_string_equal(lines.date, "x-amz-date: 20130524T000000Z");
    assert_string_equal(
        lines.authorization,
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    assert_string_equal(lines.token, "");
    /* The scheme's own port is not part of the host that is sent. */
    S3Lines again;
    assert_int_equal(
        sign(&a, "https://examplebucket.s3.amazonaws.com:443/test.txt", "bytes=0-9", day, &again),
        OK);
    assert_string_equal(lines.authorization, again.authorization);
    assert_int_equal(
        sign(&a, "https://examplebucket.s3.amazonaws.com:80/test.txt", "bytes=0-9", day, &again),
        OK);
    assert_string_not_equal(lines.authorization, again.authorization);
    assert_int_equal(sign(&a, "nowhere", NULL, day, &again), ERR_USAGE);
    a.key_id[0] = 0; /* a public bucket */
    assert_int_equal(sign(&a, "nowhere", NULL, day, &again), OK);
    assert_string_equal(again.authorization, "");
}

/* Source  the same page: the query of Example: GET Bucket (List Objects), the body of Example: PUT Object. */
static void queries_and_bodies(void **state)
{
    (void)state;
    S3Access a = {.region = "us-east-1",
                  .key_id = "AKIAIOSFODNN7EXAMPLE",
                  .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    S3Lines lines;
    char hash[S3_HASH_BYTES];
    /* Example: GET Bucket (List Objects). */
    S3Request list = {.method = "GET",
                      .url = "https://examplebucket.s3.amazonaws.com/",
                      .query = "max-keys=2&prefix=J"};
    assert_int_equal(s3_sign(&a, &list, 1369353600, &lines, NULL), OK);
    assert_string_equal(strstr(lines.authorization, "Signature=") + 10,
                        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    s3_hash("Welcome to Amazon S3.", 21, hash);
    assert_string_equal(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    S3Request put = {.method = "PUT", .url = "http://h/b/k", .body_hash = hash};
    assert_int_equal(s3_sign(&a, &put, 1369353600, &lines, NULL), OK);
    assert_string_equal(strstr(lines.hash, ": ") + 2, hash);
}

static void settings(void **state)
{
    (void)state;
    S3Access a;
    Why why;
    clean_environment();
    assert_int_equal(s3_access(&a, NULL), OK);
    assert_string_equal(a.endpoint, "https://s3.us-east-1.amazonaws.com");
    setenv("AWS_DEFAULT_REGION", "eu-west-3", 1);
    assert_int_equal(s3_access(&a, NULL), OK);
    assert_string_equal(a.endpoint, "https://s3.eu-west-3.amazonaws.com");
    setenv("AWS_REGION", "auto", 1);
    setenv("COBORD_S3_ENDPOINT", "http://127.0.0.1:7070//", 1);
    assert_int_equal(s3_access(&a, NULL), OK);
    assert_string_equal(a.endpoint, "http://127.0.0.1:7070");
    assert_string_equal(a.region, "auto");
    static const char *const bad[] = {"127.0.0.1:7070", "ftp://x", "https://user:pw@host",
                                      "https://h/?x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("COBORD_S3_ENDPOINT", bad[i], 1);
        assert_int_equal(s3_access(&a, &why), ERR_USAGE);
        assert_null(strstr(why.text, "pw"));
    }
    unsetenv("COBORD_S3_ENDPOINT");
    setenv("AWS_ACCESS_KEY_ID", "me", 1);
    assert_int_equal(s3_access(&a, &why), ERR_USAGE);
    assert_non_null(strstr(why.text, "AWS_SECRET_ACCESS_KEY is not"));
    setenv("AWS_SECRET_ACCESS_KEY", "very\r\nsecret", 1);
    assert_int_equal(s3_access(&a, &why), ERR_USAGE);
    assert_null(strstr(why.text, "very"));
    setenv("AWS_SECRET_ACCESS_KEY", "fine", 1);
    assert_int_equal(s3_access(&a, NULL), OK);
    s3_forget(&a);
    assert_int_equal(a.secret[0], 0);
    clean_environment();
}

static void paths(void **state)
{
    (void)state;
    char out[16];
    assert_true(s3_encode_path("a/b-c_d.~", out, sizeof out));
    assert_string_equal(out, "a/b-c_d.~");
    assert_true(s3_encode_path("+ %\xc3", out, sizeof out));
    assert_string_equal(out, "%2B%20%25%C3");
    assert_true(s3_encode_path("", out, 1));
    assert_string_equal(out, "");
    assert_false(s3_encode_path("", out, 0));
    for (size_t room = 0; room < 13; room++) assert_false(s3_encode_path("+ %\xc3", out, room));
    assert_true(s3_encode_value("a/b=&c", out, sizeof out));
    assert_string_equal(out, "a%2Fb%3D%26c");
}

/* The longest settings that are taken still fit everywhere. */
static void limits(void **state)
{
    (void)state;
    static char longest[S3_TOKEN_BYTES + 1], url[S3_PATH_BYTES * 2];
    static const char *const names[] = {"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN"};
    static const size_t rooms[] = {S3_TEXT_BYTES, S3_TEXT_BYTES, S3_TEXT_BYTES, S3_TOKEN_BYTES};
    S3Access a;
    S3Lines lines;
    setenv("COBORD_S3_ENDPOINT", "http://h", 1);
    for (size_t i = 0; i < 4; i++) {
        memset(longest, 'x', sizeof longest);
        longest[rooms[i]] = 0;
        setenv(names[i], longest, 1);
        assert_int_equal(s3_access(&a, NULL), ERR_USAGE);
        longest[rooms[i] - 1] = 0;
        setenv(names[i], longest, 1);
    }
    assert_int_equal(s3_access(&a, NULL), OK);
    assert_int_equal(sign(&a, "http://h/b/k", "bytes=0-1", 0, &lines), OK);
    assert_int_equal(strlen(lines.token), strlen("x-amz-security-token: ") + S3_TOKEN_BYTES - 1);
    assert_int_equal(strlen(strstr(lines.authorization, "Signature=")), 10 + 64);
    memset(url, 'u', sizeof url - 1);
    memcpy(url, "http://h/", 9);
    assert_int_equal(sign(&a, url, "bytes=0-1", 0, &lines), OK);
    assert_int_equal(sign(&a, "http://h/b", NULL, INT64_MAX, &lines), ERR_RANGE);
    clean_environment();
}

int main(void)
{
    clean_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amazons_example), cmocka_unit_test(queries_and_bodies),
        cmocka_unit_test(settings),        cmocka_unit_test(paths),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
