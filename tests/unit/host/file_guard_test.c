/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: cmocka.h needs these first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/file_guard.h"

enum { PAGE = 4096, PAGES = 600, THREADS = 4 };

static int file_of_sevens(void)
{
    char path[] = "/tmp/file_guard.XXXXXX", page[PAGE];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < PAGE; i++) page[i] = 7;
    for (int i = 0; i < PAGES; i++) assert_int_equal(write(fd, page, PAGE), PAGE);
    return fd;
}

static const volatile uint8_t *map_of(int fd)
{
    void *map = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

static uint64_t sum(const volatile uint8_t *map)
{
    uint64_t total = 0;
    for (int i = 0; i < PAGES; i++) total += map[i * PAGE];
    return total;
}

static void what_is_cut_off_reads_as_zeros(void **state)
{
    (void)state;
    file_guard_install(); /* cmocka takes SIGBUS for itself */
    int fd = file_of_sevens();
    const volatile uint8_t *map = map_of(fd);
    int guard = file_guard_add((const void *)map, (size_t)PAGES * PAGE, fd);
    assert_true(guard >= 0);
    assert_int_equal(sum(map), 7 * PAGES);
    assert_false(file_guard_lost(guard));
    assert_int_equal(ftruncate(fd, 100 * PAGE), 0);
    assert_int_equal(sum(map), 7 * 100);
    assert_true(file_guard_lost(guard));
    file_guard_remove(guard);
    /* The next one in the same place starts anew. */
    guard = file_guard_add((const void *)map, (size_t)PAGES * PAGE, fd);
    assert_false(file_guard_lost(guard));
    file_guard_remove(guard);
    assert_int_equal(munmap((void *)(uintptr_t)map, (size_t)PAGES * PAGE), 0);
    assert_int_equal(close(fd), 0);
}

static void *read_all(void *map) { return (void *)(uintptr_t)sum(map); }

static void threads_meet_it_at_once(void **state)
{
    (void)state;
    file_guard_install(); /* cmocka takes SIGBUS for itself */
    pthread_t threads[THREADS];
    int fd = file_of_sevens();
    const volatile uint8_t *map = map_of(fd);
    int guard = file_guard_add((const void *)map, (size_t)PAGES * PAGE, fd);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, (void *)(uintptr_t)map), 0);
    for (int i = 0; i < THREADS; i++) {
        void *total;
        assert_int_equal(pthread_join(threads[i], &total), 0);
        assert_int_equal((uintptr_t)total, 7);
    }
    assert_true(file_guard_lost(guard));
    file_guard_remove(guard);
    assert_int_equal(munmap((void *)(uintptr_t)map, (size_t)PAGES * PAGE), 0);
    assert_int_equal(close(fd), 0);
}

static void places_are_limited(void **state)
{
    (void)state;
    static uint8_t some[FILE_GUARD_RANGES_MAX + 1];
    int guards[FILE_GUARD_RANGES_MAX];
    for (int i = 0; i < FILE_GUARD_RANGES_MAX; i++) {
        guards[i] = file_guard_add(some + i, 1, 0);
        assert_true(guards[i] >= 0);
    }
    int over = file_guard_add(some + FILE_GUARD_RANGES_MAX, 1, 0);
    assert_int_equal(over, FILE_GUARD_NONE);
    assert_false(file_guard_lost(over));
    file_guard_remove(over);
    for (int i = 0; i < FILE_GUARD_RANGES_MAX; i++) file_guard_remove(guards[i]);
}

/* Others' mappings, and a signal that somebody sends: as if there were no guard. */
static void what_is_not_guarded_ends_the_process(void **state)
{
    (void)state;
    file_guard_install(); /* cmocka takes SIGBUS for itself */
    for (int sent = 0; sent < 2; sent++) {
        int fd = file_of_sevens(), status;
        const volatile uint8_t *map = map_of(fd);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            if (sent) (void)raise(SIGBUS), (void)raise(SIGBUS);
            else _exit(ftruncate(fd, PAGE) == 0 ? (int)sum(map) : 1);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
        assert_int_equal(munmap((void *)(uintptr_t)map, (size_t)PAGES * PAGE), 0);
        assert_int_equal(close(fd), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_cut_off_reads_as_zeros),
        cmocka_unit_test(threads_meet_it_at_once),
        cmocka_unit_test(places_are_limited),
        cmocka_unit_test(what_is_not_guarded_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
