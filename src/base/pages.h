/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory reserved at open: zeroed, page aligned, on huge pages where the kernel gives them. Two reservations never
 * share a page, so a page that was never touched is not present. A reservation is an arena: it is cut into parts that
 * each begin on a cache line. A weir that processes share has
 * an owner of its parts: mappings of this process and its forks, or the mapping of a segment. Names: pages_, arena_.
 */
#ifndef WEIR_BASE_PAGES_H
#define WEIR_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* How a reservation is used. */
enum {
    PAGES_PRESENT = 1, /* all pages are present at once, so that no check stalls at the first touch of one */
    PAGES_SPARSE = 2,  /* touched seldom and here and there: small pages, each present when it is touched */
    PAGES_SHARED = 4,  /* shared with every process that is forked later; otherwise a child gets a copy */
    PAGES_LATER = 8,   /* of a segment: no page is touched before pages_commit() */
};

struct segment;

/*
 * Whose the parts of a weir are that joined processes share. NULL, where an owner is expected: each part is a mapping
 * of this process.
 */
struct pages_owner {
    unsigned use;            /* 0 or PAGES_SHARED: how each part is used */
    struct segment *segment; /* the parts lie in its mapping; NULL: each has one of its own */
    int error;               /* of the segment: why the first missing part was not to be had; 0: none is missing */
};

/* `use`: PAGES_ flags. NULL: no memory. */
void *pages_reserve(size_t size, unsigned use);

/* NULL is allowed. */
void pages_release(void *memory, size_t size);

/* The next part of an owner. NULL: no memory. */
void *pages_take(struct pages_owner *owner, size_t size, unsigned use);

/* Gives a part back; one of a segment goes with the segment. NULL is allowed. */
void pages_give(const struct pages_owner *owner, void *memory, size_t size);

/* Has pages of a PAGES_LATER part present, before they are touched. 0; -ENOSPC; -ENOMEM. */
int pages_commit(const struct pages_owner *owner, const void *at, size_t size);

/* Whether pages of a PAGES_LATER part were ever touched; true where that cannot be told. */
bool pages_have_data(const struct pages_owner *owner, const void *at, size_t size);

/* Whether parts are new and 0. Otherwise another process has filled them. */
bool pages_are_fresh(const struct pages_owner *owner);

/* Whether pages of a PAGES_LATER part have to be committed. */
bool pages_come_later(const struct pages_owner *owner);

/* The bytes of the pages that a part of `size` takes. */
size_t pages_padded(size_t size);

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
