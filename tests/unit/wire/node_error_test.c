/* SPDX-License-Identifier: Apache-2.0 */
/* Every error goes through HTTP and back; what no node wrote is told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/node_error.h"

static const struct {
    Error error;
    const char *name;
} all[] = {
#define ERROR_ENTRY(name, number, text) {name, #name},
    ERROR_LIST(ERROR_ENTRY)
#undef ERROR_ENTRY
};
enum { ALL = sizeof all / sizeof all[0] };

static Error read_text(unsigned status, const char *text, Why *why)
{
    size_t bytes = strlen(text);
    uint8_t *copy = malloc(bytes ? bytes : 1); /* of its exact size, without a NUL */
    memcpy(copy, text, bytes);
    Error error = node_error_read(status, copy, bytes, why);
    free(copy);
    return error;
}

static void every_error_comes_back(void **state)
{
    (void)state;
    for (size_t i = 1; i < ALL; i++) {
        char body[NODE_ERROR_BYTES_MAX];
        Why why, back;
        assert_int_equal(error_why(&why, all[i].error, "%s \"%s\" \\ %c%c", "tensor", "x", 200, 10),
                         all[i].error);
        size_t bytes = node_error_write(all[i].error, &why, body);
        assert_true(bytes > 0 && bytes < sizeof body);
        unsigned status = node_error_status(all[i].error);
        assert_true(status >= 400 && status < 600);
        assert_int_equal(node_error_read(status, (uint8_t *)body, bytes, &back), all[i].error);
        assert_string_equal(back.text, why.text);
        char code[64], *c = code;
        for (const char *n = all[i].name + 4; *n; n++) *c++ = (char)(*n == '_' ? '_' : *n | 0x20);
        *c = '\0';
        char text[NODE_ERROR_BYTES_MAX + 1];
        memcpy(text, body, bytes);
        text[bytes] = '\0';
        char member[80];
        snprintf(member, sizeof member, "\"code\":\"%s\"", code);
        assert_non_null(strstr(text, member));
        /* With another status it is not a node's. */
        assert_int_not_equal(node_error_read(status + 1, (uint8_t *)body, bytes, &back), OK);
        for (size_t cut = 0; cut < bytes; cut++) {
            Error error = node_error_read(status, (uint8_t *)body, cut, &back);
            assert_int_equal(error, status >= 500 ? ERR_UNREACHABLE : ERR_FORMAT);
        }
    }
}

static void statuses_are_those_of_the_table(void **state)
{
    (void)state;
    static const struct {
        Error error;
        unsigned status;
        bool retryable;
    } table[] = {
        {ERR_SESSION, 410, true},
        {ERR_POSITION, 409, true},
        {ERR_SUPERSEDED, 409, false},
        {ERR_UNSUPPORTED, 409, false},
        {ERR_CHECKSUM, 400, true},
        {ERR_FORMAT, 400, false},
        {ERR_TRUNCATED, 400, true},
        {ERR_TYPE, 400, false},
        {ERR_SHAPE, 400, false},
        {ERR_RANGE, 400, false},
        {ERR_DUPLICATE, 400, false},
        {ERR_USAGE, 400, false},
        {ERR_TOO_LARGE, 413, false},
        {ERR_NOT_FOUND, 404, false},
        {ERR_MISSING_TENSOR, 404, false},
        {ERR_KEY, 401, false},
        {ERR_AGAIN, 503, true},
        {ERR_CAPACITY, 503, true},
        {ERR_CANCELLED, 503, true},
        {ERR_MEMORY, 503, true},
        {ERR_UNREACHABLE, 503, true},
        {ERR_NO_SPACE, 503, true},
        {ERR_NOT_FINITE, 500, false},
        {ERR_INTERNAL, 500, false},
        {ERR_IO, 500, true},
        {ERR_NOT_AVAILABLE, 500, false},
        {ERR_STALE, 500, false},
        {ERR_PLAN, 500, false},
    };
    assert_int_equal(sizeof table / sizeof table[0], ALL - 1); /* a new error needs its line */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(node_error_status(table[i].error), table[i].status);
        assert_int_equal(node_error_is_retryable(table[i].error), table[i].retryable);
    }
}

static void the_shape_is_the_documented_one(void **state)
{
    (void)state;
    static const char want[] =
        "{\"error\":{\"message\":\"session 7: position 9, expected 4\",\"type\":\"node_error\","
        "\"param\":null,\"code\":\"position\",\"retryable\":true}}";
    char body[NODE_ERROR_BYTES_MAX];
    Why why = {"session 7: position 9, expected 4"};
    assert_int_equal(node_error_write(ERR_POSITION, &why, body), strlen(want));
    assert_memory_equal(body, want, strlen(want));
    /* Without details, the list's text. */
    size_t bytes = node_error_write(ERR_KEY, NULL, body);
    Why back;
    assert_int_equal(node_error_read(401, (uint8_t *)body, bytes, &back), ERR_KEY);
    assert_string_equal(back.text, error_text(ERR_KEY));
}

static void the_longest_message_fits(void **state)
{
    (void)state;
    static const char fills[] = {'"', '\\', 1, (char)0xff, 'x'};
    for (size_t i = 0; i < sizeof fills; i++) {
        char body[NODE_ERROR_BYTES_MAX];
        Why why, back;
        memset(why.text, fills[i], sizeof why.text);
        why.text[WHY_MAX - 1] = '\0';
        size_t bytes = node_error_write(ERR_MISSING_TENSOR, &why, body);
        assert_true(bytes < sizeof body);
        assert_int_equal(node_error_read(404, (uint8_t *)body, bytes, &back), ERR_MISSING_TENSOR);
        if (fills[i] >= 32) assert_string_equal(back.text, why.text);
    }
}

static void foreign_bodies_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        unsigned status;
        const char *body;
        Error error;
    } bodies[] = {
        {502, "<html><body>Bad Gateway</body></html>", ERR_UNREACHABLE},
        {503, "", ERR_UNREACHABLE},
        {500, "null", ERR_UNREACHABLE},
        {504, "{}", ERR_UNREACHABLE},
        {429, "slow down", ERR_UNREACHABLE},
        {404, "Not Found", ERR_FORMAT},
        {404, "[]", ERR_FORMAT},
        {200, "hello", ERR_FORMAT},
        {301, "", ERR_FORMAT},
        {0, "", ERR_FORMAT},
        {404, "{\"error\":\"no\"}", ERR_FORMAT},
        {404, "{\"error\":{\"message\":\"m\",\"code\":\"not_found\"}}", ERR_FORMAT},
        {404,
         "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"code\":\"not_found\"}}",
         ERR_FORMAT},
        {404, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"surprise\"}}",
         ERR_FORMAT},
        {404, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":404}}", ERR_FORMAT},
        {404, "{\"error\":{\"message\":\"\",\"type\":\"node_error\",\"code\":\"not_found\"}}",
         ERR_FORMAT},
        {404, "{\"error\":{\"message\":4,\"type\":\"node_error\",\"code\":\"not_found\"}}",
         ERR_FORMAT},
        {500, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"ok\"}}",
         ERR_UNREACHABLE},
        {200, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"session\"}}",
         ERR_FORMAT},
        {410, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"session\"}} x",
         ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        Why why = {{0}};
        Error error = read_text(bodies[i].status, bodies[i].body, &why);
        if (error != bodies[i].error) fail_msg("%s: %d", bodies[i].body, error);
        assert_non_null(strstr(why.text, "no node wrote"));
    }
    Why why;
    assert_int_equal(
        read_text(410,
                  "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"session\"}}",
                  &why),
        ERR_SESSION);
    assert_int_equal(
        read_text(405, "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"usage\"}}",
                  &why),
        ERR_USAGE);
    assert_int_equal(node_error_read(502, NULL, 0, NULL), ERR_UNREACHABLE);
}

/* Deep, long, and with control characters: nothing reaches the terminal, nothing hangs. */
static void hostile_bodies_do_no_harm(void **state)
{
    (void)state;
    enum { LONG = 1 << 20 };
    Why why = {{0}};
    char *body = malloc(LONG);
    memset(body, '[', LONG);
    assert_int_equal(node_error_read(500, (uint8_t *)body, LONG, &why), ERR_UNREACHABLE);
    for (size_t bytes = 1; bytes <= NODE_ERROR_BYTES_MAX; bytes += 89)
        assert_int_equal(node_error_read(400, (uint8_t *)body, bytes, &why), ERR_FORMAT);
    memset(body, '\x1b', 100);
    assert_int_equal(node_error_read(400, (uint8_t *)body, 100, &why), ERR_FORMAT);
    assert_null(strchr(why.text, '\x1b'));
    free(body);
    assert_int_equal(read_text(410,
                               "{\"error\":{\"message\":\"a\\u001b[2J\\u0000b\",\"type\":"
                               "\"node_error\",\"code\":\"session\"}}",
                               &why),
                     ERR_SESSION);
    assert_string_equal(why.text, "a\\x1b[2J");
}

/* Bodies in which the pool of the reader is used up most: many small values. */
static void dense_bodies_fit_the_reader(void **state)
{
    (void)state;
    char body[NODE_ERROR_BYTES_MAX];
    Why why;
    static const char head[] =
        "{\"error\":{\"message\":\"m\",\"type\":\"node_error\",\"code\":\"session\"},\"z\":[",
                      tail[] = "1]}";
    size_t at = strlen(head);
    memcpy(body, head, at);
    while (at + 2 + strlen(tail) <= sizeof body) body[at++] = '1', body[at++] = ',';
    memcpy(body + at, tail, strlen(tail));
    at += strlen(tail);
    assert_int_equal(node_error_read(410, (uint8_t *)body, at, &why), ERR_SESSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_comes_back),
        cmocka_unit_test(statuses_are_those_of_the_table),
        cmocka_unit_test(the_shape_is_the_documented_one),
        cmocka_unit_test(the_longest_message_fits),
        cmocka_unit_test(foreign_bodies_are_told_apart),
        cmocka_unit_test(hostile_bodies_do_no_harm),
        cmocka_unit_test(dense_bodies_fit_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
