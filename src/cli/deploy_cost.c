/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_cost.h"

#define GIGA 1e9
#define MILLION 1e6

/* ---- Tables */

/* Source  Cloudflare's pages "Workers pricing", "Durable Objects pricing", "R2 pricing", "KV pricing": the
 * paid plan, beyond what it includes each month (1 million requests and 400,000 GB-s of objects, 10 million
 * reads each of R2 and KV, 30 million ms). Calls of one script to another over a service binding are no
 * requests of their own. */
static const char prices_date[] = "August 2026";
static const DeployPrice prices[PRICES_COUNT] = {
    [PRICE_OBJECT_REQUESTS] = {"Durable Object requests", "requests", 0.15, MILLION},
    [PRICE_OBJECT_TIME] = {"Durable Object duration", "GB-s", 12.50, MILLION},
    [PRICE_STORE_READS] = {"R2 reads (class B)", "reads", 0.36, MILLION},
    [PRICE_ROW_READS] = {"KV reads", "reads", 0.50, MILLION},
    [PRICE_ROW_WRITES] = {"KV writes", "writes", 5.00, MILLION},
    [PRICE_CPU] = {"Workers CPU", "ms", 0.02, MILLION},
    [PRICE_STORAGE] = {"R2 storage", "GB-month", 0.015, 1},
    [PRICE_MONTH] = {"Workers paid plan", "month", 5.00, 1},
};

/* An object is charged for 128 MB as long as it works, whatever it uses. */
#define OBJECT_GB 0.128

enum { RATE_WEIGHTS, RATE_STORE, TIME_HOP, TIME_CALL, TIME_FRONT, SHARE_ROW, ASSUMPTIONS };

/* 6 to 9 GB/s of weights in workerd on a Zen 4, less to be careful; the others are guesses that a first
 * hour in production replaces. */
static const DeployAssumption assumptions[ASSUMPTIONS + 1] = {
    [RATE_WEIGHTS] = {"weights multiplied by one object", "GB/s", 5},
    [RATE_STORE] = {"bytes of R2 into one object", "GB/s", 0.1},
    [TIME_HOP] = {"a call to another object and back", "ms", 5},
    [TIME_CALL] = {"an object's work for any call", "ms", 1},
    [TIME_FRONT] = {"CPU of a script in front of its object", "ms", 0.2},
    [SHARE_ROW] = {"a prompt's token, of the work of a written one", "", 0.5},
};

const DeployPrice *deploy_cost_price(DeployPriceId id) { return &prices[id]; }
const char *deploy_cost_prices_date(void) { return prices_date; }
const DeployAssumption *deploy_cost_assumptions(void) { return assumptions; }

/* ---- Seconds */

static double multiply_s(const PlanRole *role)
{
    return (double)role->weight_bytes / (assumptions[RATE_WEIGHTS].value * GIGA);
}
static double stream_s(const DeployRole *role)
{
    return (double)role->isolate.pass_bytes / (assumptions[RATE_STORE].value * GIGA);
}
static double call_s(void) { return assumptions[TIME_CALL].value / 1000; }
static double hop_s(void) { return assumptions[TIME_HOP].value / 1000; }

/* Of a pass of `rows` rows. */
static double role_s(const Deploy *d, uint32_t i, double rows)
{
    return multiply_s(&d->plan.plan.role[i]) * rows + stream_s(&d->role[i]) + call_s();
}

typedef struct Pass {
    double seconds;   /* until its end is known */
    double object_s;  /* of all objects but the coordinator's */
    double slowest_s; /* of the stations */
} Pass;

/* `rows`: in units of a written token's work. The head is that of one row, whatever comes before it. */
static Pass pass_of(const Deploy *d, double rows, bool head)
{
    const PlanRequest *p = &d->plan.plan.request;
    Pass out = {.seconds = hop_s() + call_s(), .object_s = call_s()};
    double shard_s = 0;
    for (uint32_t i = 0; i < p->stations; i++) {
        double s = role_s(d, i, rows);
        out.seconds += s + hop_s();
        out.object_s += s;
        if (s > out.slowest_s) out.slowest_s = s;
    }
    for (uint32_t i = p->stations; head && !p->head && i < d->plan.plan.role_count; i++) {
        double s = role_s(d, i, 1);
        out.object_s += s;
        if (s > shard_s) shard_s = s;
    }
    if (head && !p->head) out.seconds += shard_s + hop_s();
    return out;
}

/* ---- Units */

static bool keeps_all_rows(const Deploy *d)
{
    for (uint32_t i = 0; i < d->plan.plan.role_count; i++)
        if (!d->role[i].keeps_rows) return false;
    return true;
}

/* A row that no shard keeps: from KV where there are shard wardens, and the first time from R2 into it. */
static void add_row(const Deploy *d, DeployUse *use)
{
    if (keeps_all_rows(d)) return;
    use->units[d->plan.request.wardens ? PRICE_ROW_READS : PRICE_STORE_READS] += 1;
}

typedef struct Streams {
    uint64_t streamed_bytes, store_bytes;
    uint32_t store_reads, warden_calls;
} Streams;

/* Of a pass. A warden reads itself what it does not keep, a part for a call. */
static Streams streams_of(const Deploy *d, bool with_head)
{
    const PlanRequest *p = &d->plan.plan.request;
    uint32_t roles = with_head && !p->head ? d->plan.plan.role_count : p->stations;
    bool wardens = d->plan.request.wardens;
    Streams s = {0};
    for (uint32_t i = 0; i < roles; i++) {
        const DeployRole *r = &d->role[i];
        double missed =
            r->isolate.pass_bytes ? (double)r->warden_bytes / (double)r->isolate.pass_bytes : 0;
        s.streamed_bytes += r->isolate.pass_bytes;
        s.store_bytes += wardens ? r->warden_bytes : r->isolate.pass_bytes;
        s.store_reads += wardens ? (uint32_t)(missed * r->warden_calls + 0.5) : r->reads;
        s.warden_calls += wardens ? r->warden_calls : 0;
    }
    return s;
}

/* What wardens do counts as objects too: their calls, and the time in which the bytes pass through. */
static void add_streams(const Streams *s, double rows, DeployUse *use)
{
    double pass_s =
        s->warden_calls ? (double)s->streamed_bytes / (assumptions[RATE_STORE].value * GIGA) : 0;
    use->units[PRICE_OBJECT_REQUESTS] += s->warden_calls / rows;
    use->units[PRICE_OBJECT_TIME] += pass_s * OBJECT_GB / rows;
    use->units[PRICE_STORE_READS] += s->store_reads / rows;
    use->units[PRICE_CPU] += s->warden_calls * assumptions[TIME_FRONT].value / rows;
}

static DeployUse written_of(const Deploy *d, const DeployCost *c, const Pass *pass,
                            const Streams *streams)
{
    DeployUse use = {{0}};
    use.units[PRICE_OBJECT_REQUESTS] = c->calls;
    use.units[PRICE_OBJECT_TIME] = (pass->object_s + pass->seconds) * OBJECT_GB;
    use.units[PRICE_CPU] = c->calls * assumptions[TIME_FRONT].value;
    add_streams(streams, 1, &use);
    add_row(d, &use);
    return use;
}

/* A chunk of a prompt: no head, and the coordinator waits for the slowest station only. */
static DeployUse read_of(const Deploy *d)
{
    const PlanRequest *p = &d->plan.plan.request;
    uint32_t chunk = d->plan.plan.chunk;
    Pass pass = pass_of(d, chunk * assumptions[SHARE_ROW].value, false);
    Streams streams = streams_of(d, false);
    double calls = (double)(p->stations + (p->embed ? 1 : p->shards)) / chunk;
    DeployUse use = {{0}};
    use.units[PRICE_OBJECT_REQUESTS] = calls;
    use.units[PRICE_OBJECT_TIME] = (pass.object_s + pass.slowest_s) / chunk * OBJECT_GB;
    use.units[PRICE_CPU] = calls * assumptions[TIME_FRONT].value;
    add_streams(&streams, chunk, &use);
    add_row(d, &use);
    return use;
}

static double usd_of_million(const DeployUse *use)
{
    double usd = 0;
    for (int i = 0; i < PRICES_PER_TOKEN; i++)
        usd += use->units[i] * MILLION * prices[i].usd / prices[i].per;
    return usd;
}

DeployCost deploy_cost_of(const Deploy *d)
{
    DeployCost c = {.calls = deploy_plan_calls(d)};
    Pass pass = pass_of(d, 1, true);
    c.tokens_per_invocation = deploy_plan_calls_max(d) / c.calls;
    Streams streams = streams_of(d, true);
    c.streamed_bytes = streams.streamed_bytes;
    c.store_bytes = streams.store_bytes;
    c.store_reads = streams.store_reads;
    c.warden_calls = streams.warden_calls;
    c.seconds = pass.seconds;
    c.written = written_of(d, &c, &pass, &streams);
    c.read = read_of(d);
    c.written_usd = usd_of_million(&c.written);
    c.read_usd = usd_of_million(&c.read);
    c.storage_usd = (double)d->model->file.knot.file_bytes / GIGA * prices[PRICE_STORAGE].usd;
    return c;
}
