/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/min.h"
#include "cluster/window.h"
#include "host/memory.h"

/* Threads, connections, the heap's own, parts of the program that were not needed until now. */
static const uint64_t SLACK_BYTES = (uint64_t)5 << 20;

/* One that is being answered and one that arrives meanwhile. */
uint64_t node_memory_bodies_bytes(const NodeMemory *m) { return 2 * m->sizes.body_bytes_max; }

/* An answer may still be on its way when the next one is made. */
static uint64_t frames_bytes(const NodeMemory *m)
{
    return m->sizes.service_bytes + node_memory_bodies_bytes(m) + 2 * m->sizes.answer_bytes_max;
}

static uint64_t base_bytes(const NodeMemory *m)
{
    return m->process_bytes + m->sizes.floor_bytes + m->sizes.scratch_bytes + frames_bytes(m) +
           m->sizes.logits_bytes + m->sizes.cache_bytes;
}

static void choose_window(NodeMemory *m, uint64_t budget)
{
    uint64_t window = window_bytes(budget);
    m->tile_bytes_max = window_tile_bytes(window);
    m->window_bytes = window_role_bytes(window, m->sizes.weights_last - m->sizes.weights_first,
                                        m->sizes.widest_panel_bytes);
}

static Error refuse(const NodeMemory *m, const char *id, const char *whose, uint64_t has, Why *why)
{
#define MIB(x) (unsigned)((x) >> 20), (unsigned)(((x) & 0xfffff) * 10 >> 20)
    return error_why(why, ERR_PLAN,
                     "%s needs %u.%u MiB (process %u.%u + floor %u.%u + window %u.%u + activations "
                     "%u.%u + frames %u.%u + logits %u.%u + attention cache %u.%u), %s %u.%u MiB",
                     id, MIB(m->total_bytes), MIB(m->process_bytes), MIB(m->sizes.floor_bytes),
                     MIB(m->window_bytes), MIB(m->sizes.scratch_bytes), MIB(frames_bytes(m)),
                     MIB(m->sizes.logits_bytes), MIB(m->sizes.cache_bytes), whose, MIB(has));
#undef MIB
}

/* What is left holds weights: everything, or their beginning. */
static void choose_pinned(NodeMemory *m, uint64_t budget)
{
    uint64_t base = base_bytes(m), weights = m->sizes.weights_last - m->sizes.weights_first;
    uint64_t all = base + weights + WINDOW_EDGES_BYTES + m->rows_window_bytes;
    m->resident = all <= budget;
    if (m->resident) {
        m->window_bytes = m->rows_window_bytes;
        m->tile_bytes_max = 0;
        m->pinned_bytes = weights;
        m->total_bytes = all;
        return;
    }
    uint64_t streaming = base + m->window_bytes + WINDOW_EDGES_BYTES;
    m->pinned_bytes = budget > streaming ? min_u64(budget - streaming, weights) : 0;
    if (m->pinned_bytes) m->total_bytes = streaming + m->pinned_bytes;
}

Error node_memory_choose(NodeMemory *m, const char *id, uint64_t budget, Why *why)
{
    uint64_t allowed = memory_allowed();
    if (!m->process_bytes) m->process_bytes = memory_resident() + SLACK_BYTES;
    choose_window(m, budget);
    m->total_bytes = base_bytes(m) + m->window_bytes;
    if (m->total_bytes > budget) return refuse(m, id, "may take", budget, why);
    if (m->total_bytes > allowed) return refuse(m, id, "this machine has", allowed, why);
    choose_pinned(m, min_u64(budget, allowed));
    return OK;
}

Error node_memory_take(NodeMemory *m, Arena *arena, void **scratch, Why *why)
{
    uint64_t kept = m->sizes.floor_bytes + m->sizes.cache_bytes + m->sizes.logits_bytes +
                    m->sizes.service_bytes + 8 * ARENA_ALIGN;
    m->map_bytes = (size_t)(kept + m->sizes.scratch_bytes + ARENA_ALIGN);
    m->map = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->map == MAP_FAILED) {
        m->map = NULL;
        return error_why(why, ERR_MEMORY, "%llu bytes for caches and activations: %s",
                         (unsigned long long)m->map_bytes, strerror(errno));
    }
    *arena = arena_make(m->map, m->map_bytes);
    *scratch = arena_take_raw(arena, (size_t)m->sizes.scratch_bytes);
    return OK;
}

void node_memory_give_back(NodeMemory *m)
{
    if (m->map) (void)munmap(m->map, m->map_bytes);
    m->map = NULL;
}
