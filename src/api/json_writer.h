/* SPDX-License-Identifier: Apache-2.0 */
/* JSON and other text into a buffer of fixed size. What does not fit sets `full` and is left out whole, so that one
 * question at the end replaces one after every word. */
#ifndef COBORD_API_JSON_WRITER_H
#define COBORD_API_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JsonWriter {
    char *bytes;
    size_t used, max;
    bool full;
} JsonWriter;

/* Owner  `bytes` stays the caller's. */
JsonWriter json_writer_make(char *bytes, size_t max);

/* Text as it is: keys, brackets, words of our own. */
void json_writer_raw(JsonWriter *w, const char *text);
void json_writer_bytes(JsonWriter *w, const void *bytes, size_t count);
/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD.
 * JSON_WRITER_GROWTH bounds what a byte becomes. */
enum { JSON_WRITER_GROWTH = 6 };
void json_writer_string(JsonWriter *w, const void *text, size_t bytes);
void json_writer_text(JsonWriter *w, const char *text); /* the same of a C string */
void json_writer_u64(JsonWriter *w, uint64_t value);
void json_writer_hex64(JsonWriter *w, uint64_t value); /* 16 digits, no quotes */
/* value / 1000: 1234 is 1.234. */
void json_writer_thousandths(JsonWriter *w, uint64_t value);
/* A finite number, in the fewest digits that read back as the same: at most JSON_WRITER_FLOAT bytes. */
enum { JSON_WRITER_FLOAT = 24 };
void json_writer_float(JsonWriter *w, double value);
void json_writer_bool(JsonWriter *w, bool value);

/* The name of an object's next member, in plain characters, with a comma unless it is the first of its object or
 * of the text; then its value. */
void json_writer_member(JsonWriter *w, const char *name);
void json_writer_member_u64(JsonWriter *w, const char *name, uint64_t value);
void json_writer_member_text(JsonWriter *w, const char *name, const char *text);
void json_writer_member_bool(JsonWriter *w, const char *name, bool value);

#endif
