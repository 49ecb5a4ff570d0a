/* SPDX-License-Identifier: Apache-2.0 */
/* An open knot: one mapping of the whole file, the parsed header, and the check that is done once
 * per file.
 *
 * The mapping starts at a 2 MiB-aligned address and is advised to use huge pages. Pages are paid
 * for when touched and given back by knot_file_drop: whoever reads weights drops them behind a
 * cursor, so that resident memory is the window and not the file. A file that changes while it is
 * mapped is noticed: knot_file_intact. */
#ifndef COBORD_HOST_KNOT_FILE_H
#define COBORD_HOST_KNOT_FILE_H

#include "host/tell.h"
#include "knot/knot.h"
#include "knot/vocab.h"

enum { KNOT_FILE_DROP_UNIT = 2 << 20 };

typedef struct KnotFile {
    int descriptor;
    uint8_t *map;   /* byte 0 of the file */
    void *reserved; /* what was reserved around the mapping, for alignment */
    size_t reserved_bytes;
    void *header_memory;
    Knot knot;
    uint64_t inode, device;
    int64_t modified_ns;
    int guard;  /* file_guard.h */
    bool grows; /* its user writes into it: when it was modified says nothing */
} KnotFile;

/* Opens, maps, parses; reads the header only. Errors  those of knot_parse, ERR_IO, ERR_NOT_FOUND,
 * ERR_FORMAT for what is no regular file. Owner  knot_file_close. */
MUST_CHECK Error knot_file_open(const char *path, KnotFile *out, Why *why);
void knot_file_close(KnotFile *file);

/* Whether the bytes read so far were the file's: it was not shortened, written to or unreadable since it was
 * opened. One system call. Errors  ERR_IO, from then on every time. Thread  any. */
MUST_CHECK Error knot_file_intact(const KnotFile *file, Why *why);

/* Address of a payload offset. */
static inline const uint8_t *knot_file_payload(const KnotFile *file, uint64_t offset)
{
    return file->map + file->knot.payload_offset + offset;
}

/* Gives back the pages that lie wholly inside [offset, offset + bytes) of the payload: down to 4
 * KiB pages, though whole multiples of KNOT_FILE_DROP_UNIT of the mapping keep huge pages whole.
 * They can be read again at any time. */
void knot_file_drop(const KnotFile *file, uint64_t offset, uint64_t bytes);
/* Reads [offset, offset + bytes) of the payload into memory, from the first page to the last: what
 * is not in the page cache yet then
 * comes in pages of 2 MiB, which touching here and there does not bring about. */
void knot_file_bring_in(const KnotFile *file, uint64_t offset, uint64_t bytes);

/* The tokenizer section, used in place. Errors  ERR_NOT_FOUND for a file without one (version 1),
 * those of vocab_parse. */
MUST_CHECK Error knot_file_vocab(const KnotFile *file, Vocab *out, Why *why);

/* Checks every hash of a version 2 file: identity and blocks; with `rows` also embedding rows, and
 * that padding is NUL. Drops behind itself. Version 1 has no hashes: with `rows` every scale must
 * be finite. `tell` gets stage "verify". Errors  ERR_CHECKSUM (tensor, offset), ERR_FORMAT,
 * ERR_NOT_FINITE, ERR_CANCELLED. */
MUST_CHECK Error knot_file_verify(const KnotFile *file, bool rows, const Tell *tell, Why *why);

/* Identity, and the hashes of the blocks that a section lies in: for who needs nothing else of the
 * file. Errors  ERR_CHECKSUM, ERR_FORMAT. */
MUST_CHECK Error knot_file_verify_section(const KnotFile *file, KnotSection section, Why *why);

/* All of it, but at most once per (inode, size, modification time): remembered in PATH.checked
 * beside the file or, when its directory cannot be written, in the cache directory. */
MUST_CHECK Error knot_file_verify_once(const KnotFile *file, const char *path, const Tell *tell,
                                       Why *why);

#endif
