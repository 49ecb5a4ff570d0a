/* SPDX-License-Identifier: Apache-2.0 */
/* What a server that may be anybody's answers to `cobord run --url`. run_remote.c is compiled in with an HTTP
 * client of ours, which gives the input in pieces.
 *
 *   status | error of the call | size of the pieces | body
 *
 * What is shown has nothing that a terminal obeys, an error says something, and the figures are of the answer. */
#include <fcntl.h>

#include "feed.h"
#include "host/http_client.h"
#include "lend.h"

static struct {
    Feed body;
    size_t piece;
    unsigned status;
    Error error;
    HttpCall *call;
    bool cancelled;
} server;

static void fuzz_start(HttpClient *client, HttpCall *call)
{
    (void)client;
    server.call = call;
    call->status = server.status;
    call->answer_bytes = 0;
}

static HttpCall *fuzz_wait(HttpClient *client, int timeout_ms)
{
    (void)client;
    (void)timeout_ms;
    HttpCall *call = server.call;
    size_t n = server.body.left < server.piece ? server.body.left : server.piece;
    CHECK(n <= call->answer_room - call->answer_bytes);
    if (n) memcpy(call->answer + call->answer_bytes, server.body.at, n);
    call->answer_bytes += n;
    server.body.at += n;
    server.body.left -= n;
    if (server.body.left && !server.cancelled) return NULL;
    call->error = server.cancelled ? ERR_CANCELLED : server.error;
    if (call->error != OK) call->error = error_why(&call->why, call->error, "the line is down");
    return call;
}

static void fuzz_cancel(HttpClient *client, HttpCall *call)
{
    (void)client;
    (void)call;
    server.cancelled = true;
}

static Error fuzz_open(const HttpClientOptions *options, HttpClient **out, Why *why)
{
    (void)options;
    (void)why;
    *out = NULL;
    return OK;
}

static void fuzz_close(HttpClient *client) { (void)client; }

/* 32 MiB for each input would be all that is measured; a block of 1 MiB that stays is more than any input fills. */
static Lend answer;
static bool answer_lent;

static void *fuzz_malloc(size_t bytes)
{
    if (bytes <= (16u << 20)) return malloc(bytes);
    CHECK(!answer_lent);
    answer_lent = true;
    return lend(&answer, 1u << 20);
}

static void fuzz_free(void *block)
{
    if (!block || block != answer.base) {
        free(block);
        return;
    }
    CHECK(answer_lent);
    answer_lent = false;
    lend_back(&answer);
}

#define malloc fuzz_malloc
#define free fuzz_free
#define http_client_open fuzz_open
#define http_client_close fuzz_close
#define http_client_start fuzz_start
#define http_client_wait fuzz_wait
#define http_client_cancel fuzz_cancel
#include "../../src/cli/run_remote.c"
#undef malloc
#undef free

int isatty(int fd);
int isatty(int fd) { return fd != 0; } /* what is shown is shown on a terminal */

/* Standard output into memory. */
static char *shown;
static size_t shown_bytes;

static void check_shown(void)
{
    fflush(stdout);
    for (size_t i = 0; i < shown_bytes; i++) {
        uint8_t c = (uint8_t)shown[i];
        CHECK(c >= ' ' || c == '\n' || c == '\t');
        CHECK(c != 0x7f && !(c == 0xc2 && i + 1 < shown_bytes && (uint8_t)shown[i + 1] >= 0x80 &&
                             (uint8_t)shown[i + 1] < 0xa0));
    }
    rewind(stdout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Run run;
    static Options options;
    Feed f = {data, size};
    Why why = {{0}};
    if (!shown) stdout = open_memstream(&shown, &shown_bytes);
    server.status = (uint8_t)feed_u8(&f) & 1 ? 200 : (unsigned)feed_bits(&f, 2) % 1000;
    server.error = feed_below(&f, 8) ? OK : ERR_UNREACHABLE;
    server.piece = 1 + feed_u8(&f) * 4;
    server.cancelled = false;
    server.body = f;
    options.operands[0] = "model";
    options.values[OPTION_URL].text = "127.0.0.1:1";
    options.values[OPTION_URL].given = true;
    run.options = &options;
    run.remote = true;
    CHECK(run_answer_add(&run, "user", "hello", 5, &why) == OK);
    run.answer_bytes = 0;
    Error error = run_remote_answer(&run, &why);
    if (error != OK) CHECK(why.text[0] && strnlen(why.text, WHY_MAX) < WHY_MAX);
    else CHECK(server.status == 200);
    for (size_t i = 0; error != OK && why.text[i]; i++)
        CHECK(why.text[i] >= ' ' && why.text[i] <= '~');
    CHECK(run.answer_bytes <= size);
    check_shown();
    run_answer_drop(&run, 0);
    CHECK(!answer_lent);
    return 0;
}
