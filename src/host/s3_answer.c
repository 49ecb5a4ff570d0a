/* SPDX-License-Identifier: Apache-2.0 */
#include "host/s3_answer.h"

#include <stdio.h>
#include <string.h>

enum { S3_ANSWER_NAME_BYTES = 40 };

/* ---- Elements */

static const char *s3_answer_find(S3Span in, const char *what)
{
    size_t bytes = strlen(what);
    return in.end > in.at ? memmem(in.at, (size_t)(in.end - in.at), what, bytes) : NULL;
}

bool s3_answer_next(S3Span *rest, const char *name, S3Span *inside)
{
    char open[S3_ANSWER_NAME_BYTES + 4], close[S3_ANSWER_NAME_BYTES + 4];
    (void)snprintf(open, sizeof open, "<%s>", name);
    (void)snprintf(close, sizeof close, "</%s>", name);
    const char *at = s3_answer_find(*rest, open);
    if (!at) return false;
    at += strlen(open);
    const char *end = s3_answer_find((S3Span){at, rest->end}, close);
    if (!end) return false;
    *inside = (S3Span){at, end};
    rest->at = end + strlen(close);
    return true;
}

/* The character that an entity stands for, and how long it is; an unknown one stands for itself. */
static char s3_answer_entity(const char *at, const char *end, size_t *bytes)
{
    static const struct {
        const char *text;
        char c;
    } known[] = {{"&quot;", '"'}, {"&#34;", '"'}, {"&apos;", '\''}, {"&#39;", '\''},
                 {"&amp;", '&'},  {"&lt;", '<'},  {"&gt;", '>'}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *bytes = strlen(known[i].text);
        if ((size_t)(end - at) >= *bytes && memcmp(at, known[i].text, *bytes) == 0)
            return known[i].c;
    }
    *bytes = 1;
    return *at;
}

bool s3_answer_text(S3Span span, const char *name, char *out, size_t room)
{
    S3Span in;
    size_t used = 0, bytes;
    if (!s3_answer_next(&span, name, &in)) return false;
    for (const char *at = in.at; at < in.end; at += bytes) {
        char c = s3_answer_entity(at, in.end, &bytes);
        if (used + 1 >= room || (unsigned char)c < ' ') return false;
        out[used++] = c;
    }
    bool quoted = used >= 2 && out[0] == '"' && out[used - 1] == '"';
    if (quoted) memmove(out, out + 1, used -= 2);
    out[used] = '\0';
    return true;
}

bool s3_answer_number(S3Span span, const char *name, uint64_t *out)
{
    char text[24];
    if (!s3_answer_text(span, name, text, sizeof text) || !text[0]) return false;
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 18) return false;
    uint64_t n = 0;
    for (const char *c = text; *c; c++) n = n * 10 + (uint64_t)(*c - '0');
    *out = n;
    return true;
}

/* ---- Refusals */

/* ", CODE" of an S3 error, or "". */
static void s3_answer_code(const HttpCall *call, char *out, size_t room)
{
    const char *text = (const char *)call->answer;
    S3Span span = {text, text ? text + call->answer_bytes : text};
    out[0] = out[1] = out[2] = '\0';
    if (!text || !s3_answer_text(span, "Code", out + 2, room - 2) || !out[2]) return;
    out[0] = ',';
    out[1] = ' ';
}

static bool s3_answer_is_one_of(const char *code, const char *const *codes)
{
    for (; *codes; codes++)
        if (code[0] && strcmp(code + 2, *codes) == 0) return true;
    return false;
}

/* Some stores say with another status than 403 that they do not know the key. */
static bool s3_answer_is_key_trouble(unsigned status, const char *code)
{
    static const char *const codes[] = {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId",
                                        "XAdminUserNotFound", NULL};
    return status == 401 || status == 403 || s3_answer_is_one_of(code, codes);
}

/* Bytes that came otherwise than they were sent, or too slowly, are a 400. */
static bool s3_answer_may_pass(unsigned status, const char *code)
{
    static const char *const codes[] = {"BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody",
                                        "RequestTimeout", NULL};
    return status >= 500 || status == 429 || status == 408 || s3_answer_is_one_of(code, codes);
}

Error s3_answer_refused(const char *store, const char *object, const S3Access *access,
                        const HttpCall *call, Why *why)
{
    char code[80]; /* ", Code" */
    s3_answer_code(call, code, sizeof code);
    if (strcmp(code, ", RequestTimeTooSkewed") == 0)
        return error_why(why, ERR_KEY,
                         "%s/%s: refused (HTTP %u%s). Set the clock of this machine: it differs "
                         "from the store's by more than a quarter of an hour",
                         store, object, call->status, code);
    if (s3_answer_is_key_trouble(call->status, code))
        return error_why(
            why, ERR_KEY, "%s/%s: refused (HTTP %u%s)%s", store, object, call->status, code,
            !access             ? "."
            : access->key_id[0] ? ". Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
                                : ". AWS_ACCESS_KEY_ID is not set.");
    if (call->status == 404 || call->status == 410)
        return error_why(why, ERR_NOT_FOUND, "%s/%s: not there (HTTP %u%s)", store, object,
                         call->status, code);
    if (call->status >= 300 && call->status < 400)
        return error_why(why, ERR_IO,
                         "%s/%s: it is elsewhere (HTTP %u%s). Give the address it moved to", store,
                         object, call->status, code);
    Error error = s3_answer_may_pass(call->status, code) ? ERR_UNREACHABLE : ERR_IO;
    return error_why(why, error, "%s/%s: HTTP %u%s", store, object, call->status, code);
}
