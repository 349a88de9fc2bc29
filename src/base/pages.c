/* SPDX-License-Identifier: Apache-2.0 */
/* See pages.h. */
#include "base/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory/segment.h"

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
    const size_t pages = pages_padded(size);
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

size_t pages_padded(size_t size)
{
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

void pages_release(void *memory, size_t size)
{
    if (memory != NULL) {
        (void) munmap(memory, size);
    }
}

/* Has all pages of a fresh part present. */
static int fill_part(const struct pages_owner *owner, void *part, size_t size, unsigned use)
{
    /* A part without its pages makes the call fail, and raises no signal. Before Linux 5.14 there is no such call. */
    if ((use & PAGES_PRESENT) != 0 && madvise(part, size, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    return segment_commit(owner->segment, part, size);
}

static void *take_of_segment(struct pages_owner *owner, size_t size, unsigned use)
{
    const bool huge = (use & (PAGES_SPARSE | PAGES_LATER)) == 0 && size >= HUGE_FROM;
    void *part = segment_take(owner->segment, size, huge);
    int result = part != NULL ? 0 : -ENOMEM;
    if (part != NULL && huge) {
        (void) madvise(part, size / HUGE_SIZE * HUGE_SIZE, MADV_HUGEPAGE); /* without them the table is slower */
    }
    if (part != NULL && owner->segment->fresh && (use & PAGES_LATER) == 0) {
        result = fill_part(owner, part, size, use);
    } else if (part != NULL && (use & PAGES_PRESENT) != 0) {
        (void) madvise(part, size, MADV_POPULATE_WRITE); /* so that no check has to look for the pages */
    }
    owner->error = owner->error != 0 ? owner->error : result;
    return result == 0 ? part : NULL;
}

void *pages_take(struct pages_owner *owner, size_t size, unsigned use)
{
    if (owner != NULL && owner->segment != NULL) {
        return take_of_segment(owner, size, use);
    }
    return pages_reserve(size, use | (owner != NULL ? owner->use : 0));
}

void pages_give(const struct pages_owner *owner, void *memory, size_t size)
{
    if (!pages_come_later(owner)) {
        pages_release(memory, size);
    }
}

int pages_commit(const struct pages_owner *owner, const void *at, size_t size)
{
    return pages_come_later(owner) ? segment_commit(owner->segment, at, size) : 0;
}

bool pages_have_data(const struct pages_owner *owner, const void *at, size_t size)
{
    return !pages_come_later(owner) || segment_has_data(owner->segment, at, size);
}

bool pages_are_fresh(const struct pages_owner *owner)
{
    return owner == NULL || owner->segment == NULL || owner->segment->fresh;
}

bool pages_come_later(const struct pages_owner *owner)
{
    return owner != NULL && owner->segment != NULL;
}
