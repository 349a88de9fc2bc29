/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <sys/mman.h>

/* Below this, a huge page would cost more memory than the fewer misses are worth. */
#define HUGE_FROM ((size_t) 4 << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* headers older than the kernel */
#endif

/* Where the kernel (before Linux 5.14) cannot do it in one call: writes to every page. */
static void touch(unsigned char *memory, size_t size)
{
    for (size_t at = 0; at < size; at += 4096) {
        ((_Atomic unsigned char *) memory)[at] = 0; /* atomic, so that it is not optimised away */
    }
}

static void *map(size_t size)
{
    /* cppcheck-suppress invalidFunctionArg ; -1 is what an anonymous mapping takes */
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    return memory;
}

void *memory_reserve(size_t size, bool present)
{
    void *memory = map(size);
    if (memory == NULL) {
        return NULL;
    }
    if (size >= HUGE_FROM) {
        (void) madvise(memory, size, MADV_HUGEPAGE); /* a wish: without it the table is slower, not wrong */
    }
    if (present && madvise(memory, size, MADV_POPULATE_WRITE) != 0) {
        touch(memory, size);
    }
    return memory;
}

void *memory_reserve_sparse(size_t size)
{
    void *memory = map(size);
    if (memory != NULL) {
        (void) madvise(memory, size, MADV_NOHUGEPAGE); /* a wish, too */
    }
    return memory;
}

void memory_release(void *memory, size_t size)
{
    if (memory != NULL) {
        (void) munmap(memory, size);
    }
}
