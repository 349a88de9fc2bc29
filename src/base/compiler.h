/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints to the compiler, what it takes for granted, properties of the build, and the machine's numbers. Names: likely,
 * unlikely, prefetch_line, bool_of_byte.
 */
#ifndef WEIR_BASE_COMPILER_H
#define WEIR_BASE_COMPILER_H

#include <stdbool.h>

/* Bytes. What different threads write lies on different cache lines. */
#define CACHE_LINE 64

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Prefetches the cache line of an address, valid or not, which is about to be written.
 *
 * gcc 12 takes a function that does nothing but __builtin_prefetch for one without an effect, and drops the calls of
 * it. The empty assembly is an effect, as all assembly without outputs. So the builtin is used here alone.
 */
#define prefetch_line(address)                                                                                         \
    do {                                                                                                               \
        __builtin_prefetch((address), 1);                                                                              \
        __asm__("");                                                                                                   \
    } while (0)

/* A bool in memory that may be damaged, where a byte may be neither 0 nor 1: any but 0 is true. */
static inline bool bool_of_byte(const bool *byte)
{
    return *(const unsigned char *) byte != 0;
}

/* A switch, set in a build under ThreadSanitizer, which sees no ordering in assembly: gcc and clang tell of it
 * differently.
 */
#if defined(__SANITIZE_THREAD__)
#define COMPILER_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COMPILER_THREAD_SANITIZER
#endif
#endif

#endif
