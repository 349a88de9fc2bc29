/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fleets under every kind of fault: no admitted unit is lost or counted twice, and every node goes on afterwards.
 * Schedules are drawn from seeds; a run that fails prints its command of weir-fleetsim.
 *
 * Guards: src/fleet/keys/merge.c, src/fleet/keys/report.c, src/fleet/keys/gather.c, src/transport/loopback/network.c,
 * apps/fleetsim/faults.c, apps/fleetsim/audit.c
 */
#include "runs.h"

/*
 * The sizes are fixed: the audit asks every node for room at one moment, and with other nodes, intervals and smaller
 * limits a node that is back from an outage at that moment may still find none.
 */
#define NODES  5
#define LIMIT  3000
#define LENGTH (12 * SECOND)
#define QUIET  (3 * SECOND) /* the last part of the run: lost reports are sent again without new traffic */

/* Nothing refills and no window ends within a run, so every unit that ever passed is compared with the fleet's. */
static const weir_limit long_limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = LIMIT, .period_ns = HOUR, .delay = LIMIT},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .calendar = WEIR_CALENDAR_DAY},
};

/* Windows end during the faults, and during partitions. */
static const weir_limit short_limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT / 10, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT / 10, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT / 10, .period_ns = SECOND},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT / 10, .period_ns = SECOND},
};

static const weir_limit several_limits[] = {
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 300, .period_ns = SECOND, .burst = 600},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 2000, .period_ns = 10 * SECOND},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 3000, .calendar = WEIR_CALENDAR_MONTH},
};

static weir_policy policy_of(const weir_limit *limits, size_t count)
{
    return (weir_policy){.name = "p", .limits = limits, .limit_count = count};
}

static void base(struct sim_options *o, uint64_t *random)
{
    o->nodes = NODES;
    o->length_ns = LENGTH;
    o->quiet_ns = QUIET;
    o->pattern = (enum sim_pattern) random_below(random, SIM_PATTERNS);
    o->jump_ns = LENGTH / 3;
    /* Under a long limit some units must pass to the very end. */
    const weir_limit *limit = &o->policies[0].limits[0];
    const double period_s =
        limit->calendar == WEIR_CALENDAR_DAY ? 86400.0 : (double) limit->period_ns / (double) SECOND;
    o->demand = period_s > 100 ? period_s / 10 * (random_below(random, 2) == 0 ? 0.7 : 2.0) : 2.0;
}

static void bad_network(struct sim_options *o, uint64_t *random)
{
    o->link.delay_min_ns = random_below(random, 10) * MILLISECOND;
    o->link.delay_max_ns = o->link.delay_min_ns + random_below(random, 100) * MILLISECOND;
    o->link.requests_lost_ppm = (uint32_t) random_below(random, 100000);
    o->link.answers_lost_ppm = (uint32_t) random_below(random, 100000);
    o->link.duplicates_ppm = (uint32_t) random_below(random, 300000);
    o->link.duplicate_delay_ns = random_below(random, 3000) * MILLISECOND;
    o->drift_ppm = (int32_t) random_below(random, 200);
}

static struct sim_fault *add(struct sim_options *o, struct sim_fault *faults, enum sim_fault_kind kind,
                             uint64_t *random)
{
    struct sim_fault *f = &faults[o->fault_count++];
    f->kind = kind;
    f->first = f->last = (unsigned) random_below(random, NODES);
    f->from_ns = random_below(random, 8000) * MILLISECOND;
    f->until_ns = f->from_ns + (100 + random_below(random, 3000)) * MILLISECOND;
    f->behind_ns = random_below(random, 2000) * MILLISECOND;
    return f;
}

static void draw_network(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    (void) faults;
    base(o, random);
    bad_network(o, random);
}

/* Random faults on a random network. */
static void draw_anything(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    static const enum sim_fault_kind kinds[] = {SIM_CUT,    SIM_CUT,  SIM_HANG,  SIM_DOWN, SIM_EMPTY,
                                                SIM_BEHIND, SIM_KILL, SIM_LEAVE, SIM_JOIN, SIM_CLOCK};
    base(o, random);
    if (random_below(random, 3) != 0) {
        bad_network(o, random);
    }
    const uint64_t count = 1 + random_below(random, 5);
    for (uint64_t i = 0; i < count; i++) {
        struct sim_fault *f = add(o, faults, kinds[random_below(random, sizeof(kinds) / sizeof(kinds[0]))], random);
        if (f->kind == SIM_CLOCK) {
            f->by_ns = ((int64_t) random_below(random, 7200) - 3600) * (int64_t) SECOND;
        }
    }
}

static void draw_partition(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    struct sim_fault *f = add(o, faults, SIM_CUT, random);
    f->first = 0;
    f->last = (unsigned) random_below(random, NODES);
    f->from_ns = SECOND + random_below(random, 1000) * MILLISECOND;
    f->until_ns = f->from_ns + 4 * SECOND + random_below(random, 2000) * MILLISECOND;
}

static void draw_restart(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    (void) add(o, faults, SIM_EMPTY, random);
    (void) add(o, faults, SIM_BEHIND, random);
    (void) add(o, faults, SIM_DOWN, random);
}

static void draw_flush(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    (void) add(o, faults, SIM_FLUSH, random);
    (void) add(o, faults, SIM_HANG, random);
}

/* No unit passes after the fault: a node must notice it without unreported units. */
static void draw_rollback(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    struct sim_fault *f = add(o, faults, SIM_ROLLBACK, random);
    f->from_ns = LENGTH - QUIET + random_below(random, 500) * MILLISECOND;
    f->behind_ns = SECOND + random_below(random, 2000) * MILLISECOND;
}

/* The fault comes just before the last sync. */
static void draw_late_loss(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    struct sim_fault *f = add(o, faults, SIM_EMPTY, random);
    f->from_ns = LENGTH - (1 + random_below(random, 150)) * MILLISECOND;
    o->link.delay_min_ns = 5 * MILLISECOND;
    o->link.delay_max_ns = 60 * MILLISECOND;
}

/* Records that were refused for a while are reported when the fleet accepts them again. */
static void draw_refusal(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    base(o, random);
    struct sim_fault *f = add(o, faults, SIM_REFUSE, random);
    f->from_ns = LENGTH - QUIET - 500 * MILLISECOND;
    f->until_ns = f->from_ns + SECOND;
}

/* Single reports that are to be sent again. */
static void draw_unsaid(struct sim_options *o, struct sim_fault *faults, uint64_t *random)
{
    (void) faults;
    base(o, random);
    o->link.unsaid_ppm = 500000;
    o->link.delay_max_ns = 5 * MILLISECOND;
}

static void over_long(unsigned seeds, fleet_draw_fn draw, struct demands demands)
{
    for (size_t i = 0; i < sizeof(long_limits) / sizeof(long_limits[0]); i++) {
        const weir_policy policy = policy_of(&long_limits[i], 1);
        check_seeds(&policy, seeds, draw, demands);
    }
}

static void over_short(unsigned seeds, fleet_draw_fn draw, struct demands demands)
{
    for (size_t i = 0; i < sizeof(short_limits) / sizeof(short_limits[0]); i++) {
        const weir_policy policy = policy_of(&short_limits[i], 1);
        check_seeds(&policy, seeds, draw, demands);
    }
}

static void test_a_network_that_loses_doubles_and_reorders_changes_no_sum(void **state)
{
    (void) state;
    over_long(6, draw_network, (struct demands){0});
    over_short(3, draw_network, (struct demands){0});
}

static void test_a_partition_longer_than_the_window_loses_nothing(void **state)
{
    (void) state;
    over_long(3, draw_partition, (struct demands){.worst = 2, .recovered_s = 3.5});
    over_short(3, draw_partition, (struct demands){.worst = 2.5, .recovered_s = 3.5});
}

static void test_a_redis_that_comes_back_empty_or_behind_is_told_again(void **state)
{
    (void) state;
    over_long(4, draw_restart, (struct demands){.worst = 2, .recovered_s = 3.5});
    over_short(4, draw_restart, (struct demands){.worst = 2.5, .recovered_s = 3.5});
}

static void test_a_redis_that_was_flushed_is_told_again(void **state)
{
    (void) state;
    over_long(4, draw_flush, (struct demands){.worst = 2, .recovered_s = 3.5});
}

static void test_whatever_happens_nothing_is_lost_and_nothing_counted_twice(void **state)
{
    (void) state;
    over_long(10, draw_anything, (struct demands){0});
    over_short(6, draw_anything, (struct demands){0});
}

static void test_several_limits_of_a_policy_are_all_told(void **state)
{
    (void) state;
    const weir_policy policy = policy_of(several_limits, 3);
    check_seeds(&policy, 8, draw_anything, (struct demands){0});
}

static void test_a_rollback_that_nobody_is_told_of_is_noticed(void **state)
{
    (void) state;
    over_long(2, draw_rollback, (struct demands){0});
}

static void test_a_sync_tells_all_that_redis_lost_just_before(void **state)
{
    (void) state;
    over_long(4, draw_late_loss, (struct demands){0});
}

static void test_records_that_were_refused_are_told_when_they_are_taken_again(void **state)
{
    (void) state;
    over_long(2, draw_refusal, (struct demands){0});
}

static void test_reports_that_redis_could_not_take_are_told_again(void **state)
{
    (void) state;
    over_long(4, draw_unsaid, (struct demands){0});
}

static void test_a_seed_gives_the_same_run_to_the_unit(void **state)
{
    (void) state;
    const weir_policy policy = policy_of(&short_limits[1], 1);
    uint64_t digests[3];
    for (int run = 0; run < 3; run++) {
        struct sim_options options;
        struct sim_fault faults[SIM_FAULTS_MAX] = {{0}};
        uint64_t random = 99;
        sim_options_init(&options);
        options.seed = run < 2 ? 7 : 8;
        options.policies = &policy;
        options.policy_count = 1;
        options.faults = faults;
        options.keys = 200;
        options.zipf = 1;
        draw_anything(&options, faults, &random);
        digests[run] = run_sim(&options, NULL).digest;
    }
    assert_int_equal(digests[0], digests[1]);
    assert_int_not_equal(digests[0], digests[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_network_that_loses_doubles_and_reorders_changes_no_sum),
        cmocka_unit_test(test_a_partition_longer_than_the_window_loses_nothing),
        cmocka_unit_test(test_a_redis_that_comes_back_empty_or_behind_is_told_again),
        cmocka_unit_test(test_a_redis_that_was_flushed_is_told_again),
        cmocka_unit_test(test_whatever_happens_nothing_is_lost_and_nothing_counted_twice),
        cmocka_unit_test(test_several_limits_of_a_policy_are_all_told),
        cmocka_unit_test(test_a_rollback_that_nobody_is_told_of_is_noticed),
        cmocka_unit_test(test_a_sync_tells_all_that_redis_lost_just_before),
        cmocka_unit_test(test_records_that_were_refused_are_told_when_they_are_taken_again),
        cmocka_unit_test(test_reports_that_redis_could_not_take_are_told_again),
        cmocka_unit_test(test_a_seed_gives_the_same_run_to_the_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
