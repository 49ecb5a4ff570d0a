/* SPDX-License-Identifier: Apache-2.0 */
/* A station's cyclic scan through a warden's policy and through a plain LRU of the same size. Built and run by
 * bench/warden; the policy is the one that wardens run, over the header of a real knot.
 *
 *   warden_scan KNOT FIRST LAST BUDGET_BYTES PASSES      one JSON object to standard output */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/warden.h"

typedef struct Scan {
    Knot knot;
    PhaseBound first, last;
    uint64_t budget;
    int passes;
    uint8_t *wanted; /* of slabs */
    uint32_t slabs, wanted_count;
} Scan;

static void fail(const char *what, const Why *why)
{
    fprintf(stderr, "%s: %s\n", what, why ? why->text : "");
    exit(1);
}

static void read_header(const char *path, Knot *out)
{
    Why why = {{0}};
    uint64_t need = 0;
    FILE *f = fopen(path, "rb");
    if (!f || fseeko(f, 0, SEEK_END)) fail(path, NULL);
    uint64_t size = (uint64_t)ftello(f);
    size_t probe = size < KNOT_PROBE_BYTES ? (size_t)size : KNOT_PROBE_BYTES;
    uint8_t *header = malloc(KNOT_META_BYTES_MAX + KNOT_PROBE_BYTES);
    rewind(f);
    if (!header || fread(header, 1, probe, f) != probe) fail(path, NULL);
    if (knot_header_bytes(header, probe, size, &need, &why)) fail(path, &why);
    if (need > probe && fread(header + probe, 1, need - probe, f) != need - probe) fail(path, NULL);
    fclose(f);
    Arena arena = arena_make(malloc(knot_arena_bytes(need)), knot_arena_bytes(need));
    Arena scratch = arena_make(malloc(knot_scratch_bytes(need)), knot_scratch_bytes(need));
    if (knot_parse(header, need, size, &arena, &scratch, out, &why)) fail(path, &why);
}

/* The slabs of the phases' matrices, in file order, which is the order in which a station reads them. */
static void mark_wanted(Scan *s)
{
    WardenIdentity id = {s->knot.id, false, s->first, s->last};
    s->slabs = (uint32_t)((s->knot.payload_bytes + WARDEN_SLAB_BYTES - 1) / WARDEN_SLAB_BYTES);
    s->wanted = calloc(s->slabs, 1);
    for (uint32_t i = 0; i < s->knot.tensor_count; i++) {
        const KnotTensor *t = &s->knot.tensors[i];
        if (strncmp(t->name, "blk_", 4) || t->rows == 1 ||
            warden_covers(&id, &s->knot, t, 0, t->rows, NULL))
            continue;
        for (uint64_t c = t->offset / WARDEN_SLAB_BYTES;
             c <= (t->offset + t->bytes - 1) / WARDEN_SLAB_BYTES; c++) {
            s->wanted_count += !s->wanted[c];
            s->wanted[c] = 1;
        }
    }
}

/* Result  hits of all passes but the first, as a share of 1. */
static double run_warden(const Scan *s)
{
    Why why;
    WardenConfig config = {.knot = &s->knot,
                           .identity = {s->knot.id, false, s->first, s->last},
                           .budget_bytes = s->budget};
    size_t bytes = (size_t)warden_bytes(&config);
    Arena arena = arena_make(malloc(bytes), bytes);
    Warden *w;
    if (warden_build(&config, &arena, &w, &why)) fail("warden", &why);
    for (int pass = 0; pass < s->passes; pass++)
        for (uint32_t c = 0; c < s->slabs; c++) {
            uint32_t evicted;
            if (!s->wanted[c]) continue;
            WardenAnswer answer = warden_ask(w, c, &evicted);
            if (answer == WARDEN_FILL) (void)!warden_filled(w, c);
            if (answer == WARDEN_HIT) (void)!warden_release(w, c);
        }
    return (double)warden_counters(w).hits / ((double)(s->passes - 1) * s->wanted_count);
}

static double run_lru(const Scan *s)
{
    uint64_t room = s->budget / WARDEN_SLAB_BYTES, clock = 0, hits = 0, held = 0;
    uint64_t *used = calloc(s->slabs, sizeof *used); /* 0: not there */
    for (int pass = 0; pass < s->passes; pass++)
        for (uint32_t c = 0; c < s->slabs; c++) {
            if (!s->wanted[c] || !room) continue;
            uint32_t oldest = 0;
            if (used[c]) hits++;
            else if (held < room) held++;
            else {
                for (uint32_t i = 1; i < s->slabs; i++)
                    if (used[i] && (!used[oldest] || used[i] < used[oldest])) oldest = i;
                used[oldest] = 0;
            }
            used[c] = ++clock;
        }
    free(used);
    return (double)hits / ((double)(s->passes - 1) * s->wanted_count);
}

int main(int argc, char **argv)
{
    Scan s = {0};
    if (argc != 6) return 2;
    read_header(argv[1], &s.knot);
    s.first = (PhaseBound)strtoul(argv[2], NULL, 10) * PHASES;
    s.last = (PhaseBound)strtoul(argv[3], NULL, 10) * PHASES;
    s.budget = strtoull(argv[4], NULL, 10);
    s.passes = (int)strtol(argv[5], NULL, 10);
    mark_wanted(&s);
    printf("{\"slabs\":%" PRIu32 ",\"budget_slabs\":%" PRIu64 ",\"lru\":%.6f,\"warden\":%.6f}\n",
           s.wanted_count, s.budget / WARDEN_SLAB_BYTES, run_lru(&s), run_warden(&s));
    return 0;
}
