/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use an API of this process: the file of keys (api/keys.h), and the pages of other origins (api/cors.h). */
#ifndef COBORD_HOST_ACCESS_H
#define COBORD_HOST_ACCESS_H

#include "serve/serve.h"

typedef struct Access {
    const char *keys_file; /* NULL: everybody may use it */
    const char *cors;      /* NULL: pages of its own origin only */
} Access;

/* `warning` gets a sentence when others than its owner may read the file, else "".
 * Errors  ERR_IO, ERR_FORMAT (no regular file), ERR_TOO_LARGE: `why` names the file. Owner  free *text. */
MUST_CHECK Error access_read_file(const char *path, char **text, size_t *bytes, Why *warning,
                                  Why *why);

/* Whether all of it can be used, before anything expensive starts. Errors  those of access_read_file, keys_parse and
 * cors_check; `warning` as above. */
MUST_CHECK Error access_check(const Access *access, Why *warning, Why *why);

/* Gives the server the keys of the file, at first or again. */
MUST_CHECK Error access_load(const Access *access, Serve *serve, Why *warning, Why *why);

#endif
