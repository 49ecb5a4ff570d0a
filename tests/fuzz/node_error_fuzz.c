/* SPDX-License-Identifier: Apache-2.0 */
/* An answer with a status that is no success, from anybody. The first two bytes are the status. What is taken for a
 * node's error is written and read again: one meaning. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/node_error.h"

static void printable(const Why *why)
{
    size_t length = strnlen(why->text, WHY_MAX);
    if (length == 0 || length == WHY_MAX) abort();
    for (size_t i = 0; i < length; i++)
        if (why->text[i] < 0x20 || why->text[i] > 0x7e) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    unsigned status = bytes_load16(data);
    size_t n = size - 2;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, data + 2, n);
    Why why = {{0}}, back;
    Error error = node_error_read(status, copy, n, &why);
    free(copy);
    if (error == OK) abort();
    if (error == ERR_FORMAT || error == ERR_UNREACHABLE) return 0;
    printable(&why);
    char text[NODE_ERROR_BYTES_MAX];
    size_t bytes = node_error_write(error, &why, text);
    if (node_error_read(node_error_status(error), (const uint8_t *)text, bytes, &back) != error)
        abort();
    printable(&back);
    return 0;
}
