/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the log: both formats, the time, and texts that somebody chose to do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/log_line.h"

static char line[LOG_LINE_BYTES + 1];

static const char *write_line(const LogEntry *e, LogFormat format)
{
    size_t bytes = log_line_write(e, format, 1796039406042, "serve", line);
    assert_true(bytes > 0 && bytes <= LOG_LINE_BYTES);
    assert_int_equal(line[bytes - 1], '\n');
    assert_ptr_equal(memchr(line, '\n', bytes), line + bytes - 1); /* one line */
    line[bytes] = '\0';
    return line;
}

static void tells_the_time(void **state)
{
    char time[LOG_TIME_BYTES];
    (void)state;
    log_line_time(0, time);
    assert_string_equal(time, "1970-01-01T00:00:00.000Z");
    log_line_time(951782399999, time);
    assert_string_equal(time, "2000-02-28T23:59:59.999Z");
    log_line_time(951782400000, time);
    assert_string_equal(time, "2000-02-29T00:00:00.000Z");
    log_line_time(1796039406042, time);
    assert_string_equal(time, "2026-11-30T11:50:06.042Z");
    log_line_time(4107542400000, time); /* 2100 has no 29th of February */
    assert_string_equal(time, "2100-03-01T00:00:00.000Z");
}

static void writes_both_formats(void **state)
{
    Trace t = trace_begin(1, 2, 3);
    LogEntry e = {.level = LOG_INFO,
                  .event = "request",
                  .request_id = "abc",
                  .trace = &t,
                  .method = "POST",
                  .path = "/v1/chat/completions",
                  .status = 200,
                  .us = 56204,
                  .first_us = 1000,
                  .prompt_tokens = 31,
                  .completion_tokens = 5};
    (void)state;
    assert_string_equal(
        write_line(&e, LOG_JSON),
        "{\"time\":\"2026-11-30T11:50:06.042Z\",\"level\":\"info\",\"node\":\"serve\",\"event\":"
        "\"request\",\"method\":\"POST\",\"path\":\"/v1/chat/completions\",\"status\":200,\"ms\":"
        "56.204,\"ttft_ms\":1.000,\"prompt_tokens\":31,\"completion_tokens\":5,\"request_id\":"
        "\"abc\",\"trace_id\":\"00000000000000010000000000000002\",\"span_id\":"
        "\"0000000000000003\"}\n");
    assert_string_equal(write_line(&e, LOG_TEXT),
                        "cobord: POST /v1/chat/completions 200 ms=56.204 ttft_ms=1.000 "
                        "prompt_tokens=31 completion_tokens=5 request_id=abc "
                        "trace_id=00000000000000010000000000000002 span_id=0000000000000003\n");
    e = (LogEntry){.level = LOG_ERROR, .event = "note", .message = "a", .detail = "b"};
    assert_string_equal(write_line(&e, LOG_TEXT), "cobord: a: b\n");
    assert_string_equal(write_line(&e, LOG_JSON),
                        "{\"time\":\"2026-11-30T11:50:06.042Z\",\"level\":\"error\",\"node\":"
                        "\"serve\",\"event\":\"note\",\"message\":\"a: b\"}\n");
}

static void escapes_what_would_be_obeyed(void **state)
{
    LogEntry e = {.level = LOG_INFO,
                  .event = "request",
                  .method = "GET",
                  .path = "/\x1b[2J\n{\"x\":\"\xff",
                  .status = 404};
    (void)state;
    assert_non_null(strstr(write_line(&e, LOG_JSON), "/\\u001b[2J\\n{\\\"x\\\":\\\"\xef\xbf\xbd"));
    assert_non_null(strstr(write_line(&e, LOG_TEXT), "GET \"/\\u001b[2J\\n"));
    e = (LogEntry){.level = LOG_INFO, .event = "note", .message = "a\x1b[0m\nb"};
    assert_string_equal(write_line(&e, LOG_TEXT), "cobord: a?[0m?b\n");
    /* C1 as well: U+009B is ESC [ in two bytes. What begins like it is none. */
    e = (LogEntry){.level = LOG_INFO,
                   .event = "note",
                   .message = "a\xc2\x9b"
                              "2J\xc2\xa0\xc3\x9b\xc2"};
    assert_string_equal(write_line(&e, LOG_TEXT), "cobord: a?2J\xc2\xa0\xc3\x9b\xc2\n");
    e = (LogEntry){.level = LOG_INFO,
                   .event = "request",
                   .method = "GET",
                   .path = "/\xc2\x9b"
                           "2J"};
    assert_non_null(strstr(write_line(&e, LOG_TEXT), "GET /??2J 0"));
    /* A client chooses its method, too. */
    e = (LogEntry){.level = LOG_INFO, .event = "request", .method = "G\x1b[2J", .path = "/"};
    assert_string_equal(write_line(&e, LOG_TEXT), "cobord: \"G\\u001b[2J\" / 0\n");
}

static void is_bounded(void **state)
{
    char bad[5000], id[129];
    Trace t = trace_begin(1, 2, 3);
    memset(bad, 1, sizeof bad); /* six bytes each */
    bad[sizeof bad - 1] = '\0';
    memset(id, 'i', sizeof id);
    id[128] = '\0';
    LogEntry e = {.level = LOG_DEBUG,
                  .event = "hop",
                  .message = bad,
                  .detail = bad,
                  .path = bad,
                  .method = "POST",
                  .error = bad,
                  .key_name = bad,
                  .to = "station-0",
                  .request_id = id,
                  .trace = &t,
                  .status = 200,
                  .us = UINT64_MAX};
    (void)state;
    for (LogFormat f = LOG_TEXT; f <= LOG_JSON; f++) {
        assert_non_null(strstr(write_line(&e, f), id));
        assert_non_null(strstr(line, t.trace_id));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_time), cmocka_unit_test(writes_both_formats),
        cmocka_unit_test(escapes_what_would_be_obeyed), cmocka_unit_test(is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
