/* SPDX-License-Identifier: Apache-2.0 */
/* cobord up: a whole cluster on this machine, every role a process of its own, supervised.
 *
 *   plan --> DIR/cluster.json, DIR/key --> `cobord node --cluster DIR/cluster.json --id ID` for each --> the URL
 *
 * Ports are reserved before anything expensive starts, and stay reserved while a process is restarted. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/access_options.h"
#include "cli/cluster_plan.h"
#include "cli/complain.h"
#include "cli/log_options.h"
#include "cli/progress.h"
#include "cli/tls_options.h"
#include "cli/up_run.h"
#include "cli/verbs.h"
#include "host/draft_model.h"
#include "host/key.h"
#include "host/pull.h"
#include "host/node.h"
#include "host/places.h"
#include "host/ports.h"
#include "host/stop.h"
#include "host/whole.h"

static const OptionId up_options[] = {
    CLUSTER_PLAN_OPTIONS, OPTION_WORKERS, OPTION_THREADS, OPTION_ISA,    OPTION_CLUSTER,
    OPTION_DIR,           OPTION_CGROUP,  OPTION_QUEUE,   OPTIONS_DRAFT, OPTIONS_TLS,
    OPTIONS_ACCESS,       OPTIONS_LOG,    OPTION_END};
const OptionVerb up_verb = {
    .name = "up",
    .usage = "MODEL [--stations 2 --shards 8 --memory 128M] | --cluster FILE",
    .summary =
        "Runs a cluster on this machine: coordinator, stations, shards (and wardens), each a process of\n"
        "its own that takes at most --memory (default 128M), and answers OpenAI's API like `cobord serve`.\n"
        "What dies or freezes is started again; the answers under way go on. Ctrl-C finishes what was\n"
        "begun and ends them all. With --cluster it runs the nodes of a cluster file as they are.",
    .examples = "  cobord up qwen2.5-coder-1.5b\n"
                "  cobord up smollm2-135m --stations 3 --shards 2 --memory 96M --replicas 1\n"
                "  cobord up --cluster cluster.json\n",
    .options = up_options,
    .operands_min = 0,
    .operands_max = 1,
    .operand_names = "MODEL",
};

typedef struct Up {
    char directory[PLACES_PATH_BYTES], cluster[PLACES_PATH_BYTES + 32], key[PLACES_PATH_BYTES + 32];
    bool made; /* the directory is ours, and goes when all went well */
    int lock;  /* of the directory */
    Port *ports;
    uint32_t port_count;
    char host[PORTS_HOST_BYTES];
    char drain_seconds[16];
    char draft[PLACES_PATH_BYTES]; /* path of the draft model; "": none */
} Up;

/* ---- The directory */

/* Of this run alone. */
static Error make_directory(Up *up, Why *why)
{
    places_state(up->directory, sizeof up->directory, "up-XXXXXX");
    if (!up->directory[0])
        (void)snprintf(up->directory, sizeof up->directory, "/tmp/cobord/up-XXXXXX");
    char *name = strrchr(up->directory, '/');
    *name = '\0';
    TRY(places_make_directory(up->directory, 0700, why));
    *name = '/';
    if (!mkdtemp(up->directory)) return places_system_error(errno, up->directory, why);
    up->made = true;
    return OK;
}

static Error use_directory(Up *up, const char *given, Why *why)
{
    char absolute[PLACES_PATH_BYTES];
    if (strlen(given) >= sizeof up->directory)
        return error_why(why, ERR_TOO_LARGE, "the path of the directory");
    (void)snprintf(up->directory, sizeof up->directory, "%s", given);
    TRY(places_make_directory(up->directory, 0700, why));
    if (!realpath(up->directory, absolute)) return places_system_error(errno, given, why);
    (void)snprintf(up->directory, sizeof up->directory, "%s", absolute);
    return OK;
}

/* Two clusters in one directory would take each other's journal. */
static Error lock_directory(Up *up, Why *why)
{
    char path[PLACES_PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/lock", up->directory);
    up->lock = whole_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (up->lock < 0) return places_system_error(errno, path, why);
    if (flock(up->lock, LOCK_EX | LOCK_NB) == 0) return OK;
    return error_why(why, ERR_AGAIN,
                     "%s: another `cobord up` works there, give this one another --dir.",
                     up->directory);
}

static Error open_directory(Up *up, const char *given, Why *why)
{
    TRY(given ? use_directory(up, given, why) : make_directory(up, why));
    (void)snprintf(up->cluster, sizeof up->cluster, "%s/cluster.json", up->directory);
    (void)snprintf(up->key, sizeof up->key, "%s/key", up->directory);
    return lock_directory(up, why);
}

static void leave(Up *up, bool well)
{
    for (uint32_t i = 0; i < up->port_count; i++) ports_release(&up->ports[i]);
    free(up->ports);
    if (up->made && well) places_remove(up->directory);
    if (up->lock >= 0) close(up->lock);
}

/* ---- Ports: the coordinator's where --listen says, free ones for the others. */

static Error reserve_ports(Up *up, ClusterPlan *p, Why *why)
{
    Port *ports = realloc(up->ports, p->place_count * sizeof *ports);
    if (!ports) return error_why(why, ERR_MEMORY, "the list of ports");
    up->ports = ports;
    for (uint32_t i = 1; i < p->place_count; i++) {
        TRY(ports_reserve("127.0.0.1", 0, &up->ports[i], why));
        up->port_count = i + 1;
    }
    for (uint32_t i = 0; i < p->place_count; i++)
        p->addresses[i] =
            (PlanAddress){.host = i ? "127.0.0.1" : up->host, .port = up->ports[i].number};
    return OK;
}

static Error reserve_first(Up *up, const char *where, Why *why)
{
    uint16_t number;
    TRY(ports_parse(where, up->host, &number, why));
    up->ports = calloc(1, sizeof *up->ports);
    if (!up->ports) return error_why(why, ERR_MEMORY, "the list of ports");
    TRY(ports_reserve(up->host, number, up->ports, why));
    up->port_count = 1;
    return OK;
}

/* ---- From a model */

static Error write_cluster(Up *up, const Options *o, const char *name, const OpenModel *model,
                           Why *why)
{
    static ClusterPlan p;
    char directory[PLACES_PATH_BYTES + 2], key[KEY_BYTES_MAX + 1];
    Error error = cluster_plan_make(o, name, model, NULL, &p, why);
    if (error == OK) error = reserve_ports(up, &p, why);
    (void)snprintf(directory, sizeof directory, "%s/", up->directory);
    p.request.directory = directory;
    if (!options_text(o, OPTION_KEY_FILE)) p.request.key_file = up->key;
    if (error == OK && access(p.request.key_file, F_OK) != 0)
        error = key_make(p.request.key_file, key, why);
    if (error == OK) error = cluster_plan_file(&p, why);
    if (error == OK) error = cluster_plan_write(&p, up->cluster, why);
    cluster_plan_free(&p);
    return error;
}

/* Its path, and that it fits: what the coordinator would find later is said now. */
static Error find_draft(Up *up, const Options *o, const OpenModel *model, Why *why)
{
    const char *name = options_text(o, OPTION_DRAFT);
    char path[PLACES_PATH_BYTES];
    if (!name) return OK;
    TRY(pull_locate(name, progress_tell(), path, sizeof path, why));
    if (!realpath(path, up->draft)) return places_system_error(errno, path, why);
    return model ? draft_model_check(up->draft, &model->file, why) : OK;
}

static Error plan_model(Up *up, const Options *o, const char *name, Why *why)
{
    static OpenModel model;
    char path[PLACES_PATH_BYTES];
    TRY(pull_locate(name, progress_tell(), path, sizeof path, why));
    TRY(open_model_open(path, MODEL_WEIGHTS, progress_tell(), &model, why));
    Error error = find_draft(up, o, &model, why);
    if (error == OK) error = write_cluster(up, o, name, &model, why);
    open_model_close(&model);
    return error;
}

static int complain_of(Error error, const Why *why, const Options *o, const Up *up)
{
    const char *thing = o->operand_count ? o->operands[0] : options_text(o, OPTION_CLUSTER);
    if (error == ERR_IO && o->operand_count && !up->port_count)
        return complain(error, why, options_text(o, OPTION_LISTEN),
                        "Choose another place with --listen HOST:PORT");
    bool placed = up->lock >= 0 || (o->operand_count && !up->port_count);
    return complain(error, why, thing, placed ? NULL : "Choose another place with --dir DIR");
}

static int run(Up *up, const Options *o, const TlsOptions *tls, const Access *access, Why *why)
{
    const char *name = o->operand_count ? o->operands[0] : NULL;
    const char *cluster = options_text(o, OPTION_CLUSTER);
    Error error = OK;
    if (name) error = reserve_first(up, options_text(o, OPTION_LISTEN), why);
    if (error == OK) error = open_directory(up, options_text(o, OPTION_DIR), why);
    if (error == OK) error = name ? plan_model(up, o, name, why) : find_draft(up, o, NULL, why);
    progress_end(error == OK);
    if (error != OK) return complain_of(error, why, o, up);
    UpRun request = {
        .cluster = name ? up->cluster : cluster,
        .directory = up->directory,
        .threads =
            options_given(o, OPTION_THREADS) ? (uint32_t)options_count(o, OPTION_THREADS) : 0,
        .isa = options_given(o, OPTION_ISA) ? options_text(o, OPTION_ISA) : NULL,
        .queue = options_given(o, OPTION_QUEUE) ? options_text(o, OPTION_QUEUE) : NULL,
        .drafts = options_given(o, OPTION_DRAFTS) ? options_text(o, OPTION_DRAFTS) : NULL,
        .draft = up->draft[0] ? up->draft : NULL,
        .draft_memory =
            options_given(o, OPTION_DRAFT_MEMORY) ? options_text(o, OPTION_DRAFT_MEMORY) : NULL,
        .log_format = log_options_format(o),
        .log_level = log_options_level(o),
        .drain_seconds = up->drain_seconds,
        .drain_s = (uint32_t)options_count(o, OPTION_DRAIN_SECONDS),
        .cgroups = options_switch(o, OPTION_CGROUP),
        .tls = *tls,
        .access = *access};
    return up_run(&request);
}

/* A file says where and what its nodes are: a flag that would say it again is a mistake. */
static int refuse_beside_cluster(const Options *o)
{
    static const OptionId plans[] = {CLUSTER_PLAN_OPTIONS, OPTION_WORKERS, OPTION_END};
    if (o->operand_count) return 0;
    for (const OptionId *id = plans; *id != OPTION_END; id++) {
        const char *where = options_where(o, *id);
        if (options_given(o, *id) && strncmp(where, "--", 2) == 0)
            return complain_usage("up: %s has no effect with --cluster: the file says it", where);
    }
    return 0;
}

int cli_up(int argc, char **argv)
{
    Options o;
    Up up = {.lock = -1};
    TlsOptions tls;
    Access access;
    Why why = {{0}};
    int code;
    if (!options_read(&o, &up_verb, argc, argv, &code)) return code;
    log_options_open(&o, "up");
    if ((o.operand_count != 0) == (options_text(&o, OPTION_CLUSTER) != NULL))
        return complain_usage("up: give either MODEL or --cluster FILE. See: cobord help up");
    if (options_given(&o, OPTION_WORKERS) &&
        (options_given(&o, OPTION_STATIONS) || options_given(&o, OPTION_SHARDS)))
        return complain_usage("up: give either --workers or --stations and --shards");
    if ((code = refuse_beside_cluster(&o)) != 0) return code;
    if ((code = tls_options_read(&o, &tls)) != 0) return code;
    if ((code = access_options_read(&o, &access)) != 0) return code;
    (void)snprintf(up.drain_seconds, sizeof up.drain_seconds, "%llu",
                   (unsigned long long)options_count(&o, OPTION_DRAIN_SECONDS));
    stop_install();
    code = run(&up, &o, &tls, &access, &why);
    leave(&up, code == 0);
    return code;
}
