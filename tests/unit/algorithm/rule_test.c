/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of windows and buckets that checks alone do not show: what is reported, merged, refunded within
 * bounds, kept of evicted keys, and charged late. (Checks: property/oracle_test.c.)
 *
 * Guards: src/algorithm/rule.c, src/algorithm/rule.h, src/algorithm/window.c, src/algorithm/window.h,
 * src/algorithm/bucket.c, src/algorithm/bucket.h, src/algorithm/history.c, src/algorithm/rate_table.c
 */
#include "algorithm/rule.h"

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "support/support.h"

#define START_NS (UINT64_C(1767225600) * SECOND) /* 2026-01-01 */
#define DAY      (24 * HOUR)
#define ROUNDS   test_draws(4000)
#define TICKS    64 /* of a bucket's time in a nanosecond */

static struct rule rule_of(weir_algorithm algorithm, uint64_t limit, uint64_t period_ns)
{
    return rule_make(&(weir_limit){.algorithm = algorithm, .limit = limit, .period_ns = period_ns}, START_NS - HOUR);
}

static void test_a_rule_has_the_numbers_of_its_limit(void **state)
{
    (void) state;
    struct rule rule = rule_make(&(weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = 7 * SECOND}, 9);
    assert_true(rule.algorithm == WEIR_FIXED_WINDOW && rule.limit == 5 && rule.period_ns == 7 * SECOND);
    assert_true(rule.origin_ns == 9 && rule.unit == 0 && rule.tolerance == 0 && rule.ahead == 0 && rule.rate_id == 0);
    rule = rule_make(&(weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .calendar = WEIR_CALENDAR_DAY}, 9);
    assert_true(rule.period_ns == DAY && rule.calendar == WEIR_CALENDAR_DAY);
    rule = rule_make(&(weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .calendar = WEIR_CALENDAR_MONTH}, 9);
    assert_true(rule.period_ns == 31 * DAY && rule.calendar == WEIR_CALENDAR_MONTH);
    /* A unit of three in a second takes 21,333,333,333 1/3 steps: rounded up. */
    rule = rule_of(WEIR_TOKEN_BUCKET, 3, SECOND);
    assert_true(rule.limit == 3 && rule.unit == UINT64_C(21333333334) && rule.tolerance == 3 * rule.unit);
    rule = rule_make(&(weir_limit){WEIR_LEAKY_BUCKET, 4, SECOND, 10, .delay = 6}, 9);
    assert_true(rule.limit == 10 && rule.unit == 16 * SECOND && rule.tolerance == 160 * SECOND && rule.ahead == 6);
    assert_true(rule_is_queue(&rule) && rule_is_bucket(&rule) && !rule_has_history(&rule) && !rule_slides(&rule));
    rule = rule_of(WEIR_SLIDING_LOG, 5, SECOND);
    assert_true(rule_has_history(&rule) && !rule_is_bucket(&rule) && !rule_is_queue(&rule) && rule.unit == 0);
    rule = rule_of(WEIR_SLIDING_WINDOW, 5, SECOND);
    assert_true(rule_slides(&rule) && !rule_has_history(&rule));
}

/* Windows */

/* A state by the numbers of its windows. */
struct windows {
    uint64_t number, count, previous;
};

static struct state pack(struct windows w)
{
    return window_state((uint32_t) w.number & WINDOW_SEQ_MASK, w.count, w.previous);
}

static bool holds(struct state s, struct windows w)
{
    return window_seq(s) == ((uint32_t) w.number & WINDOW_SEQ_MASK) && window_count(s) == w.count &&
           window_previous(s) == w.previous;
}

/* What is left of a state in the window of this number. A later state stays: its thread read the clock later. */
static struct windows rolled(struct windows w, uint64_t number)
{
    if (w.number >= number) {
        return w;
    }
    return (struct windows){number, 0, w.number + 1 == number ? w.count : 0};
}

static uint64_t used_of(const struct rule *rule, struct windows w, uint64_t now_ns)
{
    w = rolled(w, now_ns / rule->period_ns);
    const uint64_t begin_ns = w.number * rule->period_ns;
    const uint64_t into_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
    const wide_uint part = (wide_uint) w.previous * (rule->period_ns - into_ns);
    return w.count + (rule_slides(rule) ? (uint64_t) ((part + rule->period_ns - 1) / rule->period_ns) : 0);
}

static uint64_t left_of(const struct rule *rule, struct windows w, uint64_t now_ns)
{
    return saturating_sub(rule->limit, used_of(rule, w, now_ns));
}

/* A window near to now: mostly this one or the one before, at times up to 64 ahead, or long ago. */
static struct windows draw_windows(uint64_t *rng, const struct rule *rule, uint64_t now_ns)
{
    const uint64_t now = now_ns / rule->period_ns;
    const uint64_t away[] = {
        now, now, now - 1, now - 1, now - 2, now - draw_magnitude(rng, 1, now), now + 1, now + WINDOW_AHEAD_MAX};
    return (struct windows){draw_one_of(rng, away), random_below(rng, 2) * draw_cost(rng, rule->limit + 3),
                            random_below(rng, 2) * draw_cost(rng, rule->limit + 3)};
}

static struct rule draw_window_rule(uint64_t *rng)
{
    const weir_limit limit = {.algorithm = draw_once_in(rng, 2) ? WEIR_FIXED_WINDOW : WEIR_SLIDING_WINDOW,
                              .limit = draw_limit(rng),
                              .period_ns = draw_period_ns(rng)};
    return rule_make(&limit, 0);
}

/* That a wait is the least one after which so many units fit, if no other request comes. */
static void expect_least_wait(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units,
                              uint64_t wait_ns)
{
    assert_true(rule_headroom(rule, s, now_ns + wait_ns) >= units);
    assert_true(wait_ns == 0 || rule_headroom(rule, s, now_ns + wait_ns - 1) < units);
}

static void test_a_window_is_its_count_and_what_still_counts_of_the_one_before(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct rule rule = draw_window_rule(&rng);
        const uint64_t now_ns = draw_start_ns(&rng, rule.period_ns);
        const struct windows w = draw_windows(&rng, &rule, now_ns);
        const struct windows at = rolled(w, now_ns / rule.period_ns);
        const struct state s = pack(w);
        const uint64_t left = left_of(&rule, w, now_ns);
        if (at.number - w.number > WINDOW_SEQ_MASK - WINDOW_AHEAD_MAX) {
            continue; /* after 2^28 windows a state looks as if it were ahead */
        }
        assert_int_equal(rule_headroom(&rule, s, now_ns), left);
        assert_true(holds(rule_fresh(&rule, now_ns), (struct windows){now_ns / rule.period_ns, 0, 0}));
        assert_int_equal(window_number(&rule, window_seq(s), now_ns), w.number);
        const uint64_t cost = draw_cost(&rng, rule.limit);
        assert_true(
            holds(rule_charge(&rule, s, now_ns, cost), (struct windows){at.number, at.count + cost, at.previous}));
        /* Waits. */
        const uint64_t wait_ns = rule_retry_after(&rule, s, now_ns, cost);
        const struct queue_request request = {.cost = cost, .ahead = random_below(&rng, 3), .max_wait_ns = UINT64_MAX};
        uint64_t queue_ns = 1;
        const bool passes = rule_queue(&rule, s, now_ns, &request, &queue_ns);
        assert_int_equal(passes, saturating_sub(left, request.ahead) >= cost); /* now, or not at all */
        assert_int_equal(queue_ns, passes ? 0 : wait_ns);
        if (cost > rule.limit) {
            assert_int_equal(wait_ns, UINT64_MAX);
        } else {
            expect_least_wait(&rule, s, now_ns, cost, wait_ns);
        }
        const uint64_t reset_ns = rule_reset_after(&rule, s, now_ns);
        assert_int_equal(used_of(&rule, w, now_ns + reset_ns), 0);
        assert_true(reset_ns == 0 || used_of(&rule, w, now_ns + reset_ns - 1) != 0);
        /* What is kept when the key is evicted. */
        const struct usage usage = rule_usage(&rule, s, now_ns);
        assert_int_equal(usage.until_ns, reset_ns != 0 ? now_ns + reset_ns : 0);
        assert_true(reset_ns != 0 ? usage.units >= rule.limit - left || usage.units >= rule.limit : usage.units == 0);
        const uint64_t later_ns = now_ns + draw_magnitude(&rng, 1, 3 * rule.period_ns) - 1;
        const struct state again = rule_resume(&rule, usage, later_ns);
        const uint64_t least = left_of(&rule, w, later_ns);
        const uint64_t kept = rule_headroom(&rule, again, later_ns);
        assert_true(kept <= least);
        if (at.count == 0 || at.previous == 0 || !rule_slides(&rule)) { /* of one window alone: nothing is lost */
            assert_int_equal(kept, least);
        }
        assert_true(usage.until_ns > later_ns || kept == rule.limit);
    }
}

static void test_a_state_of_more_than_64_windows_ahead_is_one_of_long_ago(void **state)
{
    (void) state;
    const uint64_t number = START_NS / SECOND;
    const uint64_t round = UINT64_C(1) << WINDOW_SEQ_BITS;
    for (int slides = 0; slides < 2; slides++) {
        const struct rule rule = rule_of(slides != 0 ? WEIR_SLIDING_WINDOW : WEIR_FIXED_WINDOW, 100, SECOND);
        for (uint64_t ahead = 1; ahead < 70; ahead++) {
            const struct state s = pack((struct windows){number + ahead, 30, 0});
            const bool held = ahead <= 64;
            assert_int_equal(window_number(&rule, window_seq(s), START_NS), number + ahead - (held ? 0 : round));
            assert_int_equal(rule_headroom(&rule, s, START_NS), held ? 70 : 100);
            assert_int_equal(rule_reset_after(&rule, s, START_NS), held ? (ahead + 1 + (uint64_t) slides) * SECOND : 0);
            assert_true(holds(rule_charge(&rule, s, START_NS, 5),
                              held ? (struct windows){number + ahead, 35, 0} : (struct windows){number, 5, 0}));
            uint64_t into_ns = 1;
            (void) window_roll(&rule, s, START_NS + 77, &into_ns);
            assert_int_equal(into_ns, held ? 0 : 77);
        }
        /* Before so many windows have been, it is the first one. */
        assert_int_equal(window_number(&rule, 5, 3 * SECOND), 5);
        assert_int_equal(window_number(&rule, 100, 3 * SECOND), 0);
    }
}

static void test_units_are_refunded_to_the_present_window_first_and_within_bounds(void **state)
{
    (void) state;
    const struct rule rule = rule_of(WEIR_SLIDING_WINDOW, 100, SECOND);
    const uint64_t number = START_NS / SECOND;
    static const struct {
        struct refund refund; /* with what is expected */
        uint64_t count, previous;
    } all[] = {{{.units = 5, .current_max = 99, .previous_max = 99, .refunded = 5}, 25, 20},
               {{.units = 30, .current_max = 99, .previous_max = 99, .refunded = 30}, 0, 20},
               {{.units = 31, .current_max = 99, .previous_max = 99, .refunded = 31, .refunded_previous = 1}, 0, 19},
               {{.units = 99, .current_max = 99, .previous_max = 99, .refunded = 50, .refunded_previous = 20}, 0, 0},
               {{.units = 9, .current_max = 4, .previous_max = 99, .refunded = 9, .refunded_previous = 5}, 26, 15},
               {{.units = 9, .current_max = 4, .previous_max = 3, .refunded = 7, .refunded_previous = 3}, 26, 17},
               {{.units = 9, .current_max = 0, .previous_max = 0}, 30, 20},
               {{.units = 0, .current_max = 9, .previous_max = 9}, 30, 20}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct refund refund = all[i].refund;
        refund.refunded = refund.refunded_previous = 99;
        const struct state s = rule_refund(&rule, pack((struct windows){number, 30, 20}), START_NS, &refund);
        assert_int_equal(refund.refunded, all[i].refund.refunded);
        assert_int_equal(refund.refunded_previous, all[i].refund.refunded_previous);
        assert_true(holds(s, (struct windows){number, all[i].count, all[i].previous}));
    }
    struct refund refund = {.units = 9, .current_max = 99, .previous_max = 99}; /* the window has ended meanwhile */
    const struct state s = rule_refund(&rule, pack((struct windows){number, 30, 20}), START_NS + SECOND, &refund);
    assert_true(holds(s, (struct windows){number + 1, 0, 21}) && refund.refunded_previous == 9);
    /* A history is refunded itself: its state stays. */
    const struct rule log = rule_of(WEIR_SLIDING_LOG, 100, SECOND);
    refund = (struct refund){.units = 9, .refunded = 9, .refunded_previous = 9};
    const struct state same = rule_refund(&log, (struct state){5, 7}, START_NS, &refund);
    assert_true(same.a == 5 && same.b == 7 && refund.refunded == 0 && refund.refunded_previous == 0);
}

static void test_both_windows_of_a_state_are_counted_by_their_numbers(void **state)
{
    (void) state;
    const struct rule rule = rule_of(WEIR_FIXED_WINDOW, 100, SECOND);
    const uint32_t numbers[] = {1000, 1 << 20, 5, WINDOW_SEQ_MASK, 0};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const uint32_t seq = numbers[i];
        const uint32_t before = (seq - 1) & WINDOW_SEQ_MASK;
        const uint32_t other[] = {(seq + 1) & WINDOW_SEQ_MASK, (seq - 2) & WINDOW_SEQ_MASK,
                                  (seq + 64) & WINDOW_SEQ_MASK};
        const struct state s = window_state(seq, 30, 20);
        assert_true(window_seq(s) == seq && window_count(s) == 30 && window_previous(s) == 20);
        assert_int_equal(window_count_seq(s, seq), 30);
        assert_int_equal(window_count_seq(s, before), 20);
        assert_true(holds(window_charge_seq(s, seq, 5), (struct windows){seq, 35, 20}));
        assert_true(holds(window_charge_seq(s, before, 5), (struct windows){seq, 30, 25}));
        assert_true(holds(window_discharge_seq(s, seq, 5), (struct windows){seq, 25, 20}));
        assert_true(holds(window_discharge_seq(s, before, 5), (struct windows){seq, 30, 15}));
        assert_true(holds(window_discharge_seq(s, seq, 31), (struct windows){seq, 0, 20}));
        assert_true(holds(window_discharge_seq(s, before, 21), (struct windows){seq, 30, 0}));
        assert_true(holds(window_charge_seq(s, seq, WINDOW_COUNT_MASK), (struct windows){seq, WINDOW_COUNT_MASK, 20}));
        assert_true(
            holds(window_charge_seq(s, before, WINDOW_COUNT_MASK), (struct windows){seq, 30, WINDOW_COUNT_MASK}));
        for (size_t j = 0; j < 3; j++) { /* windows that the state does not hold */
            assert_int_equal(window_count_seq(s, other[j]), 0);
            assert_true(holds(window_charge_seq(s, other[j], 5), (struct windows){seq, 30, 20}));
            assert_true(holds(window_discharge_seq(s, other[j], 5), (struct windows){seq, 30, 20}));
        }
    }
    /* Late charges go to the window of their time, and no count overflows. */
    const uint64_t number = START_NS / SECOND;
    const struct state s = pack((struct windows){number, 30, 20});
    assert_true(holds(rule_charge_late(&rule, s, START_NS + 5, 3), (struct windows){number, 33, 20}));
    assert_true(holds(rule_charge_late(&rule, s, START_NS - 1, 3), (struct windows){number, 30, 23}));
    assert_true(holds(rule_charge_late(&rule, s, START_NS - SECOND - 1, 3), (struct windows){number, 30, 20}));
    assert_true(holds(rule_charge(&rule, s, START_NS, UINT64_MAX), (struct windows){number, WINDOW_COUNT_MASK, 20}));
    const struct usage most = {.units = UINT64_MAX, .until_ns = START_NS + SECOND};
    assert_true(holds(rule_resume(&rule, most, START_NS), (struct windows){number, WINDOW_COUNT_MASK, 0}));
}

static void test_a_month_ends_with_the_month(void **state)
{
    (void) state;
    const struct rule rule =
        rule_make(&(weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .calendar = WEIR_CALENDAR_MONTH}, 0);
    const uint64_t february_ns = START_NS + 31 * DAY;
    const uint64_t march_ns = february_ns + 28 * DAY;
    const uint64_t months = 56 * 12 + 1; /* since January 1970 */
    struct window_span span = window_span_at(&rule, february_ns);
    assert_true(span.number == months && span.start_ns == february_ns && span.end_ns == march_ns);
    span = window_span_at(&rule, march_ns - 1);
    assert_true(span.number == months && span.start_ns == february_ns && span.end_ns == march_ns);
    assert_int_equal(window_span_at(&rule, march_ns).number, months + 1);
    struct state s = rule_charge(&rule, rule_fresh(&rule, february_ns), february_ns + DAY, 5);
    assert_int_equal(rule_retry_after(&rule, s, february_ns + DAY, 1), 27 * DAY);
    assert_int_equal(rule_reset_after(&rule, s, march_ns - 1), 1);
    assert_int_equal(rule_headroom(&rule, s, march_ns), 5);
    const struct usage usage = rule_usage(&rule, s, february_ns + 2 * DAY);
    assert_true(usage.units == 5 && usage.until_ns == march_ns);
    s = rule_resume(&rule, usage, march_ns - 1);
    assert_int_equal(rule_headroom(&rule, s, march_ns - 1), 0);
    assert_int_equal(rule_headroom(&rule, rule_resume(&rule, usage, march_ns), march_ns), 5);
}

/* Buckets */

/* A bucket's state that owes this time, in 1/64 ns. */
static struct state owing(const struct rule *rule, uint64_t now_ns, uint64_t time)
{
    return (struct state){bucket_time(rule, now_ns) + time, (uint64_t) rule->rate_id << BUCKET_TOTAL_BITS | 100};
}

static void test_a_bucket_owes_what_was_charged_less_what_has_refilled(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < ROUNDS; round++) {
        weir_limit limit = draw_weir_limit(&rng, draw_once_in(&rng, 2) ? WEIR_TOKEN_BUCKET : WEIR_LEAKY_BUCKET, 0);
        const uint64_t now_ns = draw_start_ns(&rng, limit.period_ns);
        const struct rule rule = rule_make(&limit, now_ns - draw_magnitude(&rng, 1, 1000 * DAY));
        const uint64_t owed = random_below(&rng, 4) * random_below(&rng, rule.tolerance / 3 + 2);
        const uint64_t later_ns = draw_magnitude(&rng, 1, owed / TICKS + 2) - 1;
        const struct state s = owing(&rule, now_ns, owed);
        const uint64_t left = saturating_sub(owed, later_ns * TICKS); /* in time, later */
        const uint64_t then_ns = now_ns + later_ns;
        assert_int_equal(bucket_owed(&rule, s, then_ns), left / rule.unit);
        assert_int_equal(bucket_owed_up(&rule, s, then_ns), left / rule.unit + (left % rule.unit != 0));
        assert_int_equal(rule_reset_after(&rule, s, then_ns), left / TICKS + (left % TICKS != 0));
        const uint64_t ahead = min_u64(limit.delay * rule.unit, rule.tolerance);
        const bool turn = !rule_is_queue(&rule) || left <= ahead;
        assert_int_equal(rule_headroom(&rule, s, then_ns), turn ? saturating_sub(rule.tolerance, left) / rule.unit : 0);
        const uint64_t cost = draw_cost(&rng, rule.limit);
        const uint64_t fits = min_u64(cost, rule.limit);
        const struct state charged = rule_charge(&rule, s, then_ns, fits);
        assert_int_equal(bucket_tat(charged), bucket_time(&rule, then_ns) + left + fits * rule.unit);
        assert_int_equal(bucket_total(charged), 100 + fits);
        const uint64_t wait_ns = rule_retry_after(&rule, s, then_ns, cost);
        if (cost > rule.limit) {
            assert_int_equal(wait_ns, UINT64_MAX);
        } else {
            expect_least_wait(&rule, s, then_ns, cost, wait_ns);
        }
        /* A refund leaves at least nothing owed, in whole units. */
        struct refund refund = {.units = draw_cost(&rng, rule.limit)};
        const struct state refunded = rule_refund(&rule, s, then_ns, &refund);
        assert_int_equal(refund.refunded, min_u64(refund.units, left / rule.unit + (left % rule.unit != 0)));
        assert_int_equal(bucket_tat(refunded), saturating_sub(bucket_tat(s), refund.refunded * rule.unit));
        assert_int_equal(bucket_total(refunded), 100);
        /* What is kept of an evicted key. */
        const struct usage usage = rule_usage(&rule, s, then_ns);
        assert_int_equal(usage.units, left / rule.unit + (left % rule.unit != 0));
        assert_int_equal(usage.until_ns, left != 0 ? then_ns + left / TICKS + (left % TICKS != 0) : 0);
        const struct state again = rule_resume(&rule, usage, then_ns);
        assert_true(bucket_total(again) == 0 && (left != 0 || (again.a == 0 && again.b == 0)));
        const uint64_t resumed = saturating_sub(bucket_tat(again), bucket_time(&rule, then_ns));
        assert_true(resumed >= left && resumed < left + TICKS); /* the end is rounded up to a nanosecond */
    }
}

static void test_a_usage_of_another_limit_owes_its_time_or_its_units_whichever_is_less(void **state)
{
    (void) state;
    const struct rule rule = rule_of(WEIR_TOKEN_BUCKET, 10, SECOND); /* a unit in 100 ms */
    const struct usage much = {.units = 3, .until_ns = START_NS + 10 * SECOND};
    assert_int_equal(bucket_owed(&rule, rule_resume(&rule, much, START_NS), START_NS), 3);
    const struct usage soon = {.units = 30, .until_ns = START_NS + SECOND / 2};
    assert_int_equal(bucket_owed(&rule, rule_resume(&rule, soon, START_NS), START_NS), 5);
    assert_int_equal(rule_resume(&rule, soon, START_NS + SECOND / 2).a, 0);
    /* Of a bucket without a rate nothing is owed. */
    struct rule off = rule;
    off.unit = 0;
    const struct state s = owing(&rule, START_NS, 999);
    assert_true(bucket_owed(&off, s, START_NS) == 0 && bucket_owed_up(&off, s, START_NS) == 0);
    assert_int_equal(rule_headroom(&off, s, START_NS), 10);
    uint64_t wait_ns = 1;
    assert_true(rule_queue(&off, s, START_NS, &(struct queue_request){.cost = 10}, &wait_ns));
    assert_int_equal(wait_ns, 0);
    assert_false(rule_queue(&off, s, START_NS, &(struct queue_request){.cost = 11}, &wait_ns));
    assert_int_equal(wait_ns, UINT64_MAX);
}

static void test_a_queue_says_when_a_request_may_go_and_when_it_could_be_accepted(void **state)
{
    (void) state;
    /* A unit each 100 ms; 8 at most are queued, 2 of them may go ahead of their turn. */
    const struct rule rule =
        rule_make(&(weir_limit){WEIR_LEAKY_BUCKET, 10, SECOND, .burst = 8, .delay = 2}, START_NS - HOUR);
    const struct rule bucket = rule_make(&(weir_limit){WEIR_TOKEN_BUCKET, 10, SECOND, .burst = 8}, START_NS - HOUR);
    static const struct {
        bool token;
        uint64_t owed, cost, ahead, patience_ms;
        bool accepted;
        uint64_t wait_ms;
    } all[] = {{false, 0, 1, 0, 0, true, 0},
               {false, 0, 8, 0, 0, true, 0},
               {false, 2, 1, 0, 0, true, 0},
               {false, 3, 1, 0, 100, true, 100},
               {false, 3, 1, 0, 99, false, 100},
               {false, 3, 5, 0, 100, true, 100},
               {false, 3, 6, 0, 1000, false, 100}, /* there is no room for it before a unit has gone */
               {false, 7, 4, 0, 1000, false, 500}, /* its turn comes later than room does */
               {false, 3, 8, 0, 1000, false, 300},
               {false, 2, 1, 3, 1000, true, 300},
               {false, 2, 1, 6, 1000, false, 600}, /* units that are promised before it take room too */
               {false, 0, 9, 0, 1000, false, UINT64_MAX},
               {true, 0, 8, 0, 0, true, 0},
               {true, 3, 5, 0, 0, true, 0},
               {true, 3, 6, 0, 100, true, 100},
               {true, 3, 6, 0, 99, false, 100},
               {true, 3, 5, 2, 1000, true, 200},
               {true, 0, 9, 0, 1000, false, UINT64_MAX}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct rule *r = all[i].token ? &bucket : &rule;
        const struct queue_request request = {all[i].cost, all[i].ahead, all[i].patience_ms * MILLISECOND};
        uint64_t wait_ns = 1;
        const bool accepted = rule_queue(r, owing(r, START_NS, all[i].owed * r->unit), START_NS, &request, &wait_ns);
        assert_int_equal(accepted, all[i].accepted);
        assert_int_equal(wait_ns, all[i].wait_ms != UINT64_MAX ? all[i].wait_ms * MILLISECOND : UINT64_MAX);
    }
}

static void test_a_change_of_the_rate_keeps_the_units_owed(void **state)
{
    (void) state;
    struct rate_table table = {.units = {0, 100, 250, 0}};
    struct rule slow = {.algorithm = WEIR_TOKEN_BUCKET,
                        .limit = 10,
                        .rate_id = 2,
                        .unit = 250,
                        .tolerance = 2500,
                        .rate_table = rate_table_handle(&table, 0)};
    struct rule fast = slow;
    fast.rate_id = 1;
    fast.unit = 100;
    const struct state s = owing(&fast, SECOND, 333); /* 3.33 units */
    assert_int_equal(bucket_owed(&fast, s, SECOND), 3);
    struct state to = bucket_convert_rate(&slow, s, SECOND);
    assert_int_equal(bucket_tat(to), SECOND * TICKS + 833); /* rounded up */
    assert_true(bucket_rate_id(to) == 2 && bucket_total(to) == 100);
    assert_int_equal(bucket_owed_up(&slow, s, SECOND), 4);
    assert_int_equal(bucket_tat(rule_charge(&slow, s, SECOND, 2)), SECOND * TICKS + 833 + 500);
    /* Late units go at the rate that the bucket has had; a usage is in its units. */
    to = rule_charge_late(&slow, s, SECOND, 2);
    assert_true(bucket_tat(to) == SECOND * TICKS + 333 + 200 && bucket_rate_id(to) == 1);
    assert_int_equal(rule_usage(&slow, s, SECOND).units, 4);
    assert_int_equal(rule_usage(&slow, s, SECOND).until_ns, SECOND + 6);
    /* No debt: nothing to convert, and the time stays. */
    assert_int_equal(bucket_tat(bucket_convert_rate(&slow, s, 2 * SECOND)), bucket_tat(s));
    /* A rate that is not in the table, or number 0: the time owed stays. */
    struct state odd = s;
    odd.b = UINT64_C(3) << BUCKET_TOTAL_BITS;
    assert_int_equal(bucket_tat(bucket_convert_rate(&slow, odd, SECOND)), bucket_tat(s));
    odd.b = 7;
    to = rule_charge_late(&slow, odd, SECOND, 1);
    assert_true(bucket_tat(to) == bucket_tat(s) + 250 && bucket_rate_id(to) == 2 && bucket_total(to) == 8);
    slow.rate_id = 0;
    assert_int_equal(bucket_tat(bucket_convert_rate(&slow, s, SECOND)), bucket_tat(s));
    /* The rule of a rate. */
    struct rule rule = fast;
    rule_convert_rate(&rule, 2);
    assert_true(rule.rate_id == 2 && rule.unit == 250 && rule.tolerance == fast.tolerance);
    rule_convert_rate(&rule, 3);
    rule_convert_rate(&rule, 0);
    assert_true(rule.rate_id == 2 && rule.unit == 250);
}

static void test_an_answer_of_the_fleet_moves_a_bucket_within_what_others_can_have_done(void **state)
{
    (void) state;
    /* 10 a second: times below are in units owed. */
    const struct rule rule = rule_of(WEIR_TOKEN_BUCKET, 10, SECOND);
    static const struct {
        uint64_t mine, theirs, unseen, unseen_returned, more, returned, owed;
    } all[] = {
        {3, 3, 0, 0, 0, 0, 3}, {3, 5, 0, 0, 9, 0, 5}, {3, 9, 0, 0, 4, 0, 7}, /* others have charged four at most */
        {3, 1, 0, 0, 9, 0, 3},                        /* the fleet has lost what it knew: nothing is waived */
        {3, 1, 2, 0, 9, 0, 3},                        /* the answer lacks two units of this node */
        {3, 4, 2, 0, 9, 0, 6}, {3, 6, 0, 2, 9, 0, 4}, /* and two that this node gave back */
        {5, 3, 0, 0, 9, 2, 3},                        /* others gave back */
        {5, 2, 0, 0, 9, 2, 3}, {0, 4, 0, 0, 9, 0, 4}, {0, 4, 0, 0, 2, 0, 2}, {0, 0, 0, 0, 9, 3, 0}};
    const uint64_t now = bucket_time(&rule, START_NS);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct bucket_news news = {.tat_ns = START_NS + all[i].theirs * SECOND / 10,
                                         .unseen = all[i].unseen,
                                         .unseen_returned = all[i].unseen_returned,
                                         .more = all[i].more,
                                         .returned = all[i].returned};
        const struct state s = owing(&rule, START_NS, all[i].mine * rule.unit);
        const struct state merged = bucket_merge(&rule, s, START_NS, &news);
        assert_int_equal(bucket_owed(&rule, merged, START_NS), all[i].owed);
        assert_int_equal(bucket_total(merged), 100); /* what this node reports */
        assert_int_equal(bucket_news_time(&rule, &news),
                         now + (all[i].theirs + all[i].unseen - all[i].unseen_returned) * rule.unit);
    }
    /* A bucket that was full long ago is emptied from now on. */
    const struct state full = {5, 100};
    const struct bucket_news news = {.tat_ns = START_NS + SECOND, .more = 4};
    assert_int_equal(bucket_owed(&rule, bucket_merge(&rule, full, START_NS, &news), START_NS), 4);
}

static void test_times_of_a_bucket_saturate_and_waits_are_rounded_up(void **state)
{
    (void) state;
    struct rule rule = {.algorithm = WEIR_TOKEN_BUCKET, .origin_ns = 1000};
    assert_int_equal(bucket_time(&rule, 1001), TICKS);
    assert_int_equal(bucket_time(&rule, 1000), 0);
    assert_int_equal(bucket_time(&rule, 999), 0);
    const uint64_t most_ns = UINT64_MAX / TICKS;
    assert_int_equal(bucket_time(&rule, 1000 + most_ns), UINT64_MAX / TICKS * TICKS);
    assert_int_equal(bucket_time(&rule, 1000 + most_ns + 1), UINT64_MAX);
    assert_int_equal(bucket_time_ns(&rule, 5 * TICKS + 1), 1005);
    assert_true(bucket_wait_ns(0) == 0 && bucket_wait_ns(1) == 1 && bucket_wait_ns(64) == 1 && bucket_wait_ns(65) == 2);
    const struct state s = {7, UINT64_C(0xab) << BUCKET_TOTAL_BITS | BUCKET_TOTAL_MASK};
    assert_true(bucket_rate_id(s) == 0xab && bucket_total(s) == BUCKET_TOTAL_MASK && bucket_tat(s) == 7);
    const struct state moved = bucket_with_tat(s, 9);
    assert_true(moved.a == 9 && moved.b == s.b);
    rule.limit = 5;
    rule.unit = 10;
    rule.tolerance = 50;
    assert_int_equal(bucket_total(rule_charge(&rule, s, 1000, 3)), 2); /* the units charged are counted modulo 2^44 */
}

/* Histories: their summary alone. */
static void test_the_summary_of_a_history_says_when_all_of_it_has_left(void **state)
{
    (void) state;
    const struct rule rule = rule_of(WEIR_SLIDING_LOG, 10, SECOND);
    const struct state s = {START_NS + 300, 7};
    assert_true(rule_fresh(&rule, START_NS).a == 0 && rule_fresh(&rule, START_NS).b == 0);
    assert_int_equal(rule_headroom(&rule, s, START_NS), 3);
    assert_int_equal(rule_headroom(&rule, s, START_NS + 299), 3);
    assert_int_equal(rule_headroom(&rule, s, START_NS + 300), 10);
    assert_int_equal(rule_headroom(&rule, (struct state){START_NS + 300, 11}, START_NS), 0);
    assert_true(rule_charge(&rule, s, START_NS, 5).b == 7 && rule_charge_late(&rule, s, START_NS, 5).b == 7);
    assert_true(rule_charge(&rule, s, START_NS, 5).a == s.a && rule_charge_late(&rule, s, START_NS, 5).a == s.a);
    assert_int_equal(rule_retry_after(&rule, s, START_NS, 3), 0);
    assert_int_equal(rule_retry_after(&rule, s, START_NS, 4), 300); /* at most */
    assert_int_equal(rule_retry_after(&rule, s, START_NS, 10), 300);
    assert_int_equal(rule_retry_after(&rule, s, START_NS + 300, 10), 0);
    assert_int_equal(rule_retry_after(&rule, s, START_NS, 11), UINT64_MAX);
    assert_int_equal(rule_reset_after(&rule, s, START_NS), 300);
    assert_int_equal(rule_reset_after(&rule, s, START_NS + 301), 0);
    uint64_t wait_ns = 1;
    assert_true(rule_queue(&rule, s, START_NS, &(struct queue_request){.cost = 3}, &wait_ns));
    assert_int_equal(wait_ns, 0);
    assert_false(rule_queue(&rule, s, START_NS, &(struct queue_request){.cost = 3, .ahead = 1}, &wait_ns));
    const struct usage usage = rule_usage(&rule, s, START_NS + 299);
    assert_true(usage.units == 7 && usage.until_ns == START_NS + 300);
    assert_true(rule_usage(&rule, s, START_NS + 300).units == 0 && rule_usage(&rule, s, START_NS + 300).until_ns == 0);
    const struct state again = rule_resume(&rule, usage, START_NS + 299);
    assert_true(again.a == s.a && again.b == s.b);
    assert_true(rule_resume(&rule, usage, START_NS + 300).a == 0 && rule_resume(&rule, usage, START_NS + 300).b == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rule_has_the_numbers_of_its_limit),
        cmocka_unit_test(test_a_window_is_its_count_and_what_still_counts_of_the_one_before),
        cmocka_unit_test(test_a_state_of_more_than_64_windows_ahead_is_one_of_long_ago),
        cmocka_unit_test(test_units_are_refunded_to_the_present_window_first_and_within_bounds),
        cmocka_unit_test(test_both_windows_of_a_state_are_counted_by_their_numbers),
        cmocka_unit_test(test_a_month_ends_with_the_month),
        cmocka_unit_test(test_a_bucket_owes_what_was_charged_less_what_has_refilled),
        cmocka_unit_test(test_a_usage_of_another_limit_owes_its_time_or_its_units_whichever_is_less),
        cmocka_unit_test(test_a_queue_says_when_a_request_may_go_and_when_it_could_be_accepted),
        cmocka_unit_test(test_a_change_of_the_rate_keeps_the_units_owed),
        cmocka_unit_test(test_an_answer_of_the_fleet_moves_a_bucket_within_what_others_can_have_done),
        cmocka_unit_test(test_times_of_a_bucket_saturate_and_waits_are_rounded_up),
        cmocka_unit_test(test_the_summary_of_a_history_says_when_all_of_it_has_left),
    };
    return cmocka_run_group_tests_name("unit/algorithm/rule", tests, NULL, NULL);
}
