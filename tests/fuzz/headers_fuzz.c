/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a request's headers: keys, trace contexts, ids, origins; and the lines of a log that say them again.
 * The first byte says which. What is taken means what its header file says; a line of the log is one line, and
 * JSON. */
#include <stdio.h>

#include <yyjson.h>

#include "api/bearer.h"
#include "api/cors.h"
#include "api/host_name.h"
#include "api/log_line.h"
#include "feed.h"

static void try_bearer(Feed *f)
{
    char *key = feed_text(f, 200), *header = feed_text(f, 600);
    size_t bytes = 0;
    const char *given = bearer_key(header, &bytes);
    bool same = given && bytes == strlen(key) && memcmp(given, key, bytes) == 0;
    CHECK(bearer_in_header(key, header) == same);
    CHECK(bearer_equals(key, header) == (strcmp(key, header) == 0));
    CHECK(!given || (given > header && given + bytes <= header + strlen(header)));
    CHECK(!given || !bytes || (given[0] != ' ' && given[bytes - 1] != ' '));
    char whole[300];
    (void)snprintf(whole, sizeof whole, "BEARER  %s", key);
    if (key[0] && key[0] != ' ' && key[strlen(key) - 1] != ' ' && key[strlen(key) - 1] != '\t')
        CHECK(bearer_in_header(key, whole));
    free(key);
    free(header);
}

static void try_trace(Feed *f)
{
    Trace t, again;
    char text[TRACE_PARENT_BYTES], *header = feed_text(f, 300);
    if (trace_continue(header, feed_u64(f), &t)) {
        CHECK(memcmp(header + 3, t.trace_id, 32) == 0 && memcmp(header + 36, t.parent_id, 16) == 0);
        trace_write(&t, text);
        CHECK(strlen(text) == TRACE_PARENT_BYTES - 1 && trace_continue(text, 1, &again));
        CHECK(strcmp(again.trace_id, t.trace_id) == 0 && strcmp(again.parent_id, t.span_id) == 0);
        CHECK(again.flags == t.flags);
    }
    free(header);
}

static void try_request_id(Feed *f)
{
    static const char fine[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    char *text = feed_text(f, 300), made[TRACE_REQUEST_BYTES];
    size_t bytes = strlen(text);
    CHECK(trace_is_request_id(text) == (bytes >= 1 && bytes <= 128 && strspn(text, fine) == bytes));
    trace_make_request_id(feed_u64(f), made);
    CHECK(trace_is_request_id(made));
    free(text);
}

static void try_origins(Feed *f)
{
    Why why = {{0}};
    char *list = feed_text(f, 5000), *origin = feed_text(f, 400);
    const char *answer = cors_answer(list, origin);
    CHECK(!answer || answer == origin || strcmp(answer, "*") == 0);
    CHECK(!answer || *origin);
    if (cors_check(list, &why) == OK) {
        char *last = strrchr(list, ',');
        last = last ? last + 1 : list;
        CHECK(strcmp(list, "*") == 0 || cors_answer(list, last) == last);
        CHECK(!strpbrk(list, " \r\n\t\"\\<>"));
    } else {
        CHECK(why.text[0]);
    }
    const char *names = cors_names(origin);
    CHECK(!names || (names == origin && !strpbrk(names, "\r\n:;=\"")));
    CHECK(host_name_is_known(origin, "", "*") && host_name_is_known(NULL, "", list));
    CHECK(host_name_is_known(origin, origin, NULL));
    CHECK(!host_name_is_known(origin, "", NULL) || host_name_is_known(origin, list, list));
    free(list);
    free(origin);
}

static void check_line(const char *line, size_t bytes, LogFormat format)
{
    CHECK(bytes > 1 && bytes <= LOG_LINE_BYTES && line[bytes - 1] == '\n');
    for (size_t i = 0; i + 1 < bytes; i++) {
        CHECK((uint8_t)line[i] >= ' ' && line[i] != 0x7f);
        bool c1 =
            (uint8_t)line[i] == 0xc2 && (uint8_t)line[i + 1] >= 0x80 && (uint8_t)line[i + 1] < 0xa0;
        CHECK(format == LOG_JSON || !c1);
    }
    if (format != LOG_JSON) return;
    yyjson_doc *doc = yyjson_read(line, bytes, YYJSON_READ_NOFLAG);
    CHECK(yyjson_is_obj(yyjson_doc_get_root(doc)));
    yyjson_doc_free(doc);
}

static void try_log(Feed *f)
{
    static char line[LOG_LINE_BYTES];
    uint32_t parts = (uint32_t)feed_bits(f, 2);
    char *texts[9];
    Trace trace = trace_begin(feed_u64(f), 2, 3);
    for (int i = 0; i < 9; i++) texts[i] = parts >> i & 1 ? feed_text(f, 2000) : NULL;
    LogEntry e = {.level = (LogLevel)(parts >> 9 & 1),
                  .event = "request",
                  .message = texts[0],
                  .detail = texts[1],
                  .request_id = texts[2],
                  .request_ids = texts[3],
                  .trace = parts >> 10 & 1 ? &trace : NULL,
                  .to = texts[4],
                  .method = texts[5],
                  .path = texts[6],
                  .status = feed_u8(f),
                  .us = feed_u64(f),
                  .first_us = feed_u8(f),
                  .prompt_tokens = feed_u8(f),
                  .bytes_sent = feed_u64(f),
                  .key_name = texts[7],
                  .error = texts[8]};
    uint64_t ms = feed_u64(f);
    for (int format = 0; format < 2; format++)
        check_line(line, log_line_write(&e, (LogFormat)format, ms, "station-0", line),
                   (LogFormat)format);
    for (int i = 0; i < 9; i++) free(texts[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    switch (feed_below(&f, 5)) {
    case 0: try_bearer(&f); break;
    case 1: try_trace(&f); break;
    case 2: try_request_id(&f); break;
    case 3: try_origins(&f); break;
    default: try_log(&f);
    }
    return 0;
}
