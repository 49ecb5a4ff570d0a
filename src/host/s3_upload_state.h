/* SPDX-License-Identifier: Apache-2.0 */
/* What s3_upload.c (an upload from begin to complete) and s3_parts.c (its parts under way) share. */
#ifndef COBORD_HOST_S3_UPLOAD_STATE_H
#define COBORD_HOST_S3_UPLOAD_STATE_H

#include <stdbool.h>

#include "host/http_client.h"
#include "host/s3_upload.h"

enum {
    S3_ETAG_BYTES = 80,
    S3_ID_BYTES = 1025,        /* of an upload, encoded */
    S3_ANSWER_BYTES = 1 << 20, /* a list of 1000 parts is a third of it */
    S3_TRIES = 6,
    S3_CALL_MS = 30000,
    S3_COMPLETE_MS = 600000 /* of large objects it takes minutes */
};

typedef struct S3Part {
    bool is_hashed, is_sent; /* md5 is known; by this call */
    uint8_t md5[16];
    uint64_t listed_bytes; /* 0: the store has none */
    char listed_etag[S3_ETAG_BYTES];
} S3Part;

/* One request, and all that it borrows. */
typedef struct S3Call {
    HttpCall http;
    S3Lines lines;
    char url[HTTP_CLIENT_URL_BYTES_MAX];
} S3Call;

typedef struct S3Upload {
    const S3Access *access;
    const char *where; /* for errors */
    char store[80];    /* s3://BUCKET */
    char object[S3_PATH_BYTES], bucket[S3_PATH_BYTES], key[S3_PATH_BYTES];
    int file;
    uint64_t bytes, part_bytes;
    uint32_t part_count;
    S3Part *parts;
    bool is_found; /* the upload was begun by an earlier call */
    char id[S3_ID_BYTES];
    HttpClient *client;
    S3Call call;
    uint8_t *answer;
    uint64_t sent_bytes; /* parts that are done; for the bar */
    const Tell *tell;
    S3UploadReport *report;
} S3Upload;

/* Signs, and fills what http_client_start wants; `query` without '?', "" for none. Body, answer and deadline are the
 * caller's. Errors  those of s3_sign, ERR_TOO_LARGE. */
MUST_CHECK Error s3_upload_prepare(const S3Upload *u, const char *method, const char *url,
                                   const char *query, const char *body_hash, S3Call *call,
                                   Why *why);
/* What became of a call that has ended: OK, ERR_UNREACHABLE for what may pass, or the end of it. */
MUST_CHECK Error s3_upload_judge(const S3Upload *u, const S3Call *call, Why *why);
/* How long to wait before the try behind `tries` others. */
uint64_t s3_upload_pause_ms(unsigned tries);

/* Whether the store has the part as we have it: it must have been hashed. */
bool s3_parts_is_there(const S3Upload *u, uint32_t part);
uint64_t s3_parts_bytes(const S3Upload *u, uint32_t part);
/* Sends each part that the last list does not have; `sent`: how many. */
MUST_CHECK Error s3_parts_send(S3Upload *u, uint32_t *sent, Why *why);

#endif
