/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts as they are told to the fleet: they grow for ever, and have 53 bits (the scripts count in doubles).
 *
 * A count that gets to 2^53 begins again at 2^52, and so does a sum of counts. So one below 2^52 is what it says, and
 * any two differ by what they say modulo 2^52. (RFC 1982's serial numbers, but that 0 always means: never.) Which of
 * two is the later one is known as long as they are less than 2^51 apart.
 */
#ifndef WEIR_BASE_COUNT_H
#define WEIR_BASE_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"

#define COUNT_RESTART (UINT64_C(1) << 52)
#define COUNT_END     (UINT64_C(1) << 53)

/* How a count is told. */
static inline uint64_t count_wire(uint64_t count)
{
    return count < COUNT_END ? count : COUNT_RESTART + count % COUNT_RESTART;
}

/* What a count has grown by; 0: `now` is the earlier one, or the same. */
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
 * What others have of a sum, which `mine` is a part of. `known`: as it was before, which may be beyond 2^53, and is
 * never more than it is now; 0: not known.
 */
static inline uint64_t count_remote(uint64_t known, uint64_t sum, uint64_t mine)
{
    if (sum < COUNT_RESTART || (known == 0 && sum >= mine)) {
        return max_u64(known, saturating_sub(sum, mine));
    }
    const uint64_t more = (sum - mine - known) % COUNT_RESTART;
    return known == 0 || more < COUNT_RESTART / 2 ? known + more : known;
}

/* Whether a sum says less of the others than is known. */
static inline bool count_is_behind(uint64_t known, uint64_t sum, uint64_t mine)
{
    return sum < COUNT_RESTART ? saturating_sub(sum, mine) < known
                               : (sum - mine - known) % COUNT_RESTART >= COUNT_RESTART / 2;
}

#endif
