/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed says: how the cluster is cut, what is asked of it, and what goes wrong. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define PICK(r, ...)                                   \
    ((const uint32_t[]){__VA_ARGS__}[sim_random_below( \
        (r), sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))])

/* --- The cluster --- */

/* `count` - 1 cuts of 1 .. n - 1, rising and different, between 0 and n. */
static void cut_up(SimRandom *r, uint32_t n, uint32_t count, uint32_t *bounds)
{
    bounds[0] = 0;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t low = bounds[i - 1] + 1, high = n - (count - i);
        uint32_t fair = bounds[i - 1] + (n - bounds[i - 1]) / (count - i + 1);
        bounds[i] = sim_random_below(r, 2) ? (uint32_t)sim_random_between(r, low, high)
                    : fair < low           ? low
                    : fair > high          ? high
                                           : fair;
    }
    bounds[count] = n;
}

static void make_cluster(SimScenario *p, SimRandom *r)
{
    uint32_t bounds[SIM_STATIONS_MAX + SIM_SHARDS_MAX + 1];
    p->stations = 1 + sim_random_below(r, SIM_STATIONS_MAX);
    p->shards = 1 + sim_random_below(r, SIM_SHARDS_MAX);
    cut_up(r, SIM_LAYERS * PHASES, p->stations, bounds);
    uint32_t replicas = PICK(r, 0, 3000, 10000);
    for (uint32_t i = 0; i < p->stations; i++) {
        p->range[i] = (PhaseRange){bounds[i], bounds[i + 1]};
        p->station_replica[i] = sim_random_chance(r, replicas);
    }
    cut_up(r, SIM_VOCABULARY, p->shards, bounds);
    for (uint32_t i = 0; i < p->shards; i++) {
        p->id_first[i] = bounds[i];
        p->id_last[i] = bounds[i + 1];
        p->shard_replica[i] = sim_random_chance(r, replicas);
    }
    p->slots = 1 + sim_random_below(r, SIM_SLOTS_MAX);
    p->sessions = p->slots + sim_random_below(r, 3);
    p->frames = PICK(r, 0, 1, 2, 3, 5);
    p->logit_rows = 1 + sim_random_below(r, p->slots);
    p->chunk = PICK(r, 4, 5, 8, 16, 40);
    if (p->chunk < p->slots) p->chunk = p->slots;
    p->context = PICK(r, 30, 64, 65, SIM_CONTEXT_MAX);
    p->cache = sim_random_below(r, 4) ? CACHE_F16 : CACHE_Q8_0;
    p->tile_bytes = PICK(r, 0, 1, 2000);
}

/* Of ten seeds three: one or both of the stations at the ends do the work of shards. */
static void make_ends(SimScenario *p, uint64_t seed)
{
    SimRandom r = {seed * UINT64_C(0x9e3779b97f4a7c15)};
    uint32_t ends = sim_random_below(&r, 10);
    p->embed = ends == 0 || ends == 2;
    p->head = ends == 1 || ends == 2;
    if (p->embed && p->head) p->shards = 0;
}

/* Drafts, scores, sums and copies, by numbers of their own: what a seed says besides stays what it was. */
static void make_extras(Sim *s)
{
    SimScenario *p = &s->plan;
    SimRandom r = {s->seed * UINT64_C(0xd1342543de82ef95) + 7};
    p->drafts = PICK(&r, 0, 1, 3, 7);
    p->wrong_drafts = PICK(&r, 0, 1000, 4000, 9000);
    p->logit_rows += sim_random_below(&r, 2 * p->drafts + 1);
    for (uint32_t i = 0; i < p->request_count; i++) {
        SimRequest *q = &s->requests[i];
        q->forks = sim_random_below(&r, 2);
        q->forgets_source = sim_random_below(&r, 3) == 0;
        q->copies =
            q->follows < 0 && i && sim_random_below(&r, 2) ? (int)sim_random_below(&r, i) : -1;
        q->scores = sim_random_below(&r, 4) == 0;
        q->tops = PICK(&r, 0, 1, 5, COORDINATOR_TOPS_MAX);
        q->score_from =
            sim_random_below(&r, 2) ? 1 + sim_random_below(&r, q->prompt_count) : UINT32_MAX;
        q->pools = sim_random_below(&r, 12) == 0;
        if (p->drafts && sim_random_below(&r, 4)) /* there are no guesses with penalties */
            q->params.repetition_penalty = 1,
            q->params.presence_penalty = q->params.frequency_penalty = 0;
        if (!q->pools) continue;
        q->tokens_max = 0;
        q->scores = false;
    }
}

/* Some answers follow a grammar; those are not guessed for. By numbers of their own, too. */
static void make_grammars(Sim *s)
{
    SimRandom r = {s->seed * UINT64_C(0x9fb21c651e98df25) + 11};
    for (uint32_t i = 0; i < s->plan.request_count; i++) {
        SimRequest *q = &s->requests[i];
        bool has = sim_random_below(&r, 4) == 0 && q->tokens_max;
        q->grammar = has ? (int)sim_random_below(&r, SIM_GRAMMARS) : -1;
    }
}

/* --- Faults --- */

static void make_network(SimScenario *p, SimRandom *r, bool bad)
{
    p->delay_ns = PICK(r, 20, 200, 2000) * SIM_US;
    p->jitter_ns = PICK(r, 0, 100, 3000, 40000) * SIM_US;
    p->compute_ns = PICK(r, 20, 300, 3000) * SIM_US;
    p->compute_jitter_ns = PICK(r, 0, 200, 5000) * SIM_US;
    p->skips_gone = sim_random_below(r, 3) == 0;
    if (!bad) return;
    p->drop = PICK(r, 0, 50, 300, 1000);
    p->twice = PICK(r, 0, 100, 1000);
    p->corrupt = PICK(r, 0, 50, 300, 1000);
    p->cut_short = PICK(r, 0, 0, 100);
    p->gateway = PICK(r, 0, 0, 100);
    p->own_is_broken = sim_random_below(r, 6) == 0;
}

/* About how long there will be work, so that most faults meet some. */
static uint64_t busy_ns(const Sim *s, uint64_t span_ns)
{
    const SimScenario *p = &s->plan;
    uint64_t hop_ns = 2 * p->delay_ns + p->jitter_ns + p->compute_ns + p->compute_jitter_ns / 2;
    uint64_t steps = 0;
    for (uint32_t i = 0; i < p->request_count; i++)
        steps += s->requests[i].prompt_count / p->chunk + 1 + s->requests[i].tokens_max / 2;
    uint64_t busy = span_ns + steps * hop_ns * (p->stations + 2) / p->slots;
    return busy < 2 * SIM_S ? busy : 2 * SIM_S;
}

static void add_fault(SimScenario *p, SimRandom *r, SimFaultKind kind, uint32_t nodes,
                      uint64_t busy)
{
    if (p->fault_count == SIM_FAULTS_MAX) return;
    SimFault *f = &p->faults[p->fault_count++];
    uint64_t until = sim_random_below(r, 4) ? busy : 2 * SIM_S;
    uint32_t stations = p->stations; /* they have something to lose */
    for (uint32_t i = 0; i < p->stations; i++) stations += p->station_replica[i];
    if (sim_random_below(r, 2)) nodes = 1 + stations;
    *f = (SimFault){.kind = kind,
                    .at_ns = sim_random_between(r, 0, until),
                    .node = 1 + sim_random_below(r, nodes - 1),
                    .silent = sim_random_below(r, 3) == 0};
    f->duration_ns =
        kind == SIM_RESTART
            ? 0
            : sim_random_between(r, SIM_MS, PICK(r, 3, 20, 100, 400, 4000, 8000) * SIM_MS);
    if (sim_random_below(r, 3))
        f->after = 1 + sim_random_below(r, kind < SIM_RESTART ? PICK(r, 6, 40) : PICK(r, 30, 200));
    if (f->at_ns + f->duration_ns > p->calm_ns) p->calm_ns = f->at_ns + f->duration_ns;
}

static void make_faults(SimScenario *p, SimRandom *r, bool bad, uint64_t busy)
{
    uint32_t nodes = 1 + p->stations + p->shards;
    for (uint32_t i = 0; i < p->stations; i++) nodes += p->station_replica[i];
    for (uint32_t i = 0; i < p->shards; i++) nodes += p->shard_replica[i];
    p->calm_ns = PICK(r, 300, 1000, 3000) * SIM_MS;
    for (SimFaultKind kind = 0; bad && kind < SIM_FAULT_KINDS; kind++)
        for (uint32_t n = PICK(r, 0, 1, 1, 2); n; n--) add_fault(p, r, kind, nodes, busy);
}

/* --- Requests --- */

static float pick_float(SimRandom *r, float a, float b, float c)
{
    uint32_t n = sim_random_below(r, 3);
    return n == 0 ? a : n == 1 ? b : c;
}

static void make_params(SimRequest *q, SimRandom *r)
{
    SamplerParams *p = &q->params;
    *p = sampler_defaults();
    if (sim_random_below(r, 5) > 1) {
        p->temperature = pick_float(r, 0.7f, 1.0f, 1.6f);
        p->seed = sim_random_next(r);
        p->top_k = PICK(r, 0, 0, 5, 40);
        p->top_p = pick_float(r, 1, 0.95f, 0.6f);
        p->min_p = pick_float(r, 0, 0, 0.05f);
    }
    p->repetition_penalty = pick_float(r, 1, 1.1f, 1.3f);
    p->presence_penalty = pick_float(r, 0, 0, 0.5f);
    p->frequency_penalty = pick_float(r, 0, 0, 0.3f);
    p->repeat_window = PICK(r, 0, 8, 64);
    uint32_t biases = PICK(r, 0, 0, 1, SIM_BIASES_MAX);
    for (uint32_t i = 0; i < biases; i++)
        q->bias[i] =
            (SamplerBias){.id = 7 * i + sim_random_below(r, 7), .bias = pick_float(r, -100, 2, 5)};
    p->bias = q->bias;
    p->bias_count = biases;
}

static void make_request(Sim *s, SimRandom *r, uint32_t i, uint64_t span_ns, bool *followed)
{
    SimRequest *q = &s->requests[i];
    *q = (SimRequest){.follows = -1, .copies = -1, .source = -1, .cancel_after_ns = SIM_NEVER};
    for (uint32_t j = 0; j < i; j++)
        if (!followed[j] && sim_random_below(r, 3) == 0) q->follows = (int)j;
    if (q->follows >= 0) followed[q->follows] = true;
    q->keep = PICK(r, 2, 10, SIM_CONTEXT_MAX, SIM_CONTEXT_MAX);
    q->forgets = sim_random_below(r, 5) == 0;
    uint32_t most = q->follows >= 0 ? PICK(r, 3, 16) : PICK(r, 6, 20, s->plan.context - 1);
    q->prompt_count = 1 + sim_random_below(r, most);
    for (uint32_t n = 0; n < q->prompt_count; n++) {
        q->prompt[n] = sim_random_below(r, SIM_VOCABULARY);
        if (q->prompt[n] == SIM_POISON_ID) q->prompt[n]++;
    }
    if (sim_random_below(r, 40) == 0)
        q->prompt[sim_random_below(r, q->prompt_count)] = SIM_POISON_ID;
    q->tokens_max = sim_random_below(r, 50) ? 1 + sim_random_below(r, PICK(r, 4, 20, 60)) : 0;
    q->at_ns = sim_random_between(r, 0, q->follows >= 0 ? span_ns / 16 : span_ns);
    if (sim_random_below(r, 5) == 0)
        q->cancel_after_ns = sim_random_between(r, 0, PICK(r, 5, 100, 1000) * SIM_MS);
    make_params(q, r);
}

/* Weather in which late twins come often, and to conversations that have taken another turn since. */
static void invite_twins(Sim *s)
{
    s->plan.twice = 3000;
    s->plan.fault_count = 0;
    for (uint32_t i = 0; i < s->plan.request_count; i++) {
        SimRequest *q = &s->requests[i];
        q->tokens_max = q->tokens_max % 4 + 1;
        q->cancel_after_ns = SIM_NEVER;
        q->forgets = false;
        if (q->follows < 0) continue;
        q->at_ns = 0;
        q->keep = i % 2 ? 2 : 10;
    }
}

void sim_scenario_make(Sim *s)
{
    SimScenario *p = &s->plan;
    SimRandom r = {s->seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
    bool followed[SIM_REQUESTS_MAX] = {false};
    *p = (SimScenario){0};
    make_cluster(p, &r);
    make_ends(p, s->seed);
    uint32_t weather = sim_random_below(&r, 8); /* 0 fair, 1 and 2 one kind of trouble, else both */
    make_network(p, &r, weather != 0 && weather != 1);
    p->request_count = 1 + sim_random_below(&r, SIM_REQUESTS_MAX);
    uint64_t span_ns = PICK(&r, 0, 50, 500) * SIM_MS;
    for (uint32_t i = 0; i < p->request_count; i++) make_request(s, &r, i, span_ns, followed);
    make_faults(p, &r, weather != 0 && weather != 2, busy_ns(s, span_ns));
    if (sim_random_below(&r, 10) == 0 || s->broken == SIM_BREAK_FENCE) invite_twins(s);
    make_extras(s);
    make_grammars(s);
    s->random.state = sim_random_next(&r);
}

/* --- For people --- */

static void print_requests(const Sim *s, FILE *out)
{
    for (uint32_t i = 0; i < s->plan.request_count; i++) {
        const SimRequest *q = &s->requests[i];
        fprintf(out,
                "  request %u at %.3f ms: %u ids, %u tokens, temperature %.1f top_k %u top_p %.2f",
                i, (double)q->at_ns / 1e6, q->prompt_count, q->tokens_max,
                (double)q->params.temperature, q->params.top_k, (double)q->params.top_p);
        if (q->scores) fprintf(out, ", scores from %d and %u tops", (int)q->score_from, q->tops);
        if (q->pools) fprintf(out, ", a sum");
        if (q->grammar >= 0) fprintf(out, ", by grammar %d", q->grammar);
        if (q->copies >= 0) fprintf(out, ", a copy of request %d", q->copies);
        if (q->follows >= 0 && q->forks) fprintf(out, ", in a copy");
        if (q->follows >= 0) fprintf(out, ", after %u tokens of request %d", q->keep, q->follows);
        if (q->cancel_after_ns != SIM_NEVER)
            fprintf(out, ", cancelled after %.3f ms", (double)q->cancel_after_ns / 1e6);
        fputc('\n', out);
    }
}

void sim_scenario_print(const Sim *s, FILE *out)
{
    static const char *const kinds[] = {"crash", "freeze", "drain", "cut", "restart", "stall"};
    const SimScenario *p = &s->plan;
    char text[PHASE_RANGE_TEXT_MAX];
    fprintf(out, "seed %llu:", (unsigned long long)s->seed);
    for (uint32_t i = 0; i < p->stations; i++)
        fprintf(out, " %s%s", phase_range_text(p->range[i], SIM_LAYERS, text),
                p->station_replica[i] ? "*2" : "");
    fprintf(out, "%s%s | ", p->embed ? " embed" : "", p->head ? " head" : "");
    for (uint32_t i = 0; i < p->shards; i++)
        fprintf(out, "%u-%u%s ", p->id_first[i], p->id_last[i], p->shard_replica[i] ? "*2" : "");
    fprintf(
        out,
        "\n  context %u chunk %u slots %u sessions %u frames %u logit rows %u drafts %u cache %s\n",
        p->context, p->chunk, p->slots, p->sessions, p->frames, p->logit_rows, p->drafts,
        p->cache == CACHE_F16 ? "f16" : "q8_0");
    fprintf(
        out,
        "  delay %.2f..%.2f ms, compute %.2f..%.2f ms; of 10,000: %u dropped %u twice %u damaged "
        "%u cut short %u refused by a gateway; calm after %.0f ms%s%s\n",
        (double)p->delay_ns / 1e6, (double)(p->delay_ns + p->jitter_ns) / 1e6,
        (double)p->compute_ns / 1e6, (double)(p->compute_ns + p->compute_jitter_ns) / 1e6, p->drop,
        p->twice, p->corrupt, p->cut_short, p->gateway, (double)p->calm_ns / 1e6,
        p->skips_gone ? ", nodes leave out requests of who has left" : "",
        p->own_is_broken ? ", the coordinator's own store is broken" : "");
    for (uint32_t i = 0; i < p->fault_count; i++) {
        const SimFault *f = &p->faults[i];
        const char *who = f->kind >= SIM_RESTART ? "coordinator-0" : sim_nodes_name(s, f->node);
        fprintf(out, "  %s of %s for %.3f ms%s", kinds[f->kind], who, (double)f->duration_ns / 1e6,
                f->silent ? ", silent" : "");
        if (f->after) fprintf(out, ", at request %u\n", f->after);
        else fprintf(out, ", at %.3f ms\n", (double)f->at_ns / 1e6);
    }
    print_requests(s, out);
}
