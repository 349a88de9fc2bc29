/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number below 2^44 in 19 bits: below 2^14 it is itself; else 14 bits behind its leading one, and above them by how
 * many bits it was shifted, and 1. What is cut off is never more than it is.
 */
#ifndef WEIR_BASE_MINIFLOAT_H
#define WEIR_BASE_MINIFLOAT_H

#include <stdint.h>

#define MINIFLOAT_BITS 19

#define MINIFLOAT_EXACT 14 /* bits */
#define MINIFLOAT_ONE   (UINT64_C(1) << MINIFLOAT_EXACT)

static inline uint64_t minifloat_encode(uint64_t number)
{
    if (number < MINIFLOAT_ONE) {
        return number;
    }
    const unsigned shift = 63 - (unsigned) __builtin_clzll(number) - MINIFLOAT_EXACT;
    return (uint64_t) (shift + 1) << MINIFLOAT_EXACT | ((number >> shift) & (MINIFLOAT_ONE - 1));
}

/* What a number was at least. Bits above the form are not looked at. */
static inline uint64_t minifloat_decode(uint64_t form)
{
    form &= (UINT64_C(1) << MINIFLOAT_BITS) - 1;
    const uint64_t shifted = form >> MINIFLOAT_EXACT;
    return shifted == 0 ? form : ((form & (MINIFLOAT_ONE - 1)) | MINIFLOAT_ONE) << (shifted - 1);
}

#endif
