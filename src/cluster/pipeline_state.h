/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pipeline share.
 *
 *   pipeline.c           memory, frames taken and ended, events
 *   pipeline_calls.c     the table of calls: made, taken by the host, given up, ended
 *   pipeline_nodes.c     what is known of nodes: up or down, times, health, sessions to be freed
 *   pipeline_forward.c   a frame at a station
 *   pipeline_shards.c    a stage that asks shards: replicas, hedges, own store, zero rows
 *   pipeline_embed.c, pipeline_logits.c   what the two stages ask, and what they do with the answers
 *   pipeline_costs.c     what each slot's answer costs at each node
 *   pipeline_ends.c      stations that keep the embedding or the head: each the one shard of its stage
 *
 *   frame:  IDLE --taken--> EMBED --> FORWARD (station 0 .. S-1) --> LOGITS --> DONE --ended in order--> IDLE
 *                             '---------- given up ----------> LEAVING --its calls ended--> IDLE
 *
 * A stage begins when all calls of the one before have ended, so that their memory is free. */
#ifndef COBORD_CLUSTER_PIPELINE_STATE_H
#define COBORD_CLUSTER_PIPELINE_STATE_H

#include "cluster/pipeline.h"
#include "wire/forward.h"
#include "wire/node_error.h"
#include "wire/shard_frames.h"

enum {
    NODE_TIMES = 128, /* the last calls, for p50 and p95 */
    NODE_KINDS = PIPELINE_HOPS,
    ROW_CLASSES = 14, /* of a call: 0, 1, 2..3, 4..7, .. */
    RANGE_NODES_MAX = 32,
    TWINS = 2, /* a call to a shard and its hedge */
    BAD_MAX = 3,
    REPLAYS_MAX = 20,
    FIRST_K_MAX = 256,
    FRAME_ERROR_ROOM = NODE_ERROR_BYTES_MAX /* an answer's room at least */
};
#define NONE UINT32_MAX
#define MS ((uint64_t)1000000)

/* ---- Nodes and ranges ---- */

typedef struct Times {
    uint32_t us[NODE_TIMES];
    uint32_t count, next;
} Times;

typedef struct Node {
    PipelineNodeState state;
    uint32_t range;      /* NONE: not asked by us */
    bool gone;           /* DOWN, and it did not answer for its health either */
    bool locked;         /* DOWN, since it refused our key: its health says nothing about that */
    uint32_t misses;     /* of its health, in a row */
    uint64_t backoff_ns; /* until it is tried again; grows until a call succeeds */
    uint64_t health_ns;  /* when its health is asked for next */
    uint64_t drops;      /* sessions that it was told to forget, of Pipeline.drops */
    uint64_t usual_ns[NODE_KINDS][ROW_CLASSES]; /* 0: not known */
    PipelineCounts counts;                      /* changed by pipeline_count alone */
    Times whole, compute;
    PipelineHop hops[NODE_KINDS];         /* of the last calls */
    uint32_t failed_in_a_row;             /* calls */
    uint64_t failed_ns;                   /* the last of them */
    uint8_t *health_answer, *drop_answer; /* [FRAME_ERROR_ROOM] */
    Why last;
} Node;

/* A station or a shard: its node and its replicas, which follow it in the cluster file. */
typedef struct Range {
    uint32_t first, count; /* nodes */
    uint32_t active;
    uint64_t none_since_ns; /* all of them are DOWN since; 0: not so */
    union {
        ForwardTerms forward;
        ShardTerms shard;
    } terms;
} Range;

/* ---- Calls ---- */

typedef enum CallState { CALL_FREE, CALL_WANTED, CALL_OUT } CallState;

typedef struct Call {
    CallState state;
    bool in_ready, in_cancels; /* in the rings */
    bool cancelled;            /* no longer wanted, whatever comes */
    PipelineCall body;
    uint32_t rows;
    uint64_t start_ns;
} Call;

/* How a call ended: an Error of the way or of the node, or bytes. */
typedef struct Ended {
    const PipelineCall *call;
    Error error; /* OK: `bytes` of the answer are to be read */
    Why why;
    size_t bytes;
    bool answered; /* there was a status */
    uint32_t rows;
    uint64_t took_ns;
} Ended;

/* ---- Frames ---- */

typedef enum Stage {
    STAGE_IDLE,
    STAGE_EMBED,
    STAGE_FORWARD,
    STAGE_LOGITS,
    STAGE_DONE,
    STAGE_LEAVING
} Stage;

/* One shard's part of a stage. */
typedef struct Ask {
    bool open; /* an answer is wanted */
    bool answered;
    bool own_failed;
    uint32_t tried; /* bit i: node i of the range, since the last round */
    uint32_t failures, bad;
    uint64_t retry_ns;
    const uint8_t *payload;
    size_t payload_bytes;
    uint32_t header_bytes;
    uint8_t *header[TWINS], *answer[TWINS];
    size_t room;
    uint64_t request_id[TWINS];
    LogitsResult *results; /* [round's rows] */
} Ask;

typedef struct Frame {
    Stage stage;
    CoordinatorFrame *work; /* the coordinator's; NULL when IDLE or LEAVING */
    uint32_t number;
    uint32_t calls;                /* that have not ended */
    uint64_t waits_since_ns;       /* it could go on if a node were there; 0: not so */
    uint64_t moved_ns;             /* when it came to its stage or station */
    uint32_t bad;                  /* times a station called it wrong */
    uint64_t slowest_ns;           /* of its forward calls */
    uint64_t begun_ns[NODE_KINDS]; /* its stages */

    uint32_t *ids;              /* [chunk] */
    ForwardSequence *sequences; /* [slots] */
    uint32_t *wanted;           /* [chunk] */
    Forward request;            /* the last one to a station */
    uint32_t station;           /* range of stations it is at, or waits for */
    uint8_t *header;            /* of the request */
    uint8_t *buffer[2];         /* rows: those of the next request, and room for the answer */
    uint32_t side;              /* buffer that has the rows */
    const uint8_t *rows;        /* in it */
    uint64_t rows_bytes, rows_hash;
    bool only_wanted;

    Ask *asks;           /* [shards] */
    Arena area;          /* of a stage that asks shards */
    float *hidden;       /* [picks][hidden], in the area */
    size_t area_mark;    /* behind it */
    float *round_hidden; /* the same of the round's picks */
    uint32_t *round;     /* [logit_rows]: numbers of the picks that this round asks for */
    uint32_t round_count;
    LogitsRow *row; /* [logit_rows] */
} Frame;

typedef struct Event {
    CoordinatorEvent event;
    uint32_t starts; /* of its slot, then */
    Why why;
} Event;

struct Pipeline {
    PipelineConfig config;
    Coordinator *coordinator;
    RowsElement element;
    uint32_t chunk, frame_count, stations;
    uint32_t shards; /* ranges of ids: of shards, then of stations that have all ids */
    /* The one that its stage asks instead of all others; NONE: there is none. */
    uint32_t embed_end, head_end;
    uint64_t patience_ns;
    /* Calls that one part of a stage may have at once: 2 when some shard has a replica. */
    uint32_t twins;

    Node *nodes;   /* [cluster->node_count], then PIPELINE_OWN's */
    Range *ranges; /* stations, then those of ids */
    Frame *frames;
    uint32_t *order; /* numbers of frames under way, oldest first */
    uint32_t under_way;
    size_t buffer_bytes, area_bytes;

    Call *calls;
    uint32_t calls_max;
    uint32_t *ready; /* a ring */
    uint32_t ready_first, ready_count;
    uint32_t *cancels; /* a ring */
    uint32_t cancels_first, cancels_count;
    uint64_t requests; /* made so far */

    uint64_t *sessions;     /* [slots] */
    bool *used;             /* [slots]: some station may hold it */
    bool *forget;           /* [slots]: when no frame of it is under way */
    uint32_t *slot_replays; /* [slots]: since the last confirmed frame */
    uint64_t sessions_made;
    uint64_t *drops; /* a ring of the last sessions to be freed */
    uint64_t drops_made;

    PipelineCost *costs; /* [slots][nodes, then PIPELINE_OWN's] */
    float *row;          /* [hidden]: one of a pool */

    Event *events; /* a ring */
    uint32_t events_first, events_count, events_max;
    SamplerCandidate *best, *merged; /* [vocabulary] */
    uint64_t replays, degraded, frames_ended;
    uint32_t last_rows;
    uint64_t last_ns;
    uint64_t stage_ns[NODE_KINDS][ROW_CLASSES]; /* about; 0: not known */
    bool again; /* something changed: look at the frames once more */
    uint64_t now_ns;
};

/* One thread counts, others may look. */
static inline void pipeline_count(uint64_t *count, uint64_t more)
{
    __atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}
static inline Range *pipeline_station(const Pipeline *p, uint32_t station)
{
    return &p->ranges[station];
}
static inline Range *pipeline_shard(const Pipeline *p, uint32_t shard)
{
    return &p->ranges[p->stations + shard];
}
static inline Node *pipeline_node_of(const Pipeline *p, uint32_t node)
{
    return &p->nodes[node == PIPELINE_OWN ? p->config.cluster->node_count : node];
}
/* (nonce, count): rises with every request. */
static inline uint64_t pipeline_request_id(Pipeline *p)
{
    return ((uint64_t)p->config.nonce << 32) + ++p->requests;
}
static inline uint64_t pipeline_session_id(Pipeline *p)
{
    return ((uint64_t)p->config.nonce << 32) + ++p->sessions_made;
}

/* pipeline.c */
/* Slots that were to be forgotten when no frame of theirs is under way. */
void pipeline_forget_waiting(Pipeline *p);
/* All sessions of the frame are lost at a station: they are replayed. */
void pipeline_replay(Pipeline *p, Frame *f, uint32_t node, const Why *why);
/* Another node has taken over a range of layers: every session is replayed. */
void pipeline_replay_all(Pipeline *p, uint32_t node);
void pipeline_give_up(Pipeline *p);
/* By its own fault, or because no node can carry it out. `f` is LEAVING afterwards. */
void pipeline_fail(Pipeline *p, Frame *f, Error error, const Why *why);
void pipeline_refuse(Pipeline *p, Frame *f, Error error, const Why *why);
void pipeline_new_sessions(Pipeline *p, const CoordinatorFrame *work);

/* pipeline_calls.c */
uint32_t pipeline_calls_of_shard(const Pipeline *p, const Frame *f, uint32_t shard, uint32_t twin);
uint32_t pipeline_calls_of_forward(const Pipeline *p, const Frame *f);
uint32_t pipeline_calls_of_health(const Pipeline *p, uint32_t node);
uint32_t pipeline_calls_of_drop(const Pipeline *p, uint32_t node);
uint32_t pipeline_calls_count(const Pipeline *p);
/* Makes the call whose number is body.call; it must be free. */
void pipeline_calls_make(Pipeline *p, const PipelineCall *body, uint32_t rows);
/* Whatever it brings is ignored, or taken as a failure. */
void pipeline_calls_cancel(Pipeline *p, uint32_t call);
void pipeline_calls_cancel_frame(Pipeline *p, const Frame *f);
void pipeline_calls_cancel_node(Pipeline *p, uint32_t node);
static inline bool pipeline_calls_is_free(const Pipeline *p, uint32_t call)
{
    return p->calls[call].state == CALL_FREE;
}

/* pipeline_nodes.c */
bool pipeline_nodes_usable(const Pipeline *p, uint32_t node);
/* The node answered as it should, even if it said no. */
void pipeline_nodes_heard(Pipeline *p, uint32_t node);
void pipeline_nodes_succeeded(Pipeline *p, const Ended *e);
void pipeline_nodes_failed(Pipeline *p, uint32_t node, Error error, const Why *why);
/* Part of the former; alone when the node is well and yet of no use. */
void pipeline_nodes_disappoints(Pipeline *p, uint32_t node);
/* Its failures in a row, when the last is not long ago; else 0. */
uint32_t pipeline_nodes_held_against(const Pipeline *p, uint32_t node);
/* A budget for calls of this kind with so many rows, and their usual time (0: not known). */
uint64_t pipeline_nodes_budget_ns(const Pipeline *p, uint32_t node, PipelinePath path,
                                  uint32_t rows);
uint64_t pipeline_nodes_usual_ns(const Pipeline *p, uint32_t node, PipelinePath path,
                                 uint32_t rows);
void pipeline_nodes_add_time(Times *t, uint64_t ns);
void pipeline_nodes_step(Pipeline *p);
/* Its health was asked for. */
void pipeline_nodes_drop_ended(Pipeline *p, const Ended *e);
void pipeline_nodes_health_ended(Pipeline *p, const Ended *e);
void pipeline_nodes_drop(Pipeline *p, uint64_t session);
/* The stages of a frame that ends now. */
void pipeline_nodes_time_stages(Pipeline *p, const Frame *f);
uint64_t pipeline_nodes_wake_ns(const Pipeline *p);
/* "layers of station-1 (HOST:PORT): " and what happened. */
/* Whether all nodes of the range refuse our key: who waits for them waits for ever. */
bool pipeline_nodes_locked(const Pipeline *p, const Range *r);
/* What a node said or did, with its name in front. Result  `error`. */
MUST_CHECK Error pipeline_nodes_name(const Pipeline *p, uint32_t node, Error error, const Why *what,
                                     Why *out);
MUST_CHECK Error pipeline_nodes_explain(const Pipeline *p, const Range *r, Why *why);

/* pipeline_costs.c */
void pipeline_costs_hop(Pipeline *p, const Ended *e);
uint64_t pipeline_costs_count(const Pipeline *p);
void pipeline_costs_add(Pipeline *p, const Frame *f, const PipelineCall *call, uint64_t took_ns,
                        uint64_t received);

/* pipeline_build.c */
ShardTerms pipeline_build_shard_terms(const Pipeline *p, uint32_t id_first, uint32_t id_last);

/* pipeline_ends.c: how many of the file's stations are ranges of ids too, what they are, what is known of
 * their nodes. */
void pipeline_ends_count(Pipeline *p);
static inline uint32_t pipeline_ends_first(const Pipeline *p)
{
    return p->shards - (p->embed_end != NONE) - (p->head_end != NONE);
}
/* Whether a stage asks this range of ids. */
static inline bool pipeline_ends_asks(const Pipeline *p, Stage stage, uint32_t shard)
{
    uint32_t end = stage == STAGE_EMBED ? p->embed_end : p->head_end;
    return end == NONE ? shard < pipeline_ends_first(p) : shard == end;
}
/* Of a call: the node's part, or whose ids the own store is asked for. */
uint32_t pipeline_ends_part(const Pipeline *p, uint32_t shard, uint32_t node);
/* After the ranges of stations and shards. */
void pipeline_ends_take(Pipeline *p);
/* A station's range has changed its state. */
void pipeline_ends_follow(Pipeline *p, const Range *station);

/* pipeline_forward.c */
void pipeline_forward_begin(Pipeline *p, Frame *f);
void pipeline_forward_step(Pipeline *p, Frame *f);
void pipeline_forward_ended(Pipeline *p, Frame *f, const Ended *e);
uint64_t pipeline_forward_wake_ns(const Pipeline *p, const Frame *f);

/* pipeline_shards.c */
void pipeline_shards_step(Pipeline *p, Frame *f);
void pipeline_shards_ended(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, const Ended *e);
uint64_t pipeline_shards_wake_ns(const Pipeline *p, const Frame *f);

/* pipeline_embed.c, pipeline_logits.c: bytes of a frame's area, the stage's beginning, its next step when
 * all shards have answered, headers, answers. */
uint64_t pipeline_embed_area_bytes(const Pipeline *p);
void pipeline_embed_begin(Pipeline *p, Frame *f);
void pipeline_embed_write(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin);
MUST_CHECK Error pipeline_embed_take(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin,
                                     size_t bytes, Why *why);
/* Zero rows in place of the shard's. */
void pipeline_embed_zero(Pipeline *p, Frame *f, uint32_t shard);
void pipeline_embed_end(Pipeline *p, Frame *f);
uint64_t pipeline_logits_area_bytes(const Pipeline *p);
void pipeline_logits_begin(Pipeline *p, Frame *f);
void pipeline_logits_write(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin);
MUST_CHECK Error pipeline_logits_take(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin,
                                      size_t bytes, Why *why);
void pipeline_logits_zero(Pipeline *p, Frame *f, uint32_t shard);
void pipeline_logits_end(Pipeline *p, Frame *f);
/* The hidden states of its pools, to the coordinator: right before the frame ends. */
void pipeline_logits_give_pools(Pipeline *p, const Frame *f);
/* Nobody waits for it: no pick of it is made. */
void pipeline_logits_drop(Pipeline *p, Frame *f);

#endif
