/* SPDX-License-Identifier: Apache-2.0 */
/* The file of what was typed in chats: run_line.h says where and in which form. */
#ifndef COBORD_CLI_RUN_HISTORY_H
#define COBORD_CLI_RUN_HISTORY_H

/* The messages of earlier chats, oldest first, with U+23CE for line breaks. A file that has grown
 * beyond its bound is cut to the newest. */
void run_history_load(void (*visit)(void *context, const char *message), void *context);

/* Appends one message. */
void run_history_add(const char *message);

#endif
