/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve_page.h"

#include <string.h>
#include <strings.h>

/* Nothing but files of this server, no script or style inside HTML, and no HTML made from text. */
#define POLICY                                                                           \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; " \
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "          \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

enum { TAG_AT = sizeof "ETag: " - 1 };

const ServePageFile *serve_page_find(const ServePage *page, const char *path)
{
    for (size_t i = 0; page && i < page->count; i++)
        if (strcmp(page->files[i].path, path) == 0) return &page->files[i];
    return NULL;
}

static bool has(const char *text, const char *part)
{
    size_t bytes = strlen(part);
    while (*text && strncasecmp(text, part, bytes) != 0) text++;
    return *text;
}

/* If-None-Match is a list of tags, weak ones too; a tag has quotes, so none is within another. */
static bool is_known(const ServePageFile *file, const HttpExchange *x)
{
    const char *tags = http_exchange_header(x, "If-None-Match");
    return tags && (strcmp(tags, "*") == 0 || has(tags, file->etag + TAG_AT));
}

void serve_page_reply(const ServePageFile *file, HttpExchange *x)
{
    static const char *const lines[] = {
        "Cache-Control: no-cache", POLICY, "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin"};
    bool known = is_known(file, x);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        (void)http_answer_header(x, lines[i]);
    (void)http_answer_header(x, file->etag);
    http_reply(x, &(HttpReply){.status = known ? 304 : 200, .type = known ? NULL : file->type},
               (const char *)file->bytes, known ? 0 : file->count);
}

void serve_page_reply_root(const ServePage *page, HttpExchange *x, const char *plain)
{
    const ServePageFile *file = serve_page_find(page, "/");
    const char *accept = http_exchange_header(x, "Accept");
    if (file) (void)http_answer_header(x, "Vary: Accept");
    if (file && accept && has(accept, "text/html")) serve_page_reply(file, x);
    else http_reply(x, &(HttpReply){.status = 200, .type = "text/plain"}, plain, strlen(plain));
}
