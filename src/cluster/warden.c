/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/warden.h"

#include <string.h>

#include "knot/emit.h"

typedef enum SlabState { SLAB_ABSENT, SLAB_FILLING, SLAB_HELD } SlabState;

typedef struct Slab {
    uint8_t state;
    bool resident;
    bool doomed; /* forgotten while somebody reads or fills it */
    uint16_t readers;
} Slab;

struct Warden {
    WardenConfig config;
    Slab *slabs;
    uint32_t count;
    uint32_t room, taken; /* slabs */
    WardenCounters counters;
};

/* --- Identity --- */

char *warden_identity_text(const WardenIdentity *id, uint32_t layers,
                           char out[WARDEN_IDENTITY_TEXT_MAX])
{
    char range[PHASE_RANGE_TEXT_MAX];
    Emit e = emit_make(out, WARDEN_IDENTITY_TEXT_MAX - 1);
    emit_hex64(&e, id->knot_id);
    emit_text(&e, "|");
    if (id->is_shard) {
        emit_u64(&e, id->first);
        emit_text(&e, "-");
        emit_u64(&e, id->last);
    } else emit_text(&e, phase_range_text((PhaseRange){id->first, id->last}, layers, range));
    out[e.used] = '\0';
    return out;
}

Error warden_identity_check(const WardenIdentity *mine, const WardenIdentity *asked,
                            uint32_t layers, Why *why)
{
    char a[WARDEN_IDENTITY_TEXT_MAX], b[WARDEN_IDENTITY_TEXT_MAX];
    if (mine->knot_id == asked->knot_id && mine->is_shard == asked->is_shard &&
        mine->first == asked->first && mine->last == asked->last)
        return OK;
    return error_why(why, ERR_UNSUPPORTED, "the request is for %s warden %s, this is %s warden %s",
                     asked->is_shard ? "shard" : "layer", warden_identity_text(asked, layers, b),
                     mine->is_shard ? "shard" : "layer", warden_identity_text(mine, layers, a));
}

/* --- What belongs to whom --- */

static bool contains(const char *text, const char *part)
{
    for (size_t bytes = strlen(part); *text; text++)
        if (strncmp(text, part, bytes) == 0) return true;
    return false;
}

/* "blk_12_ffn_up_weight": the bound of its phase. Result  false when it belongs to no layer. */
static bool bound_of(const char *name, PhaseBound *out, bool *is_vector)
{
    uint32_t layer = 0;
    const char *at = name + 4;
    if (strncmp(name, "blk_", 4) != 0 || *at < '0' || *at > '9') return false;
    for (; *at >= '0' && *at <= '9' && layer < KNOT_LAYERS_MAX; at++)
        layer = layer * 10 + (uint32_t)(*at - '0');
    Phase phase = strncmp(at, "_ffn_gate", 9) == 0   ? PHASE_FFN_GATE
                  : strncmp(at, "_ffn_up", 7) == 0   ? PHASE_FFN_UP
                  : strncmp(at, "_ffn_down", 9) == 0 ? PHASE_FFN_DOWN
                                                     : PHASE_ATTN;
    *out = phase_bound(layer, phase);
    *is_vector = contains(at, "norm");
    return true;
}

static bool is_resident(const KnotTensor *t)
{
    return t->bytes < WARDEN_RESIDENT_BYTES || contains(t->name, "norm") ||
           strcmp(t->name, "token_embd_weight") == 0 || strcmp(t->name, "output_weight") == 0;
}

/* Rows [*first, *last) of the tensor; empty when it is not the identity's. */
static void rows_of(const WardenIdentity *id, const KnotTensor *t, uint32_t *first, uint32_t *last)
{
    PhaseBound bound;
    bool is_vector, has_layer = bound_of(t->name, &bound, &is_vector);
    *first = 0;
    *last = t->rows;
    if (id->is_shard) {
        bool mine =
            strcmp(t->name, "token_embd_weight") == 0 || strcmp(t->name, "output_weight") == 0;
        uint32_t unit = knot_unit_rows(t);
        uint64_t end = ((uint64_t)id->last + unit - 1) / unit * unit;
        *first = id->first / unit * unit;
        *last = end < t->rows ? (uint32_t)end : t->rows;
        if (!mine || *first >= t->rows) *first = *last = 0;
        return;
    }
    if (!has_layer) return;
    bool mine = is_vector
                    ? bound / PHASES >= id->first / PHASES && bound / PHASES * PHASES < id->last
                    : bound >= id->first && bound < id->last;
    if (!mine) *last = 0;
}

Error warden_covers(const WardenIdentity *id, const Knot *knot, const KnotTensor *t,
                    uint32_t row_first, uint32_t row_count, Why *why)
{
    char text[WARDEN_IDENTITY_TEXT_MAX];
    uint32_t first, last;
    rows_of(id, t, &first, &last);
    if (row_first >= first && row_first < last && row_count <= last - row_first) return OK;
    warden_identity_text(id, knot->model.layers, text);
    return error_why(why, ERR_RANGE, "%s, %u rows from row %u: not of this warden, %s", t->name,
                     row_count, row_first, text);
}

/* --- Building --- */

static uint32_t unit_of(const WardenConfig *c)
{
    return c->slab_bytes ? c->slab_bytes : (uint32_t)WARDEN_SLAB_BYTES;
}

static uint32_t count_of(const WardenConfig *c)
{
    return (uint32_t)((c->knot->payload_bytes + unit_of(c) - 1) / unit_of(c));
}

uint64_t warden_bytes(const WardenConfig *c)
{
    return arena_bytes(sizeof(Warden)) + arena_bytes(count_of(c) * sizeof(Slab)) + ARENA_ALIGN;
}

static void mark_residents(Warden *w)
{
    const Knot *knot = w->config.knot;
    uint32_t unit = unit_of(&w->config);
    for (uint32_t i = 0; i < knot->tensor_count; i++) {
        const KnotTensor *t = &knot->tensors[i];
        uint32_t first, last;
        rows_of(&w->config.identity, t, &first, &last);
        if (first == last || !is_resident(t)) continue;
        for (uint64_t c = t->offset / unit; c <= (t->offset + t->bytes - 1) / unit; c++)
            w->slabs[c].resident = true;
    }
}

Error warden_build(const WardenConfig *config, Arena *arena, Warden **out, Why *why)
{
    uint32_t count = count_of(config);
    Warden *w = ARENA_NEW(arena, Warden, 1);
    if (w) *w = (Warden){.config = *config, .count = count, .slabs = ARENA_NEW(arena, Slab, count)};
    if (!w || !w->slabs) return error_why(why, ERR_MEMORY, "no memory for a warden");
    uint64_t room = config->budget_bytes / unit_of(config);
    w->room = room < count ? (uint32_t)room : count;
    mark_residents(w);
    *out = w;
    return OK;
}

uint32_t warden_slab_count(const Warden *w) { return w->count; }

uint64_t warden_slab_offset(const Warden *w, uint32_t slab)
{
    return (uint64_t)slab * unit_of(&w->config);
}

uint32_t warden_slab_bytes(const Warden *w, uint32_t slab)
{
    uint64_t left = w->config.knot->payload_bytes - warden_slab_offset(w, slab);
    return left < unit_of(&w->config) ? (uint32_t)left : unit_of(&w->config);
}

/* --- Events --- */

static void give_up(Warden *w, uint32_t slab)
{
    Slab *c = &w->slabs[slab];
    if (c->state == SLAB_HELD) w->counters.held_bytes -= warden_slab_bytes(w, slab);
    c->state = SLAB_ABSENT;
    c->doomed = false;
    w->taken--;
}

/* A resident takes the place of the matrix that the cycle reaches last. */
static bool make_room(Warden *w, bool resident, uint32_t *evicted)
{
    if (w->taken < w->room) return true;
    for (uint32_t i = w->count; resident && i-- > 0;) {
        const Slab *c = &w->slabs[i];
        if (c->state != SLAB_HELD || c->resident || c->readers) continue;
        give_up(w, i);
        w->counters.evictions++;
        *evicted = i;
        return true;
    }
    return false;
}

bool warden_peek(Warden *w, uint32_t slab)
{
    Slab *c = &w->slabs[slab];
    if (c->state != SLAB_HELD || c->doomed || c->readers == UINT16_MAX) return false;
    c->readers++;
    w->counters.hits++;
    return true;
}

WardenAnswer warden_ask(Warden *w, uint32_t slab, uint32_t *evicted)
{
    ASSERT(slab < w->count);
    Slab *c = &w->slabs[slab];
    *evicted = WARDEN_NONE;
    if (warden_peek(w, slab)) return WARDEN_HIT;
    if (c->state == SLAB_FILLING && !c->doomed) return WARDEN_WAIT;
    w->counters.misses++;
    if (c->state == SLAB_ABSENT && make_room(w, c->resident, evicted)) {
        c->state = SLAB_FILLING;
        w->taken++;
        return WARDEN_FILL;
    }
    w->counters.passes++;
    return WARDEN_PASS;
}

bool warden_release(Warden *w, uint32_t slab)
{
    Slab *c = &w->slabs[slab];
    ASSERT(c->state == SLAB_HELD && c->readers);
    c->readers--;
    bool gone = c->doomed && !c->readers;
    if (gone) give_up(w, slab);
    return gone;
}

bool warden_filled(Warden *w, uint32_t slab)
{
    Slab *c = &w->slabs[slab];
    ASSERT(c->state == SLAB_FILLING);
    c->state = SLAB_HELD;
    w->counters.held_bytes += warden_slab_bytes(w, slab);
    bool gone = c->doomed;
    if (gone) give_up(w, slab);
    return gone;
}

void warden_fill_failed(Warden *w, uint32_t slab)
{
    ASSERT(w->slabs[slab].state == SLAB_FILLING);
    give_up(w, slab);
}

bool warden_forget(Warden *w, uint32_t slab, bool bad)
{
    ASSERT(slab < w->count);
    Slab *c = &w->slabs[slab];
    if (bad) w->counters.bad++;
    else w->counters.invalidations++;
    if (c->state == SLAB_ABSENT) return false;
    c->doomed = true;
    if (c->state == SLAB_FILLING || c->readers) return false;
    give_up(w, slab);
    return true;
}

WardenCounters warden_counters(const Warden *w) { return w->counters; }
