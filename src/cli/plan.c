/* SPDX-License-Identifier: Apache-2.0 */
/* cobord plan: who holds what, what each process needs, whether it fits, what a token costs; and the
 * cluster file. Reads the model's header only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cluster_plan.h"
#include "cli/complain.h"
#include "cli/plan_print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/key.h"
#include "host/ports.h"

static const OptionId plan_options[] = {OPTION_WORKERS, CLUSTER_PLAN_OPTIONS, OPTION_HOSTS,
                                        OPTION_OUTPUT,  OPTION_JSON,          OPTION_END};
const OptionVerb plan_verb = {
    .name = "plan",
    .usage = "MODEL --memory 128M [--workers N | --stations N --shards M] [-o CLUSTER.json]",
    .summary =
        "Cuts a model into stations (layers) and shards (vocabulary), one process each, adds up what\n"
        "each needs, and says what a token costs. A plan that does not fit --memory (default 128M) is\n"
        "refused with its sum. With -o it writes the cluster file that `cobord node` and `cobord up` read.",
    .examples = "  cobord plan qwen2.5-coder-1.5b --memory 128M\n"
                "  cobord plan qwen2.5-coder-1.5b --memory 96M --stations 12 --shards 8 --json\n"
                "  cobord plan qwen2.5-coder-1.5b --hosts hosts.json -o cluster.json\n",
    .options = plan_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

/* ---- Addresses on this machine: the coordinator where --listen says, the others behind it. */

static Error address_here(ClusterPlan *p, char *host, uint16_t port, Why *why)
{
    static const char nodes[] = "127.0.0.1";
    Port *reserved = calloc(p->place_count, sizeof *reserved);
    Error error = reserved ? OK : error_why(why, ERR_MEMORY, "the list of ports");
    if (error == OK && port && port + p->place_count - 1 > UINT16_MAX)
        error =
            error_why(why, ERR_RANGE, "%u nodes from port %u on", p->place_count, (unsigned)port);
    for (uint32_t i = 0; reserved && i < p->place_count; i++) {
        const char *at = i ? nodes : host;
        reserved[i].fd = reserved[i].claim = -1;
        if (error == OK && !port) error = ports_reserve(at, 0, &reserved[i], why);
        p->addresses[i] =
            (PlanAddress){.host = at, .port = port ? (uint16_t)(port + i) : reserved[i].number};
    }
    for (uint32_t i = 0; reserved && i < p->place_count; i++) ports_release(&reserved[i]);
    free(reserved);
    return error;
}

static Error make_key(const char *path, Why *why)
{
    char key[KEY_BYTES_MAX + 1];
    if (!path[0] || access(path, F_OK) == 0) return OK;
    TRY(key_make(path, key, why));
    fprintf(stderr, "cobord: made a key in ");
    options_print_safely(stderr, path);
    fprintf(stderr, "; each machine needs it there\n");
    return OK;
}

static Error write_file(const Options *o, ClusterPlan *p, Why *why)
{
    static char host[PORTS_HOST_BYTES];
    uint16_t port;
    const char *path = options_text(o, OPTION_OUTPUT);
    if (!path) return OK;
    TRY(ports_parse(options_text(o, OPTION_LISTEN), host, &port, why));
    TRY(p->hosts.count ? cluster_plan_address_hosts(p, port ? port : 8080, why)
                       : address_here(p, host, port, why));
    TRY(cluster_plan_file(p, why));
    TRY(make_key(p->request.key_file, why));
    TRY(cluster_plan_write(p, path, why));
    if (p->hosts.count && !p->request.key_file[0])
        fprintf(stderr, "cobord: without --key-file anyone who reaches a node can use it\n");
    return OK;
}

static Error plan(const Options *o, const OpenModel *model, const Hosts *hosts, Why *why)
{
    static ClusterPlan p;
    const char *path = options_text(o, OPTION_OUTPUT);
    Error error = cluster_plan_make(o, o->operands[0], model, hosts, &p, why);
    if (error == OK) error = cluster_plan_price(&p, why);
    if (error == OK) error = write_file(o, &p, why);
    if (error == OK && options_switch(o, OPTION_JSON)) plan_print_json(&p, path);
    else if (error == OK) {
        plan_print_table(&p);
        plan_print_cost(&p);
        if (path)
            printf("Wrote %s. Start each node with: cobord node --cluster %s --id ID\n", path,
                   path);
    }
    cluster_plan_free(&p);
    return error;
}

int cli_plan(int argc, char **argv)
{
    static OpenModel model;
    static Hosts hosts;
    Options o;
    int code;
    if (!options_read(&o, &plan_verb, argc, argv, &code)) return code;
    if (options_given(&o, OPTION_WORKERS) &&
        (options_given(&o, OPTION_STATIONS) || options_given(&o, OPTION_SHARDS)))
        return complain_usage("plan: give either --workers or --stations and --shards");
    if (options_given(&o, OPTION_HOSTS) &&
        (options_given(&o, OPTION_WORKERS) || options_given(&o, OPTION_RANGES)))
        return complain_usage(
            "plan: --hosts chooses ranges itself: without --workers and --ranges");
    Why why = {{0}};
    const char *list = options_text(&o, OPTION_HOSTS);
    Error error = list ? hosts_read(list, &hosts, &why) : OK;
    if (error != OK)
        return complain(error, &why, options_where(&o, OPTION_HOSTS),
                        "Give addresses with commas between, or a file (docs/cluster.md)");
    error = open_model_open(o.operands[0], 0, progress_tell(), &model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    error = plan(&o, &model, list ? &hosts : NULL, &why);
    code = error == OK ? 0 : complain(error, &why, o.operands[0], NULL);
    open_model_close(&model);
    return code;
}
