/* SPDX-License-Identifier: Apache-2.0 */
/* cobord repair: rewrites a version 1 knot of the early encoder, whose header leads one byte past
 * the weights. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/file_reader.h"
#include "host/file_writer.h"
#include "host/stop.h"
#include "knot/repair.h"

enum { REPAIR_CHUNK_BYTES = 4 << 20 };

static const OptionId repair_options[] = {OPTION_OUTPUT, OPTION_END};
const OptionVerb repair_verb = {
    .name = "repair",
    .usage = "OLD.knot -o NEW.knot",
    .summary = "Rewrites a knot of an early encoder whose payload starts one byte before where its "
               "header says.\n"
               "Only the header changes; the result is a correct version 1 knot.",
    .examples = "  cobord repair old.knot -o new.knot\n"
                "  cobord repair old.knot -o new.knot && cobord verify new.knot\n",
    .options = repair_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "OLD.knot",
};

typedef struct RepairFile {
    const char *path;
    int descriptor;
} RepairFile;

static Error repair_copy(const RepairFile *from, const Repair *r, FileWriter *w, uint8_t *buffer,
                         Why *why)
{
    TRY(file_writer_append(w, r->header, r->header_bytes, why));
    for (uint64_t done = 0; done < r->payload_bytes;) {
        uint64_t left = r->payload_bytes - done;
        size_t piece = left < REPAIR_CHUNK_BYTES ? (size_t)left : REPAIR_CHUNK_BYTES;
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "nothing was written");
        TRY(file_reader_read(from->descriptor, from->path, r->payload_from + done, buffer, piece,
                             why));
        TRY(file_writer_append(w, buffer, piece, why));
        done += piece;
        progress_step("repair", done, r->payload_bytes);
    }
    return OK;
}

static Error repair_write(const RepairFile *from, const Repair *r, const char *path, Why *why)
{
    FileWriter w;
    uint8_t *buffer = malloc(REPAIR_CHUNK_BYTES);
    if (!buffer) return error_why(why, ERR_MEMORY, "a buffer");
    Error e = file_writer_open(&w, path, r->header_bytes + r->payload_bytes, why);
    if (e == OK) {
        e = repair_copy(from, r, &w, buffer, why);
        if (e == OK) e = file_writer_commit(&w, why);
        else file_writer_abandon(&w);
    }
    free(buffer);
    return e;
}

/* The whole header in memory, and a plan for it. */
static Error repair_header(const RepairFile *from, uint64_t file_bytes, const char *path, Why *why)
{
    uint8_t probe[16];
    uint64_t header_bytes = 0;
    size_t have = file_bytes < sizeof probe ? (size_t)file_bytes : sizeof probe;
    TRY(file_reader_read(from->descriptor, from->path, 0, probe, have, why));
    TRY(knot_header_bytes(probe, have, file_bytes, &header_bytes, why));
    size_t memory_bytes =
        (size_t)header_bytes + repair_arena_bytes((size_t)header_bytes) + 2 * ARENA_ALIGN;
    uint8_t *memory = malloc(memory_bytes);
    if (!memory)
        return error_why(why, ERR_MEMORY, "a header of %llu bytes",
                         (unsigned long long)header_bytes);
    Arena arena = arena_make(memory, memory_bytes);
    uint8_t *header = arena_take(&arena, (size_t)header_bytes);
    Repair r;
    Error e = header ? file_reader_read(from->descriptor, from->path, 0, header,
                                        (size_t)header_bytes, why)
                     : error_why(why, ERR_MEMORY, "the header");
    if (e == OK) e = repair_plan(header, (size_t)header_bytes, file_bytes, &arena, &r, why);
    if (e == OK) e = repair_write(from, &r, path, why);
    free(memory);
    return e;
}

static Error repair_file(const char *from, const char *to, Why *why)
{
    struct stat st;
    RepairFile file = {.path = from};
    TRY(file_reader_open(from, "a knot", &file.descriptor, &st, why));
    Error e = repair_header(&file, (uint64_t)st.st_size, to, why);
    (void)close(file.descriptor);
    return e;
}

int cli_repair(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &repair_verb, argc, argv, &code)) return code;
    const char *out = options_text(&o, OPTION_OUTPUT);
    if (!out) return complain_usage("repair: where to? Add -o NEW.knot");
    stop_install();
    Why why = {{0}};
    Error error = repair_file(o.operands[0], out, &why);
    progress_end(error == OK);
    return error == OK ? 0 : complain(error, &why, o.operands[0], NULL);
}
