/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library against oracles written as plainly as possible, over millions of random steps under a clock that the test
 * moves: across window boundaries, with long silences, with the wall clock set back and forth, with costs up to beyond
 * the limit, policies of one to four limits, one thread handle or several that hold grants from one another.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"

#define KEYS     3
#define HANDLES  3
#define ROUNDS   400
#define STEPS    5000
#define START_NS (UINT64_C(1760000000) * SECOND)

__extension__ typedef unsigned __int128 wide;

/* What one key has used of one limit. */
struct oracle_state {
    uint64_t window, count, previous; /* windows */
    wide tokens;                      /* bucket: units times the time one takes to refill, in 1/64 ns */
    uint64_t filled_ns;               /* bucket: when `tokens` was right */
};

struct oracle {
    weir_limit limits[WEIR_MAX_LIMITS];
    size_t limit_count;
    struct oracle_state states[KEYS][WEIR_MAX_LIMITS];
};

/* Time one unit takes to refill, in 1/64 ns, rounded up as documented. */
static uint64_t unit_of(const weir_limit *limit)
{
    return (uint64_t) (((wide) limit->period_ns * 64 + limit->limit - 1) / limit->limit);
}

static uint64_t burst_of(const weir_limit *limit)
{
    return limit->burst != 0 ? limit->burst : limit->limit;
}

/* Lets time pass for one state. */
static struct oracle_state aged(const weir_limit *limit, struct oracle_state s, uint64_t now_ns)
{
    if (limit->algorithm == WEIR_TOKEN_BUCKET) {
        const wide full = (wide) burst_of(limit) * unit_of(limit);
        s.tokens += (wide) (now_ns - s.filled_ns) * 64;
        s.tokens = s.tokens > full ? full : s.tokens;
        s.filled_ns = now_ns;
        return s;
    }
    const uint64_t window = now_ns / limit->period_ns;
    if (window != s.window) {
        s.previous = window == s.window + 1 ? s.count : 0;
        s.count = 0;
        s.window = window;
    }
    return s;
}

/* Units that fit now. */
static uint64_t oracle_room(const weir_limit *limit, struct oracle_state s, uint64_t now_ns)
{
    s = aged(limit, s, now_ns);
    if (limit->algorithm == WEIR_TOKEN_BUCKET) {
        return (uint64_t) (s.tokens / unit_of(limit));
    }
    uint64_t used = s.count;
    if (limit->algorithm == WEIR_SLIDING_WINDOW) {
        const uint64_t left_ns = limit->period_ns - now_ns % limit->period_ns;
        used += (uint64_t) (((wide) s.previous * left_ns + limit->period_ns - 1) / limit->period_ns);
    }
    return used < limit->limit ? limit->limit - used : 0;
}

static uint64_t oracle_room_of_all(const struct oracle *o, size_t key, uint64_t now_ns)
{
    uint64_t room = UINT64_MAX;
    for (size_t i = 0; i < o->limit_count; i++) {
        const uint64_t r = oracle_room(&o->limits[i], o->states[key][i], now_ns);
        room = r < room ? r : room;
    }
    return room;
}

static void oracle_take(struct oracle *o, size_t key, uint64_t cost, uint64_t now_ns)
{
    for (size_t i = 0; i < o->limit_count; i++) {
        struct oracle_state *s = &o->states[key][i];
        *s = aged(&o->limits[i], *s, now_ns);
        if (o->limits[i].algorithm == WEIR_TOKEN_BUCKET) {
            s->tokens -= (wide) cost * unit_of(&o->limits[i]);
        } else {
            s->count += cost;
        }
    }
}

static weir_limit random_limit(uint64_t *rng, uint64_t period_ns)
{
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    static const uint64_t limits[] = {1, 2, 3, 7, 100, 999, 10000, 1000000};
    weir_limit limit = {
        .algorithm = algorithms[random_below(rng, 3)], .limit = limits[random_below(rng, 8)], .period_ns = period_ns};
    if (limit.algorithm == WEIR_TOKEN_BUCKET && random_below(rng, 2) == 0) {
        limit.burst = 1 + random_below(rng, 2 * limit.limit);
    }
    return limit;
}

/* A policy of different periods, so that no two limits are alike. */
static void random_policy(uint64_t *rng, struct oracle *o, uint64_t now_ns)
{
    static const uint64_t periods[] = {7 * MILLISECOND, 100 * MILLISECOND, SECOND, 60 * SECOND, 1234567891};
    memset(o, 0, sizeof(*o));
    o->limit_count = 1 + random_below(rng, WEIR_MAX_LIMITS);
    const size_t first = random_below(rng, 5);
    for (size_t i = 0; i < o->limit_count; i++) {
        o->limits[i] = random_limit(rng, periods[(first + i) % 5]);
        for (size_t key = 0; key < KEYS; key++) {
            o->states[key][i].tokens = (wide) burst_of(&o->limits[i]) * unit_of(&o->limits[i]);
            o->states[key][i].filled_ns = now_ns;
        }
    }
}

/* Some time passes: mostly little, at times to the edge of a window, now and then a lot. */
static uint64_t random_pause(uint64_t *rng, const struct oracle *o, uint64_t now_ns)
{
    const weir_limit *limit = &o->limits[random_below(rng, o->limit_count)];
    switch (random_below(rng, 10)) {
    case 0:
        return limit->period_ns - now_ns % limit->period_ns;
    case 1:
        return limit->period_ns - now_ns % limit->period_ns - 1;
    case 2:
        return random_below(rng, 3 * limit->period_ns);
    case 3:
        return random_below(rng, 100) == 0 ? random_below(rng, 1000000 * SECOND) : 1;
    default:
        return random_below(rng, limit->period_ns / 4 + 1);
    }
}

static uint64_t random_cost(uint64_t *rng, const struct oracle *o)
{
    switch (random_below(rng, 8)) {
    case 0:
        return random_below(rng, burst_of(&o->limits[0]) + 2);
    case 1:
        return random_below(rng, 5);
    default:
        return 1;
    }
}

/* A client that waits as it is told is admitted, and not a nanosecond earlier. */
static void check_retry(const struct oracle *o, size_t key, uint64_t cost, const weir_verdict *v, uint64_t now_ns)
{
    const uint64_t asked = cost != 0 ? cost : 1;
    uint64_t most = UINT64_MAX;
    for (size_t i = 0; i < o->limit_count; i++) {
        const uint64_t burst = burst_of(&o->limits[i]);
        most = o->limits[i].algorithm == WEIR_TOKEN_BUCKET ? (burst < most ? burst : most)
                                                           : (o->limits[i].limit < most ? o->limits[i].limit : most);
    }
    if (asked > most) {
        assert_int_equal(v->retry_after_ns, UINT64_MAX);
        return;
    }
    assert_in_range(v->retry_after_ns, 1, 400 * 86400 * SECOND);
    assert_true(oracle_room_of_all(o, key, now_ns + v->retry_after_ns) >= asked);
    assert_true(oracle_room_of_all(o, key, now_ns + v->retry_after_ns - 1) < asked);
}

static void one_round(uint64_t *rng, size_t handles, bool exact_remaining)
{
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS + random_below(rng, 1000 * SECOND));
    uint64_t now_ns = clock.wall_ns; /* what fleet time must be, whatever the wall clock does later */
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    weir *w = open_or_fail(&options);
    struct oracle oracle;
    random_policy(rng, &oracle, now_ns);
    const weir_policy_id policy = set_one_policy(w, oracle.limits, oracle.limit_count, WEIR_SCOPE_FLEET);
    weir_thread *threads[HANDLES];
    for (size_t i = 0; i < handles; i++) {
        threads[i] = weir_attach(w);
        assert_non_null(threads[i]);
    }
    weir_key keys[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = weir_make_key(w, policy, &"abc"[i], 1);
    }
    for (int step = 0; step < STEPS; step++) {
        if (random_below(rng, 20) == 0) {
            const uint64_t pause_ns = random_pause(rng, &oracle, now_ns);
            fake_clock_advance(&clock, pause_ns);
            now_ns += pause_ns;
            if (random_below(rng, 50) == 0) {
                clock.wall_ns = random_below(rng, 2 * START_NS); /* somebody sets the host's clock */
            }
            assert_true(weir_poll(w) >= 0);
        }
        const size_t key = random_below(rng, KEYS);
        const uint64_t cost = random_cost(rng, &oracle);
        const uint64_t asked = cost != 0 ? cost : 1;
        weir_thread *t = threads[random_below(rng, handles)];
        const bool peek = random_below(rng, 30) == 0;
        weir_verdict v;
        const bool allowed = peek ? weir_peek(t, &keys[key], cost, &v) : weir_check(t, &keys[key], cost, &v);
        const uint64_t room = oracle_room_of_all(&oracle, key, now_ns);
        if (allowed != (room >= asked)) {
            fail_msg("step %d: cost %" PRIu64 " with room for %" PRIu64 " was %s", step, cost, room,
                     allowed ? "allowed" : "denied");
        }
        assert_int_equal(v.allowed, allowed);
        if (allowed && !peek) {
            oracle_take(&oracle, key, cost, now_ns);
        }
        if (!allowed && exact_remaining) {
            check_retry(&oracle, key, cost, &v, now_ns);
        }
        const uint64_t left = oracle_room_of_all(&oracle, key, now_ns);
        /* With several handles a hit cannot know what the others took since its grant. */
        if (exact_remaining && v.remaining != left) {
            fail_msg("step %d: %s cost %" PRIu64 " (%s): %" PRIu64 " remain, by the oracle %" PRIu64, step,
                     peek ? "peek" : "check", cost, allowed ? "allowed" : "denied", v.remaining, left);
        }
        assert_true(v.remaining <= v.limit);
        assert_true(v.limit_index < oracle.limit_count);
    }
    weir_close(w);
}

static void test_one_thread_agrees_with_the_oracle(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        one_round(&rng, 1, true);
    }
}

static void test_interleaved_handles_agree_with_the_oracle(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        one_round(&rng, HANDLES, false);
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
