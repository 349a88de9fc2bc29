/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket of a key that is asked for by several tiers. The tiers owe the same units, which refill at the rate of the
 * tier that was checked last, denied or not. A peek changes nothing. Compared with a bucket of plain numbers, which
 * moves with every call. Every call has a handle of its own: a handle that has a grant, or has learned of a denial,
 * goes by that for a tick.
 *
 * Guards: src/check/claim.c, src/algorithm/bucket.c
 */
#include <inttypes.h>

#include "support/two_handles.h"

#define TIERS 3
#define CALLS 300

struct plain {
    double owed; /* units that the bucket lacks */
    double rate; /* units that refill in a nanosecond */
    uint64_t at_ns;
};

static const char *const names[TIERS] = {"api/free", "api/pro", "api/max"};

static void plain_to(struct plain *p, uint64_t now_ns)
{
    const double refilled = (double) (now_ns - p->at_ns) * p->rate;
    p->owed = p->owed > refilled ? p->owed - refilled : 0;
    p->at_ns = now_ns;
}

/* A burst that is given, and no larger than what a double compares to a hundredth of a unit. */
static weir_limit random_limit(uint64_t period_ns, uint64_t *rng)
{
    return (weir_limit){.algorithm = WEIR_TOKEN_BUCKET,
                        .limit = draw_magnitude(rng, 1, 1000000),
                        .period_ns = period_ns,
                        .burst = draw_magnitude(rng, 1, 1000)};
}

/* What a call says of the bucket, compared with the plain one. A conversion rounds up by 1/64 ns. */
static void compare(const struct plain *p, const weir_limit *limit, uint64_t cost, const weir_verdict *v)
{
    const double room = (double) limit->burst - p->owed;
    const double slack = 0.01;
    if ((v->allowed ? room < (double) cost - slack : room > (double) cost + slack)) {
        fail_msg("%" PRIu64 " of %" PRIu64 ": %s, where %f units are left", cost, limit->burst,
                 v->allowed ? "passes" : "is denied", room);
    }
}

static void play(const weir_key *keys, const weir_limit *limits, uint64_t *rng)
{
    struct plain p = {.rate = 0, .at_ns = d.clock.monotonic_ns};
    const uint64_t pause_ns = limits[0].period_ns / limits[0].limit * 4 + 1;
    for (int n = 0; n < CALLS; n++) {
        const size_t tier = random_below(rng, TIERS);
        const weir_limit *limit = &limits[tier];
        const uint64_t cost = 1 + random_below(rng, limit->burst) / (1 + random_below(rng, 8));
        weir_verdict v;
        fake_clock_advance(&d.clock, random_below(rng, 3) == 0 ? 0 : random_below(rng, pause_ns));
        assert_true(weir_poll(d.w) >= 0);
        plain_to(&p, d.clock.monotonic_ns);
        weir_thread *t = weir_attach(d.w);
        const bool peeks = random_below(rng, 2) == 0;
        (void) (peeks ? weir_peek : weir_check)(t, &keys[tier], cost, &v);
        weir_detach(t);
        compare(&p, limit, cost, &v);
        if (!peeks) {
            p.rate = (double) limit->limit / (double) limit->period_ns;
            p.owed += v.allowed ? (double) cost : 0;
        }
    }
}

static void test_a_bucket_refills_at_the_rate_of_the_tier_that_was_checked_last(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < 200; times++) {
        weir_limit limits[TIERS];
        weir_policy policies[TIERS];
        weir_key keys[TIERS];
        const uint64_t period_ns = (SECOND << random_below(&rng, 12)) + random_below(&rng, SECOND);
        for (size_t i = 0; i < TIERS; i++) {
            limits[i] = random_limit(period_ns, &rng); /* tiers share what was used where the period is the same */
            policies[i] = (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1};
        }
        open_two_handles(policies, TIERS);
        for (size_t i = 0; i < TIERS; i++) {
            keys[i] = key_of(names[i], "ann");
        }
        play(keys, limits, &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bucket_refills_at_the_rate_of_the_tier_that_was_checked_last),
    };
    return cmocka_run_group_tests_name("unit/check/tiers", tests, NULL, close_two_handles);
}
