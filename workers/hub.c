/* SPDX-License-Identifier: Apache-2.0 */
#include "hub.h"

#include "api/refusal.h"
#include "base/min.h"
#include "exchange.h"
#include "machine.h"
#include "serve/machine.h"
#include "serve/serve_cors.h"
#include "streams.h"

enum { WAIT_NS_MAX = 1000000000 };

/* ---- Wishes ---- */

static HubWishKind wish_of_exchange(Hub *hub, uint64_t now_ns)
{
    static const HubWishKind kinds[] = {[EXCHANGE_REPLY] = HUB_REPLY,
                                        [EXCHANGE_STREAM] = HUB_STREAM,
                                        [EXCHANGE_WRITE] = HUB_WRITE,
                                        [EXCHANGE_END] = HUB_END};
    ExchangeWish x;
    if (!exchange_next(now_ns, &x)) return HUB_REST;
    hub->wish = (HubWish){.number = x.number,
                          .text = x.type,
                          .allow = x.allow,
                          .headers = x.headers,
                          .status = x.status,
                          .retry_s = x.retry_s,
                          .parts = {x.bytes},
                          .part_bytes = {x.count}};
    return kinds[x.kind];
}

static HubWishKind wish_of_streams(Hub *hub)
{
    StreamsWish s;
    if (!streams_next(&s)) return HUB_REST;
    hub->wish =
        (HubWish){.number = s.number, .text = s.key, .parts = {s.bytes}, .part_bytes = {s.count}};
    return s.kind == STREAMS_PUT ? HUB_ROW_PUT : HUB_ROW_DELETE;
}

/* Calls come first: while they are under way there is time for the rest. */
static HubWishKind take_wish(Hub *hub, uint64_t now_ns)
{
    HubWishKind kind = hub->stage == HUB_OPEN ? hub_calls_next(hub, now_ns) : hub_open_next(hub);
    if (kind == HUB_REST) kind = wish_of_exchange(hub, now_ns);
    if (kind == HUB_REST) kind = wish_of_streams(hub);
    if (kind != HUB_REST) return kind;
    LogLevel level = LOG_INFO;
    const char *line = machine_take_line(&level);
    hub->wish = (HubWish){.text = line, .status = (unsigned)level};
    return hub->wish.text ? HUB_LOG : HUB_REST;
}

/* Result  whether there may be more to do at once. */
static bool work(Hub *hub)
{
    if (hub->stage != HUB_OPEN) return false;
    hub->again = false;
    if (hub->intakes) {
        hub->intakes--;
        return serve_intake_take(hub->serve);
    }
    return serve_turn(hub->serve) == SERVE_WORKED || hub->again;
}

static HubWishKind rest_or_wait(Hub *hub, uint64_t now_ns)
{
    bool open = hub->stage == HUB_OPEN;
    if (!exchange_count() && !(open && (pipeline_is_busy(hub->pipeline) || hub_calls_out(hub)))) {
        machine_rest();
        return HUB_REST;
    }
    uint64_t wake = min_u64(exchange_wake_ns(), now_ns + WAIT_NS_MAX);
    if (open)
        wake = min_u64(min_u64(wake, hub_watch_wake_ns(hub)),
                       min_u64(pipeline_wake_ns(hub->pipeline), hub_calls_wake_ns(hub)));
    hub->wish = (HubWish){.wait_ms = wake > now_ns ? (double)((wake - now_ns) / 1000000 + 1) : 0};
    return HUB_WAIT;
}

HubWishKind hub_next(Hub *hub, double now_ms)
{
    machine_set_time(now_ms);
    uint64_t now_ns = machine_now_ns();
    if (hub->stage == HUB_OPEN) hub_calls_expire(hub, now_ns);
    for (;;) {
        HubWishKind kind = take_wish(hub, now_ns);
        if (kind != HUB_REST) return kind;
        if (work(hub)) continue;
        kind = take_wish(hub, now_ns);
        if (kind != HUB_REST) return kind;
        if (!hub->again) return rest_or_wait(hub, now_ns);
    }
}

/* ---- Requests ---- */

static void refuse(const Hub *hub, HttpExchange *x)
{
    Refusal refusal;
    char body[REFUSAL_JSON_MAX];
    JsonWriter w = json_writer_make(body, sizeof body);
    (void)refusal_make(&refusal, REFUSAL_UNREADY, NULL, "the coordinator did not start: %s: %s",
                       error_text(hub->error), hub->why.text);
    refusal_write(&refusal, &w);
    serve_cors_add(hub->cors[0] ? hub->cors : NULL, x);
    http_reply(
        x,
        &(HttpReply){refusal_status(&refusal), "application/json", NULL, refusal_retry_s(&refusal)},
        body, w.used);
}

uint32_t hub_request(Hub *hub, const char *head, size_t bytes)
{
    HttpExchange *x = exchange_open(head, bytes);
    if (!x) return 0;
    if (hub->stage == HUB_OPEN) serve_routes_head(hub->serve, x);
    else refuse(hub, x);
    return exchange_number(x);
}

uint8_t *hub_body(Hub *hub, uint32_t number, size_t bytes)
{
    (void)hub;
    HttpExchange *x = exchange_find(number);
    return x ? exchange_body(x, bytes) : NULL;
}

void hub_body_end(Hub *hub, uint32_t number)
{
    HttpExchange *x = exchange_find(number);
    if (!x || exchange_is_answered(x)) return;
    if (!hub_watch_takes(hub, x)) serve_routes_request(hub->serve, x);
}

void hub_gone(Hub *hub, uint32_t number)
{
    HttpExchange *x = exchange_find(number);
    if (!x) return;
    exchange_gone(x);
    hub->again = true;
}

void hub_written(Hub *hub, uint32_t number)
{
    HttpExchange *x = exchange_find(number);
    if (!x) return;
    exchange_written(x);
    hub->again = true;
}
