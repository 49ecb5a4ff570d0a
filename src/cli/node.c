/* SPDX-License-Identifier: Apache-2.0 */
/* cobord node: one node of a cluster file as this process. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/access_options.h"
#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/log_options.h"
#include "cli/progress.h"
#include "cli/tls_options.h"
#include "cli/verbs.h"
#include "host/memory.h"
#include "host/node.h"

static const OptionId node_options[] = {OPTION_CLUSTER, OPTION_ID,    OPTION_THREADS, OPTION_ISA,
                                        OPTIONS_DRAFT,  OPTION_QUEUE, OPTION_JOURNAL, OPTIONS_TLS,
                                        OPTIONS_ACCESS, OPTIONS_LOG,  OPTION_END};
const OptionVerb node_verb = {
    .name = "node",
    .usage = "--cluster FILE --id ID",
    .summary =
        "Runs one node of a cluster: the coordinator, a station, a shard or a warden. The file\n"
        "says what it owns, where it listens and what it may take; `cobord plan` writes one,\n"
        "`cobord up` runs all of its nodes on this machine. SIGTERM finishes what was begun.\n"
        "--tls-certificate, --tls-key, --api-keys and --cors are of the coordinator's API alone; the\n"
        "file says the certificate for all nodes.",
    .examples = "  cobord node --cluster cluster.json --id coordinator-0\n"
                "  cobord node --cluster cluster.json --id station-0\n"
                "  cobord node --cluster cluster.json --id shard-3 --threads 2\n",
    .options = node_options,
    .operand_names = "",
};

/* What stands in the cluster file is mended there. NULL: the error's own. */
static const char *advice_of(Error error, bool known)
{
    if (error == ERR_NOT_FOUND && !known) return "Give one of these with --id";
    switch (error) {
    case ERR_NOT_FOUND: return "Pull the model on this machine, or name its store in the file";
    case ERR_UNSUPPORTED: return "Pull the model that the file is of, or plan again with this one";
    case ERR_IO: return "Check that path or address of the file, and its permissions";
    case ERR_USAGE: return "Check \"tls\" in the file";
    case ERR_PLAN:
        return "Give more \"memory\" or a smaller \"context\" in the file, or plan again";
    default: return NULL;
    }
}

static int run(const Options *o, const char *path, const char *id)
{
    Why why = {{0}};
    ClusterFile cluster;
    void *memory;
    TlsOptions tls;
    int code = tls_options_read(o, &tls);
    if (code) return code;
    Access access;
    if ((code = access_options_read(o, &access)) != 0) return code;
    NodeOptions options = {.threads = (uint32_t)options_count(o, OPTION_THREADS),
                           .isa_given = true,
                           .version = COBORD_VERSION,
                           .drain_s = (uint32_t)options_count(o, OPTION_DRAIN_SECONDS),
                           .journal = options_text(o, OPTION_JOURNAL),
                           .certificate_file = tls.certificate,
                           .certificate_key_file = tls.key,
                           .access = access,
                           .tell = progress_tell(),
                           .queue_max = (uint32_t)options_count(o, OPTION_QUEUE),
                           .drafts = (uint32_t)options_count(o, OPTION_DRAFTS),
                           .draft = options_text(o, OPTION_DRAFT),
                           .draft_memory_bytes = options_given(o, OPTION_DRAFT_MEMORY)
                                                     ? options_count(o, OPTION_DRAFT_MEMORY)
                                                     : 0};
    Error error = engine_options_isa(o, &options.isa, &why);
    if (error != OK) return complain(error, &why, options_where(o, OPTION_ISA), NULL);
    error = node_read_cluster(path, &cluster, &memory, &why);
    if (error != OK) return complain(error, &why, path, complain_cluster_file(error));
    error = node_run(&cluster, path, id, &options, &why);
    progress_end(error == OK);
    bool known = cluster_file_find(&cluster, id) != NULL;
    free(memory);
    return error == OK ? 0 : complain(error, &why, path, advice_of(error, known));
}

int cli_node(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &node_verb, argc, argv, &code)) return code;
    const char *path = options_text(&o, OPTION_CLUSTER), *id = options_text(&o, OPTION_ID);
    if (!path || !id) return complain_usage("node: --cluster FILE and --id ID are needed");
    log_options_open(&o, id);
    memory_keep_heap_small();
    return run(&o, path, id);
}
