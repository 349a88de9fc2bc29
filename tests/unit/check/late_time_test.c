/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread reads the time, and is interrupted before it decides. Another thread charges the bucket meanwhile, as of a
 * later time. The first thread's request is decided as if it came when it is decided: what the bucket has room for
 * then passes, and no more.
 *
 * Guards: src/check/decide.c
 */
#include "check/decide.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "support/one_key.h"
#include "thread/rcu.h"

/* Decides a request that read the time so long ago. */
static bool ask_late(const struct one_key *b, uint64_t late_ns)
{
    struct decision decision = {.allowed = false};
    uint32_t cells[WEIR_MAX_LIMITS];
    rcu_enter(b->t);
    const struct policy_set *set = process_policies(b->t->process);
    const struct policy *policy = policy_set_by_id(set, b->key.policy);
    struct claim claim = {.policy = policy, .key = &b->key, .cost = 1, .cells = cells};
    struct request r = {.t = b->t,
                        .set = set,
                        .claims = &claim,
                        .count = 1,
                        .now_ns = tick_now(b->t, policy) - late_ns,
                        .out = &decision};
    decide_request(&r);
    rcu_leave(b->t);
    return decision.allowed;
}

static weir_limit draw_bucket(uint64_t *rng)
{
    weir_limit limit = {.algorithm = draw_once_in(rng, 2) ? WEIR_TOKEN_BUCKET : WEIR_LEAKY_BUCKET,
                        .limit = draw_limit(rng),
                        .period_ns = draw_period_ns(rng),
                        .burst = draw_magnitude(rng, 2, 1000)}; /* that are asked for one by one */
    draw_make_valid(&limit);
    limit.delay = limit.algorithm == WEIR_LEAKY_BUCKET ? limit.burst : 0; /* the whole burst passes at once */
    return limit;
}

static void test_a_late_request_has_the_room_there_is_when_it_is_decided(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < 400; times++) {
        const weir_limit limit = draw_bucket(&rng);
        const uint64_t late_ns = random_below(&rng, 20 * SECOND) >> random_below(&rng, 20);
        struct one_key b;
        one_key_open(&b, &limit, 1, START_NS);
        one_key_pass(&b, MINUTE);
        assert_int_equal(one_key_drain(&b, limit.burst - 1), limit.burst - 1);
        const bool last = ask_late(&b, late_ns);
        const bool one_more = ask_late(&b, late_ns);
        if (!last || one_more) {
            fail_msg("algorithm %d, %llu per %llu ns, burst %llu, %llu ns late: the last unit %s, one more %s",
                     (int) limit.algorithm, (unsigned long long) limit.limit, (unsigned long long) limit.period_ns,
                     (unsigned long long) limit.burst, (unsigned long long) late_ns, last ? "passes" : "is denied",
                     one_more ? "passes" : "is denied");
        }
        weir_close(b.w);
    }
}

/* A host's clock that goes on whenever it is read. */
struct creeping {
    const struct fake_clock *clock;
    uint64_t by_ns, crept_ns;
};

static uint64_t creep(void *arg)
{
    struct creeping *creeping = arg;
    creeping->crept_ns += creeping->by_ns;
    return creeping->clock->monotonic_ns + creeping->crept_ns;
}

static void test_no_request_waits_for_room_while_it_is_decided(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < 100; times++) {
        const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET,
                                  .limit = 1000000 >> random_below(&rng, 10),
                                  .period_ns = SECOND,
                                  .burst = 3};
        struct one_key b;
        one_key_open(&b, &limit, 1, START_NS);
        /* While a request is decided the clock is read a few times, and no unit takes less than 1,000 ns. */
        struct creeping creeping = {.clock = &b.clock, .by_ns = 1 + random_below(&rng, 30)};
        b.w->clock.monotonic_ns = creep;
        b.w->clock.arg = &creeping;
        b.w->limiter.host_time = false; /* the clock is read as that of a weir with a thread is */
        assert_int_equal(one_key_drain(&b, limit.burst), limit.burst);
        assert_false(ask_late(&b, 0));
        weir_close(b.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_late_request_has_the_room_there_is_when_it_is_decided),
        cmocka_unit_test(test_no_request_waits_for_room_while_it_is_decided),
    };
    return cmocka_run_group_tests_name("unit/check/late_time", tests, NULL, NULL);
}
