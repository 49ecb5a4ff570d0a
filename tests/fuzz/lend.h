/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of an exact size for one input after another. malloc and free of what is larger than 256 KiB are system calls
 * under AddressSanitizer, and would be most of what a target does; here the block stays, and what lies behind the bytes
 * that are lent is forbidden, so that the first byte beyond them is still seen. */
#ifndef COBORD_TESTS_LEND_H
#define COBORD_TESTS_LEND_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEND_FORBIDS 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LEND_FORBIDS 1
#endif
#ifdef LEND_FORBIDS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { LEND_FORBIDDEN = 4096 };

typedef struct Lend {
    uint8_t *base;
    size_t room, lent;
} Lend;

/* `bytes` bytes that hold anything, until the next call. Starts as {0}. */
static inline void *lend(Lend *l, size_t bytes)
{
    if (l->base) ASAN_UNPOISON_MEMORY_REGION(l->base, l->lent + LEND_FORBIDDEN);
    if (bytes > l->room) {
        free(l->base);
        l->room = 2 * bytes;
        l->base = malloc(l->room + LEND_FORBIDDEN);
        if (!l->base) abort();
    }
    l->lent = bytes;
    ASAN_POISON_MEMORY_REGION(l->base + bytes, LEND_FORBIDDEN);
    return l->base;
}

/* What free() would be: whoever touches the bytes from here on is seen. */
static inline void lend_back(Lend *l) { ASAN_POISON_MEMORY_REGION(l->base, l->lent); }

#endif
