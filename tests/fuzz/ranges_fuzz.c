/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of ranges as a user may type them: the first byte chooses the number of layers, the rest is the text. What is
 * accepted must cover the model end to end, and written out again must be read as the same ranges. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/phase.h"

enum { RANGES_MAX = 16 };

static void check(const PhaseRange *ranges, uint32_t count, uint32_t layers)
{
    char all[RANGES_MAX * (PHASE_RANGE_TEXT_MAX + 1)] = "", one[PHASE_RANGE_TEXT_MAX];
    PhaseBound expected = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].first != expected || ranges[i].first >= ranges[i].last) abort();
        expected = ranges[i].last;
        if (i) memcpy(all + strlen(all), ",", 2);
        phase_range_text(ranges[i], layers, one);
        memcpy(all + strlen(all), one, strlen(one) + 1);
    }
    if (expected != phase_bound(layers, PHASE_ATTN)) abort();
    PhaseRange again[RANGES_MAX];
    uint32_t again_count;
    if (phase_parse_ranges(all, layers, again, RANGES_MAX, &again_count, NULL) != OK) abort();
    if (again_count != count || memcmp(again, ranges, count * sizeof *again) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    uint32_t layers = 1 + data[0] % 40, count = 0;
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    PhaseRange ranges[RANGES_MAX];
    Why why;
    if (phase_parse_ranges(text, layers, ranges, RANGES_MAX, &count, &why) == OK) check(ranges, count, layers);
    PhaseBound bound;
    if (phase_parse_bound(text, size - 1, layers, &bound, &why) == OK &&
        bound > phase_bound(layers, PHASE_ATTN))
        abort();
    free(text);
    return 0;
}
