/* SPDX-License-Identifier: Apache-2.0 */
/* One supervised process: starting it so that it cannot outlive us, and what it says. Part of supervise.c. */
#ifndef COBORD_HOST_SUPERVISE_PROCESS_H
#define COBORD_HOST_SUPERVISE_PROCESS_H

#include <sys/types.h>

#include "host/restart.h"
#include "host/supervise.h"

enum { SUPERVISE_LAST_BYTES = 160 };

typedef struct SuperviseProcess {
    const SuperviseNode *node;
    pid_t pid;  /* 0: not running */
    int output; /* what it writes; -1: closed */
    int log;    /* -1: none */
    uint64_t log_bytes;
    int id_width;                        /* that all lines begin alike */
    char line[SUPERVISE_LINE_BYTES + 1]; /* not ended yet */
    size_t line_bytes;
    char last[SUPERVISE_LAST_BYTES]; /* its last whole line that says something */
    Restart restart;
    uint64_t restart_at_ms; /* while it is not running; 0: not any more */
    uint64_t answered_ms;   /* or started */
    bool killed;            /* by us, for its silence */
    bool stopped;           /* by a signal, and not continued */
    /* the call that asks for its health */
    HttpCall call;
    bool calling;
    uint64_t call_at_ms;
    char url[512];
    uint8_t answer[8192];
} SuperviseProcess;

/* Errors  ERR_MEMORY (no process, no pipe). */
MUST_CHECK Error supervise_process_start(SuperviseProcess *p, const char *program, Why *why);
/* Passes on what it wrote by now; all of it when `end`. */
void supervise_process_read(SuperviseProcess *p, bool end);
/* Whether it has ended; `code` is its exit code, or 128 + signal. */
bool supervise_process_ended(SuperviseProcess *p, int *code);
void supervise_process_signal(const SuperviseProcess *p, int number);
/* Closes what is open. */
void supervise_process_close(SuperviseProcess *p);

#endif
