/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options_near.h"

#include <string.h>

#include "cli/options_table.h"
#include "host/near.h"

/* Words of other programs that serve models. */
static const struct {
    const char *theirs;
    OptionId ours;
} aliases[] = {
    {"port", OPTION_LISTEN},
    {"host", OPTION_LISTEN},
    {"addr", OPTION_LISTEN},
    {"address", OPTION_LISTEN},
    {"bind", OPTION_LISTEN},
    {"ctx", OPTION_CONTEXT},
    {"ctx-size", OPTION_CONTEXT},
    {"num-ctx", OPTION_CONTEXT},
    {"n-ctx", OPTION_CONTEXT},
    {"max-model-len", OPTION_CONTEXT},
    {"n-predict", OPTION_MAX_TOKENS},
    {"num-predict", OPTION_MAX_TOKENS},
    {"parallel", OPTION_SLOTS},
    {"num-parallel", OPTION_SLOTS},
    {"repeat-penalty", OPTION_REPETITION_PENALTY},
    {"system-prompt", OPTION_SYSTEM},
    {"ssl-certfile", OPTION_TLS_CERTIFICATE},
    {"ssl-keyfile", OPTION_TLS_KEY},
    {"base-url", OPTION_URL},
    {"server", OPTION_URL},
};

const char *options_near_flag(const OptionVerb *verb, const char *written)
{
    const char *near = NULL;
    unsigned least = NEAR_FAR;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].theirs, written) == 0 && options_takes(verb, aliases[i].ours))
            return options_table[aliases[i].ours].name;
    for (const OptionId *o = verb->options; *o != OPTION_END; o++) {
        unsigned distance = near_distance(written, options_table[*o].name);
        if (!options_takes(verb, *o) || distance >= least) continue;
        least = distance;
        near = options_table[*o].name;
    }
    return near;
}

const char *options_near_operand(const char *operands, const char *written)
{
    static const char *const names[][2] = {{"model", "MODEL"}, {"prompt", "PROMPT"}};
    for (size_t i = 0; operands && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], written) == 0 && strstr(operands, names[i][1])) return names[i][1];
    return NULL;
}
