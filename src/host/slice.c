/* SPDX-License-Identifier: Apache-2.0 */
#include "host/slice.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "host/clock.h"
#include "host/file_reader.h"
#include "host/file_writer.h"
#include "host/places.h"
#include "host/share.h"
#include "host/slice_state.h"
#include "host/stop.h"
#include "host/whole.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older kernels refuse it, and then pages stay small */
#endif

enum { SHARE_SILENCE_S = 30, NOTE_BYTES = 200, INDEX_TRIES_MAX = 8 };

/* --- opening --- */

/* The node's own warden; the coordinator has none and asks any. */
static const ClusterNode *warden_of(const Node *node)
{
    const ClusterFile *c = node->cluster;
    if (node->self->warden != CLUSTER_FILE_NONE) return &c->nodes[node->self->warden];
    for (uint32_t i = 0; i < c->node_count && node->self->role == CLUSTER_COORDINATOR; i++)
        if (cluster_file_is_warden(c->nodes[i].role)) return &c->nodes[i];
    return NULL;
}

/* CACHE/slices/KNOTID/ID.knot. Without a place for it "": a slice may still fit into memory. */
static Error choose_path(Slice *s, Why *why)
{
    char models[PLACES_PATH_BYTES], directory[NODE_PATH_BYTES];
    TRY(places_models(models, sizeof models, why));
    char *slash = strrchr(models, '/');
    int base = slash ? (int)(slash - models) : 0;
    (void)snprintf(directory, sizeof directory, "%.*s/slices/%016" PRIx64, base, models,
                   s->node->cluster->knot_id);
    TRY(places_make_directory(directory, 0777, why));
    return places_join(s->path, sizeof s->path, directory, "", s->node->self->id, ".knot", why);
}

/* As a slice in memory: half of the budget. */
static uint64_t tables_bytes_max(const Slice *s) { return s->node->cluster->memory_bytes / 2; }

static Error kept_size(void *context, uint64_t *bytes, Why *why)
{
    struct stat st;
    if (fstat(*(const int *)context, &st) != 0) return places_system_error(errno, "slice", why);
    *bytes = (uint64_t)st.st_size;
    return OK;
}

static Error kept_read(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    return file_reader_read(*(const int *)context, "the slice", offset, out, (size_t)bytes, why);
}

/* What an earlier start left has header and tables too: then nobody need be there. */
static bool index_kept(Slice *s)
{
    Why why;
    int fd =
        s->path[0] ? whole_open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0) : -1;
    KnotSource source = {kept_size, kept_read, &fd};
    bool good = fd >= 0 && knot_source_open(&source, s->node->cluster->knot_id, tables_bytes_max(s),
                                            &s->index, &why) == OK;
    if (fd >= 0) (void)close(fd);
    return good;
}

void slice_blame_warden(Slice *s, Error e, const Why *why)
{
    char line[WHY_MAX + CLUSTER_FILE_TEXT_BYTES_MAX + 64];
    uint64_t now_s = clock_now_s();
    s->warden_error = e;
    if (e == OK || e == ERR_CANCELLED) return;
    s->warden_why = *why;
    if (now_s == s->blamed_s) return;
    s->blamed_s = now_s;
    (void)snprintf(line, sizeof line, "%s is passed over: %s", warden_of(s->node)->id, why->text);
    tell_note(s->node->options->tell, line);
}

Error slice_both_failed(const Slice *s, Error error, Why *why)
{
    Why store_why = *why;
    if (s->warden_error == OK) return error;
    return error_why(why, error, "%.*s; and %s: %.*s", WHY_MAX / 2 - 40, store_why.text,
                     warden_of(s->node)->id, WHY_MAX / 2, s->warden_why.text);
}

static Error index_once(Slice *s, Why *why)
{
    uint64_t id = s->node->cluster->knot_id;
    if (s->warden && warden_client_alive(s->warden)) {
        KnotSource source = warden_client_source(s->warden);
        s->warden_error =
            knot_source_open(&source, id, tables_bytes_max(s), &s->index, &s->warden_why);
        if (s->warden_error == OK || s->warden_error == ERR_CANCELLED) return s->warden_error;
    }
    Error e = s->store_error;
    if (e) *why = s->store_why;
    else e = knot_source_open(&s->store.source, id, tables_bytes_max(s), &s->index, why);
    if (e == OK && s->warden_error) slice_blame_warden(s, s->warden_error, &s->warden_why);
    if (e == OK) return OK;
    return slice_both_failed(s, e == ERR_USAGE && s->warden_error ? s->warden_error : e, why);
}

void slice_wait(int tries)
{
    for (int i = 0; i < 5 * tries && !stop_asked(); i++) (void)usleep(100000);
}

/* Wardens and nodes of a cluster start at the same time: neither waits for the other's first second. */
static Error open_index(Slice *s, Why *why)
{
    if (index_kept(s)) return OK;
    for (int tries = 1;; tries++) {
        Error e = index_once(s, why);
        bool hope = e == ERR_UNREACHABLE || e == ERR_AGAIN || e == ERR_NOT_FOUND;
        if (e == OK || !hope || !s->warden || tries == INDEX_TRIES_MAX) return e;
        slice_wait(tries);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
    }
}

static Error open_parts(Slice *s, Why *why)
{
    const ClusterNode *warden = warden_of(s->node);
    s->store_error = knot_store_open(s->node, &s->store, &s->store_why);
    if (warden) TRY(warden_client_open(s->node, warden, &s->warden, why));
    s->path_error = choose_path(s, &s->path_why);
    if (s->path_error) s->path[0] = '\0';
    s->rows_from_warden = warden && warden->role == CLUSTER_SHARD_WARDEN;
    TRY(open_index(s, why));
    s->done = calloc(s->index.knot.tensor_count, 1);
    s->targets = calloc((size_t)s->index.knot.tensor_count + 4, sizeof *s->targets);
    return s->done && s->targets ? OK : error_why(why, ERR_MEMORY, "no memory for a slice");
}

Error slice_open(const Node *node, Slice **out, Why *why)
{
    Slice *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a slice");
    s->node = node;
    s->writable = -1;
    s->file.descriptor = -1;
    Error e = open_parts(s, why);
    if (e) slice_close(s);
    else *out = s;
    return e;
}

void slice_close(Slice *s)
{
    if (!s) return;
    knot_file_close(&s->file);
    if (s->writable >= 0) (void)close(s->writable);
    if (s->temporary[0]) (void)unlink(s->temporary);
    warden_client_close(s->warden);
    knot_store_close(&s->store);
    knot_source_close(&s->index);
    free(s->targets);
    free(s->done);
    free(s->rows);
    free(s->row_bytes);
    free(s);
}

const Knot *slice_knot(const Slice *s) { return &s->index.knot; }
const KnotFile *slice_file(const Slice *s) { return &s->file; }

/* --- from a descriptor --- */

/* Its tensors are where the header says, so that must be the one which was checked. */
static bool has_our_header(const Slice *s, const KnotFile *file)
{
    return file->knot.id == s->index.knot.id && file->knot.file_bytes == s->index.knot.file_bytes &&
           memcmp(file->map, s->index.header, s->index.header_bytes) == 0;
}

static Error open_descriptor(int descriptor, KnotFile *out, Why *why)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return knot_file_open(path, out, why);
}

/* What can change after it was checked is not taken. */
static bool is_sealed(int descriptor)
{
    int seals = fcntl(descriptor, F_GET_SEALS), wanted = F_SEAL_WRITE | F_SEAL_SHRINK;
    return seals >= 0 && (seals & wanted) == wanted;
}

static Error use_shared(Slice *s, ShareWhat what, int descriptor, Why *why)
{
    KnotFile file;
    if (what == SHARE_MEMORY && !is_sealed(descriptor))
        return error_why(why, ERR_FORMAT, "the warden's memory file is not sealed");
    TRY(open_descriptor(descriptor, &file, why));
    Error e = has_our_header(s, &file)
                  ? slice_fill_check(s, &file, why)
                  : error_why(why, ERR_UNSUPPORTED, "the warden shares another knot");
    if (e) {
        knot_file_close(&file);
        return e;
    }
    s->file = file;
    s->from = SLICE_DESCRIPTOR;
    return OK;
}

/* Result  whether there is a slice now. Whatever is odd: HTTP. */
static bool try_shared(Slice *s)
{
    Why why;
    char path[NODE_PATH_BYTES], line[WHY_MAX + 80];
    ShareWhat what;
    int descriptor;
    const ClusterNode *warden = warden_of(s->node);
    if (!warden || !warden->socket[0] ||
        node_path(s->node->cluster_path, warden->socket, path, &why) != OK ||
        access(path, F_OK) != 0)
        return false;
    Error e =
        share_ask(path, s->node->key, s->index.knot.id, SHARE_SILENCE_S, &what, &descriptor, &why);
    if (e == OK) {
        e = use_shared(s, what, descriptor, &why);
        (void)close(descriptor);
    }
    if (e == OK) return true;
    (void)snprintf(line, sizeof line, "no memory is shared with %s: %s", warden->id, why.text);
    tell_note(s->node->options->tell, line);
    return false;
}

/* --- kept on disk --- */

/* What the file was when all of it had been checked, and what it holds. */
static bool note_of(const Slice *s, int descriptor, char out[NOTE_BYTES])
{
    struct stat st;
    if (fstat(descriptor, &st) != 0) return false;
    HashStream64 what;
    hash_stream64_start(&what);
    for (uint32_t i = 0; i < s->target_count; i++) {
        uint64_t range[2] = {s->targets[i].offset, s->targets[i].bytes};
        hash_stream64_update(&what, range, sizeof range);
    }
    (void)snprintf(out, NOTE_BYTES,
                   "cobord slice 1 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %016" PRIx64
                   " %016" PRIx64 "\n",
                   (uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, s->index.knot.id,
                   hash_stream64_end(&what));
    return true;
}

static Error note_path(const Slice *s, char out[NODE_PATH_BYTES], Why *why)
{
    if (snprintf(out, NODE_PATH_BYTES, "%s.checked", s->path) >= NODE_PATH_BYTES)
        return error_why(why, ERR_TOO_LARGE, "the path of the slice");
    return OK;
}

static bool note_is_right(const Slice *s, int descriptor)
{
    char path[NODE_PATH_BYTES], wanted[NOTE_BYTES], found[NOTE_BYTES] = {0};
    if (note_path(s, path, NULL) != OK || !note_of(s, descriptor, wanted)) return false;
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0);
    ssize_t n = fd >= 0 ? whole_rest(fd, found, sizeof found - 1) : -1;
    if (fd >= 0) (void)close(fd);
    return n > 0 && strcmp(wanted, found) == 0;
}

static void note_write(const Slice *s, int descriptor)
{
    char path[NODE_PATH_BYTES], note[NOTE_BYTES];
    if (note_path(s, path, NULL) != OK || !note_of(s, descriptor, note)) return;
    int fd = whole_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return;
    bool written = write(fd, note, strlen(note)) == (ssize_t)strlen(note);
    (void)close(fd);
    if (!written) (void)unlink(path);
}

static void note_remove(const Slice *s)
{
    char path[NODE_PATH_BYTES];
    if (note_path(s, path, NULL) == OK) (void)unlink(path);
}

static bool try_kept(Slice *s)
{
    Why why;
    int fd = whole_open(s->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0);
    if (fd < 0) return false;
    if (note_is_right(s, fd) && open_descriptor(fd, &s->file, &why) == OK) {
        s->writable = fd;
        s->file.grows = true;
        s->from = SLICE_KEPT;
        for (uint32_t i = 0; i < s->target_count; i++)
            if (s->targets[i].whole) s->done[s->targets[i].tensor - s->index.knot.tensors] = 1;
        return true;
    }
    (void)close(fd);
    return false;
}

/* --- a new one --- */

Error slice_write_at(int fd, uint64_t at, const void *data, uint64_t bytes, Why *why)
{
    return whole_write(fd, at, data, bytes) ? OK : places_system_error(errno, "the slice", why);
}

static Error write_section(const Slice *s, KnotSection section, const uint8_t *data, Why *why)
{
    if (!data || !section.bytes) return OK;
    return slice_write_at(s->writable, s->index.knot.payload_offset + section.offset, data,
                          section.bytes, why);
}

static Error write_frame(Slice *s, Why *why)
{
    const KnotIndex *x = &s->index;
    if (ftruncate(s->writable, (off_t)x->knot.file_bytes) != 0)
        return places_system_error(errno, "the slice", why);
    TRY(slice_write_at(s->writable, 0, x->header, x->header_bytes, why));
    TRY(write_section(s, x->knot.embedding_row_hashes, x->row_hashes, why));
    TRY(write_section(s, x->knot.tensor_hashes, x->tensor_hashes, why));
    return write_section(s, x->knot.block_hashes, x->block_hashes, why);
}

static Error make_memory(Slice *s, Why *why)
{
    s->writable = memfd_create("cobord-slice", MFD_CLOEXEC);
    if (s->writable < 0) return places_system_error(errno, "memory file", why);
    s->from = SLICE_MEMORY;
    return OK;
}

/* One name for whoever is alone, so that what a killed node left is used up; a number when two nodes share an id. */
static Error make_disk(Slice *s, Why *why)
{
    for (int own = 0; own < 2; own++) {
        char number[32] = "";
        if (own) (void)snprintf(number, sizeof number, ".%ld", (long)getpid());
        if (snprintf(s->temporary, sizeof s->temporary, "%s%s.part", s->path, number) >=
            (int)sizeof s->temporary)
            return error_why(why, ERR_TOO_LARGE, "the path of the slice");
        int fd = whole_open(s->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            s->writable = fd;
            s->from = SLICE_DISK;
            if (ftruncate(fd, 0) != 0) return places_system_error(errno, s->temporary, why);
            return file_writer_check_space(fd, s->path, slice_fill_bytes(s), why);
        }
        int number_of = errno;
        if (fd >= 0) (void)close(fd);
        if (fd < 0) {
            s->temporary[0] = '\0';
            return places_system_error(number_of, s->path, why);
        }
    }
    s->temporary[0] = '\0';
    return error_why(why, ERR_IO, "%s is being written by another node", s->path);
}

static Error commit_disk(Slice *s, Why *why)
{
    if (fsync(s->writable) != 0) return places_system_error(errno, s->temporary, why);
    note_remove(s);
    if (rename(s->temporary, s->path) != 0) return places_system_error(errno, s->path, why);
    s->temporary[0] = '\0';
    file_writer_sync_directory(s->path); /* the note must not be there without it */
    note_write(s, s->writable);
    return OK;
}

/* Memory files come in small pages, which make reading half as fast. What was collapsed is dropped from the mapping: it
 * stays in the file. */
static void collapse(const Slice *s)
{
    uint64_t unit = KNOT_FILE_DROP_UNIT, payload = s->index.knot.payload_offset, done = 0;
    for (uint32_t i = 0; i < s->target_count; i++) {
        uint64_t first = (payload + s->targets[i].offset) / unit * unit,
                 last = payload + s->targets[i].offset + s->targets[i].bytes;
        for (uint64_t at = first < done ? done : first; at < last; at += unit) {
            if (at + unit > s->index.knot.file_bytes) return;
            if (madvise(s->file.map + at, unit, MADV_COLLAPSE) != 0) return;
            (void)madvise(s->file.map + at, unit, MADV_DONTNEED);
            done = at + unit;
        }
    }
}

static Error make_new(Slice *s, Why *why)
{
    bool fits = slice_fill_bytes(s) <= s->node->cluster->memory_bytes / 2;
    TRY(fits ? make_memory(s, why) : make_disk(s, why));
    TRY(write_frame(s, why));
    TRY(slice_fill_fetch(s, why));
    if (!fits) TRY(commit_disk(s, why));
    TRY(open_descriptor(s->writable, &s->file, why));
    s->file.grows = true;
    if (fits) collapse(s);
    return OK;
}

/* More phases or rows for a slice that is in use. */
static Error extend(Slice *s, Why *why)
{
    if (s->from == SLICE_DESCRIPTOR) {
        if (slice_fill_check(s, &s->file, NULL) == OK) return OK;
        return error_why(
            why, ERR_NOT_AVAILABLE,
            "the memory shared by the warden has not got this range; restart the node");
    }
    if (s->from != SLICE_MEMORY) note_remove(s);
    TRY(slice_fill_fetch(s, why));
    if (s->from != SLICE_MEMORY) note_write(s, s->writable);
    return OK;
}

Error slice_fill(Slice *s, const ClusterNode *part, Why *why)
{
    TRY(slice_fill_list(s, part, why));
    s->warden_refused = false; /* it may be another by now */
    if (s->file.map) return extend(s, why);
    if (try_shared(s)) return OK;
    if (slice_fill_bytes(s) > s->node->cluster->memory_bytes / 2) {
        if (s->path_error) *why = s->path_why;
        TRY(s->path_error);
        if (try_kept(s)) return OK;
    }
    if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
    return make_new(s, why);
}
