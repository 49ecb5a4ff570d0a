/* SPDX-License-Identifier: Apache-2.0 */
/* Processor and memory facts, against the kernel's own words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/cgroup.h"
#include "host/cpu.h"
#include "host/memory.h"
#include "host/places.h"

/* Whether /proc/cpuinfo lists a flag; -1 when there is no such file or no flags (other
 * architectures). */
static int kernel_flag(const char *flag)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return -1;
    static char line[16384];
    int found = -1;
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, " %s ", flag);
    while (found < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        line[strcspn(line, "\n")] = ' ';
        found = strstr(line, wanted) != NULL;
    }
    fclose(file);
    return found;
}

static void instruction_sets_match_the_kernel(void **state)
{
    (void)state;
    assert_true(cpu_has(ISA_SCALAR));
    assert_false(cpu_has(ISA_SIMD128));
    int avx2 = kernel_flag("avx2"), vnni = kernel_flag("avx512_vnni"), bw = kernel_flag("avx512bw");
    if (avx2 < 0) skip();
    assert_int_equal(cpu_has(ISA_AVX2), avx2 && kernel_flag("f16c"));
    assert_int_equal(cpu_has(ISA_AVXVNNI), avx2 && kernel_flag("f16c") && kernel_flag("avx_vnni"));
    assert_int_equal(cpu_has(ISA_AVX512),
                     avx2 && vnni && bw && kernel_flag("avx512vl") && kernel_flag("avx512dq"));
    assert_true(cpu_has(cpu_best()));
}

static void cores_follow_affinity(void **state)
{
    (void)state;
    uint32_t cores = cpu_cores();
    assert_true(cores >= 1);
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &old)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cpu_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
    assert_int_equal(cpu_cores(), cores);
}

static void memory_is_counted(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20 };
    uint64_t before = memory_resident();
    assert_true(before > 0 && memory_peak() >= before);
    assert_true(memory_available() > 0);
    assert_true(memory_allowed() > 0 && memory_allowed() <= memory_limit());
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 1, BYTES);
    uint64_t during = memory_resident(), peak = memory_peak();
    munmap(p, BYTES);
    assert_true(during >= before + BYTES * 9 / 10);
    assert_true(peak >= during * 9 / 10);
    assert_true(memory_resident() < during - BYTES / 2);
    assert_true(memory_peak() >= peak * 9 / 10);
}

static char directory[] = "/tmp/cobord-cgroup-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void limits_are_read(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(directory));
    write_file("memory.max", "134217728\n");
    write_file("none", "max\n");
    write_file("minus", "-1\n");
    assert_int_equal(cgroup_number(directory, "memory.max"), 134217728);
    assert_int_equal(cgroup_number(directory, "none"), UINT64_MAX);
    assert_int_equal(cgroup_number(directory, "minus"), UINT64_MAX);
    assert_int_equal(cgroup_number(directory, "absent"), UINT64_MAX);
    places_remove(directory);
}

static unsigned seen_directories;
static uint64_t see(const char *path, int version)
{
    (void)version;
    if (access(path, F_OK) == 0) seen_directories++;
    return 5 + seen_directories;
}

static void groups_are_found(void **state)
{
    (void)state;
    if (access("/sys/fs/cgroup", F_OK) != 0) skip();
    uint64_t least = cgroup_least("memory", see);
    if (seen_directories) assert_int_equal(least, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_sets_match_the_kernel),
        cmocka_unit_test(cores_follow_affinity),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(limits_are_read),
        cmocka_unit_test(groups_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
