/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory reserved at open: zeroed, page aligned, on huge pages where the kernel gives them. Two reservations never
 * share a page, so a page that was never touched is not present. A reservation is an arena: it is cut into parts that
 * each begin on a cache line. Names: pages_, arena_.
 */
#ifndef WEIR_BASE_PAGES_H
#define WEIR_BASE_PAGES_H

#include <stddef.h>

#include "base/compiler.h"

/* How a reservation is used. */
enum {
    PAGES_PRESENT = 1, /* all pages are present at once, so that no check stalls at the first touch of one */
    PAGES_SPARSE = 2,  /* touched seldom and here and there: small pages, each present when it is touched */
    PAGES_SHARED = 4,  /* shared with every process that is forked later; otherwise a child gets a copy */
};

/* `use`: PAGES_ flags. NULL: no memory. */
void *pages_reserve(size_t size, unsigned use);

/* NULL is allowed. */
void pages_release(void *memory, size_t size);

/* The bytes that a part of `size` takes. */
static inline size_t arena_padded(size_t size)
{
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* The part of `size` bytes at *next; moves *next behind the part. */
static inline void *arena_carve(unsigned char **next, size_t size)
{
    void *here = *next;
    *next += arena_padded(size);
    return here;
}

#endif
