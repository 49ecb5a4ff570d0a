/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every node of a cluster file as a process on this machine. */
#ifndef COBORD_CLI_UP_RUN_H
#define COBORD_CLI_UP_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/access_options.h"
#include "cli/tls_options.h"

typedef struct UpRun {
    const char *cluster;      /* path of the file */
    const char *directory;    /* for logs */
    uint32_t threads;         /* of each station; 0: the node's choice */
    const char *isa;          /* NULL: the node's choice */
    const char *queue;        /* of the coordinator, as the flag has it; NULL: its choice */
    const char *drafts;       /* the same */
    const char *draft;        /* path of the coordinator's draft model; NULL: none */
    const char *draft_memory; /* as the flag has it; NULL: the node's choice */
    const char *log_format, *log_level, *drain_seconds; /* of all nodes, as the flags have them */
    uint32_t drain_s;
    bool cgroups;
    TlsOptions tls; /* of the coordinator's API */
    Access access;  /* to it */
} UpRun;

/* Until it is asked to end. Complains on standard error when it cannot go on. Result  the exit code. */
int up_run(const UpRun *request);

#endif
