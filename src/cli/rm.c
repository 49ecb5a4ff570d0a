/* SPDX-License-Identifier: Apache-2.0 */
/* cobord rm: removes a model from the cache, with its GGUF file and with what an unfinished pull
 * left. */
#include <stdio.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "host/pull.h"

static const OptionId rm_options[] = {OPTION_CACHE, OPTION_END};
const OptionVerb rm_verb = {
    .name = "rm",
    .usage = "MODEL",
    .summary =
        "Removes a model from the cache: its knot, its GGUF file if it was kept, and whatever an\n"
        "unfinished pull left. Files elsewhere are never touched. `cobord list` shows the names.",
    .examples = "  cobord rm smollm2-135m\n"
                "  cobord rm qwen2.5-coder-7b --cache /srv/cobord\n",
    .options = rm_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

int cli_rm(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &rm_verb, argc, argv, &code)) return code;
    Why why = {{0}};
    Error error = pull_remove(o.operands[0], &why);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    printf("%s is removed\n", o.operands[0]);
    return 0;
}
