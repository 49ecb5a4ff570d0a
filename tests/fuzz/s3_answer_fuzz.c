/* SPDX-License-Identifier: Apache-2.0 */
/* XML of a store that may be anybody. Two bytes of status, one of choices, then the body. Texts fit their room,
 * numbers are those that are written, and a refusal says something. */
#include "feed.h"
#include "host/s3_answer.h"

static void check_list(const char *body, size_t bytes)
{
    static const char *const names[] = {"Contents", "Part", "Upload", "Key"};
    char text[64], small[5];
    uint64_t number;
    for (size_t i = 0; i < 4; i++) {
        S3Span rest = {body, body + bytes}, inside;
        while (s3_answer_next(&rest, names[i], &inside)) {
            CHECK(inside.at >= body && inside.at <= inside.end && inside.end < rest.at &&
                  rest.at <= rest.end);
            if (s3_answer_text(inside, "Key", text, sizeof text)) CHECK(strlen(text) < sizeof text);
            if (s3_answer_text(inside, "ETag", small, sizeof small))
                CHECK(strlen(small) < sizeof small);
            if (s3_answer_number(inside, "Size", &number)) CHECK(number < 1000000000000000000u);
            (void)!s3_answer_number(inside, "PartNumber", &number);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const S3Access access = {.key_id = "AKIA"}, none;
    Feed f = {data, size};
    Why why = {{0}};
    size_t bytes;
    HttpCall call = {.status = 300 + (unsigned)feed_bits(&f, 2) % 300};
    uint32_t who = feed_below(&f, 3);
    call.answer = feed_rest(&f, &bytes);
    call.answer_bytes = bytes;
    check_list((const char *)call.answer, bytes);
    CHECK(s3_answer_refused("store", "a/b.knot",
                            who == 0   ? NULL
                            : who == 1 ? &none
                                       : &access,
                            &call, &why) != OK);
    CHECK(why.text[0] && strnlen(why.text, WHY_MAX) < WHY_MAX);
    free(call.answer);
    return 0;
}
