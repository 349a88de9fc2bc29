/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_charge, weir_refund, weir_peek and weir_reserve on a key with a grant, against the same calls in the table. Two
 * limiters get the same calls at the same times. One keeps its handle, so its slots answer what they can. The other one
 * gets a new handle for each call, whose slots are empty. Answers, verdicts, waits and counts must be equal. Under a
 * clock that the test moves.
 *
 * Guards: src/check/charge.c, src/check/refund.c, src/check/reserve.c, src/check/check.c, src/thread/slot.c,
 * src/thread/slot.h, src/thread/slot_word.c, src/thread/slot_word.h
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"
#include "thread/limiter.h"
#include "thread/tick.h"

#define START_NS (UINT64_C(1767225610) * SECOND) /* 2026-01-01, ten seconds into a minute */
#define POLICIES 3
#define KEYS     2
#define ROUNDS   400
#define STEPS    500

static const char *const names[POLICIES] = {"a", "b", "c"};
static const char *const key_names[KEYS] = {"hot", "cold"};

enum call { CHECK, CHARGE, REFUND, PEEK, RESERVE, CALLS };

/* A limiter, and the keys that both limiters have: keys[policy][key]. */
struct side {
    weir *w;
    weir_thread *t;
    weir_key keys[POLICIES][KEYS];
};

static struct {
    struct fake_clock clock;
    struct side slots, table;
    weir_limit limits[POLICIES][WEIR_MAX_LIMITS];
    weir_policy policies[POLICIES];
    bool mild;                /* a round of small costs and wide limits: keys have grants for longer */
    uint64_t by_slots[CALLS]; /* calls that the slots have answered */
    uint64_t step;
} d;

static uint64_t slow_count(const struct side *side)
{
    return load_relaxed(&side->t->shared->slow_count);
}

/* Limits of one policy have different periods. */
static weir_limit random_limit(uint64_t *rng, size_t number)
{
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET};
    const uint64_t drawn_ns = draw_period_ns(rng);
    const uint64_t period_ns = drawn_ns < SECOND ? drawn_ns + number : drawn_ns - number;
    /* A queue has no grants, so a policy with one is rare. */
    weir_limit limit =
        draw_weir_limit(rng, draw_once_in(rng, 40) ? WEIR_LEAKY_BUCKET : draw_one_of(rng, algorithms), period_ns);
    if (number != 0 && limit.calendar != WEIR_CALENDAR_NONE) {
        limit.calendar = WEIR_CALENDAR_NONE;
        limit.period_ns = period_ns;
    }
    if (!d.mild && draw_once_in(rng, 2)) { /* units run out */
        limit.limit = draw_between(rng, 1, 20);
        limit.burst = draw_burst(rng, limit.limit);
        draw_make_valid(&limit);
    }
    return limit;
}

static void random_policies(uint64_t *rng)
{
    for (size_t p = 0; p < POLICIES; p++) {
        const size_t count = random_below(rng, 3) == 0 ? 2 : 1;
        for (size_t i = 0; i < count; i++) {
            d.limits[p][i] = random_limit(rng, i);
        }
        d.policies[p] = (weir_policy){.name = names[p],
                                      .limits = d.limits[p],
                                      .limit_count = count,
                                      .mode = random_below(rng, 5) == 0 ? WEIR_SHADOW : WEIR_ENFORCE};
    }
}

static void set_policies(struct side *side)
{
    weir_error error;
    if (weir_set_policies(side->w, d.policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
    for (size_t p = 0; p < POLICIES; p++) {
        for (size_t k = 0; k < KEYS; k++) {
            side->keys[p][k] =
                weir_make_key(side->w, weir_find_policy(side->w, names[p]), key_names[k], strlen(key_names[k]));
        }
    }
}

static void side_open(struct side *side)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    side->w = open_or_fail(&options);
    side->t = weir_attach(side->w);
    set_policies(side);
}

static void renew_handle(struct side *side)
{
    weir_detach(side->t);
    side->t = weir_attach(side->w);
}

/* A slot rounds the time to the next unused state up by at most a nanosecond. */
static void expect_equal_verdicts(const char *call, const weir_verdict *a, const weir_verdict *b)
{
    if (a->allowed != b->allowed || a->would_deny != b->would_deny || a->key_index != b->key_index ||
        a->limit_index != b->limit_index || a->basis != b->basis || a->limit != b->limit ||
        a->remaining != b->remaining || a->retry_after_ns != b->retry_after_ns || a->fleet_age_ns != b->fleet_age_ns ||
        a->reset_after_ns - b->reset_after_ns + 1 > 2) {
        fail_msg("step %" PRIu64 ", %s: by slots allowed %d, would deny %d, limit %d of %" PRIu64 ", %" PRIu64
                 " left, retry %" PRIu64 ", reset %" PRIu64 "; by the table %d, %d, %d of %" PRIu64 ", %" PRIu64
                 ", %" PRIu64 ", %" PRIu64,
                 d.step, call, a->allowed, a->would_deny, a->limit_index, a->limit, a->remaining, a->retry_after_ns,
                 a->reset_after_ns, b->allowed, b->would_deny, b->limit_index, b->limit, b->remaining,
                 b->retry_after_ns, b->reset_after_ns);
    }
}

/* One call of one side. */
struct play {
    enum call call;
    size_t policy, key;
    uint64_t cost, max_wait_ns;
    bool with_verdict;
};

struct answer {
    bool pass;
    uint64_t wait_ns;
    weir_verdict verdict;
};

static struct answer play(struct side *side, const struct play *play)
{
    struct answer answer = {.pass = true};
    weir_verdict *verdict = play->with_verdict ? &answer.verdict : NULL;
    const weir_key *key = &side->keys[play->policy][play->key];
    switch (play->call) {
    case CHECK:
        answer.pass = weir_check(side->t, key, play->cost, verdict);
        break;
    case CHARGE:
        weir_charge(side->t, key, play->cost);
        break;
    case REFUND:
        weir_refund(side->t, key, play->cost);
        break;
    case PEEK:
        answer.pass = weir_peek(side->t, key, play->cost, verdict);
        break;
    case RESERVE:
        answer.pass = weir_reserve(side->t, key, play->cost, play->max_wait_ns, &answer.wait_ns);
        break;
    case CALLS:
        break;
    }
    return answer;
}

static void play_both(const struct play *both)
{
    static const char *const calls[CALLS] = {"check", "charge", "refund", "peek", "reserve"};
    const uint64_t before = slow_count(&d.slots);
    const struct answer by_slots = play(&d.slots, both);
    d.by_slots[both->call] += slow_count(&d.slots) == before && both->cost != 0;
    renew_handle(&d.table);
    const struct answer by_table = play(&d.table, both);
    expect_equal_verdicts(calls[both->call], &by_slots.verdict, &by_table.verdict);
    if (by_slots.pass != by_table.pass || by_slots.wait_ns != by_table.wait_ns) {
        fail_msg("step %" PRIu64 ", %s of %" PRIu64 ": by slots %d, wait %" PRIu64 "; by the table %d, %" PRIu64,
                 d.step, calls[both->call], both->cost, by_slots.pass, by_slots.wait_ns, by_table.pass,
                 by_table.wait_ns);
    }
}

static uint64_t random_cost(uint64_t *rng)
{
    static const uint64_t most[] = {2, 2, 2, 2, 3, 5, 5, 10, 40, 100000};
    return random_below(rng, most[random_below(rng, d.mild ? 7 : 10)]) + (random_below(rng, 8) != 0);
}

static void step_call(uint64_t *rng, size_t policy, size_t key)
{
    const struct play one = {.call = (enum call) random_below(rng, CALLS),
                             .policy = policy,
                             .key = key,
                             .cost = random_below(rng, d.mild ? 200 : 50) == 0 ? UINT64_MAX : random_cost(rng),
                             .max_wait_ns = random_below(rng, 2) == 0 ? 0 : random_below(rng, 2 * SECOND),
                             .with_verdict = random_below(rng, 4) != 0};
    play_both(&one);
}

/* Single checks, so that there are grants. */
static void step_checks(uint64_t *rng, size_t policy)
{
    const uint64_t count = random_below(rng, 60);
    for (uint64_t i = 0; i < count; i++) {
        play_both(&(struct play){.call = CHECK, .policy = policy, .cost = 1, .with_verdict = true});
    }
}

static void step_time(uint64_t *rng)
{
    /* Whole ticks: an answer from a slot may be a tick old. */
    fake_clock_advance(&d.clock,
                       d.slots.t->limiter->tick_ns * (1 + random_below(rng, random_below(rng, 4) == 0 ? 200 : 2)));
    renew_handle(&d.table);
    assert_true(weir_poll(d.slots.w) >= 0 && weir_poll(d.table.w) >= 0);
}

static bool has_log(size_t policy)
{
    bool has = false;
    for (size_t i = 0; i < d.policies[policy].limit_count; i++) {
        has = has || d.limits[policy][i].algorithm == WEIR_SLIDING_LOG;
    }
    return has;
}

/* An override of a key, or none. How many units of the past a log keeps under a lower limit is not said. */
static void step_override(uint64_t *rng)
{
    static const char *const values[] = {"allow", "deny", NULL, "7", "500 20000"};
    const size_t policy = random_below(rng, POLICIES);
    char name[32];
    (void) snprintf(name, sizeof(name), "%s:%s", names[policy], key_names[random_below(rng, KEYS)]);
    const char *value = values[random_below(rng, has_log(policy) ? 3 : 5)];
    renew_handle(&d.table);
    const int set = weir_set_override(d.slots.w, name, value, NULL);
    assert_int_equal(weir_set_override(d.table.w, name, value, NULL), set);
}

static void step_policies(uint64_t *rng)
{
    renew_handle(&d.table);
    if (random_below(rng, 2) == 0) { /* other numbers */
        for (size_t p = 0; p < POLICIES; p++) {
            for (size_t i = 0; i < d.policies[p].limit_count; i++) {
                const bool log = d.limits[p][i].algorithm == WEIR_SLIDING_LOG;
                d.limits[p][i].limit = log ? d.limits[p][i].limit : 1 + random_below(rng, 2 * d.limits[p][i].limit);
                draw_make_valid(&d.limits[p][i]);
            }
        }
    }
    set_policies(&d.slots);
    set_policies(&d.table);
}

static void step_reset(size_t policy, size_t key)
{
    renew_handle(&d.table);
    assert_int_equal(weir_reset(d.slots.w, &d.slots.keys[policy][key]), 0);
    assert_int_equal(weir_reset(d.table.w, &d.table.keys[policy][key]), 0);
}

/* One step: most are calls on one key of one policy. */
static void step_any(uint64_t *rng, size_t hot)
{
    const size_t policy = random_below(rng, 10) == 0 ? random_below(rng, POLICIES) : hot;
    const size_t key = random_below(rng, 15) == 0;
    switch (random_below(rng, 50)) {
    case 0:
    case 1:
        step_time(rng);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
    case 9:
    case 10:
        step_checks(rng, policy);
        break;
    case 6:
        step_reset(policy, key);
        break;
    case 7:
        if (random_below(rng, 4) == 0) {
            step_override(rng);
        }
        break;
    case 8:
        if (random_below(rng, 4) == 0) {
            step_policies(rng);
        }
        break;
    default:
        step_call(rng, policy, key);
        break;
    }
}

/* With the slots settled too, every key stands as by the table. */
static void expect_equal_keys(void)
{
    renew_handle(&d.slots);
    for (size_t p = 0; p < POLICIES; p++) {
        for (size_t k = 0; k < KEYS; k++) {
            play_both(&(struct play){.call = PEEK, .policy = p, .key = k, .cost = 1, .with_verdict = true});
        }
    }
    weir_stats a;
    weir_stats b;
    weir_get_stats(d.slots.w, &a);
    weir_get_stats(d.table.w, &b);
    assert_int_equal(a.allowed_count, b.allowed_count);
    assert_int_equal(a.denied_count, b.denied_count);
    assert_int_equal(a.would_deny_count, b.would_deny_count);
    assert_int_equal(a.late_units, 0);
}

static void test_slots_answer_all_calls_as_the_table_does(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    memset(d.by_slots, 0, sizeof(d.by_slots));
    for (int round = 0; round < ROUNDS; round++) {
        fake_clock_init(&d.clock, START_NS);
        d.mild = round % 2 == 0;
        random_policies(&rng);
        side_open(&d.slots);
        side_open(&d.table);
        const size_t hot = random_below(&rng, POLICIES);
        for (d.step = 0; d.step < STEPS; d.step++) {
            step_any(&rng, hot);
        }
        expect_equal_keys();
        weir_close(d.slots.w);
        weir_close(d.table.w);
    }
    for (size_t call = 0; call < CALLS; call++) {
        print_message("# by slots: %" PRIu64 "\n", d.by_slots[call]);
        assert_true(d.by_slots[call] > ROUNDS * STEPS / 100);
    }
}

/* A limit of a kind that has grants, under which nothing refills while a test runs. */
static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 30000, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 30000, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 30000, .period_ns = HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 30000, .period_ns = 1000 * HOUR},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void open_limits(const weir_limit *limits, size_t count)
{
    fake_clock_init(&d.clock, START_NS);
    for (size_t p = 0; p < POLICIES; p++) {
        d.policies[p] = (weir_policy){.name = names[p], .limits = limits, .limit_count = count};
    }
    side_open(&d.slots);
}

static uint64_t left(void)
{
    weir_verdict v;
    renew_handle(&d.slots);
    (void) weir_peek(d.slots.t, &d.slots.keys[0][0], 1, &v);
    return v.remaining;
}

static void test_a_hot_key_is_charged_refunded_reserved_and_peeked_by_its_slot(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        open_limits(&kinds[i], 1);
        weir_thread *t = d.slots.t;
        const weir_key *key = &d.slots.keys[0][0];
        for (int n = 0; n < 400; n++) {
            assert_true(weir_check(t, key, 1, NULL));
        }
        const uint64_t before = slow_count(&d.slots);
        for (int n = 0; n < 20; n++) {
            uint64_t wait_ns = 1;
            weir_verdict v;
            weir_charge(t, key, 3);
            assert_true(weir_reserve(t, key, 2, 0, &wait_ns) && wait_ns == 0);
            wait_ns = 1;
            assert_true(weir_reserve(t, key, 0, 0, &wait_ns) && wait_ns == 0);
            assert_true(weir_peek(t, key, 0, &v) && v.remaining == 30000 - 405);
            weir_refund(t, key, 5);
            assert_true(weir_peek(t, key, 1, &v) && v.remaining == 30000 - 400);
        }
        assert_int_equal(slow_count(&d.slots), before);
        assert_int_equal(left(), 30000 - 400);
        weir_close(d.slots.w);
    }
}

static void test_pairs_of_a_check_and_a_refund_keep_their_grant(void **state)
{
    (void) state;
    const weir_limit two[] = {kinds[0], kinds[3]};
    for (size_t i = 0; i <= KINDS; i++) {
        open_limits(i < KINDS ? &kinds[i] : two, i < KINDS ? 1 : 2);
        for (int n = 0; n < 1000; n++) {
            assert_true(weir_check(d.slots.t, &d.slots.keys[0][0], 1, NULL));
            weir_refund(d.slots.t, &d.slots.keys[0][0], 1);
        }
        assert_in_range(slow_count(&d.slots), 1, 100);
        assert_int_equal(left(), 30000);
        weir_close(d.slots.w);
    }
}

static void test_a_key_that_is_only_charged_or_reserved_gets_grants(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        const bool plain = kinds[i].algorithm != WEIR_SLIDING_LOG;
        open_limits(&kinds[i], 1);
        for (int n = 0; n < 1000; n++) {
            if (n % 2 == 0) {
                weir_charge(d.slots.t, &d.slots.keys[0][0], 7);
            } else {
                assert_true(weir_reserve(d.slots.t, &d.slots.keys[0][0], 7, 0, NULL));
            }
        }
        assert_in_range(slow_count(&d.slots), 1, plain ? 100 : 1000);
        assert_int_equal(left(), 30000 - 7000);
        weir_close(d.slots.w);
    }
}

/* Whatever the order, a refund never gives back more than the node has taken. */
static void test_a_refund_beyond_a_grant_gives_back_what_was_taken_before_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        open_limits(&kinds[i], 1);
        weir_charge(d.slots.t, &d.slots.keys[0][0], 500);
        for (int n = 0; n < 300; n++) {
            assert_true(weir_check(d.slots.t, &d.slots.keys[0][0], 1, NULL));
        }
        weir_refund(d.slots.t, &d.slots.keys[0][0], 700);
        weir_verdict v;
        assert_true(weir_check(d.slots.t, &d.slots.keys[0][0], 1, &v) && v.remaining == 30000 - 101);
        weir_refund(d.slots.t, &d.slots.keys[0][0], UINT64_MAX);
        assert_true(weir_peek(d.slots.t, &d.slots.keys[0][0], 1, &v));
        assert_true(v.remaining == 30000 && v.reset_after_ns == 0);
        assert_int_equal(left(), 30000);
        weir_close(d.slots.w);
    }
}

/* A slot does not know what other threads have charged since its grant: it counts no more than the limit as left. */
static void test_a_refund_of_another_threads_units_leaves_no_more_than_the_limit(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        open_limits(&kinds[i], 1);
        weir_thread *other = weir_attach(d.slots.w);
        const weir_key *key = &d.slots.keys[0][0];
        for (int n = 0; n < 300; n++) {
            assert_true(weir_check(d.slots.t, key, 1, NULL));
        }
        assert_true(weir_check(other, key, 1000, NULL));
        weir_refund(d.slots.t, key, 1300);
        weir_verdict v;
        assert_true(weir_check(d.slots.t, key, 1, &v) && v.remaining < 30000);
        weir_detach(other);
        assert_int_equal(left(), 30000 - 1);
        weir_close(d.slots.w);
    }
}

static void set_limit(const weir_limit *limit)
{
    for (size_t p = 0; p < POLICIES; p++) {
        d.policies[p] = (weir_policy){.name = names[p], .limits = limit, .limit_count = 1};
    }
    set_policies(&d.slots);
}

/* A refund comes between the publication of a policy set and its epoch: the slot's cell is of the limit before. */
static void test_a_refund_leaves_a_grant_of_the_policy_set_before(void **state)
{
    (void) state;
    open_limits(&kinds[0], 1);
    struct tick_line *line = d.slots.t->line;
    const uint32_t epoch = load_relaxed(&line->epoch);
    const weir_key *key = &d.slots.keys[0][0];
    weir_charge(d.slots.t, key, 500);
    for (int n = 0; n < 300; n++) {
        assert_true(weir_check(d.slots.t, key, 1, NULL));
    }
    set_limit(&kinds[3]);
    store_relaxed(&line->epoch, epoch);
    weir_refund(d.slots.t, key, 700); /* of the new limit, which has counted nothing */
    set_limit(&kinds[0]);
    assert_int_equal(left(), 30000 - 800);
    weir_close(d.slots.w);
}

/* Another thread takes the grant back. What the first one used of it is counted, and can be refunded. */
static void test_a_refund_finds_its_grant_taken_back(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        open_limits(&kinds[i], 1);
        weir_thread *other = weir_attach(d.slots.w);
        const weir_key *key = &d.slots.keys[0][0];
        for (int n = 0; n < 300; n++) {
            assert_true(weir_check(d.slots.t, key, 1, NULL));
        }
        assert_true(weir_check(other, key, 29700, NULL)); /* all that is left */
        assert_false(weir_check(other, key, 1, NULL));
        weir_refund(d.slots.t, key, 10);
        assert_true(weir_check(other, key, 10, NULL)); /* its denial is over */
        assert_false(weir_check(d.slots.t, key, 1, NULL));
        weir_refund(other, key, UINT64_MAX);
        weir_detach(other);
        assert_int_equal(left(), 30000);
        weir_close(d.slots.w);
    }
}

static void test_a_refund_of_a_denied_key_leaves_the_count_of_denied_units(void **state)
{
    (void) state;
    for (size_t i = 0; i < KINDS; i++) {
        open_limits(&kinds[i], 1);
        const weir_key *key = &d.slots.keys[0][0];
        for (int n = 0; n < 300; n++) { /* there was a grant in this epoch */
            assert_true(weir_check(d.slots.t, key, 1, NULL));
        }
        weir_charge(d.slots.t, key, 29700);
        for (int n = 0; n < 20; n++) {
            assert_false(weir_check(d.slots.t, key, 1, NULL));
        }
        weir_refund(d.slots.t, key, 1);
        assert_true(weir_check(d.slots.t, key, 1, NULL));
        renew_handle(&d.slots);
        for (int n = 0; n < 10; n++) { /* until the denials are collected */
            fake_clock_advance(&d.clock, 100 * MILLISECOND);
            assert_true(weir_poll(d.slots.w) >= 0);
        }
        weir_stats stats;
        weir_get_stats(d.slots.w, &stats);
        assert_int_equal(stats.denied_units, 20);
        weir_close(d.slots.w);
    }
}

/* Time moves within an epoch, over the end of a window: the latest units go first, and those are the other thread's. */
static void test_a_refund_in_a_later_window_than_the_grant_is_decided_in_the_table(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 30000, .period_ns = 60 * SECOND};
    for (uint64_t later = 0; later < 2; later++) {
        open_limits(&limit, 1);
        struct limiter *limiter = d.slots.t->limiter;
        weir_thread *other = weir_attach(d.slots.w);
        const weir_key *key = &d.slots.keys[0][0];
        for (int n = 0; n < 600; n++) {
            assert_true(weir_check(d.slots.t, key, 1, NULL));
        }
        tick_raise(limiter, d.clock.monotonic_ns + (later == 1 ? 80 : 1) * SECOND); /* half a window on */
        assert_true(weir_check(other, key, 100, NULL));
        weir_refund(d.slots.t, key, 50);
        weir_detach(other);
        assert_int_equal(left(), 30000 - (later == 1 ? 50 + 300 : 650));
        weir_close(d.slots.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_answer_all_calls_as_the_table_does),
        cmocka_unit_test(test_a_hot_key_is_charged_refunded_reserved_and_peeked_by_its_slot),
        cmocka_unit_test(test_pairs_of_a_check_and_a_refund_keep_their_grant),
        cmocka_unit_test(test_a_key_that_is_only_charged_or_reserved_gets_grants),
        cmocka_unit_test(test_a_refund_beyond_a_grant_gives_back_what_was_taken_before_it),
        cmocka_unit_test(test_a_refund_of_another_threads_units_leaves_no_more_than_the_limit),
        cmocka_unit_test(test_a_refund_leaves_a_grant_of_the_policy_set_before),
        cmocka_unit_test(test_a_refund_finds_its_grant_taken_back),
        cmocka_unit_test(test_a_refund_of_a_denied_key_leaves_the_count_of_denied_units),
        cmocka_unit_test(test_a_refund_in_a_later_window_than_the_grant_is_decided_in_the_table),
    };
    return cmocka_run_group_tests_name("unit/check/granted_calls", tests, NULL, NULL);
}
