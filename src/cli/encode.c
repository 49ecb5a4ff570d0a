/* SPDX-License-Identifier: Apache-2.0 */
/* cobord encode: a GGUF file in, a knot out. */
#include <stdio.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/encode_file.h"
#include "host/stop.h"

static const OptionId encode_options[] = {OPTION_OUTPUT, OPTION_KNOT_VERSION, OPTION_END};
const OptionVerb encode_verb = {
    .name = "encode",
    .usage = "IN.gguf -o OUT.knot",
    .summary = "Makes a knot of a GGUF file: the same weights, bit for bit, in the order in which "
               "they are used.\n"
               "Of a model in several files give the first (-00001-of-0000N.gguf). At most 64 MiB "
               "of memory.",
    .examples = "  cobord encode model.gguf -o model.knot\n"
                "  cobord encode model.gguf -o old.knot --knot-version 1\n",
    .options = encode_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "IN.gguf",
};

int cli_encode(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &encode_verb, argc, argv, &code)) return code;
    const char *out = options_text(&o, OPTION_OUTPUT);
    if (!out) return complain_usage("encode: where to? Add -o OUT.knot");
    stop_install();
    Why why = {{0}};
    unsigned version = options_given(&o, OPTION_KNOT_VERSION)
                           ? (unsigned)options_count(&o, OPTION_KNOT_VERSION)
                           : 2;
    Error error = encode_file(o.operands[0], out, version, progress_tell(), &why);
    progress_end(error == OK);
    return error == OK ? 0 : complain(error, &why, o.operands[0], NULL);
}
