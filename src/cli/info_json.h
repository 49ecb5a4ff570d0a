/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON forms of `cobord info --json`: one value on standard output. */
#ifndef COBORD_CLI_INFO_JSON_H
#define COBORD_CLI_INFO_JSON_H

#include "knot/gguf.h"
#include "knot/knot.h"
#include "knot/vocab.h"

/* `vocab` may be NULL. */
void info_json_knot(const Knot *knot, const Vocab *vocab);
void info_json_gguf(const Gguf *gguf);

/* A scalar key's value: a number, true or false. */
void info_json_number(const GgufKey *key);

#endif
