/* SPDX-License-Identifier: Apache-2.0 */
/* A host for a warden's instance, without WebAssembly: carries out the wishes of workers/node_warden*.c over a knot in
 * memory and a handful of values. Each wish may be made to fail, to bring a wrong bit, or too few bytes. */
#ifndef COBORD_TESTS_WARDEN_RIG_H
#define COBORD_TESTS_WARDEN_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "host/encode_loop.h"
#include "host/knot_file.h"
#include "host/knot_source.h"
#include "host/places.h"
#include "host/pool.h"
#include "knot/synth.h"
#include "node_warden.h"
#include "quant/numerics.h"

enum { RIG_ARENA = 64 << 20, RIG_VALUES_MAX = 512, RIG_TAKES_MAX = 64, RIG_ALWAYS = 1 << 30 };
typedef enum RigFault { RIG_FAILS, RIG_WRONG, RIG_SHORT, RIG_FAULTS } RigFault;

typedef struct RigValue {
    char key[ROW_VALUE_KEY_BYTES];
    uint8_t *bytes;
    size_t length;
} RigValue;

static struct Rig {
    char folder[64];
    KnotFile file; /* the bucket's object */
    RigValue values[RIG_VALUES_MAX];
    uint32_t value_count;
    Node node;
    NodeThen *then; /* goes on when the wishes have been carried out */
    NodeWish wish[NODE_BATCH_MAX];
    uint32_t wish_count;
    void *takes[RIG_TAKES_MAX];
    uint32_t take_count;
    uint64_t taken;
    char settings[4][16];
    int wishes, fault_at,
        fault_times; /* wish number fault_at, and fault_times - 1 more, have `fault` */
    RigFault fault;
    bool done, opened;
    unsigned status;
    uint8_t *reply;
    size_t reply_bytes;
    Error error;
    Why why;
} rig;

/* --- the knot --- */

static const SynthShape rig_shape = {"rig", "qwen2", 8,    512, 2048, 8, 2,
                                     64,    2000,    2000, 512, 1e6f, 0, false};

static Error rig_rows(void *context, uint32_t source, uint64_t offset, uint8_t *out, size_t bytes,
                      Why *why)
{
    (void)why;
    const EncodeInput *input = context;
    const GgufTensor *t = &input->tensors[source];
    size_t row = (size_t)(t->bytes / t->rows);
    synth_rows(input, source, 7, (uint32_t)(offset / row), (uint32_t)(bytes / row), out);
    return OK;
}

static inline int rig_make(void **state)
{
    (void)state;
    Why why;
    EncodeInput input;
    Pool *pool;
    char path[96];
    void *memory = malloc(RIG_ARENA);
    Arena arena = arena_make(memory, RIG_ARENA);
    (void)snprintf(rig.folder, sizeof rig.folder, "/tmp/cobord-rig-XXXXXX");
    if (!mkdtemp(rig.folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/a.knot", rig.folder);
    assert_int_equal(synth_input(&rig_shape, &arena, &input, &why), OK);
    input.version = 2;
    EncodeReader reader = {rig_rows, &input};
    assert_int_equal(pool_start(1, &pool, &why), OK);
    Parallel parallel = pool_parallel(pool);
    assert_int_equal(encode_loop_run(&input, &reader, path, &parallel, &arena, NULL, &why), OK);
    pool_stop(pool);
    free(memory);
    assert_int_equal(knot_file_open(path, &rig.file, &why), OK);
    return 0;
}

static inline int rig_remove(void **state)
{
    (void)state;
    knot_file_close(&rig.file);
    places_remove(rig.folder);
    return 0;
}

static Error rig_size(void *context, uint64_t *bytes, Why *why)
{
    (void)context, (void)why;
    *bytes = rig.file.knot.file_bytes;
    return OK;
}

static Error rig_read(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    (void)context, (void)why;
    memcpy(out, (const uint8_t *)rig.file.map + offset, (size_t)bytes);
    return OK;
}

/* --- values --- */

static inline RigValue *rig_value(const char *key)
{
    for (uint32_t i = 0; i < rig.value_count; i++)
        if (strcmp(rig.values[i].key, key) == 0) return &rig.values[i];
    return NULL;
}

static inline void rig_delete(const char *key)
{
    RigValue *v = rig_value(key);
    if (!v) return;
    free(v->bytes);
    *v = rig.values[--rig.value_count];
}

static inline void rig_put(const char *key, const uint8_t *bytes, size_t length)
{
    rig_delete(key);
    assert_true(rig.value_count < RIG_VALUES_MAX);
    RigValue *v = &rig.values[rig.value_count++];
    (void)snprintf(v->key, sizeof v->key, "%s", key);
    v->bytes = malloc(length);
    v->length = length;
    memcpy(v->bytes, bytes, length);
}

/* --- what node.c is to a role --- */

const char *node_setting(const Node *n, const char *name)
{
    static const char *const names[] = {"SPECIALIZATION_START", "SPECIALIZATION_END", "VOCAB_START",
                                        "VOCAB_END"};
    (void)n;
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0) return rig.settings[i][0] ? rig.settings[i] : NULL;
    return NULL;
}

Error node_setting_number(const Node *n, const char *name, uint64_t fallback, uint64_t least,
                          uint64_t most, uint64_t *out, Why *why)
{
    const char *text = node_setting(n, name);
    *out = text ? strtoull(text, NULL, 10) : fallback;
    return *out >= least && *out <= most ? OK : error_why(why, ERR_USAGE, "%s", name);
}

void *node_take(Node *n, uint64_t bytes)
{
    (void)n;
    assert_true(rig.take_count < RIG_TAKES_MAX);
    rig.taken += bytes;
    return rig.takes[rig.take_count++] = calloc(1, bytes ? (size_t)bytes : 1);
}

uint64_t node_taken(void) { return rig.taken; }

static inline void rig_want(Node *n, const NodeWish *wishes, uint32_t count, NodeThen *then)
{
    (void)n;
    assert_true(count >= 1 && count <= NODE_BATCH_MAX && !rig.wish_count && !rig.then);
    memcpy(rig.wish, wishes, count * sizeof *wishes);
    rig.wish_count = count;
    rig.then = then;
}

void node_want_read(Node *n, uint64_t offset, uint32_t bytes, uint8_t *to, NodeThen *then)
{
    NodeWish w = {.kind = NODE_READ, .offset = offset, .bytes = bytes, .address = to};
    rig_want(n, &w, 1, then);
}

void node_want_batch(Node *n, const NodeWish *wishes, uint32_t count, NodeThen *then)
{
    rig_want(n, wishes, count, then);
}

void node_reply(Node *n, unsigned status, const char *type, const void *bytes, size_t count,
                NodeThen *then)
{
    assert_false(n->request.replied);
    (void)type;
    n->request.replied = true;
    rig.status = status;
    free(rig.reply);
    rig.reply = malloc(count ? count : 1);
    memcpy(rig.reply, bytes, count);
    rig.reply_bytes = count;
    rig.then = then;
}

void node_reply_error(Node *n, Error error, const Why *why, NodeThen *then)
{
    char word = 0;
    rig.error = error;
    rig.why = *why;
    node_reply(n, 500, "", &word, 0, then);
}

void node_end(Node *n)
{
    (void)n;
    assert_true(n->request.replied);
    rig.done = true;
}
void node_opened(Node *n)
{
    (void)n;
    rig.opened = rig.done = true;
}
void node_open_failed(Node *n, Error error, const Why *why)
{
    (void)n;
    rig.error = error;
    rig.why = *why;
    rig.done = true;
}

/* --- wishes --- */

static inline NodeCame rig_carry_out(const Node *n, const NodeWish *w)
{
    int number = rig.wishes++;
    bool faulty = number >= rig.fault_at && number - rig.fault_at < rig.fault_times;
    if (faulty && rig.fault == RIG_FAILS) return (NodeCame){.failed = true};
    RigValue *v = w->kind == NODE_READ ? NULL : rig_value(w->text);
    if (w->kind == NODE_PUT || w->kind == NODE_DELETE) {
        assert_true(n->request.replied); /* after the response */
        assert_int_equal(w->kind == NODE_PUT ? w->seconds : ROW_VALUE_TTL_S, ROW_VALUE_TTL_S);
        if (w->kind == NODE_PUT) rig_put(w->text, w->address, w->bytes);
        else rig_delete(w->text);
        return (NodeCame){.status = 1};
    }
    size_t bytes = w->bytes, room = w->bytes;
    if (w->kind == NODE_READ) {
        (void)rig_read(NULL, w->offset, bytes, w->address, NULL);
        rig.node.store_reads++;
    } else if (!v) return (NodeCame){0};
    else {
        bytes = v->length;
        memcpy(w->address, v->bytes, bytes < room ? bytes : room);
    }
    if (faulty && rig.fault == RIG_WRONG) w->address[bytes / 2 < room ? bytes / 2 : 0] ^= 4;
    return (NodeCame){.status = 1, .bytes = faulty && rig.fault == RIG_SHORT ? bytes - 1 : bytes};
}

static inline void rig_drive(void)
{
    Node *n = &rig.node;
    while (!rig.done) {
        NodeThen *then = rig.then;
        assert_non_null(then);
        for (uint32_t i = 0; i < rig.wish_count; i++) n->came[i] = rig_carry_out(n, &rig.wish[i]);
        rig.wish_count = 0;
        rig.then = NULL;
        then(n);
    }
    assert_int_equal(rig.wish_count, 0);
}

/* --- a node --- */

static inline void rig_close(void)
{
    for (uint32_t i = 0; i < rig.take_count; i++) free(rig.takes[i]);
    knot_source_close(&rig.node.index);
    rig.node = (Node){0};
    rig.take_count = 0;
    rig.taken = 0;
    memset(rig.settings, 0, sizeof rig.settings);
}

/* A node of this range, of the knot's own identity. The wishes of requests have no fault. */
static inline void rig_open(bool is_shard, const char *first, const char *last, uint64_t budget,
                            bool has_values)
{
    Why why;
    KnotSource source = {rig_size, rig_read, NULL};
    Node *n = &rig.node;
    rig_close();
    *n = (Node){.kind = is_shard ? CLUSTER_SHARD_WARDEN : CLUSTER_LAYER_WARDEN,
                .id = "warden",
                .version = "1",
                .knot_key = "a.knot",
                .knot_id = rig.file.knot.id,
                .budget_bytes = budget,
                .has_values = has_values};
    assert_int_equal(knot_source_open(&source, n->knot_id, UINT64_MAX, &n->index, &why), OK);
    n->role = is_shard ? &node_shard_warden_role : &node_layer_warden_role;
    (void)snprintf(rig.settings[is_shard ? 2 : 0], 16, "%s", first);
    (void)snprintf(rig.settings[is_shard ? 3 : 1], 16, "%s", last);
    rig.done = rig.opened = false;
    rig.fault_times = 0;
    rig.error = OK;
    n->role->open(n);
    rig_drive();
}

/* One request; rig.status, rig.reply, rig.error have the answer. Result  how many wishes it had. */
static inline int rig_ask(const char *method, const char *path, const char *tail, const char *query,
                          const uint8_t *body, size_t bytes)
{
    Node *n = &rig.node;
    const NodeGateRoute *r = n->role->routes;
    uint32_t route = 0;
    while (strcmp(r[route].path, path) != 0 || strcmp(r[route].method, method) != 0)
        assert_true(++route < n->role->route_count);
    assert_true(bytes <= n->body_bytes_max);
    if (bytes) memcpy(n->body, body, bytes);
    n->request =
        (NodeRequest){.tail = tail, .query = query, .body = n->body, .body_bytes = (uint32_t)bytes};
    rig.done = false;
    rig.wishes = 0;
    rig.error = OK;
    n->role->run(n, route);
    rig_drive();
    return rig.wishes;
}

static inline void rig_fault(RigFault fault, int at, int times)
{
    rig.fault = fault;
    rig.fault_at = at;
    rig.fault_times = times;
}

#endif
