/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's word is FilePmdMapped in /proc/self/smaps, for the mapping that starts at the
 * file's address. No timing. */
#include "host/folios.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const uint64_t PROBE_BYTES = (uint64_t)8 << 20;

/* Reads one number in kB from the lines of our mapping. */
static bool field_of(const char *line, const char *name, uint64_t *kb)
{
    char word[32];
    return sscanf(line, "%31s %" SCNu64, word, kb) == 2 && strcmp(word, name) == 0;
}

static double read_share(const KnotFile *file)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return -1;
    char line[512];
    bool ours = false;
    uint64_t resident = 0, large = 0;
    while (fgets(line, sizeof line, f)) {
        uint64_t first, last;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &first, &last) == 2)
            ours = first == (uintptr_t)file->map;
        if (ours) {
            (void)field_of(line, "Rss:", &resident);
            (void)field_of(line, "FilePmdMapped:", &large);
        }
    }
    fclose(f);
    return resident ? (double)large / (double)resident : -1;
}

double folios_large_share(const KnotFile *file)
{
    /* whole pages of 2 MiB, counted from the mapping's start */
    uint64_t first = (file->knot.payload_offset + KNOT_FILE_DROP_UNIT - 1) / KNOT_FILE_DROP_UNIT *
                     KNOT_FILE_DROP_UNIT;
    uint64_t offset = first - file->knot.payload_offset;
    if (offset + PROBE_BYTES > file->knot.payload_bytes) return -1;
    knot_file_drop(file, 0, file->knot.payload_bytes);
    volatile uint8_t sum = 0;
    for (uint64_t at = 0; at < PROBE_BYTES; at += 4096)
        sum = (uint8_t)(sum + *knot_file_payload(file, offset + at));
    double share = read_share(file);
    knot_file_drop(file, offset, PROBE_BYTES);
    return share;
}
