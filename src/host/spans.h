/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of this process: their ids, and which one the node's only worker is in, for the calls that it makes meanwhile
 * (to its warden). Thread  any. */
#ifndef COBORD_HOST_SPANS_H
#define COBORD_HOST_SPANS_H

#include "api/trace.h"

/* Never twice. */
uint64_t spans_number(void);
/* NULL: none. */
void spans_enter(const Trace *trace);
/* "traceparent: .." of a call made now, which gets a span of its own. Result  false: there is no span. */
enum { SPANS_LINE_BYTES = TRACE_PARENT_BYTES + 16 };
bool spans_line(char out[SPANS_LINE_BYTES]);
/* The same of any trace. */
void spans_write(const Trace *trace, char out[SPANS_LINE_BYTES]);

#endif
