/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs of the payload in memory, in front of the bucket: cluster/warden.h decides which.
 *
 *   next ---- HIT ----> checked, copied ---------------.
 *    ^  '---- FILL, PASS ----> READ ----> came --------+--> next part, until the range is over: then
 *    |                          ^ again: wrong or      |
 *    '-- bad: forgotten         '--- failed -----------' */
#include "node_warden.h"

#include <string.h>

static void slabs_next(Node *n);

uint64_t node_warden_slabs_table_bytes(const WardenConfig *config)
{
    uint64_t slabs = config->knot->payload_bytes / WARDEN_SLAB_BYTES + 1;
    return arena_bytes((size_t)warden_bytes(config)) +
           arena_bytes((size_t)slabs * 2 * sizeof(uint32_t)) + 2 * ARENA_ALIGN;
}

Error node_warden_slabs_open(Node *n, const WardenConfig *config, Why *why)
{
    NodeWardenSlabs *s = &node_warden_of(n)->slabs;
    size_t bytes = (size_t)warden_bytes(config);
    void *table = node_take(n, bytes);
    if (!table) return error_why(why, ERR_MEMORY, "no memory for a warden");
    Arena arena = arena_make(table, bytes);
    TRY(warden_build(config, &arena, &s->policy, why));
    uint32_t count = warden_slab_count(s->policy);
    uint64_t room = config->budget_bytes / WARDEN_SLAB_BYTES;
    s->room = room < count ? (uint32_t)room : count;
    s->place = node_take(n, (uint64_t)count * sizeof *s->place);
    s->spare = node_take(n, (uint64_t)count * sizeof *s->spare);
    s->memory = node_take(n, (uint64_t)s->room * WARDEN_SLAB_BYTES);
    if (!s->place || !s->spare || !s->memory)
        return error_why(why, ERR_MEMORY, "no memory for %u slabs", s->room);
    memset(s->place, 0xff, count * sizeof *s->place);
    for (uint32_t i = s->room; i-- > 0;) s->spare[s->spare_count++] = i;
    return OK;
}

/* --- places --- */

static uint8_t *slabs_at(const NodeWardenSlabs *s, uint32_t slab)
{
    ASSERT(s->place[slab] < s->room);
    return s->memory + (size_t)s->place[slab] * WARDEN_SLAB_BYTES;
}

static void slabs_give_back(NodeWardenSlabs *s, uint32_t slab)
{
    s->spare[s->spare_count++] = s->place[slab];
    s->place[slab] = WARDEN_NONE;
}

/* Up to the block hash section, which the index has. */
static uint64_t slabs_end(const NodeWarden *w, uint32_t slab)
{
    const Warden *p = w->slabs.policy;
    uint64_t end = warden_slab_offset(p, slab) + warden_slab_bytes(p, slab),
             hashes = w->serving.index->knot.block_hashes.offset;
    return end < hashes ? end : hashes;
}

/* --- reading --- */

/* The part of the range that lies in the slab, which begins at payload offset `at` in `bytes`. */
static void slabs_copy(NodeWardenRange *r, const uint8_t *bytes, uint64_t at)
{
    memcpy(r->out, bytes + (r->offset - at), (size_t)(r->part_end - r->offset));
    r->out += r->part_end - r->offset;
    r->offset = r->part_end;
}

/* Result  false: it was bad, and is forgotten. */
static bool slabs_hit(NodeWarden *w)
{
    NodeWardenSlabs *s = &w->slabs;
    NodeWardenRange *r = &s->range;
    uint64_t start = warden_slab_offset(s->policy, r->slab);
    const uint8_t *bytes = slabs_at(s, r->slab);
    bool good = knot_index_check(w->serving.index, r->first, r->last - r->first,
                                 bytes + (r->first - start), NULL) == OK;
    if (good) slabs_copy(r, bytes, start);
    bool gone = !good && warden_forget(s->policy, r->slab, true);
    if (warden_release(s->policy, r->slab) || gone) slabs_give_back(s, r->slab);
    return good;
}

static void slabs_failed(NodeWarden *w)
{
    NodeWardenSlabs *s = &w->slabs;
    s->failures++;
    if (!s->range.keeps) return;
    warden_fill_failed(s->policy, s->range.slab);
    slabs_give_back(s, s->range.slab);
}

/* What came, or why it is not right. */
static Error slabs_check(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRange *r = &w->slabs.range;
    uint64_t bytes = r->last - r->first;
    if (n->came[0].failed || n->came[0].bytes != bytes)
        return error_why(why, ERR_UNREACHABLE, "%s, %llu bytes of the payload at %llu: %s",
                         n->knot_key, (unsigned long long)bytes, (unsigned long long)r->first,
                         n->failure.text);
    Error e = knot_index_check(w->serving.index, r->first, bytes, r->to, why);
    if (e) w->slabs.bad++;
    return e;
}

static void slabs_came(Node *n);

static void slabs_want(Node *n)
{
    const NodeWarden *w = node_warden_of(n);
    const NodeWardenRange *r = &w->slabs.range;
    node_want_read(n, w->serving.index->knot.payload_offset + r->first,
                   (uint32_t)(r->last - r->first), r->to, slabs_came);
}

static void slabs_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenSlabs *s = &w->slabs;
    NodeWardenRange *r = &s->range;
    w->error = slabs_check(n, &w->why);
    if (w->error && ++r->reads < NODE_WARDEN_READS_MAX) {
        s->retries += w->error == ERR_UNREACHABLE;
        slabs_want(n);
        return;
    }
    if (w->error) {
        slabs_failed(w);
        r->then(n);
        return;
    }
    slabs_copy(r, r->to, r->first);
    if (r->keeps && warden_filled(s->policy, r->slab)) slabs_give_back(s, r->slab);
    slabs_next(n);
}

/* A whole slab to keep, or the blocks around the part, which pass. */
static void slabs_read_below(Node *n, bool keeps, uint32_t evicted)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenSlabs *s = &w->slabs;
    NodeWardenRange *r = &s->range;
    if (evicted != WARDEN_NONE) slabs_give_back(s, evicted);
    r->keeps = keeps;
    r->reads = 0;
    r->to = s->passing;
    if (keeps) {
        ASSERT(s->spare_count);
        s->place[r->slab] = s->spare[--s->spare_count];
        r->to = slabs_at(s, r->slab);
        r->first = warden_slab_offset(s->policy, r->slab);
        r->last = slabs_end(w, r->slab);
    }
    slabs_want(n);
}

static void slabs_next(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenSlabs *s = &w->slabs;
    NodeWardenRange *r = &s->range;
    while (r->offset < r->end) {
        uint32_t evicted;
        r->slab = (uint32_t)(r->offset / WARDEN_SLAB_BYTES);
        uint64_t end = slabs_end(w, r->slab);
        r->part_end = r->end < end ? r->end : end;
        ASSERT(r->offset < r->part_end);
        knot_index_blocks(w->serving.index, r->offset, r->part_end - r->offset, &r->first,
                          &r->last);
        WardenAnswer answer = warden_ask(s->policy, r->slab, &evicted);
        ASSERT(answer != WARDEN_WAIT); /* one request at a time */
        if (answer != WARDEN_HIT) {
            slabs_read_below(n, answer == WARDEN_FILL, evicted);
            return;
        }
        (void)slabs_hit(w); /* a bad one is asked for again */
    }
    r->then(n);
}

void node_warden_slabs_read(Node *n, uint64_t offset, uint64_t bytes, uint8_t *out, NodeThen *then)
{
    NodeWarden *w = node_warden_of(n);
    w->error = OK;
    w->slabs.range =
        (NodeWardenRange){.offset = offset, .end = offset + bytes, .out = out, .then = then};
    slabs_next(n);
}

/* --- the rest --- */

void node_warden_slabs_forget(NodeWarden *w, uint64_t offset, uint64_t bytes)
{
    NodeWardenSlabs *s = &w->slabs;
    uint64_t last = (offset + bytes - 1) / WARDEN_SLAB_BYTES;
    for (uint64_t i = offset / WARDEN_SLAB_BYTES; i <= last; i++)
        if (warden_forget(s->policy, (uint32_t)i, false)) slabs_give_back(s, (uint32_t)i);
}

WardenLevelsCounters node_warden_slabs_counters(const Node *n)
{
    const NodeWardenSlabs *s = &node_warden_of(n)->slabs;
    return (WardenLevelsCounters){
        .memory = warden_counters(s->policy),
        .store = {n->store_reads, n->store_bytes, s->retries, s->failures},
        .store_bad = s->bad};
}
