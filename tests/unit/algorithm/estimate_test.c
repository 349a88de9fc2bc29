/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet estimate's arithmetic against its formulas in double precision, at its limits, and for what it promises:
 * more demand elsewhere or older news never lets more pass, and fractions come out on average.
 *
 * Guards: src/algorithm/estimate.c, src/base/numbers.h
 */
#include "algorithm/estimate.h"
#include "base/numbers.h"
#include "support/support.h"

#define RATE_ONE (UINT64_C(1) << RATE_BITS) /* a unit a second, and the range of `dither` */
#define RATE_TOP (UINT64_C(1) << 61)        /* the greatest one that is kept */
#define INTERVAL (200 * MILLISECOND)
#define NOW      (UINT64_C(1760000000) * SECOND)
#define TIMES    20000

/* A number of random magnitude, below 2^bits. */
static uint64_t random_bits(uint64_t *rng, uint64_t bits)
{
    return random_next(rng) >> (63 - random_below(rng, bits));
}

static struct estimate random_estimate(uint64_t *rng)
{
    return (struct estimate){.remote_rate = random_bits(rng, 40),
                             .remote_fraction = (uint32_t) random_bits(rng, 32),
                             .since_ns = NOW - random_bits(rng, 36),
                             .dither = (uint32_t) random_below(rng, RATE_ONE)};
}

static void expect_near(double value, double model, double error)
{
    const double off = value > model ? value - model : model - value;
    if (!(off <= error)) {
        fail_msg("%.9g is not %.9g, within %.3g", value, model, error);
    }
}

/* The budget as estimate.c's head derives it: by the ratio of the demands. */
static double budget(const struct estimate *e, uint64_t headroom, uint64_t unseen, uint64_t now_ns)
{
    const double room = (double) headroom;
    const double fraction = (double) e->remote_fraction / (double) FRACTION_WHOLE;
    const double ratio = fraction / (1 - fraction);
    const double lag = now_ns > e->since_ns ? (double) (now_ns - e->since_ns) / 1e9 : 0;
    const double at_full_demand = room - (double) e->remote_rate / (double) RATE_ONE * lag;
    const double in_proportion = (room - (double) unseen * ratio) / (1 + ratio);
    return at_full_demand > in_proportion ? at_full_demand : in_proportion;
}

static void test_what_is_left_is_the_budget_rounded_by_the_dither(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t between = 0; /* cases that are neither of the two extremes */
    for (int i = 0; i < TIMES; i++) {
        struct estimate e = random_estimate(&rng);
        if (e.remote_fraction > FRACTION_WHOLE - FRACTION_WHOLE / 1000) {
            e.remote_fraction /= 2; /* the ratio of the model is too great for these cases; see the limits below */
        }
        const uint64_t headroom = random_bits(&rng, 30);
        const uint64_t unseen = random_bits(&rng, 30);
        const double model = budget(&e, headroom, unseen, NOW) + e.dither / (double) RATE_ONE;
        const uint64_t left = estimate_left(&e, headroom, unseen, NOW);
        assert_true(left <= headroom);
        /* left <= model < left + 1, but for what may be rounded: 1/65536 in each of the others' two numbers. */
        const double error = 4 / (double) RATE_ONE;
        if ((left != 0 && (double) left > model + error) || (left < headroom && model >= (double) left + 1 + error)) {
            fail_msg("left %llu, model %.6f, of %llu", (unsigned long long) left, model, (unsigned long long) headroom);
        }
        between += left != 0 && left != headroom;
    }
    assert_true(between > TIMES / 10);
}

/* Others may have admitted 10 units a second for half a second, or as many beside each unit here as the demands say:
 * the lesser counts. */
static void test_others_have_admitted_what_they_ask_for_at_most_and_their_part_beside_ours(void **state)
{
    (void) state;
    static const struct {
        uint64_t fraction, own, remote; /* remote: in 1/65536 units */
    } all[] = {{FRACTION_WHOLE / 2, 0, 0},
               {FRACTION_WHOLE / 2, 3, 3 * RATE_ONE},
               {FRACTION_WHOLE / 2, 5, 5 * RATE_ONE},
               {FRACTION_WHOLE / 2, 6, 5 * RATE_ONE},
               {FRACTION_WHOLE / 4 * 3, 1, 3 * RATE_ONE},
               {FRACTION_WHOLE / 4 * 3, 2, 5 * RATE_ONE},
               {FRACTION_WHOLE / 4, 1, RATE_ONE / 3},
               {FRACTION_WHOLE / 4, 8, RATE_ONE * 8 / 3},
               {FRACTION_WHOLE / 4, UINT64_MAX, 5 * RATE_ONE},
               {FRACTION_WHOLE - 1, 1, 5 * RATE_ONE},
               {1, 1, 0},
               {1, UINT64_C(1) << 34, 4 * RATE_ONE},
               {0, UINT64_MAX, 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct estimate e = {.remote_rate = 10 * RATE_ONE,
                                   .remote_fraction = (uint32_t) all[i].fraction,
                                   .since_ns = NOW,
                                   .dither = RATE_ONE - 1};
        const uint64_t remote = estimate_remote(&e, all[i].own, NOW + SECOND / 2);
        if (all[i].fraction == 1 && all[i].own > 1) { /* the ratio of the demands is a little above the fraction */
            expect_near((double) remote, (double) all[i].remote, 1);
        } else {
            assert_int_equal(remote, all[i].remote);
        }
        assert_int_equal(estimate_remote(&e, all[i].own, NOW), 0);
        assert_int_equal(estimate_remote(&e, all[i].own, NOW - 1), 0); /* a clock was slewed */
    }
    const struct estimate most = {.remote_rate = RATE_TOP, .remote_fraction = UINT32_MAX};
    assert_int_equal(estimate_remote(&most, UINT64_MAX, SECOND), RATE_TOP);
    assert_int_equal(estimate_remote(&most, UINT64_MAX, UINT64_MAX), UINT64_MAX);
}

static void test_nothing_is_left_to_others_who_ask_for_nothing_or_just_told(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        const uint64_t headroom = random_bits(&rng, 64);
        const uint64_t unseen = random_bits(&rng, 64);
        struct estimate e = random_estimate(&rng);
        e.remote_rate = 0;
        assert_int_equal(estimate_left(&e, headroom, unseen, NOW), headroom);
        e = random_estimate(&rng);
        e.remote_fraction = 0;
        assert_int_equal(estimate_left(&e, headroom, unseen, NOW), headroom);
        e = random_estimate(&rng);
        e.since_ns = NOW + random_bits(&rng, 40); /* the news is of the future: a clock was slewed */
        assert_int_equal(estimate_left(&e, headroom, unseen, NOW), headroom);
    }
}

static void test_the_greatest_numbers_leave_no_more_than_there_is(void **state)
{
    (void) state;
    static const uint64_t extremes[] = {
        0, 1, RATE_ONE, UINT64_C(1) << 44, UINT64_MAX >> 17, UINT64_MAX >> 16, UINT64_MAX - 1, UINT64_MAX};
    const size_t count = sizeof(extremes) / sizeof(extremes[0]);
    for (size_t i = 0; i < count * count * count; i++) {
        const uint64_t headroom = extremes[i % count];
        const uint64_t unseen = extremes[i / count % count];
        const struct estimate e = {
            .remote_rate = extremes[i / count / count], .remote_fraction = UINT32_MAX, .dither = RATE_ONE - 1};
        const uint64_t left = estimate_left(&e, headroom, unseen, UINT64_MAX);
        assert_true(left <= headroom);
        if (e.remote_rate >= UINT64_MAX >> 17 && headroom <= UINT64_C(1) << 44 && unseen <= UINT64_C(1) << 44) {
            /* All of it is asked for elsewhere: what is left is what is rounded. */
            assert_true(left <= 1 + headroom / FRACTION_WHOLE);
        }
    }
    const struct estimate e = {.remote_rate = RATE_TOP, .remote_fraction = UINT32_MAX};
    assert_int_equal(estimate_left(&e, 0, 0, UINT64_MAX), 0);
    assert_int_equal(estimate_left(&e, 1000, 0, UINT64_MAX), 0);
}

static void test_more_demand_elsewhere_or_older_news_never_leaves_more(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        const struct estimate e = random_estimate(&rng);
        const uint64_t headroom = random_bits(&rng, 44);
        const uint64_t unseen = random_bits(&rng, 44);
        const uint64_t left = estimate_left(&e, headroom, unseen, NOW);
        struct estimate other = e;
        other.remote_rate += random_bits(&rng, 40);
        assert_true(estimate_left(&other, headroom, unseen, NOW) <= left);
        other = e;
        other.remote_fraction += (uint32_t) random_below(&rng, FRACTION_WHOLE - e.remote_fraction);
        assert_true(estimate_left(&other, headroom, unseen, NOW) <= left);
        assert_true(estimate_left(&e, headroom, unseen, NOW + random_bits(&rng, 40)) <= left);
        assert_true(estimate_left(&e, headroom, unseen + random_bits(&rng, 40), NOW) <= left);
        /* More room, or a greater dither, never leaves less. */
        assert_true(estimate_left(&e, headroom + random_bits(&rng, 40), unseen, NOW) >= left);
        other = e;
        other.dither += (uint32_t) random_below(&rng, RATE_ONE - e.dither);
        const uint64_t dithered = estimate_left(&other, headroom, unseen, NOW);
        assert_true(dithered >= left && dithered <= left + 1);
    }
}

static void test_units_that_pass_take_from_what_is_left_one_each(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        const struct estimate e = random_estimate(&rng);
        const uint64_t headroom = 1 + random_bits(&rng, 30);
        const uint64_t left = estimate_left(&e, headroom, 0, NOW);
        if (left != 0) {
            const uint64_t passed = 1 + random_below(&rng, left);
            assert_int_equal(estimate_left(&e, headroom - passed, passed, NOW), left - passed);
        }
    }
}

static void test_fractions_of_a_unit_come_out_on_average(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < 20; i++) {
        const uint64_t headroom = 1 + random_below(&rng, 1000);
        /* The others' demand of one second, in 65536ths of a unit. */
        const uint64_t remote = 1 + random_below(&rng, headroom * RATE_ONE);
        struct estimate e = {.remote_rate = remote, .remote_fraction = UINT32_MAX, .since_ns = NOW - SECOND};
        const uint64_t all = muldiv_floor(headroom * RATE_ONE, UINT32_MAX, FRACTION_WHOLE);
        uint64_t sum = 0;
        for (e.dither = 0; e.dither < RATE_ONE; e.dither++) {
            sum += estimate_left(&e, headroom, 0, NOW);
        }
        assert_int_equal(sum, headroom * RATE_ONE - min_u64(remote, all));
    }
}

static void test_demand_is_averaged_over_the_answers(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES / 20; i++) {
        struct demand_rates demand = {.known = false};
        double own = 0;
        double remote = 0;
        for (int answer = 0; answer < 20; answer++) {
            const uint64_t local_demand = random_bits(&rng, 30);
            const uint64_t remote_demand = random_bits(&rng, 30);
            const uint64_t span_ns = MILLISECOND + random_bits(&rng, 40);
            const double local_rate = (double) local_demand / ((double) span_ns / 1e9);
            const double remote_rate = (double) remote_demand / ((double) span_ns / 1e9);
            /* Demand of an interval ago counts half. */
            double old = answer == 0 ? 0 : 0.5;
            for (uint64_t n = 1; old > 1e-20 && n < (span_ns + INTERVAL / 2) / INTERVAL; n++) {
                old /= 2;
            }
            own = own * old + local_rate * (1 - old);
            remote = remote * old + remote_rate * (1 - old);
            rates_update(&demand, estimate_rate(local_demand, span_ns), estimate_rate(remote_demand, span_ns), span_ns,
                         INTERVAL);
            assert_true(demand.known);
            expect_near((double) demand.local_rate / (double) RATE_ONE, own, 3 / (double) RATE_ONE + own * 1e-12);
            expect_near((double) demand.remote_rate / (double) RATE_ONE, remote,
                        3 / (double) RATE_ONE + remote * 1e-12);
        }
    }
}

static void test_a_steady_demand_is_learned_at_once_and_one_that_ends_is_forgotten(void **state)
{
    (void) state;
    struct demand_rates demand = {.known = false};
    for (int i = 0; i < 5; i++) {
        rates_update(&demand, estimate_rate(30, INTERVAL), estimate_rate(90, INTERVAL), INTERVAL, INTERVAL);
        assert_int_equal(demand.local_rate, 150 * RATE_ONE);
        assert_int_equal(demand.remote_rate, 450 * RATE_ONE);
    }
    uint64_t answers = 0;
    for (uint64_t rate = 450 * RATE_ONE; demand.remote_rate != 0; answers++) {
        rate /= 2;
        rates_update(&demand, estimate_rate(30, INTERVAL), 0, INTERVAL, INTERVAL);
        assert_int_equal(demand.remote_rate, rate);
        assert_int_equal(demand.local_rate, 150 * RATE_ONE);
    }
    assert_in_range(answers, 20, 30);
    assert_int_equal(rates_remote_fraction(&demand, INTERVAL), 0);
}

static void test_no_demand_is_too_great(void **state)
{
    (void) state;
    static const uint64_t spans[] = {0, 1, INTERVAL, UINT64_MAX};
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        struct demand_rates demand = {.known = false};
        for (int times = 0; times < 3; times++) {
            rates_update(&demand, RATE_MOST, RATE_MOST, spans[i], INTERVAL);
            assert_true(demand.local_rate <= RATE_TOP && demand.remote_rate <= RATE_TOP);
            assert_in_range(rates_remote_fraction(&demand, INTERVAL), FRACTION_WHOLE / 2 - 1, FRACTION_WHOLE / 2);
        }
        rates_update(&demand, 0, 0, spans[i], INTERVAL);
        assert_true(demand.local_rate <= RATE_TOP / 2);
    }
}

static void test_the_others_part_is_that_of_the_demand(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        const struct demand_rates demand = {
            .local_rate = random_bits(&rng, 61), .remote_rate = random_bits(&rng, 61), .known = true};
        const uint64_t interval_ns = MILLISECOND + random_bits(&rng, 40);
        const double one = (double) RATE_ONE * 1e9 / (double) interval_ns; /* a unit per interval */
        const double own = (double) demand.local_rate > one ? (double) demand.local_rate : one;
        const double model = (double) demand.remote_rate / (own + (double) demand.remote_rate);
        const uint32_t fraction = rates_remote_fraction(&demand, interval_ns);
        /* The unit per interval is rounded down to 1/65536 a second. */
        expect_near((double) fraction / (double) FRACTION_WHOLE, model,
                    2 / (double) FRACTION_WHOLE + 1e-12 + model / one);
    }
    const struct demand_rates none = {.known = false};
    assert_int_equal(rates_remote_fraction(&none, INTERVAL), 0);
    assert_int_equal(rates_remote_fraction(&none, 0), 0);
    const struct demand_rates theirs = {.remote_rate = RATE_TOP, .known = true};
    assert_int_equal(rates_remote_fraction(&theirs, UINT64_MAX), UINT32_MAX); /* a fraction is always this node's */
}

static void test_the_parts_of_all_nodes_are_no_more_than_the_whole(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        uint64_t rates[5];
        const uint64_t count = 2 + random_below(&rng, 4);
        uint64_t all = 0;
        for (uint64_t node = 0; node < count; node++) {
            rates[node] = 10 * RATE_ONE + random_bits(&rng, 50); /* more than a unit per interval */
            all += rates[node];
        }
        uint64_t own = 0;
        for (uint64_t node = 0; node < count; node++) {
            const struct demand_rates demand = {
                .local_rate = rates[node], .remote_rate = all - rates[node], .known = true};
            own += FRACTION_WHOLE - rates_remote_fraction(&demand, INTERVAL);
        }
        assert_in_range(own, FRACTION_WHOLE, FRACTION_WHOLE + count); /* each rounded up by less than 2^-32 */
    }
}

static void test_units_that_the_others_news_covers(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        const uint64_t count = random_bits(&rng, 44);
        const uint64_t span_ns = 1 + random_bits(&rng, 40);
        const uint64_t interval_ns = 2 * (1 + random_bits(&rng, 36));
        const double span = (double) span_ns;
        const double interval = (double) interval_ns;
        const double all = (double) count;
        const double half = interval / 2 < span ? interval / 2 : span;
        const uint64_t since_answer = estimate_seen(count, span_ns, interval_ns / 2, false);
        expect_near((double) since_answer, all - all * half / span, 1 + all * 1e-12);
        const uint64_t since_start = estimate_seen(count, span_ns, interval_ns / 2, true);
        expect_near((double) since_start, span < interval ? all * span / (2 * interval) : all - all * half / span,
                    1 + all * 1e-12);
        assert_true(since_answer <= count && since_start <= count);
    }
    assert_int_equal(estimate_seen(1000, 0, INTERVAL / 2, true), 0);
    assert_int_equal(estimate_seen(1000, 0, INTERVAL / 2, false), 0);
    assert_int_equal(estimate_seen(1000, INTERVAL, 0, true), 1000);
    assert_int_equal(estimate_seen(1000, INTERVAL / 2, INTERVAL / 2, false), 0);
    assert_int_equal(estimate_seen(1000, INTERVAL, INTERVAL / 2, false), 500);
    assert_int_equal(estimate_seen(1000, INTERVAL, INTERVAL / 2, true), 500); /* the two cases meet */
    assert_int_equal(estimate_seen(UINT64_MAX, UINT64_MAX, 1, false), UINT64_MAX - 1);
}

static void test_a_young_window_is_seen_as_nodes_of_any_phase_have_told_of_it(void **state)
{
    (void) state;
    const uint64_t count = 1000000;
    const uint64_t interval_ms = 200;
    for (uint64_t age_ms = 20; age_ms < interval_ms; age_ms += 20) {
        /* Units came evenly; a node reports the units before its phase, if the phase is in the window. */
        uint64_t counts = 0;
        for (uint64_t phase_ms = 0; phase_ms < interval_ms; phase_ms++) {
            counts += phase_ms < age_ms ? count * phase_ms / age_ms : 0;
        }
        const uint64_t seen = estimate_seen(count, age_ms * MILLISECOND, interval_ms * MILLISECOND / 2, true);
        expect_near((double) seen, (double) counts / (double) interval_ms, (double) count / (double) interval_ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_is_the_budget_rounded_by_the_dither),
        cmocka_unit_test(test_others_have_admitted_what_they_ask_for_at_most_and_their_part_beside_ours),
        cmocka_unit_test(test_nothing_is_left_to_others_who_ask_for_nothing_or_just_told),
        cmocka_unit_test(test_the_greatest_numbers_leave_no_more_than_there_is),
        cmocka_unit_test(test_more_demand_elsewhere_or_older_news_never_leaves_more),
        cmocka_unit_test(test_units_that_pass_take_from_what_is_left_one_each),
        cmocka_unit_test(test_fractions_of_a_unit_come_out_on_average),
        cmocka_unit_test(test_demand_is_averaged_over_the_answers),
        cmocka_unit_test(test_a_steady_demand_is_learned_at_once_and_one_that_ends_is_forgotten),
        cmocka_unit_test(test_no_demand_is_too_great),
        cmocka_unit_test(test_the_others_part_is_that_of_the_demand),
        cmocka_unit_test(test_the_parts_of_all_nodes_are_no_more_than_the_whole),
        cmocka_unit_test(test_units_that_the_others_news_covers),
        cmocka_unit_test(test_a_young_window_is_seen_as_nodes_of_any_phase_have_told_of_it),
    };
    return cmocka_run_group_tests_name("unit/algorithm/estimate", tests, NULL, NULL);
}
