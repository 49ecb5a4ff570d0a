/* SPDX-License-Identifier: Apache-2.0 */
/* The version of docs/format/numerics.md that this code computes. Knots and handshakes name it: two builds with the
 * same version give the same bits. */
#ifndef COBORD_QUANT_NUMERICS_H
#define COBORD_QUANT_NUMERICS_H

enum { NUMERICS_VERSION = 1 };

/* Blocks whose largest activation is below this count as zeros, so that its reciprocal stays finite. */
#define NUMERICS_TINY 0x1p-96f

#endif
