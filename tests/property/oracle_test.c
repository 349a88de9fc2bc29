/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library against oracles written as plainly as possible, over millions of random steps under a clock that the test
 * moves: every algorithm and every call, across window boundaries, with long silences, with the wall clock set back and
 * forth, with costs up to beyond the limit, policies of one to four limits that change while keys are in use, one
 * thread handle or several that hold grants from one another.
 *
 * Guards: src/algorithm/rule.c, src/algorithm/window.c, src/algorithm/bucket.c, src/algorithm/history.c,
 * src/algorithm/calendar.c, src/check/decide.c, src/check/claim.c, src/check/refund.c, src/check/reserve.c,
 * src/check/reserved_charge.c, src/check/check_all.c, src/check/direct_charge.c, src/check/renew_grant.c,
 * src/thread/policy_snapshot.c, src/thread/settle.c, src/thread/slot.c, src/thread/tick.c, src/base/numbers.h
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "property/oracle.h"
#include "support/support.h"

#define POLICIES 2
#define HANDLES  3
#define ROUNDS   (SLOWED ? 150U : 400U)
#define STEPS    5000

/*
 * A round ends within so long, and no bucket owes more: a bucket's time ends nine years after its rule began, which is
 * up to two years before the start. No window counts more, as a count ends at 2^44.
 */
#define LENGTH_MOST_NS (UINT64_C(4) * 365 * 24 * HOUR)
#define OWED_MOST      ((wide) 3 * 365 * 24 * HOUR * 64)
#define COUNT_MOST     (3 * WEIR_MAX_UNITS)

/* The oracle looks at every unit of a log, so a log has few. */
#define LOG_MOST 1000

static uint64_t period_of(const weir_limit *limit)
{
    return limit->calendar == WEIR_CALENDAR_NONE ? limit->period_ns
                                                 : (limit->calendar == WEIR_CALENDAR_DAY ? 24 : 31 * 24) * HOUR;
}

/* weir refuses two limits of one algorithm and one period. */
static bool limits_clash(const struct oracle *o, const weir_limit *limit, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (o->limits[i].algorithm == limit->algorithm && period_of(&o->limits[i]) == period_of(limit)) {
            return true;
        }
    }
    return false;
}

static void keep_log_short(weir_limit *limit)
{
    if (limit->algorithm == WEIR_SLIDING_LOG && limit->limit > LOG_MOST) {
        limit->limit = LOG_MOST;
    }
}

static void random_policy(uint64_t *rng, struct oracle *o, uint64_t now_ns)
{
    memset(o, 0, sizeof(*o));
    o->limit_count = 1 + random_below(rng, WEIR_MAX_LIMITS);
    for (size_t i = 0; i < o->limit_count; i++) {
        do {
            o->limits[i] = draw_weir_limit(rng, draw_algorithm(rng), 0);
        } while (limits_clash(o, &o->limits[i], i));
        keep_log_short(&o->limits[i]);
        for (size_t key = 0; key < KEYS; key++) {
            o->states[key][i].seen_ns = now_ns;
        }
    }
}

/* Whether what a key owes by one limit stays within what is counted, with `more` units on top. */
static bool owed_is_counted(const struct oracle *o, const weir_limit *limit, size_t i, size_t key, uint64_t more)
{
    const struct oracle_state *s = &o->states[key][i];
    const wide owed = s->unit != 0 ? s->owed * unit_of(limit) / s->unit : 0;
    return is_bucket(limit) ? owed + (wide) more * unit_of(limit) <= OWED_MOST : s->count + more <= COUNT_MOST;
}

static bool all_is_counted(const struct oracle *o, size_t key, uint64_t more)
{
    bool counted = true;
    for (size_t i = 0; i < o->limit_count; i++) {
        counted = counted && owed_is_counted(o, &o->limits[i], i, key, more);
    }
    return counted;
}

/* Other numbers; algorithms and periods stay. */
static void change_policy(uint64_t *rng, struct oracle *o)
{
    for (size_t i = 0; i < o->limit_count; i++) {
        weir_limit limit = o->limits[i];
        const uint64_t factor = 1 + random_below(rng, 3);
        const bool more = random_below(rng, 2) == 0;
        limit.limit = more ? limit.limit * factor : (limit.limit + factor - 1) / factor;
        draw_make_valid(&limit);
        limit.burst = is_bucket(&limit) && limit.burst != 0 ? draw_burst(rng, limit.limit) : 0;
        draw_make_valid(&limit);
        keep_log_short(&limit);
        bool counted = true;
        for (size_t key = 0; key < KEYS; key++) {
            counted = counted && owed_is_counted(o, &limit, i, key, 0);
        }
        o->limits[i] = counted ? limit : o->limits[i];
    }
}

/* Some time passes: mostly little, at times to the edge of a window, now and then a lot. */
static uint64_t random_pause(uint64_t *rng, const struct oracle *o, uint64_t now_ns)
{
    const weir_limit *limit = &o->limits[random_below(rng, o->limit_count)];
    uint64_t start_ns;
    uint64_t end_ns;
    (void) window_of(limit, now_ns, &start_ns, &end_ns);
    /* A round has no time for many pauses of weeks. */
    const uint64_t most_ns = limit->period_ns == 0 ? SECOND : limit->period_ns < HOUR ? limit->period_ns : HOUR;
    switch (random_below(rng, 10)) {
    case 0:
        return end_ns - now_ns;
    case 1:
        return end_ns - now_ns - 1;
    case 2:
        return period_of(limit) < 24 * HOUR ? random_below(rng, 3 * period_of(limit))
                                            : draw_magnitude(rng, 1, 3 * period_of(limit));
    case 3:
        return draw_once_in(rng, 100) ? random_below(rng, 1000000 * SECOND) : 1;
    case 4:
        return draw_magnitude(rng, 1, period_of(limit));
    default:
        return random_below(rng, most_ns / 4 + 1);
    }
}

static uint64_t random_cost(uint64_t *rng, const struct oracle *o)
{
    return draw_once_in(rng, 20) ? 0 : draw_cost(rng, at_once(&o->limits[0])); /* 0 counts as 1 */
}

/* The least that any limit lets pass at once. */
static uint64_t most_at_once(const struct oracle *o)
{
    uint64_t most = UINT64_MAX;
    for (size_t i = 0; i < o->limit_count; i++) {
        most = at_once(&o->limits[i]) < most ? at_once(&o->limits[i]) : most;
    }
    return most;
}

/* One key of a request. */
struct asked {
    const struct oracle *oracle;
    size_t key;
    uint64_t cost; /* at least 1 */
};

static bool all_fit(const struct asked *asked, size_t count, uint64_t now_ns)
{
    for (size_t i = 0; i < count; i++) {
        if (oracle_room_of_all(asked[i].oracle, asked[i].key, now_ns) < asked[i].cost) {
            return false;
        }
    }
    return true;
}

/* A client that waits for retry_after_ns is admitted, and not a nanosecond earlier. */
static void check_retry(const struct asked *asked, size_t count, const weir_verdict *v, uint64_t now_ns)
{
    for (size_t i = 0; i < count; i++) {
        if (asked[i].cost > most_at_once(asked[i].oracle)) {
            assert_int_equal(v->retry_after_ns, NEVER);
            return;
        }
    }
    assert_in_range(v->retry_after_ns, 1, NEVER - 1);
    if (v->retry_after_ns > 4000 * 24 * HOUR) {
        return; /* deep in debt: beyond what the oracle's clock goes */
    }
    assert_true(all_fit(asked, count, now_ns + v->retry_after_ns));
    assert_false(all_fit(asked, count, now_ns + v->retry_after_ns - 1));
}

/* Everything one round works with. */
struct play {
    uint64_t *rng;
    struct fake_clock clock;
    uint64_t now_ns; /* what fleet time must be, whatever the wall clock does */
    uint64_t end_ns; /* no time passes from then on */
    weir *w;
    struct oracle oracles[POLICIES];
    weir_policy_id ids[POLICIES];
    weir_key keys[POLICIES][KEYS];
    weir_thread *threads[HANDLES];
    size_t handles;
    bool exact; /* one handle: what remains is known exactly */
    int step;
};

static weir_thread *any_thread(struct play *p)
{
    return p->threads[random_below(p->rng, p->handles)];
}

static void set_policies(struct play *p)
{
    const weir_policy policies[POLICIES] = {
        {.name = "p", .limits = p->oracles[0].limits, .limit_count = p->oracles[0].limit_count},
        {.name = "q", .limits = p->oracles[1].limits, .limit_count = p->oracles[1].limit_count}};
    weir_error error;
    if (weir_set_policies(p->w, policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
    p->ids[0] = weir_find_policy(p->w, "p");
    p->ids[1] = weir_find_policy(p->w, "q");
}

static void play_check(struct play *p, struct oracle *o, size_t policy, bool peek)
{
    const size_t key = random_below(p->rng, KEYS);
    const uint64_t cost = random_cost(p->rng, o);
    const uint64_t asked = cost != 0 ? cost : 1;
    weir_thread *t = any_thread(p);
    weir_verdict v;
    const weir_key *k = &p->keys[policy][key];
    struct oracle_state before[WEIR_MAX_LIMITS];
    memcpy(before, o->states[key], sizeof(before));
    oracle_meet(o, key, p->now_ns);
    const bool allowed = peek ? weir_peek(t, k, cost, &v) : weir_check(t, k, cost, &v);
    const uint64_t room = oracle_room_of_all(o, key, p->now_ns);
    if (allowed != (room >= asked)) {
        fail_msg("step %d: cost %" PRIu64 " with room for %" PRIu64 " was %s", p->step, cost, room,
                 allowed ? "allowed" : "denied");
    }
    assert_int_equal(v.allowed, allowed);
    if (allowed && !peek) {
        oracle_take(o, key, cost, p->now_ns);
    }
    if (!allowed && p->exact) {
        check_retry(&(struct asked){o, key, asked}, 1, &v, p->now_ns);
    }
    const uint64_t left = oracle_room_of_all(o, key, p->now_ns);
    /* With several handles a hit cannot know what the others took since its grant. */
    if (p->exact && v.remaining != left) {
        fail_msg("step %d: %s cost %" PRIu64 " (%s): %" PRIu64 " remain, by the oracle %" PRIu64, p->step,
                 peek ? "peek" : "check", cost, allowed ? "allowed" : "denied", v.remaining, left);
    }
    assert_true(v.remaining <= v.limit);
    assert_true(v.limit_index < o->limit_count);
    if (peek) {
        memcpy(o->states[key], before, sizeof(before)); /* the bucket goes on at the rate that it had */
    }
}

static void play_all(struct play *p)
{
    weir_key keys[4];
    uint64_t costs[4];
    struct asked asked[4];
    const size_t count = 1 + random_below(p->rng, 4);
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t policy = random_below(p->rng, POLICIES);
        const size_t key = random_below(p->rng, KEYS);
        keys[i] = p->keys[policy][key];
        costs[i] = draw_cost(p->rng, at_once(&p->oracles[policy].limits[0]));
        oracle_meet(&p->oracles[policy], key, p->now_ns);
        size_t same = 0;
        while (same < distinct && (asked[same].oracle != &p->oracles[policy] || asked[same].key != key)) {
            same++;
        }
        if (same < distinct) {
            asked[same].cost += costs[i];
        } else {
            asked[distinct++] = (struct asked){&p->oracles[policy], key, costs[i]};
        }
    }
    weir_verdict v;
    const bool fit = all_fit(asked, distinct, p->now_ns);
    const bool allowed = weir_check_all(any_thread(p), keys, costs, count, &v);
    if (allowed != fit) {
        fail_msg("step %d: %zu keys that %s were %s", p->step, count, fit ? "fit" : "do not fit",
                 allowed ? "allowed" : "denied");
    }
    assert_true(v.key_index < count);
    if (!allowed && p->exact) {
        check_retry(asked, distinct, &v, p->now_ns);
    }
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < distinct && allowed; i++) {
        struct oracle *o = asked[i].oracle == &p->oracles[0] ? &p->oracles[0] : &p->oracles[1];
        oracle_take(o, asked[i].key, asked[i].cost, p->now_ns);
        const uint64_t left = oracle_room_of_all(o, asked[i].key, p->now_ns);
        least = left < least ? left : least;
    }
    if (allowed && p->exact) {
        assert_int_equal(v.remaining, least);
    }
}

static void play_reserve(struct play *p, struct oracle *o, size_t policy)
{
    static const uint64_t patience[] = {0, MILLISECOND, 100 * MILLISECOND, 10 * SECOND, NEVER};
    const size_t key = random_below(p->rng, KEYS);
    const uint64_t cost = draw_cost(p->rng, at_once(&o->limits[0]));
    const uint64_t max_wait_ns = patience[random_below(p->rng, 5)];
    uint64_t wait_ns = 12345;
    if (!all_is_counted(o, key, cost)) {
        return; /* one reservation after another, each with a longer wait */
    }
    oracle_meet(o, key, p->now_ns);
    const uint64_t expected = oracle_wait(o, key, cost, p->now_ns);
    const bool due = expected != NEVER && expected <= max_wait_ns;
    const bool taken = weir_reserve(any_thread(p), &p->keys[policy][key], cost, max_wait_ns, &wait_ns);
    if (taken != due || (taken && wait_ns != expected)) {
        fail_msg("step %d: a reservation of %" PRIu64 " units was %s with %" PRIu64 " ns, by the oracle %" PRIu64,
                 p->step, cost, taken ? "taken" : "refused", wait_ns, expected);
    }
    if (taken) {
        oracle_take(o, key, cost, p->now_ns);
    } else {
        assert_true(wait_ns > 0);
    }
}

/* A charge of more than a log remembers is its own test: here it stays within. */
static uint64_t charge_room(const struct oracle *o, size_t key, uint64_t now_ns)
{
    uint64_t room = UINT64_MAX;
    for (size_t i = 0; i < o->limit_count; i++) {
        if (o->limits[i].algorithm == WEIR_SLIDING_LOG) {
            const uint64_t r = oracle_room(&o->limits[i], o->states[key][i], now_ns);
            room = r < room ? r : room;
        }
    }
    return room;
}

static void play_adjust(struct play *p, struct oracle *o, size_t policy, uint64_t kind)
{
    const size_t key = random_below(p->rng, KEYS);
    uint64_t cost = draw_cost(p->rng, at_once(&o->limits[0]));
    const weir_key *k = &p->keys[policy][key];
    if (kind == 0) {
        weir_refund(any_thread(p), k, cost);
        oracle_refund(o, key, cost, p->now_ns);
    } else if (kind == 1) {
        const uint64_t room = charge_room(o, key, p->now_ns);
        const uint64_t most = 3 * most_at_once(o);
        cost = cost < room ? cost : room;
        cost = cost < most ? cost : most;
        cost = all_is_counted(o, key, cost) ? cost : 0;
        weir_charge(any_thread(p), k, cost);
        if (cost != 0) {
            oracle_take(o, key, cost < WEIR_MAX_UNITS ? cost : WEIR_MAX_UNITS, p->now_ns);
        }
    } else {
        assert_int_equal(weir_reset(p->w, k), 0);
        oracle_refund(o, key, UINT64_MAX, p->now_ns);
        for (size_t i = 0; i < o->limit_count; i++) {
            o->states[key][i].owed = 0;
        }
    }
}

static void play_step(struct play *p)
{
    struct oracle *o = &p->oracles[random_below(p->rng, POLICIES)];
    const size_t policy = (size_t) (o - p->oracles);
    if (random_below(p->rng, 20) == 0) {
        const uint64_t left_ns = p->end_ns - p->now_ns;
        uint64_t pause_ns = random_pause(p->rng, o, p->now_ns);
        pause_ns = pause_ns < left_ns ? pause_ns : left_ns;
        fake_clock_advance(&p->clock, pause_ns);
        p->now_ns += pause_ns;
        if (random_below(p->rng, 50) == 0) {
            p->clock.wall_ns = random_below(p->rng, 2 * p->end_ns); /* the host's clock is set */
        }
        assert_true(weir_poll(p->w) >= 0);
    }
    if (random_below(p->rng, 200) == 0) {
        change_policy(p->rng, o);
        set_policies(p);
    }
    switch (random_below(p->rng, 30)) {
    case 0:
    case 1:
        play_check(p, o, policy, true);
        break;
    case 2:
    case 3:
    case 4:
        play_all(p);
        break;
    case 5:
        play_reserve(p, o, policy);
        break;
    case 6:
    case 7:
        play_adjust(p, o, policy, 0);
        break;
    case 8:
        play_adjust(p, o, policy, random_below(p->rng, 10) == 0 ? 2 : 1);
        break;
    default:
        play_check(p, o, policy, false);
    }
}

static void one_round(uint64_t *rng, size_t handles)
{
    struct play p = {.rng = rng, .handles = handles, .exact = handles == 1};
    fake_clock_init(&p.clock, draw_start_ns(rng, draw_period_ns(rng)));
    p.now_ns = p.clock.wall_ns;
    p.end_ns = p.now_ns + LENGTH_MOST_NS;
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &p.clock.clock;
    options.max_log_units = 100000;
    p.w = open_or_fail(&options);
    random_policy(rng, &p.oracles[0], p.now_ns);
    random_policy(rng, &p.oracles[1], p.now_ns);
    set_policies(&p);
    for (size_t i = 0; i < handles; i++) {
        p.threads[i] = weir_attach(p.w);
        assert_non_null(p.threads[i]);
    }
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t i = 0; i < KEYS; i++) {
            p.keys[policy][i] = weir_make_key(p.w, p.ids[policy], &"abc"[i], 1);
        }
    }
    for (p.step = 0; p.step < STEPS; p.step++) {
        play_step(&p);
    }
    weir_close(p.w);
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t key = 0; key < KEYS; key++) {
            for (size_t i = 0; i < WEIR_MAX_LIMITS; i++) {
                free(p.oracles[policy].states[key][i].log.times);
            }
        }
    }
}

static void test_one_thread_agrees_with_the_oracle(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(ROUNDS); round++) {
        one_round(&rng, 1);
    }
}

static void test_interleaved_handles_agree_with_the_oracle(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(ROUNDS); round++) {
        one_round(&rng, HANDLES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread_agrees_with_the_oracle),
        cmocka_unit_test(test_interleaved_handles_agree_with_the_oracle),
    };
    return cmocka_run_group_tests_name("property/oracle", tests, NULL, NULL);
}
