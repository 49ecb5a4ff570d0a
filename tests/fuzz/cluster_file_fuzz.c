/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster file. What is accepted can be written, and means the same when it is read again. */
#include <stdlib.h>
#include <string.h>

#include "lend.h"
#include "wire/cluster_file.h"

enum { TEXT_ROOM = 1 << 20 };

static Error fuzz_parse(const char *text, size_t bytes, Lend *memory, ClusterFile *out)
{
    size_t room = cluster_file_arena_bytes(bytes);
    Why why;
    Arena arena = arena_make(lend(memory, room), room);
    Error e = cluster_file_parse(text, bytes, &arena, out, &why);
    if (e == ERR_MEMORY) abort(); /* the size surely suffices */
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Lend memory, memory_again, text_memory;
    ClusterFile file, again;
    Why why;
    if (size > 65536) return 0;
    if (fuzz_parse((const char *)data, size, &memory, &file) == OK) {
        size_t bytes = 0;
        char *text = lend(&text_memory, TEXT_ROOM);
        if (cluster_file_write(&file, text, TEXT_ROOM, &bytes, &why) != OK) abort();
        if (fuzz_parse(text, bytes, &memory_again, &again) != OK) abort();
        if (again.node_count != file.node_count || again.knot_id != file.knot_id) abort();
        for (uint32_t i = 0; i < file.node_count; i++)
            if (strcmp(file.nodes[i].id, again.nodes[i].id) != 0 ||
                file.nodes[i].warden != again.nodes[i].warden)
                abort();
    }
    return 0;
}
