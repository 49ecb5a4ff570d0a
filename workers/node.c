/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a node: hands out wishes, takes what came of them, answers requests.
 *
 *   IDLE --node_open--> OPENING --node_opened, node_open_failed--> IDLE --node_request--> HEAD --node_next--> RUNNING
 *    ^                                                                                                         |
 *    '------------------------------------------- node_end ----------------------------------------------------' */
#include "node_loop.h"

#include <string.h>

#include "api/metrics.h"
#include "api/node_about.h"
#include "reserve.h"

static Node node;

Node *node_self(void) { return &node; }

/* ---- Wishes ---- */

static bool has_answer(NodeWishKind kind)
{
    return kind != NODE_REPLY && kind != NODE_ROW_PUT && kind != NODE_ROW_DELETE &&
           kind != NODE_LOG && kind != NODE_TELL && kind != NODE_DONE;
}

void node_want_batch(Node *n, const NodeWish *wishes, uint32_t count, NodeThen *then)
{
    NodeLoop *l = &n->loop;
    ASSERT(count && count <= NODE_BATCH_MAX && l->wish_at == l->wish_count);
    memmove(l->wish, wishes, count * sizeof *wishes);
    l->wish_count = count;
    l->wish_at = l->came_count = 0;
    l->then = then;
}

void node_want(Node *n, const NodeWish *wish, NodeThen *then) { node_want_batch(n, wish, 1, then); }

void node_want_read(Node *n, uint64_t offset, uint32_t bytes, uint8_t *to, NodeThen *then)
{
    NodeWish wish = {.kind = NODE_READ, .offset = offset, .bytes = bytes, .address = to};
    node_want(n, &wish, then);
}

void node_want_call(Node *n, const char *head, const uint8_t *body, uint32_t body_bytes,
                    uint8_t *answer, uint32_t answer_bytes, NodeThen *then)
{
    NodeWish wish = {.kind = NODE_CALL,
                     .text = head,
                     .address = (uint8_t *)(uintptr_t)body,
                     .bytes = body_bytes,
                     .answer = answer,
                     .answer_bytes = answer_bytes};
    node_want(n, &wish, then);
}

void node_want_rows(Node *n, const char *key_begins, uint8_t *to, uint32_t bytes, NodeThen *then)
{
    NodeWish wish = {.kind = NODE_ROWS, .text = key_begins, .address = to, .bytes = bytes};
    node_want(n, &wish, then);
}

/* ---- Lines and words in between ---- */

void node_log(Node *n, const char *what, Error error, const Why *why)
{
    JsonWriter w = json_writer_make(n->loop.line, sizeof n->loop.line - 1);
    const char *const parts[] = {
        "cobord: ", n->id, ": ", what, ": ", why && why->text[0] ? why->text : error_text(error)};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) json_writer_raw(&w, parts[i]);
    n->loop.line[w.used] = '\0';
}

/* Whether there is one: it is then the wish. */
static bool take_aside(NodeLoop *l)
{
    if (l->tell_count) {
        l->aside = (NodeWish){.kind = NODE_TELL, .text = l->tells[--l->tell_count]};
        return true;
    }
    l->aside = (NodeWish){.kind = NODE_DONE};
    if (!l->line[0]) return false;
    memcpy(l->text, l->line, sizeof l->line);
    l->line[0] = '\0';
    l->aside = (NodeWish){.kind = NODE_LOG, .text = l->text};
    return true;
}

/* ---- Answers ---- */

static void count_status(Node *n, unsigned status)
{
    if (status < 400) return;
    if (status == 500) n->counts.failed++;
    else n->counts.refused++;
}

static void reply(Node *n, unsigned status, const char *type, const char *allow, const void *bytes,
                  size_t count, NodeThen *then)
{
    NodeWish wish = {.kind = NODE_REPLY,
                     .status = status,
                     .text = type,
                     .allow = allow,
                     .address = (uint8_t *)(uintptr_t)bytes,
                     .bytes = (uint32_t)count,
                     .seconds = node_gate_retry_s(status)};
    ASSERT(!n->request.replied);
    n->request.replied = true;
    node_want(n, &wish, then);
}

void node_reply(Node *n, unsigned status, const char *type, const void *bytes, size_t count,
                NodeThen *then)
{
    reply(n, status, type, NULL, bytes, count, then);
}

static void reply_error(Node *n, unsigned status, const char *allow, Error error, const Why *why,
                        NodeThen *then)
{
    count_status(n, status);
    size_t bytes = node_error_write(error, why, n->loop.error);
    reply(n, status, NODE_GATE_JSON, allow, n->loop.error, bytes, then);
}

void node_reply_error(Node *n, Error error, const Why *why, NodeThen *then)
{
    reply_error(n, node_error_status(error), NULL, error, why, then);
}

void node_end(Node *n)
{
    n->loop.then = NULL;
    n->loop.stage = NODE_IDLE;
}

void node_opened(Node *n)
{
    n->loop.opened = true;
    node_end(n);
}

void node_open_failed(Node *n, Error error, const Why *why)
{
    n->open_error = error;
    n->open_why = *why;
    n->loop.failed = true;
    node_log(n, "opening", error, why);
    node_end(n);
}

/* ---- What every node answers ---- */

static void say_health(Node *n)
{
    node_reply(n, 200, NODE_GATE_JSON, NODE_GATE_HEALTH_BODY, sizeof NODE_GATE_HEALTH_BODY - 1,
               node_end);
}

static void say_ready(Node *n)
{
    bool ready = n->role->ready(n, n->loop.text, sizeof n->loop.text);
    node_reply(n, ready ? 200 : 503, NODE_GATE_JSON, n->loop.text, strlen(n->loop.text), node_end);
}

static void write_store(const Node *n, JsonWriter *w)
{
    metrics_write_count(w, "cobord_node_store_reads_total", "Reads of the store.", n->store_reads);
    metrics_write_count(w, "cobord_node_store_bytes_total", "Bytes read from it.", n->store_bytes);
}

static void say_metrics(Node *n)
{
    NodeFigures f = {.requests = n->counts.requests,
                     .refused = n->counts.refused,
                     .failed = n->counts.failed,
                     .unauthorized = n->counts.unauthorized,
                     .abandoned = n->counts.abandoned,
                     .running = 1,
                     .memory_bytes = reserve_bytes(),
                     .memory_peak_bytes = reserve_bytes()};
    JsonWriter w = json_writer_make(n->loop.text, sizeof n->loop.text - 1);
    node_about_figures(&f, &w);
    write_store(n, &w);
    ASSERT(!w.full);
    n->loop.text[w.used] = '\0';
    n->role->metrics(n, n->loop.text + w.used, sizeof n->loop.text - w.used);
    node_reply(n, 200, NODE_GATE_METRICS_TEXT, n->loop.text, strlen(n->loop.text), node_end);
}

/* ---- Requests ---- */

static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (end) *end = '\0';
    *at = end ? end + 1 : line + strlen(line);
    return line;
}

static void take_header(NodeHeaders *h, NodeGateHead *head, const char *name, const char *value)
{
    const struct {
        const char *name, **to;
    } known[] = {{"x-knot-id", &h->knot_id},
                 {"x-knot-key", &h->knot_key},
                 {"x-layer-start", &h->layer_first},
                 {"x-layer-end", &h->layer_last},
                 {"x-vocab-start", &h->id_first},
                 {"x-vocab-end", &h->id_last},
                 {"authorization", &head->authorization}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0) *known[i].to = value;
    if (strcmp(name, "content-length") != 0) return;
    for (head->announced = 0; *value >= '0' && *value <= '9'; value++)
        if (__builtin_mul_overflow(head->announced, 10u, &head->announced) ||
            __builtin_add_overflow(head->announced, (unsigned)(*value - '0'), &head->announced))
            head->announced = UINT64_MAX;
}

static void look(Node *n, const NodeGateHead *head)
{
    NodeLoop *l = &n->loop;
    NodeGate gate = {n->role->routes, n->role->route_count, n->key, n->body_bytes_max};
    node_gate_look(&gate, head, &l->pass);
    if (l->pass.kind == NODE_GATE_REFUSED && l->pass.error == ERR_KEY) n->counts.unauthorized++;
    if (!l->failed || l->pass.kind == NODE_GATE_HEALTH || l->pass.error == ERR_KEY) return;
    l->pass = (NodeGatePass){.kind = NODE_GATE_REFUSED,
                             .status = node_error_status(n->open_error),
                             .error = n->open_error,
                             .why = n->open_why};
}

Error node_take_request(Node *n, char *text)
{
    NodeLoop *l = &n->loop;
    NodeGateHead head = {0};
    if (l->stage != NODE_IDLE || (!l->opened && !l->failed)) return ERR_USAGE;
    n->request = (NodeRequest){.query = l->query};
    head.method = next_line(&text);
    char *target = strchr(head.method, ' ');
    if (!target) return ERR_FORMAT;
    *target++ = '\0';
    l->query_fits = node_gate_decode(target, strlen(target), l->path, l->query);
    head.path = l->path;
    while (*text) {
        char *line = next_line(&text), *value = strstr(line, ": ");
        if (!value) continue;
        *value = '\0';
        take_header(&n->request.headers, &head, line, value + 2);
    }
    look(n, &head);
    n->request.tail = l->pass.tail;
    l->stage = NODE_HEAD;
    return OK;
}

uint32_t node_body_limit(const Node *n)
{
    bool wanted = n->loop.stage == NODE_HEAD && n->loop.pass.kind == NODE_GATE_ROUTE;
    return wanted ? (uint32_t)n->body_bytes_max : 0;
}

static void refuse(NodeLoop *l, Error error)
{
    Why why = l->pass.why;
    l->pass = (NodeGatePass){
        .kind = NODE_GATE_REFUSED, .status = node_error_status(error), .error = error, .why = why};
}

uint8_t *node_body_room(Node *n, uint32_t bytes)
{
    NodeLoop *l = &n->loop;
    if (l->stage != NODE_HEAD || l->pass.kind != NODE_GATE_ROUTE) return NULL;
    if (bytes > n->body_bytes_max)
        refuse(l, node_gate_body_too_large(n->body_bytes_max, &l->pass.why));
    else if (!l->query_fits) refuse(l, node_gate_query_too_long(&l->pass.why));
    if (l->pass.kind != NODE_GATE_ROUTE) return NULL;
    n->request.body = n->body;
    n->request.body_bytes = bytes;
    return n->body;
}

static void run_request(Node *n)
{
    const NodeGatePass *pass = &n->loop.pass;
    n->loop.stage = NODE_RUNNING;
    switch (pass->kind) {
    case NODE_GATE_HEALTH: say_health(n); return;
    case NODE_GATE_READY: say_ready(n); return;
    case NODE_GATE_METRICS: say_metrics(n); return;
    case NODE_GATE_REFUSED:
        reply_error(n, pass->status, pass->allow, pass->error, &pass->why, node_end);
        return;
    case NODE_GATE_ROUTE: break;
    }
    if (!n->request.body) { /* the host did not say that it has none */
        n->request.body = n->body;
        n->request.body_bytes = 0;
    }
    n->counts.requests++;
    n->role->run(n, pass->route);
}

const NodeWish *node_full_wish(Node *n)
{
    static char body[NODE_ERROR_BYTES_MAX];
    static NodeWish wish;
    Why why;
    Error error = node_gate_queue_full(&why);
    unsigned status = node_error_status(error);
    wish = (NodeWish){.kind = NODE_REPLY,
                      .status = status,
                      .text = NODE_GATE_JSON,
                      .address = (uint8_t *)body,
                      .bytes = (uint32_t)node_error_write(error, &why, body),
                      .seconds = node_gate_retry_s(status)};
    n->loop.aside = wish;
    return &wish;
}

/* ---- The loop ---- */

static uint32_t answers_wanted(const NodeLoop *l)
{
    return l->wish_count && has_answer(l->wish[0].kind) ? l->wish_count : 0;
}

/* A host that goes on without a word has not carried it out. */
static void settle(Node *n)
{
    NodeLoop *l = &n->loop;
    for (uint32_t wanted = answers_wanted(l); l->came_count < wanted; l->came_count++)
        n->came[l->came_count] = (NodeCame){.failed = true};
    l->wish_count = l->wish_at = 0;
}

static void advance(Node *n)
{
    NodeLoop *l = &n->loop;
    settle(n);
    if (l->stage == NODE_HEAD) {
        run_request(n);
        return;
    }
    NodeThen *then = l->then;
    l->then = NULL;
    if (then) then(n);
}

NodeWishKind node_step(Node *n, uint64_t now_ms)
{
    NodeLoop *l = &n->loop;
    n->now_ms = now_ms;
    while (l->wish_at == l->wish_count) {
        if (take_aside(l)) return l->aside.kind;
        if (l->stage == NODE_IDLE) return NODE_DONE;
        advance(n);
        ASSERT(l->stage == NODE_IDLE || l->wish_count || l->then);
    }
    l->aside = (NodeWish){.kind = NODE_DONE};
    return l->wish[l->wish_at++].kind;
}

bool node_has_more(const Node *n)
{
    const NodeLoop *l = &n->loop;
    return l->aside.kind == NODE_DONE && l->wish_at && l->wish_at < l->wish_count;
}

const NodeWish *node_wish(const Node *n)
{
    const NodeLoop *l = &n->loop;
    return l->aside.kind != NODE_DONE || !l->wish_at ? &l->aside : &l->wish[l->wish_at - 1];
}

static void take_came(Node *n, NodeCame came)
{
    NodeLoop *l = &n->loop;
    if (l->came_count >= answers_wanted(l)) return;
    if (l->wish[l->came_count].kind == NODE_READ && !came.failed) {
        n->store_reads++;
        n->store_bytes += came.bytes;
    }
    n->came[l->came_count++] = came;
}

void node_came(Node *n, uint32_t status, uint64_t bytes)
{
    take_came(n, (NodeCame){.status = status, .bytes = bytes});
}

void node_came_not(Node *n, const char *text)
{
    NodeLoop *l = &n->loop;
    (void)error_why(&n->failure, ERR_UNREACHABLE, "%s", text);
    take_came(n, (NodeCame){.failed = true});
    if (l->stage != NODE_HEAD) return;
    n->counts.abandoned++;
    if (l->pass.kind == NODE_GATE_ROUTE)
        refuse(l, error_why(&l->pass.why, ERR_AGAIN, "the body did not come: %s", text));
}
