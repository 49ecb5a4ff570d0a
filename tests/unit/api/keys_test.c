/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/keys.h"

/* "secret-of-bob". */
#define BOB "16e2ddaad35fb2ed1de72f9b4f95ac5fd0eac7a1b7a5c1b1a5d8b1d5f4b41d4f"

typedef struct Read {
    void *memory;
    Keys keys;
    Why why;
    Error error;
} Read;

static Read read_bytes(const char *text, size_t bytes)
{
    Read r = {.memory = calloc(1, keys_bytes(bytes))};
    Arena arena = arena_make(r.memory, keys_bytes(bytes));
    r.error = keys_parse(text, bytes, &arena, &r.keys, &r.why);
    return r;
}

static Read read_text(const char *text) { return read_bytes(text, strlen(text)); }

/* Whether the memory of the table has the text, which was a key. */
static bool keeps(const Read *r, size_t text_bytes, const char *text)
{
    const char *at = r->memory;
    for (size_t i = 0; i + strlen(text) <= keys_bytes(text_bytes); i++)
        if (memcmp(at + i, text, strlen(text)) == 0) return true;
    return false;
}

static void a_file(void **state)
{
    (void)state;
    char text[512], hex[DIGEST_HEX_BYTES];
    uint8_t digest[DIGEST_BYTES];
    digest_sha256("secret-of-bob", 13, digest);
    digest_to_hex(digest, hex);
    snprintf(text, sizeof text,
             "{\"keys\": [\n  {\"name\": \"alice\", \"key\": \"sk-12345678\", \"admin\": true},\n"
             "  {\"name\": \"b.o-b_\", \"sha256\": \"%s\", \"requests_per_minute\": 1,\n"
             "   \"tokens_per_minute\": 1000000000, \"concurrent\": 3, \"admin\": null}]}\n",
             hex);
    Read r = read_text(text);
    assert_int_equal(r.error, OK);
    assert_int_equal(r.keys.count, 2);
    assert_true(keeps(&r, strlen(text), "alice"));
    assert_false(keeps(&r, strlen(text), "sk-12345678"));
    assert_int_equal(keys_find(&r.keys, "sk-12345678", 11), 0);
    assert_int_equal(keys_find(&r.keys, "secret-of-bob", 13), 1);
    assert_int_equal(keys_find(&r.keys, "secret-of-bo", 12), KEYS_NONE);
    assert_int_equal(keys_find(&r.keys, hex, 64), KEYS_NONE); /* the hash is no key */
    assert_int_equal(keys_find(&r.keys, "", 0), KEYS_NONE);
    assert_int_equal(keys_find_name(&r.keys, "b.o-b_"), 1);
    assert_int_equal(keys_find_name(&r.keys, "bob"), KEYS_NONE);
    const KeysEntry *alice = &r.keys.entries[0], *bob = &r.keys.entries[1];
    assert_true(alice->admin && !bob->admin);
    assert_int_equal(alice->limits.requests_per_minute, 0);
    assert_int_equal(bob->limits.requests_per_minute, 1);
    assert_int_equal(bob->limits.tokens_per_minute, 1000000000);
    assert_int_equal(bob->limits.concurrent, 3);
    free(r.memory);
    r = read_text("{\"keys\":[]}");
    assert_int_equal(r.error, OK);
    assert_int_equal(r.keys.count, 0);
    assert_int_equal(keys_find(&r.keys, "x", 1), KEYS_NONE);
    assert_int_equal(keys_find_name(&r.keys, "x"), KEYS_NONE);
    free(r.memory);
}

#define K "\"key\":\"SECRETSECRET\""
#define A "{\"name\":\"a\"," K
static const struct {
    const char *text, *says;
} malformed[] = {
    {"", "it is empty"},
    {"[]", "it must be an object"},
    {"{}", "\"keys\" must be there"},
    {"{\"keys\":{}}", "\"keys\" must be there"},
    {"{\"keys\":[],\"keys\":[]}", "the outer object: keys is none of the fields keys (once)"},
    {"{\"keys\":[],\"more\":1}", "the outer object: more is none"},
    {"{\"keys\":[\n" A "},\n\n{\"SECRETSECRET\n", "line 4: no JSON: "},
    {"{\"keys\":[" A "}", "line 1: no JSON: "},
    {"{\"keys\":[" A "}]} SECRETSECRET", "line 1: no JSON: "},
    {"{\"keys\":[1]}", "key 1 of the list must be an object"},
    {"{\"keys\":[1,2,3]}", "some of the 3 entries are no keys"},
    {"{\"keys\":[{}]}", "key 1: name must be"},
    {"{\"keys\":[\n{" K "}]}", "line 2, key 1: name must be"},
    {"{\"keys\":[{\"name\":\"\"," K "}]}", "name must be"},
    {"{\"keys\":[{\"name\":\"a b\"," K "}]}", "name must be"},
    {"{\"keys\":[{\"name\":\"a\\u0000\"," K "}]}", "name must be"},
    {"{\"keys\":[{\"name\":7," K "}]}", "name must be"},
    {"{\"keys\":[{\"name\":\"sk-SECRETSECRET\"," K "}]}", "not begin with sk-"},
    {"{\"keys\":[{\"name\":\"a\"}]}", "line 1, key 1 (a): it needs either key or sha256"},
    {"{\"keys\":[" A ",\"sha256\":\"" BOB "\"}]}", "it needs either key or sha256"},
    {"{\"keys\":[{\"name\":\"a\",\"key\":\"SECRETS\"}]}", "key must be 8 to 512 visible ASCII"},
    {"{\"keys\":[{\"name\":\"a\",\"key\":\"SECRET SECRET\"}]}", "key must be"},
    {"{\"keys\":[{\"name\":\"a\",\"key\":\"SECRETSECRET\xc3\xa9\"}]}", "key must be"},
    {"{\"keys\":[{\"name\":\"a\",\"key\":null}]}", "key must be"},
    {"{\"keys\":[{\"name\":\"a\",\"sha256\":\"SECRETSECRET\"}]}", "sha256 must be 64 hex"},
    {"{\"keys\":[" A ",\"requests_per_minute\":0}]}", "requests_per_minute must be a whole number"},
    {"{\"keys\":[" A ",\"requests_per_minute\":1000000001}]}", "from 1 to 1000000000"},
    {"{\"keys\":[" A ",\"tokens_per_minute\":-1}]}", "key 1 (a): tokens_per_minute must be"},
    {"{\"keys\":[" A ",\"tokens_per_minute\":1.5}]}", "tokens_per_minute must be"},
    {"{\"keys\":[" A ",\"concurrent\":\"SECRETSECRET\"}]}", "concurrent must be"},
    {"{\"keys\":[" A ",\"admin\":1}]}", "admin must be true or false"},
    {"{\"keys\":[" A ",\"request_per_minute\":1}]}", "request_per_minute is none of the fields"},
    {"{\"keys\":[" A ",\"SECRETSECRET\":1}]}", "key 1 (a): a field that is none of name, key"},
    {"{\"keys\":[" A ",\"admin\":true,\"admin\":false}]}", "admin stands there twice"},
    {"{\"keys\":[" A "},\n{\"name\":\"a\",\"key\":\"OTHERSECRET\"}]}",
     "line 2, key 2 (a): key 1 has the same name"},
    {"{\"keys\":[" A "},\n{\"name\":\"b\"," K "}]}", "it is the same key as key 1 (a)"},
};

static void malformed_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        Read r = read_text(malformed[i].text);
        assert_int_not_equal(r.error, OK);
        if (!strstr(r.why.text, malformed[i].says))
            fail_msg("%s: %s, not: %s", malformed[i].text, r.why.text, malformed[i].says);
        assert_null(strstr(r.why.text, "SECRET"));
        assert_false(keeps(&r, strlen(malformed[i].text), "SECRET"));
        free(r.memory);
    }
}

/* Every beginning of a good file is refused, and none is read beyond its end. */
static void cut_files(void **state)
{
    (void)state;
    const char *text =
        "{\"keys\":[" A ",\"concurrent\":12},{\"name\":\"b\",\"key\":\"abcdefgh\"}]}";
    for (size_t bytes = 0; bytes < strlen(text); bytes++) {
        char *cut = malloc(bytes ? bytes : 1);
        memcpy(cut, text, bytes);
        Read r = read_bytes(cut, bytes);
        assert_int_not_equal(r.error, OK);
        assert_null(strstr(r.why.text, "SECRET"));
        free(r.memory);
        free(cut);
    }
}

static char *many(uint32_t count)
{
    size_t room = 64 + (size_t)count * 80, used = 0;
    char *text = malloc(room);
    used += (size_t)snprintf(text, room, "{\"keys\":[");
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, room - used,
                                 "%s{\"name\":\"user-%u\",\"key\":\"key-of-user-%u\"}",
                                 i ? ",\n" : "", i, i);
    snprintf(text + used, room - used, "]}");
    return text;
}

static void ten_thousand(void **state)
{
    (void)state;
    char *text = many(KEYS_MAX), key[32];
    clock_t began = clock();
    Read r = read_text(text);
    assert_int_equal(r.error, OK);
    assert_true(clock() - began <
                CLOCKS_PER_SEC / 2); /* a server that reads them answers nobody meanwhile */
    assert_int_equal(r.keys.count, KEYS_MAX);
    for (uint32_t i = 0; i < KEYS_MAX; i += 97) {
        int n = snprintf(key, sizeof key, "key-of-user-%u", i);
        assert_int_equal(keys_find(&r.keys, key, (size_t)n), i);
        snprintf(key, sizeof key, "user-%u", i);
        assert_int_equal(keys_find_name(&r.keys, key), i);
    }
    assert_int_equal(keys_find(&r.keys, "key-of-user-10000", 17), KEYS_NONE);
    free(r.memory);
    free(text);
    text = many(KEYS_MAX + 1);
    r = read_text(text);
    assert_int_equal(r.error, ERR_TOO_LARGE);
    assert_non_null(strstr(r.why.text, "10001 keys, at most 10000"));
    free(r.memory);
    free(text);
    Why why;
    Arena none = arena_make(NULL, 0);
    Keys keys;
    assert_int_equal(keys_parse("{", KEYS_TEXT_BYTES_MAX + 1, &none, &keys, &why), ERR_TOO_LARGE);
}

static void names(void **state)
{
    (void)state;
    char name[KEYS_NAME_BYTES + 1];
    memset(name, 'x', sizeof name);
    assert_true(keys_name_is_fine(name, KEYS_NAME_BYTES - 1));
    assert_false(keys_name_is_fine(name, KEYS_NAME_BYTES));
    assert_true(keys_name_is_fine("sk", 2));
    assert_false(keys_name_is_fine("sk-", 3));
    assert_false(keys_name_is_fine("a\0", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(malformed_files),
                                       cmocka_unit_test(cut_files), cmocka_unit_test(ten_thousand),
                                       cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
