/* SPDX-License-Identifier: Apache-2.0 */
/* How far long work is, on standard error: a bar that is redrawn on a terminal, a plain line now
 * and then elsewhere.
 *
 *   download  [=========>          ]  47 %  212 of 451 MB  38.2 MB/s  6 s left
 *
 * A narrow terminal gets fewer figures and a shorter bar, one that changes its size is followed;
 * without a terminal there is not one escape sequence. */
#ifndef COBORD_CLI_PROGRESS_H
#define COBORD_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "host/tell.h"

/* Starts or updates the bar of `stage` (a static string). `total` 0: not known.
 * A change of stage ends the bar before it. Thread  one. */
void progress_step(const char *stage, uint64_t done, uint64_t total);

/* A line that stays, above the bar. */
void progress_note(const char *line);

/* Ends the bar; `complete` draws it full first. Nothing when there is none. */
void progress_end(bool complete);

/* Clears the bar so that an error line starts at the left edge. */
void progress_interrupt(void);

/* For work that is counted, not measured: a line in printf form in place of the bar, on a terminal
 * only; progress_end(false) takes it away. Printable text. */
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same as a port for host functions. */
const Tell *progress_tell(void);

/* "1.1 GB", "212 MB", "8.4 KB": powers of 1000, as downloads are counted. At most 15 characters. */
void progress_print_bytes(char *out, uint64_t out_bytes, uint64_t value);

#endif
