/* SPDX-License-Identifier: Apache-2.0 */
/* Runs seeds of the simulated cluster (sim.h).
 *
 *     sim --seeds 500 [--first 1]    exit 1 at the first seed that fails, which is then run again and told
 *     sim --seeds 500 --all          a line for each seed that fails
 *     sim --seed 17 [--verbose]      one seed; with all that happens
 *     sim --break fence | hash ..    stations take late frames, or no sum is checked: exit 0 when some seed
 *                                    shows it, 1 when none does
 *
 * Every request must end, with the tokens that it has alone. */
#include "sim.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 4000000,
    QUIET_S = 12,
    PATIENCE_S = 600,
    SEED_SECONDS_MAX = 120,
    TAIL_LINES = 80
};

static volatile unsigned long long current_seed;

void sim_fail(Sim *s, const char *format, ...)
{
    if (s->failed) return;
    va_list list;
    va_start(list, format);
    vsnprintf(s->failure, sizeof s->failure, format, list);
    va_end(list);
    s->failed = true;
    sim_log(s, "FAILS: %s", s->failure);
}

void sim_log(Sim *s, const char *format, ...)
{
    if (!s->log) return;
    va_list list;
    va_start(list, format);
    fprintf(s->log, "%12.3f ms  ", (double)s->now_ns / 1e6);
    vfprintf(s->log, format, list);
    fputc('\n', s->log);
    va_end(list);
}

/* --- The cluster file --- */

static void add_node(Sim *s, ClusterRole role, uint32_t part, bool is_replica)
{
    uint32_t number = 0, index = s->cluster.node_count++;
    for (uint32_t i = 0; i < index; i++) number += s->cluster_nodes[i].role == role;
    ClusterNode *n = &s->cluster_nodes[index];
    *n = (ClusterNode){.role = role,
                       .host = "127.0.0.1",
                       .port = (uint16_t)(9000 + index),
                       .part = part,
                       .is_replica = is_replica,
                       .warden = CLUSTER_FILE_NONE};
    if (role == CLUSTER_STATION) {
        n->range = s->plan.range[part];
        n->embed = s->plan.embed && part == 0;
        n->head = s->plan.head && part + 1 == s->plan.stations;
    }
    if (role == CLUSTER_SHARD) {
        n->id_first = s->plan.id_first[part];
        n->id_last = s->plan.id_last[part];
    }
    cluster_file_make_id(role, number, n->id);
    if (!is_replica) s->cluster.parts[role]++;
}

static void make_cluster_file(Sim *s)
{
    const SimScenario *p = &s->plan;
    s->cluster = (ClusterFile){.model_name = "sim",
                               .knot_key = "sim.knot",
                               .store = "",
                               .knot_id = s->model->knot.id,
                               .layers = SIM_LAYERS,
                               .vocabulary = SIM_VOCABULARY,
                               .memory_bytes = 128 << 20,
                               .warden_memory_bytes = 64 << 20,
                               .context = p->context,
                               .chunk = p->chunk,
                               .sessions = p->sessions,
                               .pipeline = p->frames,
                               .cache = p->cache,
                               .element = ROWS_F32,
                               .key_file = "",
                               .tls_certificate = "",
                               .tls_key = "",
                               .tls_ca = "",
                               .nodes = s->cluster_nodes};
    add_node(s, CLUSTER_COORDINATOR, 0, false);
    for (uint32_t i = 0; i < p->stations; i++)
        for (int copy = 0; copy <= p->station_replica[i]; copy++)
            add_node(s, CLUSTER_STATION, i, copy);
    for (uint32_t i = 0; i < p->shards; i++)
        for (int copy = 0; copy <= p->shard_replica[i]; copy++) add_node(s, CLUSTER_SHARD, i, copy);
    Why why = {{0}};
    if (cluster_file_check(&s->cluster, &why) != OK) sim_fail(s, "the cluster file: %s", why.text);
}

/* --- Faults of nodes --- */

static void add_revival(Sim *s, uint32_t node, uint64_t at_ns)
{
    sim_clock_add(s, SIM_REVIVAL, at_ns)->node = node;
}

static void begin_fault(Sim *s, const SimFault *f)
{
    static const char *const verbs[] = {"dies",       "freezes",  "drains",
                                        "is cut off", "restarts", "stalls"};
    SimNode *n = &s->nodes[f->node];
    uint64_t until = s->now_ns + f->duration_ns;
    if (s->plan.calm_ns < until) s->plan.calm_ns = until;
    s->counts->faults[f->kind]++;
    if (f->kind < SIM_RESTART)
        sim_log(s, "%s %s until %.3f ms", sim_nodes_name(s, f->node), verbs[f->kind],
                (double)until / 1e6);
    switch (f->kind) {
    case SIM_CRASH:
        if (n->alive) sim_nodes_kill(s, f->node, f->silent);
        add_revival(s, f->node, until);
        break;
    case SIM_FREEZE:
        if (n->frozen_until_ns < until) n->frozen_until_ns = until;
        break;
    case SIM_DRAIN:
        n->draining = n->alive;
        add_revival(s, f->node, until);
        break;
    case SIM_CUT:
        if (n->cut_until_ns < until) n->cut_until_ns = until;
        break;
    case SIM_STALL:
        sim_log(s, "the coordinator stalls until %.3f ms", (double)until / 1e6);
        if (s->stalled_until_ns < until) s->stalled_until_ns = until;
        break;
    default:
        s->stalled_until_ns = 0;
        sim_clients_restart(s);
        break;
    }
}

static void handle(Sim *s, SimEvent *e)
{
    if (s->now_ns < s->stalled_until_ns && (e->kind == SIM_ANSWER || e->kind == SIM_DEADLINE))
        sim_clock_postpone(s, e, s->stalled_until_ns);
    else if (e->kind == SIM_FAULT) begin_fault(s, &s->plan.faults[e->fault]);
    else if (e->kind == SIM_REVIVAL) {
        sim_log(s, "%s starts again", sim_nodes_name(s, e->node));
        if (s->nodes[e->node].draining) sim_nodes_kill(s, e->node, false);
        sim_nodes_revive(s, e->node);
    } else {
        sim_network_event(s, e);
        return;
    }
    free(e);
}

/* --- One seed --- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Time goes from event to event until all requests have ended and all was quiet for a while. */
static void pass_time(Sim *s)
{
    uint64_t quiet_ns = SIM_NEVER;
    for (uint32_t events = 0, idle = 0; !s->failed; events++) {
        uint64_t limit_ns = s->plan.calm_ns + PATIENCE_S * SIM_S;
        bool stalls = s->now_ns < s->stalled_until_ns;
        if (!stalls) sim_clients_turn(s);
        if (s->failed) return;
        if (quiet_ns == SIM_NEVER && sim_clients_are_done(s))
            quiet_ns =
                (s->now_ns > s->plan.calm_ns ? s->now_ns : s->plan.calm_ns) + QUIET_S * SIM_S;
        uint64_t clock_ns = sim_clock_next_ns(s), wake_ns = pipeline_wake_ns(s->pipeline);
        uint64_t next = least(least(clock_ns, wake_ns), least(sim_clients_next_ns(s), quiet_ns));
        if (stalls) next = least(clock_ns, s->stalled_until_ns);
        if (next == quiet_ns) {
            if (!pipeline_is_busy(s->pipeline) || s->now_ns > limit_ns) return;
            quiet_ns += QUIET_S * SIM_S; /* a frame that nobody wants waits for a lost answer */
        }
        idle = next <= s->now_ns && clock_ns > s->now_ns ? idle + 1 : 0;
        if (idle == 1000) sim_fail(s, "the pipeline wants to be woken again and again");
        if (next > limit_ns) sim_fail(s, "a request never ends");
        if (events == EVENTS_MAX) sim_fail(s, "too much happens");
        if (next > s->now_ns) s->now_ns = next;
        if (clock_ns <= s->now_ns) handle(s, sim_clock_take(s));
    }
}

static void tell_unfinished(Sim *s)
{
    for (uint32_t i = 0; i < s->plan.request_count; i++)
        if (s->requests[i].state != SIM_ENDED)
            sim_log(s, "request %u has not ended: %u of %u tokens", i, s->requests[i].emitted,
                    s->requests[i].want_count);
}

static void run(Sim *s)
{
    sim_scenario_make(s);
    s->nonce = 1000;
    make_cluster_file(s);
    if (s->failed) return;
    if (s->log) sim_scenario_print(s, s->log);
    sim_nodes_start(s);
    sim_clients_start_coordinator(s);
    for (uint32_t i = 0; i < s->plan.fault_count; i++)
        if (!s->plan.faults[i].after)
            sim_clock_add(s, SIM_FAULT, s->plan.faults[i].at_ns)->fault = i;
    if (!s->failed) pass_time(s);
    if (!s->failed) sim_clients_check_end(s);
    if (!s->failed) sim_nodes_check_end(s);
    tell_unfinished(s);
    sim_clients_stop_coordinator(s);
    sim_nodes_stop(s);
    sim_clock_free(s);
    free(s->rows);
    for (uint32_t i = 0; i < s->plan.request_count; i++) free(s->requests[i].mask_memory);
    s->counts->seeds++;
}

/* Result  whether the seed passes. */
static bool run_seed(uint64_t seed, SimModel *model, SimBreak broken, SimCounts *counts, FILE *log,
                     bool tell)
{
    Sim *s = calloc(1, sizeof *s);
    ASSERT(s);
    *s = (Sim){.seed = seed, .model = model, .broken = broken, .counts = counts, .log = log};
    current_seed = seed;
    alarm(SEED_SECONDS_MAX);
    run(s);
    alarm(0);
    bool passes = !s->failed;
    if (!passes && tell) fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, s->failure);
    free(s);
    return passes;
}

/* --- The report --- */

/* The scenario's lines, and the last of what happened. */
static void tell_failure(uint64_t seed, SimModel *model, SimBreak broken)
{
    char *text = NULL;
    size_t bytes = 0, lines = 0, kept = 0;
    SimCounts counts = {0};
    FILE *log = open_memstream(&text, &bytes);
    ASSERT(log);
    run_seed(seed, model, broken, &counts, log, false);
    fclose(log);
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, kept++) {
        bool head = line == text || line[0] != ' ' || line[2] != ' ';
        if (kept == lines - TAIL_LINES && lines > TAIL_LINES) fprintf(stderr, "  ...\n");
        if (head || kept + TAIL_LINES >= lines) fprintf(stderr, "%.*s\n", (int)(end - line), line);
    }
    free(text);
    fprintf(stderr, "all of it: sim --seed %llu --verbose\n", (unsigned long long)seed);
}

static void print_counts(const SimCounts *c)
{
    const struct {
        uint64_t count;
        const char *what;
    } lines[] = {
        {c->seeds, "seeds: "},
        {c->requests, "requests, "},
        {c->cancelled, "cancelled, "},
        {c->own_fault, "with a fault of their own, "},
        {c->tokens, "tokens, "},
        {c->calls, "calls\nmessages: "},
        {c->dropped, "lost, "},
        {c->doubled, "doubled, "},
        {c->corrupted, "damaged, "},
        {c->late, "too late\nnodes: "},
        {c->faults[SIM_CRASH], "crashes, "},
        {c->faults[SIM_FREEZE], "freezes, "},
        {c->faults[SIM_DRAIN], "drains, "},
        {c->faults[SIM_CUT], "cuts; of the coordinator "},
        {c->faults[SIM_RESTART], "restarts, "},
        {c->faults[SIM_STALL], "stalls\n"},
        {c->replays, "replays, "},
        {c->hedges, "hedges, "},
        {c->own, "calls to the own store, "},
        {c->degraded, "degraded, "},
        {c->superseded, "late frames refused\n"},
        {c->drafts, "guesses, "},
        {c->right, "right, "},
        {c->scores, "scores, "},
        {c->pools, "sums, "},
        {c->forks, "copies, "},
        {c->masked, "tokens by a grammar, "},
        {c->rows, "hidden rows known\n"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        printf("%llu %s", (unsigned long long)lines[i].count, lines[i].what);
}

/* A hundred seeds in which some kind of trouble never came up would show nothing about it. */
static bool covers_all(const SimCounts *c)
{
    const uint64_t seen[] = {c->cancelled, c->own_fault, c->dropped, c->doubled, c->corrupted,
                             c->late,      c->replays,   c->hedges,  c->own,     c->superseded,
                             c->drafts,    c->right,     c->scores,  c->pools,   c->forks,
                             c->rows,      c->masked};
    bool all = true;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) all &= seen[i] > 0;
    for (int i = 0; i < SIM_FAULT_KINDS; i++) all &= c->faults[i] > 0;
    return all;
}

static void on_signal(int number)
{
    static char text[64] = "sim: stopped in seed ";
    size_t at = strlen(text);
    char digits[24];
    int n = 0;
    for (unsigned long long v = current_seed; v || !n; v /= 10) digits[n++] = (char)('0' + v % 10);
    while (n) text[at++] = digits[--n];
    text[at++] = '\n';
    (void)!write(2, text, at);
    signal(number, SIG_DFL);
    raise(number);
}

typedef struct Arguments {
    uint64_t first, count;
    bool verbose, all, bad;
    SimBreak broken;
} Arguments;

static Arguments read_arguments(int argc, char **argv)
{
    Arguments a = {.first = 1, .count = 500};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--verbose") == 0) {
            a.verbose = true;
            continue;
        }
        if (strcmp(name, "--all") == 0) {
            a.all = true;
            continue;
        }
        uint64_t number = value ? strtoull(value, NULL, 10) : 0;
        if (!value) a.bad = true;
        else if (strcmp(name, "--seeds") == 0) a.count = number;
        else if (strcmp(name, "--first") == 0) a.first = number;
        else if (strcmp(name, "--seed") == 0) a.first = number, a.count = 1;
        else if (strcmp(name, "--break") == 0 && strcmp(value, "fence") == 0)
            a.broken = SIM_BREAK_FENCE;
        else if (strcmp(name, "--break") == 0 && strcmp(value, "hash") == 0)
            a.broken = SIM_BREAK_HASH;
        else a.bad = true;
        i++;
    }
    return a;
}

static int run_broken(const Arguments *a, SimModel *model)
{
    SimCounts counts = {0};
    for (uint64_t seed = a->first; seed < a->first + a->count; seed++)
        if (!run_seed(seed, model, a->broken, &counts, a->verbose ? stdout : NULL, false)) {
            printf("found by seed %llu, %llu seeds looked at\n", (unsigned long long)seed,
                   (unsigned long long)counts.seeds);
            return 0;
        }
    fprintf(stderr, "sim: %llu seeds, and none shows it\n", (unsigned long long)counts.seeds);
    return 1;
}

static int run_all(const Arguments *a, SimModel *model)
{
    SimCounts counts = {0};
    uint64_t failures = 0;
    FILE *log = a->verbose ? stdout : NULL;
    for (uint64_t seed = a->first; seed < a->first + a->count; seed++) {
        if (run_seed(seed, model, SIM_BREAK_NOTHING, &counts, log, a->all)) continue;
        failures++;
        if (a->all) continue;
        tell_failure(seed, model, SIM_BREAK_NOTHING);
        return 1;
    }
    print_counts(&counts);
    if (failures) return 1;
    if (a->count < 100 || covers_all(&counts)) return 0;
    fprintf(stderr, "sim: some kind of trouble never came up\n");
    return 1;
}

int main(int argc, char **argv)
{
    static SimModel model;
    Arguments a = read_arguments(argc, argv);
    if (a.bad) {
        fprintf(
            stderr,
            "sim [--seeds N] [--first N] [--all] [--seed N] [--verbose] [--break fence|hash]\n");
        return 2;
    }
    for (int i = 0; i < 6; i++)
        signal((const int[]){SIGILL, SIGTRAP, SIGSEGV, SIGABRT, SIGFPE, SIGALRM}[i], on_signal);
    sim_model_make(&model);
    model.grammars = sim_grammar_open();
    int code = a.broken ? run_broken(&a, &model) : run_all(&a, &model);
    sim_grammar_close(model.grammars);
    sim_model_free(&model);
    return code;
}
