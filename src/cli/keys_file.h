/* SPDX-License-Identifier: Apache-2.0 */
/* The file of API keys, changed: read, one key more or less, and written again under a name of its own that then takes
 * the place of the old one. Whoever reads it meanwhile gets either. Its directory is locked, so that two changes at
 * once do not lose one. Only hashes are written. */
#ifndef COBORD_CLI_KEYS_FILE_H
#define COBORD_CLI_KEYS_FILE_H

#include "api/keys.h"
#include "host/places.h"

typedef struct KeysFile {
    char path[PLACES_PATH_BYTES]; /* links followed */
    int lock;                     /* of the directory */
    bool exists;
    void *memory;
    Keys keys;
} KeysFile;

/* A file that is not there has no keys. Errors  ERR_IO, those of keys_parse: `why` names the file.
 * Owner  keys_file_close, after errors too. */
MUST_CHECK Error keys_file_open(const char *path, KeysFile *out, Why *why);
/* The keys that are there without the one at `without` (KEYS_NONE: all), and `added` (NULL: none) behind them.
 * Errors  ERR_IO, ERR_NO_SPACE, ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error keys_file_write(const KeysFile *file, uint32_t without, const KeysEntry *added,
                                 const uint8_t *digest, Why *why);
void keys_file_close(KeysFile *file);

#endif
