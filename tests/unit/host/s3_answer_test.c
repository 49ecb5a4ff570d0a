/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of answers as stores write them, and as nobody should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "host/s3_answer.h"
#include "host/s3_upload.h"

static S3Span span(const char *text) { return (S3Span){text, text + strlen(text)}; }

static void lists(void **state)
{
    (void)state;
    S3Span rest = span("<ListPartsResult xmlns=\"x\"><IsTruncated>true</IsTruncated>"
                       "<Part><PartNumber>1</PartNumber><ETag>&quot;ab&quot;</ETag></Part>"
                       "<Part><PartNumber>27</PartNumber><ETag>\"c&amp;d\"</ETag></Part>");
    S3Span one;
    char text[16];
    uint64_t n;
    assert_true(s3_answer_text(rest, "IsTruncated", text, sizeof text));
    assert_string_equal(text, "true");
    assert_true(s3_answer_next(&rest, "Part", &one));
    assert_true(s3_answer_text(one, "ETag", text, sizeof text));
    assert_string_equal(text, "ab");
    assert_true(s3_answer_next(&rest, "Part", &one));
    assert_true(s3_answer_number(one, "PartNumber", &n));
    assert_int_equal(n, 27);
    assert_true(s3_answer_text(one, "ETag", text, sizeof text));
    assert_string_equal(text, "c&d");
    assert_false(s3_answer_next(&rest, "Part", &one));
}

/* Cut anywhere, an answer gives what is whole in it, and nothing behind its end is looked at. */
static void cut(void **state)
{
    (void)state;
    static const char whole[] = "<E><Code>NoSuchKey</Code></E>";
    char copy[sizeof whole + 8], text[16];
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        memset(copy, '<', sizeof copy);
        memcpy(copy, whole, bytes);
        bool there = bytes >= strlen("<E><Code>NoSuchKey</Code>");
        assert_int_equal(s3_answer_text((S3Span){copy, copy + bytes}, "Code", text, sizeof text),
                         there);
    }
}

static void no_use(void **state)
{
    (void)state;
    static const char *const numbers[] = {
        "<N></N>", "<N>-1</N>", "<N>1x</N>", "<N>1234567890123456789</N>", "<N>", "</N><N>"};
    char text[4];
    uint64_t n;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_false(s3_answer_number(span(numbers[i]), "N", &n));
    assert_false(s3_answer_text(span("<A>1234</A>"), "A", text, sizeof text)); /* no room */
    assert_true(s3_answer_text(span("<A>123</A>"), "A", text, sizeof text));
    assert_false(s3_answer_text(span("<A>\x1b[1m</A>"), "A", text, sizeof text));
    assert_true(s3_answer_text(span("<A>\"</A>"), "A", text, sizeof text));
    assert_string_equal(text, "\"");
    assert_true(s3_answer_text(span("<A>&</A>"), "A", text, sizeof text));
    assert_string_equal(text, "&");
    assert_false(s3_answer_text((S3Span){NULL, NULL}, "A", text, sizeof text));
}

static void refusals(void **state)
{
    (void)state;
    static uint8_t body[] = "<Error><Code>InvalidAccessKeyId</Code></Error>";
    static const struct {
        unsigned status;
        Error error;
    } plain[] = {{401, ERR_KEY},         {403, ERR_KEY}, {404, ERR_NOT_FOUND},  {307, ERR_IO},
                 {503, ERR_UNREACHABLE}, {400, ERR_IO},  {429, ERR_UNREACHABLE}};
    S3Access access = {.key_id = "me"};
    Why why;
    HttpCall call = {.answer = NULL};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        call.status = plain[i].status;
        assert_int_equal(s3_answer_refused("s3://b", "k", &access, &call, &why), plain[i].error);
        assert_non_null(strstr(why.text, "s3://b/k"));
    }
    call = (HttpCall){.status = 400, .answer = body, .answer_bytes = sizeof body - 1};
    assert_int_equal(s3_answer_refused("s3://b", "k", &access, &call, &why), ERR_KEY);
    assert_non_null(strstr(why.text, "InvalidAccessKeyId"));
}

/* Never more than a store takes, and alike for the same file. */
static void parts(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 45; bytes = bytes * 3 + 1) {
        uint64_t part = s3_upload_part_bytes(bytes);
        assert_true(part >= S3_UPLOAD_PART_BYTES);
        assert_true((bytes + part - 1) / part <= S3_UPLOAD_PARTS_MAX);
    }
    assert_int_equal(s3_upload_part_bytes((uint64_t)4 << 30), S3_UPLOAD_PART_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),    cmocka_unit_test(cut),   cmocka_unit_test(no_use),
        cmocka_unit_test(refusals), cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
