/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file so that its name only ever shows the whole of it: to a temporary name in the same
 * directory, then sync, rename, and sync of the directory. Whatever fails before the rename removes
 * the temporary file.
 *
 *   .NAME.PID.part  --append--> .. --file_writer_commit--> NAME
 *                            file_writer_abandon removes it at any point
 *
 * SIGINT and SIGTERM: stop_install makes them a flag; the caller looks at it between writes and
 * abandons. A second signal, or one that cannot be caught, leaves only the temporary name behind; the next writer of
 * the same file removes it: the temporary file of whoever still writes is locked, what is not was left. A limit on
 * file sizes is an error when SIGXFSZ is ignored, as main.c and stop_install do.
 */
#ifndef COBORD_HOST_FILE_WRITER_H
#define COBORD_HOST_FILE_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct FileWriter {
    int descriptor; /* -1: nothing is open */
    char *path, *temporary;
    uint64_t bytes; /* appended so far, those in the buffer included */
    /* The tail that does not fill an aligned piece of FILE_WRITER_PIECE_BYTES yet. */
    uint8_t *buffer;
    size_t buffered;
} FileWriter;

/* The page cache keeps what was written at once in one large page; a mapping of small pages is
 * half as fast to stream. */
enum { FILE_WRITER_PIECE_BYTES = 4 << 20 };

/* Whether the file system of an open file has room for `bytes` more; fine where it does not say.
 * Errors  ERR_NO_SPACE. */
MUST_CHECK Error file_writer_check_space(int descriptor, const char *path, uint64_t bytes,
                                         Why *why);

/* `bytes_expected` (0: not known) is compared with the space that is free, so that a long job fails
 * at its start. Errors  ERR_IO, ERR_NO_SPACE, ERR_MEMORY. Owner  commit or abandon. */
MUST_CHECK Error file_writer_open(FileWriter *w, const char *path, uint64_t bytes_expected,
                                  Why *why);

/* The same for a file that nobody else may read, not even while it is written. */
MUST_CHECK Error file_writer_open_private(FileWriter *w, const char *path, Why *why);

/* Appends; writes go out in whole pieces at multiples of the piece's size. Errors  ERR_NO_SPACE, ERR_IO. */
MUST_CHECK Error file_writer_append(FileWriter *w, const void *bytes, size_t count, Why *why);

/* Overwrites a part of what is there. */
MUST_CHECK Error file_writer_patch(FileWriter *w, uint64_t offset, const void *bytes, size_t count,
                                   Why *why);

/* Sync and rename; an existing file of that name is replaced. On an error the temporary file is
 * removed. Errors  ERR_IO, ERR_NO_SPACE, ERR_CANCELLED when stop_asked before the rename. */
MUST_CHECK Error file_writer_commit(FileWriter *w, Why *why);

/* The same for a file that must not be there yet: of two who make it one fails. Errors  also ERR_DUPLICATE. */
MUST_CHECK Error file_writer_commit_new(FileWriter *w, Why *why);

/* For a rename in the directory of `path` to survive a power cut; file systems that cannot sync one are left alone. */
void file_writer_sync_directory(const char *path);

/* Removes what was written. Nothing to do after a commit; safe to call twice. */
void file_writer_abandon(FileWriter *w);

#endif
