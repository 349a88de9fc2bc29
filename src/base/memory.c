/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <sys/mman.h>

/* Below this, a huge page would cost more memory than the fewer misses are worth. */
#define HUGE_FROM ((size_t) 4 << 20)

void *memory_reserve(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (size >= HUGE_FROM) {
        (void) madvise(memory, size, MADV_HUGEPAGE); /* a wish: without it the table is slower, not wrong */
    }
    return memory;
}

void memory_release(void *memory, size_t size)
{
    if (memory != NULL) {
        (void) munmap(memory, size);
    }
}
