/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/gguf.h"

#include <string.h>

#include "base/bytes.h"
#include "knot/foreign.h"
#include "knot/ranges.h"

enum {
    HEADER_BYTES = 24,
    KEY_BYTES_MIN = 8 + 1 + 4 + 1,            /* name of one letter, type, a byte */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* name of one letter, one dimension */
    DIMENSIONS_MAX = 4,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 65536
};

/* Of a value of this type, or the least it can take: 8 for a string's length; 0 for an array, which
 * has its own rules. */
static uint32_t gguf_value_bytes(GgufValueType type)
{
    static const uint8_t bytes[GGUF_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    return bytes[type];
}

const char *gguf_value_type_name(GgufValueType type)
{
    static const char *const names[GGUF_VALUE_TYPES] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                        "i32", "f32", "bool", "string", "array",
                                                        "u64", "i64", "f64"};
    return (unsigned)type < GGUF_VALUE_TYPES ? names[type] : "?";
}

static bool gguf_architecture_supported(const char *name)
{
    static const char *const names[] = {"qwen2", "llama", "gemma3", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* --- header --- */

typedef struct GgufCounts {
    uint64_t keys, tensors;
    uint32_t version;
} GgufCounts;

static Error gguf_foreign(const uint8_t *p, size_t bytes, Why *why)
{
    const char *kind = foreign_kind(p, bytes);
    if (!kind) return error_why(why, ERR_FORMAT, "not a GGUF file: it does not start with GGUF");
    return error_why(why, ERR_FORMAT, "this is %s, not a GGUF file. %s", kind,
                     foreign_advice(p, bytes));
}

static Error gguf_read_header(Cursor *c, GgufCounts *out, Why *why)
{
    uint64_t file_bytes = c->port->file_bytes;
    size_t probe = file_bytes < 512 ? (size_t)file_bytes : 512;
    const uint8_t *p = NULL;
    TRY(cursor_take(c, probe, "the header", &p, why));
    if (probe < 4 || memcmp(p, "GGUF", 4) != 0) return gguf_foreign(p, probe, why);
    if (probe < HEADER_BYTES)
        return error_why(why, ERR_TRUNCATED, "the header needs %u bytes, the file has %llu",
                         (unsigned)HEADER_BYTES, (unsigned long long)file_bytes);
    out->version = bytes_load32(p + 4);
    if (out->version == 0x02000000u || out->version == 0x03000000u)
        return error_why(why, ERR_UNSUPPORTED,
                         "a big-endian GGUF file; download the little-endian one");
    if (out->version != 2 && out->version != 3)
        return error_why(why, ERR_UNSUPPORTED, "GGUF version %u; this program reads 2 and 3",
                         out->version);
    out->tensors = bytes_load64(p + 8);
    out->keys = bytes_load64(p + 16);
    cursor_seek(c, HEADER_BYTES);
    uint64_t left = cursor_left(c);
    if (out->keys > left / KEY_BYTES_MIN || out->tensors > left / TENSOR_BYTES_MIN)
        return error_why(why, ERR_TRUNCATED,
                         "%llu keys and %llu tensors cannot be in the %llu bytes that are left",
                         (unsigned long long)out->keys, (unsigned long long)out->tensors,
                         (unsigned long long)left);
    if (out->keys > GGUF_KEYS_MAX || out->tensors > KNOT_TENSORS_MAX)
        return error_why(why, ERR_TOO_LARGE,
                         "%llu keys and %llu tensors; at most %u of each are read",
                         (unsigned long long)out->keys, (unsigned long long)out->tensors,
                         (unsigned)KNOT_TENSORS_MAX);
    return OK;
}

/* --- keys --- */

/* A name of 1 to bytes_max printable characters, copied into the arena. */
static Error gguf_read_name(Cursor *c, uint32_t bytes_max, const char *what, Arena *arena,
                            char **out, Why *why)
{
    uint64_t bytes, at = c->at;
    TRY(cursor_u64(c, what, &bytes, why));
    if (bytes > cursor_left(c))
        return error_why(
            why, ERR_TRUNCATED, "%s at byte %llu claims %llu bytes, the file has %llu left", what,
            (unsigned long long)at, (unsigned long long)bytes, (unsigned long long)cursor_left(c));
    if (bytes == 0 || bytes > bytes_max)
        return error_why(why, ERR_FORMAT, "%s at byte %llu has %llu bytes; 1 to %u are allowed",
                         what, (unsigned long long)at, (unsigned long long)bytes, bytes_max);
    const uint8_t *p = NULL;
    TRY(cursor_take(c, (size_t)bytes, what, &p, why));
    for (size_t i = 0; i < bytes; i++)
        if (p[i] < 0x20 || p[i] > 0x7e)
            return error_why(why, ERR_FORMAT, "%s at byte %llu has unprintable characters: `%.*s`",
                             what, (unsigned long long)at, (int)bytes, (const char *)p);
    char *name = arena_take(arena, (size_t)bytes + 1);
    if (!name) return error_why(why, ERR_MEMORY, "%s at byte %llu", what, (unsigned long long)at);
    memcpy(name, p, (size_t)bytes);
    *out = name;
    return OK;
}

static Error gguf_skip_string(Cursor *c, const char *what, Why *why)
{
    uint64_t bytes;
    TRY(cursor_u64(c, what, &bytes, why));
    return cursor_skip(c, bytes, what, why);
}

static Error gguf_value_type(uint32_t number, const char *key, GgufValueType *out, Why *why)
{
    if (number >= GGUF_VALUE_TYPES)
        return error_why(why, ERR_TYPE, "key `%s` has the unknown type %u", key, number);
    *out = (GgufValueType)number;
    return OK;
}

static Error gguf_read_array(Cursor *c, GgufKey *key, Why *why)
{
    uint32_t type;
    TRY(cursor_u32(c, key->name, &type, why));
    TRY(gguf_value_type(type, key->name, &key->element, why));
    TRY(cursor_u64(c, key->name, &key->count, why));
    if (key->element == GGUF_ARRAY)
        return error_why(why, ERR_UNSUPPORTED, "key `%s` is an array of arrays", key->name);
    key->offset = c->at;
    uint32_t bytes = gguf_value_bytes(key->element);
    if (key->count > cursor_left(c) / bytes)
        return error_why(why, ERR_TRUNCATED,
                         "key `%s` claims %llu elements, the file has %llu bytes left", key->name,
                         (unsigned long long)key->count, (unsigned long long)cursor_left(c));
    if (key->element != GGUF_STRING) TRY(cursor_skip(c, key->count * bytes, key->name, why));
    else
        for (uint64_t i = 0; i < key->count; i++) TRY(gguf_skip_string(c, key->name, why));
    key->bytes = c->at - key->offset;
    return OK;
}

static Error gguf_read_scalar(Cursor *c, GgufKey *key, Why *why)
{
    uint32_t bytes = gguf_value_bytes(key->type);
    const uint8_t *p = NULL;
    key->offset = c->at;
    key->bytes = bytes;
    TRY(cursor_take(c, bytes, key->name, &p, why));
    memcpy(&key->bits, p, bytes);
    if (key->type == GGUF_BOOL && key->bits > 1)
        return error_why(why, ERR_FORMAT, "key `%s` is neither true nor false", key->name);
    return OK;
}

static Error gguf_read_key(Cursor *c, Arena *arena, GgufKey *key, Why *why)
{
    char *name = NULL;
    uint32_t type;
    TRY(gguf_read_name(c, GGUF_KEY_BYTES_MAX, "a key", arena, &name, why));
    key->name = name;
    TRY(cursor_u32(c, name, &type, why));
    TRY(gguf_value_type(type, name, &key->type, why));
    if (key->type == GGUF_ARRAY) return gguf_read_array(c, key, why);
    if (key->type != GGUF_STRING) return gguf_read_scalar(c, key, why);
    TRY(cursor_u64(c, name, &key->bytes, why));
    key->offset = c->at;
    return cursor_skip(c, key->bytes, name, why);
}

static Error gguf_read_keys(Cursor *c, uint32_t count, Arena *arena, Gguf *out, Why *why)
{
    out->keys = ARENA_NEW(arena, GgufKey, count);
    out->key_count = 0;
    if (!out->keys) return error_why(why, ERR_MEMORY, "%u keys", count);
    TRY(names_make(&out->key_names, count, arena, why));
    for (uint32_t i = 0; i < count; i++) {
        GgufKey *key = &out->keys[i];
        TRY(gguf_read_key(c, arena, key, why));
        if (!names_put(&out->key_names, key->name, strlen(key->name), i))
            return error_why(why, ERR_DUPLICATE, "key `%s` is given twice", key->name);
        out->key_count++;
    }
    return OK;
}

const GgufKey *gguf_key(const Gguf *g, const char *name)
{
    uint32_t at = names_find(&g->key_names, name, strlen(name));
    return at == NAMES_NONE ? NULL : &g->keys[at];
}

Error gguf_u32(const Gguf *g, const char *name, uint32_t absent, uint32_t *out, Why *why)
{
    const GgufKey *key = gguf_key(g, name);
    *out = absent;
    if (!key) return OK;
    uint64_t v = key->bits;
    bool negative = false;
    switch (key->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64: break;
    case GGUF_I8: negative = v >> 7 & 1; break;
    case GGUF_I16: negative = v >> 15 & 1; break;
    case GGUF_I32: negative = v >> 31 & 1; break;
    case GGUF_I64: negative = v >> 63 & 1; break;
    default:
        return error_why(why, ERR_TYPE, "key `%s` is of type %s, not a whole number", name,
                         gguf_value_type_name(key->type));
    }
    if (negative || v > UINT32_MAX)
        return error_why(why, ERR_RANGE, "key `%s` is negative or too large", name);
    *out = (uint32_t)v;
    return OK;
}

Error gguf_f32(const Gguf *g, const char *name, float absent, float *out, Why *why)
{
    const GgufKey *key = gguf_key(g, name);
    *out = absent;
    if (!key) return OK;
    double v;
    if (key->type == GGUF_F32) v = (double)bytes_load_f32(&key->bits);
    else if (key->type == GGUF_F64) memcpy(&v, &key->bits, sizeof v);
    else
        return error_why(why, ERR_TYPE, "key `%s` is of type %s, not a float", name,
                         gguf_value_type_name(key->type));
    if (!(v >= -3.4e38 && v <= 3.4e38))
        return error_why(why, ERR_RANGE, "key `%s` is not finite or too large", name);
    *out = (float)v;
    return OK;
}

Error gguf_bool(const Gguf *g, const char *name, bool absent, bool *out, Why *why)
{
    const GgufKey *key = gguf_key(g, name);
    *out = absent;
    if (!key) return OK;
    if (key->type != GGUF_BOOL)
        return error_why(why, ERR_TYPE, "key `%s` is of type %s, not a bool", name,
                         gguf_value_type_name(key->type));
    *out = key->bits != 0;
    return OK;
}

Error gguf_text(const Gguf *g, const char *name, char *out, size_t out_bytes, Why *why)
{
    const GgufKey *key = gguf_key(g, name);
    out[0] = '\0';
    if (!key) return OK;
    if (key->type != GGUF_STRING)
        return error_why(why, ERR_TYPE, "key `%s` is of type %s, not a string", name,
                         gguf_value_type_name(key->type));
    if (key->bytes >= out_bytes)
        return error_why(why, ERR_RANGE, "key `%s` is longer than %zu bytes", name, out_bytes - 1);
    TRY(g->files[0].read(g->files[0].file, key->offset, out, (size_t)key->bytes, why));
    out[key->bytes] = '\0';
    if (memchr(out, 0, (size_t)key->bytes))
        return error_why(why, ERR_RANGE, "key `%s` has a NUL", name);
    return OK;
}

/* --- tensors --- */

static Error gguf_read_shape(Cursor *c, GgufTensor *t, Why *why)
{
    TRY(cursor_u32(c, t->name, &t->dimensions, why));
    if (t->dimensions == 0 || t->dimensions > DIMENSIONS_MAX)
        return error_why(why, ERR_SHAPE, "tensor %s has %u dimensions; 1 to %u are allowed",
                         t->name, t->dimensions, (unsigned)DIMENSIONS_MAX);
    uint64_t rows = 1;
    for (uint32_t i = 0; i < t->dimensions; i++) {
        uint64_t n;
        TRY(cursor_u64(c, t->name, &n, why));
        if (n == 0 || n > UINT32_MAX)
            return error_why(why, ERR_SHAPE,
                             "tensor %s: dimension %u is %llu; 1 to 4294967295 are allowed",
                             t->name, i, (unsigned long long)n);
        if (i == 0) t->cols = (uint32_t)n;
        else if (!bytes_mul(rows, n, &rows) || rows > UINT32_MAX)
            return error_why(why, ERR_SHAPE, "tensor %s has more than 4294967295 rows", t->name);
    }
    t->rows = (uint32_t)rows;
    return OK;
}

static Error gguf_knot_name(GgufTensor *t, Arena *arena, Why *why)
{
    size_t bytes = strlen(t->name);
    char *name = arena_take(arena, bytes + 1);
    if (!name) return error_why(why, ERR_MEMORY, "the name of tensor %s", t->name);
    for (size_t i = 0; i < bytes; i++) {
        char ch = t->name[i];
        bool fine = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                    (ch >= '0' && ch <= '9') || ch == '_' || ch == '-' || ch == '.';
        if (!fine)
            return error_why(
                why, ERR_FORMAT,
                "tensor name `%s` has other characters than letters, digits, . _ and -", t->name);
        name[i] = ch == '.' ? '_' : ch;
    }
    t->knot_name = name;
    return OK;
}

/* The offset is still counted from the data's start. */
static Error gguf_read_tensor(Cursor *c, Arena *arena, GgufTensor *t, Why *why)
{
    char *name = NULL;
    uint32_t type;
    TRY(gguf_read_name(c, GGUF_NAME_BYTES_MAX, "a tensor name", arena, &name, why));
    t->name = name;
    TRY(gguf_knot_name(t, arena, why));
    TRY(gguf_read_shape(c, t, why));
    TRY(cursor_u32(c, name, &type, why));
    Why detail = {""};
    Error e = block_type_from_number(type, &t->type, &detail);
    if (!e) e = block_tensor_bytes(t->type, t->rows, t->cols, &t->bytes, &detail);
    if (e) return error_why(why, e, "tensor %s: %s", name, detail.text);
    return cursor_u64(c, name, &t->offset, why);
}

/* Makes offsets absolute; checks alignment, ends and overlaps of one file's tensors. */
static Error gguf_place_tensors(uint64_t infos_end, uint64_t file_bytes, uint32_t alignment,
                                GgufTensor *t, uint32_t count, Arena *arena, Why *why)
{
    uint64_t data;
    if (count == 0) return OK;
    if (!bytes_round_up(infos_end, alignment, &data) || data > file_bytes)
        return error_why(why, ERR_TRUNCATED, "the file ends before its data starts");
    size_t mark = arena_mark(arena);
    Range *ranges = ARENA_NEW(arena, Range, count);
    if (!ranges) return error_why(why, ERR_MEMORY, "the ranges of %u tensors", count);
    for (uint32_t i = 0; i < count; i++) {
        if (t[i].offset % alignment)
            return error_why(why, ERR_RANGE,
                             "tensor %s: offset %llu is no multiple of the alignment %u", t[i].name,
                             (unsigned long long)t[i].offset, alignment);
        if (t[i].offset > file_bytes - data || t[i].bytes > file_bytes - data - t[i].offset)
            return error_why(why, ERR_TRUNCATED,
                             "tensor %s needs %llu bytes at %llu of the data, which has %llu",
                             t[i].name, (unsigned long long)t[i].bytes,
                             (unsigned long long)t[i].offset,
                             (unsigned long long)(file_bytes - data));
        ranges[i] = (Range){t[i].offset, t[i].bytes, t[i].name};
        t[i].offset += data;
    }
    ranges_sort(ranges, count);
    for (uint32_t i = 1; i < count; i++)
        if (ranges[i].offset - ranges[i - 1].offset < ranges[i - 1].bytes)
            return error_why(why, ERR_RANGE, "tensors %s and %s share bytes", ranges[i - 1].name,
                             ranges[i].name);
    arena_reset(arena, mark);
    return OK;
}

static Error gguf_read_alignment(const Gguf *g, uint32_t *out, Why *why)
{
    const GgufKey *key = gguf_key(g, "general.alignment");
    *out = GGUF_ALIGNMENT_DEFAULT;
    if (!key) return OK;
    if (key->type != GGUF_U32)
        return error_why(why, ERR_TYPE, "key `general.alignment` is of type %s, not u32",
                         gguf_value_type_name(key->type));
    *out = (uint32_t)key->bits;
    bool power = (*out & (*out - 1)) == 0;
    if (power && *out >= ALIGNMENT_MIN && *out <= ALIGNMENT_MAX) return OK;
    return error_why(why, ERR_RANGE,
                     "key `general.alignment` is %u; powers of two from %u to %u are allowed", *out,
                     (unsigned)ALIGNMENT_MIN, (unsigned)ALIGNMENT_MAX);
}

static Error gguf_read_tensors(Cursor *c, uint32_t file, uint32_t count, uint32_t alignment,
                               Arena *arena, Gguf *g, Why *why)
{
    GgufTensor *first = g->tensors + g->tensor_count;
    for (uint32_t i = 0; i < count; i++) {
        GgufTensor *t = &first[i];
        TRY(gguf_read_tensor(c, arena, t, why));
        t->file = file;
        if (!names_put(&g->tensor_names, t->knot_name, strlen(t->knot_name), g->tensor_count + i))
            return error_why(why, ERR_DUPLICATE, "two tensors are named %s", t->name);
    }
    g->tensor_count += count;
    return gguf_place_tensors(c->at, c->port->file_bytes, alignment, first, count, arena, why);
}

const GgufTensor *gguf_tensor(const Gguf *g, const char *knot_name)
{
    uint32_t at = names_find(&g->tensor_names, knot_name, strlen(knot_name));
    return at == NAMES_NONE ? NULL : &g->tensors[at];
}

/* --- the whole --- */

static Error gguf_check_architecture(Gguf *g, Why *why)
{
    if (!gguf_key(g, "general.architecture"))
        return error_why(why, ERR_FORMAT, "key `general.architecture` is missing");
    TRY(gguf_text(g, "general.architecture", g->architecture, sizeof g->architecture, why));
    if (gguf_architecture_supported(g->architecture)) return OK;
    return error_why(why, ERR_UNSUPPORTED,
                     "architecture `%s`; qwen2, qwen3, llama and gemma3 are supported",
                     g->architecture);
}

static Error gguf_check_split(const Gguf *g, uint32_t file, Why *why)
{
    uint32_t number, count;
    TRY(gguf_u32(g, "split.no", 0, &number, why));
    TRY(gguf_u32(g, "split.count", 1, &count, why));
    if (count == 0) count = 1;
    if (count != g->file_count)
        return error_why(
            why, ERR_FORMAT,
            "this is part %u of a model in %u files, of which %u are here: give the first "
            "part, named ..-00001-of-%u.gguf with all five digits, and keep the others "
            "beside it.",
            number + 1, count, g->file_count, count);
    if (number != file)
        return error_why(why, ERR_FORMAT, "the file given as part %u says it is part %u", file + 1,
                         number + 1);
    return OK;
}

/* One file's counts, with room made for its tensors in what is read already. */
static Error gguf_read_file(const CursorPort *port, uint32_t file, uint32_t tensors, Arena *arena,
                            Gguf *g, Cursor *c, Why *why)
{
    GgufCounts counts;
    c->port = port;
    c->at = 0;
    c->window_bytes = 0;
    TRY(gguf_read_header(c, &counts, why));
    Gguf part = {.files = port, .file_count = g->file_count};
    size_t mark = arena_mark(arena);
    TRY(gguf_read_keys(c, (uint32_t)counts.keys, arena, &part, why));
    TRY(gguf_check_split(&part, file, why));
    uint32_t alignment;
    TRY(gguf_read_alignment(&part, &alignment, why));
    if (file == 0) {
        TRY(gguf_check_architecture(&part, why));
        part.files = g->files;
        part.version = counts.version;
        part.tensors = g->tensors;
        part.tensor_names = g->tensor_names;
        *g = part;
    } else arena_reset(arena, mark); /* the other parts' keys say nothing new */
    if (counts.tensors > tensors)
        return error_why(why, ERR_FORMAT, "part %u has more tensors than a moment ago", file + 1);
    return gguf_read_tensors(c, file, (uint32_t)counts.tensors, alignment, arena, g, why);
}

/* The program names the first part; the fault may be in another. */
static Error gguf_part_fault(Error error, uint32_t file, Why *why)
{
    if (error == OK || file == 0 || !why) return error;
    Why detail = *why;
    return error_why(why, error, "part %u: %s", file + 1, detail.text);
}

/* A lost part, or one of another model, may lack only tensors that a model can do without. */
static Error gguf_check_split_tensors(const Gguf *g, Why *why)
{
    uint32_t stated;
    TRY(gguf_u32(g, "split.tensors.count", g->tensor_count, &stated, why));
    if (g->file_count == 1 || stated == g->tensor_count) return OK;
    return error_why(why, ERR_MISSING_TENSOR, "the parts have %u tensors, the first says %u",
                     g->tensor_count, stated);
}

/* How many tensors all files have together: the table is taken once. */
static Error gguf_count_tensors(Cursor *c, const CursorPort *files, uint32_t file_count,
                                uint32_t *out, Why *why)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < file_count; i++) {
        GgufCounts counts;
        c->port = &files[i];
        c->at = 0;
        c->window_bytes = 0;
        TRY(gguf_part_fault(gguf_read_header(c, &counts, why), i, why));
        total += counts.tensors;
    }
    if (total > KNOT_TENSORS_MAX)
        return error_why(why, ERR_TOO_LARGE, "%llu tensors; at most %u are read",
                         (unsigned long long)total, (unsigned)KNOT_TENSORS_MAX);
    *out = (uint32_t)total;
    return OK;
}

Error gguf_read(const CursorPort *files, uint32_t file_count, Arena *arena, Gguf *out, Why *why)
{
    Cursor c;
    uint32_t tensors = 0;
    ASSERT(file_count >= 1);
    if (file_count > GGUF_FILES_MAX)
        return error_why(why, ERR_TOO_LARGE, "a model in %u files", file_count);
    memset(out, 0, sizeof *out);
    TRY(cursor_start(&c, &files[0], arena, why));
    TRY(gguf_count_tensors(&c, files, file_count, &tensors, why));
    out->files = files;
    out->file_count = file_count;
    out->tensors = ARENA_NEW(arena, GgufTensor, tensors);
    if (!out->tensors) return error_why(why, ERR_MEMORY, "the table of %u tensors", tensors);
    TRY(names_make(&out->tensor_names, tensors, arena, why));
    for (uint32_t i = 0; i < file_count; i++) {
        uint32_t room = tensors - out->tensor_count;
        TRY(gguf_part_fault(gguf_read_file(&files[i], i, room, arena, out, &c, why), i, why));
    }
    if (out->tensor_count == 0) return error_why(why, ERR_FORMAT, "the file has no tensors");
    return gguf_check_split_tensors(out, why);
}

bool gguf_split_name(const char *name, size_t bytes, uint32_t *part, uint32_t *parts)
{
    static const char pattern[] = "-ddddd-of-ddddd.gguf";
    if (bytes < GGUF_SPLIT_BYTES) return false;
    const char *tail = name + bytes - GGUF_SPLIT_BYTES;
    uint32_t numbers[2] = {0, 0};
    for (size_t i = 0; i < GGUF_SPLIT_BYTES; i++) {
        bool digit = tail[i] >= '0' && tail[i] <= '9';
        if (pattern[i] == 'd' && !digit) return false;
        if (pattern[i] != 'd' && pattern[i] != tail[i]) return false;
        if (pattern[i] == 'd') numbers[i > 6] = numbers[i > 6] * 10 + (uint32_t)(tail[i] - '0');
    }
    if (numbers[0] < 1 || numbers[0] > numbers[1]) return false;
    *part = numbers[0];
    *parts = numbers[1];
    return true;
}
