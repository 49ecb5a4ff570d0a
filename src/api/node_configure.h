/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /configure: {"range":"0-7"} of a station, {"ids":[0,6144]} of a shard. */
#ifndef COBORD_API_NODE_CONFIGURE_H
#define COBORD_API_NODE_CONFIGURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/phase.h"

enum { NODE_CONFIGURE_BYTES_MAX = 4096 };

/* Errors  ERR_FORMAT (no JSON, another member), ERR_USAGE (no range), ERR_RANGE (empty, or beyond the model). */
MUST_CHECK Error node_configure_read_range(const uint8_t *body, size_t bytes, uint32_t layers,
                                           PhaseRange *out, Why *why);
MUST_CHECK Error node_configure_read_ids(const uint8_t *body, size_t bytes, uint32_t vocabulary,
                                         uint32_t *first, uint32_t *last, Why *why);

#endif
