/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published behaviour, step by step: of redis-cell, throttled, nginx, Cloudflare, the ATM Forum and the calendar,
 * through the public interface and under a clock that the test moves. weir's `burst` counts all units that pass at
 * once: redis-cell's and throttled's max_burst plus one, nginx's burst plus one. Promises of weir's own are in
 * promises_test.c.
 *
 * Guards: src/algorithm/window.c, src/algorithm/bucket.c, src/algorithm/calendar.c, src/algorithm/rule.c,
 * src/check/denial.c
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "support/one_key.h"

/* One step of a published sequence. */
struct step {
    uint64_t at_ms, cost;
    bool passes;
    uint64_t remaining, reset_ms, retry_ms;
};

static void play(const weir_limit *limit, uint64_t at_once, const struct step *steps, size_t count)
{
    struct one_key b;
    one_key_open(&b, limit, 1, START_NS);
    for (size_t i = 0; i < count; i++) {
        const struct step *s = &steps[i];
        one_key_to(&b, s->at_ms * MILLISECOND);
        weir_verdict v;
        const bool passes = weir_check(b.t, &b.key, s->cost, &v);
        const uint64_t retry_ns = s->retry_ms == NEVER ? NEVER : s->retry_ms * MILLISECOND;
        if (passes != s->passes || v.limit != at_once || v.remaining != s->remaining ||
            v.reset_after_ns != s->reset_ms * MILLISECOND || v.retry_after_ns != retry_ns) {
            fail_msg("step %zu: passes %d, limit %" PRIu64 ", remaining %" PRIu64 ", reset %" PRIu64
                     " ns, retry %" PRIu64,
                     i, passes, v.limit, v.remaining, v.reset_after_ns, v.retry_after_ns);
        }
    }
    weir_close(b.w);
}

/* The cases of throttled's TestRateLimit (github.com/throttled/throttled, rate_test.go), which redis-cell's
 * it_rate_limits has too: 1 a second, max_burst 4. Its retry of -1 is 0 here where a request passed. */
static void test_throttleds_own_cases_come_out_the_same(void **state)
{
    (void) state;
    static const struct step steps[] = {
        {0, 6, false, 5, 0, NEVER},   {0, 1, true, 4, 1000, 0},    {0, 1, true, 3, 2000, 0},
        {0, 1, true, 2, 3000, 0},     {0, 1, true, 1, 4000, 0},    {0, 1, true, 0, 5000, 0},
        {0, 1, false, 0, 5000, 1000}, {3000, 1, true, 2, 3000, 0}, {3100, 1, true, 1, 3900, 0},
        {4000, 1, true, 1, 4000, 0},  {8000, 1, true, 4, 1000, 0}, {9500, 1, true, 4, 1000, 0},
        {9500, 0, true, 4, 1000, 0},  {9500, 2, true, 2, 3000, 0}, {9500, 5, false, 2, 3000, 3000},
    };
    play(&(weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = SECOND, .burst = 5}, 5, steps,
         COUNT_OF(steps));
}

/* redis-cell (github.com/brandur/redis-cell). tests/e2e.rs: CL.THROTTLE user123 0 1 2 1, three times. README:
 * CL.THROTTLE user123 15 30 60, whose first answer is 0, 16, 15, -1, 2; the others follow by its rate_limit, with T of
 * 2 s: remaining is (16 T - ttl) / T, reset is ttl, retry is tat + increment - 16 T - now. */
static void test_redis_cells_examples_come_out_the_same(void **state)
{
    (void) state;
    static const struct step one[] = {
        {0, 1, true, 0, 2000, 0}, {0, 1, false, 0, 2000, 2000}, {2000, 1, true, 0, 2000, 0}};
    play(&(weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = 2 * SECOND}, 1, one, COUNT_OF(one));
    struct step steps[23];
    for (uint64_t i = 1; i <= 16; i++) {
        steps[i - 1] = (struct step){0, 1, true, 16 - i, 2000 * i, 0};
    }
    static const struct step then[] = {
        {0, 1, false, 0, 32000, 2000},  {0, 4, false, 0, 32000, 8000}, {1999, 1, false, 0, 30001, 1},
        {2000, 1, true, 0, 32000, 0},   {13000, 5, true, 0, 31000, 0}, {13000, 16, false, 0, 31000, 31000},
        {44000, 16, true, 0, 32000, 0},
    };
    memcpy(steps + 16, then, sizeof(then));
    play(&(weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 30, .period_ns = MINUTE, .burst = 16}, 16, steps, 23);
}

/* brandur.org/rate-limiting: a request is allowed where now is at or past TAT - (tau + T), and TAT begins at now plus
 * the cost. Here with its 5,000 an hour, over random requests of random costs, in whole emission intervals. */
static void test_a_request_passes_from_tat_less_tau_plus_t(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5000, .period_ns = HOUR, .burst = 100};
    const uint64_t t_ns = HOUR / 5000;
    uint64_t rng = test_seed();
    struct one_key b;
    one_key_open(&b, &limit, 1, START_NS);
    uint64_t tat_ns = 0;
    for (int i = 0; i < 50000; i++) {
        one_key_pass(&b, random_below(&rng, 4) == 0 ? random_below(&rng, 20 * t_ns) : 0);
        const uint64_t now_ns = b.clock.wall_ns;
        const uint64_t cost = 1 + (random_below(&rng, 3) == 0 ? random_below(&rng, 12) : 0);
        const uint64_t new_ns = (tat_ns > now_ns ? tat_ns : now_ns) + cost * t_ns;
        const uint64_t allow_at_ns = new_ns - 100 * t_ns;
        weir_verdict v;
        assert_int_equal(weir_check(b.t, &b.key, cost, &v), now_ns >= allow_at_ns);
        if (now_ns >= allow_at_ns) {
            tat_ns = new_ns;
            assert_int_equal(v.remaining, (100 * t_ns - (tat_ns - now_ns)) / t_ns);
        } else {
            assert_int_equal(v.retry_after_ns, allow_at_ns - now_ns);
            assert_int_equal(v.reset_after_ns, tat_ns - now_ns);
        }
    }
    weir_close(b.w);
}

/*
 * ITU-T I.371 and ATM Forum UNI 3.1, virtual scheduling form of GCRA(T, tau): a cell that comes at t conforms unless
 * TAT > t + tau; then TAT is max(t, TAT) + T. A cell costs T units of a bucket of T + tau. Their examples: T of 4.5
 * cell times, tau of 0.5, 1.5, 3.5 and 7, here in halves; at most 1 + tau / (T - 1) cells, rounded down, come back to
 * back.
 */
static void test_a_cell_conforms_as_in_virtual_scheduling(void **state)
{
    (void) state;
    static const uint64_t tolerances[] = {1, 3, 7, 14};
    for (size_t i = 0; i < COUNT_OF(tolerances); i++) {
        const weir_limit limit = {
            .algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 9 + tolerances[i]};
        struct one_key b;
        one_key_open(&b, &limit, 1, START_NS);
        uint64_t tat = 0;
        uint64_t cells = 0;
        uint64_t back_to_back = 0;
        for (uint64_t at = 0; at <= 9000; at += 2) {
            one_key_to(&b, at * MILLISECOND);
            const bool conforms = tat <= at + tolerances[i];
            tat = conforms ? (tat > at ? tat : at) + 9 : tat;
            assert_int_equal(weir_check(b.t, &b.key, 9, NULL), conforms);
            cells += conforms;
            back_to_back += cells == at / 2 + 1;
        }
        assert_int_equal(back_to_back, 1 + tolerances[i] / (9 - 2));
        /* A sender that tries in every slot gets the rate, 1 in 4.5, and the burst ahead of it. */
        assert_in_range(cells, 1001, 1001 + tolerances[i] / 9);
        weir_close(b.w);
    }
}

/* blog.cloudflare.com/counting-things-a-lot-of-different-things: 50 a minute, 42 in the minute before, 18 now, 15 s
 * into this one: 42 * 0.75 + 18 = 49.5. weir rounds the carried 31.5 up. */
static void test_cloudflares_two_counters(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 50, .period_ns = MINUTE};
    struct one_key b;
    one_key_open(&b, &limit, 1, START_NS);
    one_key_to(&b, 20 * SECOND);
    assert_int_equal(one_key_drain(&b, 42), 42);
    one_key_to(&b, MINUTE + 15 * SECOND);
    weir_verdict v;
    assert_true(weir_peek(b.t, &b.key, 1, &v));
    assert_int_equal(v.remaining, 50 - 32);
    assert_int_equal(one_key_drain(&b, 18), 18);
    /* 49.5 of 50: the next request would make 50.5. It fits when 31 are carried: 42 (60 - t) / 60 = 31. */
    assert_true(!weir_check(b.t, &b.key, 1, &v) && v.remaining == 0);
    assert_int_equal(v.retry_after_ns, 714285715);
    assert_int_equal(v.reset_after_ns, 105 * SECOND);
    one_key_pass(&b, v.retry_after_ns - 1);
    assert_false(weir_check(b.t, &b.key, 1, NULL));
    one_key_pass(&b, 1);
    assert_true(weir_check(b.t, &b.key, 1, NULL));
    one_key_to(&b, 2 * MINUTE); /* where 19 are carried */
    assert_int_equal(one_key_drain(&b, 100), 50 - 19);
    weir_close(b.w);
}

/* ngx_http_limit_req_lookup and _account (nginx 1.15.7 and later) for one zone, in 1/1000 requests and milliseconds. */
struct nginx {
    int64_t rate, burst, delay; /* 1/1000 requests, per second where it is the rate */
    int64_t excess, last_ms;    /* -1,000: there was none yet */
};

/* The delay, or -1: refused. */
static int64_t nginx_request(struct nginx *n, int64_t now_ms)
{
    int64_t excess = n->excess - n->rate * (now_ms - n->last_ms) / 1000 + 1000;
    excess = excess > 0 ? excess : 0;
    if (excess > n->burst) {
        return -1;
    }
    n->excess = excess;
    n->last_ms = now_ms;
    return excess <= n->delay ? 0 : (excess - n->delay) * 1000 / n->rate;
}

/* A request by weir_reserve; -1: refused. In milliseconds, and exactly so where nginx's are. */
static int64_t weir_request(struct one_key *b)
{
    uint64_t wait_ns;
    return weir_reserve(b->t, &b->key, 1, NEVER, &wait_ns) ? (int64_t) (wait_ns / MILLISECOND) : -1;
}

static const struct {
    uint64_t limit, period_s, burst, delay; /* nginx's */
} zones[] = {
    {1, 1, 0, 0},   {1, 1, 5, 0},       {1, 1, 5, 2},  {1, 1, 5, 5},     {10, 1, 20, 0},
    {10, 1, 20, 8}, {10, 1, 20, 20},    {5, 1, 12, 8}, {100, 1, 50, 10}, {30, 60, 4, 0},
    {30, 60, 4, 4}, {1000, 1, 100, 50}, {8, 1, 3, 1},  {2, 1, 0, 0},
};

/* Random arrivals at whole milliseconds. Rates are such that a request takes a whole number of them, so that neither
 * side rounds (at 30r/m nginx rounds down odd ones, so there are none). */
static void test_a_leaky_bucket_is_nginxs_limit_req(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < COUNT_OF(zones); i++) {
        const uint64_t period_ns = zones[i].period_s * SECOND;
        struct nginx n = {.rate = (int64_t) (zones[i].limit * 1000 / zones[i].period_s),
                          .burst = (int64_t) zones[i].burst * 1000,
                          .delay = (int64_t) zones[i].delay * 1000,
                          .excess = -1000};
        const weir_limit leaky = {WEIR_LEAKY_BUCKET,  zones[i].limit, period_ns, zones[i].burst + 1,
                                  WEIR_CALENDAR_NONE, zones[i].delay, NULL};
        const weir_limit token = {
            .algorithm = WEIR_TOKEN_BUCKET, .limit = zones[i].limit, .period_ns = period_ns, .burst = leaky.burst};
        struct one_key b;
        struct one_key nodelay;
        one_key_open(&b, &leaky, 1, START_NS);
        one_key_open(&nodelay, &token, 1, START_NS);
        const uint64_t gap_ms = 1 + period_ns / zones[i].limit / MILLISECOND;
        int64_t refused = 0;
        for (int step = 0; step < 5000; step++) {
            uint64_t pause_ms = random_below(&rng, 3) == 0 ? random_below(&rng, 2 * gap_ms) : gap_ms / 3;
            pause_ms = random_below(&rng, 100) == 0 ? 30 * gap_ms : pause_ms / 2 * 2;
            one_key_pass(&b, pause_ms * MILLISECOND);
            one_key_pass(&nodelay, pause_ms * MILLISECOND);
            const int64_t expected = nginx_request(&n, (int64_t) (b.clock.wall_ns / MILLISECOND));
            assert_int_equal(weir_request(&b), expected);
            /* "nodelay" refuses the same, and is a token bucket. */
            assert_int_equal(weir_check(nodelay.t, &nodelay.key, 1, NULL), expected >= 0);
            refused += expected < 0;
        }
        assert_in_range(refused, 10, 4900);
        weir_close(b.w);
        weir_close(nodelay.w);
    }
}

/* The examples of nginx.com/blog/rate-limiting-nginx: 10r/s and burst=20, 21 requests at once; with nodelay, 20 more
 * 101 ms or 501 ms later. */
static void test_nginxs_own_examples(void **state)
{
    (void) state;
    weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 21};
    struct one_key b;
    one_key_open(&b, &limit, 1, START_NS);
    for (int64_t i = 0; i < 21; i++) {
        assert_int_equal(weir_request(&b), 100 * i);
    }
    assert_int_equal(weir_request(&b), -1);
    weir_close(b.w);
    for (uint64_t i = 0; i < 4; i++) { /* both times, and both ways to write "nodelay" */
        limit.algorithm = i % 2 == 0 ? WEIR_TOKEN_BUCKET : WEIR_LEAKY_BUCKET;
        limit.delay = i % 2 == 0 ? 0 : 21;
        one_key_open(&b, &limit, 1, START_NS);
        assert_int_equal(one_key_drain(&b, 22), 21);
        one_key_pass(&b, (i < 2 ? 101 : 501) * MILLISECOND);
        assert_int_equal(one_key_drain(&b, 20), i < 2 ? 1 : 5);
        weir_close(b.w);
    }
}

/* The first moment of a month, by the C library. */
static uint64_t month_ns(int year, int month)
{
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = 1};
    return (uint64_t) timegm(&tm) * SECOND;
}

/* Uses up a quota, which is whole at `end_ns` and not before. */
static void quota_ends_at(struct one_key *b, uint64_t end_ns)
{
    weir_verdict v;
    assert_int_equal(one_key_drain(b, 10), 3);
    assert_false(weir_check(b->t, &b->key, 2, &v));
    assert_int_equal(v.retry_after_ns, end_ns - b->clock.wall_ns);
    assert_int_equal(v.reset_after_ns, end_ns - b->clock.wall_ns);
    one_key_pass(b, v.retry_after_ns - 1);
    assert_false(weir_check(b->t, &b->key, 1, &v));
    assert_int_equal(v.retry_after_ns, 1);
    one_key_pass(b, 1);
    assert_true(weir_peek(b->t, &b->key, 3, &v));
    assert_int_equal(v.remaining, 3);
    assert_int_equal(v.reset_after_ns, 0);
}

/* From any moment of a January on; past the end of the year. */
static void quotas_end(weir_calendar calendar, int year, int count, uint64_t *rng)
{
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 3, .calendar = calendar};
    const bool months = calendar == WEIR_CALENDAR_MONTH;
    const uint64_t least = (months ? 28 : 1) * DAY;
    struct one_key b;
    one_key_open(&b, &limit, 1, month_ns(year, 1) + random_below(rng, least));
    for (int n = 1; n <= count; n++, one_key_pass(&b, random_below(rng, least))) {
        quota_ends_at(&b, months ? month_ns(year, 1 + n) : month_ns(year, 1) + (uint64_t) n * DAY);
    }
    weir_close(b.w);
}

static void test_quotas_end_with_the_month_and_at_midnight_utc(void **state)
{
    (void) state;
    static const int years[][2] = {{1972, 29}, {1999, 28}, {2000, 29}, {2026, 28},
                                   {2027, 28}, {2028, 29}, {2100, 28}, {2400, 29}};
    uint64_t rng = test_seed();
    for (size_t i = 0; i < COUNT_OF(years); i++) {
        assert_int_equal(month_ns(years[i][0], 3) - month_ns(years[i][0], 2), (uint64_t) years[i][1] * DAY);
        quotas_end(WEIR_CALENDAR_MONTH, years[i][0], 14, &rng);
        quotas_end(WEIR_CALENDAR_DAY, years[i][0], 400, &rng);
    }
}

/* 5 a second and 20 a day: the rate refuses and does not use up the quota; then the quota does, until midnight. */
static void test_a_daily_quota_with_a_limit_per_second_beside_it(void **state)
{
    (void) state;
    static const weir_limit limits[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = SECOND},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 20, .calendar = WEIR_CALENDAR_DAY}};
    struct one_key b;
    one_key_open(&b, limits, 2, START_NS + DAY - 10 * SECOND);
    weir_verdict v;
    for (int i = 0; i < 36; i++) {
        assert_int_equal(weir_check(b.t, &b.key, 1, &v), i % 9 < 5);
        assert_true(v.allowed || v.limit_index == (i < 27 ? 0 : 1));
        assert_true(v.allowed || v.retry_after_ns == (i < 27 ? 200 * MILLISECOND : 7 * SECOND));
        one_key_pass(&b, i % 9 == 8 ? SECOND : 0);
    }
    one_key_pass(&b, 6 * SECOND - 1);
    assert_false(weir_check(b.t, &b.key, 5, NULL));
    one_key_pass(&b, 1);
    assert_true(weir_check(b.t, &b.key, 5, &v) && v.remaining == 0 && v.limit_index == 0);
    weir_close(b.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_throttleds_own_cases_come_out_the_same),
        cmocka_unit_test(test_redis_cells_examples_come_out_the_same),
        cmocka_unit_test(test_a_request_passes_from_tat_less_tau_plus_t),
        cmocka_unit_test(test_a_cell_conforms_as_in_virtual_scheduling),
        cmocka_unit_test(test_cloudflares_two_counters),
        cmocka_unit_test(test_a_leaky_bucket_is_nginxs_limit_req),
        cmocka_unit_test(test_nginxs_own_examples),
        cmocka_unit_test(test_quotas_end_with_the_month_and_at_midnight_utc),
        cmocka_unit_test(test_a_daily_quota_with_a_limit_per_second_beside_it),
    };
    return cmocka_run_group_tests_name("unit/check/published_vectors", tests, NULL, NULL);
}
