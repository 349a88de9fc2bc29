/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of nginx's zones: waits and excesses agree, and a leaky bucket of the library decides as nginx's
 * limit_req does, request by request, with the same excess.
 *
 * Guards: apps/nginx/rate.c, src/check/reserve.c, src/algorithm/bucket.c
 */
#include "../apps/nginx/rate.h"
#include "support/support.h"

#define ROUNDS   20000
#define REQUESTS 2000

/* A rate of random magnitude, from 1 a minute to the library's fastest. */
static uint64_t random_rate(uint64_t *rng)
{
    const uint64_t rate = random_next(rng) >> (28 + random_below(rng, 35));
    return rate % RATE_MOST + 1;
}

/* A burst in thousandths that fits the rate, at times a very large one. */
static uint64_t random_burst(uint64_t *rng, uint64_t rate)
{
    return (random_next(rng) >> (21 + random_below(rng, 42))) % (rate_most_burst(rate) + 1) * 1000;
}

static void test_the_longest_wait_is_the_last_that_shows_no_larger_excess(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < ROUNDS; i++) {
        const uint64_t rate = random_rate(&rng);
        const uint64_t burst = random_burst(&rng, rate);
        const uint64_t wait_ns = rate_longest_wait_ns(rate, burst);
        const uint64_t thousandth_ns = RATE_PERIOD_NS / rate / 1000 + 1;
        assert_in_range(rate_excess(rate, wait_ns), burst == 0 ? 0 : burst - 1000, burst);
        if (thousandth_ns > 10) { /* some nanoseconds are lost to rounding */
            assert_int_equal(rate_excess(rate, wait_ns), burst);
            assert_int_equal(rate_excess(rate, wait_ns + 4), burst + 1);
        }
    }
}

static void test_an_excess_is_the_wait_that_it_takes(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < ROUNDS; i++) {
        /* Slower than a thousandth of a request in 10 ns: there a nanosecond is not seen. */
        const uint64_t rate = random_rate(&rng) % (RATE_PERIOD_NS / 10000) + 1;
        const uint64_t excess = random_burst(&rng, rate) + random_below(&rng, 1000);
        if (excess / 1000 < rate_most_burst(rate)) {
            assert_int_equal(rate_excess(rate, rate_wait_ns(rate, excess)), excess);
        }
    }
    assert_int_equal(rate_wait_ns(60, 1000), SECOND);
    assert_int_equal(rate_wait_ns(1, 2500), 150 * SECOND);
    assert_int_equal(rate_wait_ns(600, 1), 100000);
    assert_int_equal(rate_excess(60, SECOND / 2), 500);
    assert_int_equal(rate_excess(60, 499600000), 500);
    assert_int_equal(rate_excess(60, 499400000), 499);
}

static void test_no_number_overflows(void **state)
{
    (void) state;
    static const uint64_t rates[] = {1, 60, RATE_MOST};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        const uint64_t most_ns = rate_longest_wait_ns(rates[i], UINT64_MAX);
        assert_in_range(most_ns, rate_wait_ns(rates[i], rate_most_burst(rates[i]) * 1000), UINT64_C(731) * 24 * HOUR);
        const uint64_t most = rate_most_burst(rates[i]);
        assert_in_range(rate_excess(rates[i], UINT64_MAX) / 1000, most - 1, most + 1);
        assert_in_range(most, 1000000, WEIR_MAX_UNITS - 2);
    }
}

/* nginx's own counting, in thousandths of requests and milliseconds. */
struct model {
    uint64_t per_ms; /* thousandths that a millisecond takes away */
    uint64_t excess, last_ms;
    bool known;
};

static bool model_asks(struct model *model, uint64_t now_ms, uint64_t burst, uint64_t *excess)
{
    const uint64_t gone = (now_ms - model->last_ms) * model->per_ms;
    const uint64_t sum = model->excess + 1000;
    *excess = !model->known || sum <= gone ? 0 : sum - gone;
    if (*excess > burst) {
        return false;
    }
    *model = (struct model){model->per_ms, *excess, now_ms, true};
    return true;
}

static void test_a_leaky_bucket_decides_as_limit_req_does(void **state)
{
    (void) state;
    static const uint64_t rates[] = {1, 2, 5, 10, 100, 1000}; /* a second: thousandths of these are whole */
    uint64_t rng = test_seed();
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct fake_clock fake;
        fake_clock_init(&fake, UINT64_C(1760000000) * SECOND);
        weir_options options = WEIR_OPTIONS_INIT;
        options.clock = &fake.clock;
        weir *w = open_or_fail(&options);
        const uint64_t rate = rates[i] * 60;
        const uint64_t burst = random_below(&rng, 8);
        weir_limit limit = WEIR_LIMIT_INIT;
        limit.algorithm = WEIR_LEAKY_BUCKET;
        limit.limit = rate;
        limit.period_ns = RATE_PERIOD_NS;
        limit.burst = burst + 2;
        const weir_key key = weir_make_key(w, set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS), "k", 1);
        weir_thread *thread = weir_attach(w);
        struct model model = {.per_ms = rates[i]};
        uint64_t now_ms = 0;
        for (size_t n = 0; n < REQUESTS; n++) {
            const uint64_t gap_ms = random_below(&rng, 2 * 1000 / rates[i] + 2);
            now_ms += gap_ms;
            fake_clock_advance(&fake, gap_ms * MILLISECOND);
            (void) weir_poll(w);
            uint64_t excess;
            uint64_t wait_ns;
            const bool passes = model_asks(&model, now_ms, burst * 1000, &excess);
            assert_int_equal(weir_reserve(thread, &key, 1, rate_longest_wait_ns(rate, burst * 1000), &wait_ns), passes);
            assert_int_equal(rate_excess(rate, wait_ns), excess);
        }
        weir_detach(thread);
        weir_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_wait_is_the_last_that_shows_no_larger_excess),
        cmocka_unit_test(test_an_excess_is_the_wait_that_it_takes),
        cmocka_unit_test(test_no_number_overflows),
        cmocka_unit_test(test_a_leaky_bucket_decides_as_limit_req_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
