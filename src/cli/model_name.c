/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_name.h"

#include <stdbool.h>
#include <string.h>

void model_name_of(const char *model, char out[MODEL_NAME_BYTES])
{
    const char *slash = strrchr(model, '/');
    const char *from = slash && slash[1] ? slash + 1 : model;
    size_t bytes = strlen(from);
    if (bytes > 5 &&
        (strcmp(from + bytes - 5, ".knot") == 0 || strcmp(from + bytes - 5, ".gguf") == 0))
        bytes -= 5;
    if (bytes > MODEL_NAME_BYTES - 1) bytes = MODEL_NAME_BYTES - 1;
    for (size_t i = 0; i < bytes; i++) {
        char c = from[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("._-:", c);
        out[i] = plain ? c : '_';
    }
    out[bytes] = '\0';
}
