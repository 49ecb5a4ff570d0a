/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/warden_answer.h"
#include "host/clock.h"
#include "host/http_client.h"
#include "host/ports.h"
#include "host/spans.h"
#include "host/stop.h"
#include "quant/numerics.h"
#include "wire/node_error.h"

enum {
    TRIES_MAX = 3,
    BACKOFF_MS = 100,
    REST_S = 5, /* a warden that was given up */
    DEADLINE_MS = 20000,
    URGENT_MS = 2000,
    TELLS_MAX = 8,
    TELL_WAIT_MS = 1000,
    ANSWER_BYTES = WARDEN_ROWS_BYTES_MAX + FRAME_HEADER_BYTES_MAX,
    BASE_BYTES = 320,
    HEADERS = 4
};

/* An /invalidate under way. */
typedef struct Tellable {
    HttpCall call;
    char url[HTTP_CLIENT_URL_BYTES_MAX];
    uint8_t answer[NODE_ERROR_BYTES_MAX];
    bool busy;
} Tellable;

struct WardenClient {
    HttpClient *http, *tells;
    char base[BASE_BYTES]; /* "http://HOST:PORT" */
    char ca[NODE_PATH_BYTES];
    char headers[HEADERS][CLUSTER_FILE_TEXT_BYTES_MAX + 32];
    uint64_t knot_id, next_request;
    uint8_t *answer; /* [ANSWER_BYTES], pages touched as needed */
    uint64_t rest_until_s;
    Tellable told[TELLS_MAX];
};

/* --- opening --- */

static void name_identity(WardenClient *c, const Node *node, const ClusterNode *warden)
{
    char text[PHASE_RANGE_TEXT_MAX];
    uint32_t layers = node->cluster->layers;
    (void)snprintf(c->headers[0], sizeof c->headers[0], "X-Knot-Id: %016" PRIx64, c->knot_id);
    (void)snprintf(c->headers[1], sizeof c->headers[1], "X-Knot-Key: %s", node->cluster->knot_key);
    for (char *at = c->headers[1]; *at; at++)
        if ((unsigned char)*at < ' ') *at = '?'; /* never a second header */
    if (warden->role == CLUSTER_SHARD_WARDEN) {
        (void)snprintf(c->headers[2], sizeof c->headers[2], "X-Vocab-Start: %u", warden->id_first);
        (void)snprintf(c->headers[3], sizeof c->headers[3], "X-Vocab-End: %u", warden->id_last);
        return;
    }
    phase_range_text(warden->range, layers, text);
    char *dash = strchr(text, '-');
    *dash = '\0';
    (void)snprintf(c->headers[2], sizeof c->headers[2], "X-Layer-Start: %s", text);
    (void)snprintf(c->headers[3], sizeof c->headers[3], "X-Layer-End: %s", dash + 1);
}

static Error open_parts(WardenClient *c, const Node *node, const ClusterNode *warden, Why *why)
{
    char place[PORTS_TEXT_BYTES];
    HttpClientOptions options = {.key = node->key};
    if (node->cluster->tls_ca[0]) {
        TRY(node_path(node->cluster_path, node->cluster->tls_ca, c->ca, why));
        options.ca_file = c->ca;
    }
    (void)snprintf(c->base, sizeof c->base, "http%s://%s",
                   node->cluster->tls_certificate[0] ? "s" : "",
                   ports_text(warden->host, warden->port, place));
    c->knot_id = node->cluster->knot_id;
    name_identity(c, node, warden);
    c->answer = malloc(ANSWER_BYTES);
    if (!c->answer) return error_why(why, ERR_MEMORY, "no memory for a warden's answers");
    TRY(http_client_open(&options, &c->http, why));
    return http_client_open(&options, &c->tells, why);
}

Error warden_client_open(const Node *node, const ClusterNode *warden, WardenClient **out, Why *why)
{
    WardenClient *c = calloc(1, sizeof *c);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a warden's client");
    Error e = open_parts(c, node, warden, why);
    if (e) warden_client_close(c);
    else *out = c;
    return e;
}

/* --- word of bad bytes --- */

static void collect_tells(WardenClient *c, int timeout_ms)
{
    HttpCall *ended;
    while ((ended = http_client_wait(c->tells, timeout_ms)) != NULL)
        ((Tellable *)ended->tag)->busy = false;
}

static bool tells_busy(const WardenClient *c)
{
    for (int i = 0; i < TELLS_MAX; i++)
        if (c->told[i].busy) return true;
    return false;
}

void warden_client_invalidate(WardenClient *c, const char *what)
{
    collect_tells(c, 0);
    for (int i = 0; i < TELLS_MAX; i++) {
        Tellable *t = &c->told[i];
        if (t->busy) continue;
        (void)snprintf(t->url, sizeof t->url, "%s/invalidate/%s", c->base, what);
        t->call = (HttpCall){.method = "POST",
                             .url = t->url,
                             .deadline_ms = TELL_WAIT_MS,
                             .answer = t->answer,
                             .answer_room = sizeof t->answer,
                             .tag = t};
        t->busy = true;
        http_client_start(c->tells, &t->call);
        break;
    }
    collect_tells(c, 0);
}

void warden_client_close(WardenClient *c)
{
    if (!c) return;
    for (int i = 0; c->tells && tells_busy(c) && i < TELL_WAIT_MS / 10; i++) collect_tells(c, 10);
    if (c->http) http_client_close(c->http);
    if (c->tells) http_client_close(c->tells);
    free(c->answer);
    free(c);
}

/* --- calls --- */

bool warden_client_alive(const WardenClient *c) { return clock_now_s() >= c->rest_until_s; }

static void back_off(int tries)
{
    struct timespec t = {0, BACKOFF_MS * 1000000L * (tries * tries)};
    (void)nanosleep(&t, NULL);
}

static Error outcome(const HttpCall *call, Why *why)
{
    if (call->error) {
        *why = call->why;
        return call->error;
    }
    if (call->status == 200) return OK;
    return node_error_read(call->status, call->answer, call->answer_bytes, why);
}

static bool is_transient(const HttpCall *call)
{
    return call->error == ERR_UNREACHABLE || (call->error == OK && call->status == 503);
}

/* Result in call; ERR_UNREACHABLE when the warden is gone. */
static Error run(WardenClient *c, HttpCall *call, uint32_t deadline_ms, Why *why)
{
    if (!warden_client_alive(c))
        return error_why(why, ERR_UNREACHABLE, "%s was not there a moment ago", c->base);
    char trace[SPANS_LINE_BYTES];
    for (int i = 0; i < HEADERS; i++) call->headers[i] = c->headers[i];
    if (spans_line(trace)) call->headers[HEADERS] = trace;
    call->deadline_ms = deadline_ms;
    for (int tries = 1;; tries++) {
        http_client_run(c->http, call);
        collect_tells(c, 0);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
        if (!is_transient(call)) return outcome(call, why);
        if (tries == TRIES_MAX || call->microseconds / 1000 >= deadline_ms / 2) break;
        back_off(tries);
    }
    c->rest_until_s = clock_now_s() + REST_S;
    Error e = outcome(call, why);
    return e == ERR_AGAIN || e == ERR_CANCELLED ? ERR_UNREACHABLE : e;
}

/* --- plain bytes --- */

static Error source_size(void *context, uint64_t *bytes, Why *why)
{
    WardenClient *c = context;
    static const char start[] = "{\"bytes\":";
    char url[BASE_BYTES + 32], text[64], *end = NULL;
    (void)snprintf(url, sizeof url, "%s/knot?size", c->base);
    HttpCall call = {.method = "GET", .url = url, .answer = c->answer, .answer_room = 4096};
    TRY(run(c, &call, DEADLINE_MS, why));
    (void)snprintf(text, sizeof text, "%.*s", (int)call.answer_bytes, (const char *)c->answer);
    bool right = strncmp(text, start, sizeof start - 1) == 0;
    *bytes = right ? strtoull(text + sizeof start - 1, &end, 10) : 0;
    if (!right || strcmp(end, "}") != 0)
        return error_why(why, ERR_FORMAT, "%s says no size of the knot", c->base);
    return OK;
}

static Error read_part(WardenClient *c, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    char url[BASE_BYTES + 96];
    (void)snprintf(url, sizeof url, "%s/knot?bytes=%" PRIu64 "-%" PRIu64, c->base, offset,
                   offset + bytes - 1);
    /* straight to its place; an error's body goes there too, when there is room for it */
    bool small = bytes < NODE_ERROR_BYTES_MAX;
    HttpCall call = {.method = "GET",
                     .url = url,
                     .answer = small ? c->answer : out,
                     .answer_room = small ? NODE_ERROR_BYTES_MAX : (size_t)bytes};
    TRY(run(c, &call, DEADLINE_MS, why));
    if (call.answer_bytes != bytes)
        return error_why(why, ERR_FORMAT, "%s gave %zu bytes of the knot instead of %llu", c->base,
                         call.answer_bytes, (unsigned long long)bytes);
    if (small) memcpy(out, c->answer, (size_t)bytes);
    return OK;
}

static Error source_read(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    WardenClient *c = context;
    while (bytes) {
        uint64_t part = bytes < WARDEN_ANSWER_BYTES_MAX ? bytes : WARDEN_ANSWER_BYTES_MAX;
        TRY(read_part(c, offset, part, out, why));
        offset += part;
        out += part;
        bytes -= part;
    }
    return OK;
}

KnotSource warden_client_source(WardenClient *c)
{
    return (KnotSource){source_size, source_read, c};
}

/* --- tensors --- */

static Error check_answer(const AwfrTerms *terms, const AwfrPiece *asked, uint32_t count,
                          const HttpCall *call, uint64_t request_id, AwfrPiece *got,
                          const uint8_t **payload, Why *why)
{
    uint32_t got_count;
    FrameHead head;
    TRY(awfr_read(FRAME_TENSORS_ANSWER, call->answer, call->answer_bytes, terms, got, &got_count,
                  &head, why));
    TRY(frame_check_echo(head.request_id, request_id, "request id", why));
    TRY(awfr_check_answer(asked, count, got, got_count, why));
    if (call->answer_bytes - head.header_bytes != head.payload_bytes)
        return error_why(why, ERR_TRUNCATED, "%zu bytes of tensors, the frame says %llu",
                         call->answer_bytes - head.header_bytes,
                         (unsigned long long)head.payload_bytes);
    *payload = call->answer + head.header_bytes;
    TRY(awfr_check_gaps(got, count, *payload, why));
    for (uint32_t i = 0; i < count; i++) TRY(awfr_check_piece(&got[i], *payload + got[i].at, why));
    return OK;
}

Error warden_client_tensors(WardenClient *c, const Knot *knot, AwfrPiece *asked, uint32_t count,
                            bool urgent, AwfrPiece *got, const uint8_t **payload, Why *why)
{
    char url[BASE_BYTES + 32];
    uint64_t bytes, request_id = ++c->next_request;
    AwfrTerms terms = {.identity = {c->knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = knot,
                       .pieces_max = count,
                       .payload_bytes_max = WARDEN_ROWS_BYTES_MAX};
    TRY(awfr_lay_out(asked, count, &bytes, why));
    size_t header_bytes = awfr_header_size(asked, count);
    uint8_t *header = malloc(header_bytes);
    if (!header) return error_why(why, ERR_MEMORY, "no memory for a request");
    awfr_write(FRAME_TENSORS, &terms, request_id, asked, count, header);
    (void)snprintf(url, sizeof url, "%s/tensors", c->base);
    HttpCall call = {.method = "POST",
                     .url = url,
                     .parts = {header},
                     .part_bytes = {header_bytes},
                     .answer = c->answer,
                     .answer_room = ANSWER_BYTES};
    Error e = run(c, &call, urgent ? URGENT_MS : DEADLINE_MS, why);
    free(header);
    TRY(e);
    return check_answer(&terms, asked, count, &call, request_id, got, payload, why);
}
