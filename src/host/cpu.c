/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cgroup.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>

enum { CPU_STATE_AVX = 0x6, CPU_STATE_AVX512 = 0xe6 }; /* XCR0: xmm+ymm; and opmask, zmm halves */

/* XCR0 says which registers the operating system saves; 0 when it does not use XSAVE at all. */
static uint32_t cpu_saved_state(uint32_t leaf1_ecx)
{
    if (!(leaf1_ecx & bit_OSXSAVE)) return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Leaf 7 answers a first part only where its part 0 says that there is one. */
static bool cpu_has_avxvnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    uint32_t parts, a, b, c, d;
    return __get_cpuid_count(7, 0, &parts, &b, &c, &d) && parts >= 1 &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}

static bool cpu_has_x86(Isa isa)
{
    uint32_t a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return false;
    uint32_t state = cpu_saved_state(c);
    bool avx2 = (state & CPU_STATE_AVX) == CPU_STATE_AVX && (c & bit_AVX) && (c & bit_F16C) &&
                (b7 & bit_AVX2);
    if (isa == ISA_AVX2) return avx2;
    if (isa == ISA_AVXVNNI) return avx2 && cpu_has_avxvnni();
    uint32_t wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    return isa == ISA_AVX512 && avx2 && (state & CPU_STATE_AVX512) == CPU_STATE_AVX512 &&
           (b7 & wanted) == wanted && (c7 & bit_AVX512VNNI);
}
#else
static bool cpu_has_x86(Isa isa)
{
    (void)isa;
    return false;
}
#endif

#if defined(__aarch64__)
static bool cpu_has_arm(Isa isa)
{
    bool dot = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
    if (isa == ISA_I8MM) return dot && getauxval(AT_HWCAP2) & HWCAP2_I8MM;
    return dot;
}
#else
static bool cpu_has_arm(Isa isa)
{
    (void)isa;
    return false;
}
#endif

bool cpu_has(Isa isa)
{
    switch (isa) {
    case ISA_SCALAR: return true;
    case ISA_AVX2:
    case ISA_AVXVNNI:
    case ISA_AVX512: return cpu_has_x86(isa);
    case ISA_NEON:
    case ISA_I8MM: return cpu_has_arm(isa);
    case ISA_SIMD128:
    case ISA_RELAXED:
    case ISAS: return false;
    }
    return false;
}

Isa cpu_best(void)
{
    static const Isa order[] = {ISA_AVX512, ISA_AVXVNNI, ISA_AVX2, ISA_I8MM, ISA_NEON};
    for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++)
        if (cpu_has(order[i]) && kernels_for(order[i])) return order[i];
    return ISA_SCALAR;
}

/* The quota of one group in whole processors, rounded up. */
static uint64_t cpu_quota(const char *directory, int version)
{
    uint64_t quota = UINT64_MAX, period = 100000;
    if (version == 1) {
        quota = cgroup_number(directory, "cpu.cfs_quota_us"); /* -1: none */
        period = cgroup_number(directory, "cpu.cfs_period_us");
    } else {
        char text[64];
        if (!cgroup_text(directory, "cpu.max", text, sizeof text) || text[0] == 'm')
            return UINT64_MAX;
        char *end;
        quota = strtoull(text, &end, 10);
        if (*end == ' ') period = strtoull(end, NULL, 10);
    }
    if (quota == UINT64_MAX || period == 0 || period == UINT64_MAX) return UINT64_MAX;
    return quota / period + (quota % period != 0);
}

static uint64_t cpu_affinity(void)
{
    /* A set for 1,024 processors is refused on larger machines: ask with a larger one. */
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return (uint64_t)count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint64_t)online : 1;
}

uint32_t cpu_cores(void)
{
    uint64_t cores = cpu_affinity(), quota = cgroup_least("cpu", cpu_quota);
    if (quota < cores) cores = quota;
    if (cores == 0) cores = 1;
    return cores > UINT32_MAX ? UINT32_MAX : (uint32_t)cores;
}
