/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that JavaScript brought and has not got an answer of yet: serve/exchange.h in a Worker.
 *
 *   exchange_open(head) --> serve_routes_head --> bytes of the body --> serve_routes_request
 *   reply:   REPLY, and it is over
 *   stream:  STREAM, WRITE .. each when the reader took the one before, END, and it is over
 *
 * What a reader has not taken waits here, so the server sees how far behind it is. */
#ifndef COBORD_WORKERS_EXCHANGE_H
#define COBORD_WORKERS_EXCHANGE_H

#include "serve/exchange.h"

enum { EXCHANGES_MAX = 1024, EXCHANGE_BODIES_BYTES_MAX = 16 << 20 };

typedef enum ExchangeWishKind {
    EXCHANGE_NONE,
    EXCHANGE_REPLY,
    EXCHANGE_STREAM,
    EXCHANGE_WRITE,
    EXCHANGE_END
} ExchangeWishKind;

/* Valid until the next call of exchange_next. */
typedef struct ExchangeWish {
    ExchangeWishKind kind;
    uint32_t number; /* of the exchange */
    unsigned status, retry_s;
    const char *type, *allow, *headers; /* NULL: none */
    const uint8_t *bytes;
    size_t count;
} ExchangeWish;

/* Who hears of an exchange that is over, when nobody has it any more. */
typedef void ExchangeOver(void *context, HttpExchange *x, const HttpOver *over);
void exchange_tell(ExchangeOver *over, void *context);
/* `head`: "METHOD TARGET\nname: value\n..", names in lower case, target as it came.
 * Result  NULL: there are too many, or no memory. */
HttpExchange *exchange_open(const char *head, size_t bytes);
uint32_t exchange_number(const HttpExchange *x);
/* NULL: there is none of this number, or it is over. */
HttpExchange *exchange_find(uint32_t number);
/* Room for `bytes` more of the body; NULL: it is too large, or there is no memory, or nobody wants it. */
uint8_t *exchange_body(HttpExchange *x, size_t bytes);
bool exchange_is_answered(const HttpExchange *x);
/* The client has left: nothing more is said to it. */
void exchange_gone(HttpExchange *x);
/* The reader took the last WRITE. */
void exchange_written(HttpExchange *x);
/* The next thing for JavaScript to do; false: none. */
bool exchange_next(uint64_t now_ns, ExchangeWish *out);
/* When a silent stream wants its comment; UINT64_MAX: never. */
uint64_t exchange_wake_ns(void);
uint32_t exchange_count(void);

#endif
