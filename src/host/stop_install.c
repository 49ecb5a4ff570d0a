/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers apart from the flag: a library looks at the flag and must never touch a program's signals. */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "host/stop.h"

static void stop_handle(int number)
{
    if (stop_note(number) != 0) _exit(128 + number);
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
