/* SPDX-License-Identifier: Apache-2.0 */
#include "host/knot_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "host/file_guard.h"
#include "host/file_reader.h"

enum { PAGE_BYTES = 4096 };

/* --- reading the header --- */

/* The two ranges of docs/format/knot.md, section 1. The caller frees *out. */
static Error knot_file_read_header(int descriptor, const char *path, uint64_t file_bytes,
                                   uint8_t **out, size_t *out_bytes, Why *why)
{
    size_t probe = file_bytes < KNOT_PROBE_BYTES ? (size_t)file_bytes : KNOT_PROBE_BYTES;
    uint64_t need = 0;
    *out = malloc(KNOT_PROBE_BYTES);
    if (!*out) return error_why(why, ERR_MEMORY, "the header");
    TRY(file_reader_read(descriptor, path, 0, *out, probe, why));
    TRY(knot_header_bytes(*out, probe, file_bytes, &need, why));
    *out_bytes = (size_t)need;
    if (need <= probe) return OK;
    uint8_t *whole = realloc(*out, (size_t)need);
    if (!whole)
        return error_why(why, ERR_MEMORY, "a header of %llu bytes", (unsigned long long)need);
    *out = whole;
    return file_reader_read(descriptor, path, probe, whole + probe, (size_t)need - probe, why);
}

static Error knot_file_parse(KnotFile *f, const char *path, uint64_t file_bytes, Why *why)
{
    uint8_t *header = NULL;
    size_t bytes = 0;
    Error e = knot_file_read_header(f->descriptor, path, file_bytes, &header, &bytes, why);
    void *scratch = NULL;
    if (e == OK) {
        size_t scratch_bytes = knot_scratch_bytes(bytes), arena_size = knot_arena_bytes(bytes);
        scratch = malloc(scratch_bytes);
        f->header_memory = malloc(arena_size);
        if (scratch && f->header_memory) {
            Arena arena = arena_make(f->header_memory, arena_size),
                  second = arena_make(scratch, scratch_bytes);
            e = knot_parse(header, bytes, file_bytes, &arena, &second, &f->knot, why);
        } else e = error_why(why, ERR_MEMORY, "a header of %zu bytes", bytes);
    }
    free(scratch);
    free(header);
    return e;
}

/* --- open and close --- */

/* Reserves a little more than the file, then puts the file over the first 2 MiB border in it. */
static Error knot_file_map(KnotFile *f, uint64_t file_bytes, Why *why)
{
    if (file_bytes > SIZE_MAX / 2)
        return error_why(why, ERR_TOO_LARGE, "the file cannot be mapped");
    f->reserved_bytes = (size_t)file_bytes + 2 * (size_t)KNOT_FILE_DROP_UNIT;
    f->reserved = mmap(NULL, f->reserved_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->reserved == MAP_FAILED) {
        f->reserved = NULL;
        return error_why(why, ERR_MEMORY, "no addresses for %llu bytes: %s",
                         (unsigned long long)file_bytes, strerror(errno));
    }
    uintptr_t unit = KNOT_FILE_DROP_UNIT;
    void *aligned = (void *)(((uintptr_t)f->reserved + unit - 1) / unit * unit);
    void *map =
        mmap(aligned, (size_t)file_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, f->descriptor, 0);
    if (map == MAP_FAILED)
        return error_why(why, ERR_IO, "cannot map the file: %s", strerror(errno));
    f->map = map;
    f->guard = file_guard_add(map, (size_t)file_bytes, f->descriptor);
#ifdef MADV_HUGEPAGE
    (void)madvise(map, (size_t)file_bytes, MADV_HUGEPAGE); /* without it the same, only slower */
#endif
    return OK;
}

static int64_t modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static Error knot_file_start(const char *path, KnotFile *f, Why *why)
{
    struct stat st;
    TRY(file_reader_open(path, "a knot", &f->descriptor, &st, why));
    f->inode = (uint64_t)st.st_ino;
    f->device = (uint64_t)st.st_dev;
    f->modified_ns = modified_ns(&st);
    TRY(knot_file_parse(f, path, (uint64_t)st.st_size, why));
    return knot_file_map(f, (uint64_t)st.st_size, why);
}

Error knot_file_open(const char *path, KnotFile *out, Why *why)
{
    memset(out, 0, sizeof *out);
    Error e = knot_file_start(path, out, why);
    if (e) {
        if (out->descriptor >= 0) (void)close(out->descriptor);
        out->descriptor = -1;
        knot_file_close(out);
    }
    return e;
}

/* A zeroed KnotFile holds nothing: its descriptor 0 is not ours. */
void knot_file_close(KnotFile *f)
{
    if (f->map) file_guard_remove(f->guard);
    if (f->map && f->descriptor >= 0) (void)close(f->descriptor);
    if (f->reserved) (void)munmap(f->reserved, f->reserved_bytes);
    free(f->header_memory);
    memset(f, 0, sizeof *f);
    f->descriptor = -1;
}

Error knot_file_intact(const KnotFile *f, Why *why)
{
    struct stat st;
    bool lost = file_guard_lost(f->guard) || fstat(f->descriptor, &st) != 0;
    if (!lost && (uint64_t)st.st_size >= f->knot.file_bytes &&
        (f->grows || modified_ns(&st) == f->modified_ns))
        return OK;
    return error_why(why, ERR_IO,
                     "the model's file was %s while it was in use: put it back and start again",
                     lost || (uint64_t)st.st_size < f->knot.file_bytes ? "cut short or unreadable"
                                                                       : "written to");
}

void knot_file_drop(const KnotFile *f, uint64_t offset, uint64_t bytes)
{
    uint64_t first = f->knot.payload_offset + offset, last = first + bytes;
    ASSERT(bytes <= f->knot.payload_bytes && offset <= f->knot.payload_bytes - bytes);
    first = (first + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (last == f->knot.file_bytes) last += PAGE_BYTES - 1; /* nothing follows in the last page */
    last = last / PAGE_BYTES * PAGE_BYTES;
    if (first < last) (void)madvise(f->map + first, (size_t)(last - first), MADV_DONTNEED);
}

/* One large page at a time: a longer call is not ended by a signal. */
void knot_file_bring_in(const KnotFile *f, uint64_t offset, uint64_t bytes)
{
    uint64_t unit = KNOT_FILE_DROP_UNIT, first = f->knot.payload_offset + offset,
             last = first + bytes;
    ASSERT(bytes <= f->knot.payload_bytes && offset <= f->knot.payload_bytes - bytes);
#ifdef MADV_POPULATE_READ
    for (uint64_t next; first < last; first = next) {
        next = (first / unit + 1) * unit;
        if (next > last) next = last;
        uint64_t page = first / PAGE_BYTES * PAGE_BYTES;
        (void)madvise(f->map + page, (size_t)(next - page), MADV_POPULATE_READ);
    }
#else
    (void)unit, (void)last;
#endif
}

Error knot_file_vocab(const KnotFile *f, Vocab *out, Why *why)
{
    KnotSection s = f->knot.tokenizer;
    if (!s.bytes)
        return error_why(why, ERR_NOT_FOUND,
                         "the file has no tokenizer: version 1 knots have none");
    return vocab_parse(knot_file_payload(f, s.offset), (size_t)s.bytes, out, why);
}
