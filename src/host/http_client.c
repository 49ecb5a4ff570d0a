/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl's multi interface, one easy handle a call. Handles are kept and never reset: what is the same for
 * every call is set once.
 *
 *   idle --start--> busy (curl works) --> ended list --wait--> the caller
 *     ^               '--- finish, cancel: the handle goes back at once
 *     '------------------'
 *
 * A body up to GATHER_BYTES is gathered into the handle's buffer: libcurl then sends it with the head in one
 * system call, and the peer wakes once instead of twice. A larger one is read from its parts. */
#include "host/http_client.h"

#include <curl/curl.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/http_plain.h"
#include "host/key.h"

enum { CONNECT_MS = 2000, CONNECTIONS_KEPT = 512 };
enum { GATHER_BYTES = 48 << 10, RECEIVE_BYTES = 64 << 10 };

typedef struct Handle {
    CURL *easy;
    HttpClient *client;
    HttpCall *call; /* NULL: idle */
    struct Handle *next, *before;
    struct curl_slist headers[HTTP_CLIENT_HEADERS_MAX];
    size_t read;   /* bytes of the body given so far */
    bool replaced; /* on a new connection after a kept one was found closed */
    char *gathered;
    char error[CURL_ERROR_SIZE];
} Handle;

struct HttpClient {
    CURLM *multi;
    char *ca_file;
    bool unverified, certificates;
    uint32_t connect_ms;
    struct curl_slist *headers, *body_headers; /* body_headers is one line more in front */
    Handle *idle, *busy;
    HttpCall *ended_first, *ended_last;
    HttpPlain *plain; /* the short way; NULL: not asked for */
    atomic_bool woken;
};

/* ---- Opening and closing ---- */

static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer) *list = longer;
    return longer != NULL;
}

/* Content-Type first, so that the list without it is its tail. "Expect:" takes a round trip away,
 * "Accept:" a line. */
static bool make_headers(HttpClient *c, const char *key)
{
    static const char bearer[] = "Authorization: Bearer ";
    char line[sizeof bearer + KEY_BYTES_MAX];
    bool fine = add_header(&c->body_headers, "Content-Type: application/octet-stream") &&
                add_header(&c->body_headers, "Expect:") && add_header(&c->body_headers, "Accept:");
    if (fine && key) {
        size_t bytes = strnlen(key, KEY_BYTES_MAX);
        memcpy(line, bearer, sizeof bearer - 1);
        memcpy(line + sizeof bearer - 1, key, bytes);
        line[sizeof bearer - 1 + bytes] = 0;
        fine = add_header(&c->body_headers, line);
    }
    if (fine) c->headers = c->body_headers->next;
    return fine;
}

static Error open_parts(HttpClient *c, const HttpClientOptions *o, Why *why)
{
    if (o->ca_file && access(o->ca_file, R_OK) != 0)
        return error_why(why, ERR_IO, "the certificates %s cannot be read", o->ca_file);
    if (o->key && strnlen(o->key, KEY_BYTES_MAX + 1) > KEY_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "a key is longer than %d bytes", KEY_BYTES_MAX);
    c->unverified = o->unverified;
    c->certificates = o->certificates;
    c->connect_ms = o->connect_ms ? o->connect_ms : CONNECT_MS;
    c->ca_file = o->ca_file ? strdup(o->ca_file) : NULL;
    c->multi = curl_multi_init();
    if (!c->multi || (o->ca_file && !c->ca_file) || !make_headers(c, o->key))
        return error_why(why, ERR_MEMORY, "no memory for an HTTP client");
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    if (o->direct) c->plain = http_plain_open(o->key, c->connect_ms); /* libcurl does it as well */
    return OK;
}

Error http_client_open(const HttpClientOptions *options, HttpClient **out, Why *why)
{
    HttpClient *c = calloc(1, sizeof *c);
    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(c);
        return error_why(why, ERR_MEMORY, "no memory for an HTTP client");
    }
    Error error = open_parts(c, options, why);
    if (error == OK) *out = c;
    else http_client_close(c);
    return error;
}

static void free_handles(HttpClient *c, Handle *list)
{
    for (Handle *h = list, *next; h; h = next) {
        next = h->next;
        if (h->call) curl_multi_remove_handle(c->multi, h->easy);
        curl_easy_cleanup(h->easy);
        free(h->gathered);
        free(h);
    }
}

void http_client_close(HttpClient *c)
{
    if (!c) return;
    free_handles(c, c->busy);
    free_handles(c, c->idle);
    if (c->multi) curl_multi_cleanup(c->multi);
    http_plain_close(c->plain);
    curl_slist_free_all(c->body_headers);
    free(c->ca_file);
    free(c);
}

/* ---- What libcurl asks and says during a call ---- */

static size_t take_answer(char *bytes, size_t size, size_t count, void *handle)
{
    HttpCall *call = ((Handle *)handle)->call;
    size_t more = size * count;
    if (!call->answer) return more;
    if (more > call->answer_room - call->answer_bytes) {
        call->error =
            error_why(&call->why, ERR_TOO_LARGE, "%s: the answer is larger than %zu bytes",
                      call->url, call->answer_room);
        return 0;
    }
    if (more) memcpy(call->answer + call->answer_bytes, bytes, more);
    call->answer_bytes += more;
    return more;
}

/* Decimal digits of [*at, end). Result  false for none, or for too many. */
static bool take_number(const char **at, const char *end, uint64_t *out)
{
    const char *first = *at;
    uint64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        if (n > (UINT64_MAX - 9) / 10) return false;
        n = n * 10 + (uint64_t)(**at - '0');
    }
    *out = n;
    return *at > first;
}

/* "bytes 0-99/1234", "bytes * /1234" (without the blank). An unknown total is as no range. */
static void take_range(HttpCall *call, const char *at, const char *end)
{
    uint64_t first = 0, last, total;
    static const char unit[] = "bytes ";
    if ((size_t)(end - at) < sizeof unit || strncasecmp(at, unit, sizeof unit - 1) != 0) return;
    at += sizeof unit - 1;
    if (*at == '*') {
        at++;
    } else {
        if (!take_number(&at, end, &first) || at == end || *at++ != '-') return;
        if (!take_number(&at, end, &last) || last < first) return;
    }
    if (at == end || *at++ != '/' || !take_number(&at, end, &total)) return;
    call->range_first = first;
    call->range_bytes_total = total;
}

/* Where the value of the line begins when it is of the header `name`; else NULL. */
static const char *value_of(const char *line, const char *end, const char *name)
{
    size_t n = strlen(name);
    if ((size_t)(end - line) <= n || line[n] != ':' || strncasecmp(line, name, n) != 0) return NULL;
    line += n + 1;
    while (line < end && (*line == ' ' || *line == '\t')) line++;
    return line;
}

static void take_date(HttpCall *call, const char *at, const char *end)
{
    char text[64];
    size_t bytes = (size_t)(end - at);
    if (bytes >= sizeof text) return;
    memcpy(text, at, bytes);
    text[bytes] = 0;
    time_t date = curl_getdate(text, NULL);
    if (date > 0) call->date_s = date;
}

static size_t take_header(char *line, size_t size, size_t count, void *handle)
{
    HttpCall *call = ((Handle *)handle)->call;
    size_t bytes = size * count;
    const char *end = line + bytes, *value;
    uint64_t length;
    if ((value = value_of(line, end, "content-range")) != NULL) {
        take_range(call, value, end);
    } else if ((value = value_of(line, end, "date")) != NULL) {
        take_date(call, value, end);
    } else if ((value = value_of(line, end, "content-length")) != NULL &&
               take_number(&value, end, &length)) {
        if (strcmp(call->method, "HEAD") == 0) {
            call->range_bytes_total = length;
        } else if (call->answer && length > call->answer_room) {
            call->error =
                error_why(&call->why, ERR_TOO_LARGE, "%s: an answer of %llu bytes, room for %zu",
                          call->url, (unsigned long long)length, call->answer_room);
            return 0;
        }
    }
    return bytes;
}

static size_t give_body(char *out, size_t size, size_t count, void *handle)
{
    Handle *h = handle;
    size_t given = 0, room = size * count, start = 0;
    for (int i = 0; i < 2; i++) {
        size_t bytes = h->call->part_bytes[i], skip = h->read > start ? h->read - start : 0;
        start += bytes;
        if (skip >= bytes || given == room) continue;
        size_t take = bytes - skip < room - given ? bytes - skip : room - given;
        memcpy(out + given, (const uint8_t *)h->call->parts[i] + skip, take);
        given += take;
        h->read += take;
    }
    h->call->sent_bytes = h->read;
    return given;
}

static int seek_body(void *handle, curl_off_t offset, int origin)
{
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
    ((Handle *)handle)->read = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- Handles ---- */

/* What every call has. */
static void set_up(const HttpClient *c, Handle *h)
{
    CURL *e = h->easy;
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PROXY, "");
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_ms);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    if (c->ca_file) curl_easy_setopt(e, CURLOPT_CAINFO, c->ca_file);
    if (c->unverified) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->certificates) curl_easy_setopt(e, CURLOPT_CERTINFO, 1L);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, h);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, h);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(e, CURLOPT_READDATA, h);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, seek_body);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, h);
    curl_easy_setopt(e, CURLOPT_PRIVATE, h);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, h->error);
}

static Handle *take_handle(HttpClient *c)
{
    Handle *h = c->idle;
    if (h) {
        c->idle = h->next;
    } else {
        h = calloc(1, sizeof *h);
        if (h) h->easy = curl_easy_init();
        if (!h || !h->easy) {
            free(h);
            return NULL;
        }
        h->client = c;
        set_up(c, h);
    }
    h->before = NULL;
    h->next = c->busy;
    if (c->busy) c->busy->before = h;
    c->busy = h;
    return h;
}

static void put_back(HttpClient *c, Handle *h)
{
    if (h->before) h->before->next = h->next;
    else c->busy = h->next;
    if (h->next) h->next->before = h->before;
    h->call->handle = NULL;
    h->call = NULL;
    h->next = c->idle;
    c->idle = h;
}

/* ---- Calls ---- */

static void end(HttpClient *c, HttpCall *call)
{
    call->next = NULL;
    if (c->ended_last) c->ended_last->next = call;
    else c->ended_first = call;
    c->ended_last = call;
}

/* The call's own lines, then those of every call. */
static void set_headers(const HttpClient *c, Handle *h, bool body)
{
    const char *const *lines = h->call->headers;
    struct curl_slist *common = body ? c->body_headers : c->headers, *first = common;
    size_t count = 0;
    while (count < HTTP_CLIENT_HEADERS_MAX && lines[count]) {
        if (value_of(lines[count], lines[count] + strlen(lines[count]) + 1, "content-type"))
            common = c->headers;
        count++;
    }
    for (size_t i = count; i-- > 0;) {
        h->headers[i].data = (char *)lines[i];
        h->headers[i].next = i + 1 < count ? &h->headers[i + 1] : common;
    }
    if (count) first = h->headers;
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, first);
}

static bool set_body(Handle *h)
{
    const HttpCall *call = h->call;
    size_t bytes = call->part_bytes[0] + call->part_bytes[1];
    curl_easy_setopt(h->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, NULL);
    h->read = 0;
    if (!call->part_bytes[1] && bytes <= GATHER_BYTES) {
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, bytes ? call->parts[0] : "");
    } else if (bytes <= GATHER_BYTES) {
        if (!h->gathered) h->gathered = malloc(GATHER_BYTES);
        if (!h->gathered) return false;
        if (call->part_bytes[0]) memcpy(h->gathered, call->parts[0], call->part_bytes[0]);
        memcpy(h->gathered + call->part_bytes[0], call->parts[1], call->part_bytes[1]);
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, h->gathered);
    }
    return true;
}

static bool begin(HttpClient *c, Handle *h)
{
    HttpCall *call = h->call;
    uint32_t ms = call->deadline_ms ? call->deadline_ms : HTTP_CLIENT_DEADLINE_MS;
    bool post = strcmp(call->method, "POST") == 0, put = strcmp(call->method, "PUT") == 0,
         head = strcmp(call->method, "HEAD") == 0, get = strcmp(call->method, "GET") == 0,
         body = post || put || call->part_bytes[0] || call->part_bytes[1];
    h->error[0] = 0;
    h->replaced = false;
    curl_easy_setopt(h->easy, CURLOPT_FRESH_CONNECT, 0L);
    curl_easy_setopt(h->easy, CURLOPT_NOBODY, 0L);
    if (body) {
        if (!set_body(h)) return false;
    } else {
        curl_easy_setopt(h->easy, CURLOPT_HTTPGET, 1L);
    }
    if (head) curl_easy_setopt(h->easy, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(h->easy, CURLOPT_CUSTOMREQUEST, post || get || head ? NULL : call->method);
    curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, (long)ms);
    set_headers(c, h, body);
    return curl_easy_setopt(h->easy, CURLOPT_URL, call->url) == CURLE_OK &&
           curl_multi_add_handle(c->multi, h->easy) == CURLM_OK;
}

void http_client_start(HttpClient *c, HttpCall *call)
{
    call->error = OK;
    call->why.text[0] = 0;
    call->status = 0;
    call->answer_bytes = 0;
    call->range_first = call->range_bytes_total = 0;
    call->date_s = call->certificate_until_s = 0;
    call->microseconds = 0;
    call->sent_bytes = 0;
    call->handle = NULL;
    if (c->plain && http_plain_start(c->plain, call)) return;
    Handle *h = take_handle(c);
    call->handle = h;
    if (h) h->call = call;
    if (h && begin(c, h)) return;
    if (h) put_back(c, h);
    call->error = error_why(&call->why, ERR_MEMORY, "%s: no memory for the call", call->url);
    end(c, call);
}

/* What became of a call, in few words; libcurl's own follow. */
static const char *kind_of(CURLcode result, const Handle *h)
{
    curl_off_t connected_us = 0;
    switch (result) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST: return "no connection";
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(h->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
        return connected_us ? "too late" : "no connection in time";
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR: return "broken off";
    case CURLE_SSL_CONNECT_ERROR: return "no TLS connection";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return "not trusted";
    default: return "failed";
    }
}

/* A kept connection that broke before a byte of the answer came was most likely closed by the peer while it
 * lay idle: once more on a new one. libcurl does so itself when the break shows before it sends or at
 * the answer, not when it shows in the midst of a body. */
static bool replace_connection(HttpClient *c, Handle *h, CURLcode result)
{
    long made = 0, heard = 0;
    if ((result != CURLE_SEND_ERROR && result != CURLE_RECV_ERROR && result != CURLE_GOT_NOTHING) ||
        h->replaced)
        return false;
    curl_easy_getinfo(h->easy, CURLINFO_NUM_CONNECTS, &made);
    curl_easy_getinfo(h->easy, CURLINFO_HEADER_SIZE, &heard);
    if (made || heard) return false;
    h->replaced = true;
    h->read = 0;
    curl_multi_remove_handle(c->multi, h->easy);
    curl_easy_setopt(h->easy, CURLOPT_FRESH_CONNECT, 1L);
    return curl_multi_add_handle(c->multi, h->easy) == CURLM_OK;
}

/* "Cert:-----BEGIN CERTIFICATE-----...", of the peer itself: the chain's first. */
static int64_t certificate_until(const Handle *h)
{
    struct curl_certinfo *info = NULL;
    gnutls_x509_crt_t certificate;
    int64_t until = 0;
    if (curl_easy_getinfo(h->easy, CURLINFO_CERTINFO, &info) != CURLE_OK || !info ||
        info->num_of_certs < 1 || gnutls_x509_crt_init(&certificate) != 0)
        return 0;
    for (struct curl_slist *line = info->certinfo[0]; line; line = line->next) {
        if (strncmp(line->data, "Cert:", 5) != 0) continue;
        gnutls_datum_t pem = {(unsigned char *)line->data + 5, (unsigned)strlen(line->data + 5)};
        if (gnutls_x509_crt_import(certificate, &pem, GNUTLS_X509_FMT_PEM) == 0)
            until = gnutls_x509_crt_get_expiration_time(certificate);
    }
    gnutls_x509_crt_deinit(certificate);
    return until;
}

static void finish(HttpClient *c, Handle *h, CURLcode result)
{
    if (result != CURLE_OK && replace_connection(c, h, result)) return;
    HttpCall *call = h->call;
    long status = 0;
    curl_off_t microseconds = 0;
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(h->easy, CURLINFO_TOTAL_TIME_T, &microseconds);
    call->status = (unsigned)status;
    if (c->certificates) call->certificate_until_s = certificate_until(h);
    call->microseconds = microseconds > UINT32_MAX ? UINT32_MAX : (uint32_t)microseconds;
    if (result != CURLE_OK && call->error == OK)
        call->error = error_why(
            &call->why, result == CURLE_OUT_OF_MEMORY ? ERR_MEMORY : ERR_UNREACHABLE, "%s: %s: %s",
            call->url, kind_of(result, h), h->error[0] ? h->error : curl_easy_strerror(result));
    curl_multi_remove_handle(c->multi, h->easy);
    put_back(c, h);
    end(c, call);
}

void http_client_cancel(HttpClient *c, HttpCall *call)
{
    Handle *h = call->handle;
    if (!h && c->plain) (void)http_plain_cancel(c->plain, call);
    if (!h) return;
    curl_multi_remove_handle(c->multi, h->easy);
    call->error = error_why(&call->why, ERR_CANCELLED, "%s: cancelled", call->url);
    put_back(c, h);
    end(c, call);
}

/* ---- Waiting ---- */

static HttpCall *take_ended(HttpClient *c)
{
    HttpCall *call = c->ended_first;
    if (!call) return NULL;
    c->ended_first = call->next;
    if (!call->next) c->ended_last = NULL;
    call->next = NULL;
    return call;
}

static void work(HttpClient *c)
{
    int running, left;
    if (!c->busy) return;
    /* what has not begun begins here, and what has come is read */
    (void)curl_multi_perform(c->multi, &running);
    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left)) != NULL;) {
        char *h = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode result = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &h);
        finish(c, (Handle *)(void *)h, result);
    }
}

/* What both ways have done so far. */
static void look(HttpClient *c)
{
    if (!c->ended_first) work(c);
    for (HttpCall *call; c->plain && (call = http_plain_take(c->plain)) != NULL;) end(c, call);
}

static void sleep_until_news(HttpClient *c, int timeout_ms)
{
    if (c->plain && !c->busy) {
        http_plain_work(c->plain, timeout_ms);
    } else if (c->plain) {
        struct curl_waitfd plain = {.fd = http_plain_descriptor(c->plain),
                                    .events = CURL_WAIT_POLLIN};
        int left = http_plain_left_ms(c->plain);
        if (left >= 0 && left < timeout_ms) timeout_ms = left;
        (void)curl_multi_poll(c->multi, &plain, 1, timeout_ms, NULL);
        http_plain_work(c->plain, 0);
    } else {
        (void)curl_multi_poll(c->multi, NULL, 0, timeout_ms, NULL);
    }
}

HttpCall *http_client_wait(HttpClient *c, int timeout_ms)
{
    uint64_t until = timeout_ms > 0 ? clock_now_ms() + (unsigned)timeout_ms : 0;
    if (!timeout_ms && c->plain) http_plain_work(c->plain, 0);
    for (;;) {
        look(c);
        if (c->ended_first) return take_ended(c);
        if (atomic_exchange(&c->woken, false) || !timeout_ms) return NULL;
        int64_t left = timeout_ms < 0 ? INT_MAX : (int64_t)(until - clock_now_ms());
        if (left <= 0) return NULL;
        sleep_until_news(c, (int)left);
    }
}

void http_client_wake(HttpClient *c)
{
    if (atomic_exchange(&c->woken, true)) return;
    (void)curl_multi_wakeup(c->multi);
    if (c->plain) http_plain_wake(c->plain);
}

void http_client_run(HttpClient *c, HttpCall *call)
{
    http_client_start(c, call);
    while (http_client_wait(c, -1) != call) {
    }
}
