/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of a cluster in a Worker: src/serve over src/cluster/pipeline, in one thread, with
 * JavaScript as its hands. What JavaScript sees is docs/format/workers.md, section 8; coordinator.c has the
 * exports.
 *
 *   open:   settings, cluster file --> header and hash tables --> tokenizer --> pipeline, serve
 *   then:   exchange.c --requests--> serve --frames--> pipeline --calls--> JavaScript --answers--> pipeline
 *              ^                       '----------------answers---------------'
 *              '--text--'
 *
 * hub_next does what can be done and says what JavaScript has to do, one thing at a time; with nothing left
 * it waits for an answer or a moment, or, when no request is open, rests: no clock runs then, and the object
 * may be forgotten.
 *
 *   hub.c       the loop          hub_open.c  opening
 *   hub_calls.c calls to nodes, the engine of serve
 *   hub_watch.c what nodes say of themselves */
#ifndef COBORD_WORKERS_HUB_H
#define COBORD_WORKERS_HUB_H

#include "api/cors.h"
#include "api/log_line.h"
#include "cluster/pace.h"
#include "cluster/pipeline.h"
#include "knot/knot_index.h"
#include "serve/fleet.h"
#include "serve/serve.h"
#include "text/tokenizer.h"

enum { HUB_KEY_BYTES = 513, HUB_HEAD_BYTES = 1280, HUB_EVENTS_MAX = 64 };

enum { HUB_QUESTIONS = 6, HUB_WATCH_WAITING = 32 };

typedef enum HubWishKind {
    HUB_REST,       /* nothing until a request comes */
    HUB_WAIT,       /* nothing for `wait_ms`, unless something comes */
    HUB_READ,       /* bytes of the knot's file */
    HUB_CALL,       /* an HTTP call to a node */
    HUB_CANCEL,     /* of a call: whatever it brings is not wanted */
    HUB_REPLY,      /* the whole answer to a request */
    HUB_STREAM,     /* the head of one that goes on */
    HUB_WRITE,      /* more of it */
    HUB_END,        /* all of it */
    HUB_LOG,        /* a line */
    HUB_ROW_PUT,    /* a row of the object's table: `text` is its key, `number` its number */
    HUB_ROW_DELETE, /* all rows of a key */
    HUB_HAND_OVER   /* this invocation has made its calls, or had its time: go on in another */
} HubWishKind;

/* Valid until the next hub_next. */
typedef struct HubWish {
    uint32_t number;  /* of the call or the request */
    double offset;    /* READ */
    double wait_ms;   /* WAIT; CALL: at most */
    const char *text; /* CALL: head; REPLY, STREAM: type; LOG: line, its level in `status` */
    const char *allow, *headers; /* of REPLY and STREAM; NULL: none */
    unsigned status, retry_s;
    const uint8_t *parts[2];
    size_t part_bytes[2];
    size_t room;      /* READ: bytes */
    uint8_t *address; /* READ: to here */
} HubWish;

/* A question for a report on its way; serial 0: none. */
typedef struct HubQuestion {
    uint32_t serial, node;
    uint64_t deadline_ns;
    uint8_t answer[FLEET_REPORT_BYTES];
} HubQuestion;

typedef struct HubWatch {
    FleetReport *reports;   /* [node_count] */
    HubQuestion *questions; /* [HUB_QUESTIONS] */
    HttpExchange *waiting[HUB_WATCH_WAITING];
    uint32_t waiting_count, next_node;
    bool asks, answers; /* every node is being asked; those that wait are answered now */
    uint64_t opened_ns;
} HubWatch;

typedef struct HubCall {
    PipelineCall asked;
    uint32_t serial; /* 0: not under way */
} HubCall;

typedef enum HubStage { HUB_NEW, HUB_INDEX, HUB_TOKENIZER, HUB_OPEN, HUB_FAILED } HubStage;

typedef struct Hub {
    HubStage stage;
    Why why; /* of a failure */
    Error error;
    HubWish wish;
    /* settings */
    char id[CLUSTER_FILE_ID_BYTES], version[32], key[HUB_KEY_BYTES], knot_key[HUB_KEY_BYTES];
    uint64_t knot_bytes, budget_bytes, subrequests_max;
    uint32_t drafts;
    char cors[CORS_LIST_BYTES_MAX + 1]; /* "": none */
    bool has_keys;
    char *keys; /* the text of API_KEYS, until the server has it */
    size_t keys_bytes;
    LogFormat log_format;
    LogLevel log_level;
    /* opening */
    ClusterFile cluster;
    const ClusterNode *self;
    KnotIndex index;
    KnotIndexOpening opening;
    KnotIndexNeed need;
    bool reads;
    uint8_t *memory, *scratch;        /* of the need; then the tokenizer's blocks */
    uint64_t block_first, block_last; /* of them, in the payload */
    /* the model */
    Hyper hyper;
    Vocab vocab;
    Tokenizer *tokenizer;
    /* the engine: hub_calls.c */
    PipelineConfig config;
    Coordinator *coordinator;
    Pipeline *pipeline;
    HubCall *calls;    /* [pipeline_calls_max] */
    uint32_t *cancels; /* serials: [pipeline_calls_max] */
    uint32_t cancel_count, serials;
    CoordinatorEvent events[HUB_EVENTS_MAX];
    char head[HUB_HEAD_BYTES];
    Trace *traces; /* [slots]: whose answer is in each */
    uint64_t invocations, invocation_ns, invocation_calls,
        invocation_calls_most; /* calls of this one, and of any */
    Pace pace;
    uint64_t frames_ended;
    HubWatch watch;
    /* the server */
    Serve *serve;
    uint32_t intakes; /* requests that wait for serve_intake_take */
    bool again;       /* something came that no wish tells: look once more */
} Hub;

/* hub_open.c */
/* "NAME=value\n" lines. Errors  ERR_USAGE. */
MUST_CHECK Error hub_settings(Hub *hub, const char *text, size_t bytes);
/* The text of API_KEYS, a file of keys: without it everybody may use the API. Errors  ERR_MEMORY. */
MUST_CHECK Error hub_keys(Hub *hub, const char *text, size_t bytes);
/* The cluster file's JSON; then the loop until it waits or rests. */
MUST_CHECK Error hub_open(Hub *hub, const char *cluster, size_t bytes);
/* What was to be READ has come, or could not. */
void hub_read_came(Hub *hub, bool fine);
/* The next READ of the opening. */
HubWishKind hub_open_next(Hub *hub);

/* hub_calls.c */
ServeEngine hub_engine(Hub *hub);
/* The next call or the end of one, as a wish. Result  HUB_REST: none. */
HubWishKind hub_calls_next(Hub *hub, uint64_t now_ns);
/* A call has ended; status 0: it did not reach the node. */
void hub_answer(Hub *hub, uint32_t serial, unsigned status, size_t bytes);
/* Where the answer of a call goes, and how much there is room for; NULL: nobody wants it any more. */
uint8_t *hub_answer_room(Hub *hub, uint32_t serial, size_t *room);
uint32_t hub_calls_out(const Hub *hub);
/* Another invocation has begun, and has made `calls` itself. */
void hub_invocation(Hub *hub, uint32_t calls);
/* Calls whose deadline has passed end; when the next one does. */
void hub_calls_expire(Hub *hub, uint64_t now_ns);
uint64_t hub_calls_wake_ns(const Hub *hub);
uint32_t hub_calls_serial(Hub *hub);
/* The text of a CALL. `method` with a blank behind. */
const char *hub_calls_head(Hub *hub, uint32_t node, const char *method, const char *path);

/* hub_watch.c */
MUST_CHECK Error hub_watch_open(Hub *hub);
/* Keeps a request whose answer needs reports. Result  false: it is none, or there are too many. */
bool hub_watch_takes(Hub *hub, HttpExchange *x);
HubWishKind hub_watch_next(Hub *hub, uint64_t now_ns);
/* As hub_answer_room and hub_answer, of questions. */
uint8_t *hub_watch_room(Hub *hub, uint32_t serial, size_t *room);
bool hub_watch_answer(Hub *hub, uint32_t serial, unsigned status, size_t bytes);
uint64_t hub_watch_wake_ns(const Hub *hub);
/* A question whose deadline has passed, and is now none; 0: there is none. */
uint32_t hub_watch_late(Hub *hub, uint64_t now_ns);
/* Of ServeEngine. While those that wait are answered, nodes must have said that they are ready, too. */
bool hub_watch_ready(const Hub *hub, Why *why);
size_t hub_watch_describe(Hub *hub, char *out, size_t room);

/* hub.c */
HubWishKind hub_next(Hub *hub, double now_ms);
/* Result  the request's number; 0: there are too many. */
uint32_t hub_request(Hub *hub, const char *head, size_t bytes);
uint8_t *hub_body(Hub *hub, uint32_t number, size_t bytes);
void hub_body_end(Hub *hub, uint32_t number);
void hub_gone(Hub *hub, uint32_t number);
void hub_written(Hub *hub, uint32_t number);

#endif
