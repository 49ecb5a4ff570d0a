/* SPDX-License-Identifier: Apache-2.0 */
/* What the keys of the environment may do at an S3-compatible store, tried with an object of our own: list, write, read
 * it back, delete it. Each is one request with a deadline, and none is tried twice. */
#ifndef COBORD_HOST_S3_RIGHTS_H
#define COBORD_HOST_S3_RIGHTS_H

#include "host/s3.h"

typedef enum S3Right {
    S3_RIGHT_LIST,
    S3_RIGHT_WRITE,
    S3_RIGHT_READ,
    S3_RIGHT_DELETE,
    S3_RIGHTS
} S3Right;

typedef struct S3Rights {
    /* OK; ERR_KEY: refused; ERR_NOT_FOUND: no such bucket; else what became of the request. Where the object could not
     * be written, reading is tried with a name that is not there, and deleting not at all (ERR_AGAIN). */
    Error errors[S3_RIGHTS];
    Why whys[S3_RIGHTS];
    char object[S3_PATH_BYTES]; /* the probe's whole name, s3://BUCKET/.. */
    int64_t date_s,
        own_date_s;        /* the store's clock and ours at the same moment; 0: it did not say */
    uint32_t microseconds; /* of the last answer */
    int64_t certificate_until_s; /* 0: no TLS */
} S3Rights;

/* `where` is s3://BUCKET or s3://BUCKET/PREFIX. Errors  ERR_USAGE (the address), ERR_IO (AWS_CA_BUNDLE), ERR_MEMORY;
 * ERR_UNREACHABLE: nobody answers there. */
MUST_CHECK Error s3_rights_try(const S3Access *access, const char *where, uint32_t deadline_ms,
                               S3Rights *out, Why *why);

/* Asks for the size of one object alone, s3://BUCKET/KEY: the answer is in READ, the object's bytes in *bytes. */
MUST_CHECK Error s3_rights_size(const S3Access *access, const char *object, uint32_t deadline_ms,
                                uint64_t *bytes, S3Rights *out, Why *why);

#endif
