/* SPDX-License-Identifier: Apache-2.0 */
#include "host/fetch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "host/file_writer.h"
#include "host/places.h"
#include "host/sha256.h"
#include "host/stop.h"
#include "host/whole.h"
#include "knot/foreign.h"

enum {
    FETCH_TRIES = 5, /* in a row without a byte in between */
    FETCH_CONNECT_S = 15,
    FETCH_STALL_S = 30, /* without a byte: the connection counts as broken */
    FETCH_REDIRECTS_MAX = 10,
    FETCH_VALIDATOR_BYTES = 256,
    FETCH_HEAD_BYTES = 512, /* kept from the start of the file, to say what it looks like */
    FETCH_BOOT_BYTES = 64
};

/* Third line of a tag; else it is the boot in which the file was written. */
#define FETCH_SYNCED "synced"   /* all of it is on the disk */
#define FETCH_CHECKED "checked" /* its hash is known and will tell */

typedef struct Fetch {
    const char *url, *path, *identity;
    const S3Access *s3;
    bool named; /* the identity is the caller's: no validators */
    const Tell *tell;
    CURL *curl;
    struct curl_slist *headers;
    int file;
    uint64_t at;    /* bytes in the file now */
    uint64_t start; /* where this try began */
    uint64_t total; /* of the whole, 0 while not known */
    uint64_t expected;
    uint64_t whole; /* from the Content-Range of a 416: bytes of the whole file */
    char validator[FETCH_VALIDATOR_BYTES]; /* of the prefix that we have */
    char answered[FETCH_VALIDATOR_BYTES];  /* of this answer */
    char sha256[SHA256_HEX_BYTES];
    uint8_t head[FETCH_HEAD_BYTES];
    long status;
    bool accepted; /* this answer's body goes into the file */
    Error failure; /* found inside a callback */
    Why *why;
} Fetch;

/* --- the tag beside the partial file --- */

static bool fetch_tag_path(const char *path, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "%s.tag", path);
    return n > 0 && (size_t)n < bytes;
}

/* Bytes that were written before a power cut may be zeros after it: a file of an earlier boot is a prefix only where
 * it was synced, or where its hash is known. */
static void fetch_boot(char out[FETCH_BOOT_BYTES])
{
    int fd = whole_open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd >= 0 ? whole_rest(fd, out, FETCH_BOOT_BYTES - 1) : 0;
    if (fd >= 0) (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* Whole or not at all, also when the program is being stopped. Without a tag the next run starts over: nothing wrong
 * can come of a failure. */
static void fetch_tag_write(const char *partial, const char *identity, const char *validator,
                            const char *state)
{
    char path[PLACES_PATH_BYTES], temporary[PLACES_PATH_BYTES + 8];
    FILE *file = NULL;
    if (fetch_tag_path(partial, path, sizeof path)) {
        (void)snprintf(temporary, sizeof temporary, "%s.part", path);
        file = fopen(temporary, "we");
    }
    if (!file) return;
    bool good = fprintf(file, "%s\n%s\n%s\n", identity, validator, state) > 0 &&
                fflush(file) == 0 && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good;
    if (good && rename(temporary, path) == 0) file_writer_sync_directory(path);
    else (void)unlink(temporary);
}

void fetch_tag(const char *path, const char *identity)
{
    fetch_tag_write(path, identity, "", FETCH_CHECKED);
}

void fetch_forget(const char *path)
{
    char tag[PLACES_PATH_BYTES];
    if (fetch_tag_path(path, tag, sizeof tag)) (void)unlink(tag);
    (void)unlink(path);
}

/* The next line without its end. */
static bool fetch_line(FILE *file, char *out, size_t bytes)
{
    if (!fgets(out, (int)bytes, file)) return false;
    out[strcspn(out, "\n")] = '\0';
    return true;
}

/* Whether the partial file is a prefix of this URL's file. */
static bool fetch_tag_read(Fetch *f)
{
    char path[PLACES_PATH_BYTES], line[PLACES_PATH_BYTES], state[FETCH_BOOT_BYTES],
        boot[FETCH_BOOT_BYTES];
    FILE *file = fetch_tag_path(f->path, path, sizeof path) ? fopen(path, "re") : NULL;
    if (!file) return false;
    fetch_boot(boot);
    bool same = fetch_line(file, line, sizeof line) && strcmp(line, f->identity) == 0;
    same = same && fetch_line(file, f->validator, sizeof f->validator);
    if (same && !f->named)
        same = fetch_line(file, state, sizeof state) &&
               (strcmp(state, FETCH_SYNCED) == 0 || (boot[0] && strcmp(state, boot) == 0));
    (void)fclose(file);
    return same;
}

/* Before bytes come, and when no more do. */
static void fetch_tag_begin(const Fetch *f)
{
    char boot[FETCH_BOOT_BYTES];
    fetch_boot(boot);
    fetch_tag_write(f->path, f->identity, f->validator, f->named ? FETCH_CHECKED : boot);
}

static Error fetch_sync(const Fetch *f)
{
    if (fsync(f->file) != 0) return places_system_error(errno, f->path, f->why);
    if (!f->named) fetch_tag_write(f->path, f->identity, f->validator, FETCH_SYNCED);
    return OK;
}

/* --- the file --- */

static Error fetch_cut(Fetch *f, uint64_t bytes)
{
    if (ftruncate(f->file, (off_t)bytes) != 0 || lseek(f->file, (off_t)bytes, SEEK_SET) < 0)
        return places_system_error(errno, f->path, f->why);
    f->at = bytes;
    return OK;
}

static Error fetch_open(Fetch *f)
{
    f->file = whole_open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->file < 0) return places_system_error(errno, f->path, f->why);
    struct stat state;
    if (fstat(f->file, &state) != 0) return places_system_error(errno, f->path, f->why);
    bool ours = fetch_tag_read(f);
    TRY(fetch_cut(f, ours ? (uint64_t)state.st_size : 0));
    size_t head = f->at < FETCH_HEAD_BYTES ? (size_t)f->at : FETCH_HEAD_BYTES;
    if (pread(f->file, f->head, head, 0) != (ssize_t)head) TRY(fetch_cut(f, 0));
    return OK;
}

static Error fetch_check_length(const Fetch *f)
{
    if (!f->expected || !f->total || f->total == f->expected) return OK;
    return error_why(f->why, ERR_TRUNCATED, "%s: the server has %llu bytes, expected are %llu",
                     f->url, (unsigned long long)f->total, (unsigned long long)f->expected);
}

/* As soon as four bytes are there: is this a model at all? */
static Error fetch_check_head(Fetch *f)
{
    if (f->at < 4) return OK;
    if (memcmp(f->head, "GGUF", 4) == 0 || memcmp(f->head, "KNOT", 4) == 0)
        return fetch_check_length(f);
    size_t bytes = f->at < FETCH_HEAD_BYTES ? (size_t)f->at : FETCH_HEAD_BYTES;
    const char *kind = foreign_kind(f->head, bytes);
    if (!kind)
        return error_why(f->why, ERR_FORMAT,
                         "%s is neither a GGUF nor a knot file. Check the address.", f->url);
    return error_why(f->why, ERR_FORMAT, "%s sent %s. %s", f->url, kind,
                     foreign_advice(f->head, bytes));
}

static Error fetch_store(Fetch *f, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length && f->at + i < FETCH_HEAD_BYTES; i++)
        f->head[f->at + i] = bytes[i];
    bool young = f->at < 4;
    while (length) {
        ssize_t n = write(f->file, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return places_system_error(errno, f->path, f->why);
        bytes += n;
        length -= (size_t)n;
        f->at += (uint64_t)n;
    }
    return young ? fetch_check_head(f) : OK;
}

/* --- what curl calls --- */

/* Copies a header's value when it is that header. */
static bool fetch_header_is(const char *line, size_t length, const char *name, char *out,
                            size_t out_bytes)
{
    size_t n = strlen(name);
    if (length <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return false;
    line += n + 1;
    length -= n + 1;
    while (length && isspace((unsigned char)*line)) line++, length--;
    while (length && isspace((unsigned char)line[length - 1])) length--;
    (void)snprintf(out, out_bytes, "%.*s", length < out_bytes ? (int)length : (int)out_bytes - 1,
                   line);
    return true;
}

static size_t fetch_on_header(char *line, size_t size, size_t count, void *context)
{
    Fetch *f = context;
    size_t length = size * count;
    char value[FETCH_VALIDATOR_BYTES];
    if (length > 5 && strncmp(line, "HTTP/", 5) == 0)
        f->answered[0] = 0; /* the next answer of a redirect chain */
    if (fetch_header_is(line, length, "ETag", value, sizeof value) && value[0] == '"')
        (void)snprintf(f->answered, sizeof f->answered, "%s",
                       value); /* a weak one (W/) does not do for ranges */
    else if (!f->answered[0] && fetch_header_is(line, length, "Last-Modified", value, sizeof value))
        (void)snprintf(f->answered, sizeof f->answered, "%s", value);
    else if (fetch_header_is(line, length, "Content-Range", value, sizeof value) &&
             strncmp(value, "bytes */", 8) == 0)
        f->whole = strtoull(value + 8, NULL, 10);
    else if (fetch_header_is(line, length, "X-Linked-Etag", value, sizeof value)) {
        size_t n = strlen(value);
        if (n == 66 && value[0] == '"') {
            value[65] = 0;
            if (sha256_is_hex(value + 1)) memcpy(f->sha256, value + 1, SHA256_HEX_BYTES);
        }
    }
    return length;
}

/* Decides at the first byte of a body what it is: the rest, the whole, or an error page. */
static Error fetch_accept(Fetch *f)
{
    curl_off_t length = -1;
    (void)curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->status);
    (void)curl_easy_getinfo(f->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    f->accepted = f->status == 200 || (f->status == 206 && f->start);
    if (!f->accepted) return OK;
    if (f->status == 200) TRY(fetch_cut(f, 0));
    f->total = length < 0 ? 0 : f->at + (uint64_t)length;
    if (f->at >= 4)
        TRY(fetch_check_length(f)); /* else after the first bytes: a page has a wrong length too */
    if (!f->named) memcpy(f->validator, f->answered, sizeof f->validator);
    fetch_tag_begin(f);
    return OK;
}

static size_t fetch_on_body(char *bytes, size_t size, size_t count, void *context)
{
    Fetch *f = context;
    size_t length = size * count;
    if (f->status == 0) f->failure = fetch_accept(f);
    if (f->failure == OK && f->accepted)
        f->failure = fetch_store(f, (const uint8_t *)bytes, length);
    if (f->failure != OK || stop_asked()) return 0;
    return length;
}

static int fetch_on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                             curl_off_t up)
{
    (void)total;
    (void)now;
    (void)up_total;
    (void)up;
    const Fetch *f = context;
    if (f->accepted) tell_step(f->tell, "download", f->at, f->total ? f->total : f->expected);
    return stop_asked();
}

/* --- one try, and when to try again --- */

static Error fetch_add_signature(Fetch *f)
{
    char range[64];
    S3Lines lines;
    (void)snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)f->at);
    S3Request request = {.method = "GET", .url = f->url, .range = f->at ? range : NULL};
    TRY(s3_sign(f->s3, &request, time(NULL), &lines, f->why));
    const char *const wanted[] = {lines.date, lines.hash, lines.authorization, lines.token};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i][0]) f->headers = curl_slist_append(f->headers, wanted[i]);
    return OK;
}

static void fetch_prepare(Fetch *f, const char *token)
{
    CURL *c = f->curl;
    char header[FETCH_VALIDATOR_BYTES + 512];
    (void)curl_easy_setopt(c, CURLOPT_URL, f->url);
    (void)curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)FETCH_REDIRECTS_MAX);
    (void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)FETCH_CONNECT_S);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)FETCH_STALL_S);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_USERAGENT, "cobord");
    (void)curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L << 10);
    (void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, fetch_on_header);
    (void)curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, fetch_on_body);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, fetch_on_progress);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
    (void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (f->at) {
        (void)snprintf(header, sizeof header, "Range: bytes=%llu-", (unsigned long long)f->at);
        f->headers = curl_slist_append(f->headers, header);
        (void)snprintf(header, sizeof header, "If-Range: %s", f->validator);
        if (f->validator[0]) f->headers = curl_slist_append(f->headers, header);
    }
    if (f->s3) f->failure = fetch_add_signature(f);
    if (f->s3 && f->s3->ca_file[0]) (void)curl_easy_setopt(c, CURLOPT_CAINFO, f->s3->ca_file);
    if (token) {
        (void)snprintf(header, sizeof header, "Authorization: Bearer %s",
                       token); /* curl drops it on other hosts */
        f->headers = curl_slist_append(f->headers, header);
    }
    (void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, f->headers);
}

typedef enum FetchTurn { FETCH_DONE, FETCH_FAILED, FETCH_AGAIN } FetchTurn;

/* What an answer other than 200 and 206 means. */
static FetchTurn fetch_judge_status(Fetch *f, Error *error)
{
    if (f->status == 416 && f->start && f->whole == f->start)
        return FETCH_DONE;              /* all was here already */
    if (f->status == 416 && f->start) { /* our prefix is not one: begin again */
        *error = fetch_cut(f, 0);
        return *error == OK ? FETCH_AGAIN : FETCH_FAILED;
    }
    if (f->status == 404 || f->status == 410)
        *error =
            error_why(f->why, ERR_NOT_FOUND, "%s: the server says HTTP %ld", f->url, f->status);
    else if (f->s3 && (f->status == 401 || f->status == 403))
        *error =
            error_why(f->why, ERR_KEY,
                      "%s: the store says HTTP %ld, access denied. Check AWS_ACCESS_KEY_ID and "
                      "AWS_SECRET_ACCESS_KEY.",
                      f->url, f->status);
    else if (f->status == 401 || f->status == 403)
        *error = error_why(
            f->why, ERR_IO,
            "%s: the server says HTTP %ld, access denied. Accept the model's terms on its "
            "page and set COBORD_HUB_TOKEN.",
            f->url, f->status);
    else *error = error_why(f->why, ERR_IO, "%s: the server says HTTP %ld", f->url, f->status);
    return f->status == 429 || f->status >= 500 ? FETCH_AGAIN : FETCH_FAILED;
}

static FetchTurn fetch_judge(Fetch *f, CURLcode code, Error *error)
{
    *error = f->failure;
    if (f->failure != OK) return FETCH_FAILED;
    if (stop_asked()) {
        *error = error_why(f->why, ERR_CANCELLED, "download of %s", f->url);
        return FETCH_FAILED;
    }
    if (code == CURLE_OK && f->accepted && (f->total == 0 || f->at == f->total)) return FETCH_DONE;
    if (f->status && !f->accepted) return fetch_judge_status(f, error);
    long redirects = 0;
    (void)curl_easy_getinfo(f->curl, CURLINFO_REDIRECT_COUNT, &redirects);
    if (code == CURLE_UNSUPPORTED_PROTOCOL && redirects) {
        *error = error_why(f->why, ERR_IO, "%s: the server redirects to what is not http or https",
                           f->url);
        return FETCH_FAILED;
    }
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        *error = error_why(f->why, ERR_USAGE, "%s is not an address of the web", f->url);
        return FETCH_FAILED;
    }
    *error = error_why(f->why, ERR_UNREACHABLE, "%s: %s", f->url,
                       code == CURLE_OK ? "an empty answer" : curl_easy_strerror(code));
    /* A name or a host that is not there will not be there in a second either. */
    bool hopeless = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
                    code == CURLE_COULDNT_CONNECT || code == CURLE_TOO_MANY_REDIRECTS ||
                    code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    return hopeless && f->at == 0 ? FETCH_FAILED : FETCH_AGAIN;
}

static FetchTurn fetch_try(Fetch *f, const char *token, Error *error)
{
    f->curl = curl_easy_init();
    if (!f->curl) {
        *error = error_why(f->why, ERR_MEMORY, "no memory for a download");
        return FETCH_FAILED;
    }
    f->start = f->at;
    f->status = 0;
    f->accepted = false;
    f->whole = 0;
    f->failure = OK;
    f->headers = NULL;
    fetch_prepare(f, token);
    CURLcode code = f->failure == OK ? curl_easy_perform(f->curl) : CURLE_OK;
    if (f->status == 0) { /* no body came: an empty file, or an answer of headers only */
        f->failure = f->failure == OK && code == CURLE_OK ? fetch_accept(f) : f->failure;
    }
    FetchTurn turn = fetch_judge(f, code, error);
    curl_slist_free_all(f->headers);
    curl_easy_cleanup(f->curl);
    return turn;
}

/* 1, 2, 4, 8 seconds, given up at once on Ctrl-C. */
static void fetch_pause(unsigned tries)
{
    for (unsigned tenths = 10u << (tries > 3 ? 3 : tries); tenths && !stop_asked(); tenths--) {
        struct timespec t = {0, 100000000};
        (void)nanosleep(&t, NULL);
    }
}

static Error fetch_all(Fetch *f, const char *token)
{
    Error error = OK;
    for (unsigned tries = 0;;) {
        if (f->expected && f->at == f->expected) return OK;
        uint64_t before = f->at;
        FetchTurn turn = fetch_try(f, token, &error);
        if (turn == FETCH_DONE) return OK;
        if (turn == FETCH_FAILED) return error;
        tries = f->at > before ? 0 : tries + 1;
        if (tries == FETCH_TRIES) return error;
        char line[WHY_MAX + 32];
        (void)snprintf(line, sizeof line, "trying again: %s", f->why ? f->why->text : f->url);
        tell_note(f->tell, line);
        fetch_pause(tries);
    }
}

Error fetch_file(const FetchRequest *request, const Tell *tell, FetchResult *out, Why *why)
{
    Why own;
    Fetch f = {.url = request->url,
               .path = request->path,
               .identity = request->identity ? request->identity : request->url,
               .named = request->identity != NULL,
               .s3 = request->s3,
               .tell = tell,
               .expected = request->expected_bytes,
               .why = why ? why : &own};
    f.why->text[0] = 0;
    memset(out, 0, sizeof *out);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return error_why(why, ERR_MEMORY, "the HTTP client does not start");
    Error error = fetch_open(&f);
    uint64_t had = f.at;
    if (error == OK) error = fetch_all(&f, request->token);
    if (error == OK && f.at < 4)
        error = error_why(why, ERR_FORMAT, "%s sent only %u bytes. Check the address.", f.url,
                          (unsigned)f.at);
    bool useless = f.at == 0 || error == ERR_FORMAT || error == ERR_TRUNCATED ||
                   (error == ERR_NOT_FOUND && !f.named);
    if (!useless && f.file >= 0) {
        Error synced = fetch_sync(&f);
        if (error == OK) error = synced;
    }
    if (f.file >= 0) (void)close(f.file);
    if (useless) fetch_forget(f.path);
    out->bytes = f.at;
    out->resumed = had;
    memcpy(out->sha256, f.sha256, sizeof out->sha256);
    return error;
}
