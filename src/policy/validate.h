/* SPDX-License-Identifier: Apache-2.0 */
/* What a well-formed policy is; one place for policies from programs and from files. */
#ifndef WEIR_POLICY_VALIDATE_H
#define WEIR_POLICY_VALIDATE_H

#include "weir/weir.h"

/* Where a malformed set is malformed, for callers who know more of where it came from. */
struct policy_fault {
    size_t policy_index;
    size_t limit_index; /* SIZE_MAX: the fault is the policy's own */
    const char *field;  /* the name in weir.h: "period_ns"; static */
};

/*
 * 0, or -EINVAL with a sentence that names policy, limit, field, value and what to do. `fault` may be NULL.
 * Checks each policy, and that no name occurs twice.
 */
int policy_validate(const weir_policy *policies, size_t count, struct policy_fault *fault, weir_error *error);

#endif
