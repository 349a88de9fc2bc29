/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm, tests over each of them, and a policy "p" of one limit. */
#ifndef WEIR_TESTS_POLICIES_H
#define WEIR_TESTS_POLICIES_H

#include "support/support.h"

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET,
                                            WEIR_LEAKY_BUCKET, WEIR_SLIDING_LOG};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))
#define COUNTERS   3 /* the first so many algorithms: their records hold the demand, and they are no queues */

/* A test over the windows, and over all. The state is the element of `of`, which is in the order of `algorithms`. */
#define OVER_ONE(test, kind, element)                                                                                  \
    {                                                                                                                  \
        .name = #test "(" kind ")", .test_func = test, .initial_state = (void *) (uintptr_t) (element)                 \
    }
#define OVER_WINDOWS(test, of) OVER_ONE(test, "fixed", (of) + 0), OVER_ONE(test, "sliding", (of) + 1)
#define OVER_ALL(test, of)                                                                                             \
    OVER_WINDOWS(test, of), OVER_ONE(test, "token", (of) + 2), OVER_ONE(test, "leaky", (of) + 3),                      \
        OVER_ONE(test, "log", (of) + 4)

/* The period is so long that nothing refills, and no unit leaves its window. A queue lets its burst pass at once. */
static inline weir_limit limit_of(weir_algorithm algorithm, uint64_t limit)
{
    const uint64_t delay = algorithm == WEIR_LEAKY_BUCKET ? limit : 0;
    return (weir_limit){.algorithm = algorithm, .limit = limit, .period_ns = 24 * HOUR, .delay = delay};
}

/* Half a second without a good round is an outage. */
static inline weir_policy policy_of(const weir_limit *limit)
{
    return (weir_policy){.name = "p", .limits = limit, .limit_count = 1, .outage_grace_ms = 500};
}

/* No outage mode holds while a test runs: the grace is a minute. */
static inline weir_policy patient_policy_of(const weir_limit *limit)
{
    weir_policy policy = policy_of(limit);
    policy.outage_grace_ms = 60000;
    return policy;
}

#endif
