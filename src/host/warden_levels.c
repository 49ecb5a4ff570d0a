/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_levels.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/places.h"
#include "host/stop.h"
#include "host/whole.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older headers do not have it, older kernels refuse it */
#endif

enum { SPARE_MAX = 4, LARGE_PAGE_BYTES = 2 << 20 };

struct WardenLevels {
    WardenLevelsOptions options;
    KnotSource source;
    KnotIndex index;
    SlabCache *disk; /* or NULL */
    bool disk_lost;  /* there should be one */
    pthread_mutex_t lock;
    pthread_cond_t filled;
    Warden *policy;
    void *policy_memory;
    int memory;  /* descriptor of the memory file */
    bool sealed; /* its bytes cannot change: a slab that is forgotten then is kept by nobody */
    uint64_t store_bad;
    uint8_t *spare[SPARE_MAX]; /* slab buffers */
    uint32_t spare_count;
};

/* --- the store --- */

static Error store_size_of(void *context, uint64_t *bytes, Why *why)
{
    const WardenLevels *l = context;
    return store_size(l->options.store, l->options.object, bytes, why);
}

static Error store_read_of(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    const WardenLevels *l = context;
    return store_read(l->options.store, l->options.object, offset, bytes, out, why);
}

Error warden_levels_read_row(WardenLevels *l, uint64_t offset, uint64_t bytes, uint8_t *out,
                             Why *why)
{
    return store_read_of(l, l->index.knot.payload_offset + offset, bytes, out, why);
}

/* --- memory --- */

static Error memory_write(int fd, uint64_t at, const uint8_t *data, uint64_t bytes, Why *why)
{
    return whole_write(fd, at, data, bytes) ? OK : places_system_error(errno, "memory file", why);
}

static Error memory_section(const KnotIndex *x, int fd, KnotSection s, const uint8_t *data,
                            Why *why)
{
    return data ? memory_write(fd, x->knot.payload_offset + s.offset, data, s.bytes, why) : OK;
}

/* A file of the knot's size with header and hash sections. */
static Error memory_make(const KnotIndex *x, int *out, Why *why)
{
    int fd = memfd_create("cobord-warden", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return places_system_error(errno, "memory file", why);
    Error e = ftruncate(fd, (off_t)x->knot.file_bytes) == 0
                  ? memory_write(fd, 0, x->header, x->header_bytes, why)
                  : places_system_error(errno, "memory file", why);
    if (e == OK) e = memory_section(x, fd, x->knot.embedding_row_hashes, x->row_hashes, why);
    if (e == OK) e = memory_section(x, fd, x->knot.tensor_hashes, x->tensor_hashes, why);
    if (e == OK) e = memory_section(x, fd, x->knot.block_hashes, x->block_hashes, why);
    if (e) (void)close(fd);
    else *out = fd;
    return e;
}

/* Up to the block hash section, which has no hash and is in `index`. */
static uint64_t slab_end(const WardenLevels *l, uint32_t slab)
{
    uint64_t end = warden_slab_offset(l->policy, slab) + warden_slab_bytes(l->policy, slab);
    return end < l->index.knot.block_hashes.offset ? end : l->index.knot.block_hashes.offset;
}

/* Holes are whole pages: what of a border page belongs to a neighbour stays. */
static void memory_give_back(const WardenLevels *l, uint32_t slab)
{
    uint64_t at = l->index.knot.payload_offset + warden_slab_offset(l->policy, slab),
             end = l->index.knot.payload_offset + slab_end(l, slab);
    at = (at + 4095) / 4096 * 4096;
    end = end / 4096 * 4096;
    if (at < end)
        (void)fallocate(l->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                        (off_t)(end - at));
}

static Error policy_make(WardenLevels *l, Why *why)
{
    WardenConfig config = {.knot = &l->index.knot,
                           .identity = l->options.identity,
                           .budget_bytes = l->options.budget_bytes};
    size_t bytes = (size_t)warden_bytes(&config);
    void *memory = malloc(bytes);
    if (!memory) return error_why(why, ERR_MEMORY, "no memory for a warden");
    Arena arena = arena_make(memory, bytes);
    Error e = warden_build(&config, &arena, &l->policy, why);
    free(l->policy_memory);
    l->policy_memory = memory;
    return e;
}

/* --- buffers --- */

static uint8_t *buffer_take(WardenLevels *l)
{
    (void)pthread_mutex_lock(&l->lock);
    uint8_t *buffer = l->spare_count ? l->spare[--l->spare_count] : NULL;
    (void)pthread_mutex_unlock(&l->lock);
    return buffer ? buffer : malloc(WARDEN_SLAB_BYTES);
}

static void buffer_give(WardenLevels *l, uint8_t *buffer)
{
    if (!buffer) return;
    (void)pthread_mutex_lock(&l->lock);
    bool kept = l->spare_count < SPARE_MAX;
    if (kept) l->spare[l->spare_count++] = buffer;
    (void)pthread_mutex_unlock(&l->lock);
    if (!kept) free(buffer);
}

/* --- one slab --- */

/* A part of one slab. */
typedef struct Piece {
    uint32_t slab;
    uint64_t offset, bytes; /* of the payload */
    uint8_t *out;
    uint64_t first, last; /* the blocks around it */
    uint8_t *buffer;      /* a slab's room */
    bool keep_buffer;     /* it went to `later` */
} Piece;

static void copy_out(const Piece *p, uint64_t buffer_offset)
{
    memcpy(p->out, p->buffer + (p->offset - buffer_offset), (size_t)p->bytes);
}

static void release(WardenLevels *l, uint32_t slab, bool bad)
{
    (void)pthread_mutex_lock(&l->lock);
    bool gone = bad && warden_forget(l->policy, slab, true);
    if (warden_release(l->policy, slab) || gone) memory_give_back(l, slab);
    (void)pthread_mutex_unlock(&l->lock);
}

/* Result  false: it was bad, and is forgotten. */
static bool read_memory(WardenLevels *l, const Piece *p)
{
    bool good = whole_read(l->memory, l->index.knot.payload_offset + p->first, p->buffer,
                           p->last - p->first) &&
                knot_index_check(&l->index, p->first, p->last - p->first, p->buffer, NULL) == OK;
    if (good) copy_out(p, p->first);
    release(l, p->slab, !good);
    return good;
}

static void remember(WardenLater *later, Piece *p)
{
    if (!later || later->count == WARDEN_LATER_MAX) return;
    later->slabs[later->count] = p->slab;
    later->data[later->count++] = p->buffer;
    p->keep_buffer = true;
}

static Error read_store(WardenLevels *l, uint64_t first, uint64_t last, uint8_t *out, Why *why)
{
    uint64_t bad = 0;
    Error e = knot_source_read(&l->source, &l->index, first, last - first, out, &bad, why);
    (void)pthread_mutex_lock(&l->lock);
    l->store_bad += bad;
    (void)pthread_mutex_unlock(&l->lock);
    return e;
}

/* The whole slab into the buffer. */
static Error read_below(WardenLevels *l, Piece *p, WardenLater *later, Why *why)
{
    uint64_t first = warden_slab_offset(l->policy, p->slab), last = slab_end(l, p->slab);
    if (l->disk && slab_cache_get(l->disk, p->slab, last - first, p->buffer)) return OK;
    TRY(read_store(l, first, last, p->buffer, why));
    if (l->disk && slab_cache_wants(l->disk, p->slab, last - first)) remember(later, p);
    return OK;
}

static Error fill(WardenLevels *l, Piece *p, WardenLater *later, Why *why)
{
    uint64_t first = warden_slab_offset(l->policy, p->slab), last = slab_end(l, p->slab);
    Error e = read_below(l, p, later, why);
    bool kept = e == OK && memory_write(l->memory, l->index.knot.payload_offset + first, p->buffer,
                                        last - first, NULL) == OK;
    if (e == OK) copy_out(p, first);
    (void)pthread_mutex_lock(&l->lock);
    if (!kept) warden_fill_failed(l->policy, p->slab);
    else if (warden_filled(l->policy, p->slab)) memory_give_back(l, p->slab);
    (void)pthread_cond_broadcast(&l->filled);
    (void)pthread_mutex_unlock(&l->lock);
    return e;
}

/* What is not kept in memory: only the blocks that are wanted, unless the disk wants all of it. */
static Error pass(WardenLevels *l, Piece *p, WardenLater *later, Why *why)
{
    uint64_t first = warden_slab_offset(l->policy, p->slab);
    if (l->disk) {
        TRY(read_below(l, p, later, why));
        copy_out(p, first);
        return OK;
    }
    TRY(read_store(l, p->first, p->last, p->buffer, why));
    copy_out(p, p->first);
    return OK;
}

static WardenAnswer ask(WardenLevels *l, uint32_t slab)
{
    uint32_t evicted;
    (void)pthread_mutex_lock(&l->lock);
    WardenAnswer answer = warden_ask(l->policy, slab, &evicted);
    if (evicted != WARDEN_NONE) memory_give_back(l, evicted);
    if (answer == WARDEN_WAIT) /* to look at the wish to stop now and then */
        (void)clock_wait_until(&l->filled, &l->lock, clock_now_ns() + 1000000000);
    (void)pthread_mutex_unlock(&l->lock);
    return answer;
}

static Error read_piece(WardenLevels *l, Piece *p, WardenLater *later, Why *why)
{
    for (;;) {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
        switch (ask(l, p->slab)) {
        case WARDEN_HIT:
            if (read_memory(l, p)) return OK;
            break;
        case WARDEN_FILL: return fill(l, p, later, why);
        case WARDEN_PASS: return pass(l, p, later, why);
        case WARDEN_WAIT: break;
        }
    }
}

/* --- ranges --- */

Error warden_levels_read(WardenLevels *l, uint64_t offset, uint64_t bytes, uint8_t *out,
                         WardenLater *later, Why *why)
{
    for (uint64_t end = offset + bytes; offset < end;) {
        Piece p = {.slab = (uint32_t)(offset / WARDEN_SLAB_BYTES), .offset = offset, .out = out};
        uint64_t slab_last = slab_end(l, p.slab);
        ASSERT(offset < slab_last);
        p.bytes = (end < slab_last ? end : slab_last) - offset;
        knot_index_blocks(&l->index, p.offset, p.bytes, &p.first, &p.last);
        p.buffer = buffer_take(l);
        if (!p.buffer) return error_why(why, ERR_MEMORY, "no memory for a slab");
        Error e = read_piece(l, &p, later, why);
        if (!p.keep_buffer) buffer_give(l, p.buffer);
        TRY(e);
        offset += p.bytes;
        out += p.bytes;
    }
    return OK;
}

Error warden_levels_read_file(WardenLevels *l, uint64_t offset, uint64_t bytes, uint8_t *out,
                              WardenLater *later, Why *why)
{
    KnotIndexRest rest;
    knot_index_copy(&l->index, offset, bytes, out, &rest);
    return warden_levels_read(l, rest.offset, rest.bytes, out + rest.at, later, why);
}

void warden_levels_settle(WardenLevels *l, WardenLater *later)
{
    for (uint32_t i = 0; i < later->count; i++) {
        uint32_t slab = later->slabs[i];
        slab_cache_put(l->disk, slab, slab_end(l, slab) - warden_slab_offset(l->policy, slab),
                       later->data[i]);
        buffer_give(l, later->data[i]);
    }
    later->count = 0;
}

void warden_levels_forget(WardenLevels *l, uint64_t offset, uint64_t bytes)
{
    for (uint64_t c = offset / WARDEN_SLAB_BYTES; c <= (offset + bytes - 1) / WARDEN_SLAB_BYTES;
         c++) {
        (void)pthread_mutex_lock(&l->lock);
        if (warden_forget(l->policy, (uint32_t)c, false)) memory_give_back(l, (uint32_t)c);
        (void)pthread_mutex_unlock(&l->lock);
        if (l->disk) slab_cache_forget(l->disk, (uint32_t)c);
    }
}

/* --- sharing --- */

/* Whether the identity has rows of the tensor that a station maps: its matrices and vectors. */
static bool is_shared(const WardenLevels *l, const KnotTensor *t)
{
    if (strcmp(t->name, "token_embd_weight") == 0 || strcmp(t->name, "output_weight") == 0)
        return false;
    return warden_covers(&l->options.identity, &l->index.knot, t, 0, t->rows, NULL) == OK;
}

static Error fill_slab(WardenLevels *l, uint32_t slab, Why *why)
{
    uint8_t byte;
    WardenLater later = {0};
    Error e = warden_levels_read(l, warden_slab_offset(l->policy, slab), 1, &byte, &later, why);
    warden_levels_settle(l, &later);
    TRY(e);
    (void)pthread_mutex_lock(&l->lock);
    bool held = warden_peek(l->policy, slab);
    if (held && warden_release(l->policy, slab)) memory_give_back(l, slab);
    (void)pthread_mutex_unlock(&l->lock);
    if (held) return OK;
    return error_why(why, ERR_CAPACITY, "the warden's memory has no room for all of its range");
}

/* Pages of 2 MiB make reading a mapping twice as fast. Mapped piece by piece, so that none of it
 * stays in this process. */
static void collapse(const WardenLevels *l, uint64_t first, uint64_t last)
{
    uint64_t unit = LARGE_PAGE_BYTES;
    for (uint64_t at = (first + unit - 1) / unit * unit; at + unit <= last; at += unit) {
        uint8_t *reserved =
            mmap(NULL, 2 * unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) return;
        void *aligned = (void *)(((uintptr_t)reserved + unit - 1) / unit * unit);
        void *map = mmap(aligned, unit, PROT_READ, MAP_SHARED | MAP_FIXED, l->memory, (off_t)at);
        if (map != MAP_FAILED) (void)madvise(map, unit, MADV_COLLAPSE);
        (void)munmap(reserved, 2 * unit);
    }
}

static Error fill_all(WardenLevels *l, void (*beat)(void *context), void *context, Why *why)
{
    const Knot *k = &l->index.knot;
    uint64_t run = 0, run_end = 0; /* of whole slabs that follow each other */
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        if (!is_shared(l, t)) continue;
        uint64_t last = (t->offset + t->bytes - 1) / WARDEN_SLAB_BYTES;
        for (uint64_t c = t->offset / WARDEN_SLAB_BYTES; c <= last; c++) {
            uint64_t at = c * WARDEN_SLAB_BYTES, end = slab_end(l, (uint32_t)c);
            if (end <= run_end) continue;
            TRY(fill_slab(l, (uint32_t)c, why));
            beat(context);
            if (at != run_end) {
                if (run < run_end)
                    collapse(l, k->payload_offset + run, k->payload_offset + run_end);
                run = at;
            }
            run_end = end;
        }
    }
    if (run < run_end) collapse(l, k->payload_offset + run, k->payload_offset + run_end);
    return OK;
}

Error warden_levels_share(WardenLevels *l, void (*beat)(void *context), void *context,
                          int *descriptor, Why *why)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    if (l->options.identity.is_shard)
        return error_why(why, ERR_CAPACITY, "a shard warden has rows, no range to map");
    TRY(fill_all(l, beat, context, why));
    (void)pthread_mutex_lock(&l->lock);
    Error e = l->sealed || fcntl(l->memory, F_ADD_SEALS, seals) == 0
                  ? OK
                  : places_system_error(errno, "memory file", why);
    l->sealed |= e == OK;
    (void)pthread_mutex_unlock(&l->lock);
    *descriptor = l->memory;
    return e;
}

/* --- opening --- */

/* A disk that is full, or cannot be written, costs the cache and not the warden. */
static Error open_disk(WardenLevels *l, Why *why)
{
    char name[WARDEN_IDENTITY_TEXT_MAX];
    if (!l->options.directory[0]) return OK;
    warden_identity_text(&l->options.identity, l->index.knot.model.layers, name);
    name[16] = '-';
    SlabCacheOptions options = {l->options.directory, name, l->options.directory_bytes, &l->index,
                                l->options.tell};
    Error e = slab_cache_open(&options, &l->disk, why);
    if (e != ERR_IO && e != ERR_NO_SPACE) return e;
    char line[2 * WHY_MAX];
    (void)snprintf(line, sizeof line, "going on without a cache on disk: %s", why->text);
    tell_note(l->options.tell, line);
    l->disk_lost = true;
    return OK;
}

static Error open_parts(WardenLevels *l, Why *why)
{
    TRY(knot_source_open(&l->source, l->options.identity.knot_id, l->options.tables_bytes_max,
                         &l->index, why));
    TRY(policy_make(l, why));
    TRY(memory_make(&l->index, &l->memory, why));
    return open_disk(l, why);
}

Error warden_levels_open(const WardenLevelsOptions *options, WardenLevels **out, Why *why)
{
    WardenLevels *l = calloc(1, sizeof *l);
    if (!l) return error_why(why, ERR_MEMORY, "no memory for a warden");
    l->options = *options;
    l->source = (KnotSource){store_size_of, store_read_of, l};
    l->memory = -1;
    (void)pthread_mutex_init(&l->lock, NULL);
    clock_condition(&l->filled);
    Error e = open_parts(l, why);
    if (e) warden_levels_close(l);
    else *out = l;
    return e;
}

void warden_levels_close(WardenLevels *l)
{
    if (!l) return;
    slab_cache_close(l->disk);
    if (l->memory >= 0) (void)close(l->memory);
    for (uint32_t i = 0; i < l->spare_count; i++) free(l->spare[i]);
    free(l->policy_memory);
    knot_source_close(&l->index);
    (void)pthread_cond_destroy(&l->filled);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

const KnotIndex *warden_levels_index(const WardenLevels *l) { return &l->index; }

WardenLevelsCounters warden_levels_counters(WardenLevels *l)
{
    WardenLevelsCounters c = {.store = store_counters(l->options.store),
                              .has_disk = l->disk || l->disk_lost,
                              .disk.failures = l->disk_lost};
    if (l->disk) c.disk = slab_cache_counters(l->disk);
    (void)pthread_mutex_lock(&l->lock);
    c.memory = warden_counters(l->policy);
    c.store_bad = l->store_bad;
    c.shared = l->sealed;
    (void)pthread_mutex_unlock(&l->lock);
    return c;
}
