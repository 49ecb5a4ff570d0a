/* SPDX-License-Identifier: Apache-2.0 */
/* One node of a cluster in one WebAssembly instance: a station, a shard or a warden. What
 * JavaScript sees of it is docs/format/workers.md; this is the C side, for node.c (the loop) and
 * for the roles.
 *
 *   node_open --> header and hash tables --> role->open --> node_opened --> DONE
 *   node_request, node_body --> gate --> role->run --> node_reply --(after the response)--> node_end --> DONE
 *                                          |  ^
 *                                 a wish   v  | its `then`
 *                                        the host
 *
 * A role is written as functions that follow one another: each looks at what came, makes one wish
 * (or a batch of them) and names the function that goes on. Between a wish and its `then` the
 * instance does nothing, so one request has it for itself from its first function to node_end.
 *
 *   static void header_came(Node *n) { if (n->error) fail(n); else ... node_end(n); }
 *   static void run(Node *n, uint32_t route) { node_want_read(n, 0, 64, n->role_memory, header_came); }
 *
 * Memory  the text's room, then what roles take with node_take: in open, and again for a range that
 * is configured. No malloc while a request runs. */
#ifndef COBORD_WORKERS_NODE_H
#define COBORD_WORKERS_NODE_H

#include "api/node_gate.h"
#include "knot/knot_index.h"
#include "model/hyper.h"
#include "wire/cluster_file.h"
#include "wire/node_error.h"

enum {
    NODE_TEXT_BYTES = 32 << 10,   /* settings, heads of requests, of calls */
    NODE_BATCH_MAX = 64,          /* wishes that the host may carry out together */
    NODE_ROW_BYTES_MAX = 1 << 20, /* of SQLite */
    NODE_CALL_BYTES_MAX = 4 << 20 /* of a warden's answer to GET /knot */
};

typedef enum NodeWishKind {
    NODE_DONE,       /* the operation is over */
    NODE_READ,       /* bytes of the knot's file */
    NODE_CALL,       /* an HTTP call to the warden */
    NODE_REPLY,      /* the response; the loop goes on */
    NODE_GET,        /* a value of the key-value store */
    NODE_PUT,        /* the same, written */
    NODE_DELETE,     /* the same, deleted */
    NODE_ROW_PUT,    /* a row of the object's own table, written */
    NODE_ROW_DELETE, /* rows of it, deleted */
    NODE_ROWS,       /* the next row of those whose key begins so */
    NODE_LOG,        /* a line for the log */
    NODE_SIZE,       /* the bytes of the knot's file */
    NODE_TELL        /* a CALL without a body, whose outcome nobody waits for */
} NodeWishKind;

/* Which fields mean something depends on the kind: the table is in docs/format/workers.md. */
typedef struct NodeWish {
    NodeWishKind kind;
    uint64_t offset;       /* READ: in the file. ROW_PUT, ROW_DELETE: the row's number */
    uint8_t *address;      /* READ, GET, ROWS: to here. CALL, REPLY, PUT, ROW_PUT: from here */
    uint32_t bytes;        /* of it; GET, ROWS: at most */
    const char *text;      /* key; head of a call; content type; line */
    uint8_t *answer;       /* CALL: the answer's body goes here .. */
    uint32_t answer_bytes; /* .. at most */
    uint32_t status;       /* REPLY */
    const char *allow;     /* REPLY: of a 405, or NULL */
    uint32_t seconds;      /* REPLY: Retry-After, 0: none. PUT: until it expires */
} NodeWish;

/* What came of a wish. */
typedef struct NodeCame {
    bool failed;     /* the host could not: node_failed */
    uint32_t status; /* CALL: HTTP. GET, ROWS: 1 found, 0 not. READ, SIZE: 1 */
    uint64_t bytes;  /* GET: of the value, also when there was no room for it */
} NodeCame;

typedef struct Node Node;
typedef void NodeThen(Node *n);

typedef struct NodeRole {
    const NodeGateRoute *routes;
    uint32_t route_count;
    /* Settings are there, and n->index. Ends with node_opened, at once or after wishes. */
    void (*open)(Node *n);
    /* n->request has the whole request. Ends with node_end, after one node_reply. `route` counts
     * from 0. */
    void (*run)(Node *n, uint32_t route);
    /* The text of GET /ready, and whether the node is; its lines of GET /metrics. */
    bool (*ready)(Node *n, char *json, size_t room);
    void (*metrics)(Node *n, char *text, size_t room);
} NodeRole;

/* Headers of a request that roles look at; NULL: not there. */
typedef struct NodeHeaders {
    const char *knot_id, *knot_key, *layer_first, *layer_last, *id_first, *id_last;
} NodeHeaders;

typedef struct NodeRequest {
    const char *tail;  /* of the path, behind the route's: "blk_0_attn_q_weight", "" */
    const char *query; /* behind '?', decoded: "rows=0-15"; "" */
    NodeHeaders headers;
    uint8_t *body; /* 64-aligned; the role's n->body */
    uint32_t body_bytes;
    bool replied, gone; /* gone: the client left; what is computed for it may end */
} NodeRequest;

/* Since the start. */
typedef struct NodeCounts {
    uint64_t requests, refused, failed, abandoned, unauthorized;
} NodeCounts;

enum { NODE_TELLS_MAX = 8, NODE_LINE_BYTES = 512, NODE_HEAD_BYTES = 1536 };

typedef enum NodeStage { NODE_IDLE, NODE_OPENING, NODE_HEAD, NODE_RUNNING } NodeStage;

typedef struct NodeLoop {
    NodeStage stage;
    bool opened, failed; /* the opening is over */
    NodeThen *then;      /* goes on when what was wished has come */
    NodeWish wish[NODE_BATCH_MAX];
    uint32_t wish_count, wish_at, came_count;
    NodeWish aside; /* TELL, LOG: between the others */
    char tells[NODE_TELLS_MAX][NODE_HEAD_BYTES];
    uint32_t tell_count;
    char line[NODE_LINE_BYTES];
    NodeGatePass pass;
    bool query_fits;
    char path[NODE_GATE_PATH_BYTES], query[NODE_GATE_QUERY_BYTES];
    char error[NODE_ERROR_BYTES_MAX], text[NODE_TEXT_BYTES];
} NodeLoop;

typedef struct NodeMemory {
    uint8_t *start, *end; /* what is taken */
} NodeMemory;

/* A range of the file under way. */
typedef struct NodeFetch {
    uint64_t offset, bytes, done; /* in the file */
    uint8_t *to;
    bool checked; /* whole blocks of the payload, to be compared with their hashes */
    bool from_warden;
    uint32_t tries;
    uint64_t warden_rests_until_ms;
    NodeThen *then;
    Error error;
    Why why;
    char head[NODE_HEAD_BYTES];     /* of a call */
    char identity[NODE_HEAD_BYTES]; /* header lines that say which warden is meant */
} NodeFetch;

struct Node {
    ClusterRole kind;
    const NodeRole *role;
    void *state; /* the role's own */

    /* Settings, as they were given; knot_id is 0 when it was not. */
    const char *id, *version, *key;
    const char *knot_key;
    uint64_t knot_id, budget_bytes;
    bool has_warden, has_store, has_values; /* a warden is bound, R2, a key-value store */

    KnotIndex index; /* after the header came: knot and hash tables, checked against knot_id */
    Hyper hyper;

    /* Where the role puts bodies; body_bytes_max is the limit that the gate tells. Set in open. */
    uint8_t *body;
    uint64_t body_bytes_max;

    NodeRequest request;
    NodeCame came[NODE_BATCH_MAX]; /* of the last wish ([0]) or batch */
    Why failure;                   /* what the host said of the last one that failed */
    uint64_t store_reads, store_bytes;
    uint64_t now_ms; /* of the last node_next */

    NodeCounts counts;
    bool drained;
    Error open_error; /* why the opening failed */
    Why open_why;

    /* The files' own: node.c, node_memory.c, node_bytes.c. */
    NodeLoop loop;
    NodeMemory memory;
    NodeFetch fetch;
};

/* --- settings: the variables of the script --- */

/* NULL when it was not given. */
const char *node_setting(const Node *n, const char *name);
/* `fallback` when it was not given. Errors  ERR_USAGE: names it, with the limits. */
MUST_CHECK Error node_setting_number(const Node *n, const char *name, uint64_t fallback,
                                     uint64_t least, uint64_t most, uint64_t *out, Why *why);

/* --- memory --- */

/* `bytes` of zeroed memory, 64-aligned, for good. NULL when the module may not have them. */
void *node_take(Node *n, uint64_t bytes);
/* Not zeroed, and not kept: the next node_take or node_lend gives it out again. */
void *node_lend(Node *n, uint64_t bytes);
/* Bytes of the memory that are taken, and giving back what was taken after a mark. */
uint64_t node_taken(void);
uint8_t *node_mark(const Node *n);
void node_give_back(Node *n, uint8_t *mark);

/* --- wishes: at most one function of these, then return --- */

void node_want_read(Node *n, uint64_t offset, uint32_t bytes, uint8_t *to, NodeThen *then);
/* `head` is "METHOD PATH\nname: value\n.."; identity headers of the warden are node_warden_head's.
 * */
void node_want_call(Node *n, const char *head, const uint8_t *body, uint32_t body_bytes,
                    uint8_t *answer, uint32_t answer_bytes, NodeThen *then);
void node_want_rows(Node *n, const char *key_begins, uint8_t *to, uint32_t bytes, NodeThen *then);
/* READ, GET, PUT, DELETE: count of them, at most NODE_BATCH_MAX, carried out together; n->came has
 * one each. */
void node_want_batch(Node *n, const NodeWish *wishes, uint32_t count, NodeThen *then);
/* ROW_PUT, ROW_DELETE, LOG: nothing comes of them. */
void node_want(Node *n, const NodeWish *wish, NodeThen *then);

/* A range of the file, or whole hash blocks of the payload, compared with their hashes: from the
 * warden when there is one, else, or when what it gives is wrong or nothing, from the store; the
 * warden is then told. n->fetch.error and .why say what came of it: OK, ERR_UNREACHABLE,
 * ERR_CHECKSUM. */
void node_want_range(Node *n, uint64_t offset, uint64_t bytes, uint8_t *to, NodeThen *then);
void node_want_blocks(Node *n, uint64_t payload_offset, uint64_t bytes, uint8_t *to,
                      NodeThen *then);
/* POST /invalidate/NAME to the warden, without waiting. */
void node_tell_warden(Node *n, const char *name);
/* Whether the warden is worth asking now; and that it was not. */
bool node_warden_is_there(const Node *n);
void node_warden_rests(Node *n);

/* "cobord: station-0: WHAT: why", once the instance is left. */
void node_log(Node *n, const char *what, Error error, const Why *why);

/* --- the response --- */

/* Once per request. Owner  `bytes` stay until `then`, which may go on working; node_end when there
 * is nothing. */
void node_reply(Node *n, unsigned status, const char *type, const void *bytes, size_t count,
                NodeThen *then);
void node_reply_error(Node *n, Error error, const Why *why, NodeThen *then);
/* The request, or the opening, is over. */
void node_end(Node *n);
void node_opened(Node *n);
/* The opening failed: every request gets this error until the host opens another instance. */
void node_open_failed(Node *n, Error error, const Why *why);
/* The one node of this instance. */
Node *node_self(void);

extern const NodeRole node_station_role, node_shard_role, node_layer_warden_role,
    node_shard_warden_role;

#endif
