/* SPDX-License-Identifier: Apache-2.0 */
#include "host/supervise_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/log.h"

/* ---- Starting */

static void enter_cgroup(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) _exit(RESTART_CODE_USAGE);
    close(fd);
}

/* In the child, between fork and exec: system calls only. */
static _Noreturn void run_child(const SuperviseProcess *p, const char *program, int output,
                                pid_t parent)
{
    sigset_t none;
    (void)setpgid(0, 0); /* Ctrl-C at the terminal is for us, who end them in order */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died in between */
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)signal(signals[i], SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0)
        _exit(1);
    if (p->node->cgroup) enter_cgroup(p->node->cgroup);
    (void)execv(program ? program : "/proc/self/exe", p->node->arguments);
    _exit(RESTART_CODE_USAGE);
}

static void open_log(SuperviseProcess *p)
{
    if (!p->node->log || p->log >= 0) return;
    p->log = open(p->node->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    off_t end = p->log >= 0 ? lseek(p->log, 0, SEEK_END) : 0;
    p->log_bytes = end > 0 ? (uint64_t)end : 0;
}

Error supervise_process_start(SuperviseProcess *p, const char *program, Why *why)
{
    int pipes[2];
    pid_t parent = getpid();
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return error_why(why, ERR_MEMORY, "%s: no pipe: %s", p->node->id, strerror(errno));
    open_log(p);
    pid_t pid = fork();
    if (pid == 0) run_child(p, program, pipes[1], parent);
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return error_why(why, ERR_MEMORY, "%s: no process: %s", p->node->id, strerror(errno));
    }
    (void)setpgid(pid, pid); /* both sides, so that it is done whoever comes first */
    (void)fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    p->pid = pid;
    p->output = pipes[0];
    p->line_bytes = 0;
    p->killed = p->stopped = false;
    return OK;
}

/* ---- What it says */

static void write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        ssize_t n = write(fd, bytes, count);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody reads; the log has it */
        bytes += n;
        count -= (size_t)n;
    }
}

static void log_line(SuperviseProcess *p)
{
    char old[4200];
    if (p->log < 0) return;
    write_all(p->log, p->line, p->line_bytes);
    write_all(p->log, "\n", 1);
    p->log_bytes += p->line_bytes + 1;
    if (p->log_bytes < SUPERVISE_LOG_BYTES_MAX) return;
    (void)snprintf(old, sizeof old, "%s.1", p->node->log);
    (void)rename(p->node->log, old);
    close(p->log);
    p->log = -1;
    open_log(p);
}

/* Without "cobord: " and "station-0: ", which our own "station-0 | " says already. */
static const char *strip_names(const SuperviseProcess *p, const char *text)
{
    static const char program[] = "cobord: ";
    size_t id = strlen(p->node->id);
    if (strncmp(text, program, sizeof program - 1) == 0) text += sizeof program - 1;
    if (strncmp(text, p->node->id, id) == 0 && text[id] == ':' && text[id + 1] == ' ')
        text += id + 2;
    return text;
}

/* What is an object already says whose it is; anything else becomes one. */
static void pass_json(SuperviseProcess *p)
{
    char text[LOG_LINE_BYTES];
    size_t bytes = p->line_bytes;
    p->line_bytes = 0;
    if (!bytes) return;
    (void)snprintf(p->last, sizeof p->last, "%.*s", SUPERVISE_LAST_BYTES - 1, p->line);
    if (p->line[0] == '{' && p->line[bytes - 1] == '}') {
        p->line[bytes] = '\n';
        log_pass(p->line, bytes + 1);
        return;
    }
    LogEntry entry = {.level = LOG_INFO, .event = "output", .message = strip_names(p, p->line)};
    bytes = log_line_write(&entry, LOG_JSON, log_time_ms(), p->node->id, text);
    log_pass(text, bytes);
}

/* One write for the whole line, so that lines of several processes do not mix. */
static void pass_line(SuperviseProcess *p)
{
    char text[SUPERVISE_LINE_BYTES + 64];
    p->line[p->line_bytes] = '\0';
    log_line(p);
    if (log_is_json()) {
        pass_json(p);
        return;
    }
    const char *line = strip_names(p, p->line);
    size_t head = (size_t)snprintf(text, 64, "%-*s | ", p->id_width, p->node->id);
    size_t bytes = p->line_bytes - (size_t)(line - p->line);
    memcpy(text + head, line, bytes);
    text[head + bytes] = '\n';
    log_pass(text, head + bytes + 1);
    if (bytes) (void)snprintf(p->last, sizeof p->last, "%.*s", SUPERVISE_LAST_BYTES - 1, line);
    p->line_bytes = 0;
}

static void take_bytes(SuperviseProcess *p, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') p->line[p->line_bytes++] = bytes[i];
        if (bytes[i] == '\n' || p->line_bytes == SUPERVISE_LINE_BYTES) pass_line(p);
    }
}

void supervise_process_read(SuperviseProcess *p, bool end)
{
    char bytes[4096];
    /* A process that never stops writing must not keep us from the others. */
    for (int rounds = 0; p->output >= 0 && (end || rounds < 16); rounds++) {
        ssize_t n = read(p->output, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && !end) return;
        if (n > 0) {
            take_bytes(p, bytes, (size_t)n);
            continue;
        }
        close(p->output); /* its end, or something it started has the pipe still */
        p->output = -1;
    }
    if (p->output < 0 && p->line_bytes) pass_line(p);
}

/* ---- Its end */

bool supervise_process_ended(SuperviseProcess *p, int *code)
{
    int status;
    pid_t done = waitpid(p->pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (done == 0 || (done < 0 && errno == EINTR)) return false;
    if (done > 0 && !WIFEXITED(status) && !WIFSIGNALED(status)) {
        p->stopped = WIFSTOPPED(status);
        return false;
    }
    *code = done < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    (void)kill(-p->pid, SIGKILL); /* what it started */
    supervise_process_read(p, true);
    p->pid = 0;
    return true;
}

void supervise_process_signal(const SuperviseProcess *p, int number)
{
    if (p->pid > 0) (void)kill(p->pid, number);
}

void supervise_process_close(SuperviseProcess *p)
{
    if (p->output >= 0) close(p->output);
    if (p->log >= 0) close(p->log);
    p->output = p->log = -1;
}
