/* SPDX-License-Identifier: Apache-2.0 */
/* A file to an S3-compatible store, in parts. The object's name shows the whole of it, or what was there
 * before:
 *
 *   find an upload that was begun, or begin one --> list its parts --> send what is missing or different
 *                                                       ^                        |
 *                                                       '------------------------'   until nothing is
 *   --> complete: from here on the name shows the file
 *
 * What is checked: the store checks the SHA-256 of every part against the signature, and we the MD5 that it
 * gives back as ETag in its list against our own; completing names those again, and its ETag is that of all
 * parts. A store whose ETags are no MD5s (S3 with keys of its own kind) leaves the first check, and parts
 * of an earlier run are sent again.
 *
 * What ends in between leaves its parts at the store, where the next call with the same name and file finds
 * them (R2 drops them after 7 days). Parts have one size but for the last, which is the same for the same
 * file. */
#ifndef COBORD_HOST_S3_UPLOAD_H
#define COBORD_HOST_S3_UPLOAD_H

#include "host/s3.h"
#include "host/tell.h"

enum {
    S3_UPLOAD_PART_BYTES = 8 << 20, /* doubled until S3_UPLOAD_PARTS_MAX suffice */
    S3_UPLOAD_PARTS_MAX = 9000,     /* stores take 10,000 */
    S3_UPLOAD_AT_ONCE = 4
};

typedef struct S3UploadReport {
    uint64_t bytes, bytes_found; /* of the latter, at the store before this call */
    uint32_t parts, retries;
} S3UploadReport;

/* `where` is s3://BUCKET/KEY. `tell` gets "upload". Memory: S3_UPLOAD_AT_ONCE parts. Signals: stop_install
 * before. Errors  ERR_USAGE (an empty file), ERR_KEY, ERR_NOT_FOUND (file, bucket), ERR_CHECKSUM,
 * ERR_UNREACHABLE, ERR_IO, ERR_TRUNCATED (the file became shorter), ERR_CANCELLED, ERR_TOO_LARGE,
 * ERR_MEMORY. */
MUST_CHECK Error s3_upload(const S3Access *access, const char *where, const char *path,
                           const Tell *tell, S3UploadReport *report, Why *why);

/* Bytes of each part but the last of a file of `bytes`. */
uint64_t s3_upload_part_bytes(uint64_t bytes);

#endif
