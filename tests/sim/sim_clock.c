/* SPDX-License-Identifier: Apache-2.0 */
/* Events in the order of their time, those of one time in the order they were made: a binary heap. Random
 * numbers, which are what the seed is made into. */
#include "sim.h"

#include <stdlib.h>

static bool before(const SimEvent *a, const SimEvent *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void swap(SimClock *c, uint32_t a, uint32_t b)
{
    SimEvent *e = c->heap[a];
    c->heap[a] = c->heap[b];
    c->heap[b] = e;
}

SimEvent *sim_clock_add(Sim *s, SimEventKind kind, uint64_t at_ns)
{
    SimClock *c = &s->clock;
    SimEvent *e = calloc(1, sizeof *e);
    if (c->count == c->room) {
        c->room = c->room ? 2 * c->room : 256;
        c->heap = realloc(c->heap, c->room * sizeof(SimEvent *));
    }
    ASSERT(e && c->heap && at_ns >= s->now_ns);
    e->kind = kind;
    e->at_ns = at_ns;
    e->order = c->orders++;
    uint32_t at = c->count++;
    c->heap[at] = e;
    for (; at && before(c->heap[at], c->heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(c, at, (at - 1) / 2);
    return e;
}

void sim_clock_postpone(Sim *s, const SimEvent *e, uint64_t at_ns)
{
    SimEvent *later = sim_clock_add(s, e->kind, at_ns);
    uint64_t order = later->order;
    *later = *e;
    later->at_ns = at_ns;
    later->order = order;
}

SimEvent *sim_clock_take(Sim *s)
{
    SimClock *c = &s->clock;
    if (!c->count) return NULL;
    SimEvent *first = c->heap[0];
    c->heap[0] = c->heap[--c->count];
    for (uint32_t at = 0;;) {
        uint32_t least = at, left = 2 * at + 1;
        for (uint32_t child = left; child < left + 2 && child < c->count; child++)
            if (before(c->heap[child], c->heap[least])) least = child;
        if (least == at) return first;
        swap(c, at, least);
        at = least;
    }
}

uint64_t sim_clock_next_ns(const Sim *s)
{
    return s->clock.count ? s->clock.heap[0]->at_ns : SIM_NEVER;
}

void sim_clock_free(Sim *s)
{
    for (SimEvent *e; (e = sim_clock_take(s)) != NULL; free(e)) free(e->bytes);
    free(s->clock.heap);
    s->clock = (SimClock){0};
}

/* Source  Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
uint64_t sim_random_next(SimRandom *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t sim_random_below(SimRandom *r, uint32_t n)
{
    return n ? (uint32_t)(sim_random_next(r) % n) : 0;
}

uint64_t sim_random_between(SimRandom *r, uint64_t low, uint64_t high)
{
    return low + sim_random_next(r) % (high - low + 1);
}

bool sim_random_chance(SimRandom *r, uint32_t per_10000)
{
    return sim_random_below(r, 10000) < per_10000;
}
