/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts as they are reported: they grow for ever, and have 53 bits, as the scripts in Redis count in doubles.
 *
 * A count that reaches 2^53 goes on from 2^52, and so does a sum of counts. So a count below 2^52 is exact, and any two
 * counts differ by their difference modulo 2^52 (RFC 1982's serial numbers, except that 0 always means: never). Which
 * of two counts is the later one is known while they are less than 2^51 apart.
 */
#ifndef WEIR_BASE_COUNT_H
#define WEIR_BASE_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"

/* The first count that is not exact, and the first that a double cannot hold exactly. */
#define COUNT_RESTART (UINT64_C(1) << 52)
#define COUNT_END     (UINT64_C(1) << 53)

/* A count as it is reported. */
static inline uint64_t count_wire(uint64_t count)
{
    return count < COUNT_END ? count : COUNT_RESTART + count % COUNT_RESTART;
}

/* The growth of a count; 0: `now` is not later than `was`. */
static inline uint64_t count_growth(uint64_t was, uint64_t now)
{
    if (was < COUNT_RESTART || now < COUNT_RESTART) {
        return saturating_sub(now, was);
    }
    const uint64_t more = (now - was) % COUNT_RESTART;
    return more < COUNT_RESTART / 2 ? more : 0;
}

static inline uint64_t count_add(uint64_t count, uint64_t more)
{
    return more < COUNT_END - min_u64(count, COUNT_END)
               ? count + more
               : COUNT_RESTART + (count % COUNT_RESTART + more % COUNT_RESTART) % COUNT_RESTART;
}

/*
 * The remote part of a sum, of which `local` is the other part. `known`: the remote part seen before, which never
 * decreases and may be beyond 2^53; 0: not known.
 */
static inline uint64_t count_remote(uint64_t known, uint64_t sum, uint64_t local)
{
    if (sum < COUNT_RESTART || (known == 0 && sum >= local)) {
        return max_u64(known, saturating_sub(sum, local));
    }
    const uint64_t more = (sum - local - known) % COUNT_RESTART;
    return known == 0 || more < COUNT_RESTART / 2 ? known + more : known;
}

/* Whether a sum has fewer remote units than are known. */
static inline bool count_is_behind(uint64_t known, uint64_t sum, uint64_t local)
{
    return sum < COUNT_RESTART ? saturating_sub(sum, local) < known
                               : (sum - local - known) % COUNT_RESTART >= COUNT_RESTART / 2;
}

#endif
