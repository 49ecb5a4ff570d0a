/* SPDX-License-Identifier: Apache-2.0 */
/* The page: files that are part of the program, at `/` and `/web/NAME`. They never change while it runs, so a browser
 * keeps them and asks by ETag whether they are still the same (304). */
#ifndef COBORD_SERVE_SERVE_PAGE_H
#define COBORD_SERVE_SERVE_PAGE_H

#include "serve/exchange.h"

typedef struct ServePageFile {
    const char *path; /* "/" or "/web/NAME" */
    const char *type;
    const char *etag; /* as a header: `ETag: "..."` */
    const uint8_t *bytes;
    size_t count;
} ServePageFile;

typedef struct ServePage {
    const ServePageFile *files;
    size_t count;
} ServePage;

/* The file at exactly this path; NULL: there is none, or no page. */
const ServePageFile *serve_page_find(const ServePage *page, const char *path);
/* At `/` a browser gets the page, and who does not ask for HTML the plain text, as Ollama's clients do. */
void serve_page_reply_root(const ServePage *page, HttpExchange *x, const char *plain);
void serve_page_reply(const ServePageFile *file, HttpExchange *x);

#endif
