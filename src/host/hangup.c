/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hangup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "host/whole.h"

static atomic_int hangups;

static void note_hangup(int number)
{
    (void)number;
    atomic_store(&hangups, 1);
}

bool hangup_is_possible(void)
{
    int terminal = whole_open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
    if (terminal >= 0) (void)close(terminal);
    return terminal >= 0;
}

void hangup_ignore(void) { (void)signal(SIGHUP, SIG_IGN); }

void hangup_watch(void)
{
    struct sigaction action = {.sa_handler = note_hangup};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGHUP, &action, NULL);
}

bool hangup_take(void) { return atomic_exchange(&hangups, 0) != 0; }
