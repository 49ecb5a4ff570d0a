/* SPDX-License-Identifier: Apache-2.0 */
/* Names under which a request is found again in the logs of all machines: its id, which clients may choose, and a W3C
 * trace context, which they may begin. Every call that a request causes is a span of its trace.
 *
 *   traceparent: 00-TRACE_ID-SPAN_ID-FLAGS     32, 16 and 2 digits; lower case; ids of zeros are none
 *
 * Source  W3C Trace Context, level 1. A tracestate is neither read nor passed on. */
#ifndef COBORD_API_TRACE_H
#define COBORD_API_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TRACE_ID_BYTES = 33,
    TRACE_SPAN_BYTES = 17,
    TRACE_PARENT_BYTES = 56,
    TRACE_REQUEST_BYTES = 129
};

typedef struct Trace {
    char trace_id[TRACE_ID_BYTES]; /* "": none */
    char span_id[TRACE_SPAN_BYTES];
    char parent_id[TRACE_SPAN_BYTES]; /* "": the trace begins here */
    uint8_t flags;
} Trace;

/* One that begins here. */
Trace trace_begin(uint64_t random_1, uint64_t random_2, uint64_t random_3);
/* A span below `parent`. */
Trace trace_below(const Trace *parent, uint64_t random);
/* A span below the one that `header` names. Result  false: it is none, or NULL. */
bool trace_continue(const char *header, uint64_t random, Trace *out);
void trace_write(const Trace *t, char out[TRACE_PARENT_BYTES]);

/* 1 to 128 of A-Z a-z 0-9 . _ - */
bool trace_is_request_id(const char *text);
/* "req_" and 16 digits. */
void trace_make_request_id(uint64_t random, char out[TRACE_REQUEST_BYTES]);

#endif
