/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/plan_cut.h"

/* The bytes that each should get, by speed within its room; what no room is left for goes by speed again. */
static void plan_cut_targets(const PlanCutShare *share, uint32_t count, double bytes, double *out)
{
    bool full[PLAN_CUT_MAX] = {false};
    double left = bytes, speed = 0;
    for (uint32_t i = 0; i < count; i++) speed += share[i].speed;
    for (bool again = true; again;) { /* each round fills one or is the last */
        again = false;
        for (uint32_t i = 0; i < count; i++) {
            if (full[i] || left * share[i].speed / speed <= (double)share[i].bytes_room) continue;
            full[i] = again = true;
            out[i] = (double)share[i].bytes_room;
            left -= out[i];
            speed -= share[i].speed;
            if (left < 0) left = 0;
        }
    }
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (full[i]) continue;
        any = true;
        out[i] = left * share[i].speed / speed;
    }
    if (any || left <= 0) return;
    double all = 0;
    for (uint32_t i = 0; i < count; i++) all += share[i].speed;
    for (uint32_t i = 0; i < count; i++) out[i] += left * share[i].speed / all;
}

static Error plan_cut_check(const PlanCutShare *share, uint32_t count, uint32_t units, Why *why)
{
    if (!count || count > PLAN_CUT_MAX || count > units)
        return error_why(why, ERR_RANGE, "%u parts of %u; 1 to %u are possible", count, units,
                         units < PLAN_CUT_MAX ? units : PLAN_CUT_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (!(share[i].speed > 0 && share[i].speed < 1e30))
            return error_why(why, ERR_RANGE, "part %u has a speed that is not above 0", i);
    return OK;
}

/* bytes[b]: of all phases before bound b. */
static Error plan_cut_sum(const Knot *knot, const Hyper *hyper, uint64_t cache_bytes, double *bytes,
                          Why *why)
{
    bytes[0] = 0;
    for (PhaseBound b = 0; b < hyper->layers * PHASES; b++) {
        PhaseMatrix matrix[PHASE_MATRICES_MAX];
        uint32_t count;
        TRY(phase_matrices(knot, hyper, phase_layer(b), phase_of(b), matrix, &count, why));
        bytes[b + 1] = bytes[b] + (phase_of(b) == PHASE_ATTN ? (double)cache_bytes : 0);
        for (uint32_t i = 0; i < count; i++) bytes[b + 1] += (double)matrix[i].weight->bytes;
    }
    return OK;
}

static double plan_cut_distance(double a, double b) { return a < b ? b - a : a - b; }

/* The bound nearest to `target` in [low, high]; a layer's start when one is no further off than half a layer. */
static PhaseBound plan_cut_nearest(const double *bytes, double target, PhaseBound low,
                                   PhaseBound high)
{
    PhaseBound best = low, layer = 0;
    bool has_layer = false;
    for (PhaseBound b = low; b <= high; b++) {
        double distance = plan_cut_distance(bytes[b], target);
        if (distance < plan_cut_distance(bytes[best], target)) best = b;
        if (b % PHASES) continue;
        if (!has_layer || distance < plan_cut_distance(bytes[layer], target)) layer = b;
        has_layer = true;
    }
    uint32_t apart = layer > best ? layer - best : best - layer;
    return has_layer && apart <= PHASES / 2 ? layer : best;
}

/* Back to the last bound before which the part's weights fit its room, when there is one. */
static PhaseBound plan_cut_into_room(const double *bytes, PhaseBound first, PhaseBound low,
                                     PhaseBound cut, const PlanCutShare *share)
{
    double room = (double)share->bytes_room;
    PhaseBound b = cut;
    while (b > low && bytes[b] - bytes[first] > room) b--;
    return bytes[b] - bytes[first] > room ? cut : b;
}

Error plan_cut_phases(const Knot *knot, const Hyper *hyper, uint64_t cache_bytes,
                      const PlanCutShare *share, uint32_t count, PhaseRange *out, Why *why)
{
    static const uint64_t ANY = UINT64_MAX;
    double bytes[KNOT_LAYERS_MAX * PHASES + 1], target[PLAN_CUT_MAX], room = 0, behind = 0;
    PhaseBound end = hyper->layers * PHASES, at = 0;
    TRY(plan_cut_check(share, count, end, why));
    TRY(plan_cut_sum(knot, hyper, cache_bytes, bytes, why));
    plan_cut_targets(share, count, bytes[end], target);
    for (uint32_t i = 0; i < count; i++)
        room = share[i].bytes_room == ANY ? bytes[end] + room : room + (double)share[i].bytes_room;
    for (uint32_t i = 0; i < count; i++) {
        PhaseBound low = at + 1, high = end - (count - 1 - i), cut = end;
        behind += target[i];
        if (i + 1 < count) {
            cut = plan_cut_nearest(bytes, behind, low, high);
            if (room >= bytes[end]) cut = plan_cut_into_room(bytes, at, low, cut, &share[i]);
        }
        out[i] = (PhaseRange){at, cut};
        at = cut;
    }
    return OK;
}

Error plan_cut_ids(uint32_t vocabulary, uint64_t id_bytes, const PlanCutShare *share,
                   uint32_t count, uint32_t *id_ends, Why *why)
{
    double target[PLAN_CUT_MAX], behind = 0, each = id_bytes ? (double)id_bytes : 1;
    uint32_t at = 0;
    TRY(plan_cut_check(share, count, vocabulary, why));
    plan_cut_targets(share, count, each * vocabulary, target);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t low = at + 1, high = vocabulary - (count - 1 - i);
        behind += target[i];
        double end = behind / each + 0.5;
        at = i + 1 == count || end > high ? high : end < low ? low : (uint32_t)end;
        id_ends[i] = at;
    }
    return OK;
}
