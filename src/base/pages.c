/* SPDX-License-Identifier: Apache-2.0 */
/* See pages.h. */
#include "base/pages.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes from which huge pages are worth their memory: smaller reservations have few address translations to miss. */
#define HUGE_FROM ((size_t) 4 << 20)
#define HUGE_SIZE ((size_t) 2 << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* headers older than the kernel */
#endif

/* Writes to every page, where the kernel (before Linux 5.14) cannot populate them in one call. */
static void touch(unsigned char *memory, size_t size)
{
    for (size_t at = 0; at < size; at += 4096) {
        ((_Atomic unsigned char *) memory)[at] = 0; /* atomic, so that it is not optimised away */
    }
}

static void *map(size_t size, unsigned use)
{
    const int sharing = (use & PAGES_SHARED) != 0 ? MAP_SHARED : MAP_PRIVATE;
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    return memory;
}

/*
 * Begins at a huge page; the remainder at the end is on small pages. Otherwise the kernel would, some minutes later,
 * make one huge page of the end of a mapping and the beginning of the next, and untouched memory would become present.
 */
static void *map_huge(size_t size, unsigned use)
{
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    const size_t pages = (size + page - 1) / page * page;
    unsigned char *all = map(pages + HUGE_SIZE, use);
    if (all == NULL) {
        return NULL;
    }
    const size_t before = (HUGE_SIZE - (uintptr_t) all % HUGE_SIZE) % HUGE_SIZE;
    unsigned char *memory = all + before;
    if ((before != 0 && munmap(all, before) != 0) || munmap(memory + pages, HUGE_SIZE - before) != 0) {
        /* cppcheck-suppress doubleFree ; as much of it as is there */
        (void) munmap(all, pages + HUGE_SIZE);
        return NULL;
    }
    const size_t huge = size / HUGE_SIZE * HUGE_SIZE;
    /* Without them the table is slower, not wrong: so failures are ignored. */
    (void) madvise(memory, huge, MADV_HUGEPAGE);
    if (huge != pages) {
        (void) madvise(memory + huge, pages - huge, MADV_NOHUGEPAGE);
    }
    return memory;
}

static void *map_small(size_t size, unsigned use)
{
    void *memory = map(size, use);
    if (memory != NULL) {
        (void) madvise(memory, size, MADV_NOHUGEPAGE); /* a failure costs memory alone */
    }
    return memory;
}

void *pages_reserve(size_t size, unsigned use)
{
    const bool small = (use & PAGES_SPARSE) != 0 || size < HUGE_FROM;
    void *memory = small ? map_small(size, use) : map_huge(size, use);
    if (memory == NULL) {
        return NULL;
    }
    if ((use & PAGES_PRESENT) != 0 && madvise(memory, size, MADV_POPULATE_WRITE) != 0) {
        touch(memory, size);
    }
    return memory;
}

void pages_release(void *memory, size_t size)
{
    if (memory != NULL) {
        (void) munmap(memory, size);
    }
}
