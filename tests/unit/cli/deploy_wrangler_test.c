/* SPDX-License-Identifier: Apache-2.0 */
/* What another program says reaches the terminal as one plain line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/deploy_wrangler.h"

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"", ""},
        {"\n\n", ""},
        {"plain words\nmore", "plain words"},
        {"banner\n\n\x1b[31m\xe2\x9c\x98 \x1b[41;31m[\x1b[41;97mERROR\x1b[41;31m]\x1b[0m "
         "\x1b[1mNo   such\tthing.\x1b[0m\n",
         "[ERROR] No suchthing."},
        {"\x1b[2J\x1b]0;title\x07\nplain",
         "plain"}, /* a sequence that does not end takes its line */
        {"[ERROR] It failed.\n\n  Wrong key [code: 1]\n\n  More\n",
         "[ERROR] It failed. Wrong key [code: 1]"},
        {"[ERROR] It failed.\n\nLogs are there\n", "[ERROR] It failed."},
        {"x ERROR at the end", "x ERROR at the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        deploy_wrangler_fault(cases[i].text, line, sizeof line);
        for (const char *c = line; *c; c++) assert_true(*c >= ' ' && *c < 0x7f);
        assert_string_equal(line, cases[i].line);
    }
}

static void cut(void **state)
{
    (void)state;
    char text[300] = "ERROR ", line[32];
    memset(text + 6, 'a', sizeof text - 7);
    deploy_wrangler_fault(text, line, sizeof line);
    assert_int_equal(strlen(line), sizeof line - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults), cmocka_unit_test(cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
