/* SPDX-License-Identifier: Apache-2.0 */
/* What a denial says: which limit will be the last to let the request pass, and when. */
#ifndef WEIR_CHECK_DENIAL_H
#define WEIR_CHECK_DENIAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/probe.h"
#include "check/request.h"
#include "policy/policy.h"

/* The denial of one claim alone, as its limits were read. */
void denial_of_claim(const struct request *r, const struct claim *claim, struct decision *out);

/* The earliest wait after which one limit of a claim has room, as the limit was read. UINT64_MAX: never. */
uint64_t denial_retry_after(const struct request *r, const struct claim *claim, size_t limit);

/* Notes a denial that is final: in the cells that refused, in the statistics, and for a tracer. */
void denial_note(const struct request *r);

/* Tells a tracer of a denied request of one key. Called where probe_is_traced(deny). */
void denial_trace(const struct policy *policy, const weir_key *key, uint64_t cost, size_t limit_index,
                  uint64_t retry_after_ns);
/* As denial_trace(), of a key that has an entry of its own, where the entry denies. `commit`: it is no weir_peek. */
static inline void denial_trace_entry(bool commit, const struct policy *policy, const weir_key *key, uint64_t cost)
{
    if (probe_is_traced(deny) && commit && policy->override == OVERRIDE_DENY) {
        denial_trace(policy, key, cost, 0, UINT64_MAX);
    }
}

#endif
