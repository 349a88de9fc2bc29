/* SPDX-License-Identifier: Apache-2.0 */
/* See window.h. */
#include "algorithm/window.h"

#include "algorithm/calendar.h"
#include "base/numbers.h"

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

struct window_span window_span_of(const struct rule *rule, uint64_t number)
{
    if (rule->calendar == WEIR_CALENDAR_MONTH) {
        return (struct window_span){number, calendar_day_of_month(number) * DAY_NS,
                                    calendar_day_of_month(number + 1) * DAY_NS};
    }
    return (struct window_span){number, number * rule->period_ns, (number + 1) * rule->period_ns};
}

struct window_span window_span_at(const struct rule *rule, uint64_t now_ns)
{
    const bool month = rule->calendar == WEIR_CALENDAR_MONTH;
    return window_span_of(rule, month ? calendar_month_of_day(now_ns / DAY_NS) : now_ns / rule->period_ns);
}

uint64_t window_number(const struct rule *rule, uint32_t seq, uint64_t now_ns)
{
    const uint64_t now = window_span_at(rule, now_ns).number;
    const uint32_t behind = ((uint32_t) now - seq) & WINDOW_SEQ_MASK;
    if (behind > WINDOW_SEQ_MASK - WINDOW_AHEAD_MAX) {
        return now + (WINDOW_SEQ_MASK + 1 - behind);
    }
    return now - min_u64(behind, now);
}

struct state window_roll(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t *into_ns)
{
    const struct window_span span = window_span_at(rule, now_ns);
    const uint32_t behind = ((uint32_t) span.number - window_seq(s)) & WINDOW_SEQ_MASK;
    *into_ns = now_ns - span.start_ns;
    if (behind == 0) {
        return s;
    }
    if (behind > WINDOW_SEQ_MASK - WINDOW_AHEAD_MAX) {
        *into_ns = 0;
        return s;
    }
    return window_state((uint32_t) span.number, 0, behind == 1 ? window_count(s) : 0);
}

/* Units of the window before that still count, `into_ns` into this one. */
static uint64_t carried(const struct rule *rule, struct state s, uint64_t into_ns)
{
    if (!rule_slides(rule) || window_previous(s) == 0) {
        return 0;
    }
    return muldiv_ceil(window_previous(s), rule->period_ns - into_ns, rule->period_ns);
}

struct state window_fresh(const struct rule *rule, uint64_t now_ns)
{
    return window_state(window_seq_at(rule, now_ns), 0, 0);
}

uint64_t window_headroom(const struct rule *rule, struct state s, uint64_t now_ns)
{
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    return saturating_sub(rule->limit, window_count(s) + carried(rule, s, into_ns));
}

struct state window_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units)
{
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    const uint64_t count = min_u64(saturating_add(window_count(s), units), WINDOW_COUNT_MASK);
    return window_state(window_seq(s), count, window_previous(s));
}

struct state window_refund(const struct rule *rule, struct state s, uint64_t now_ns, struct refund *refund)
{
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    const uint64_t current = min_u64(refund->units, min_u64(window_count(s), refund->current_max));
    const uint64_t previous = min_u64(refund->units - current, min_u64(window_previous(s), refund->previous_max));
    refund->refunded = current + previous;
    refund->refunded_previous = previous;
    return window_state(window_seq(s), window_count(s) - current, window_previous(s) - previous);
}

uint64_t window_count_seq(struct state s, uint32_t seq)
{
    const uint32_t ago = (window_seq(s) - seq) & WINDOW_SEQ_MASK;
    if (ago == 0) {
        return window_count(s);
    }
    return ago == 1 ? window_previous(s) : 0;
}

struct state window_charge_seq(struct state s, uint32_t seq, uint64_t units)
{
    const uint32_t ago = (window_seq(s) - seq) & WINDOW_SEQ_MASK;
    if (ago == 0) {
        return window_state(seq, min_u64(window_count(s) + units, WINDOW_COUNT_MASK), window_previous(s));
    }
    if (ago == 1) {
        return window_state(window_seq(s), window_count(s), min_u64(window_previous(s) + units, WINDOW_COUNT_MASK));
    }
    return s;
}

struct state window_discharge_seq(struct state s, uint32_t seq, uint64_t units)
{
    const uint32_t ago = (window_seq(s) - seq) & WINDOW_SEQ_MASK;
    if (ago == 0) {
        return window_state(seq, saturating_sub(window_count(s), units), window_previous(s));
    }
    if (ago == 1) {
        return window_state(window_seq(s), window_count(s), saturating_sub(window_previous(s), units));
    }
    return s;
}

/*
 * The wait within a window until `room` units are enough for what still counts of the window before, which had
 * `carrying` units. It is the least t with ceil(carrying * (period - t) / period) <= room.
 */
static uint64_t wait_for_room(const struct rule *rule, uint64_t carrying, uint64_t room)
{
    if (carrying <= room) {
        return 0;
    }
    return rule->period_ns - muldiv_floor(room, rule->period_ns, carrying);
}

uint64_t window_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    const uint64_t count = window_count(s);
    const uint64_t room = rule->limit - cost;
    if (count + carried(rule, s, into_ns) <= room) {
        return 0;
    }
    /* From now to where `into_ns` counts from is more than nothing when the state is ahead of the clock. */
    const struct window_span span = window_span_of(rule, window_number(rule, window_seq(s), now_ns));
    const uint64_t next_ns = span.end_ns;
    if (!rule_slides(rule)) {
        return next_ns - now_ns;
    }
    if (count <= room) {
        const uint64_t wait = wait_for_room(rule, window_previous(s), room - count);
        if (wait < rule->period_ns) {
            return span.start_ns + wait - now_ns;
        }
    }
    return next_ns + wait_for_room(rule, count, room) - now_ns;
}

uint64_t window_reset_after(const struct rule *rule, struct state s, uint64_t now_ns)
{
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    const uint64_t next_ns = window_span_of(rule, window_number(rule, window_seq(s), now_ns)).end_ns;
    const bool slides = rule_slides(rule);
    if (window_count(s) != 0) {
        return next_ns + (slides ? rule->period_ns : 0) - now_ns;
    }
    return slides && window_previous(s) != 0 ? next_ns - now_ns : 0;
}

struct usage window_usage(const struct rule *rule, struct state s, uint64_t now_ns)
{
    const uint64_t reset_ns = window_reset_after(rule, s, now_ns);
    if (reset_ns == 0) {
        return (struct usage){0, 0};
    }
    uint64_t into_ns;
    s = window_roll(rule, s, now_ns, &into_ns);
    const uint64_t count = window_count(s);
    /* In the window after, what was carried counts again: too much, and never too little. */
    return (struct usage){count != 0 ? count + carried(rule, s, into_ns) : window_previous(s), now_ns + reset_ns};
}

struct state window_resume(const struct rule *rule, struct usage usage, uint64_t now_ns)
{
    const struct window_span span = window_span_at(rule, now_ns);
    const uint32_t seq = (uint32_t) span.number & WINDOW_SEQ_MASK;
    const uint64_t units = min_u64(usage.units, WINDOW_COUNT_MASK);
    if (usage.until_ns < span.end_ns) {
        return window_state(seq, 0, 0);
    }
    if (rule_slides(rule) && usage.until_ns < span.end_ns + rule->period_ns) {
        return window_state(seq, 0, units);
    }
    return window_state(seq, units, 0);
}
