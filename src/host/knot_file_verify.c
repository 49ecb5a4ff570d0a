/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a whole file, declared in knot_file.h: everything that the header's parser cannot
 * see. One pass over the mapping, block by block, dropped behind in units of 2 MiB. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "host/knot_file.h"
#include "host/places.h"
#include "host/stop.h"
#include "host/whole.h"

enum { DROP_BYTES = 2 * KNOT_FILE_DROP_UNIT };

/* --- where a fault is --- */

static uint64_t tensor_hash(const KnotFile *f, const KnotTensor *t)
{
    HashStream64 hash;
    hash_stream64_start(&hash);
    for (uint64_t at = 0; at < t->bytes; at += DROP_BYTES) {
        uint64_t bytes = t->bytes - at < DROP_BYTES ? t->bytes - at : DROP_BYTES;
        hash_stream64_update(&hash, knot_file_payload(f, t->offset + at), (size_t)bytes);
        knot_file_drop(f, t->offset + at, bytes);
    }
    return hash_stream64_end(&hash);
}

/* A tensor that is damaged, by its own hash. */
static Error knot_file_tensor_fault(const KnotFile *f, uint64_t from, uint64_t bytes, Why *why)
{
    const Knot *k = &f->knot;
    for (uint32_t i = 0; i < k->tensor_count && k->tensor_hashes.bytes; i++) {
        const KnotTensor *t = &k->tensors[i];
        if (t->offset + t->bytes <= from || t->offset >= from + bytes) continue;
        uint64_t wanted =
            bytes_load64(knot_file_payload(f, k->tensor_hashes.offset + 8 * (uint64_t)i));
        if (tensor_hash(f, t) == wanted) continue;
        uint64_t first = t->offset < from ? from : t->offset, end = t->offset + t->bytes;
        if (end > from + bytes) end = from + bytes;
        return error_why(why, ERR_CHECKSUM, "%s, within its bytes %llu to %llu (%llu of the file)",
                         t->name, (unsigned long long)(first - t->offset),
                         (unsigned long long)(end - t->offset - 1),
                         (unsigned long long)(k->payload_offset + first));
    }
    return OK;
}

/* What lies at a payload offset, or after it. */
static const char *knot_file_name_at(const Knot *k, uint64_t offset)
{
    for (uint32_t i = 0; i < k->tensor_count; i++)
        if (offset < k->tensors[i].offset + k->tensors[i].bytes) return k->tensors[i].name;
    if (offset < k->tokenizer.offset + k->tokenizer.bytes) return "the tokenizer section";
    if (offset < k->embedding_row_hashes.offset + k->embedding_row_hashes.bytes)
        return "the embedding row hash section";
    return "the tensor hash section";
}

static Error knot_file_block_fault(const KnotFile *f, uint64_t from, uint64_t bytes, Why *why)
{
    const Knot *k = &f->knot;
    TRY(knot_file_tensor_fault(f, from, bytes, why));
    const char *name = knot_file_name_at(k, from), *last = knot_file_name_at(k, from + bytes - 1);
    return error_why(why, ERR_CHECKSUM,
                     "%s%s%s or the padding there (the %llu bytes at byte %llu of the file)", name,
                     strcmp(name, last) ? " to " : "", strcmp(name, last) ? last : "",
                     (unsigned long long)bytes, (unsigned long long)(k->payload_offset + from));
}

/* --- passes --- */

/* Drops what lies at least two units behind. */
static void knot_file_drop_behind(const KnotFile *f, uint64_t *dropped, uint64_t at, bool all)
{
    uint64_t end = all ? at : at / KNOT_FILE_DROP_UNIT * KNOT_FILE_DROP_UNIT;
    if (!all && end < *dropped + DROP_BYTES) return;
    if (end > *dropped) knot_file_drop(f, *dropped, end - *dropped);
    *dropped = end;
}

static Error knot_file_block(const KnotFile *f, uint64_t at, uint64_t *bytes, Why *why)
{
    KnotSection hashes = f->knot.block_hashes;
    uint64_t left = hashes.offset - at;
    *bytes = left < KNOT_HASH_BLOCK_BYTES ? left : KNOT_HASH_BLOCK_BYTES;
    uint64_t wanted =
        bytes_load64(knot_file_payload(f, hashes.offset + 8 * (at / KNOT_HASH_BLOCK_BYTES)));
    if (hash_xxh64(knot_file_payload(f, at), (size_t)*bytes) == wanted) return OK;
    return knot_file_block_fault(f, at, *bytes, why);
}

static Error knot_file_blocks(const KnotFile *f, const Tell *tell, Why *why)
{
    KnotSection hashes = f->knot.block_hashes;
    uint64_t dropped = 0;
    for (uint64_t at = 0; at < hashes.offset; at += KNOT_HASH_BLOCK_BYTES) {
        uint64_t bytes;
        TRY(knot_file_block(f, at, &bytes, why));
        knot_file_drop_behind(f, &dropped, at, false);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "the check was not finished");
        tell_step(tell, "verify", at + bytes, hashes.offset);
    }
    knot_file_drop_behind(f, &dropped, hashes.offset, true);
    return OK;
}

static Error knot_file_rows(const KnotFile *f, Why *why)
{
    const KnotTensor *t = knot_find(&f->knot, "token_embd_weight");
    KnotSection hashes = f->knot.embedding_row_hashes;
    if (!t || !hashes.bytes) return OK;
    uint64_t row_bytes = t->bytes / t->rows, dropped = t->offset;
    for (uint32_t row = 0; row < t->rows; row++) {
        uint64_t at = t->offset + row * row_bytes;
        uint64_t wanted = bytes_load64(knot_file_payload(f, hashes.offset + 8 * (uint64_t)row));
        if (hash_xxh64(knot_file_payload(f, at), (size_t)row_bytes) != wanted)
            return error_why(why, ERR_CHECKSUM, "token_embd_weight, row %u (byte %llu of the file)",
                             row, (unsigned long long)(f->knot.payload_offset + at));
        knot_file_drop_behind(f, &dropped, at, false);
    }
    knot_file_drop_behind(f, &dropped, t->offset + t->bytes, true);
    return OK;
}

/* Identity and padding: the header's bytes are read from the file again, since only its meaning was
 * kept. */
static Error knot_file_identity(const KnotFile *f, Why *why)
{
    const Knot *k = &f->knot;
    size_t end = (size_t)knot_header_end(bytes_load32(f->map + 6));
    uint64_t id =
        knot_identity(f->map, end, knot_file_payload(f, k->embedding_row_hashes.offset),
                      (size_t)k->embedding_row_hashes.bytes,
                      knot_file_payload(f, k->block_hashes.offset), (size_t)k->block_hashes.bytes);
    if (id != k->id)
        return error_why(why, ERR_CHECKSUM,
                         "the header or a hash section: they give %llx, knot_id says %llx",
                         (unsigned long long)id, (unsigned long long)k->id);
    for (uint64_t i = end; i < k->payload_offset; i++)
        if (f->map[i])
            return error_why(why, ERR_FORMAT, "byte %llu of the header's padding is not NUL",
                             (unsigned long long)i);
    return OK;
}

/* Holes between tensors are hashed with the rest; they must also be NUL, so that nothing hides in
 * them. */
static Error knot_file_holes(const KnotFile *f, Why *why)
{
    const Knot *k = &f->knot;
    uint64_t at = 0;
    for (uint32_t i = 0; i < k->tensor_count && k->version == 2; i++) {
        for (; at < k->tensors[i].offset; at++)
            if (*knot_file_payload(f, at))
                return error_why(why, ERR_FORMAT, "byte %llu, in the padding before %s, is not NUL",
                                 (unsigned long long)(k->payload_offset + at), k->tensors[i].name);
        at = k->tensors[i].offset + k->tensors[i].bytes;
    }
    return OK;
}

/* Version 1 has no hashes. Bytes that are not weights (a shifted payload, another file's end)
 * rarely make finite scales. */
static Error knot_file_finite(const KnotFile *f, const Tell *tell, Why *why)
{
    const Knot *k = &f->knot;
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        uint64_t row_bytes = t->bytes / t->rows, dropped = t->offset;
        for (uint32_t row = 0; row < t->rows; row++) {
            uint64_t at = t->offset + row * row_bytes;
            if (!block_row_finite(t->type, knot_file_payload(f, at), t->cols))
                return error_why(
                    why, ERR_NOT_FINITE,
                    "%s, row %u (byte %llu of the file): a scale or value is not finite", t->name,
                    row, (unsigned long long)(k->payload_offset + at));
            knot_file_drop_behind(f, &dropped, at, false);
        }
        knot_file_drop_behind(f, &dropped, t->offset + t->bytes, true);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "the check was not finished");
        tell_step(tell, "verify", t->offset + t->bytes, k->payload_bytes);
    }
    return OK;
}

Error knot_file_verify(const KnotFile *f, bool rows, const Tell *tell, Why *why)
{
    if (f->knot.version == 1) return rows ? knot_file_finite(f, tell, why) : OK;
    TRY(knot_file_identity(f, why));
    TRY(knot_file_blocks(f, tell, why));
    if (rows) TRY(knot_file_holes(f, why));
    Error e = rows ? knot_file_rows(f, why) : OK;
    knot_file_drop(f, 0, f->knot.payload_bytes);
    return e;
}

Error knot_file_verify_section(const KnotFile *f, KnotSection section, Why *why)
{
    uint64_t end = section.offset + section.bytes, bytes;
    if (f->knot.version == 1) return OK;
    TRY(knot_file_identity(f, why));
    for (uint64_t at = section.offset - section.offset % KNOT_HASH_BLOCK_BYTES; at < end;
         at += bytes)
        TRY(knot_file_block(f, at, &bytes, why));
    knot_file_drop(f, 0, f->knot.payload_bytes);
    return OK;
}

/* --- once --- */

enum { NOTE_BYTES = 160 };

static void knot_file_note(const KnotFile *f, char out[NOTE_BYTES])
{
    (void)snprintf(out, NOTE_BYTES,
                   "cobord checked 1 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %016" PRIx64
                   "\n",
                   f->device, f->inode, f->knot.file_bytes, f->modified_ns, f->knot.id);
}

static bool knot_file_note_is(const char *path, const char *note)
{
    char text[NOTE_BYTES + 1];
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    ssize_t n = whole_rest(fd, text, NOTE_BYTES);
    (void)close(fd);
    return n == (ssize_t)strlen(note) && memcmp(text, note, (size_t)n) == 0;
}

static bool knot_file_note_write(const char *path, const char *note)
{
    int fd = whole_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return false;
    size_t bytes = strlen(note);
    bool written = write(fd, note, bytes) == (ssize_t)bytes;
    return close(fd) == 0 && written;
}

/* Beside the file, and in the cache when its directory cannot be written. */
static bool knot_file_note_paths(const KnotFile *f, const char *path, char *beside, char *cached,
                                 size_t room)
{
    char models[PLACES_PATH_BYTES], name[64];
    Why ignored;
    if (snprintf(beside, room, "%s.checked", path) >= (int)room) return false;
    (void)snprintf(name, sizeof name, "%" PRIx64 "-%" PRIx64, f->device, f->inode);
    cached[0] = '\0';
    if (places_models(models, sizeof models, &ignored) == OK &&
        places_join(cached, room, models, ".", name, ".checked", &ignored) != OK)
        cached[0] = '\0';
    return true;
}

Error knot_file_verify_once(const KnotFile *f, const char *path, const Tell *tell, Why *why)
{
    char note[NOTE_BYTES], beside[PLACES_PATH_BYTES], cached[PLACES_PATH_BYTES];
    if (f->knot.version == 1) return OK;
    knot_file_note(f, note);
    bool noted = knot_file_note_paths(f, path, beside, cached, PLACES_PATH_BYTES);
    if (noted &&
        (knot_file_note_is(beside, note) || (cached[0] && knot_file_note_is(cached, note))))
        return OK;
    TRY(knot_file_verify(f, false, tell, why));
    if (noted && !knot_file_note_write(beside, note) && cached[0])
        (void)knot_file_note_write(cached, note);
    return OK;
}
