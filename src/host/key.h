/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster key: the secret that nodes of one cluster show each other, `Authorization: Bearer KEY`. */
#ifndef COBORD_HOST_KEY_H
#define COBORD_HOST_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { KEY_BYTES_MIN = 8, KEY_BYTES_MAX = 512 };

/* Reads a key file; one newline at its end does not count. `warning` gets a sentence when others than the owner may
 * read or write the file, else "".
 * Errors  ERR_IO, ERR_FORMAT (shorter than 8, longer than 512, anything but visible ASCII). */
MUST_CHECK Error key_read(const char *path, char out[KEY_BYTES_MAX + 1], Why *warning, Why *why);
/* Whether others than its owner, or a group that is how this process reads it, may read or change a secret's file. */
struct stat;
bool key_is_open_to_others(const struct stat *about);
/* Makes a key of 32 random bytes in hex and a file for it that only the owner may read; the file must not exist.
 * Errors  ERR_IO, ERR_DUPLICATE. */
MUST_CHECK Error key_make(const char *path, char out[KEY_BYTES_MAX + 1], Why *why);

#endif
