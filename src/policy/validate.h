/* SPDX-License-Identifier: Apache-2.0 */
/* Validates policies, from programs and from files. */
#ifndef WEIR_POLICY_VALIDATE_H
#define WEIR_POLICY_VALIDATE_H

#include "base/numbers.h"
#include "weir/weir.h"

/* The ranges of a policy's numbers. */
#define POLICY_PERIOD_MIN_NS NS_PER_MS
#define POLICY_PERIOD_MAX_NS (UINT64_C(31622400) * NS_PER_S)
#define POLICY_GRACE_MAX_MS  UINT32_C(86400000)
#define POLICY_LONG_MAX_MS   UINT32_C(2592000000)

/* The place of the fault in a malformed set, for a caller that knows where in a file that place is. */
struct policy_fault {
    size_t policy_index;
    size_t limit_index; /* SIZE_MAX: the fault is the policy's own */
    const char *field;  /* the name in weir.h: "period_ns"; static */
};

/*
 * 0, or -EINVAL with a sentence that names policy, limit, field, value and what to do. `fault` may be NULL.
 * Checks each policy, and that no name occurs twice.
 */
int validate_policies(const weir_policy *policies, size_t count, struct policy_fault *fault, weir_error *error);

#endif
