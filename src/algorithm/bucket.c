/* SPDX-License-Identifier: Apache-2.0 */
/* See bucket.h. */
#include "algorithm/bucket.h"

#include "base/numbers.h"

static struct state bucket_state(const struct rule *rule, uint64_t tat, uint64_t total)
{
    return (struct state){tat, (uint64_t) rule->rate_id << BUCKET_TOTAL_BITS | (total & BUCKET_TOTAL_MASK)};
}

/* How far the bucket is from full, as time under this rule. */
static uint64_t debt(const struct rule *rule, struct state s, uint64_t now_ns)
{
    const uint64_t time = saturating_sub(bucket_tat(s), bucket_time(rule, now_ns));
    const uint8_t rate_id = bucket_rate_id(s);
    if (time == 0 || rate_id == rule->rate_id || rate_id == 0 || rule->rate_id == 0) {
        return time;
    }
    /* A rate that is not in the table belongs to another key of the same hash. */
    const uint64_t unit = rate_table_unit(rule->rate_table, rate_id);
    return unit != 0 ? muldiv_ceil(time, rate_table_unit(rule->rate_table, rule->rate_id), unit) : time;
}

/* The theoretical arrival time by this rule's rate. */
static uint64_t tat_of(const struct rule *rule, struct state s, uint64_t now_ns)
{
    const uint64_t now = bucket_time(rule, now_ns);
    return bucket_rate_id(s) == rule->rate_id || bucket_tat(s) <= now ? bucket_tat(s)
                                                                      : saturating_add(now, debt(rule, s, now_ns));
}

struct state bucket_fresh(void)
{
    return (struct state){0, 0}; /* full since the origin */
}

uint64_t bucket_headroom(const struct rule *rule, struct state s, uint64_t now_ns)
{
    if (rule->unit == 0) {
        return rule->limit;
    }
    const uint64_t owed = debt(rule, s, now_ns);
    if (rule_is_queue(rule) && owed > bucket_ahead_time(rule)) {
        return 0;
    }
    return saturating_sub(rule->tolerance, owed) / rule->unit;
}

struct state bucket_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units)
{
    const uint64_t from = saturating_add(bucket_time(rule, now_ns), debt(rule, s, now_ns));
    return bucket_state(rule, saturating_add(from, saturating_mul(units, rule->unit)), bucket_total(s) + units);
}

struct state bucket_charge_late(const struct rule *rule, struct state s, uint64_t then_ns, uint64_t units)
{
    struct rule as = *rule;
    rule_convert_rate(&as, bucket_rate_id(s));
    return bucket_charge(&as, s, then_ns, units);
}

uint64_t bucket_owed(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return rule->unit != 0 ? debt(rule, s, now_ns) / rule->unit : 0;
}

uint64_t bucket_owed_up(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return rule->unit != 0 ? muldiv_ceil(debt(rule, s, now_ns), 1, rule->unit) : 0;
}

struct state bucket_refund(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units, uint64_t *given)
{
    *given = min_u64(units, bucket_owed_up(rule, s, now_ns));
    /* Not cut off at now: the clock of another thread may be a tick behind, and that thread gets the units back too. */
    const uint64_t tat = saturating_sub(tat_of(rule, s, now_ns), saturating_mul(*given, rule->unit));
    return bucket_state(rule, tat, bucket_total(s));
}

bool bucket_queue(const struct rule *rule, struct state s, uint64_t now_ns, const struct queue_request *request,
                  uint64_t *wait_ns)
{
    const uint64_t cost = request->cost;
    *wait_ns = cost <= rule->limit ? 0 : UINT64_MAX;
    if (rule->unit == 0 || cost > rule->limit) {
        return cost <= rule->limit;
    }
    const uint64_t before = saturating_add(debt(rule, s, now_ns), saturating_mul(request->ahead, rule->unit));
    const uint64_t over_ns =
        bucket_wait_ns(saturating_sub(saturating_add(before, saturating_mul(cost, rule->unit)), rule->tolerance));
    const bool queued = rule_is_queue(rule);
    const uint64_t turn_ns = queued ? bucket_wait_ns(saturating_sub(before, bucket_ahead_time(rule))) : over_ns;
    *wait_ns = max_u64(turn_ns, over_ns);
    return turn_ns <= request->max_wait_ns && !(queued && over_ns != 0);
}

uint64_t bucket_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    const uint64_t owed = debt(rule, s, now_ns);
    const uint64_t wanted = saturating_add(owed, saturating_mul(cost, rule->unit));
    const uint64_t over = saturating_sub(wanted, rule->tolerance);
    const uint64_t turn = rule_is_queue(rule) && rule->unit != 0 ? saturating_sub(owed, bucket_ahead_time(rule)) : 0;
    return bucket_wait_ns(max_u64(over, turn));
}

uint64_t bucket_reset_after(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return bucket_wait_ns(debt(rule, s, now_ns));
}

struct state bucket_convert_rate(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return bucket_state(rule, tat_of(rule, s, now_ns), bucket_total(s));
}

uint64_t bucket_news_time(const struct rule *rule, const struct bucket_news *news)
{
    const uint64_t counts = saturating_add(bucket_time(rule, news->tat_ns), saturating_mul(news->unseen, rule->unit));
    return saturating_sub(counts, saturating_mul(news->unseen_returned, rule->unit));
}

struct state bucket_merge(const struct rule *rule, struct state s, uint64_t now_ns, const struct bucket_news *news)
{
    const uint64_t mine = saturating_sub(tat_of(rule, s, now_ns), saturating_mul(news->returned, rule->unit));
    const uint64_t most =
        saturating_add(max_u64(mine, bucket_time(rule, now_ns)), saturating_mul(news->more, rule->unit));
    return bucket_state(rule, max_u64(mine, min_u64(bucket_news_time(rule, news), most)), bucket_total(s));
}

struct usage bucket_usage(const struct rule *rule, struct state s, uint64_t now_ns)
{
    struct rule as = *rule;
    rule_convert_rate(&as, bucket_rate_id(s));
    const uint64_t units = bucket_owed_up(&as, s, now_ns);
    return (struct usage){units, units != 0 ? saturating_add(now_ns, bucket_reset_after(&as, s, now_ns)) : 0};
}

struct state bucket_resume(const struct rule *rule, struct usage usage, uint64_t now_ns)
{
    const uint64_t now = bucket_time(rule, now_ns);
    /* The time says how much has refilled since. The units bound the debt, as the usage may be of another limit. */
    const uint64_t left = saturating_sub(bucket_time(rule, usage.until_ns), now);
    const uint64_t owed = min_u64(left, saturating_mul(usage.units, rule->unit));
    return owed == 0 ? bucket_fresh() : bucket_state(rule, saturating_add(now, owed), 0);
}
