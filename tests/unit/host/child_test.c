/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that we start end when we want, with all that they started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/child.h"
#include "host/stop.h"

static int run(const char *script, int output_pipe, const char *temporary)
{
    char copy[512];
    char *arguments[] = {(char *)"sh", (char *)"-c", copy, NULL};
    (void)snprintf(copy, sizeof copy, "%s", script);
    pid_t pid;
    ChildSetup setup = {.arguments = arguments, .output_pipe = output_pipe, .temporary = temporary};
    assert_int_equal(child_start(&setup, &pid, NULL), OK);
    return child_wait(pid);
}

static void exit_codes(void **state)
{
    (void)state;
    assert_int_equal(run("exit 0", -1, NULL), 0);
    assert_int_equal(run("exit 7", -1, NULL), 7);
    assert_int_equal(run("kill -9 $$", -1, NULL), 128 + SIGKILL);
    assert_int_equal(run("read x", -1, NULL), 1); /* standard input is empty */
    char *arguments[] = {(char *)"/nonexistent/program", NULL};
    pid_t pid;
    assert_int_equal(
        child_start(&(ChildSetup){.arguments = arguments, .output_pipe = -1}, &pid, NULL), OK);
    assert_int_equal(child_wait(pid), 127);
}

static void output_and_directory(void **state)
{
    (void)state;
    int ends[2];
    char text[64] = {0};
    assert_int_equal(pipe2(ends, 0), 0);
    assert_int_equal(run("echo \"$TMPDIR\"; echo lost >&2", ends[1], "/over/there"), 0);
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "/over/there\n");
}

static bool alive(pid_t pid) { return kill(pid, 0) == 0; }

static void killing_takes_the_whole_family(void **state)
{
    (void)state;
    int ends[2];
    char text[32] = {0};
    assert_int_equal(pipe2(ends, 0), 0);
    char *arguments[] = {(char *)"sh", (char *)"-c",
                         (char *)"sleep 100 & echo $!; trap '' TERM; wait; sleep 100", NULL};
    pid_t pid;
    assert_int_equal(
        child_start(&(ChildSetup){.arguments = arguments, .output_pipe = ends[1]}, &pid, NULL), OK);
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    pid_t grandchild = (pid_t)strtol(text, NULL, 10);
    int code;
    assert_false(child_ended(pid, &code));
    assert_true(grandchild > 0 && alive(grandchild));
    child_kill(pid); /* it ignores the polite signal */
    assert_false(alive(pid));
    for (int i = 0; i < 100 && alive(grandchild); i++) usleep(10000); /* init collects it */
    char path[64], stat_text[256] = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)grandchild);
    FILE *file = fopen(path, "r");
    if (file) {
        if (!fgets(stat_text, sizeof stat_text, file)) stat_text[0] = 0;
        fclose(file);
    }
    assert_true(!file || strstr(stat_text, ") Z ")); /* at most waiting to be collected */
}

static void signals_are_a_wish(void **state)
{
    (void)state;
    stop_install();
    stop_install();
    assert_false(stop_asked());
    raise(SIGINT);
    assert_true(stop_asked());
    assert_int_equal(stop_signal(), SIGINT);
    stop_clear();
    assert_false(stop_asked());
    raise(SIGPIPE); /* ignored */
    pid_t child = fork();
    if (child == 0) {
        raise(SIGTERM);
        raise(SIGTERM); /* the second one ends it */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(output_and_directory),
        cmocka_unit_test(killing_takes_the_whole_family),
        cmocka_unit_test(signals_are_a_wish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
