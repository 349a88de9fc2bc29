/* SPDX-License-Identifier: Apache-2.0 */
/* Validates policies, from programs and from files. */
#ifndef WEIR_POLICY_VALIDATE_H
#define WEIR_POLICY_VALIDATE_H

#include <stdbool.h>

#include "base/numbers.h"
#include "weir/weir.h"

/* The ranges of periods, of outage_grace_ms and of long_outage_ms. */
#define POLICY_PERIOD_MIN_NS NS_PER_MS
#define POLICY_PERIOD_MAX_NS (UINT64_C(31622400) * NS_PER_S)
#define POLICY_GRACE_MAX_MS  UINT32_C(86400000)
#define POLICY_LONG_MAX_MS   UINT32_C(2592000000)

/* The place of the first fault in a set of policies, from which a caller finds the line of a file. */
struct policy_fault {
    size_t policy_index;
    size_t limit_index; /* SIZE_MAX: the fault is the policy's own */
    const char *field;  /* its name in weir.h, such as "period_ns"; a string literal */
};

/* Whether a policy can have this name, of which WEIR_MAX_NAME + 1 bytes may be read. */
bool validate_name(const char *name);

/*
 * Validates each policy, and that no two have one name. 0, or -EINVAL with a sentence that names the policy, the limit,
 * the field, its value and what to do. `fault` may be NULL.
 */
int validate_policies(const weir_policy *policies, size_t count, struct policy_fault *fault, weir_error *error);

#endif
