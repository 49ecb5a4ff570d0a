/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the verb and hands over. What there is: verbs.h; what a verb takes: its own file and options.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/options_help.h"
#include "cli/paint.h"
#include "cli/settings.h"
#include "cli/verbs.h"
#include "host/file_guard.h"
#include "host/process.h"

static int main_unknown(const char *name)
{
    const Verb *near = verbs_near(name);
    paint_error_head();
    fputs("no such verb: ", stderr);
    options_print_safely(stderr, name);
    if (near) fprintf(stderr, ". Did you mean %s?\n", near->name);
    else fprintf(stderr, ". See: cobord help\n");
    return 2;
}

static int main_help(int argc, char **argv)
{
    if (argc < 3) {
        verbs_overview(stdout);
        return 0;
    }
    if (strcmp(argv[2], "settings") == 0) {
        settings_help();
        return 0;
    }
    const Verb *verb = verbs_find(argv[2]);
    if (!verb) return main_unknown(argv[2]);
    options_help(verb->options);
    return 0;
}

static int main_run(int argc, char **argv)
{
    if (argc < 2) {
        verbs_overview(stderr);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0 || strcmp(word, "-v") == 0 ||
        strcmp(word, "-V") == 0) {
        printf("cobord %s\n", COBORD_VERSION);
        return 0;
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return main_help(argc, argv);
    const Verb *verb = verbs_find(word);
    return verb ? verb->function(argc - 1, argv + 1) : main_unknown(word);
}

/* A standard stream that came closed would be the next file that is opened: a model would be read as
 * the prompt. Held the wrong way round, it fails as it should. */
static void main_hold_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

int main(int argc, char **argv)
{
    main_hold_streams();
    process_leave_no_core();
    file_guard_install();
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of write, not the end */
    int code = main_run(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    return failed && code == 0 ? complain_output() : code;
}
