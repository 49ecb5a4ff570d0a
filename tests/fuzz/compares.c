/* SPDX-License-Identifier: Apache-2.0 */
/* What libFuzzer hears of comparisons. It remembers the values of those of 4 and 8 bytes, to put them into inputs;
 * narrower ones count for nothing without -use_value_profile=1, which no target asks for. Of those of 8 bytes most are
 * UndefinedBehaviorSanitizer's own, about pointers: they were up to half of what a target did, and in the memory of
 * libFuzzer they left no room for the format's numbers. Here they end. The linker puts these functions in front of
 * libFuzzer's (--wrap); a tail call leaves it the caller's address. Built without sanitizers. */
#include <stdbool.h>
#include <stdint.h>

void __real___sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b);
void __real___sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b);
void __wrap___sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b);
void __wrap___sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b);
void __wrap___sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b);
void __wrap___sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b);
void __wrap___sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b);
void __wrap___sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b);

/* 2^44 .. 2^47: the program, its stacks and AddressSanitizer's heap. */
static inline bool is_address(uint64_t n) { return n - (1ull << 44) < (1ull << 47) - (1ull << 44); }

void __wrap___sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b) { (void)a, (void)b; }
void __wrap___sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b) { (void)a, (void)b; }
void __wrap___sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b) { (void)a, (void)b; }
void __wrap___sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b) { (void)a, (void)b; }

void __wrap___sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b)
{
    if (!(is_address(a) && is_address(b))) __real___sanitizer_cov_trace_cmp8(a, b);
}

/* 0 is asked of every pointer and of what an alignment leaves of it. That a number may be 0 libFuzzer tries anyway. */
void __wrap___sanitizer_cov_trace_const_cmp8(uint64_t constant, uint64_t b)
{
    if (constant && !is_address(b)) __real___sanitizer_cov_trace_const_cmp8(constant, b);
}
