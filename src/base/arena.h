/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of one reservation: each part begins on a cache line of its own. */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include <stddef.h>

#include "base/compiler.h"

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
