/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that we start: in a process group of their own, so that Ctrl-C at the terminal reaches
 * only us and we end them with all they started; and ended by the kernel when we are. */
#ifndef COBORD_HOST_CHILD_H
#define COBORD_HOST_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct ChildSetup {
    char *const *arguments;  /* ended by NULL; the first is looked for in PATH */
    const char *temporary;   /* its TMPDIR, or NULL for ours */
    const char *output_path; /* file for standard output and error, or NULL for /dev/null */
    int output_pipe;         /* descriptor for standard output instead, -1 for none */
} ChildSetup;

/* Whether PATH has such a program. */
bool child_has(const char *program);

/* Standard input is empty. A program that is not found ends with code 127. Errors  ERR_MEMORY. */
MUST_CHECK Error child_start(const ChildSetup *setup, pid_t *out, Why *why);

/* Whether it has ended; `code` is then its exit code, or 128 + signal. */
bool child_ended(pid_t pid, int *code);

/* Waits for the end. */
int child_wait(pid_t pid);

/* Ends it and its group, politely first. Returns when it is gone. */
void child_kill(pid_t pid);

#endif
