/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's frames on their way through the nodes: which call goes where, what comes back,
 * and what to do when nothing does. Without a socket and without a clock: the host (or the
 * simulator, or a Worker) carries out the calls and says what time it is.
 *
 *   coordinator_frame --> EMBED   one call to each shard that owns one of the ids, sparse, merged; or one to the
 *                                 first station, when that keeps the embedding
 *                         FORWARD station 0 --> station 1 --> ..   the answer's rows are the next request's
 *                         LOGITS  one call to each shard, merged, or one to the last station, when that keeps the
 *                                 head; again while a pick wants more
 *                     --> coordinator_end_frame --> events
 *
 * Several frames are under way at once: while station 1 has one, station 0 has the next, and one more gets its rows
 * meanwhile. A station has at most one call at a time, and frames pass it in the order they were made.
 *
 *   a call fails (no answer, too late, 503, bytes that fail their check)
 *        shard:    the replica, then the coordinator's own store (PIPELINE_OWN), then all of it again for up to
 *                  3 s, then zero rows, and the answer is flagged
 *        station:  the same node again when it answers for its health, else its replica
 *   410 or 409 position, superseded: the station does not hold what the frame builds on. Every frame
 *        under way is given up, its slots go back: those of this frame to the start, the others to what was
 *        confirmed. Same tokens, same positions, same bits. A replica that takes over holds nothing
 *        that we know of: all slots go back to the start.
 *   409 handshake: the node is not one of this cluster; as unreachable, and its Why stays to be seen
 *   no node of a range for patience_ms: the frame's slots end with ERR_UNREACHABLE, naming it
 *   the request's own fault (not finite, 400 three times): coordinator_fail_frame
 *   twenty replays of a slot without one frame of it confirmed: its slots end with ERR_SESSION
 *
 * Nodes:   UP --(failure)--> DOWN, its health is asked for after 50 ms, doubling up to 2 s --(answer)--> UP
 *          DOWN nodes get no other call. Each is asked for its health every second while it is not
 *          otherwise heard of; without an answer to two of those it is DOWN and its calls are given
 *          up: a frozen process is noticed in about 3 s.
 * Hedging: an embed or logits call that takes longer than four times the shard's usual time is also given to a
 *          replica, when there is one; the first answer counts.
 *
 * The host's loop: pipeline_advance, all events, pipeline_advance, all cancels, all calls, wait until a
 * call ends or pipeline_wake_ns, pipeline_answer for each that ended. No frame is taken while an
 * event waits, so that who reads it can stop its slot first.
 *
 * Invariants
 *   1. Request ids rise: (nonce, count). A retry has a new one, so that a late twin is refused; sessions of another
 *      coordinator have other names.
 *   2. A session's name is used for one slot's unbroken history; a slot that was forgotten gets a new one.
 *   3. What a client sees does not depend on failures, except as delay, an error, or `degraded`. */
#ifndef COBORD_CLUSTER_PIPELINE_H
#define COBORD_CLUSTER_PIPELINE_H

#include "base/arena.h"
#include "cluster/coordinator.h"
#include "wire/cluster_file.h"

typedef struct PipelineConfig {
    const ClusterFile *cluster; /* context, chunk, element, cache, knot_id, nodes */
    const Hyper *hyper;
    uint32_t slots, logit_rows;
    uint32_t drafts;      /* guesses of a slot in a frame, at most; 0: none */
    uint32_t frames;      /* at stations at once; 0: as many as stations */
    uint32_t nonce;       /* no other coordinator's: begins the names of sessions; random */
    uint32_t patience_ms; /* 0: 30,000 */
} PipelineConfig;

typedef enum PipelinePath {
    PIPELINE_EMBED,
    PIPELINE_FORWARD,
    PIPELINE_LOGITS,
    PIPELINE_DROP, /* DELETE /sessions/{session}; session in decimal */
    PIPELINE_HEALTH
} PipelinePath;

/* The node of a call that this process answers itself, from its own store, by a shard_service for the ids of
 * part `part`; with an error when it has none. Part PIPELINE_ALL_IDS is the whole vocabulary, of stations that keep
 * embedding or head. */
#define PIPELINE_OWN UINT32_MAX
#define PIPELINE_ALL_IDS (UINT32_MAX - 1)

typedef struct PipelineCall {
    uint32_t call; /* 0 .. pipeline_calls_max() - 1: its number until it has ended */
    uint32_t node; /* of the cluster file, or PIPELINE_OWN */
    uint32_t part; /* of the node's role */
    PipelinePath path;
    uint64_t session;        /* DROP */
    const uint8_t *parts[2]; /* the body: header, payload. Stay as they are until the call ended */
    size_t part_bytes[2];
    uint8_t *answer;
    size_t answer_room;
    uint64_t deadline_ns;
} PipelineCall;

typedef struct PipelineAnswer {
    Error error; /* of the way: ERR_UNREACHABLE, ERR_TOO_LARGE, ERR_CANCELLED; OK: a status */
    unsigned status;
    size_t bytes; /* in the call's answer */
    Why why;      /* of the error */
} PipelineAnswer;

typedef struct Pipeline Pipeline;

/* What a coordinator built for it must have: chunk, slots, frames. */
CoordinatorConfig pipeline_coordinator_config(const PipelineConfig *config);
uint64_t pipeline_bytes(const PipelineConfig *config); /* 0: pipeline_build says what is wrong */
/* Owner  the arena, cluster, hyper and coordinator outlive it.
 * Errors  ERR_MEMORY, ERR_RANGE, ERR_UNSUPPORTED (nobody has the embedding, or the head). */
MUST_CHECK Error pipeline_build(const PipelineConfig *config, Coordinator *coordinator,
                                Arena *arena, Pipeline **out, Why *why);
uint32_t pipeline_calls_max(const Pipeline *p);

/* Takes new frames from the coordinator as far as there is room, and takes each a step further. Call after
 * coordinator_start, and with the time after anything else. */
void pipeline_advance(Pipeline *p, uint64_t now_ns);
/* The next call to be made; false: none for now. */
bool pipeline_next_call(Pipeline *p, uint64_t now_ns, PipelineCall *out);
/* The next call that is no longer wanted: the host ends it and answers it with ERR_CANCELLED. */
bool pipeline_next_cancel(Pipeline *p, uint32_t *call);
/* A call has ended. Every call that was made ends exactly once. */
void pipeline_answer(Pipeline *p, uint32_t call, const PipelineAnswer *answer, uint64_t now_ns);
/* When pipeline_advance wants to be called again at the latest; UINT64_MAX: not before something happens. */
uint64_t pipeline_wake_ns(const Pipeline *p);

/* Events of the coordinator since the last time, one at a time; `why` explains one with an error. */
bool pipeline_next_event(Pipeline *p, CoordinatorEvent *event, Why *why);
/* Rows of the last frame that ended, and its time at the slowest station. Result  frames ended so far. */
uint64_t pipeline_frame_time(const Pipeline *p, uint32_t *rows, uint64_t *slowest_ns);
/* Whether any frame is under way or any slot active. */
bool pipeline_is_busy(const Pipeline *p);

/* Frees the slot's sessions on every station and forgets what it said (cancel, time-out, hang-up,
 * failure); when frames of it are under way, after those. The slot must not be active. */
void pipeline_forget(Pipeline *p, uint32_t slot);
/* Whether the slot's answer used zero rows in place of a shard's. Cleared by coordinator_truncate, and by
 * coordinator_start with ids; what the stations hold of it is not used again. */
bool pipeline_is_degraded(const Pipeline *p, uint32_t slot);

/* ---- What the answer in a slot has cost at a node (PIPELINE_OWN: read from the own store), since
 * the slot's costs were forgotten. A call counts in full for every slot that had rows in it, its
 * bytes by their share of the rows. */
typedef struct PipelineCost {
    uint64_t calls, ns, bytes_sent, bytes_received;
} PipelineCost;
const PipelineCost *pipeline_cost(const Pipeline *p, uint32_t slot, uint32_t node);
void pipeline_costs_forget(Pipeline *p, uint32_t slot);

/* ---- What is known of a node. */
typedef enum PipelineNodeState { PIPELINE_UNKNOWN, PIPELINE_UP, PIPELINE_DOWN } PipelineNodeState;
/* Calls of one kind, as the last one was: its rows (0: there was none), and about what such a call takes. */
typedef struct PipelineHop {
    uint32_t rows, us;
    uint64_t bytes_sent, bytes_received;
} PipelineHop;
enum { PIPELINE_HOPS = PIPELINE_LOGITS + 1 }; /* EMBED, FORWARD, LOGITS */
typedef struct PipelineNode {
    PipelineNodeState state;
    bool active; /* calls of its range go to it */
    uint64_t calls, failures, hedges, replays;
    uint64_t bytes_sent, bytes_received;
    uint32_t p50_us, p95_us;                 /* of the last 128 calls, whole */
    uint32_t compute_p50_us, compute_p95_us; /* of stations: as they say; 0 elsewhere */
    PipelineHop hops[PIPELINE_HOPS];
    char last_error[160];
} PipelineNode;
void pipeline_node(const Pipeline *p, uint32_t node, PipelineNode *out);
/* What a node's calls have come to so far, whichever thread asks; each figure only goes up. */
enum { PIPELINE_HOP_KINDS = 3, PIPELINE_HOP_BUCKETS = 12 };
typedef struct PipelineCounts {
    uint64_t calls, failures, hedges, replays, bytes_sent, bytes_received;
    /* Of PIPELINE_EMBED, _FORWARD, _LOGITS: calls that took at most pipeline_hop_bounds_us[i] (not those of the bucket
     * before), the last: longer; and the sum. */
    uint64_t hops[PIPELINE_HOP_KINDS][PIPELINE_HOP_BUCKETS + 1], hop_us[PIPELINE_HOP_KINDS];
} PipelineCounts;
extern const uint32_t pipeline_hop_bounds_us[PIPELINE_HOP_BUCKETS];
/* Thread  any. */
void pipeline_counts(const Pipeline *p, uint32_t node, PipelineCounts *out);
/* Slots that a call is for, those with rows in its frame: none of a call that is not under way, or only asks
 * for health. Result  how many, at most `room`. */
uint32_t pipeline_call_slots(Pipeline *p, uint32_t call, uint32_t *slots, uint32_t room);
/* Whether each range has a node that is not DOWN. `why` names those that have none. */
bool pipeline_is_complete(const Pipeline *p, Why *why);
/* Frames as the last one that ended was: about how long its stages take, from the first to its end. */
typedef struct PipelineStages {
    uint64_t frames; /* that ended, so far */
    uint32_t rows;   /* of the last */
    uint32_t us[PIPELINE_HOPS];
} PipelineStages;
void pipeline_stages(const Pipeline *p, PipelineStages *out);
uint64_t pipeline_replays(const Pipeline *p);
uint64_t pipeline_degraded(const Pipeline *p); /* times that a shard's rows were taken as zero */

#endif
