/* SPDX-License-Identifier: Apache-2.0 */
/* Integer arithmetic that cannot overflow. Names: min_, max_, saturating_, muldiv_. */
#ifndef WEIR_BASE_NUMBERS_H
#define WEIR_BASE_NUMBERS_H

#include <stdint.h>

/* Nanoseconds. */
#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

__extension__ typedef unsigned __int128 wide_uint;

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a + b, or the greatest number there is. */
static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a - b, or 0. */
static inline uint64_t saturating_sub(uint64_t a, uint64_t b)
{
    uint64_t difference;
    /* One subtraction: from a > b the compiler makes a second one. */
    return __builtin_sub_overflow(a, b, &difference) ? 0 : difference;
}

/* a * b, or the greatest number there is. */
static inline uint64_t saturating_mul(uint64_t a, uint64_t b)
{
    const wide_uint product = (wide_uint) a * b;
    return product > UINT64_MAX ? UINT64_MAX : (uint64_t) product;
}

/* a * b / c rounded down, or the greatest number there is; c is not 0. */
static inline uint64_t muldiv_floor(uint64_t a, uint64_t b, uint64_t c)
{
    const wide_uint quotient = (wide_uint) a * b / c;
    return quotient > UINT64_MAX ? UINT64_MAX : (uint64_t) quotient;
}

/* a * b / c rounded up, or the greatest number there is; c is not 0. */
static inline uint64_t muldiv_ceil(uint64_t a, uint64_t b, uint64_t c)
{
    const wide_uint quotient = ((wide_uint) a * b + (c - 1)) / c;
    return quotient > UINT64_MAX ? UINT64_MAX : (uint64_t) quotient;
}

#endif
