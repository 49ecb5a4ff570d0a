/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the kernels are here: matrix products over random valid weights, and plain reading beside them. The clock
 * comes from outside, as everything does in a pure room. */
#ifndef COBORD_QUANT_MEASURE_H
#define COBORD_QUANT_MEASURE_H

#include "quant/kernels.h"

typedef struct MeasureClock {
    uint64_t (*now_ns)(void *context);
    void *context;
} MeasureClock;

/* One product: `rows` x `cols` weights in x16.1 times `tokens` activation rows. */
typedef struct MeasureShape {
    BlockType type;
    uint32_t rows, cols, tokens; /* rows a multiple of 16 */
} MeasureShape;

typedef struct MeasureRate {
    double best_ns;   /* fastest run */
    double gmac_per_s, gb_per_s; /* of weights, from the fastest run */
    uint32_t runs;
} MeasureRate;

/* Memory for one measurement, 64-byte aligned. Errors  as layout_panel_bytes. */
MUST_CHECK Error measure_bytes(const MeasureShape *shape, size_t *out, Why *why);

/* Fills `memory` with weights and activations that vary; `out` is the product over them. */
MUST_CHECK Error measure_prepare(const Kernels *kernels, const MeasureShape *shape, uint8_t *memory, MatmulTile *out,
                                 Why *why);

/* Prepares, then multiplies for `budget_ns`, at least three times. */
MUST_CHECK Error measure_product(const Kernels *kernels, const MeasureShape *shape, uint8_t *memory,
                                 const Parallel *parallel, const MeasureClock *clock, uint64_t budget_ns,
                                 MeasureRate *out, Why *why);

/* Reads `bytes` bytes (a multiple of 4096) again and again: the machine's raw bandwidth when they exceed its caches. */
MeasureRate measure_read(const uint8_t *memory, size_t bytes, const Parallel *parallel, const MeasureClock *clock,
                         uint64_t budget_ns);

#endif
