/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References between parts of one mapping: the distance from the reference to what it names. Such a reference holds in
 * every process that has the mapping, at whatever address the mapping lies there. A copy of a reference names nothing.
 */
#ifndef WEIR_BASE_REFERENCE_H
#define WEIR_BASE_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"

struct reference {
    _Atomic uint64_t distance; /* bytes, modulo 2^64; 0: names nothing */
};

/* NULL: names nothing. Acquire: what was written before reference_set() is seen. */
static inline void *reference_get(const struct reference *reference)
{
    const uint64_t distance = load_acquire(&reference->distance); /* pairs with reference_set() */
    uintptr_t at = (uintptr_t) reference + (uintptr_t) distance;
    __asm__("" : "+r"(at)); /* the compiler must not take it for an address within the reference's object */
    return distance != 0 ? (void *) at : NULL;
}

/* `to`: NULL: nothing. Never the reference itself. */
static inline void reference_set(struct reference *reference, const void *to)
{
    const uint64_t distance = to != NULL ? (uintptr_t) to - (uintptr_t) reference : 0;
    store_release(&reference->distance, distance); /* pairs with reference_get() */
}

#endif
