/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm does what: one switch per question, over window.h and bucket.h.
 */
#include "algorithm/rule.h"

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"

static inline bool is_bucket(const struct rule *rule)
{
    return rule->algorithm == WEIR_TOKEN_BUCKET;
}

struct rule rule_make(const weir_limit *limit, uint64_t origin_ns)
{
    struct rule rule = {
        .algorithm = limit->algorithm,
        .limit = limit->limit,
        .period_ns = limit->period_ns,
        .origin_ns = origin_ns,
    };
    if (is_bucket(&rule)) {
        rule.limit = limit->burst != 0 ? limit->burst : limit->limit;
        /* Up, so that the rate is never above the one asked for. */
        rule.unit = muldiv_ceil(limit->period_ns, UINT64_C(1) << BUCKET_FRACTION_BITS, limit->limit);
        rule.tolerance = saturating_mul(rule.limit, rule.unit);
    }
    return rule;
}

struct state rule_fresh(const struct rule *rule, uint64_t now_ns)
{
    return is_bucket(rule) ? bucket_fresh(rule, now_ns) : window_fresh(rule, now_ns);
}

uint64_t rule_headroom(const struct rule *rule, struct state state, uint64_t now_ns)
{
    return is_bucket(rule) ? bucket_headroom(rule, state, now_ns) : window_headroom(rule, state, now_ns);
}

struct state rule_charge(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t units)
{
    return is_bucket(rule) ? bucket_charge(rule, state, now_ns, units) : window_charge(rule, state, now_ns, units);
}

struct state rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units)
{
    return is_bucket(rule) ? bucket_charge(rule, state, then_ns, units)
                           : window_charge_tag(state, window_tag_at(rule, then_ns), units);
}

uint64_t rule_retry_after(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost)
{
    return is_bucket(rule) ? bucket_retry_after(rule, state, now_ns, cost)
                           : window_retry_after(rule, state, now_ns, cost);
}

uint64_t rule_reset_after(const struct rule *rule, struct state state, uint64_t now_ns)
{
    return is_bucket(rule) ? bucket_reset_after(rule, state, now_ns) : window_reset_after(rule, state, now_ns);
}
