/* SPDX-License-Identifier: Apache-2.0 */
#include "host/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static atomic_int stop_number;

static void stop_handle(int number)
{
    if (atomic_exchange(&stop_number, number) != 0) _exit(128 + number);
}

void stop_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction old;
        /* nohup and background shells ignore some of these on purpose. */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN) continue;
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = stop_handle;
        sigemptyset(&action.sa_mask);
        (void)sigaction(numbers[i], &action, NULL);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

bool stop_asked(void) { return atomic_load_explicit(&stop_number, memory_order_relaxed) != 0; }

int stop_signal(void) { return atomic_load(&stop_number); }

void stop_clear(void) { atomic_store(&stop_number, 0); }
