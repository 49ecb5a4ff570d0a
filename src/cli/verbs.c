/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verbs.h"

#include <string.h>

#include "host/near.h"

#define VERBS_ROW(name, group, help) {#name, VERB_##group, help, cli_##name, &name##_verb},
const Verb verbs_table[] = {VERBS_LIST(VERBS_ROW){NULL, VERB_GROUPS, NULL, NULL, NULL}};
#undef VERBS_ROW

const char *verbs_group_name(VerbGroup group)
{
    static const char *const names[VERB_GROUPS] = {"Use", "Serve", "Models", "Inspect", "Operate"};
    return names[group];
}

const Verb *verbs_find(const char *name)
{
    for (const Verb *v = verbs_table; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

/* Ollama's words and others that come to mind. */
static const char *verbs_alias(const char *written)
{
    static const char *const pairs[][2] = {{"chat", "run"},      {"generate", "run"},
                                           {"ask", "run"},       {"start", "serve"},
                                           {"server", "serve"},  {"cluster", "up"},
                                           {"ps", "status"},     {"top", "status"},
                                           {"ls", "list"},       {"models", "list"},
                                           {"show", "info"},     {"inspect", "info"},
                                           {"create", "encode"}, {"convert", "encode"},
                                           {"download", "pull"}, {"get", "pull"},
                                           {"delete", "rm"},     {"remove", "rm"},
                                           {"check", "doctor"},  {"benchmark", "bench"},
                                           {"manual", "man"},    {"completions", "completion"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(pairs[i][0], written) == 0) return pairs[i][1];
    return NULL;
}

const Verb *verbs_near(const char *written)
{
    const char *alias = verbs_alias(written);
    const Verb *best = alias ? verbs_find(alias) : NULL;
    unsigned least = NEAR_FAR;
    for (const Verb *v = verbs_table; !alias && v->name; v++) {
        unsigned distance = near_distance(written, v->name);
        if (distance >= least) continue;
        least = distance;
        best = v;
    }
    return best;
}

void verbs_overview(FILE *out)
{
    fprintf(out,
            "usage: cobord VERB ...\n\n"
            "Serves a large language model from many small workers: stations own ranges of\n"
            "layers, shards own ranges of the vocabulary, and none holds more than its slice.\n");
    for (unsigned group = 0; group < VERB_GROUPS; group++) {
        fprintf(out, "\n%s\n", verbs_group_name((VerbGroup)group));
        for (const Verb *v = verbs_table; v->name; v++)
            if (v->group == group) fprintf(out, "  %-11s %s\n", v->name, v->help);
    }
    fprintf(out, "\nStart here:\n"
                 "  cobord pull qwen2.5-coder-1.5b\n"
                 "  cobord run qwen2.5-coder-1.5b \"Write a function that reverses a list.\"\n\n"
                 "`cobord help VERB` explains one verb, `cobord help settings` all settings and\n"
                 "where they may stand, `cobord --version` says which program this is.\n");
}
