/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithm/bucket.h"

#include "base/numbers.h"

static struct state bucket_state(uint64_t tat, uint64_t total)
{
    return (struct state){tat, total & BUCKET_TOTAL_MASK};
}

/* How far the bucket is from full, as time. */
static uint64_t debt(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return saturating_sub(s.a, bucket_time(rule, now_ns));
}

/* 1/64 ns to ns, up: whoever waits that long has waited enough. */
static uint64_t wait_ns(uint64_t time)
{
    return (time >> BUCKET_FRACTION_BITS) + ((time & ((1U << BUCKET_FRACTION_BITS) - 1)) != 0);
}

struct state bucket_fresh(const struct rule *rule, uint64_t now_ns)
{
    (void) rule;
    (void) now_ns;
    return (struct state){0, 0}; /* full since the origin */
}

uint64_t bucket_headroom(const struct rule *rule, struct state s, uint64_t now_ns)
{
    if (rule->unit == 0) {
        return rule->limit;
    }
    return saturating_sub(rule->tolerance, debt(rule, s, now_ns)) / rule->unit;
}

struct state bucket_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units)
{
    const uint64_t from = max_u64(s.a, bucket_time(rule, now_ns));
    return bucket_state(saturating_add(from, saturating_mul(units, rule->unit)), bucket_total(s) + units);
}

uint64_t bucket_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    const uint64_t wanted = saturating_add(debt(rule, s, now_ns), saturating_mul(cost, rule->unit));
    return wait_ns(saturating_sub(wanted, rule->tolerance));
}

uint64_t bucket_reset_after(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return wait_ns(debt(rule, s, now_ns));
}

struct state bucket_merge(const struct rule *rule, struct state s, uint64_t tat_ns, uint64_t unseen)
{
    const uint64_t tat = saturating_add(bucket_time(rule, tat_ns), saturating_mul(unseen, rule->unit));
    return bucket_state(max_u64(s.a, tat), bucket_total(s));
}
