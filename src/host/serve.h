/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API over a coordinator: from requests on sockets to conversations in slots and back.
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
 * One thread, the caller of serve_run, owns the coordinator. It sleeps while no slot is active;
 * whoever has news writes to an eventfd. A request is one job with up to 8 answers (n, prompts); each
 * answer takes a slot of its own, which begins with as much of its prompt as any slot has said already
 * (serve_slots.c). */
#ifndef COBORD_HOST_SERVE_H
#define COBORD_HOST_SERVE_H

#include "api/answer.h"
#include "cluster/coordinator.h"
#include "host/journal.h"
#include "host/listen.h"
#include "knot/knot.h"
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
    /* Members of the object of GET /cluster, without its braces; 0: they do not fit. NULL: there is
     * none. Thread  any. */
    size_t (*describe)(void *engine, char *out, size_t room);
} ServeEngine;

typedef struct ServeOptions {
    Listen listen;                                       /* the socket becomes the server's */
    const char *certificate_file, *certificate_key_file; /* PEM; NULL: no TLS */
    size_t bodies_bytes_max; /* of all requests that are read at once; 0: 64 MiB */
    size_t form_bytes_max;   /* that answers with a form may take; 0: they are refused */
    const char *model;       /* the name in answers: plain characters */
    uint32_t slots, queue_max;
    uint32_t vocabulary, context, hidden;
    const Tokenizer *tokenizer;
    const Knot *knot;    /* the header, for who asks about the model */
    const char *version; /* of the program */
    ServeEngine engine;
    Journal *journal; /* NULL: streams cannot be resumed */
} ServeOptions;

/* Accepts requests from here on. Owner  what the options point to must outlive it. */
MUST_CHECK Error serve_open(const ServeOptions *options, Serve **out, Why *why);
/* Answers until SIGINT or SIGTERM, then finishes what was begun; a second signal gives that up, a
 * third ends the process. */
void serve_run(Serve *serve);
void serve_close(Serve *serve);

#endif
