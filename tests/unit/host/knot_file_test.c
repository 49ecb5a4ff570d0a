/* SPDX-License-Identifier: Apache-2.0 */
/* Files on a disk: the encoder's loop, the atomic writer under a full disk and a Ctrl-C, the open
 * knot and its checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../knot/tiny_gguf.h"
#include "host/encode_file.h"
#include "host/file_guard.h"
#include "host/file_writer.h"
#include "host/knot_file.h"
#include "host/stop.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int empty_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/cobord-knot-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) count++;
    (void)closedir(d);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' || e->d_name[1] != '\0') (void)unlink(in_folder(e->d_name));
    (void)closedir(d);
    return rmdir(folder);
}

static void write_file(const char *path, const uint8_t *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static uint8_t *read_file(const char *path, size_t *count)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    FILE *f = fopen(path, "rb");
    *count = fread(bytes, 1, (size_t)st.st_size, f);
    (void)fclose(f);
    return bytes;
}

static const char *golden(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/knot/%s", COBORD_TEST_DATA, name);
    return path;
}

static void encodes_to_the_golden_bytes(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 2; version++) {
        Why why = {""};
        char name[32], source[256];
        size_t got_bytes, want_bytes;
        (void)snprintf(name, sizeof name, "tiny-v%u.knot", version);
        (void)snprintf(source, sizeof source, "%s", golden("tiny.gguf"));
        if (encode_file(source, in_folder("out.knot"), version, NULL, &why))
            fail_msg("%s", why.text);
        uint8_t *got = read_file(in_folder("out.knot"), &got_bytes),
                *want = read_file(golden(name), &want_bytes);
        assert_int_equal(got_bytes, want_bytes);
        assert_memory_equal(got, want, want_bytes);
        free(got);
        free(want);
        assert_int_equal(files_in_folder(), 1);
    }
}

static void names_what_it_cannot_open(void **state)
{
    (void)state;
    Why why = {""};
    const char *out = in_folder("out.knot");
    assert_int_equal(encode_file(in_folder("nothing.gguf"), out, 2, NULL, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "nothing.gguf"));
    assert_int_equal(encode_file(folder, out, 2, NULL, &why), ERR_FORMAT);
    assert_non_null(strstr(why.text, "a directory"));
    assert_int_equal(encode_file("/dev/null", out, 2, NULL, &why), ERR_FORMAT);
    assert_int_equal(mkfifo(in_folder("pipe.gguf"), 0600), 0);
    assert_int_equal(encode_file(in_folder("pipe.gguf"), out, 2, NULL, &why),
                     ERR_FORMAT); /* and does not wait */
    assert_int_equal(encode_file(in_folder("m-00002-of-00002.gguf"), out, 2, NULL, &why),
                     ERR_USAGE);
    char source[256];
    (void)snprintf(source, sizeof source, "%s", golden("tiny.gguf"));
    assert_int_equal(encode_file(source, folder, 2, NULL, &why), ERR_IO);
    assert_int_equal(encode_file(source, in_folder("no/such/place.knot"), 2, NULL, &why), ERR_IO);
    assert_int_equal(encode_file(source, out, 3, NULL, &why), ERR_USAGE);
    assert_int_equal(files_in_folder(), 1);
}

static void part(const char *name, uint32_t number, bool first)
{
    Tiny t;
    tiny_start(&t, 3);
    if (first) {
        tiny_hyper(&t);
        tiny_tokens(&t);
    }
    tiny_key_u32(&t, "split.no", number);
    tiny_key_u32(&t, "split.count", 2);
    if (first) tiny_tensor(&t, "token_embd.weight", BLOCK_Q8_0, 11, 32);
    if (first) tiny_layer(&t, 0, BLOCK_Q8_0, 32, 64, 16);
    if (!first) tiny_layer(&t, 1, BLOCK_Q8_0, 32, 64, 16);
    if (!first) tiny_tensor(&t, "output_norm.weight", BLOCK_F32, 0, 32);
    tiny_data(&t);
    write_file(in_folder(name), t.bytes, t.used);
    tiny_free(&t);
}

static void encodes_a_model_in_parts(void **state)
{
    (void)state;
    Why why = {""};
    KnotFile f;
    part("m-00001-of-00002.gguf", 0, true);
    assert_int_equal(
        encode_file(in_folder("m-00001-of-00002.gguf"), in_folder("m.knot"), 2, NULL, &why),
        ERR_NOT_FOUND);
    part("m-00002-of-00002.gguf", 1, false);
    if (encode_file(in_folder("m-00001-of-00002.gguf"), in_folder("m.knot"), 2, NULL, &why))
        fail_msg("%s", why.text);
    assert_int_equal(knot_file_open(in_folder("m.knot"), &f, &why), OK);
    assert_int_equal(f.knot.tensor_count, 27);
    assert_int_equal(knot_file_verify(&f, true, NULL, &why), OK);
    knot_file_close(&f);
}

/* The limit stands for a full disk: the write fails in the middle. */
static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    struct rlimit old, small;
    Why why = {""};
    char source[256];
    (void)snprintf(source, sizeof source, "%s", golden("tiny.gguf"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 20000;
    (void)signal(SIGXFSZ, SIG_IGN); /* as the program does */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    Error e = encode_file(source, in_folder("out.knot"), 2, NULL, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(e, ERR_NO_SPACE);
    assert_non_null(strstr(why.text, "out.knot"));
    assert_int_equal(files_in_folder(), 0);
}

static void more_than_the_disk_has_fails_at_once(void **state)
{
    (void)state;
    FileWriter w;
    Why why = {""};
    assert_int_equal(file_writer_open(&w, in_folder("huge"), 1ull << 60, &why), ERR_NO_SPACE);
    assert_int_equal(files_in_folder(), 0);
}

static void ctrl_c_leaves_nothing(void **state)
{
    (void)state;
    Why why = {""};
    char source[256];
    (void)snprintf(source, sizeof source, "%s", golden("tiny.gguf"));
    write_file(in_folder("out.knot"), (const uint8_t *)"before", 6);
    stop_install();
    (void)raise(SIGINT);
    assert_int_equal(encode_file(source, in_folder("out.knot"), 2, NULL, &why), ERR_CANCELLED);
    stop_clear();
    size_t count;
    uint8_t *kept = read_file(in_folder("out.knot"), &count);
    assert_int_equal(count, 6); /* the file that was there still is */
    free(kept);
    assert_int_equal(files_in_folder(), 1);
}

static void the_writer_replaces_and_abandons(void **state)
{
    (void)state;
    FileWriter w;
    Why why = {""};
    size_t count;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(file_writer_open(&w, in_folder("a"), 5, &why), OK);
        assert_int_equal(file_writer_append(&w, "hello", 5, &why), OK);
        assert_int_equal(file_writer_patch(&w, 0, "J", 1, &why), OK);
        assert_int_equal(files_in_folder(), 1 + round);
        assert_int_equal(file_writer_commit(&w, &why), OK);
        file_writer_abandon(&w); /* nothing to do */
    }
    uint8_t *bytes = read_file(in_folder("a"), &count);
    assert_memory_equal(bytes, "Jello", 5);
    free(bytes);
    assert_int_equal(file_writer_open(&w, in_folder("b"), 0, &why), OK);
    assert_int_equal(file_writer_append(&w, "hello", 5, &why), OK);
    file_writer_abandon(&w);
    assert_int_equal(files_in_folder(), 1);
}

/* --- checks --- */

static Error verify_bytes(const uint8_t *bytes, size_t count, Why *why)
{
    KnotFile f;
    why->text[0] = '\0';
    write_file(in_folder("x.knot"), bytes, count);
    TRY(knot_file_open(in_folder("x.knot"), &f, why));
    Error e = knot_file_verify(&f, true, NULL, why);
    Vocab v;
    if (e == OK && f.knot.tokenizer.bytes) e = knot_file_vocab(&f, &v, why);
    knot_file_close(&f);
    return e;
}

static void any_flipped_byte_is_found(void **state)
{
    (void)state;
    size_t count;
    Why why;
    uint8_t *bytes = read_file(golden("tiny-v2.knot"), &count);
    assert_int_equal(verify_bytes(bytes, count, &why), OK);
    for (size_t at = 0; at < count; at += at < 64 ? 1 : 211) {
        bytes[at] ^= 0x10;
        if (verify_bytes(bytes, count, &why) == OK) fail_msg("byte %zu flipped, nothing found", at);
        if (!why.text[0]) fail_msg("byte %zu: no words", at);
        bytes[at] ^= 0x10;
    }
    free(bytes);
}

static void names_the_damaged_tensor(void **state)
{
    (void)state;
    size_t count;
    Why why;
    KnotFile f;
    uint8_t *bytes = read_file(golden("tiny-v2.knot"), &count);
    assert_int_equal(knot_file_open(golden("tiny-v2.knot"), &f, &why), OK);
    for (uint32_t i = 0; i < f.knot.tensor_count; i++) {
        const KnotTensor *t = &f.knot.tensors[i];
        uint64_t at = f.knot.payload_offset + t->offset + t->bytes / 2;
        bytes[at] ^= 1;
        assert_int_equal(verify_bytes(bytes, count, &why), ERR_CHECKSUM);
        if (!strstr(why.text, t->name)) fail_msg("%s is damaged, but: %s", t->name, why.text);
        bytes[at] ^= 1;
    }
    knot_file_close(&f);
    free(bytes);
}

static void the_check_is_done_once_per_file(void **state)
{
    (void)state;
    size_t count;
    Why why = {""};
    KnotFile f;
    struct stat st;
    uint8_t *bytes = read_file(golden("tiny-v2.knot"), &count);
    const char *path = in_folder("once.knot");
    write_file(path, bytes, count);
    assert_int_equal(knot_file_open(path, &f, &why), OK);
    assert_int_equal(knot_file_verify_once(&f, path, NULL, &why), OK);
    knot_file_close(&f);
    assert_int_equal(access(in_folder("once.knot.checked"), R_OK), 0);

    /* damaged behind the clock's back: inode, size and time are the same, so the note still holds
     */
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x77", 1, 20000), 1);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(knot_file_open(path, &f, &why), OK);
    assert_int_equal(knot_file_verify_once(&f, path, NULL, &why), OK);
    assert_int_equal(knot_file_verify(&f, false, NULL, &why), ERR_CHECKSUM);
    knot_file_close(&f);

    times[1].tv_sec++;
    assert_int_equal(futimens(fd, times), 0);
    (void)close(fd);
    assert_int_equal(knot_file_open(path, &f, &why), OK);
    assert_int_equal(knot_file_verify_once(&f, path, NULL, &why), ERR_CHECKSUM);
    knot_file_close(&f);
    free(bytes);
}

static void a_change_is_noticed(void **state)
{
    (void)state;
    size_t count;
    Why why = {""};
    KnotFile f;
    uint8_t *bytes = read_file(golden("tiny-v2.knot"), &count);
    const char *path = in_folder("changed.knot");
    write_file(path, bytes, count);
    file_guard_install();
    assert_int_equal(knot_file_open(path, &f, &why), OK);
    assert_int_equal(knot_file_intact(&f, &why), OK);
    /* A user that writes into it itself does not mind; a stranger's write is a fault. */
    struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    f.grows = true;
    assert_int_equal(knot_file_intact(&f, &why), OK);
    f.grows = false;
    assert_int_equal(knot_file_intact(&f, &why), ERR_IO);
    assert_non_null(strstr(why.text, "written to"));
    knot_file_close(&f);

    /* Cut short: what was there reads as zeros, and is known to be none. */
    assert_int_equal(knot_file_open(path, &f, &why), OK);
    const volatile uint8_t *last = f.map + f.knot.file_bytes - 1;
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(*last, 0);
    assert_int_equal(truncate(path, (off_t)count), 0);
    f.grows = true;
    assert_int_equal(knot_file_intact(&f, &why), ERR_IO);
    assert_non_null(strstr(why.text, "cut short"));
    knot_file_close(&f);
    free(bytes);
}

static void opens_only_knots(void **state)
{
    (void)state;
    KnotFile f;
    Why why = {""};
    assert_int_equal(knot_file_open(golden("tiny.gguf"), &f, &why), ERR_FORMAT);
    assert_int_equal(knot_file_open(folder, &f, &why), ERR_FORMAT);
    assert_int_equal(knot_file_open("/dev/null", &f, &why), ERR_FORMAT);
    assert_int_equal(knot_file_open(in_folder("none"), &f, &why), ERR_NOT_FOUND);
    assert_int_equal(knot_file_open(golden("error-stale.knot"), &f, &why), ERR_STALE);
    assert_int_equal(knot_file_open(golden("error-cut.knot"), &f, &why), ERR_TRUNCATED);
    assert_int_equal(knot_file_open(golden("error-hole.knot"), &f, &why), ERR_RANGE);
    assert_int_equal(knot_file_open(golden("tiny-v1.knot"), &f, &why), OK);
    assert_int_equal((uintptr_t)f.map % KNOT_FILE_DROP_UNIT, 0);
    Vocab v;
    assert_int_equal(knot_file_vocab(&f, &v, &why), ERR_NOT_FOUND);
    assert_int_equal(knot_file_verify(&f, true, NULL, &why), OK);
    knot_file_close(&f);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, empty_folder, remove_folder)
    const struct CMUnitTest tests[] = {IN_FOLDER(encodes_to_the_golden_bytes),
                                       IN_FOLDER(names_what_it_cannot_open),
                                       IN_FOLDER(encodes_a_model_in_parts),
                                       IN_FOLDER(a_full_disk_leaves_nothing),
                                       IN_FOLDER(more_than_the_disk_has_fails_at_once),
                                       IN_FOLDER(ctrl_c_leaves_nothing),
                                       IN_FOLDER(the_writer_replaces_and_abandons),
                                       IN_FOLDER(any_flipped_byte_is_found),
                                       IN_FOLDER(names_the_damaged_tensor),
                                       IN_FOLDER(the_check_is_done_once_per_file),
                                       IN_FOLDER(a_change_is_noticed),
                                       IN_FOLDER(opens_only_knots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
