/* SPDX-License-Identifier: Apache-2.0 */
/* What strangers send to a warden: texts of headers, queries and tails, the body of /configure. The first byte says
 * which. Whatever is taken lies within the knot. */
#include <stdlib.h>
#include <string.h>

#include "../unit/wire/small_tensors.h"
#include "api/warden_gate.h"

static Knot knot;
static uint8_t memory[1 << 18], pool[WARDEN_CONFIGURE_POOL_BYTES];

static void take_texts(const WardenSelf *self, uint8_t which, const char *text)
{
    AwfrPiece piece;
    const KnotTensor *tensor;
    uint64_t first, bytes;
    uint32_t row;
    WardenAsked asked = {0};
    const char **const members[] = {&asked.knot_id,    &asked.knot_key, &asked.layer_first,
                                    &asked.layer_last, &asked.id_first, &asked.id_last};
    *members[which % 6] = text;
    (void)!warden_gate_matches(self, &asked, NULL);
    if (warden_gate_tensor(&knot, "token_embd_weight", text, &piece, NULL) == OK &&
        !piece.row_count)
        abort();
    if (warden_gate_bytes(&knot, text, &first, &bytes, NULL) == OK &&
        (!bytes || first + bytes > knot.file_bytes))
        abort();
    if (warden_gate_invalidate(self, &knot, text, &tensor, &row, NULL) == OK && !tensor &&
        (row < self->identity.first || row >= self->identity.last))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!knot.tensor_count && !small_tensors_make(&knot, memory, sizeof memory)) abort();
    if (!size) return 0;
    WardenSelf self = {{knot.id, data[0] & 1, 0, 4}, 1, "a.knot"};
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    take_texts(&self, data[0] >> 1, text);
    free(text);
    uint8_t *body = malloc(size); /* not one byte more than it says */
    memcpy(body, data + 1, size - 1);
    (void)!warden_gate_configure(&self, body, size - 1, pool, NULL);
    free(body);
    return 0;
}
