/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers below 2^44 in 19 bits, rounded down. A number below 2^14 is stored exactly. Of a greater one the 14 bits
 * behind the leading bit are stored, below the number of bits that were cut off, plus 1.
 */
#ifndef WEIR_BASE_MINIFLOAT_H
#define WEIR_BASE_MINIFLOAT_H

#include <stdint.h>

#define MINIFLOAT_BITS  19 /* of a form: fits above the 44 bits of a count */
#define MINIFLOAT_EXACT 14 /* bits kept: an error below 1 in 16,384 */
#define MINIFLOAT_ONE   (UINT64_C(1) << MINIFLOAT_EXACT)

static inline uint64_t minifloat_encode(uint64_t number)
{
    if (number < MINIFLOAT_ONE) {
        return number;
    }
    const unsigned shift = 63 - (unsigned) __builtin_clzll(number) - MINIFLOAT_EXACT;
    return (uint64_t) (shift + 1) << MINIFLOAT_EXACT | ((number >> shift) & (MINIFLOAT_ONE - 1));
}

/* The least number of this form. Bits above the form are ignored. */
static inline uint64_t minifloat_decode(uint64_t form)
{
    form &= (UINT64_C(1) << MINIFLOAT_BITS) - 1;
    const uint64_t shifted = form >> MINIFLOAT_EXACT;
    return shifted == 0 ? form : ((form & (MINIFLOAT_ONE - 1)) | MINIFLOAT_ONE) << (shifted - 1);
}

#endif
