/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings: kinds of values, their bounds, and which of flag, variable and config file
 * wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/options_table.h"
#include "cli/progress.h"
#include "host/places.h"

static const OptionId ids[] = {OPTIONS_ENGINE, OPTIONS_SAMPLER, OPTION_TOKENS,
                               OPTION_JSON,    OPTION_OUTPUT,   OPTION_END};
static const OptionVerb verb = {.name = "try",
                                .usage = "MODEL [PROMPT]",
                                .summary = "A verb for tests.",
                                .options = ids,
                                .operands_min = 1,
                                .operands_max = 2};

enum { ARGUMENTS_MAX = 16, TEXT_BYTES = 8192 };

/* Runs options_read in a child, since the config file is read once per process. What it printed is
 * in `text`; the child prints "VALUE FROM" of one option when it succeeds. Result  the exit code.
 */
static int read_in_child(OptionId id, char *text, const char *arguments)
{
    char copy[512], *argv[ARGUMENTS_MAX] = {(char *)"try"};
    int argc = 1, ends[2], status;
    (void)snprintf(copy, sizeof copy, "%s", arguments);
    for (char *rest = copy, *word; argc < ARGUMENTS_MAX - 1 && (word = strsep(&rest, " ")) != NULL;)
        if (*word) argv[argc++] = word;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        Options o;
        int code;
        if (options_read(&o, &verb, argc, argv, &code)) {
            const OptionValue *v = &o.values[id];
            printf("%llu %g %s %s %u", (unsigned long long)v->count, v->number,
                   v->text ? v->text : "-", v->where ? v->where : "-", o.operand_count);
        }
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n;
         used < TEXT_BYTES - 1 && (n = read(ends[0], text + used, TEXT_BYTES - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char directory[] = "/tmp/cobord-options-XXXXXX";

static void write_config(const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/cobord/config", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    (void)state;
    char path[128];
    if (!mkdtemp(directory)) return -1;
    (void)snprintf(path, sizeof path, "%s/cobord", directory);
    if (mkdir(path, 0777) != 0) return -1;
    setenv("XDG_CONFIG_HOME", directory, 1);
    unsetenv("COBORD_THREADS");
    unsetenv("COBORD_MEMORY");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    places_remove(directory);
    return access(directory, F_OK) == 0 ? -1 : 0;
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1", 1},
                {"4096", 4096},
                {"128M", 134217728},
                {"128m", 134217728},
                {"128MiB", 134217728},
                {"128MB", 134217728},
                {"1.5G", 1610612736},
                {"2K", 2048},
                {"1T", 1099511627776},
                {"7B", 7},
                {"0.5K", 512}};
    static const char *const bad[] = {"",      "M",     "-1",  "1X",  "1 M",  "1MM",
                                      "0x10",  "1e400", "nan", "inf", "1e30", "99999999999T",
                                      "12abc", " 12",   "1Mi", "+1",  "1e3",  "2223E-223",
                                      "1.2.3"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(options_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (options_parse_size(bad[i], &bytes)) fail_msg("taken for a size: '%s'", bad[i]);
}

static void lists(void **state)
{
    (void)state;
    uint32_t out[3] = {0};
    assert_int_equal(options_parse_list("1,22,4294967295", UINT32_MAX, out, 3), 3);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 22);
    assert_int_equal(out[2], UINT32_MAX);
    assert_int_equal(options_parse_list("1,2,3,4,5", 5, out, 3),
                     5); /* counts on, writes no more than there is room */
    static const char *const bad[] = {
        "", ",", "1,", ",1", "1,,2", "1 2", "-1", "a", "6", "18446744073709551616", "1;2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(options_parse_list(bad[i], 5, out, 3), -1);
}

static void flags_are_read(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    write_config("");
    assert_int_equal(read_in_child(OPTION_MEMORY, text, "m --memory 128M"), 0);
    assert_string_equal(text, "134217728 0 128M --memory 1");
    assert_int_equal(read_in_child(OPTION_MEMORY, text, "--memory=1.5G m prompt"), 0);
    assert_string_equal(text, "1610612736 0 1.5G --memory 2");
    assert_int_equal(read_in_child(OPTION_CACHE_TYPE, text, "m --cache-type q8_0"), 0);
    assert_string_equal(text, "1 0 q8_0 --cache-type 1");
    assert_int_equal(read_in_child(OPTION_CACHE_TYPE, text, "m"), 0);
    assert_string_equal(text, "0 0 f16 - 1");
    assert_int_equal(read_in_child(OPTION_TEMPERATURE, text, "m -t 0.25"), 0);
    assert_string_equal(text, "0 0.25 0.25 --temperature 1");
    assert_int_equal(read_in_child(OPTION_SEED, text, "m --seed 18000000000000000000"), 0);
    assert_string_equal(text, "18000000000000000000 0 18000000000000000000 --seed 1");
    assert_int_equal(read_in_child(OPTION_JSON, text, "m --json -- --threads"), 0);
    assert_string_equal(text, "1 0 yes --json 2");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m --threads 1 --threads 3"), 0);
    assert_string_equal(text, "3 0 3 --threads 1");
}

static void wrong_usage_is_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *words[3];
    } cases[] = {
        {"m --thread 2", {"--thread", "--threads?"}},
        {"m --frobnicate 2", {"--frobnicate", "cobord help try"}},
        {"m --listen x", {"--listen", "does not take"}},
        {"m -x", {"-x"}},
        {"m --threads", {"--threads", "1 to 64"}},
        {"m --threads 0", {"--threads", "'0'", "1 to 64"}},
        {"m --threads 65", {"'65'", "1 to 64"}},
        {"m --threads two", {"'two'"}},
        {"m --threads -1", {"'-1'"}},
        {"m --memory lots", {"--memory", "'lots'", "128M"}},
        {"m --memory 128", {"'128'", "128M"}},
        {"m --memory 1e99", {"'1e99'"}},
        {"m --isa sse9", {"--isa", "'sse9'", "auto|scalar|avx2|avxvnni|avx512"}},
        {"m --cache-type", {"--cache-type", "f16|q8_0"}},
        {"m --temperature nan", {"--temperature", "'nan'"}},
        {"m --temperature 1x", {"'1x'"}},
        {"m --top-p 1.5", {"--top-p", "'1.5'", "from 0 to 1"}},
        {"m --tokens 1,,2", {"--tokens", "'1,,2'"}},
        {"m --tokens 1,99999999999", {"--tokens"}},
        {"m --json=perhaps", {"--json", "'perhaps'", "yes or no"}},
        {"", {"MODEL", "cobord try MODEL [PROMPT]"}},
        {"a b c", {"'c'", "cobord try"}},
        {"m --stop a --stop b c d", {"'d'"}},
        {"m --stop=", {"--stop", "not empty"}},
        {"m --output=", {"--output", "not empty"}},
    };
    char text[TEXT_BYTES];
    write_config("");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (read_in_child(OPTION_THREADS, text, cases[i].arguments) != 2)
            fail_msg("exit code of '%s': %s", cases[i].arguments, text);
        assert_int_equal(strncmp(text, "cobord: ", 8), 0);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
        for (int w = 0; w < 3 && cases[i].words[w]; w++)
            if (!strstr(text, cases[i].words[w]))
                fail_msg("'%s' is not in: %s", cases[i].words[w], text);
    }
}

static void flag_over_variable_over_file(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    write_config(
        "# mine\n\n  threads = 3  \nmemory=1G\nsystem = \"be brief\"\nlisten = 0.0.0.0:1\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 0);
    assert_string_equal(text, "3 0 3 threads (config file, line 3) 1");
    assert_int_equal(read_in_child(OPTION_MEMORY, text, "m"), 0);
    assert_string_equal(text, "1073741824 0 1G memory (config file, line 4) 1");
    setenv("COBORD_THREADS", "4", 1);
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 0);
    assert_string_equal(text, "4 0 4 COBORD_THREADS 1");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m --threads 5"), 0);
    assert_string_equal(text, "5 0 5 --threads 1");
    setenv("COBORD_THREADS", "many", 1);
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    assert_non_null(strstr(text, "COBORD_THREADS: 'many'"));
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m --threads 5"), 0);
    unsetenv("COBORD_THREADS");
    setenv("COBORD_TOKENS", "1,2", 1); /* belongs to one call: no variable */
    assert_int_equal(read_in_child(OPTION_TOKENS, text, "m"), 0);
    assert_string_equal(text, "0 0 - - 1");
}

static void faults_of_the_config_file_name_the_line(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    write_config("threads = 2\nthreds = 2\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    assert_non_null(strstr(text, "config:2"));
    assert_non_null(strstr(text, "'threds'"));
    write_config("threads\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    assert_non_null(strstr(text, "config:1"));
    write_config("threads = 900\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    assert_non_null(strstr(text, "config file, line 1"));
    write_config("json = yes\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    write_config("isa = \x1b[31m\n");
    assert_int_equal(read_in_child(OPTION_THREADS, text, "m"), 2);
    assert_null(strchr(text, 0x1b));
    write_config("");
}

static void help_shows_every_flag(void **state)
{
    (void)state;
    char text[TEXT_BYTES * 2];
    assert_int_equal(read_in_child(OPTION_THREADS, text, "--help"), 0);
    assert_int_equal(strncmp(text, "usage: cobord try MODEL [PROMPT]", 32), 0);
    for (const OptionId *id = ids; *id != OPTION_END; id++) {
        char flag[64];
        (void)snprintf(flag, sizeof flag, "--%s", options_table[*id].name);
        assert_non_null(strstr(text, flag));
    }
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        assert_true(strcspn(line, "\n") <= 100);
}

static void the_table_is_whole(void **state)
{
    (void)state;
    for (unsigned i = 1; i < OPTIONS_COUNT; i++) {
        const OptionSpec *s = &options_table[i];
        assert_non_null(s->name);
        assert_non_null(s->help);
        assert_true(s->kind != OPTION_CHOICE || s->choices);
        for (unsigned j = 1; j < i; j++) {
            assert_string_not_equal(s->name, options_table[j].name);
            assert_true(!s->letter || s->letter != options_table[j].letter);
        }
    }
}

static void exit_codes(void **state)
{
    (void)state;
    assert_int_equal(complain_exit_code(OK), 0);
    assert_int_equal(complain_exit_code(ERR_IO), 1);
    assert_int_equal(complain_exit_code(ERR_PLAN), 1);
    assert_int_equal(complain_exit_code(ERR_USAGE), 2);
    assert_int_equal(complain_exit_code(ERR_NOT_AVAILABLE), 2);
}

static void bytes_are_printed_short(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {999, "999 B"},
                 {1000, "1.0 KB"},
                 {9949, "9.9 KB"},
                 {9951, "10 KB"},
                 {999499, "999 KB"},
                 {999500, "1.0 MB"},
                 {98362432, "98 MB"},
                 {1117320768, "1.1 GB"},
                 {UINT64_MAX, "18446744 TB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[16];
        progress_print_bytes(out, sizeof out, cases[i].value);
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(lists),
        cmocka_unit_test(flags_are_read),
        cmocka_unit_test(wrong_usage_is_one_line),
        cmocka_unit_test(flag_over_variable_over_file),
        cmocka_unit_test(faults_of_the_config_file_name_the_line),
        cmocka_unit_test(help_shows_every_flag),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(bytes_are_printed_short),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
