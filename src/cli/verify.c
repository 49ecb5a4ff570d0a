/* SPDX-License-Identifier: Apache-2.0 */
/* cobord verify: every range, hash and padding byte of a knot, and its tokenizer. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/knot_file.h"
#include "host/locate.h"
#include "host/places.h"
#include "host/stop.h"

static const OptionId verify_options[] = {OPTION_END};
const OptionVerb verify_verb = {
    .name = "verify",
    .usage = "FILE.knot",
    .summary = "Checks a knot: its header, every range, every hash, the padding, the tokenizer. "
               "Says which tensor is damaged,\n"
               "and where. A version 1 knot has no hashes: its ranges are checked, and that every "
               "scale is finite.",
    .examples = "  cobord verify model.knot\n"
                "  cobord verify smollm2-135m\n",
    .options = verify_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "FILE.knot",
};

static Error verify_open(const KnotFile *file, Why *why)
{
    Vocab vocab;
    TRY(knot_file_verify(file, true, progress_tell(), why));
    return file->knot.tokenizer.bytes ? knot_file_vocab(file, &vocab, why) : OK;
}

int cli_verify(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &verify_verb, argc, argv, &code)) return code;
    stop_install();
    Why why = {{0}};
    KnotFile file;
    char path[PLACES_PATH_BYTES];
    Error error = locate_file(o.operands[0], path, sizeof path, &why);
    if (error == OK) error = knot_file_open(path, &file, &why);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    error = verify_open(&file, &why);
    progress_end(error == OK);
    if (error != OK) code = complain(error, &why, path, NULL);
    else {
        options_print_safely(stdout, path);
        printf(": whole. Version %u, %" PRIu32 " tensors, %" PRIu64 " bytes, id %016" PRIx64
               ". %s\n",
               file.knot.version, file.knot.tensor_count, file.knot.file_bytes, file.knot.id,
               file.knot.version == 1 ? "Every range and scale is right (version 1 has no hashes)."
                                      : "Every range, hash and padding byte is right.");
        code = 0;
    }
    knot_file_close(&file);
    return code;
}
