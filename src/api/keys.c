/* SPDX-License-Identifier: Apache-2.0 */
#include "api/keys.h"

#include <string.h>

#include <yyjson.h>

#include "base/hash.h"

enum { ENTRY_BYTES_LEAST = 28, WORD_BYTES_MAX = 32 };

typedef struct Reader {
    const char *text; /* as it is in the file */
    char *copy;       /* as the parser changes it, byte for byte at the same places */
    Keys *keys;
    uint32_t *secrets;           /* places of digests, as keys->places of names */
    size_t counted, line_breaks; /* so many bytes of the text were looked at for so many */
    Why where;
    Why *why;
} Reader;

/* ---- Where it is ---- */

static size_t line_of(const char *text, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    return line;
}

/* Goes on behind the string before: the file is looked at once, however many keys it has. */
static size_t next_line_of(Reader *r, size_t at)
{
    if (at < r->counted) r->counted = r->line_breaks = 0;
    r->line_breaks += line_of(r->text + r->counted, at - r->counted) - 1;
    r->counted = at;
    return r->line_breaks + 1;
}

/* "line 3, key 2 (alice)": what is known of it. `inside` is a string in the copy, or NULL. */
static Error set_where(Reader *r, const char *inside, uint32_t index, const char *name)
{
    Why line = {{0}};
    if (inside)
        TRY(error_why(&line, OK, "line %zu, ", next_line_of(r, (size_t)(inside - r->copy))));
    return error_why(&r->where, OK, "%skey %u%s%s%s", line.text, index + 1, name ? " (" : "",
                     name ? name : "", name ? ")" : "");
}

/* ---- Names ---- */

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._-", c));
}

/* What begins as a key does is one, in the wrong place: it would be shown. */
bool keys_name_is_fine(const char *name, size_t bytes)
{
    if (!bytes || bytes >= KEYS_NAME_BYTES || (bytes > 2 && memcmp(name, "sk-", 3) == 0))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!is_name_character(name[i])) return false;
    return true;
}

/* A field that nobody knows is named when it looks like one: it might be a key. */
static bool is_word(const char *text, size_t bytes)
{
    if (!bytes || bytes > WORD_BYTES_MAX) return false;
    for (size_t i = 0; i < bytes; i++)
        if ((text[i] < 'a' || text[i] > 'z') && text[i] != '_') return false;
    return true;
}

static Error refuse_field(const char *where, yyjson_val *name, const char *fields, Why *why)
{
    const char *text = yyjson_get_str(name);
    size_t bytes = yyjson_get_len(name);
    if (!is_word(text, bytes))
        return error_why(why, ERR_FORMAT, "%s: a field that is none of %s", where, fields);
    return error_why(why, ERR_FORMAT, "%s: %.*s is none of the fields %s", where, (int)bytes, text,
                     fields);
}

/* ---- Places by hash ---- */

/* Where `hash` is, or would be: `same(keys, index, thing)` tells. */
static uint32_t *find_place(const Keys *keys, uint32_t *places, uint64_t hash,
                            bool (*same)(const Keys *keys, uint32_t index, const void *thing),
                            const void *thing)
{
    uint32_t at = (uint32_t)hash & (keys->place_count - 1);
    while (places[at] && !same(keys, places[at] - 1, thing))
        at = (at + 1) & (keys->place_count - 1);
    return &places[at];
}

static bool same_name(const Keys *keys, uint32_t index, const void *name)
{
    return strcmp(keys->entries[index].name, name) == 0;
}

static bool same_digest(const Keys *keys, uint32_t index, const void *digest)
{
    return digest_equals(keys->digests[index], digest);
}

static uint64_t name_hash(const char *name) { return hash_xxh64(name, strlen(name)); }

static uint64_t digest_hash(const uint8_t *digest)
{
    uint64_t hash;
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

uint32_t keys_find_name(const Keys *keys, const char *name)
{
    if (!keys->count) return KEYS_NONE;
    uint32_t found = *find_place(keys, keys->places, name_hash(name), same_name, name);
    return found ? found - 1 : KEYS_NONE;
}

/* Every key is looked at, and each whole. */
uint32_t keys_find(const Keys *keys, const char *key, size_t bytes)
{
    uint8_t digest[DIGEST_BYTES];
    uint32_t found = KEYS_NONE;
    digest_sha256(key, bytes, digest);
    for (uint32_t i = 0; i < keys->count; i++)
        if (digest_equals(keys->digests[i], digest)) found = i;
    return found;
}

/* ---- Fields ---- */

#define FIELDS "name, key, sha256, requests_per_minute, tokens_per_minute, concurrent, admin"

typedef enum Field { NAME, KEY, SHA256, REQUESTS, TOKENS, CONCURRENT, ADMIN, FIELDS_COUNT } Field;

static const char *const field_names[FIELDS_COUNT] = {
    "name", "key", "sha256", "requests_per_minute", "tokens_per_minute", "concurrent", "admin"};

static Field field_of(yyjson_val *name)
{
    Field f = 0;
    while (f < FIELDS_COUNT && !yyjson_equals_str(name, field_names[f])) f++;
    return f;
}

/* Values by their field; NULL: left out. A field that comes twice says nobody knows what. */
static Error read_fields(Reader *r, yyjson_val *object, yyjson_val *out[FIELDS_COUNT])
{
    size_t i, count;
    yyjson_val *name, *value;
    yyjson_obj_foreach(object, i, count, name, value)
    {
        Field f = field_of(name);
        if (f == FIELDS_COUNT) return refuse_field(r->where.text, name, FIELDS, r->why);
        if (out[f])
            return error_why(r->why, ERR_FORMAT, "%s: %s stands there twice", r->where.text,
                             field_names[f]);
        out[f] = value;
    }
    return OK;
}

static Error read_name(Reader *r, yyjson_val *value, KeysEntry *entry)
{
    const char *name = yyjson_get_str(value);
    size_t bytes = yyjson_get_len(value);
    if (!name || !keys_name_is_fine(name, bytes))
        return error_why(r->why, ERR_FORMAT,
                         "%s: name must be 1 to %d of A-Z a-z 0-9 . _ - and not begin with sk-",
                         r->where.text, KEYS_NAME_BYTES - 1);
    memcpy(entry->name, name, bytes);
    return OK;
}

static Error read_limit(Reader *r, yyjson_val *const *values, Field f, uint32_t *out)
{
    yyjson_val *value = values[f];
    if (!value || yyjson_is_null(value)) return OK;
    uint64_t limit = yyjson_is_uint(value) ? yyjson_get_uint(value) : 0;
    if (!limit || limit > KEYS_LIMIT_MAX)
        return error_why(r->why, ERR_FORMAT, "%s: %s must be a whole number from 1 to %d",
                         r->where.text, field_names[f], KEYS_LIMIT_MAX);
    *out = (uint32_t)limit;
    return OK;
}

static Error read_admin(Reader *r, yyjson_val *value, bool *out)
{
    if (!value || yyjson_is_null(value)) return OK;
    if (!yyjson_is_bool(value))
        return error_why(r->why, ERR_FORMAT, "%s: admin must be true or false", r->where.text);
    *out = yyjson_get_bool(value);
    return OK;
}

static Error read_plain(Reader *r, yyjson_val *value, uint8_t digest[DIGEST_BYTES])
{
    const char *key = yyjson_get_str(value);
    size_t bytes = yyjson_get_len(value);
    bool fine = key && bytes >= KEYS_SECRET_BYTES_MIN && bytes <= KEYS_SECRET_BYTES_MAX;
    for (size_t i = 0; fine && i < bytes; i++) fine = key[i] > ' ' && key[i] <= '~';
    if (!fine)
        return error_why(r->why, ERR_FORMAT, "%s: key must be %d to %d visible ASCII characters",
                         r->where.text, KEYS_SECRET_BYTES_MIN, KEYS_SECRET_BYTES_MAX);
    digest_sha256(key, bytes, digest);
    return OK;
}

static Error read_secret(Reader *r, yyjson_val *const *values, uint8_t digest[DIGEST_BYTES])
{
    yyjson_val *hash = values[SHA256];
    if (!hash == !values[KEY])
        return error_why(r->why, ERR_FORMAT, "%s: it needs either key or sha256", r->where.text);
    if (!hash) return read_plain(r, values[KEY], digest);
    const char *hex = yyjson_get_str(hash);
    if (hex && digest_from_hex(hex, yyjson_get_len(hash), digest)) return OK;
    return error_why(r->why, ERR_FORMAT, "%s: sha256 must be 64 hexadecimal digits", r->where.text);
}

/* ---- Entries ---- */

static Error add_places(Reader *r, uint32_t index)
{
    Keys *k = r->keys;
    const KeysEntry *entry = &k->entries[index];
    const uint8_t *digest = k->digests[index];
    uint32_t *name = find_place(k, k->places, name_hash(entry->name), same_name, entry->name),
             *secret = find_place(k, r->secrets, digest_hash(digest), same_digest, digest);
    if (*name)
        return error_why(r->why, ERR_DUPLICATE, "%s: key %u has the same name", r->where.text,
                         *name);
    if (*secret)
        return error_why(r->why, ERR_DUPLICATE, "%s: it is the same key as key %u (%s)",
                         r->where.text, *secret, k->entries[*secret - 1].name);
    *name = *secret = index + 1;
    return OK;
}

static const char *first_string(yyjson_val *object)
{
    yyjson_obj_iter fields = yyjson_obj_iter_with(object);
    return yyjson_get_str(yyjson_obj_iter_next(&fields));
}

/* NULL: none that could be said. */
static const char *name_of(yyjson_val *object)
{
    yyjson_val *value = yyjson_obj_get(object, field_names[NAME]);
    const char *name = yyjson_get_str(value);
    return name && keys_name_is_fine(name, yyjson_get_len(value)) ? name : NULL;
}

static Error read_entry(Reader *r, yyjson_val *object, uint32_t index)
{
    KeysEntry *entry = &r->keys->entries[index];
    yyjson_val *values[FIELDS_COUNT] = {0};
    *entry = (KeysEntry){0};
    TRY(set_where(r, NULL, index, NULL));
    if (!yyjson_is_obj(object))
        return error_why(r->why, ERR_FORMAT, "%s of the list must be an object", r->where.text);
    TRY(set_where(r, first_string(object), index, name_of(object)));
    TRY(read_fields(r, object, values));
    TRY(read_name(r, values[NAME], entry));
    TRY(read_secret(r, values, r->keys->digests[index]));
    TRY(read_limit(r, values, REQUESTS, &entry->limits.requests_per_minute));
    TRY(read_limit(r, values, TOKENS, &entry->limits.tokens_per_minute));
    TRY(read_limit(r, values, CONCURRENT, &entry->limits.concurrent));
    TRY(read_admin(r, values[ADMIN], &entry->admin));
    return add_places(r, index);
}

static Error read_list(Reader *r, yyjson_val *list)
{
    size_t i, count;
    yyjson_val *value;
    yyjson_arr_foreach(list, i, count, value)
    {
        TRY(read_entry(r, value, (uint32_t)i));
        r->keys->count = (uint32_t)i + 1;
    }
    return OK;
}

/* ---- The file ---- */

static size_t entries_max(size_t text_bytes)
{
    size_t most = text_bytes / ENTRY_BYTES_LEAST + 1;
    return most < KEYS_MAX ? most : KEYS_MAX;
}

static uint32_t places_for(size_t count)
{
    uint32_t places = 2;
    while (places < 2 * count) places *= 2;
    return places;
}

static size_t parser_bytes(size_t text_bytes)
{
    return yyjson_read_max_memory_usage(text_bytes, YYJSON_READ_INSITU) + 4096;
}

size_t keys_bytes(size_t text_bytes)
{
    size_t count = entries_max(text_bytes);
    return arena_bytes(text_bytes + YYJSON_PADDING_SIZE) + arena_bytes(parser_bytes(text_bytes)) +
           arena_bytes(count * sizeof(KeysEntry)) + arena_bytes(count * DIGEST_BYTES) +
           2 * arena_bytes(places_for(count) * sizeof(uint32_t)) + ARENA_ALIGN;
}

static Error take_memory(Reader *r, size_t text_bytes, size_t count, Arena *arena)
{
    if (count > KEYS_MAX)
        return error_why(r->why, ERR_TOO_LARGE, "%zu keys, at most %d", count, KEYS_MAX);
    if (count > entries_max(text_bytes)) /* too short for what each must have */
        return error_why(r->why, ERR_FORMAT, "some of the %zu entries are no keys", count);
    Keys *k = r->keys;
    k->place_count = places_for(count);
    k->entries = arena_take_raw(arena, count * sizeof *k->entries);
    k->digests = arena_take_raw(arena, count * sizeof *k->digests);
    k->places = ARENA_NEW(arena, uint32_t, k->place_count);
    r->secrets = ARENA_NEW(arena, uint32_t, k->place_count);
    if (k->entries && k->digests && k->places && r->secrets) return OK;
    return error_why(r->why, ERR_MEMORY, "no memory for %zu keys", count);
}

static Error read_root(Reader *r, yyjson_val *root, yyjson_val **list)
{
    size_t i, count;
    yyjson_val *name, *value;
    if (!yyjson_is_obj(root))
        return error_why(r->why, ERR_FORMAT, "it must be an object: {\"keys\": [..]}");
    yyjson_obj_foreach(root, i, count, name, value)
    {
        if (!yyjson_equals_str(name, "keys") || *list)
            return refuse_field("the outer object", name, "keys (once)", r->why);
        *list = value;
    }
    if (!yyjson_is_arr(*list))
        return error_why(r->why, ERR_FORMAT, "\"keys\" must be there, and a list");
    return OK;
}

static Error parse(Reader *r, size_t bytes, Arena *arena, yyjson_val **root)
{
    void *memory = arena_take_raw(arena, parser_bytes(bytes));
    yyjson_alc allocator;
    yyjson_read_err fault = {0};
    r->copy = arena_take_raw(arena, bytes + YYJSON_PADDING_SIZE);
    if (!memory || !r->copy || !yyjson_alc_pool_init(&allocator, memory, parser_bytes(bytes)))
        return error_why(r->why, ERR_MEMORY, "no memory to read the keys");
    memcpy(r->copy, r->text, bytes);
    memset(r->copy + bytes, 0, YYJSON_PADDING_SIZE);
    yyjson_doc *doc = yyjson_read_opts(r->copy, bytes, YYJSON_READ_INSITU, &allocator, &fault);
    *root = yyjson_doc_get_root(doc);
    if (doc) return OK;
    return error_why(r->why, ERR_FORMAT, "line %zu: no JSON: %s",
                     line_of(r->text, fault.pos < bytes ? fault.pos : bytes), fault.msg);
}

static Error read_copy(Reader *r, size_t bytes, Arena *arena)
{
    yyjson_val *root, *list = NULL;
    TRY(parse(r, bytes, arena, &root));
    TRY(read_root(r, root, &list));
    TRY(take_memory(r, bytes, yyjson_arr_size(list), arena));
    return read_list(r, list);
}

/* The copy has the keys themselves, and its memory lives as long as the table. */
Error keys_parse(const char *text, size_t bytes, Arena *arena, Keys *out, Why *why)
{
    Reader r = {.text = text, .keys = out, .why = why};
    *out = (Keys){0};
    if (!bytes) return error_why(why, ERR_FORMAT, "it is empty: {\"keys\": []} has no keys");
    if (bytes > KEYS_TEXT_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "%zu bytes, at most %d", bytes, KEYS_TEXT_BYTES_MAX);
    Error error = read_copy(&r, bytes, arena);
    if (r.copy) memset(r.copy, 0, bytes);
    return error;
}
