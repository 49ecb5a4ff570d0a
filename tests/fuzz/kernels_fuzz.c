/* SPDX-License-Identifier: Apache-2.0 */
/* Every instruction set that this CPU runs against the reference, bit for bit: quantizers over any floats, panels
 * of any bytes or of any rows, products of 1 to 8 tokens, and rows dequantized before and after the layout.
 * Not-a-number matches any not-a-number.
 *
 *   type | blocks | tokens | form of the panel | seed | 16-bit patterns, from which floats and bytes are made */
#include "base/bytes.h"
#include "feed.h"
#include "host/cpu.h"
#include "quant/kernels.h"

enum {
    COLS_MAX = 512,
    TOKENS = KERNEL_TOKENS_MAX,
    OUT_STRIDE = 19,
    PANEL_BYTES_MAX = 16 * COLS_MAX * 4 + 4096
};

static const BlockType types[] = {BLOCK_F32,  BLOCK_F16,  BLOCK_BF16, BLOCK_Q4_0, BLOCK_Q4_1,
                                  BLOCK_Q5_0, BLOCK_Q5_1, BLOCK_Q8_0, BLOCK_Q2_K, BLOCK_Q3_K,
                                  BLOCK_Q4_K, BLOCK_Q5_K, BLOCK_Q6_K};

/* What the input makes: its own bytes again and again, every other time with a seed's bits in them. */
typedef struct Stream {
    const uint8_t *bytes;
    size_t count, at;
    uint64_t random;
} Stream;

static uint8_t next_byte(Stream *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    uint8_t noise = s->at / (s->count ? s->count : 1) % 2 ? (uint8_t)(s->random >> 56) : 0;
    uint8_t own = s->count ? s->bytes[s->at % s->count] : 0;
    s->at++;
    return own ^ noise;
}

/* Floats of all sizes: of three bytes one is the exponent's, so that what matters is near to the input. */
static void fill_floats(Stream *s, float *x, uint32_t count, bool wild)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)next_byte(s) << 24 | (uint32_t)next_byte(s) << 16;
        if (!wild) bits = (bits & 0x83ffffffu) + 0x3c000000u; /* 2^-7 to 1, as activations are */
        memcpy(&x[i], &bits, 4);
    }
}

static bool same_floats(const float *a, const float *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool both_nan = a[i] != a[i] && b[i] != b[i];
        if (bytes_load32(&a[i]) != bytes_load32(&b[i]) && !both_nan) return false;
    }
    return true;
}

static void compare(const Kernels *k, BlockType type, uint32_t cols, uint32_t tokens,
                    const uint8_t *panel, const float *x)
{
    static _Alignas(64) uint8_t want[TOKENS * 4096], got[TOKENS * 4096];
    float out[TOKENS * OUT_STRIDE], ours[TOKENS * OUT_STRIDE];
    const Kernels *scalar = kernels_for(ISA_SCALAR);
    ActivationForm form = kernels_activation_form(type);
    size_t stride = kernels_activation_row_bytes(form, cols);
    CHECK(stride && stride <= 4096);
    memset(want, 0xa5, sizeof want);
    memset(got, 0xa5, sizeof got);
    for (uint32_t t = 0; t < tokens; t++) {
        scalar->quantize[form](x + t * cols, cols, want + t * stride);
        k->quantize[form](x + t * cols, cols, got + t * stride);
    }
    CHECK(memcmp(want, got, sizeof want) == 0);
    memset(out, 0xff, sizeof out);
    memset(ours, 0xff, sizeof ours);
    scalar->panel[type](panel, cols, want, stride, tokens, out, OUT_STRIDE);
    k->panel[type](panel, cols, want, stride, tokens, ours, OUT_STRIDE);
    CHECK(same_floats(out, ours, TOKENS * OUT_STRIDE));
    for (uint32_t i = 0; i < TOKENS * OUT_STRIDE; i++)
        if (i / OUT_STRIDE >= tokens || i % OUT_STRIDE >= PANEL_ROWS)
            CHECK(bytes_load32(&ours[i]) == UINT32_MAX);
}

/* A panel made of rows gives the same rows back, and they mean the same. */
static void fill_panel(Stream *s, BlockType type, uint32_t cols, bool from_rows, uint8_t *panel,
                       size_t panel_bytes)
{
    static uint8_t rows[PANEL_BYTES_MAX], back[PANEL_BYTES_MAX];
    uint64_t row_bytes;
    if (!from_rows) {
        for (size_t i = 0; i < panel_bytes; i++) panel[i] = next_byte(s);
        return;
    }
    CHECK(block_row_bytes(type, cols, &row_bytes, NULL) == OK && 16 * row_bytes <= sizeof rows);
    for (size_t i = 0; i < 16 * row_bytes; i++) rows[i] = next_byte(s);
    CHECK(layout_panel_from_rows(type, rows, 16, cols, panel, NULL) == OK);
    CHECK(layout_rows_from_panel(type, panel, 16, cols, back, NULL) == OK);
    CHECK(memcmp(rows, back, 16 * row_bytes) == 0);
    float out[COLS_MAX];
    CHECK(block_dequantize_row(type, rows, cols, out, NULL) == OK);
    bool finite = true;
    for (uint32_t i = 0; i < cols; i++)
        finite = finite && (bytes_load32(&out[i]) & 0x7f800000u) != 0x7f800000u;
    CHECK(!block_row_finite(type, rows, cols) || finite || block_traits(type)->elements > 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float x[TOKENS * COLS_MAX];
    static const Kernels *sets[ISAS];
    static uint32_t set_count;
    if (!set_count)
        for (Isa isa = ISA_SCALAR; isa < ISAS; isa++)
            if (kernels_for(isa) && cpu_has(isa)) sets[set_count++] = kernels_for(isa);
    Feed f = {data, size};
    BlockType type = types[feed_below(&f, sizeof types / sizeof *types)];
    uint32_t elements = block_traits(type)->elements;
    uint32_t cols = elements == 256  ? 256 * (1 + feed_below(&f, 2))
                    : elements == 32 ? 32 * (1 + feed_below(&f, 6))
                                     : 1 + feed_below(&f, 70);
    uint32_t tokens = 1 + feed_below(&f, TOKENS), forms = feed_u8(&f), gap = feed_below(&f, 65);
    uint64_t panel_bytes, seed = feed_bits(&f, 4);
    Stream s = {f.at, f.left, 0, seed};
    CHECK(layout_panel_bytes(type, cols, &panel_bytes, NULL) == OK &&
          panel_bytes <= PANEL_BYTES_MAX);
    uint8_t *memory = malloc((size_t)panel_bytes + gap),
            *panel = memory + gap; /* of any alignment, and no longer */
    CHECK(memory);
    fill_panel(&s, type, cols, forms & 1, panel, (size_t)panel_bytes);
    fill_floats(&s, x, tokens * cols, forms & 2);
    if (set_count > 1) compare(sets[1 + forms / 4 % (set_count - 1)], type, cols, tokens, panel, x);
    else compare(sets[0], type, cols, tokens, panel, x);
    free(memory);
    return 0;
}
