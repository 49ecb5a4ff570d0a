/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of POST /configure. What is taken lies within the model, and is not empty. */
#include "api/node_configure.h"
#include "feed.h"

enum { LAYERS = 30, VOCABULARY = 49152 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    size_t bytes;
    uint8_t *body = feed_rest(&f, &bytes);
    PhaseRange range;
    uint32_t first, last;
    Why why = {{0}};
    if (node_configure_read_range(body, bytes, LAYERS, &range, &why) == OK)
        CHECK(range.first < range.last && range.last <= phase_bound(LAYERS, PHASE_ATTN));
    else CHECK(why.text[0]);
    if (node_configure_read_ids(body, bytes, VOCABULARY, &first, &last, &why) == OK)
        CHECK(first < last && last <= VOCABULARY);
    else CHECK(why.text[0]);
    free(body);
    return 0;
}
