/* SPDX-License-Identifier: Apache-2.0 */
/* Signature Version 4, with the headers host, range and those of Amazon's that a request has.
 *
 *   request   METHOD \n PATH \n QUERY \n name:value \n ... \n \n names \n hash of the body
 *   to sign   AWS4-HMAC-SHA256 \n TIME \n SCOPE \n hash of the request            SCOPE  DAY/REGION/s3/aws4_request
 *   key       HMAC over HMAC: "AWS4" SECRET, DAY, REGION, "s3", "aws4_request"
 *
 * libcurl could sign too; ours is the same for every release of it, and is tested against Amazon's own example. */
#include "host/s3.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

enum { S3_DIGEST_BYTES = 32, S3_SIGNED_BYTES = 12288 };

/* SHA-256 of nothing: of a request without a body. */
static const char s3_no_body[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* --- settings --- */

static Error s3_setting(const char *name, char *out, size_t room, Why *why)
{
    const char *value = getenv(name);
    size_t bytes = value ? strlen(value) : 0;
    if (bytes >= room)
        return error_why(why, ERR_USAGE, "%s is longer than %zu bytes", name, room - 1);
    /* A line break would end the header that it becomes a part of. */
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)value[i] <= ' ' || (unsigned char)value[i] >= 0x7f)
            return error_why(why, ERR_USAGE, "%s has a blank or another strange character in it",
                             name);
    if (bytes) memcpy(out, value, bytes);
    out[bytes] = 0;
    return OK;
}

static Error s3_endpoint(S3Access *a, Why *why)
{
    TRY(s3_setting("COBORD_S3_ENDPOINT", a->endpoint, sizeof a->endpoint, why));
    if (!a->endpoint[0]) {
        int n = snprintf(a->endpoint, sizeof a->endpoint, "https://s3.%s.amazonaws.com", a->region);
        return n < (int)sizeof a->endpoint ? OK
                                           : error_why(why, ERR_USAGE, "AWS_REGION is too long");
    }
    size_t bytes = strlen(a->endpoint);
    while (bytes && a->endpoint[bytes - 1] == '/') a->endpoint[--bytes] = 0;
    bool web = strncmp(a->endpoint, "http://", 7) == 0 || strncmp(a->endpoint, "https://", 8) == 0;
    if (!web || strpbrk(a->endpoint, "?#@"))
        return error_why(why, ERR_USAGE, "COBORD_S3_ENDPOINT must be http(s)://HOST[:PORT][/PATH]");
    return OK;
}

Error s3_access(S3Access *a, Why *why)
{
    memset(a, 0, sizeof *a);
    TRY(s3_setting("AWS_REGION", a->region, sizeof a->region, why));
    if (!a->region[0]) TRY(s3_setting("AWS_DEFAULT_REGION", a->region, sizeof a->region, why));
    if (!a->region[0]) (void)snprintf(a->region, sizeof a->region, "us-east-1");
    TRY(s3_endpoint(a, why));
    TRY(s3_setting("AWS_ACCESS_KEY_ID", a->key_id, sizeof a->key_id, why));
    TRY(s3_setting("AWS_SECRET_ACCESS_KEY", a->secret, sizeof a->secret, why));
    TRY(s3_setting("AWS_SESSION_TOKEN", a->token, sizeof a->token, why));
    const char *ca_file = getenv("AWS_CA_BUNDLE");
    if (ca_file && strlen(ca_file) >= sizeof a->ca_file)
        return error_why(why, ERR_USAGE, "AWS_CA_BUNDLE is longer than %zu bytes",
                         sizeof a->ca_file - 1);
    if (ca_file) memcpy(a->ca_file, ca_file, strlen(ca_file));
    if (!a->key_id[0] == !a->secret[0]) return OK;
    return error_why(why, ERR_USAGE, "%s is set and %s is not",
                     a->key_id[0] ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                     a->key_id[0] ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
}

void s3_forget(S3Access *access) { gnutls_memset(access, 0, sizeof *access); }

/* --- texts --- */

static bool s3_is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static bool s3_encode(const char *text, char also, char *out, size_t room)
{
    static const char hex[] = "0123456789ABCDEF";
    for (; *text; text++) {
        if (room < 4) return false;
        if (s3_is_plain(*text) || *text == also) {
            *out++ = *text;
            room--;
            continue;
        }
        *out++ = '%';
        *out++ = hex[(unsigned char)*text >> 4];
        *out++ = hex[*text & 15];
        room -= 3;
    }
    if (room) *out = 0;
    return room > 0;
}

bool s3_encode_path(const char *text, char *out, size_t room)
{
    return s3_encode(text, '/', out, room);
}

bool s3_encode_value(const char *text, char *out, size_t room)
{
    return s3_encode(text, 0, out, room);
}

static bool s3_is_bucket(const char *name, size_t bytes)
{
    if (bytes < 3 || bytes > 63) return false;
    for (size_t i = 0; i < bytes; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (i == 0 || (c != '-' && c != '.' && c != '_'))) return false;
    }
    return true;
}

Error s3_address(const S3Access *access, const char *where, char *url, size_t room, Why *why)
{
    const char *path = strncmp(where, "s3://", 5) == 0 ? where + 5 : "";
    if (!s3_is_bucket(path, strcspn(path, "/")))
        return error_why(why, ERR_USAGE, "%s is not s3://BUCKET/KEY", where);
    int n = snprintf(url, room, "%s/", access->endpoint);
    if (n < 0 || (size_t)n >= room || !s3_encode_path(path, url + n, room - (size_t)n))
        return error_why(why, ERR_USAGE, "the address %.*s.. is too long", 60, where);
    return OK;
}

static void s3_hex(const uint8_t *digest, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < S3_DIGEST_BYTES; i++) {
        *out++ = digits[digest[i] >> 4];
        *out++ = digits[digest[i] & 15];
    }
    *out = 0;
}

void s3_hash(const void *bytes, size_t count, char out[S3_HASH_BYTES])
{
    uint8_t digest[S3_DIGEST_BYTES];
    ASSERT(gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, count, digest) == 0);
    s3_hex(digest, out);
}

/* --- the signature --- */

static void s3_hmac(uint8_t *key, size_t key_bytes, const char *text)
{
    uint8_t digest[S3_DIGEST_BYTES];
    ASSERT(gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, key_bytes, text, strlen(text), digest) == 0);
    memcpy(key, digest, sizeof digest);
}

static void s3_signature(const S3Access *a, const char *day, const char *to_sign, char *hex)
{
    uint8_t key[S3_TEXT_BYTES + 8];
    int bytes = snprintf((char *)key, sizeof key, "AWS4%s", a->secret);
    s3_hmac(key, (size_t)bytes, day);
    s3_hmac(key, S3_DIGEST_BYTES, a->region);
    s3_hmac(key, S3_DIGEST_BYTES, "s3");
    s3_hmac(key, S3_DIGEST_BYTES, "aws4_request");
    s3_hmac(key, S3_DIGEST_BYTES, to_sign);
    s3_hex(key, hex);
    gnutls_memset(key, 0, sizeof key);
}

/* Host as it is sent (without the scheme's own port), and the path. */
static bool s3_split(const char *url, char *host, size_t room, const char **path)
{
    bool tls = strncmp(url, "https://", 8) == 0;
    if (!tls && strncmp(url, "http://", 7) != 0) return false;
    url += tls ? 8 : 7;
    *path = strchr(url, '/');
    size_t bytes = *path ? (size_t)(*path - url) : 0;
    const char *port = tls ? ":443" : ":80";
    size_t port_bytes = strlen(port);
    if (bytes > port_bytes && memcmp(*path - port_bytes, port, port_bytes) == 0)
        bytes -= port_bytes;
    if (bytes == 0 || bytes >= room) return false;
    memcpy(host, url, bytes);
    host[bytes] = 0;
    return true;
}

/* Appends, or makes the text too long for good. */
static void s3_add(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void s3_add(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, room - used, format, args);
    va_end(args);
}

typedef struct S3Signed {
    const char *method, *path, *query, *range, *hash, *token;
    char host[S3_TEXT_BYTES], time[20], names[96];
} S3Signed;

/* The request in the form that is hashed; headers in the order of their names. */
static bool s3_canonical(const S3Signed *r, char *text, size_t room)
{
    text[0] = 0;
    s3_add(text, room, "%s\n%s\n%s\nhost:%s\n", r->method, r->path, r->query, r->host);
    if (r->range) s3_add(text, room, "range:%s\n", r->range);
    s3_add(text, room, "x-amz-content-sha256:%s\nx-amz-date:%s\n", r->hash, r->time);
    if (r->token) s3_add(text, room, "x-amz-security-token:%s\n", r->token);
    s3_add(text, room, "\n%s\n%s", r->names, r->hash);
    return strlen(text) + 1 < room;
}

static Error s3_to_sign(const S3Signed *r, const char *scope, char *out, size_t room, Why *why)
{
    char request[S3_SIGNED_BYTES], hex[S3_HASH_BYTES];
    if (!s3_canonical(r, request, sizeof request))
        return error_why(why, ERR_TOO_LARGE, "the address is too long to sign");
    s3_hash(request, strlen(request), hex);
    (void)snprintf(out, room, "AWS4-HMAC-SHA256\n%s\n%s\n%s", r->time, scope, hex);
    return OK;
}

/* Names of the headers that are signed, and the time, as text. */
static Error s3_describe(S3Signed *r, int64_t now, Why *why)
{
    time_t seconds = (time_t)now;
    struct tm t;
    if (!gmtime_r(&seconds, &t)) return error_why(why, ERR_RANGE, "the clock is out of range");
    (void)strftime(r->time, sizeof r->time, "%Y%m%dT%H%M%SZ", &t);
    (void)snprintf(r->names, sizeof r->names, "host;%sx-amz-content-sha256;x-amz-date%s",
                   r->range ? "range;" : "", r->token ? ";x-amz-security-token" : "");
    return OK;
}

Error s3_sign(const S3Access *a, const S3Request *request, int64_t now, S3Lines *out, Why *why)
{
    memset(out, 0, sizeof *out);
    if (!a->key_id[0]) return OK;
    S3Signed r = {.method = request->method,
                  .query = request->query ? request->query : "",
                  .range = request->range,
                  .hash = request->body_hash ? request->body_hash : s3_no_body,
                  .token = a->token[0] ? a->token : NULL};
    if (!s3_split(request->url, r.host, sizeof r.host, &r.path))
        return error_why(why, ERR_USAGE, "%s is not an address to sign", request->url);
    TRY(s3_describe(&r, now, why));
    char day[16], scope[S3_TEXT_BYTES + 64], to_sign[S3_TEXT_BYTES + 256], hex[S3_HASH_BYTES];
    (void)snprintf(day, sizeof day, "%.8s", r.time);
    (void)snprintf(scope, sizeof scope, "%s/%s/s3/aws4_request", day, a->region);
    TRY(s3_to_sign(&r, scope, to_sign, sizeof to_sign, why));
    s3_signature(a, day, to_sign, hex);
    (void)snprintf(out->date, sizeof out->date, "x-amz-date: %s", r.time);
    (void)snprintf(out->hash, sizeof out->hash, "x-amz-content-sha256: %s", r.hash);
    if (r.token) (void)snprintf(out->token, sizeof out->token, "x-amz-security-token: %s", r.token);
    int n =
        snprintf(out->authorization, sizeof out->authorization,
                 "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s",
                 a->key_id, scope, r.names, hex);
    return n < (int)sizeof out->authorization
               ? OK
               : error_why(why, ERR_TOO_LARGE, "AWS_ACCESS_KEY_ID and AWS_REGION are too long");
}
