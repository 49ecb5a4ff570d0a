/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the processes of a cluster alive on this machine, and ends them together.
 *
 *   start all, the first last --> it is ready: ready() --> loop every 20 ms:
 *      lines of each       to standard error, "station-0 | ..", and to its log
 *      dead                started again (host/restart.h)
 *      GET /health, 1 s    no answer for 3 s: killed, and so started again: a frozen process too
 *   SIGINT, SIGTERM        SIGTERM to the first, which finishes what was begun; then to the others; then SIGKILL
 *   SIGHUP                 passed on to the first, when it reads something again then
 *   a second signal        this process ends at once, and with it all others
 *
 * Invariants
 *   1. No process outlives this one, whatever ends it: the kernel kills them then (PR_SET_PDEATHSIG).
 *   2. No line is lost or cut that a process wrote before it died, up to SUPERVISE_LINE_BYTES a line: in its log,
 *      and on standard error as long as somebody reads there (host/log.h).
 *   3. Time that this process itself stood still counts against nobody.
 *
 * Thread  the one that called; it must be the process's first, since the kernel ties children to a thread. */
#ifndef COBORD_HOST_SUPERVISE_H
#define COBORD_HOST_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "host/http_client.h"

enum {
    SUPERVISE_NODES_MAX = 1024,
    SUPERVISE_LINE_BYTES = 4096,
    SUPERVISE_LOG_BYTES_MAX = 4 << 20, /* then ID.log becomes ID.log.1 */
    SUPERVISE_HEALTH_MS = 1000,
    SUPERVISE_SILENCE_MS = 3000,
    SUPERVISE_BOOT_MS = 120000, /* before the first answer, unless it is stopped by a signal */
    SUPERVISE_LATE_MS = 10000,  /* what the first has said still has to reach its readers */
    SUPERVISE_KILL_MS = 30000,
    SUPERVISE_POLITE_MS = 5000
};

typedef struct SuperviseNode {
    const char *id;
    char *const *arguments; /* ended by NULL */
    const char *url;    /* "http://127.0.0.1:9000": /health and, of the first, /ready below it */
    const char *log;    /* path, or NULL */
    const char *cgroup; /* file to enter by writing 0, or NULL */
} SuperviseNode;

typedef struct SuperviseOptions {
    /* The first is the one that is ready for the world, and drained first. */
    const SuperviseNode *nodes;
    uint32_t node_count;
    const char *program; /* NULL: this one */
    bool passes_hangups;
    uint32_t drain_s; /* that the first may take to finish what was begun */
    HttpClientOptions http;
    void *context;
    void (*ready)(void *context); /* once */
} SuperviseOptions;

/* Until a signal asks for the end (stop_install was called), or a node cannot be kept alive. No process
 * is left on return.
 * Errors  ERR_CANCELLED (asked to), ERR_IO (a node that has no point: its id, how it ended and its last line),
 * ERR_MEMORY. */
MUST_CHECK Error supervise_run(const SuperviseOptions *options, Why *why);

#endif
