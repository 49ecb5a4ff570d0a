/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of an instance, one wish at a time (the drawing is in instance.h). */
#ifndef COBORD_WORKERS_STEP_H
#define COBORD_WORKERS_STEP_H

#include "instance.h"

/* frame.partial = the rows of frame.ids[0 .. count) that the shard owns. */
MUST_CHECK Error step_begin_embed(Instance *in, uint32_t shard, uint32_t count);
/* frame.x (and g) through the station, in place. */
MUST_CHECK Error step_begin_forward(Instance *in, uint32_t station, uint32_t session, uint32_t position, uint32_t rows);
/* The shard's logits of frame.hidden[0 .. rows). */
MUST_CHECK Error step_begin_logits(Instance *in, uint32_t shard, uint32_t rows);

/* Computes with what the wish before brought, and fills in->wish. After an error the operation is over. */
MUST_CHECK Error step_next(Instance *in, WishKind *kind);

#endif
