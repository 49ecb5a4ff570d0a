/* SPDX-License-Identifier: Apache-2.0 */
/* The handler apart from the ranges: a library guards its files, and must never touch a program's signals. */
#include <errno.h>
#include <signal.h>

#include "host/file_guard.h"

static void take_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno;
    /* Else the instruction meets the same again, and now it ends the process. */
    if (info->si_code <= 0 || !file_guard_take(info->si_addr)) (void)signal(number, SIG_DFL);
    errno = saved;
}

void file_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = take_signal, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
