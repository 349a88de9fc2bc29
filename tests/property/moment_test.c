/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit snapshot gives the headroom of rule_headroom and charges as rule_charge does, over random rules, states and
 * times. A queue snapshot answers as rule_queue and charges as rule_charge.
 *
 * Guards: src/algorithm/limit_snapshot.c, src/algorithm/limit_snapshot.h, src/algorithm/queue_snapshot.h
 */
#include "algorithm/limit_snapshot.h"
#include "algorithm/queue_snapshot.h"
#include "support/support.h"

#define START_NS (UINT64_C(1760000000) * SECOND)
#define DAY      (24 * HOUR)
#define ROUNDS   test_draws(20000)
#define STEPS    100

/* Now and then a rate or a time to fill that weir_set_policies refuses: a rule holds for these, too. */
static weir_limit random_of(uint64_t *rng, weir_algorithm algorithm)
{
    weir_limit limit = draw_weir_limit(rng, algorithm, 0);
    const bool bucket = algorithm == WEIR_TOKEN_BUCKET || algorithm == WEIR_LEAKY_BUCKET;
    if (draw_once_in(rng, 16)) {
        limit.limit = WEIR_MAX_UNITS;
    }
    if (bucket && draw_once_in(rng, 16)) {
        limit.burst = WEIR_MAX_UNITS;
    }
    return limit;
}

/* A rule from a second before the start; its rate is one of several that the limit has had. */
static struct rule random_rule(uint64_t *rng, const weir_limit *limit, uint64_t start_ns)
{
    struct rule rule = rule_make(limit, start_ns - SECOND);
    rule.rate_id = rule_is_bucket(&rule) ? (uint8_t) random_below(rng, 4) : 0;
    return rule;
}

static weir_limit random_limit(uint64_t *rng)
{
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    return random_of(rng, draw_one_of(rng, algorithms));
}

/* A time within some periods of another, before it or after. */
static uint64_t random_time(uint64_t *rng, const struct rule *rule, uint64_t from_ns)
{
    const uint64_t away_ns = random_below(rng, 3 * rule->period_ns);
    return random_below(rng, 4) == 0 ? from_ns - away_ns : from_ns + away_ns;
}

/* The greatest cost that fits beside `held`, one more, or any. */
static uint64_t random_cost(uint64_t *rng, const struct rule *rule, uint64_t headroom, uint64_t held)
{
    const uint64_t left = saturating_sub(headroom, held);
    switch (random_below(rng, 4)) {
    case 0:
        return max_u64(left, 1);
    case 1:
        return left + 1;
    case 2:
        return UINT64_MAX - random_below(rng, 2);
    default:
        return draw_cost(rng, rule->limit);
    }
}

/* Times at which a snapshot may deny by itself. */
static bool takes_longer(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost)
{
    if (rule_is_bucket(rule)) {
        const uint64_t most = BUCKET_TOTAL_MASK - bucket_total(state);
        return cost > most || bucket_time(rule, now_ns) >= UINT64_MAX - rule->tolerance;
    }
    const uint32_t behind = (window_seq_at(rule, now_ns) - window_seq(state)) & WINDOW_SEQ_MASK;
    return behind > WINDOW_SEQ_MASK - WINDOW_AHEAD_MAX;
}

static void test_a_moment_is_its_rule(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t taken = 0;
    uint64_t refused = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const weir_limit limit = random_limit(&rng);
        const uint64_t start_ns = draw_start_ns(&rng, limit.period_ns);
        const struct rule rule = random_rule(&rng, &limit, start_ns);
        uint64_t now_ns = start_ns + random_below(&rng, 1000 * SECOND);
        struct state s = rule_fresh(&rule, now_ns);
        for (int step = 0; step < STEPS; step++) {
            now_ns = random_below(&rng, 3) == 0 ? random_time(&rng, &rule, max_u64(now_ns, start_ns)) : now_ns;
            const struct limit_snapshot limit_at = limit_snapshot_of(&rule, now_ns);
            const uint64_t held = random_below(&rng, 2) == 0 ? 0 : random_below(&rng, rule.limit);
            const uint64_t headroom = rule_headroom(&rule, s, now_ns);
            const uint64_t cost = random_cost(&rng, &rule, headroom, held);
            const bool fits = saturating_sub(headroom, held) >= cost;
            /* Above the state's own bits is its owner's. */
            const uint64_t above = random_below(&rng, 4096) << STATE_B_BITS;
            struct state mine = {s.a, s.b | above};
            if (cost > rule.limit) {
                assert_false(fits);
                continue;
            }
            if (limit_at.kind == LIMIT_SNAPSHOT_NONE || limit_snapshot_charge(&limit_at, &mine, held, cost) != fits) {
                assert_true(takes_longer(&rule, s, now_ns, cost));
                assert_true(limit_at.kind == LIMIT_SNAPSHOT_NONE || fits);
                continue;
            }
            const struct state expected = fits ? rule_charge(&rule, s, now_ns, cost) : s;
            assert_true(mine.a == expected.a && mine.b == (expected.b | above));
            s = expected;
            taken += fits;
            refused += !fits;
        }
    }
    assert_true(taken > ROUNDS && refused > ROUNDS);
}

static void test_a_first_charge_is_that_of_a_fresh_state(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < ROUNDS; round++) {
        const weir_limit limit = random_limit(&rng);
        const uint64_t start_ns = draw_start_ns(&rng, limit.period_ns);
        const struct rule rule = random_rule(&rng, &limit, start_ns);
        const uint64_t now_ns = start_ns + random_below(&rng, 1000 * SECOND);
        const struct limit_snapshot limit_at = limit_snapshot_of(&rule, now_ns);
        if (limit_at.kind == LIMIT_SNAPSHOT_NONE) {
            continue;
        }
        const uint64_t cost = min_u64(draw_cost(&rng, rule.limit), rule.limit);
        const struct state expected = rule_charge(&rule, rule_fresh(&rule, now_ns), now_ns, cost);
        const struct usage expected_usage = rule_usage(&rule, expected, now_ns);
        struct usage usage;
        const struct state s = limit_snapshot_first(&limit_at, cost, &usage);
        assert_true(s.a == expected.a && s.b == expected.b);
        assert_int_equal(usage.units, expected_usage.units);
        assert_int_equal(usage.until_ns, expected_usage.until_ns);
    }
}

static void test_an_idle_key_is_fresh_and_was_for_a_minute(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t idle = 0;
    for (unsigned round = 0; round < 10 * ROUNDS; round++) {
        const weir_limit limit = random_limit(&rng);
        const uint64_t start_ns = draw_start_ns(&rng, limit.period_ns);
        const struct rule rule = random_rule(&rng, &limit, start_ns);
        const uint64_t then_ns = start_ns + random_below(&rng, 1000 * SECOND);
        const struct state s =
            rule_charge(&rule, rule_fresh(&rule, then_ns), then_ns, min_u64(draw_cost(&rng, rule.limit), rule.limit));
        const uint64_t now_ns = then_ns + random_below(&rng, 2) * random_below(&rng, 200 * SECOND) +
                                random_below(&rng, 2) * random_below(&rng, 4 * rule.period_ns);
        const struct limit_snapshot limit_at = limit_snapshot_of(&rule, now_ns);
        if (limit_at.kind == LIMIT_SNAPSHOT_NONE || !limit_snapshot_idle(&limit_at, s.a)) {
            continue;
        }
        idle++;
        assert_int_equal(rule_reset_after(&rule, s, now_ns), 0);
        assert_true(now_ns - then_ns >= LIMIT_SNAPSHOT_IDLE_NS);
        /* Of a later window, or of a time before: never idle. */
        assert_false(limit_snapshot_idle(&limit_at, rule_fresh(&rule, now_ns + rule.period_ns).a) &&
                     !rule_is_bucket(&rule));
    }
    assert_true(idle > ROUNDS);
}

/* From when on a key is idle, if it was charged at the start: a minute, or what takes longer. */
static void test_a_key_is_idle_after_a_minute_its_refill_or_three_windows(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint64_t limit, period_ns;
        uint64_t full_ns;  /* when the bucket is full again; windows: 0 */
        uint64_t after_ns; /* idle from here on, and no nanosecond earlier; of a window: begin of one */
    } all[] = {{WEIR_TOKEN_BUCKET, 10, SECOND, SECOND, 61 * SECOND + 1},
               {WEIR_TOKEN_BUCKET, 1, 60 * SECOND, 60 * SECOND, 120 * SECOND + 1},
               {WEIR_TOKEN_BUCKET, 1, 100 * SECOND, 100 * SECOND, 200 * SECOND + 1},
               {WEIR_FIXED_WINDOW, 10, SECOND, 0, 62 * SECOND},
               {WEIR_SLIDING_WINDOW, 10, 30 * SECOND, 0, 120 * SECOND},
               {WEIR_SLIDING_WINDOW, 10, 61 * SECOND, 0, 183 * SECOND},
               {WEIR_FIXED_WINDOW, 10, HOUR, 0, 3 * HOUR}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const weir_limit limit = {.algorithm = all[i].algorithm, .limit = all[i].limit, .period_ns = all[i].period_ns};
        const uint64_t start_ns = START_NS / all[i].period_ns * all[i].period_ns;
        const struct rule rule = rule_make(&limit, start_ns - 400 * DAY);
        const struct state s = rule_charge(&rule, rule_fresh(&rule, start_ns), start_ns, all[i].limit);
        const struct limit_snapshot late = limit_snapshot_of(&rule, start_ns + all[i].after_ns - 1);
        const struct limit_snapshot idle = limit_snapshot_of(&rule, start_ns + all[i].after_ns);
        assert_false(limit_snapshot_idle(&late, s.a));
        assert_true(limit_snapshot_idle(&idle, s.a));
        if (all[i].full_ns == 0) { /* up to 64 windows ahead: of a thread with a later clock */
            const struct limit_snapshot now = limit_snapshot_of(&rule, start_ns);
            for (uint64_t ahead = 1; ahead <= 65; ahead++) {
                const struct state later = rule_fresh(&rule, start_ns + ahead * all[i].period_ns);
                assert_int_equal(limit_snapshot_idle(&now, later.a), ahead == 65);
            }
        }
    }
}

static void test_what_has_no_moment(void **state)
{
    (void) state;
    const weir_limit log = {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = SECOND};
    const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND};
    const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND};
    struct rule rule = rule_make(&log, START_NS);
    assert_int_equal(limit_snapshot_of(&rule, START_NS).kind, LIMIT_SNAPSHOT_NONE);
    rule = rule_make(&queue, START_NS);
    assert_int_equal(limit_snapshot_of(&rule, START_NS).kind, LIMIT_SNAPSHOT_NONE);
    rule = rule_make(&bucket, START_NS);
    assert_int_equal(limit_snapshot_of(&rule, START_NS).kind, LIMIT_SNAPSHOT_BUCKET);
    /* Charged by another rate: a snapshot leaves this case to the rule. */
    const struct limit_snapshot limit_at = limit_snapshot_of(&rule, START_NS);
    struct state s = rule_charge(&rule, rule_fresh(&rule, START_NS), START_NS, 1);
    assert_true(limit_snapshot_charge(&limit_at, &s, 0, 1));
    s.b ^= UINT64_C(1) << BUCKET_TOTAL_BITS;
    assert_false(limit_snapshot_charge(&limit_at, &s, 0, 1));
    rule.unit = 0; /* off */
    assert_int_equal(limit_snapshot_of(&rule, START_NS).kind, LIMIT_SNAPSHOT_NONE);
}

/* Costs and waits about the ones that pass. */
static struct queue_request random_request(uint64_t *rng, const struct rule *rule, struct state s, uint64_t now_ns)
{
    const struct queue_request one = {.cost = 1, .max_wait_ns = UINT64_MAX};
    uint64_t wait_ns;
    (void) rule_queue(rule, s, now_ns, &one, &wait_ns);
    const uint64_t waits[] = {0, wait_ns, saturating_sub(wait_ns, 1), UINT64_MAX};
    return (struct queue_request){.cost = draw_cost(rng, rule->limit), .max_wait_ns = waits[random_below(rng, 4)]};
}

static void test_a_queue_snapshot_is_its_rule(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t answers[3] = {0, 0, 0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        const weir_limit limit = random_of(&rng, WEIR_LEAKY_BUCKET);
        const uint64_t start_ns = draw_start_ns(&rng, limit.period_ns);
        const struct rule rule = random_rule(&rng, &limit, start_ns);
        struct queue_snapshot queue;
        if (!queue_snapshot_of(&rule, &queue)) {
            assert_true(rule.tolerance > UINT64_MAX / 4);
            continue;
        }
        uint64_t now_ns = start_ns + random_below(&rng, 1000 * SECOND);
        struct state s = rule_fresh(&rule, now_ns);
        for (int step = 0; step < STEPS; step++) {
            now_ns = random_below(&rng, 3) == 0 ? random_time(&rng, &rule, max_u64(now_ns, start_ns)) : now_ns;
            const struct queue_request request = random_request(&rng, &rule, s, now_ns);
            uint64_t expected_ns;
            const bool accepted = rule_queue(&rule, s, now_ns, &request, &expected_ns);
            struct state mine = s;
            uint64_t wait_ns = 0;
            const enum queue_answer answer =
                queue_snapshot_ask(&queue, &mine, now_ns, request.cost, request.max_wait_ns, &wait_ns);
            answers[answer]++;
            if (answer == QUEUE_UNKNOWN) { /* the origin is a second before the start */
                assert_true(request.cost > rule.limit || now_ns < start_ns - SECOND || now_ns > start_ns + 1500 * DAY ||
                            s.a > UINT64_MAX / 2);
                continue;
            }
            assert_int_equal(answer == QUEUE_ACCEPTED, accepted);
            assert_int_equal(wait_ns, expected_ns);
            const struct state expected = accepted ? rule_charge(&rule, s, now_ns, request.cost) : s;
            assert_true(mine.a == expected.a && mine.b == expected.b);
            s = expected;
        }
    }
    assert_true(answers[QUEUE_ACCEPTED] > ROUNDS && answers[QUEUE_REFUSED] > ROUNDS);
}

static void test_what_a_queue_snapshot_leaves_to_its_rule(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND};
    struct rule rule = rule_make(&limit, START_NS);
    struct queue_snapshot queue = {.unit = 0};
    assert_true(queue_snapshot_of(&rule, &queue));
    uint64_t wait_ns;
    struct state s = rule_fresh(&rule, START_NS);
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS, 11, UINT64_MAX, &wait_ns), QUEUE_UNKNOWN);
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS - 1, 1, UINT64_MAX, &wait_ns), QUEUE_UNKNOWN);
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS, 1, 0, &wait_ns), QUEUE_ACCEPTED);
    s.b ^= UINT64_C(1) << BUCKET_TOTAL_BITS; /* a debt by another rate */
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS, 1, UINT64_MAX, &wait_ns), QUEUE_UNKNOWN);
    /* No debt: whatever the rate was. */
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS + SECOND, 1, 0, &wait_ns), QUEUE_ACCEPTED);
    s.a = UINT64_MAX;
    assert_int_equal(queue_snapshot_ask(&queue, &s, START_NS, 1, UINT64_MAX, &wait_ns), QUEUE_UNKNOWN);
    rule.unit = 0;
    assert_false(queue_snapshot_of(&rule, &queue));
    rule = rule_make(&(weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND}, START_NS);
    assert_false(queue_snapshot_of(&rule, &queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_moment_is_its_rule),
        cmocka_unit_test(test_a_first_charge_is_that_of_a_fresh_state),
        cmocka_unit_test(test_an_idle_key_is_fresh_and_was_for_a_minute),
        cmocka_unit_test(test_a_key_is_idle_after_a_minute_its_refill_or_three_windows),
        cmocka_unit_test(test_what_has_no_moment),
        cmocka_unit_test(test_a_queue_snapshot_is_its_rule),
        cmocka_unit_test(test_what_a_queue_snapshot_leaves_to_its_rule),
    };
    return cmocka_run_group_tests_name("moment", tests, NULL, NULL);
}
