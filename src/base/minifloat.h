/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number below 2^44 in 19 bits: below 2^14 it is itself; else 14 bits behind its leading one, and above them by how
 * many bits it was shifted, and 1. What is cut off is never more than it is.
 */
#ifndef WEIR_BASE_MINIFLOAT_H
#define WEIR_BASE_MINIFLOAT_H

#include <stdint.h>

#define SHORT_FORM_BITS 19

#define SHORT_FORM_EXACT 14 /* bits */
#define SHORT_FORM_ONE   (UINT64_C(1) << SHORT_FORM_EXACT)

static inline uint64_t short_form(uint64_t number)
{
    if (number < SHORT_FORM_ONE) {
        return number;
    }
    const unsigned shift = 63 - (unsigned) __builtin_clzll(number) - SHORT_FORM_EXACT;
    return (uint64_t) (shift + 1) << SHORT_FORM_EXACT | ((number >> shift) & (SHORT_FORM_ONE - 1));
}

/* What a number was at least. Bits above the form are not looked at. */
static inline uint64_t short_form_value(uint64_t form)
{
    form &= (UINT64_C(1) << SHORT_FORM_BITS) - 1;
    const uint64_t shifted = form >> SHORT_FORM_EXACT;
    return shifted == 0 ? form : ((form & (SHORT_FORM_ONE - 1)) | SHORT_FORM_ONE) << (shifted - 1);
}

#endif
