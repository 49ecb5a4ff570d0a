/* SPDX-License-Identifier: Apache-2.0 */
/* The journal as a file (SQLite, WAL), readable by its owner only: prompts are in it. It survives the
 * death of the process; the last moments before a power cut may be missing, and are computed again. */
#ifndef COBORD_HOST_JOURNAL_H
#define COBORD_HOST_JOURNAL_H

#include "serve/journal.h"

/* Makes the file and its directory. `knot_id`: streams of another model are not found. Thread  any.
 * Errors  ERR_IO, ERR_MEMORY, ERR_FORMAT (a file of something else). */
MUST_CHECK Error journal_open(const char *path, uint64_t knot_id, Journal **out, Why *why);
void journal_close(Journal *j);

#endif
