/* SPDX-License-Identifier: Apache-2.0 */
#include "host/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_POLITE_MS = 2000, CHILD_NOT_FOUND = 127 };

static void child_run(const ChildSetup *setup, pid_t parent)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1); /* it died in between */
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)signal(signals[i], SIG_DFL);
    int input = open("/dev/null", O_RDONLY);
    const char *path = setup->output_path ? setup->output_path : "/dev/null";
    int output = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (input < 0 || output < 0) _exit(1);
    (void)dup2(input, STDIN_FILENO);
    (void)dup2(setup->output_pipe >= 0 ? setup->output_pipe : output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    if (setup->temporary) (void)setenv("TMPDIR", setup->temporary, 1);
    (void)execvp(setup->arguments[0], setup->arguments);
    _exit(CHILD_NOT_FOUND);
}

Error child_start(const ChildSetup *setup, pid_t *out, Why *why)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return error_why(why, ERR_MEMORY, "cannot start %s: %s", setup->arguments[0],
                         strerror(errno));
    if (pid == 0) child_run(setup, parent);
    (void)setpgid(pid, pid); /* both sides, so that it is done whoever comes first */
    *out = pid;
    return OK;
}

static int child_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool child_ended(pid_t pid, int *code)
{
    int status;
    pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return false;
    *code = done < 0 ? CHILD_NOT_FOUND : child_code(status);
    return true;
}

int child_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return CHILD_NOT_FOUND;
    return child_code(status);
}

void child_kill(pid_t pid)
{
    int code;
    ASSERT(pid > 0); /* 0 would be our own group */
    (void)kill(-pid, SIGTERM);
    for (int ms = 0; ms < CHILD_POLITE_MS; ms += 20) {
        if (child_ended(pid, &code)) {
            (void)kill(-pid, SIGKILL); /* what it started */
            return;
        }
        struct timespec t = {0, 20000000};
        (void)nanosleep(&t, NULL);
    }
    (void)kill(-pid, SIGKILL);
    (void)child_wait(pid);
}

bool child_has(const char *program)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        char file[4096];
        size_t bytes = strcspn(path, ":");
        int n = snprintf(file, sizeof file, "%.*s/%s", (int)bytes, path, program);
        if (n > 0 && (size_t)n < sizeof file && access(file, X_OK) == 0) return true;
        path += bytes + (path[bytes] == ':');
    }
    return false;
}
