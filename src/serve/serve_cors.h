/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of other origins (api/cors.h): their headers on every answer, and the answer to the question that browsers
 * ask first. */
#ifndef COBORD_SERVE_SERVE_CORS_H
#define COBORD_SERVE_SERVE_CORS_H

#include "serve/exchange.h"
#include "serve/serve.h"

/* The headers alone, of who answers without a server. */
void serve_cors_add(const char *list, HttpExchange *x);
/* Adds the headers. Thread  the HTTP server's, with the head. Result  true: it was that question, and is answered. */
bool serve_cors_takes(Serve *s, HttpExchange *x);

#endif
