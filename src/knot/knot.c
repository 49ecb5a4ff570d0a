/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a knot: lengths first, then the JSON, then every range. Nothing is believed before
 * it is compared with the bytes that are there; no sum of two numbers from the file is formed
 * unchecked. */
#include "knot/knot.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "knot/foreign.h"
#include "knot/members.h"
#include "knot/ranges.h"

enum {
    HEADER_FIXED_BYTES = 10,
    HEADER_MARKER = 0x40,
    HOLE_BYTES_MAX = KNOT_PART_ALIGNMENT - 1,
    KNOT_NUMERICS = 1,
    SECTIONS = 4,
    TENSOR_TEXT_BYTES_MIN = 50 /* the shortest entry with all its members has 58 */
};

static const char KNOT_ID_START[] = "{\"knot_id\":\"";

uint64_t knot_header_end(uint64_t meta_bytes)
{
    return ((HEADER_FIXED_BYTES + meta_bytes + 3) & ~(uint64_t)3) + 1;
}

uint64_t knot_payload_start(uint16_t version, uint64_t meta_bytes)
{
    uint64_t end = knot_header_end(meta_bytes);
    return version == 1 ? end
                        : (end + KNOT_PART_ALIGNMENT - 1) & ~(uint64_t)(KNOT_PART_ALIGNMENT - 1);
}

Error knot_header_bytes(const uint8_t *probe, size_t probe_bytes, uint64_t file_bytes,
                        uint64_t *out, Why *why)
{
    if (probe_bytes < 4 || memcmp(probe, "KNOT", 4) != 0) {
        const char *kind = foreign_kind(probe, probe_bytes);
        if (!kind) return error_why(why, ERR_FORMAT, "not a knot: it does not start with KNOT");
        return error_why(why, ERR_FORMAT, "this is %s, not a knot. %s", kind,
                         foreign_advice(probe, probe_bytes));
    }
    if (probe_bytes < HEADER_FIXED_BYTES)
        return error_why(why, ERR_TRUNCATED, "the file ends inside the header");
    uint16_t version = bytes_load16(probe + 4);
    if (version != 1 && version != 2)
        return error_why(
            why, ERR_UNSUPPORTED,
            "knot version %u; this program reads 1 and 2. Use the cobord that wrote it, or "
            "pull or encode the model again with this one",
            version);
    uint32_t meta = bytes_load32(probe + 6);
    if (meta < 2) return error_why(why, ERR_FORMAT, "the header's JSON has %u bytes", meta);
    if (meta > KNOT_META_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "the header's JSON has %u bytes, the limit is %u",
                         meta, (unsigned)KNOT_META_BYTES_MAX);
    *out = knot_header_end(meta);
    if (*out <= file_bytes) return OK;
    return error_why(why, ERR_TRUNCATED, "the header needs %llu bytes, the file has %llu",
                     (unsigned long long)*out, (unsigned long long)file_bytes);
}

bool knot_is_stale(const uint8_t *header, size_t header_bytes)
{
    if (header_bytes < HEADER_FIXED_BYTES || bytes_load16(header + 4) != 1) return false;
    uint64_t at = HEADER_FIXED_BYTES + (uint64_t)bytes_load32(header + 6);
    return at % 4 == 3 && at < header_bytes && header[at] == HEADER_MARKER;
}

/* --- tensors --- */

static Error knot_name(yyjson_val *v, uint32_t index, char *out, uint32_t *out_bytes, Why *why)
{
    const char *text = yyjson_get_str(v);
    size_t bytes = yyjson_get_len(v);
    if (!text || bytes == 0 || bytes > KNOT_NAME_BYTES_MAX)
        return error_why(why, ERR_FORMAT, "tensor %u: `name` is missing, or not 1 to %u bytes long",
                         index, (unsigned)KNOT_NAME_BYTES_MAX);
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!fine)
            return error_why(why, ERR_FORMAT,
                             "tensor %u: name `%.*s` has other characters than letters, digits, _ "
                             "and -",
                             index, (int)bytes, text);
    }
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    *out_bytes = (uint32_t)bytes;
    return OK;
}

static Error knot_dimension(yyjson_val *v, const char *name, uint32_t *out, Why *why)
{
    uint64_t n = yyjson_is_uint(v) ? yyjson_get_uint(v) : 0;
    if (n == 0 || n > UINT32_MAX)
        return error_why(why, ERR_SHAPE,
                         "%s: a dimension is not a whole number from 1 to 4294967295", name);
    *out = (uint32_t)n;
    return OK;
}

static Error knot_shape(Members m, KnotTensor *t, Why *why)
{
    yyjson_val *shape;
    TRY(members_find(m, "shape", &shape, why));
    size_t dimensions = yyjson_arr_size(shape);
    if (dimensions != 1 && dimensions != 2)
        return error_why(why, ERR_SHAPE, "%s: `shape` does not have one or two dimensions",
                         t->name);
    t->rows = 1;
    if (dimensions == 2) TRY(knot_dimension(yyjson_arr_get_first(shape), t->name, &t->rows, why));
    return knot_dimension(yyjson_arr_get_last(shape), t->name, &t->cols, why);
}

static Error knot_type(Members m, KnotTensor *t, Why *why)
{
    yyjson_val *type, *other;
    TRY(members_find(m, "type", &type, why));
    TRY(members_find(m, "tensor_type", &other, why));
    if (type && other)
        return error_why(why, ERR_DUPLICATE, "%s: both `type` and `tensor_type`", t->name);
    if (!type) type = other;
    if (!yyjson_is_str(type))
        return error_why(why, ERR_TYPE, "%s: `type` is missing or not a text", t->name);
    Why detail;
    detail.text[0] = '\0';
    Error e = block_type_from_name(yyjson_get_str(type), yyjson_get_len(type), &t->type, &detail);
    return e ? error_why(why, e, "%s: %s", t->name, detail.text) : OK;
}

static Error knot_layout(Members m, uint16_t version, KnotTensor *t, Why *why)
{
    yyjson_val *layout;
    TRY(members_find(m, "layout", &layout, why));
    t->layout = LAYOUT_ROWS;
    if (!layout) return OK;
    if (!yyjson_is_str(layout))
        return error_why(why, ERR_FORMAT, "%s: `layout` is not a text", t->name);
    Why detail;
    detail.text[0] = '\0';
    Error e = layout_from_name(yyjson_get_str(layout), yyjson_get_len(layout), &t->layout, &detail);
    if (e) return error_why(why, e, "%s: %s", t->name, detail.text);
    if (version == 1 && t->layout != LAYOUT_ROWS)
        return error_why(why, ERR_FORMAT, "%s: a version 1 knot has only the layout `rows`",
                         t->name);
    return OK;
}

static Error knot_length(Members m, KnotTensor *t, Why *why)
{
    uint64_t right;
    Why detail;
    detail.text[0] = '\0';
    TRY(members_u64(m, "offset", INT64_MAX, UINT64_MAX, &t->offset, why));
    TRY(members_u64(m, "length", INT64_MAX, UINT64_MAX, &t->bytes, why));
    if (t->offset == UINT64_MAX || t->bytes == UINT64_MAX)
        return error_why(why, ERR_FORMAT, "%s: `offset` or `length` is missing", t->name);
    Error e = layout_tensor_bytes(t->type, t->layout, t->rows, t->cols, &right, &detail);
    if (e) return error_why(why, e, "%s: %s", t->name, detail.text);
    if (t->bytes != right)
        return error_why(why, ERR_SHAPE, "%s: `length` is %llu; %s, %u x %u, %s takes %llu",
                         t->name, (unsigned long long)t->bytes, block_traits(t->type)->name,
                         t->rows, t->cols, layout_name(t->layout), (unsigned long long)right);
    return OK;
}

static Error knot_tied(Members m, Knot *knot, const KnotTensor *t, Why *why)
{
    yyjson_val *tied;
    TRY(members_find(m, "tied", &tied, why));
    if (!tied || yyjson_is_false(tied)) return OK;
    if (!yyjson_is_true(tied) || strcmp(t->name, "output_weight") != 0)
        return error_why(why, ERR_FORMAT, "%s: `tied` is not allowed here", t->name);
    knot->tied_head = true;
    return OK;
}

static Error knot_tensor(yyjson_val *object, uint32_t index, Knot *knot, char *names,
                         uint32_t *name_bytes, Why *why)
{
    KnotTensor *t = &knot->tensors[index];
    if (!yyjson_is_obj(object))
        return error_why(why, ERR_FORMAT, "tensor %u is not a JSON object", index);
    yyjson_val *name;
    TRY(members_find((Members){object, "a tensor"}, "name", &name, why));
    TRY(knot_name(name, index, names, name_bytes, why));
    t->name = names;
    Members m = {object, t->name};
    TRY(knot_type(m, t, why));
    TRY(knot_layout(m, knot->version, t, why));
    TRY(knot_shape(m, t, why));
    TRY(knot_tied(m, knot, t, why));
    return knot_length(m, t, why);
}

/* --- names --- */

const KnotTensor *knot_find(const Knot *knot, const char *name)
{
    uint32_t at = names_find(&knot->names, name, strlen(name));
    return at == NAMES_NONE ? NULL : &knot->tensors[at];
}

const KnotTensor *knot_head(const Knot *knot)
{
    const KnotTensor *head = knot_find(knot, "output_weight");
    return head ? head : knot_find(knot, "token_embd_weight");
}

uint32_t knot_unit_rows(const KnotTensor *t) { return t->layout == LAYOUT_X16 ? PANEL_ROWS : 1; }

static uint64_t units_of(const KnotTensor *t, uint64_t rows)
{
    return (rows + knot_unit_rows(t) - 1) / knot_unit_rows(t);
}

static uint64_t unit_bytes(const KnotTensor *t) { return t->bytes / units_of(t, t->rows); }

uint64_t knot_row_offset(const KnotTensor *t, uint32_t row)
{
    return t->offset + row / knot_unit_rows(t) * unit_bytes(t);
}

uint64_t knot_rows_end(const KnotTensor *t, uint32_t row_last)
{
    return t->offset + units_of(t, row_last) * unit_bytes(t);
}

static Error knot_index_names(Knot *knot, Arena *arena, Why *why)
{
    TRY(names_make(&knot->names, knot->tensor_count, arena, why));
    for (uint32_t i = 0; i < knot->tensor_count; i++) {
        const char *name = knot->tensors[i].name;
        if (!names_put(&knot->names, name, strlen(name), i))
            return error_why(why, ERR_DUPLICATE, "two tensors are named %s", name);
    }
    return OK;
}

/* --- ranges --- */

/* layer * 4 + phase of a phase's matrix, -1 for everything else. */
static int64_t knot_phase_key(const char *name)
{
    static const struct {
        const char *suffix;
        int phase;
    } matrices[] = {{"_attn_q_weight", 0},      {"_attn_k_weight", 0},   {"_attn_v_weight", 0},
                    {"_attn_output_weight", 0}, {"_ffn_gate_weight", 1}, {"_ffn_up_weight", 2},
                    {"_ffn_down_weight", 3}};
    if (strncmp(name, "blk_", 4) != 0) return -1;
    uint32_t layer = 0, digits = 0;
    const char *p = name + 4;
    for (; *p >= '0' && *p <= '9' && digits < 6; p++, digits++)
        layer = layer * 10 + (uint32_t)(*p - '0');
    if (digits == 0) return -1;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        if (strcmp(p, matrices[i].suffix) == 0) return (int64_t)layer * 4 + matrices[i].phase;
    return -1;
}

static Error knot_check_aligned(const char *name, uint64_t offset, uint64_t unit, Why *why)
{
    if (offset % unit == 0) return OK;
    return error_why(why, ERR_RANGE, "%s starts at %llu, which is no multiple of %llu", name,
                     (unsigned long long)offset, (unsigned long long)unit);
}

/* Version 2: rising offsets, alignment, and every phase one range. */
static Error knot_check_order(const Knot *knot, Why *why)
{
    int64_t current = -1, last = -1;
    uint64_t end = 0;
    for (uint32_t i = 0; i < knot->tensor_count; i++) {
        const KnotTensor *t = &knot->tensors[i];
        TRY(knot_check_aligned(t->name, t->offset, KNOT_ALIGNMENT, why));
        int64_t key = knot_phase_key(t->name);
        bool part =
            strcmp(t->name, "output_weight") == 0 || strcmp(t->name, "token_embd_weight") == 0;
        if (part || (key >= 0 && key != current))
            TRY(knot_check_aligned(t->name, t->offset, KNOT_PART_ALIGNMENT, why));
        if (key >= 0 && key != current && key <= last)
            return error_why(why, ERR_RANGE, "%s is not in execution order", t->name);
        if (key >= 0 && key == current && t->offset - end >= KNOT_ALIGNMENT)
            return error_why(why, ERR_RANGE, "%s does not follow the tensor before it in its phase",
                             t->name);
        if (key > last) last = key;
        current = key;
        end = t->offset + t->bytes;
    }
    return OK;
}

static size_t knot_add_section(Range *ranges, size_t count, KnotSection s, const char *name)
{
    if (s.bytes) ranges[count++] = (Range){s.offset, s.bytes, name};
    return count;
}

static Error knot_check_ranges(Knot *knot, Arena *scratch, Why *why)
{
    Range *ranges = ARENA_NEW(scratch, Range, knot->tensor_count + SECTIONS);
    if (!ranges) return error_why(why, ERR_MEMORY, "the ranges of %u tensors", knot->tensor_count);
    size_t count = 0;
    for (; count < knot->tensor_count; count++) {
        const KnotTensor *t = &knot->tensors[count];
        ranges[count] = (Range){t->offset, t->bytes, t->name};
        if (knot->version == 2 && count && t->offset < ranges[count - 1].offset)
            return error_why(why, ERR_RANGE, "%s: tensors are not listed by rising offset",
                             t->name);
    }
    count = knot_add_section(ranges, count, knot->tokenizer, "the tokenizer section");
    count = knot_add_section(ranges, count, knot->embedding_row_hashes,
                             "the embedding row hash section");
    count = knot_add_section(ranges, count, knot->tensor_hashes, "the tensor hash section");
    count = knot_add_section(ranges, count, knot->block_hashes, "the block hash section");
    ranges_sort(ranges, count);
    TRY(ranges_check(ranges, count, HOLE_BYTES_MAX, knot->payload_bytes, why));
    return knot->version == 2 ? knot_check_order(knot, why) : OK;
}

/* --- sections --- */

static Error knot_section(yyjson_val *root, const char *name, KnotSection *out, Why *why)
{
    yyjson_val *object;
    *out = (KnotSection){0, 0};
    TRY(members_find((Members){root, "header"}, name, &object, why));
    if (!object) return OK;
    if (!yyjson_is_obj(object))
        return error_why(why, ERR_FORMAT, "header: `%s` is not an object", name);
    Members m = {object, name};
    TRY(members_u64(m, "offset", INT64_MAX, UINT64_MAX, &out->offset, why));
    TRY(members_u64(m, "length", INT64_MAX, 0, &out->bytes, why));
    if (out->offset == UINT64_MAX || out->bytes == 0)
        return error_why(why, ERR_FORMAT, "header: `%s` has no offset or no length", name);
    return knot_check_aligned(name, out->offset, KNOT_ALIGNMENT, why);
}

static Error knot_check_hash_sections(const Knot *knot, Why *why)
{
    const KnotTensor *embedding = knot_find(knot, "token_embd_weight");
    uint64_t rows = embedding ? embedding->rows : 0;
    if (knot->embedding_row_hashes.bytes != rows * 8)
        return error_why(
            why, ERR_RANGE, "the embedding row hash section has %llu bytes for %llu rows",
            (unsigned long long)knot->embedding_row_hashes.bytes, (unsigned long long)rows);
    if (embedding && embedding->layout != LAYOUT_ROWS)
        return error_why(why, ERR_FORMAT, "token_embd_weight must have the layout `rows`");
    if (knot->tensor_hashes.bytes && knot->tensor_hashes.bytes != 8 * (uint64_t)knot->tensor_count)
        return error_why(why, ERR_RANGE, "the tensor hash section has %llu bytes for %u tensors",
                         (unsigned long long)knot->tensor_hashes.bytes, knot->tensor_count);
    uint64_t covered = knot->block_hashes.offset;
    uint64_t blocks = covered / KNOT_HASH_BLOCK_BYTES + (covered % KNOT_HASH_BLOCK_BYTES != 0);
    if (knot->block_hashes.bytes != blocks * 8 || knot->payload_bytes - covered != blocks * 8)
        return error_why(
            why, ERR_RANGE,
            "the block hash section has %llu bytes for %llu blocks, or is not the last",
            (unsigned long long)knot->block_hashes.bytes, (unsigned long long)blocks);
    return OK;
}

static Error knot_parse_id(const uint8_t *json, uint64_t *out, Why *why)
{
    *out = 0;
    for (int i = 0; i < KNOT_ID_DIGITS; i++) {
        uint8_t c = json[KNOT_ID_DIGITS_OFFSET - HEADER_FIXED_BYTES + i];
        bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (!digit && !letter)
            return error_why(why, ERR_FORMAT, "header: `knot_id` is not 16 hexadecimal digits");
        *out = *out << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    return OK;
}

/* What only version 2 has; the payload must end where the file ends. */
static Error knot_parse_v2(yyjson_val *root, const uint8_t *json, size_t json_bytes, Knot *knot,
                           Why *why)
{
    Members m = {root, "header"};
    size_t start = sizeof KNOT_ID_START - 1;
    if (json_bytes < start + KNOT_ID_DIGITS + 1 || memcmp(json, KNOT_ID_START, start) != 0 ||
        json[start + KNOT_ID_DIGITS] != '"')
        return error_why(why, ERR_FORMAT, "header: `knot_id` is not the first member");
    yyjson_val *once;
    TRY(members_find(m, "knot_id", &once, why));
    TRY(knot_parse_id(json, &knot->id, why));
    uint64_t numerics, alignment, stated;
    TRY(members_u64(m, "numerics", INT64_MAX, KNOT_NUMERICS, &numerics, why));
    if (numerics != KNOT_NUMERICS)
        return error_why(why, ERR_UNSUPPORTED, "header: `numerics` is %llu; this program knows %u",
                         (unsigned long long)numerics, (unsigned)KNOT_NUMERICS);
    TRY(members_u64(m, "alignment", KNOT_PART_ALIGNMENT, 0, &alignment, why));
    if (alignment != KNOT_ALIGNMENT)
        return error_why(why, ERR_UNSUPPORTED, "header: `alignment` is not 64");
    TRY(members_u64(m, "payload_bytes", INT64_MAX, 0, &stated, why));
    if (stated > knot->payload_bytes)
        return error_why(why, ERR_TRUNCATED, "the payload has %llu bytes, the header says %llu",
                         (unsigned long long)knot->payload_bytes, (unsigned long long)stated);
    if (stated < knot->payload_bytes)
        return error_why(why, ERR_FORMAT, "the payload has %llu bytes, the header says %llu",
                         (unsigned long long)knot->payload_bytes, (unsigned long long)stated);
    TRY(knot_section(root, "tokenizer", &knot->tokenizer, why));
    TRY(knot_section(root, "embedding_row_hashes", &knot->embedding_row_hashes, why));
    TRY(knot_section(root, "tensor_hashes", &knot->tensor_hashes, why));
    TRY(knot_section(root, "block_hashes", &knot->block_hashes, why));
    return knot_check_hash_sections(knot, why);
}

/* --- model --- */

static Error knot_parse_model(yyjson_val *root, KnotModel *out, Why *why)
{
    yyjson_val *object;
    TRY(members_find((Members){root, "header"}, "model", &object, why));
    memset(out, 0, sizeof *out);
    if (!object) return OK;
    if (!yyjson_is_obj(object))
        return error_why(why, ERR_FORMAT, "header: `model` is not an object");
    Members m = {object, "model"};
    TRY(members_text(m, "architecture", out->architecture, sizeof out->architecture, why));
    TRY(members_text(m, "name", out->name, sizeof out->name, why));
    TRY(members_u32(m, "layers", 0, &out->layers, why));
    TRY(members_u32(m, "hidden", 0, &out->hidden, why));
    TRY(members_u32(m, "ffn", 0, &out->ffn, why));
    TRY(members_u32(m, "heads", 0, &out->heads, why));
    TRY(members_u32(m, "kv_heads", 0, &out->kv_heads, why));
    TRY(members_u32(m, "head_dim", 0, &out->head_dim, why));
    TRY(members_u32(m, "vocabulary", 0, &out->vocabulary, why));
    TRY(members_u32(m, "context", 0, &out->context, why));
    TRY(members_f32(m, "norm_epsilon", &out->norm_epsilon, why));
    TRY(members_f32(m, "rope_base", &out->rope_base, why));
    TRY(members_f32(m, "rope_base_local", &out->rope_base_local, why));
    TRY(members_u32(m, "rope_dim", 0, &out->rope_dim, why));
    TRY(members_text(m, "rope_scaling", out->rope_scaling, sizeof out->rope_scaling, why));
    TRY(members_f32(m, "rope_scale_factor", &out->rope_scale_factor, why));
    TRY(members_u32(m, "rope_original_context", 0, &out->rope_original_context, why));
    TRY(members_u32(m, "sliding_window", 0, &out->sliding_window, why));
    return members_u32(m, "sliding_window_pattern", 0, &out->sliding_window_pattern, why);
}

/* --- the whole --- */

static Error knot_parse_tensors(yyjson_val *root, size_t json_bytes, Knot *knot, Arena *arena,
                                Why *why)
{
    yyjson_val *list;
    TRY(members_find((Members){root, "header"}, "tensors", &list, why));
    if (!yyjson_is_arr(list))
        return error_why(why, ERR_FORMAT, "header: `tensors` is missing or not an array");
    size_t count = yyjson_arr_size(list);
    if (count == 0 || count > KNOT_TENSORS_MAX)
        return error_why(why, ERR_RANGE, "header: %zu tensors; 1 to %u are allowed", count,
                         (unsigned)KNOT_TENSORS_MAX);
    if (count > json_bytes / TENSOR_TEXT_BYTES_MIN)
        return error_why(why, ERR_FORMAT, "header: %zu tensors cannot be described in %zu bytes",
                         count, json_bytes);
    size_t name_bytes = 0, i, n;
    yyjson_val *tensor;
    yyjson_arr_foreach(list, i, n, tensor) name_bytes +=
        yyjson_get_len(yyjson_obj_get(tensor, "name")) + 1;
    knot->tensor_count = (uint32_t)count;
    knot->tensors = ARENA_NEW(arena, KnotTensor, count);
    char *names = arena_take(arena, name_bytes);
    if (!knot->tensors || !names)
        return error_why(why, ERR_MEMORY, "the table of %zu tensors", count);
    yyjson_arr_foreach(list, i, n, tensor)
    {
        uint32_t bytes = 0;
        TRY(knot_tensor(tensor, (uint32_t)i, knot, names, &bytes, why));
        names += bytes + 1;
    }
    return knot_index_names(knot, arena, why);
}

static Error knot_parse_json(const uint8_t *json, size_t json_bytes, Arena *arena, Arena *scratch,
                             Knot *knot, Why *why)
{
    size_t pool_bytes = yyjson_read_max_memory_usage(json_bytes, YYJSON_READ_NOFLAG);
    void *pool = arena_take(scratch, pool_bytes);
    yyjson_alc allocator;
    if (!pool || !yyjson_alc_pool_init(&allocator, pool, pool_bytes))
        return error_why(why, ERR_MEMORY, "the header's JSON of %zu bytes", json_bytes);
    yyjson_read_err failure;
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)json, json_bytes, YYJSON_READ_NOFLAG,
                                       &allocator, &failure);
    if (!doc)
        return error_why(why, ERR_FORMAT, "the header is not valid JSON at byte %zu: %s",
                         failure.pos + HEADER_FIXED_BYTES, failure.msg);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (!yyjson_is_obj(root))
        return error_why(why, ERR_FORMAT, "the header's JSON is not an object");
    TRY(knot_parse_model(root, &knot->model, why));
    TRY(knot_parse_tensors(root, json_bytes, knot, arena, why));
    if (knot->version == 2) TRY(knot_parse_v2(root, json, json_bytes, knot, why));
    return knot_check_ranges(knot, scratch, why);
}

static Error knot_check_padding(const uint8_t *header, uint64_t meta_bytes, uint64_t header_end,
                                Why *why)
{
    if (knot_is_stale(header, (size_t)header_end))
        return error_why(
            why, ERR_STALE,
            "the payload starts one byte before where its header says, every weight would be "
            "read wrong. Rewrite it with: cobord repair OLD.knot -o NEW.knot.");
    for (uint64_t i = HEADER_FIXED_BYTES + meta_bytes; i + 1 < header_end; i++)
        if (header[i] != 0)
            return error_why(why, ERR_FORMAT, "byte %llu of the header is not NUL",
                             (unsigned long long)i);
    if (header[header_end - 1] == HEADER_MARKER) return OK;
    return error_why(why, ERR_FORMAT, "byte %llu of the header is not the codec marker 0x40",
                     (unsigned long long)(header_end - 1));
}

Error knot_parse(const uint8_t *header, size_t header_bytes, uint64_t file_bytes, Arena *arena,
                 Arena *scratch, Knot *out, Why *why)
{
    uint64_t header_end;
    TRY(knot_header_bytes(header, header_bytes, file_bytes, &header_end, why));
    if (header_end > header_bytes)
        return error_why(why, ERR_TRUNCATED, "the header needs %llu bytes, %zu are here",
                         (unsigned long long)header_end, header_bytes);
    uint32_t meta = bytes_load32(header + 6);
    memset(out, 0, sizeof *out);
    out->version = bytes_load16(header + 4);
    out->file_bytes = file_bytes;
    out->payload_offset = knot_payload_start(out->version, meta);
    TRY(knot_check_padding(header, meta, header_end, why));
    if (out->payload_offset > file_bytes)
        return error_why(why, ERR_TRUNCATED, "the payload starts at %llu, the file has %llu bytes",
                         (unsigned long long)out->payload_offset, (unsigned long long)file_bytes);
    out->payload_bytes = file_bytes - out->payload_offset;
    if (out->version == 1) out->id = hash_xxh64(header, (size_t)header_end);
    return knot_parse_json(header + HEADER_FIXED_BYTES, meta, arena, scratch, out, why);
}

uint64_t knot_identity(const uint8_t *header, size_t header_bytes, const uint8_t *row_hashes,
                       size_t row_hashes_bytes, const uint8_t *block_hashes,
                       size_t block_hashes_bytes)
{
    static const char zeros[] = "0000000000000000";
    ASSERT(header_bytes >= HEADER_FIXED_BYTES);
    size_t json_end = HEADER_FIXED_BYTES + (size_t)bytes_load32(header + 6);
    size_t digits_end = KNOT_ID_DIGITS_OFFSET + KNOT_ID_DIGITS;
    ASSERT(json_end <= header_bytes && digits_end <= json_end);
    HashStream64 s;
    hash_stream64_start(&s);
    hash_stream64_update(&s, header + HEADER_FIXED_BYTES,
                         KNOT_ID_DIGITS_OFFSET - HEADER_FIXED_BYTES);
    hash_stream64_update(&s, zeros, KNOT_ID_DIGITS);
    hash_stream64_update(&s, header + digits_end, json_end - digits_end);
    hash_stream64_update(&s, row_hashes, row_hashes_bytes);
    hash_stream64_update(&s, block_hashes, block_hashes_bytes);
    return hash_stream64_end(&s);
}

static size_t knot_entries_max(size_t header_bytes)
{
    size_t entries = header_bytes / TENSOR_TEXT_BYTES_MIN + 1;
    return entries < KNOT_TENSORS_MAX ? entries : KNOT_TENSORS_MAX;
}

size_t knot_arena_bytes(size_t header_bytes)
{
    size_t entries = knot_entries_max(header_bytes);
    size_t names = header_bytes + entries; /* and their NULs */
    return entries * sizeof(KnotTensor) + names + names_bytes((uint32_t)entries) + 1024;
}

size_t knot_scratch_bytes(size_t header_bytes)
{
    size_t ranges = (knot_entries_max(header_bytes) + SECTIONS) * sizeof(Range);
    return yyjson_read_max_memory_usage(header_bytes, YYJSON_READ_NOFLAG) + ranges + 1024;
}
