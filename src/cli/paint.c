/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/paint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool paint_is_terminal(FILE *out) { return isatty(fileno(out)) == 1; }

static bool paint_is_wanted(const char *name)
{
    const char *value = getenv(name);
    return value && value[0];
}

bool paint_is_on(FILE *out)
{
    const char *force = getenv("CLICOLOR_FORCE"), *terminal = getenv("TERM");
    if (paint_is_wanted("NO_COLOR")) return false;
    if (force && force[0] && strcmp(force, "0") != 0) return true;
    return paint_is_terminal(out) && !(terminal && strcmp(terminal, "dumb") == 0);
}

void paint_begin(FILE *out, Paint paint)
{
    static const char *const codes[] = {"0", "2", "1", "1;31", "32", "36"};
    if (paint_is_on(out)) fprintf(out, "\x1b[%sm", codes[paint]);
}

void paint_end(FILE *out) { paint_begin(out, PAINT_NONE); }

void paint_error_head(void)
{
    paint_begin(stderr, PAINT_RED);
    fputs("cobord:", stderr);
    paint_end(stderr);
    fputc(' ', stderr);
}

/* The bytes of the control character at `p`, 0 when it is none. C1 ones have two; terminals obey
 * those as well. */
static size_t paint_control(const unsigned char *p, size_t left)
{
    if (p[0] < 0x20) return p[0] != '\n' && p[0] != '\t';
    if (p[0] == 0x7f) return 1;
    return p[0] == 0xc2 && left > 1 && p[1] >= 0x80 && p[1] < 0xa0 ? 2 : 0;
}

bool paint_show(FILE *out, const void *text, size_t bytes)
{
    const unsigned char *p = text, *end = p + bytes, *shown = p;
    if (!paint_is_terminal(out)) return fwrite(text, 1, bytes, out) == bytes;
    for (; p < end; p++) {
        size_t control = paint_control(p, (size_t)(end - p));
        if (!control) continue;
        (void)fwrite(shown, 1, (size_t)(p - shown), out);
        p += control - 1;
        fprintf(out, "\\x%02x", *p);
        shown = p + 1;
    }
    (void)fwrite(shown, 1, (size_t)(end - shown), out);
    return !ferror(out);
}
