/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster file. What is accepted can be written, and means the same when it is read again. */
#include <stdlib.h>
#include <string.h>

#include "wire/cluster_file.h"

static Error fuzz_parse(const char *text, size_t bytes, void **memory, ClusterFile *out)
{
    size_t room = cluster_file_arena_bytes(bytes);
    Why why;
    *memory = malloc(room);
    Arena arena = arena_make(*memory, room);
    Error e = cluster_file_parse(text, bytes, &arena, out, &why);
    if (e == ERR_MEMORY) abort(); /* the size surely suffices */
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ClusterFile file, again;
    void *memory = NULL, *memory_again = NULL;
    Why why;
    if (size > 65536) return 0;
    if (fuzz_parse((const char *)data, size, &memory, &file) == OK) {
        size_t bytes = 0, room = (size_t)1 << 20;
        char *text = malloc(room);
        if (cluster_file_write(&file, text, room, &bytes, &why) != OK) abort();
        if (fuzz_parse(text, bytes, &memory_again, &again) != OK) abort();
        if (again.node_count != file.node_count || again.knot_id != file.knot_id) abort();
        for (uint32_t i = 0; i < file.node_count; i++)
            if (strcmp(file.nodes[i].id, again.nodes[i].id) != 0 ||
                file.nodes[i].warden != again.nodes[i].warden)
                abort();
        free(text);
        free(memory_again);
    }
    free(memory);
    return 0;
}
