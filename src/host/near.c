/* SPDX-License-Identifier: Apache-2.0 */
#include "host/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "host/zoo.h"

static unsigned near_least(unsigned a, unsigned b) { return a < b ? a : b; }

/* The number of edits; rows of the table over the letters of `a`, the last two of them kept. */
static unsigned near_edits(const char *a, size_t m, const char *b, size_t n)
{
    unsigned rows[3][NEAR_NAME_BYTES];
    for (unsigned j = 0; j <= n; j++) rows[0][j] = j;
    for (unsigned i = 1; i <= m; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            now[j] = near_least(last[j - 1] + (a[i - 1] != b[j - 1]),
                                near_least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = near_least(now[j], before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

unsigned near_distance(const char *written, const char *name)
{
    size_t m = strlen(written), n = strlen(name);
    if (m >= NEAR_NAME_BYTES || n >= NEAR_NAME_BYTES || m < 2) return NEAR_FAR;
    if (strcmp(written, name) == 0) return 0;
    if (strncmp(written, name, m) == 0) return 1;
    unsigned edits = near_edits(written, m, name, n);
    return edits <= 2 && edits * 2 < n ? edits + 1 : NEAR_FAR;
}

/* ---- Models */

static void near_cut(char *text, const char *word)
{
    char *at = strstr(text, word);
    if (at) memmove(at, at + strlen(word), strlen(at + strlen(word)) + 1);
}

/* Letters and digits alone, in lower case, without the words that say nothing. */
static bool near_squash(const char *text, char out[NEAR_NAME_BYTES])
{
    static const char *const words[] = {"instruct", "latest", "q4km", "q41"};
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        if (!isalnum((unsigned char)*p)) continue;
        if (n == NEAR_NAME_BYTES - 1) return false;
        out[n++] = (char)tolower((unsigned char)*p);
    }
    out[n] = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) near_cut(out, words[i]);
    return out[0] != 0;
}

const char *near_model(const char *written)
{
    char wanted[NEAR_NAME_BYTES], name[NEAR_NAME_BYTES];
    const char *best = NULL;
    unsigned least = NEAR_FAR;
    if (!near_squash(written, wanted)) return NULL;
    for (size_t i = 0; i < zoo_count; i++) {
        unsigned distance =
            near_squash(zoo_models[i].name, name) ? near_distance(wanted, name) : NEAR_FAR;
        if (distance >= least) continue;
        least = distance;
        best = zoo_models[i].name;
    }
    return best;
}
