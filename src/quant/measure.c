/* SPDX-License-Identifier: Apache-2.0 */
/* One panel of random rows is made and then copied: making hundreds of megabytes of random blocks would take longer
 * than the measurement, and no kernel's speed depends on values.
 *
 *   memory:  | weights, panel after panel | activation rows | out, f32 [tokens][rows] | 16 rows aside |      */
#include "quant/measure.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "quant/unpack.h"

typedef struct Sizes {
    uint64_t panel, weights, activations, out;
    size_t activation_stride;
} Sizes;

static Error sizes_of(const MeasureShape *shape, Sizes *out, Why *why)
{
    if (shape->rows == 0 || shape->rows % PANEL_ROWS || shape->tokens == 0)
        return error_why(why, ERR_SHAPE, "%u rows and %u tokens", (unsigned)shape->rows,
                         (unsigned)shape->tokens);
    TRY(layout_panel_bytes(shape->type, shape->cols, &out->panel, why));
    TRY(layout_tensor_bytes(shape->type, LAYOUT_X16, shape->rows, shape->cols, &out->weights, why));
    out->weights = (out->weights + 63) & ~(uint64_t)63;
    out->activation_stride =
        kernels_activation_row_bytes(kernels_activation_form(shape->type), shape->cols);
    if (!bytes_mul(out->activation_stride, shape->tokens, &out->activations) ||
        !bytes_mul((uint64_t)shape->rows * sizeof(float), shape->tokens, &out->out))
        return error_why(why, ERR_TOO_LARGE, "%u tokens", (unsigned)shape->tokens);
    return OK;
}

Error measure_bytes(const MeasureShape *shape, size_t *out, Why *why)
{
    Sizes sizes;
    TRY(sizes_of(shape, &sizes, why));
    uint64_t aside = (uint64_t)shape->cols * sizeof(float) * PANEL_ROWS, total;
    if (!bytes_add(sizes.weights, sizes.activations, &total) ||
        !bytes_add(total, sizes.out + aside, &total) || total > SIZE_MAX / 2)
        return error_why(why, ERR_TOO_LARGE, "%u x %u weights", (unsigned)shape->rows,
                         (unsigned)shape->cols);
    *out = (size_t)total;
    return OK;
}

/* ---- weights ---- */

/* One row in GGUF order: every byte random, halves small and finite. */
static void fill_row(BlockType type, uint32_t cols, uint64_t *seed, uint8_t *row)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    for (uint32_t b = 0; b < cols / traits->elements; b++, row += traits->bytes) {
        for (uint32_t i = 0; i < traits->bytes; i++)
            row[i] = (uint8_t)(hash_mix64((*seed)++) >> 17);
        uint16_t half = (uint16_t)(0x1c00 | (hash_mix64((*seed)++) & 0x83ff)); /* +-0.004..0.008 */
        if (type == BLOCK_F32) row[3] = (uint8_t)((row[3] & 0x80) | 0x3c), row[2] &= 0x7f;
        else if (traits->elements == 1) bytes_store16(row, half);
        else {
            bytes_store16(row + unpack_d_offset(type), half);
            if (unpack_has_min(type)) bytes_store16(row + unpack_d_offset(type) + 2, half ^ 0x155);
        }
    }
}

static Error fill_weights(const MeasureShape *shape, const Sizes *sizes, uint8_t *weights,
                          uint8_t *aside, Why *why)
{
    uint64_t seed = 1, row_bytes = 0;
    TRY(block_row_bytes(shape->type, shape->cols, &row_bytes, why));
    for (uint32_t r = 0; r < PANEL_ROWS; r++)
        fill_row(shape->type, shape->cols, &seed, aside + r * row_bytes);
    TRY(layout_panel_from_rows(shape->type, aside, PANEL_ROWS, shape->cols, weights, why));
    for (uint32_t p = 1; p < shape->rows / PANEL_ROWS; p++)
        memcpy(weights + p * sizes->panel, weights, (size_t)sizes->panel);
    return OK;
}

static void fill_activations(const Kernels *kernels, const MeasureShape *shape, const Sizes *sizes,
                             float *aside, uint8_t *activations)
{
    ActivationForm form = kernels_activation_form(shape->type);
    for (uint32_t t = 0; t < shape->tokens; t++) {
        for (uint32_t i = 0; i < shape->cols; i++)
            aside[i] = (float)(int32_t)(hash_mix64((uint64_t)t << 32 | i) >> 40) * 0x1p-20f - 8.0f;
        kernels->quantize[form](aside, shape->cols, activations + t * sizes->activation_stride);
    }
}

static MeasureRate rate_of(uint64_t best_ns, uint32_t runs, double macs, double bytes)
{
    double ns = best_ns ? (double)best_ns : 1;
    return (MeasureRate){ns, macs / ns, bytes / ns, runs};
}

Error measure_prepare(const Kernels *kernels, const MeasureShape *shape, uint8_t *memory,
                      MatmulTile *out, Why *why)
{
    Sizes sizes;
    TRY(sizes_of(shape, &sizes, why));
    uint8_t *activations = memory + sizes.weights;
    float *products = (float *)(void *)(activations + sizes.activations);
    float *aside = products + (size_t)shape->rows * shape->tokens;
    TRY(fill_weights(shape, &sizes, memory, (uint8_t *)aside, why));
    fill_activations(kernels, shape, &sizes, aside, activations);
    *out = (MatmulTile){shape->type,
                        LAYOUT_X16,
                        shape->cols,
                        memory,
                        0,
                        shape->rows,
                        activations,
                        sizes.activation_stride,
                        shape->tokens,
                        products,
                        shape->rows,
                        NULL,
                        0};
    return OK;
}

Error measure_product(const Kernels *kernels, const MeasureShape *shape, uint8_t *memory,
                      const Parallel *parallel, const MeasureClock *clock, uint64_t budget_ns,
                      MeasureRate *out, Why *why)
{
    Sizes sizes;
    MatmulTile tile;
    TRY(sizes_of(shape, &sizes, why));
    TRY(measure_prepare(kernels, shape, memory, &tile, why));
    uint64_t begin = clock->now_ns(clock->context), before = begin, best = UINT64_MAX;
    uint32_t runs = 0;
    while (runs < 3 || before - begin < budget_ns) {
        kernels_matmul(kernels, &tile, parallel);
        uint64_t now = clock->now_ns(clock->context);
        if (now - before < best) best = now - before;
        before = now;
        runs++;
    }
    double macs = (double)shape->rows * shape->cols * shape->tokens;
    *out = rate_of(best, runs, macs, (double)sizes.weights);
    return OK;
}

/* ---- raw reading ---- */

enum { READ_ITEM_BYTES = 256 * 1024, READ_LANES = 16, READ_AHEAD_BYTES = 8192 };

typedef struct Read {
    const uint8_t *memory;
    size_t bytes;
    uint64_t sums[PARALLEL_WORKERS_MAX][8]; /* kept, so that the reads are; a line per worker */
} Read;

static void read_item(void *argument, uint32_t item, uint32_t worker)
{
    Read *read = argument;
    size_t first = (size_t)item * READ_ITEM_BYTES, last = first + READ_ITEM_BYTES;
    if (last > read->bytes) last = read->bytes;
    uint64_t lanes[READ_LANES] = {0};
    for (size_t at = first; at + 8 * READ_LANES <= last; at += 8 * READ_LANES) {
        __builtin_prefetch(read->memory + at + READ_AHEAD_BYTES);
        __builtin_prefetch(read->memory + at + READ_AHEAD_BYTES + 64);
        for (size_t i = 0; i < READ_LANES; i++) lanes[i] ^= bytes_load64(read->memory + at + 8 * i);
    }
    for (size_t i = 0; i < READ_LANES; i++) read->sums[worker][0] += lanes[i];
}

MeasureRate measure_read(const uint8_t *memory, size_t bytes, const Parallel *parallel,
                         const MeasureClock *clock, uint64_t budget_ns)
{
    Read read = {memory, bytes, {{0}}};
    uint64_t begin = clock->now_ns(clock->context), before = begin, best = UINT64_MAX;
    uint32_t runs = 0;
    while (runs < 3 || before - begin < budget_ns) {
        parallel_run(parallel, read_item, &read,
                     (uint32_t)((bytes + READ_ITEM_BYTES - 1) / READ_ITEM_BYTES));
        uint64_t now = clock->now_ns(clock->context);
        if (now - before < best) best = now - before;
        before = now;
        runs++;
    }
    return rate_of(best, runs, 0, (double)bytes);
}
