/* SPDX-License-Identifier: Apache-2.0 */
/* From a quantized activation row back to floats: docs/format/numerics.md, section 3.4. */
#include <string.h>

#include "quant/activation.h"
#include "quant/kernels.h"

static void restore_32(const Activation32 *a, uint32_t cols, float *out)
{
    for (uint32_t at = 0; at < cols; at += 32, a++)
        for (uint32_t i = 0; i < 32; i++) out[at + i] = a->scale * (float)a->q[i];
}

static void restore_256(const Activation256 *a, uint32_t cols, float *out)
{
    for (uint32_t at = 0; at < cols; at += 256, a++)
        for (uint32_t j = 0; j < 8; j++) {
            float scale = a->scale * (float)a->k[j];
            for (uint32_t i = 32 * j; i < 32 * j + 32; i++) out[at + i] = scale * (float)a->q[i];
        }
}

void kernels_activation_restore(ActivationForm form, const uint8_t *row, uint32_t cols, float *out)
{
    switch (form) {
    case ACTIVATION_32: restore_32((const Activation32 *)(const void *)row, cols, out); return;
    case ACTIVATION_256: restore_256((const Activation256 *)(const void *)row, cols, out); return;
    default: memcpy(out, row, cols * sizeof *out); return;
    }
}
