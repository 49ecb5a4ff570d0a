/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of the knot, from the warden or from the store.
 *
 *   want --warden there?--> GET /knot, part after part --not 200, short, gone--> the warden rests; the store
 *     |                              | all parts
 *     |no                            v
 *     '--> READ of the store --> whole blocks: their hashes --wrong--> of the warden: it is told; the store
 *            | failed                | right                    of the store: twice more
 *            '--twice more, then ERR_UNREACHABLE                then ERR_CHECKSUM */
#include <string.h>

#include "api/json_writer.h"
#include "base/min.h"
#include "node.h"

enum { READS_MAX = 3, WARDEN_RESTS_MS = 5000 };

/* ---- The warden ---- */

bool node_warden_is_there(const Node *n)
{
    return n->has_warden && n->now_ms >= n->fetch.warden_rests_until_ms;
}

void node_warden_rests(Node *n) { n->fetch.warden_rests_until_ms = n->now_ms + WARDEN_RESTS_MS; }

void node_tell_warden(Node *n, const char *name)
{
    NodeLoop *l = &n->loop;
    if (l->tell_count == NODE_TELLS_MAX) return;
    JsonWriter w = json_writer_make(l->tells[l->tell_count], NODE_HEAD_BYTES - 1);
    json_writer_raw(&w, "POST /invalidate/");
    json_writer_raw(&w, name);
    json_writer_raw(&w, n->fetch.identity);
    w.bytes[w.used] = '\0';
    if (!w.full) l->tell_count++;
}

/* The tensor that has the first wrong block; a section has no name to tell. */
static void tell_of_block(Node *n, uint64_t payload_offset, uint64_t bytes, const uint8_t *data)
{
    Why ignored;
    const Knot *k = &n->index.knot;
    uint64_t at = 0;
    for (; at < bytes; at += KNOT_HASH_BLOCK_BYTES) {
        uint64_t block = min_u64(KNOT_HASH_BLOCK_BYTES, bytes - at);
        if (knot_index_check(&n->index, payload_offset + at, block, data + at, &ignored) != OK)
            break;
    }
    for (uint32_t i = 0; i < k->tensor_count; i++)
        if (payload_offset + at < k->tensors[i].offset + k->tensors[i].bytes) {
            node_tell_warden(n, k->tensors[i].name);
            return;
        }
}

/* ---- A range ---- */

static void ask(Node *n);

static void finish(Node *n, Error error)
{
    n->fetch.error = error;
    n->fetch.then(n);
}

static Error check(Node *n)
{
    NodeFetch *f = &n->fetch;
    if (!f->checked) return OK;
    return knot_index_check(&n->index, f->offset - n->index.knot.payload_offset, f->bytes, f->to,
                            &f->why);
}

/* Once more, from the store, as long as there is hope. */
static void again(Node *n, Error error)
{
    NodeFetch *f = &n->fetch;
    if (f->from_warden) f->from_warden = false;
    else if (++f->tries == READS_MAX) {
        finish(n, error);
        return;
    }
    f->done = 0;
    ask(n);
}

static void all_came(Node *n)
{
    NodeFetch *f = &n->fetch;
    Error error = check(n);
    if (error == OK) {
        finish(n, OK);
        return;
    }
    if (f->from_warden) tell_of_block(n, f->offset - n->index.knot.payload_offset, f->bytes, f->to);
    again(n, error);
}

static void store_came(Node *n)
{
    NodeFetch *f = &n->fetch;
    if (!n->came[0].failed && n->came[0].bytes == f->bytes) all_came(n);
    else
        again(n, error_why(&f->why, ERR_UNREACHABLE, "the store, at byte %llu: %s",
                           (unsigned long long)f->offset, n->failure.text));
}

static uint64_t part_bytes(const NodeFetch *f)
{
    return min_u64(f->bytes - f->done, NODE_CALL_BYTES_MAX);
}

static void part_came(Node *n)
{
    NodeFetch *f = &n->fetch;
    if (n->came[0].failed || n->came[0].status != 200 || n->came[0].bytes != part_bytes(f)) {
        node_warden_rests(n);
        again(n, ERR_UNREACHABLE);
        return;
    }
    f->done += n->came[0].bytes;
    if (f->done == f->bytes) all_came(n);
    else ask(n);
}

static void ask_warden(Node *n)
{
    NodeFetch *f = &n->fetch;
    uint64_t first = f->offset + f->done, bytes = part_bytes(f);
    JsonWriter w = json_writer_make(f->head, sizeof f->head - 1);
    json_writer_raw(&w, "GET /knot?bytes=");
    json_writer_u64(&w, first);
    json_writer_raw(&w, "-");
    json_writer_u64(&w, first + bytes - 1);
    json_writer_raw(&w, f->identity);
    w.bytes[w.used] = '\0';
    node_want_call(n, f->head, NULL, 0, f->to + f->done, (uint32_t)bytes, part_came);
}

static void ask(Node *n)
{
    NodeFetch *f = &n->fetch;
    if (f->from_warden) ask_warden(n);
    else node_want_read(n, f->offset, (uint32_t)f->bytes, f->to, store_came);
}

static void want(Node *n, uint64_t offset, uint64_t bytes, uint8_t *to, bool checked,
                 NodeThen *then)
{
    NodeFetch *f = &n->fetch;
    f->offset = offset;
    f->bytes = bytes;
    f->to = to;
    f->checked = checked;
    f->from_warden = node_warden_is_there(n);
    f->done = f->tries = 0;
    f->then = then;
    ask(n);
}

void node_want_range(Node *n, uint64_t offset, uint64_t bytes, uint8_t *to, NodeThen *then)
{
    want(n, offset, bytes, to, false, then);
}

void node_want_blocks(Node *n, uint64_t payload_offset, uint64_t bytes, uint8_t *to, NodeThen *then)
{
    want(n, n->index.knot.payload_offset + payload_offset, bytes, to, true, then);
}
