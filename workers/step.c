/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

enum { PIN_STEP_BYTES = 1 << 20 };

/* --- beginning --- */

static Error begin(Instance *in, bool here, const char *what, uint32_t role)
{
    if (in->operation != OPERATION_NONE)
        return error_why(&in->why, ERR_USAGE, "an operation is still in progress");
    if (!here)
        return error_why(&in->why, ERR_NOT_FOUND, "%s %u is not in this instance", what, role);
    return OK;
}

static void start(Instance *in, Operation operation, uint32_t role)
{
    in->operation = operation;
    in->at_role = role;
    in->asked = false;
}

Error step_begin_embed(Instance *in, uint32_t shard, uint32_t count)
{
    Shard *s = instance_shard(in, shard);
    TRY(begin(in, s != NULL, "shard", shard));
    if (count > in->plan.chunk)
        return error_why(&in->why, ERR_CAPACITY, "%u ids; a chunk has %u", count, in->plan.chunk);
    TRY(shard_begin_embed(s, in->frame.ids, count, in->frame.partial, &in->why));
    start(in, OPERATION_SHARD, shard);
    return OK;
}

Error step_begin_forward(Instance *in, uint32_t station, uint32_t session, uint32_t position,
                         uint32_t rows)
{
    Station *s = instance_station(in, station);
    TRY(begin(in, s != NULL, "station", station));
    if (rows > in->plan.chunk)
        return error_why(&in->why, ERR_CAPACITY, "%u rows; a chunk has %u", rows, in->plan.chunk);
    in->sequence = (StationSequence){.session = session, .position = position, .rows = rows};
    StationFrame frame = {.x = in->frame.x,
                          .g = in->frame.g,
                          .rows = rows,
                          .sequences = &in->sequence,
                          .sequence_count = 1};
    TRY(station_begin(s, &frame, &parallel_serial, &in->why));
    start(in, OPERATION_STATION, station);
    return OK;
}

Error step_begin_logits(Instance *in, uint32_t shard, uint32_t rows)
{
    Shard *s = instance_shard(in, shard);
    TRY(begin(in, s != NULL, "shard", shard));
    TRY(shard_begin_logits(s, in->frame.hidden, rows, &in->why));
    start(in, OPERATION_SHARD, shard);
    return OK;
}

/* --- wishes --- */

/* A range of the payload: into the tile, or, when it is pinned, nothing to copy. */
static WishKind ask(Instance *in, uint64_t offset, uint64_t bytes)
{
    in->asked = true;
    in->wish.offset = in->knot.payload_offset + offset;
    if (offset <= in->pinned_bytes && bytes <= in->pinned_bytes - offset) {
        in->wish.address = in->pinned + offset;
        in->wish.bytes = 0;
        return WISH_TILE;
    }
    ASSERT(bytes <= in->tile_bytes);
    in->wish.address = in->tile;
    in->wish.bytes = (uint32_t)bytes;
    return WISH_TILE;
}

static bool take_answer(Instance *in)
{
    bool asked = in->asked;
    in->asked = false;
    return asked;
}

static WishKind done(Instance *in)
{
    in->operation = OPERATION_NONE;
    return WISH_DONE;
}

static Error next_open(Instance *in, WishKind *kind)
{
    if (take_answer(in)) TRY(instance_header_came(in));
    in->asked = in->operation != OPERATION_NONE;
    *kind = in->asked ? WISH_TILE : WISH_DONE;
    return OK;
}

static WishKind next_pin(Instance *in)
{
    uint64_t left = in->pinned_bytes - in->at_byte;
    if (!left) {
        start(in, OPERATION_FLOOR, in->role_first);
        in->at_tensor = 0;
        return WISH_TILE;
    }
    uint64_t bytes = left < PIN_STEP_BYTES ? left : PIN_STEP_BYTES;
    in->wish =
        (Wish){in->knot.payload_offset + in->at_byte, (uint32_t)bytes, in->pinned + in->at_byte};
    in->at_byte += bytes;
    return WISH_TILE;
}

/* Vector after vector, station after station. */
static Error next_floor(Instance *in, WishKind *kind)
{
    while (in->at_role < in->role_last) {
        Station *s = instance_station(in, in->at_role);
        if (!s || in->at_tensor >= station_floor_count(s)) {
            in->at_role++;
            in->at_tensor = 0;
            continue;
        }
        float *to;
        const KnotTensor *t = station_floor_tensor(s, in->at_tensor, &to);
        if (!take_answer(in)) {
            *kind = ask(in, t->offset, t->bytes);
            return OK;
        }
        TRY(block_dequantize_row(t->type, in->wish.address, t->cols, to, &in->why));
        in->at_tensor++;
    }
    *kind = done(in);
    return OK;
}

static Error next_station(Instance *in, WishKind *kind)
{
    Station *s = instance_station(in, in->at_role);
    if (take_answer(in)) TRY(station_give(s, in->wish.address, &parallel_serial, &in->why));
    StationWish w;
    station_next(s, &w);
    in->wish = (Wish){0, 0, NULL};
    switch (w.kind) {
    case STATION_LOAD: *kind = WISH_LOAD; break;
    case STATION_TILE: *kind = ask(in, w.offset, w.bytes); break;
    case STATION_EVICT: *kind = WISH_EVICT; break;
    case STATION_DONE: *kind = done(in); break;
    }
    return OK;
}

static Error next_shard(Instance *in, WishKind *kind)
{
    Shard *s = instance_shard(in, in->at_role);
    if (take_answer(in)) TRY(shard_give(s, in->wish.address, &parallel_serial, &in->why));
    ShardWish w;
    shard_next(s, &w);
    *kind = w.kind == SHARD_TILE ? ask(in, w.offset, w.bytes) : done(in);
    return OK;
}

static Error step(Instance *in, WishKind *kind)
{
    *kind = WISH_DONE;
    switch (in->operation) {
    case OPERATION_NONE: return OK;
    case OPERATION_PROBE:
    case OPERATION_HEADER: return next_open(in, kind);
    case OPERATION_PIN:
        *kind = next_pin(in);
        return in->operation == OPERATION_PIN ? OK : next_floor(in, kind);
    case OPERATION_FLOOR: return next_floor(in, kind);
    case OPERATION_STATION: return next_station(in, kind);
    case OPERATION_SHARD: return next_shard(in, kind);
    }
    return OK;
}

Error step_next(Instance *in, WishKind *kind)
{
    Error error = step(in, kind);
    if (error == OK) return OK;
    in->operation = OPERATION_NONE;
    in->asked = false;
    *kind = WISH_FAILED;
    return error;
}
