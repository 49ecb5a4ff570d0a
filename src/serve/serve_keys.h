/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use the API, and how much: the table of api/keys.h, and for each of its keys what is used.
 *
 *   head      known? (401) admin? (403)  then, of a POST: one of its requests a minute (429)
 *   body      one of its requests at once (429), until serve_keys_leave
 *   prompt    its tokens (429, 413); what is generated is charged as it comes
 *
 * A new table takes over what keys of the same name have used. A key that is in it no more lives on until its last
 * request has left. Without a table everybody may do everything. Thread  any for all of them. */
#ifndef COBORD_SERVE_SERVE_KEYS_H
#define COBORD_SERVE_SERVE_KEYS_H

#include "api/refusal.h"
#include "serve/exchange.h"
#include "serve/serve.h"

typedef struct ServeKeys ServeKeys; /* the table */
typedef struct ServeKey ServeKey;   /* one key in use; NULL: there are no keys */

/* Whether the request's key may do this. The exchange's header is read. Result  false with the refusal. */
bool serve_keys_check(Serve *s, HttpExchange *x, bool admin, Refusal *refusal);
bool serve_keys_take_request(Serve *s, HttpExchange *x, Refusal *refusal);
bool serve_keys_enter(Serve *s, HttpExchange *x, ServeKey **out, Refusal *refusal);
void serve_keys_leave(Serve *s, ServeKey *key);
const char *serve_keys_name(const ServeKey *key); /* "": there are no keys */

/* Also writes the headers that say what is left. */
bool serve_keys_take_tokens(Serve *s, HttpExchange *x, ServeKey *key, size_t count,
                            Refusal *refusal);
void serve_keys_charge(Serve *s, ServeKey *key, uint32_t tokens);
/* The headers alone, of a request that never came so far. */
void serve_keys_tell(Serve *s, HttpExchange *x, ServeKey *key);

/* Lines of /metrics for each key by its name, and how much they may take. */
size_t serve_keys_metrics_bytes(Serve *s);
void serve_keys_metrics(Serve *s, JsonWriter *w);

void serve_keys_free(ServeKeys *keys);

#endif
