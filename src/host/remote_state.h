/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the coordinator share. All of it belongs to the engine thread, but for what is under the lock. */
#ifndef COBORD_HOST_REMOTE_STATE_H
#define COBORD_HOST_REMOTE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/pipeline.h"
#include "cluster/shard_service.h"
#include "host/http_client.h"
#include "cluster/pace.h"
#include "host/remote.h"
#include "host/slice.h"
#include "host/spans.h"
#include "host/worker.h"
#include "serve/fleet.h"

enum {
    REMOTE_URL_BYTES = CLUSTER_FILE_HOST_BYTES_MAX + 96,
    REMOTE_EVENTS_MAX = 64,
    REMOTE_REPORTS_AT_ONCE = 8,
    REMOTE_REPORT_PAUSE_S = 2,
    REMOTE_REPORT_DEADLINE_MS = 2000
};

/* Of a call that this process answers itself. */
typedef enum RemoteOwnState {
    REMOTE_OWN_NONE,
    REMOTE_OWN_WAITS,
    REMOTE_OWN_WORKS,
    REMOTE_OWN_DONE
} RemoteOwnState;

/* Whose answer is in a slot. */
typedef struct RemoteName {
    char request_id[TRACE_REQUEST_BYTES];
    Trace trace;
} RemoteName;

enum { REMOTE_REQUESTS_BYTES = 288 };

/* A call of the pipeline on its way. */
typedef struct RemoteCall {
    HttpCall http;
    PipelineCall asked;
    char url[REMOTE_URL_BYTES];
    bool busy;   /* to a node */
    Trace trace; /* "": it is for no answer */
    char trace_line[SPANS_LINE_BYTES], requests[REMOTE_REQUESTS_BYTES];
    RemoteOwnState own; /* under own.lock, and so is `answer` */
    PipelineAnswer answer;
} RemoteCall;

/* When a node is asked again what it says of itself, and what the log has of it. */
typedef struct RemoteReport {
    uint64_t due_ns; /* UINT64_MAX: asked */
    PipelineNodeState logged_state;
    uint64_t logged_failures;
} RemoteReport;

/* A question for a report on its way. */
typedef struct RemoteQuestion {
    HttpCall http;
    uint32_t node;
    bool busy;
    char url[REMOTE_URL_BYTES];
    uint8_t answer[FLEET_REPORT_BYTES];
} RemoteQuestion;

/* One shard at a time, built over memory that fits the largest. A thread of its own works, since a part that
 * has to be checked or fetched first takes seconds, and nobody else's answer waits for it. */
typedef struct RemoteOwn {
    pthread_t thread;
    bool has_thread; /* the engine thread's: made at the first call */
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool closing; /* under the lock */
    atomic_ullong calls, failures;
    /* The thread's: */
    Worker worker;
    bool started;
    Slice *slice; /* of the part that stands, when the knot is not on this machine */
    Node shadow;  /* the shard as whom it is fetched */
    Error failed; /* why it cannot be: said again until failed_until_ns */
    uint64_t failed_until_ns;
    Why why;
    uint32_t part;     /* that stands; CLUSTER_FILE_NONE */
    ClusterNode whole; /* as a shard: the stations' that keep embedding or head */
    Shard *shard;
    ShardService *service;
    void *memory;
    uint64_t memory_bytes, scratch_bytes, weight_bytes_max;
    uint64_t window_bytes;
} RemoteOwn;

struct Remote {
    RemoteOptions options;
    PipelineConfig config;
    HttpClient *client;
    void *memory;
    size_t memory_bytes;
    Coordinator *coordinator;
    Pipeline *pipeline;
    RemoteCall *calls; /* [pipeline_calls_max] */
    RemoteName *names; /* [slots] */
    CoordinatorEvent events[REMOTE_EVENTS_MAX];
    uint32_t event_count;
    Pace pace;
    uint64_t frames_ended;
    /* Of this thread: since the last frame ended, since when, and on a frame, about. */
    struct {
        uint64_t ns, since_ns, frame_ns;
    } work;
    uint64_t opened_ns, need_bytes;
    RemoteOwn own;
    /* remote_watch.c */
    RemoteReport *reports; /* [node_count] */
    FleetReport *said;     /* [node_count] */
    RemoteQuestion *questions;
    uint32_t next_report;
    uint64_t tick_ns, look_ns;
    bool table_shown, complete, complete_told, complete_once;
    uint64_t told_ns; /* of missing nodes */
    /* under the lock */
    pthread_mutex_t lock;
    Why missing;
    char *description; /* [description_room] */
    size_t description_room, description_bytes;
    atomic_bool ready; /* requests can be answered: complete, or what is missing can be read here */
};

/* remote.c */
/* "http://10.0.0.7:9001" and a path; IPv6 in brackets. */
void remote_url(const Remote *r, uint32_t node, const char *path, char out[REMOTE_URL_BYTES]);

/* remote_trace.c */
void remote_trace_begin(void *engine, uint32_t slot, const HttpRecord *record);
/* Around a call to a node: it gets a span below that of the first answer that it is for; its line in the log. */
void remote_trace_call(Remote *r, RemoteCall *call);
void remote_trace_ended(const Remote *r, const RemoteCall *call);

/* remote_own.c */
/* What it will take: of the arena, and of the window. Errors  those of shard_sizes. */
MUST_CHECK Error remote_own_size(Remote *r, Why *why);
void remote_own_start(Remote *r, RemoteCall *call);
/* A call that has ended; NULL: none. The client is woken when there is one. */
RemoteCall *remote_own_take(Remote *r);
/* Ends the call unless it is being worked on. */
void remote_own_cancel(Remote *r, RemoteCall *call);
void remote_own_close(Remote *r);

/* remote_watch.c */
/* Asks, tells, makes the snapshot, as far as it is time. */
void remote_watch_tick(Remote *r, uint64_t now_ns);
void remote_watch_take(Remote *r, RemoteQuestion *q, uint64_t now_ns);
uint64_t remote_watch_wake_ns(const Remote *r);
/* "layers 0-14", "ids 0-75968" */
enum { REMOTE_RANGE_BYTES = 64 };
void remote_watch_range(const Remote *r, uint32_t node, char out[REMOTE_RANGE_BYTES]);

#endif
