/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations and files, to and from disk.
 *
 *   {"model": "smollm2-135m", "messages": [{"role": "user", "content": "..."}, ...]}
 *
 * The messages are those of the API, so that a saved conversation can be sent to a server. A file
 * appears whole or not at all. */
#ifndef COBORD_CLI_RUN_SAVE_H
#define COBORD_CLI_RUN_SAVE_H

#include "cli/run.h"

/* What the person calls a path: without quotes around it, and with ~ for the home directory.
 * Errors  ERR_USAGE (nothing), ERR_TOO_LARGE. */
MUST_CHECK Error run_save_path(const char *said, char *out, size_t out_bytes, Why *why);

/* Errors  ERR_USAGE (a file that is there and is no conversation, or a text that is no UTF-8),
 * ERR_IO, ERR_NO_SPACE, ERR_MEMORY. */
MUST_CHECK Error run_save_write(const Run *r, const char *path, Why *why);

/* In place of the conversation, which stays on an error. Takes a list of messages alone, too.
 * Errors  ERR_NOT_FOUND, ERR_FORMAT (says which message), ERR_TOO_LARGE, ERR_CAPACITY, ERR_MEMORY. */
MUST_CHECK Error run_save_read(Run *r, const char *path, Why *why);

/* Appends a file to *text, with its name, between fences. *lines are those of the file.
 * Errors  ERR_NOT_FOUND, ERR_FORMAT (no text), ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error run_save_attach(const char *path, char **text, size_t *lines, Why *why);

#endif
