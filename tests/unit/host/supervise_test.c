/* SPDX-License-Identifier: Apache-2.0 */
/* A supervisor in a process of its own over stand-ins (tests/data/supervise/node.py): what dies or
 * freezes comes back, what cannot work ends it all, lines arrive whole, and nothing is left behind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/ports.h"
#include "host/stop.h"
#include "host/supervise.h"

enum { NODES = 2, TEXT_BYTES = 1 << 20, PATIENCE_MS = 20000 };

typedef struct Cluster {
    pid_t pid;
    int ready; /* a byte when it is */
    char errors[64], log[64];
    Port ports[NODES];
} Cluster;

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static void say_ready(void *context) { assert_int_equal(write(*(int *)context, "r", 1), 1); }

static _Noreturn void run_supervisor(Cluster *c, int ready, const char *first, const char *second)
{
    static const char script[] = COBORD_TEST_DATA "/supervise/node.py";
    static char number[NODES][8], url[NODES][64], *arguments[NODES][8];
    static const char *const ids[NODES] = {"coordinator-0", "station-0"};
    SuperviseNode nodes[NODES];
    for (int i = 0; i < NODES; i++) {
        char *more = strdup(i ? second : first);
        int n = 0;
        snprintf(number[i], sizeof number[i], "%u", (unsigned)c->ports[i].number);
        snprintf(url[i], sizeof url[i], "http://127.0.0.1:%s", number[i]);
        arguments[i][n++] = strdup("python3");
        arguments[i][n++] = strdup(script);
        arguments[i][n++] = number[i];
        while (*more) { /* its words */
            arguments[i][n++] = more;
            more += strcspn(more, " ");
            if (*more) *more++ = '\0';
        }
        nodes[i] = (SuperviseNode){
            .id = ids[i], .arguments = arguments[i], .url = url[i], .log = i ? c->log : NULL};
    }
    int errors = open(c->errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (errors < 0 || dup2(errors, STDERR_FILENO) < 0) _exit(99);
    stop_install();
    Why why = {{0}};
    SuperviseOptions options = {.nodes = nodes,
                                .node_count = NODES,
                                .program = "/usr/bin/python3",
                                .context = &ready,
                                .ready = say_ready};
    Error error = supervise_run(&options, &why);
    fprintf(stderr, "WHY %s\n", why.text);
    _exit(error == ERR_CANCELLED ? 0 : error == ERR_IO ? 10 : 11);
}

static Cluster begin(const char *first, const char *second)
{
    static int number;
    Cluster c;
    Why why;
    int pipes[2];
    snprintf(c.errors, sizeof c.errors, "/tmp/supervise-%d-%d.err", (int)getpid(), ++number);
    snprintf(c.log, sizeof c.log, "/tmp/supervise-%d-%d.log", (int)getpid(), number);
    for (int i = 0; i < NODES; i++)
        assert_int_equal(ports_reserve("127.0.0.1", 0, &c.ports[i], &why), OK);
    assert_int_equal(pipe(pipes), 0);
    c.pid = fork();
    if (c.pid == 0) run_supervisor(&c, pipes[1], first, second);
    close(pipes[1]);
    c.ready = pipes[0];
    return c;
}

static char *read_errors(const Cluster *c)
{
    static char text[TEXT_BYTES];
    int fd = open(c->errors, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void await_ready(const Cluster *c)
{
    char byte;
    if (read(c->ready, &byte, 1) != 1) fail_msg("not ready: %s", read_errors(c));
}

/* The process of the id's latest "begins" line once there are `lives` of them. */
static pid_t await_life(const Cluster *c, const char *id, int lives)
{
    char mark[64];
    snprintf(mark, sizeof mark, "%-13s | begins ", id);
    for (int ms = 0; ms < PATIENCE_MS; ms += 20) {
        int seen = 0;
        const char *last = NULL;
        for (const char *p = read_errors(c); (p = strstr(p, mark)); p += strlen(mark)) {
            last = p + strlen(mark);
            seen++;
        }
        if (seen >= lives) return (pid_t)strtol(last, NULL, 10);
        sleep_ms(20);
    }
    fail_msg("%s did not begin %d times: %s", id, lives, read_errors(c));
    return 0;
}

static void await_gone(pid_t pid)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (kill(pid, 0) != 0 && errno == ESRCH) return;
        sleep_ms(10);
    }
    fail_msg("process %d is still there", (int)pid);
}

static int finish(Cluster *c)
{
    int status = -1;
    for (int ms = 0; ms < PATIENCE_MS && waitpid(c->pid, &status, WNOHANG) == 0; ms += 10)
        sleep_ms(10);
    close(c->ready);
    for (int i = 0; i < NODES; i++) ports_release(&c->ports[i]);
    return status;
}

static void forget(const Cluster *c)
{
    (void)unlink(c->errors);
    (void)unlink(c->log);
}

static void dead_ones_come_back(void **state)
{
    (void)state;
    Cluster c = begin("", "");
    await_ready(&c);
    pid_t first = await_life(&c, "coordinator-0", 1), second = await_life(&c, "station-0", 1);
    assert_int_equal(kill(second, SIGKILL), 0);
    pid_t again = await_life(&c, "station-0", 2);
    assert_int_not_equal(second, again);
    assert_int_equal(kill(first, SIGKILL), 0);
    first = await_life(&c, "coordinator-0", 2);
    sleep_ms(500); /* both have their handlers */
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(finish(&c), 0);
    await_gone(first);
    await_gone(again);
    const char *text = read_errors(&c), *ended = strstr(text, "coordinator-0 | ends");
    assert_non_null(ended); /* drained first */
    assert_non_null(strstr(ended, "station-0     | ends"));
    assert_non_null(strstr(text, "station-0 was ended by signal 9; it is started again in 100 ms"));
    forget(&c);
}

static void frozen_ones_are_replaced(void **state)
{
    (void)state;
    Cluster c = begin("", "");
    await_ready(&c);
    pid_t frozen = await_life(&c, "station-0", 1);
    sleep_ms(1500); /* it was heard of once */
    assert_int_equal(kill(frozen, SIGSTOP), 0);
    await_life(&c, "station-0", 2);
    await_gone(frozen);
    assert_non_null(strstr(read_errors(&c), "station-0 has not answered for 3 s"));
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_int_equal(finish(&c), 0);
    forget(&c);
}

/* One that has not answered yet may take two minutes to load; one that is stopped does not load. */
static void frozen_beginners_are_replaced(void **state)
{
    (void)state;
    Cluster c = begin("", "freezes");
    await_ready(&c);
    await_life(&c, "station-0", 3);
    assert_non_null(strstr(read_errors(&c), "station-0 has not answered for 3 s"));
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_int_equal(finish(&c), 0);
    forget(&c);
}

static void what_cannot_work_ends_it(void **state)
{
    (void)state;
    Cluster c = begin("", "code 2");
    assert_int_equal(WEXITSTATUS(finish(&c)), 10);
    assert_non_null(strstr(read_errors(&c), "WHY station-0 ended with code 2: ended on purpose"));
    forget(&c);
    c = begin("", "code 1");
    assert_int_equal(WEXITSTATUS(finish(&c)), 10);
    const char *text = read_errors(&c);
    int lives = 0;
    for (const char *p = text; (p = strstr(p, "station-0     | begins")); p++) lives++;
    assert_int_equal(lives, 5);
    assert_null(strstr(text, "coordinator-0 | begins")); /* it waits for the others */
    assert_non_null(strstr(text, "WHY station-0 ended with code 1 again and again"));
    forget(&c);
}

static void lines_arrive_whole(void **state)
{
    (void)state;
    Cluster c = begin("mute", "chatty"); /* never ready */
    assert_int_equal(WEXITSTATUS(finish(&c)), 10);
    const char *text = read_errors(&c);
    char line[160], dots[101];
    memset(dots, '.', 100);
    dots[100] = '\0';
    for (int i = 0; i < 3000; i++) {
        snprintf(line, sizeof line, "station-0     | line %d %s\n", i, dots);
        if (!strstr(text, line)) fail_msg("lost: %s", line);
    }
    assert_non_null(strstr(text, "| no newline at the end\n"));
    struct stat log;
    assert_int_equal(stat(c.log, &log), 0);
    assert_true(log.st_size > 5 * 3000 * 110); /* all five lives */
    forget(&c);
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    Cluster c = begin("", "");
    await_ready(&c);
    pid_t first = await_life(&c, "coordinator-0", 1), second = await_life(&c, "station-0", 1);
    assert_int_equal(kill(second, SIGSTOP), 0);
    assert_int_equal(kill(c.pid, SIGKILL), 0);
    assert_true(WIFSIGNALED(finish(&c)));
    await_gone(first);
    await_gone(second);
    forget(&c);
    c = begin("", ""); /* and by a second signal, while the first one waits for a frozen process */
    await_ready(&c);
    first = await_life(&c, "coordinator-0", 1);
    second = await_life(&c, "station-0", 1);
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    finish(&c);
    await_gone(first);
    await_gone(second);
    forget(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_ones_come_back),
        cmocka_unit_test(frozen_ones_are_replaced),
        cmocka_unit_test(frozen_beginners_are_replaced),
        cmocka_unit_test(what_cannot_work_ends_it),
        cmocka_unit_test(lines_arrive_whole),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
