/* SPDX-License-Identifier: Apache-2.0 */
/* Letters without regard to case, whatever the locale. */
#ifndef COBORD_BASE_ASCII_H
#define COBORD_BASE_ASCII_H

static inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

#endif
