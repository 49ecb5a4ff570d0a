/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/foreign.h"

#include <stdbool.h>
#include <string.h>

typedef struct ForeignKind {
    const char *magic;
    size_t magic_bytes;
    const char *kind, *advice;
} ForeignKind;

#define FOREIGN_MAGIC(text) text, sizeof(text) - 1

static const char ENCODE_IT[] = "Make a knot of it with: cobord encode IN.gguf -o OUT.knot.";
static const char CONVERT_IT[] = "Convert it to GGUF first, or download the model's GGUF file.";
static const char UNPACK_IT[] = "Unpack it first.";
static const char DOWNLOAD_IT[] = "The download link was not the file's own: download it again.";

static const ForeignKind foreign_kinds[] = {
    {FOREIGN_MAGIC("GGUF"), "a GGUF file", ENCODE_IT},
    {FOREIGN_MAGIC("KNOT"), "a knot", "It needs no encoding: give it as the model."},
    {FOREIGN_MAGIC("version https://git-lfs"), "a git-lfs pointer, not the file itself",
     "Fetch the file with: git lfs pull."},
    {FOREIGN_MAGIC("lmgg"), "an old ggml model file", CONVERT_IT},
    {FOREIGN_MAGIC("tjgg"), "an old ggjt model file", CONVERT_IT},
    {FOREIGN_MAGIC("fmgg"), "an old ggmf model file", CONVERT_IT},
    {FOREIGN_MAGIC("algg"), "an old ggla adapter file", CONVERT_IT},
    {FOREIGN_MAGIC("ggml"), "an old ggml model file", CONVERT_IT},
    {FOREIGN_MAGIC("ggjt"), "an old ggjt model file", CONVERT_IT},
    {FOREIGN_MAGIC("PK\003\004"), "a zip archive or PyTorch checkpoint", UNPACK_IT},
    {FOREIGN_MAGIC("\037\213"), "a gzip file", UNPACK_IT},
    {FOREIGN_MAGIC("\375"
                   "7zXZ"),
     "an xz file", UNPACK_IT},
    {FOREIGN_MAGIC("\050\265\057\375"), "a zstd file", UNPACK_IT},
    {FOREIGN_MAGIC("BZh"), "a bzip2 file", UNPACK_IT},
    {FOREIGN_MAGIC("\211PNG"), "a picture", DOWNLOAD_IT},
    {FOREIGN_MAGIC("%PDF"), "a PDF document", DOWNLOAD_IT},
    {FOREIGN_MAGIC("\177ELF"), "a program", DOWNLOAD_IT},
    {FOREIGN_MAGIC("SQLite format 3"), "an SQLite database", DOWNLOAD_IT},
};

static const ForeignKind foreign_empty = {"", 0, "an empty file", "Download it again."};
static const ForeignKind foreign_html = {"", 0, "an HTML page", DOWNLOAD_IT};
static const ForeignKind foreign_xml = {"", 0, "an XML answer of a server", DOWNLOAD_IT};
static const ForeignKind foreign_json = {"", 0, "a JSON text", DOWNLOAD_IT};
static const ForeignKind foreign_safetensors = {"", 0, "a safetensors file", CONVERT_IT};
static const ForeignKind foreign_zeros = {"", 0, "nothing but zero bytes",
                                          "The download was not finished: start it again."};

static bool foreign_is_html(const uint8_t *bytes, size_t length)
{
    static const char *const starts[] = {"<!doctype html", "<html", "<head", "<body", "<!--"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        size_t n = strlen(starts[i]), k = 0;
        if (n > length) continue;
        while (k < n &&
               (bytes[k] | (bytes[k] >= 'A' && bytes[k] <= 'Z' ? 0x20 : 0)) == starts[i][k])
            k++;
        if (k == n) return true;
    }
    return false;
}

/* A safetensors file is a u64 length, then a JSON object. */
static bool foreign_is_safetensors(const uint8_t *bytes, size_t length)
{
    if (length < 10) return false;
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | bytes[i];
    return header >= 2 && header < (1u << 30) && bytes[8] == '{' &&
           (bytes[9] == '"' || bytes[9] == '}');
}

static const ForeignKind *foreign_text(const uint8_t *bytes, size_t length)
{
    size_t skip = length >= 3 && memcmp(bytes, "\357\273\277", 3) == 0 ? 3 : 0;
    while (skip < length && (bytes[skip] == ' ' || bytes[skip] == '\t' || bytes[skip] == '\r' ||
                             bytes[skip] == '\n'))
        skip++;
    bytes += skip;
    length -= skip;
    if (foreign_is_html(bytes, length)) return &foreign_html;
    if (length >= 5 && memcmp(bytes, "<?xml", 5) == 0) return &foreign_xml;
    if (length >= 2 && bytes[0] == '{' && (bytes[1] == '"' || bytes[1] == '\n' || bytes[1] == ' '))
        return &foreign_json;
    return NULL;
}

static const ForeignKind *foreign_find(const uint8_t *bytes, size_t length)
{
    if (length == 0) return &foreign_empty;
    for (size_t i = 0; i < sizeof foreign_kinds / sizeof foreign_kinds[0]; i++) {
        const ForeignKind *k = &foreign_kinds[i];
        if (length >= k->magic_bytes && memcmp(bytes, k->magic, k->magic_bytes) == 0) return k;
    }
    if (foreign_is_safetensors(bytes, length)) return &foreign_safetensors;
    size_t zeros = 0;
    while (zeros < length && bytes[zeros] == 0) zeros++;
    if (zeros == length) return &foreign_zeros;
    return foreign_text(bytes, length);
}

const char *foreign_kind(const uint8_t *bytes, size_t length)
{
    const ForeignKind *k = foreign_find(bytes, length);
    return k ? k->kind : NULL;
}

const char *foreign_advice(const uint8_t *bytes, size_t length)
{
    const ForeignKind *k = foreign_find(bytes, length);
    return k ? k->advice : NULL;
}
