/* SPDX-License-Identifier: Apache-2.0 */
/* Names of calls to nodes. One frame may carry several answers: its calls belong to the trace of the first, and the log
 * names the requests of all. */
#include <stdio.h>
#include <string.h>

#include "host/log.h"
#include "host/remote_state.h"

enum { NAMED_MAX = 8 };

void remote_trace_begin(void *engine, uint32_t slot, const HttpRecord *record)
{
    RemoteName *n = &((Remote *)engine)->names[slot];
    memcpy(n->request_id, record->request_id, sizeof n->request_id);
    n->trace = record->trace;
}

static void list_requests(const Remote *r, const uint32_t *slots, uint32_t count,
                          char out[REMOTE_REQUESTS_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const char *id = r->names[slots[i]].request_id;
        size_t bytes = strlen(id);
        if (used + bytes + 2 > REMOTE_REQUESTS_BYTES) return;
        if (used) out[used++] = ' ';
        memcpy(out + used, id, bytes + 1);
        used += bytes;
    }
}

void remote_trace_call(Remote *r, RemoteCall *call)
{
    uint32_t slots[NAMED_MAX];
    uint32_t count = pipeline_call_slots(r->pipeline, call->asked.call, slots, NAMED_MAX);
    call->trace.trace_id[0] = call->requests[0] = '\0';
    if (!count || !r->names[slots[0]].trace.trace_id[0]) return;
    call->trace = trace_below(&r->names[slots[0]].trace, spans_number());
    spans_write(&call->trace, call->trace_line);
    if (log_wants(LOG_DEBUG)) list_requests(r, slots, count, call->requests);
}

void remote_trace_ended(const Remote *r, const RemoteCall *call)
{
    const HttpCall *http = &call->http;
    if (!call->trace.trace_id[0] || !log_wants(LOG_DEBUG)) return;
    const char *path = strchr(strstr(call->url, "://") + 3, '/');
    bool several = strchr(call->requests, ' ') != NULL;
    log_entry(&(LogEntry){.level = LOG_DEBUG,
                          .event = "hop",
                          .to = r->options.cluster->nodes[call->asked.node].id,
                          .method = http->method,
                          .path = path,
                          .status = http->error == OK ? http->status : 0,
                          .us = http->microseconds,
                          .bytes_sent = http->part_bytes[0] + http->part_bytes[1],
                          .bytes_received = http->answer_bytes,
                          .error = http->error != OK ? error_text(http->error) : NULL,
                          .request_id = several ? NULL : call->requests,
                          .request_ids = several ? call->requests : NULL,
                          .trace = &call->trace});
}
