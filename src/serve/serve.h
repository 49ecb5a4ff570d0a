/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API over a coordinator: from requests to conversations in slots and back, without a system call.
 *
 *   HTTP thread --(body)--> intake threads --(ids, parameters)--> queue --> engine thread --(events)--> HTTP thread
 *                           parse, tokenize, check               bounded    slots, steps, text
 *
 *   answer:  QUEUED --slot--> RUNNING --(end, stop string, tokens spent, context full)--> DONE
 *               |               |  ^
 *               |     reader too slow  reader caught up
 *               |               v  |
 *               |             PAUSED --(too long)--> refused
 *               +---- client gone, at any time: dropped, its slot is free before the next step
 *
 * The host brings requests (exchange.h), says when (machine.h), and has the threads, or one that does everything in
 * turn: host/api_server.h natively, workers/coordinator.c in a Worker. One thread, that of serve_turn, owns the
 * coordinator. A request is one job with up to 8 answers (n, prompts); each answer takes a slot of its own, which
 * begins with as much of its prompt as any slot has said already (serve_slots.c). */
#ifndef COBORD_SERVE_SERVE_H
#define COBORD_SERVE_SERVE_H

#include "api/answer.h"
#include "cluster/coordinator.h"
#include "knot/knot.h"
#include "serve/exchange.h"
#include "serve/journal.h"
#include "serve/serve_page.h"
#include "text/tokenizer.h"

typedef struct Serve Serve;

/* Who answers: engine.h in one process, or a cluster. */
typedef struct ServeEngine {
    void *engine;
    Coordinator *coordinator;
    /* Works until there is an event, or news by wake(). false: nothing to do. */
    bool (*step)(void *engine, const CoordinatorEvent **events, uint32_t *count, Why *why);
    /* Ends a step that waits for other nodes; NULL when it never does. Thread  any. */
    void (*wake)(void *engine);
    /* Frees the attention cache of a slot that is not active, and what it said. */
    void (*forget)(void *engine, uint32_t slot);
    /* Whether the slot's answer used zero rows in place of a shard's; NULL: never. */
    bool (*degraded)(void *engine, uint32_t slot);
    /* Whether requests can be answered now; else `why` says which ranges are missing. NULL: always. Thread  any. */
    bool (*ready)(void *engine, Why *why);
    /* What the answer in a slot has cost at each node since begin_hops, in the cluster file's order.
     * Result  how many nodes, at most `room`. */
    uint32_t (*hops)(void *engine, uint32_t slot, AnswerHop *out, uint32_t room);
    void (*begin_hops)(void *engine, uint32_t slot);
    /* Whose answer is in the slot from here on, for the names of calls; NULL: there are none. */
    void (*begin_trace)(void *engine, uint32_t slot, const HttpRecord *record);
    /* Members of the object of GET /cluster, without its braces; 0: they do not fit.
     * Thread  any. */
    size_t (*describe)(void *engine, char *out, size_t room);
    /* More lines of GET /metrics, at most metrics_bytes. NULL: there are none. Thread  any. */
    void (*metrics)(void *engine, JsonWriter *w);
    size_t metrics_bytes;
} ServeEngine;

/* What the host hears, and says. Thread  any. */
typedef struct ServeHost {
    void *host;
    void (*wake)(void *host);            /* there is something to do for serve_turn */
    void (*intake)(void *host);          /* one more request for serve_intake_take */
    uint32_t (*connections)(void *host); /* that are open */
    uint64_t (*shed)(void *host); /* connections that made room for others; NULL: nobody counts */
} ServeHost;

typedef struct ServeOptions {
    ServeHost host;
    size_t form_bytes_max; /* that answers with a form may take; 0: they are refused */
    const char *model;     /* the name in answers: plain characters */
    uint32_t slots, queue_max;
    uint32_t vocabulary, context, hidden;
    const Tokenizer *tokenizer;
    const Knot *knot;      /* the header, for who asks about the model */
    const char *version;   /* of the program */
    const char *role;      /* "coordinator"; NULL: all of them, in one process */
    uint64_t memory_bytes; /* what the process may take; 0: not said */
    ServeEngine engine;
    Journal *journal;      /* NULL: streams cannot be resumed */
    const ServePage *page; /* what a browser gets; NULL: nothing */
    /* By what name it listens, "" without one, when nobody but this machine reaches it; requests by other names are
     * refused then, unless there are keys (api/host_name.h). NULL: all names are its own. */
    const char *name;
    const char *cors; /* origins whose pages may use it (api/cors.h, checked); NULL: only its own */
} ServeOptions;

/* Owner  what the options point to must outlive it. Errors  ERR_MEMORY. */
MUST_CHECK Error serve_open(const ServeOptions *options, Serve **out, Why *why);
/* Ends every answer, as if its client had left; then no exchange is kept any more. */
void serve_end(Serve *serve);
void serve_close(Serve *serve);

/* The API is for the keys of this file from here on (api/keys.h); again, to replace them. Thread  any.
 * Errors  those of keys_parse, ERR_MEMORY: all stays as it was. */
MUST_CHECK Error serve_load_keys(Serve *serve, const char *text, size_t bytes, Why *why);
uint32_t serve_count_keys(Serve *serve);

/* ---- Requests. Thread  the HTTP server's. */

/* A head has come: what can be refused by it is, and its body then ignored. */
void serve_routes_head(Serve *serve, HttpExchange *x);
/* The body has, too: answered at once, or kept until an intake has taken it. */
void serve_routes_request(Serve *serve, HttpExchange *x);
/* Nobody has it any more: its line in the log. Thread  any. */
void serve_over(Serve *serve, HttpExchange *x, const HttpOver *over);
/* Reads the oldest request that waits, and refuses, answers or queues it. Thread  any, several at once.
 * Result  false: none waits. */
bool serve_intake_take(Serve *serve);

/* ---- Answers. Thread  the engine's. */

typedef enum ServeTurn {
    SERVE_WORKED,
    SERVE_IDLE, /* nothing to do until news: the host's wake, or a second has passed */
    SERVE_OVER  /* after serve_drain: everything that was begun is done */
} ServeTurn;
/* All that has come, and one step of the engine. */
ServeTurn serve_turn(Serve *serve);
/* A client has left, or a reader has caught up, or it is time to look. Thread  any. */
void serve_wake(Serve *serve);
/* Takes no more requests. Result  answers that are still to be done. */
uint32_t serve_drain(Serve *serve);

/* After serve_drain, when it has taken too long: what is left ends with REFUSAL_DRAINING. Thread  the engine's.
 * Result  how many answers. */
uint32_t serve_give_up(Serve *serve);

/* What a stream may have waiting for its reader, and below which the reader has caught up. */
enum { SERVE_STREAM_RESUME_BYTES = 128 << 10, SERVE_STREAM_BYTES_MAX = 1 << 20 };

#endif
