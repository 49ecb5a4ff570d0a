/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the verb and hands over. Everything a verb takes is described in its own file
 * and options.c. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/paint.h"
#include "cli/verbs.h"

typedef struct MainVerb {
    const char *name, *help;
    int (*function)(int argc, char **argv);
} MainVerb;

static const MainVerb *main_verbs(void)
{
#define MAIN_VERB(name, help) {#name, help, cli_##name},
    static const MainVerb verbs[] = {VERBS_LIST(MAIN_VERB){NULL, NULL, NULL}};
#undef MAIN_VERB
    return verbs;
}

static const MainVerb *main_find(const char *name)
{
    for (const MainVerb *v = main_verbs(); v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

static void main_usage(FILE *out)
{
    fprintf(
        out,
        "usage: cobord VERB ...\n\n"
        "Serves a large language model from many small workers: stations own ranges of layers,\n"
        "shards own ranges of the vocabulary, and none holds more than its slice.\n\n");
    for (const MainVerb *v = main_verbs(); v->name; v++)
        fprintf(out, "  %-11s %s\n", v->name, v->help);
    fprintf(
        out,
        "\nStart here:\n"
        "  cobord pull qwen2.5-coder-1.5b\n"
        "  cobord run qwen2.5-coder-1.5b \"Write a function that reverses a list.\"\n\n"
        "`cobord help VERB` explains one verb, `cobord --version` says which program this is.\n");
}

static int main_unknown(const char *name)
{
    const char *near = NULL;
    for (const MainVerb *v = main_verbs(); v->name; v++)
        if (options_near(name, v->name)) near = v->name;
    paint_error_head();
    fputs("no such verb: ", stderr);
    options_print_safely(stderr, name);
    if (near) fprintf(stderr, ". Did you mean %s?\n", near);
    else fprintf(stderr, ". See: cobord help\n");
    return 2;
}

static int main_help(int argc, char **argv)
{
    if (argc < 3) {
        main_usage(stdout);
        return 0;
    }
    const MainVerb *verb = main_find(argv[2]);
    if (!verb) return main_unknown(argv[2]);
    char help[] = "--help";
    char *arguments[] = {argv[2], help, NULL};
    return verb->function(2, arguments);
}

static int main_run(int argc, char **argv)
{
    if (argc < 2) {
        main_usage(stderr);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("cobord %s\n", COBORD_VERSION);
        return 0;
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return main_help(argc, argv);
    const MainVerb *verb = main_find(word);
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
    int code = main_run(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        paint_error_head();
        fputs("output failed: standard output. Check the disk or the reader of the pipe.\n",
              stderr);
        code = 1;
    }
    return code;
}
