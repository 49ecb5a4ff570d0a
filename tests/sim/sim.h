/* SPDX-License-Identifier: Apache-2.0 */
/* A whole cluster in one thread, from one seed: the real coordinator, pipeline, stations and shards over a
 * tiny model, with simulated time and a network that loses, delays, doubles and corrupts what it carries,
 * and nodes that die, freeze, drain and come back without their memory.
 *
 *   sim_scenario  what the seed says: cluster, requests, faults
 *   sim_model     random weights
 *   sim_grammar   forms that answers must have
 *   sim_solo      the oracle: one request alone, one station, one shard, no pipeline, no wire
 *   sim_clock     events in the order of their time
 *   sim_nodes     stations and shards, their memory, their deaths
 *   sim_network   calls on their way there and back
 *   sim_rows      rows behind wrong guesses
 *   sim_clients   requests, slots, cancels, the coordinator's restart; compares with the oracle
 *   sim           seeds, report
 *
 * Nothing here depends on anything but the seed: no time, no address, no order of a hash. */
#ifndef COBORD_TESTS_SIM_H
#define COBORD_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cluster/pipeline.h"
#include "cluster/shard_service.h"
#include "cluster/station_service.h"

enum {
    SIM_STATIONS_MAX = 4,
    SIM_SHARDS_MAX = 5,
    SIM_NODES_MAX = 1 + 2 * (SIM_STATIONS_MAX + SIM_SHARDS_MAX),
    SIM_SLOTS_MAX = 4,
    SIM_CONTEXT_MAX = 96,
    SIM_REQUESTS_MAX = 6,
    SIM_FAULTS_MAX = 24,
    SIM_BIASES_MAX = 4,
    SIM_TEXT_MAX = 512,
    SIM_GRAMMARS = 4,

    SIM_LAYERS = 3,
    SIM_HIDDEN = 64,
    SIM_FFN = 96,
    SIM_HEADS = 2,
    SIM_KV_HEADS = 1,
    SIM_HEAD_DIM = 32,
    SIM_VOCABULARY = 101,
    SIM_ROWS = 112,
    SIM_POISON_ID = 77 /* its embedding is not finite */
};

#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_S UINT64_C(1000000000)
#define SIM_NEVER UINT64_MAX

/* ---- Random numbers. */
typedef struct SimRandom {
    uint64_t state;
} SimRandom;
uint64_t sim_random_next(SimRandom *r);
uint32_t sim_random_below(SimRandom *r, uint32_t n); /* 0 .. n - 1; 0 for n = 0 */
uint64_t sim_random_between(SimRandom *r, uint64_t low, uint64_t high); /* both possible */
bool sim_random_chance(SimRandom *r, uint32_t per_10000);

typedef struct SimGrammars SimGrammars;

/* ---- The model: one for all seeds. */
typedef struct SimModel {
    Knot knot;
    Hyper hyper;
    uint8_t *payload;
    void *memory;
    SimGrammars *grammars;
} SimModel;
void sim_model_make(SimModel *m);
void sim_model_free(SimModel *m);

/* ---- Forms of answers. */
SimGrammars *sim_grammar_open(void);
void sim_grammar_close(SimGrammars *g);
/* What may follow `tokens` by the grammar. Owner  *memory is malloc'd. */
GrammarMask *sim_grammar_mask(const SimGrammars *g, uint32_t grammar, const uint32_t *tokens,
                              uint32_t count, void **memory);

/* ---- What a seed says. */
typedef enum SimFaultKind {
    SIM_CRASH,   /* a node dies and is started again after a while, empty */
    SIM_FREEZE,  /* a node neither works nor answers for a while, then goes on with what has come */
    SIM_DRAIN,   /* a node says 503 for a while, then is started again, empty */
    SIM_CUT,     /* nothing reaches a node, nothing comes from it */
    SIM_RESTART, /* of the coordinator: its memory is lost, its journal is not */
    SIM_STALL, /* the coordinator's host does nothing for a while; then all that came comes at once */
    SIM_FAULT_KINDS
} SimFaultKind;

typedef struct SimFault {
    SimFaultKind kind;
    uint64_t at_ns, duration_ns;
    uint32_t node;
    /* So many requests that came to the node, or to any for the coordinator; 0: at at_ns. */
    uint32_t after;
    bool silent; /* callers of a dead node hear nothing instead of a reset */
} SimFault;

typedef struct SimRequest {
    /* From the seed. */
    uint32_t prompt[SIM_CONTEXT_MAX], prompt_count, tokens_max;
    SamplerParams params;
    SamplerBias bias[SIM_BIASES_MAX];
    uint64_t at_ns;           /* or, with `follows`, so long after the end of that one */
    uint64_t cancel_after_ns; /* its start; SIM_NEVER */
    int follows;              /* the request whose conversation it continues, or -1 */
    uint32_t keep;            /* so many tokens of it at most */
    bool forgets; /* the conversation is forgotten at its end, although another follows */
    bool forks;   /* the conversation that it continues stays in its slot, this one gets a copy */
    bool forgets_source; /* and that is forgotten at once */
    int copies; /* the request whose beginning it shares when that is being answered, or -1 */
    bool scores, pools;
    uint32_t tops, score_from; /* of its tokens; UINT32_MAX: those of the answer only */
    int grammar;               /* that the answer follows, or -1 */
    /* What should come, known when it starts. */
    uint32_t said[SIM_CONTEXT_MAX + 1], said_count; /* all tokens; those emitted are appended */
    uint32_t want[SIM_CONTEXT_MAX + 1], want_count;
    Error want_error;
    CoordinatorScore want_score[SIM_CONTEXT_MAX + 1]; /* by index of the token */
    double want_sum[SIM_HIDDEN];
    /* How it goes. */
    enum { SIM_WAITING, SIM_RUNNING, SIM_ENDED } state;
    bool cancelled, exempt; /* exempt: its answer was degraded */
    uint32_t slot, emitted, next_score;
    int source; /* the slot whose copy it became, to be forgotten at its end, or -1 */
    void *mask_memory;
    uint64_t started_ns, ended_ns;
} SimRequest;

typedef struct SimScenario {
    uint32_t stations, shards;
    bool embed, head; /* at the first, at the last station; both: no shards */
    bool station_replica[SIM_STATIONS_MAX], shard_replica[SIM_SHARDS_MAX];
    PhaseRange range[SIM_STATIONS_MAX];
    uint32_t id_first[SIM_SHARDS_MAX], id_last[SIM_SHARDS_MAX];
    uint32_t context, chunk, slots, frames, logit_rows, sessions;
    uint32_t drafts, wrong_drafts; /* of 10,000 */
    CacheType cache;
    uint64_t tile_bytes;
    /* The network, until `calm_ns`. */
    uint64_t calm_ns;
    uint64_t delay_ns, jitter_ns;
    uint32_t drop, twice, corrupt, cut_short, gateway; /* of 10,000 */
    uint64_t compute_ns, compute_jitter_ns;
    bool skips_gone;    /* nodes leave out requests whose caller has left */
    bool own_is_broken; /* the coordinator cannot read rows by itself */
    SimFault faults[SIM_FAULTS_MAX];
    uint32_t fault_count;
    uint32_t request_count;
} SimScenario;

typedef enum SimBreak { SIM_BREAK_NOTHING, SIM_BREAK_FENCE, SIM_BREAK_HASH } SimBreak;

/* Sums over all seeds: a simulation in which nothing goes wrong shows nothing. */
typedef struct SimCounts {
    uint64_t seeds, requests, cancelled, tokens, calls, late;
    uint64_t dropped, doubled, corrupted, faults[SIM_FAULT_KINDS];
    uint64_t replays, hedges, degraded, superseded, own, own_fault;
    uint64_t drafts, right, scores, pools, forks, rows, masked;
} SimCounts;

/* ---- Events. */
typedef enum SimEventKind {
    SIM_ARRIVAL,  /* of a call at its node */
    SIM_WORK,     /* its turn at the node */
    SIM_ANSWER,   /* back at the coordinator */
    SIM_DEADLINE, /* of a call */
    SIM_FAULT,    /* begins */
    SIM_REVIVAL   /* a dead node starts */
} SimEventKind;

typedef struct SimEvent {
    uint64_t at_ns, order;
    SimEventKind kind;
    uint32_t node, part, call, fault;
    uint64_t number; /* of the call, never used twice */
    uint64_t life;   /* of the node */
    PipelinePath path;
    uint64_t session;
    uint8_t *bytes; /* of the request or the answer; owned */
    size_t count;
    unsigned status;
    Error error;
} SimEvent;

typedef struct SimClock {
    SimEvent **heap;
    uint32_t count, room;
    uint64_t orders;
} SimClock;

/* ---- Nodes. */
typedef struct SimNode {
    ClusterRole role;
    uint32_t part;
    Isa isa;
    Station *station;
    StationService *station_service;
    Shard *shard;
    ShardService *shard_service;
    void *memory, *scratch;
    size_t memory_bytes, used_bytes;
    uint32_t blocks;
    bool alive, silent, draining;
    uint64_t life;
    uint64_t frozen_until_ns, cut_until_ns, busy_until_ns, drained_ns;
    uint64_t last_request;
    /* Sessions that nobody wants: a call of it failed, so that it is not asked to forget; or it worked for
     * a call that had ended. It forgets the least recently used by itself. */
    bool may_keep;
} SimNode;

typedef struct SimCall {
    bool open;
    uint64_t number, body_hash;
    PipelineCall call;
} SimCall;

typedef struct Sim {
    uint64_t seed, now_ns;
    SimBreak broken;
    SimModel *model;
    SimScenario plan;
    SimRequest requests[SIM_REQUESTS_MAX];
    SimRandom random; /* of the network */
    SimClock clock;
    SimCounts *counts;
    FILE *log; /* NULL: quiet */

    ClusterFile cluster;
    ClusterNode cluster_nodes[SIM_NODES_MAX];
    SimNode nodes[SIM_NODES_MAX];
    SimNode ends[SIM_NODES_MAX];     /* what stations have of a shard */
    SimNode own[SIM_SHARDS_MAX + 1]; /* the last: all ids */

    Coordinator *coordinator;
    Pipeline *pipeline;
    void *coordinator_memory;
    size_t coordinator_bytes;
    uint32_t nonce;
    uint64_t part_request[SIM_STATIONS_MAX]; /* ids rise */
    SimCall *calls;
    uint32_t call_count;
    uint64_t numbers;
    int slot_request[SIM_SLOTS_MAX]; /* whose conversation it holds, or -1 */
    bool restarted;
    uint64_t stalled_until_ns;
    uint32_t came[SIM_NODES_MAX]; /* requests to nodes; [0]: to all of them */

    uint64_t *rows; /* hashes of every hidden row that the oracle has seen at a pick */
    uint32_t row_count, row_room;

    bool failed;
    char failure[SIM_TEXT_MAX];
} Sim;

/* The first failure of a run stays; later ones are its consequences. */
void sim_fail(Sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_log(Sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

void sim_scenario_make(Sim *s);
void sim_scenario_print(const Sim *s, FILE *out);

SimEvent *sim_clock_add(Sim *s, SimEventKind kind, uint64_t at_ns);
/* The event again, later; its bytes go with it. */
void sim_clock_postpone(Sim *s, const SimEvent *e, uint64_t at_ns);
/* NULL: none. Owner  the caller frees it, and its bytes. */
SimEvent *sim_clock_take(Sim *s);
uint64_t sim_clock_next_ns(const Sim *s);
void sim_clock_free(Sim *s);

void sim_solo_run(Sim *s, SimRequest *q);
bool sim_solo_knows_row(const Sim *s, const uint8_t *row);

void sim_nodes_start(Sim *s);
void sim_nodes_stop(Sim *s);
/* What a node says to a request. Owner  `answer` is malloc'd. */
unsigned sim_nodes_answer(Sim *s, SimNode *n, const SimEvent *request, uint8_t **answer,
                          size_t *bytes);
SimNode *sim_nodes_own(Sim *s, uint32_t part);
void sim_nodes_kill(Sim *s, uint32_t node, bool silent);
void sim_nodes_revive(Sim *s, uint32_t node);
const char *sim_nodes_name(const Sim *s, uint32_t node);
void sim_nodes_check_end(Sim *s);
/* Shared with the oracle. */
void sim_nodes_open_station(Sim *s, SimNode *n, PhaseRange range, uint32_t rows, uint32_t sessions);
void sim_nodes_open_shard(Sim *s, SimNode *n, uint32_t id_first, uint32_t id_last, uint32_t rows);
void sim_nodes_close(SimNode *n);
Error sim_nodes_drive_station(Sim *s, SimNode *n, const StationFrame *frame, Why *why);
Error sim_nodes_drive_shard(Sim *s, SimNode *n, Why *why);

void sim_network_call(Sim *s, const PipelineCall *call);
void sim_network_end(Sim *s, uint32_t call, const PipelineAnswer *answer);
/* ARRIVAL, WORK, ANSWER, DEADLINE. */
void sim_network_event(Sim *s, SimEvent *e);
const char *sim_network_path(PipelinePath path);

/* Whether row `row` of the call, for logits, is behind a wrong guess. */
bool sim_rows_may_be_unknown(const Sim *s, uint32_t call, uint32_t row);

void sim_clients_start_coordinator(Sim *s);
void sim_clients_stop_coordinator(Sim *s);
void sim_clients_restart(Sim *s);
/* Starts, cancels, and whatever the pipeline wants; until nothing more happens at this time. */
void sim_clients_turn(Sim *s);
uint64_t sim_clients_next_ns(const Sim *s);
bool sim_clients_are_done(const Sim *s);
void sim_clients_check_end(Sim *s);

#endif
