/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis's clock is set, by an hour to thirty years, and set right again. Several nodes share one limit and ask for
 * three times as much. In no two periods more passes than the limit's bound. After a step less than the limit passes
 * for no longer than the first period.
 *
 * Guards: src/fleet/fleet_clock.c, src/fleet/clock_shift.c
 */
#include <inttypes.h>

#include "support/nodes.h"
#include "support/policies.h"

#define UNITS   300
#define SLICES  4 /* of a period */
#define PERIODS 11
#define DAY     (24 * HOUR)
#define YEAR    (365 * DAY)

static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = UNITS},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = UNITS},
    {.algorithm = WEIR_SLIDING_LOG, .limit = UNITS},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = UNITS},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = UNITS, .delay = UNITS},
};

struct run {
    struct nodes n;
    weir_limit limit;
    weir_policy policy;
    uint64_t interval_ns;
    double owed[NODES]; /* parts of a unit that are still to be asked for */
    double slice[PERIODS * SLICES];
    size_t slices;
};

static void move_clocks(struct run *r, uint64_t by_ns)
{
    fake_clock_advance(&r->n.fleet_clock, by_ns);
    for (int i = 0; i < NODES; i++) {
        fake_clock_advance(&r->n.node[i].clock, by_ns);
    }
    for (int i = 0; i < 2 * NODES; i++) {
        weir *w = r->n.node[i / 2].w;
        assert_true(w == NULL || weir_poll(w) >= 0);
    }
}

static void run_periods(struct run *r, size_t periods)
{
    const uint64_t step_ns = r->interval_ns / 5;
    const uint64_t slice_ns = r->limit.period_ns / SLICES;
    const double each = 3.0 * UNITS / NODES * (double) step_ns / (double) r->limit.period_ns;
    for (size_t s = 0; s < periods * SLICES; s++) {
        for (uint64_t done_ns = 0; done_ns < slice_ns; done_ns += step_ns) {
            for (int i = 0; i < NODES; i++) {
                r->owed[i] += each;
                const uint64_t whole = (uint64_t) r->owed[i];
                r->owed[i] -= (double) whole;
                r->slice[r->slices] += r->n.node[i].w != NULL ? (double) ask(&r->n.node[i], whole) : 0;
            }
            move_clocks(r, step_ns);
        }
        r->slices++;
    }
}

static double sum_of(const struct run *r, size_t from, size_t count)
{
    double sum = 0;
    for (size_t i = from; i < from + count; i++) {
        sum += r->slice[i];
    }
    return sum / UNITS;
}

static void run_begin(struct run *r, const weir_limit *kind, uint64_t interval_ms)
{
    memset(r, 0, sizeof(*r));
    r->interval_ns = interval_ms * MILLISECOND;
    r->limit = *kind;
    r->limit.period_ns = r->interval_ns * 20 > SECOND ? r->interval_ns * 20 : SECOND;
    if (kind->algorithm == WEIR_LEAKY_BUCKET) {
        r->limit.delay = UNITS;
    }
    r->policy = (weir_policy){.name = "p", .limits = &r->limit, .limit_count = 1};
    nodes_init(&r->n, &r->policy, 1);
    r->n.expected_nodes = NODES;
    for (int i = 0; i < NODES; i++) {
        r->n.interval_ms[i] = (uint32_t) interval_ms;
        node_open(&r->n, i, 0);
        move_clocks(r, r->interval_ns / 4);
    }
    for (int i = 0; i < 40; i++) {
        move_clocks(r, r->interval_ns / 5);
    }
}

static void set_clock(struct run *r, int64_t by_ns, bool hosts)
{
    r->n.fleet_clock.wall_ns += (uint64_t) by_ns;
    for (int i = 0; hosts && i < NODES; i++) {
        r->n.node[i].clock.wall_ns += (uint64_t) by_ns;
    }
}

/* `amnesty`: limits that may pass once more, where time has gone forward. */
static void expect_bounds(const struct run *r, const char *what, double amnesty)
{
    const bool fixed = r->limit.algorithm == WEIR_FIXED_WINDOW;
    for (size_t from = 3 * SLICES; from + 2 * SLICES <= r->slices; from++) {
        /* Two whole periods: of fixed windows parts of three; the part of a unit, and the allowance's error. */
        const double passed = sum_of(r, from, 2 * SLICES);
        if (passed > (fixed ? 3.1 : 2.25) + amnesty) {
            fail_msg("%s: %.2f limits in two periods from slice %zu on", what, passed, from);
        }
    }
    for (size_t begin = 3 * SLICES; begin + 4 * SLICES <= r->slices; begin += 4 * SLICES) {
        const double passed = sum_of(r, begin, 4 * SLICES);
        if (passed < 2.7) {
            fail_msg("%s: %.2f limits in the four periods from slice %zu on", what, passed, begin);
        }
        if (passed > (fixed ? 5.1 : 4.4) + amnesty) {
            fail_msg("%s: %.2f limits in four periods from slice %zu on", what, passed, begin);
        }
    }
}

/* Steps of these sizes and up to half as much more. */
static const uint64_t sizes[] = {HOUR + HOUR / 60, DAY, YEAR, 30 * YEAR};

static void step_and_back(bool hosts)
{
    uint64_t rng = test_seed();
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t s = 0; s < 2 * sizeof(sizes) / sizeof(sizes[0]); s++) {
            const uint64_t size = sizes[s / 2] + random_below(&rng, sizes[s / 2] / 2);
            const int64_t by_ns = s % 2 == 0 ? (int64_t) size : -(int64_t) size;
            const uint64_t rate_id = UINT64_C(10) << random_below(&rng, 10);
            const uint64_t interval_ms = rate_id + random_below(&rng, rate_id); /* 10 ms to 10 s */
            char what[160];
            (void) snprintf(what, sizeof(what), "algorithm %zu, step %+.3f days, interval %" PRIu64 " ms%s", k,
                            (double) by_ns / (double) DAY, interval_ms, hosts ? ", hosts as well" : "");
            struct run r;
            run_begin(&r, &kinds[k], interval_ms);
            run_periods(&r, 3);
            const size_t warnings = r.n.node[0].warnings;
            set_clock(&r, by_ns, hosts);
            run_periods(&r, 4);
            const bool follows = by_ns > 0 && hosts && size <= 2 * YEAR;
            /* The set of nodes lives for a day after a heartbeat: it expires when the clock steps forward by more, and
             * the log says that data was lost. Records live shorter, and that they are gone is said if their node had
             * reported to them before. Either is said at most once. */
            const bool expires = size > DAY;
            const bool forward = by_ns > 0;
            /* A node whose time goes forward has no reason to log that until the clock is back. */
            const size_t first = warnings + !follows;
            if (r.n.node[0].warnings < first + (expires && forward) || r.n.node[0].warnings > first + forward) {
                fail_msg("%s: %zu warnings: %s", what, r.n.node[0].warnings - warnings, r.n.node[0].warning);
            }
            set_clock(&r, -by_ns, hosts);
            run_periods(&r, 4);
            if (r.n.node[0].warnings < warnings + 1 + expires || r.n.node[0].warnings > warnings + 2) {
                fail_msg("%s: %zu warnings: %s", what, r.n.node[0].warnings - warnings, r.n.node[0].warning);
            }
            /* What the nodes know of each other has expired, too. */
            expect_bounds(&r, what, follows ? 1 + (expires ? 0.1 : 0) : 0);
            nodes_stop(&r.n);
        }
    }
}

static void test_a_redis_whose_clock_is_set_far_off_and_right_again_changes_no_limit(void **state)
{
    (void) state;
    step_and_back(false);
}

static void test_a_step_that_the_hosts_clocks_made_as_well_gives_one_limit_more_at_most(void **state)
{
    (void) state;
    step_and_back(true);
}

/* A clock that was wrong when the fleet began, and is set right: the nodes are restarted one by one, or all at a time.
 */
static void test_nodes_that_restart_after_a_step_find_the_fleets_time(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < 2 * (sizeof(kinds) / sizeof(kinds[0])) * (sizeof(sizes) / sizeof(sizes[0])); i++) {
        const weir_limit *kind = &kinds[i / 2 % 5];
        const bool at_once = i % 2 != 0;
        const uint64_t size = sizes[i / 10] + random_below(&rng, sizes[i / 10] / 2);
        const uint64_t interval_ms = 10 + random_below(&rng, 500);
        char what[160];
        (void) snprintf(what, sizeof(what), "algorithm %zu, back by %.3f days, interval %" PRIu64 " ms, %s", i / 2 % 5,
                        (double) size / (double) DAY, interval_ms, at_once ? "all" : "one by one");
        struct run r;
        run_begin(&r, kind, interval_ms);
        run_periods(&r, 3);
        for (int node = 0; at_once && node < NODES; node++) {
            node_close(&r.n.node[node]);
        }
        set_clock(&r, -(int64_t) size, false);
        for (int node = 0; node < NODES; node++) {
            if (!at_once) {
                node_close(&r.n.node[node]);
            }
            node_open(&r.n, node, random_below(&rng, 2) == 0 ? 0 : (int64_t) size);
            for (int steps = 0; !at_once && steps < 10; steps++) {
                move_clocks(&r, r.interval_ns / 5);
            }
        }
        run_periods(&r, 4);
        run_periods(&r, 4);
        expect_bounds(&r, what, 1.0 / NODES); /* each new node has its equal share until its first answer */
        nodes_stop(&r.n);
    }
}

/*
 * Redis has lost its data and its clock has gone back, and a node that begins joins first. The others' time steps back
 * too. Buckets are left out, because they fail: the round that finds the loss has reported their times by the clock
 * that was ahead, and the new record denies until those times have come.
 */
static void test_a_fleet_that_has_lost_its_data_may_begin_earlier(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < 3 * (sizeof(sizes) / sizeof(sizes[0])); i++) {
        const weir_limit *kind = &kinds[i % 3]; /* windows and logs */
        const uint64_t size = sizes[i / 3] + random_below(&rng, sizes[i / 3] / 2);
        const uint64_t interval_ms = 10 + random_below(&rng, 500);
        char what[160];
        (void) snprintf(what, sizeof(what), "algorithm %zu, begins %.3f days earlier, interval %" PRIu64 " ms", i % 3,
                        (double) size / (double) DAY, interval_ms);
        struct run r;
        run_begin(&r, kind, interval_ms);
        run_periods(&r, 3);
        node_close(&r.n.node[2]);
        loopback_fleet_forget(r.n.fleet);
        set_clock(&r, -(int64_t) size, false);
        node_open(&r.n, 2, 0);
        for (int times = 0; times < 5; times++) {
            assert_true(weir_poll(r.n.node[2].w) >= 0);
        }
        run_periods(&r, 4);
        for (int node = 0; node < NODES; node++) {
            const struct fleet *fleet = r.n.node[node].w->fleet;
            const int64_t ahead_ns = (int64_t) (r.n.node[node].clock.monotonic_ns +
                                                load_relaxed(&fleet->line->offset_ns) - r.n.fleet_clock.wall_ns);
            if (ahead_ns > (int64_t) SECOND || ahead_ns < -(int64_t) SECOND) {
                fail_msg("%s: node %d is %.3f s ahead", what, node, (double) ahead_ns / (double) SECOND);
            }
        }
        run_periods(&r, 4);
        expect_bounds(&r, what, 1);
        nodes_stop(&r.n);
    }
}

/* So long that little of it passes until the first answer has come, and that a whole one is soon over. */
#define STEP_PERIOD_S 40

/*
 * A node begins without Redis, with a clock that is wrong, and uses up the limit. Its first answer sets its clock. The
 * units still count then, and a period later they do not.
 */
static void test_units_of_before_the_first_answer_outlive_the_step_of_the_clock(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < 2 * (sizeof(kinds) / sizeof(kinds[0])) * (sizeof(sizes) / sizeof(sizes[0])); i++) {
        weir_limit limit = kinds[i / 2 % 5];
        limit.period_ns = STEP_PERIOD_S * SECOND;
        const weir_policy policy = patient_policy_of(&limit);
        const int64_t size = (int64_t) (sizes[i / 10] + random_below(&rng, sizes[i / 10] / 2));
        struct nodes n;
        nodes_init(&n, &policy, 1);
        /*
         * The fleet's window has just begun, so that no other one begins before the answer; nor does one by the node's
         * own clock: it would be right to count nothing of the window before.
         */
        n.fleet_clock.wall_ns += limit.period_ns - n.fleet_clock.wall_ns % limit.period_ns + random_below(&rng, SECOND);
        int64_t wrong_ns = i % 2 == 0 ? size : -size;
        while ((n.fleet_clock.wall_ns + (uint64_t) wrong_ns) % limit.period_ns > limit.period_ns - 10 * SECOND) {
            wrong_ns += (int64_t) SECOND;
        }
        char what[160];
        (void) snprintf(what, sizeof(what), "algorithm %zu, %.3f days wrong", i / 2 % 5,
                        (double) wrong_ns / (double) DAY);
        n.expected_nodes = 1;
        loopback_fleet_set_down(n.fleet, true);
        node_open(&n, 0, wrong_ns);
        pass(&n, 1000);
        assert_int_equal(ask(&n.node[0], UNITS), UNITS);
        loopback_fleet_set_down(n.fleet, false);
        pass(&n, 10 * INTERVAL_MS);
        const struct fleet *fleet = n.node[0].w->fleet;
        assert_int_equal(fleet->clock.step_ns, 0);
        const int64_t ahead_ns =
            (int64_t) (n.node[0].clock.monotonic_ns + load_relaxed(&fleet->line->offset_ns) - n.fleet_clock.wall_ns);
        if (ahead_ns > (int64_t) SECOND || ahead_ns < -(int64_t) SECOND) {
            fail_msg("%s: the node is %.3f s ahead", what, (double) ahead_ns / (double) SECOND);
        }
        const uint64_t soon = room(&n.node[0]); /* of a bucket, what two seconds refill */
        pass(&n, STEP_PERIOD_S * 1000);
        const uint64_t late = room(&n.node[0]);
        /* Of a sliding window the units fade for as long as the next window goes on. */
        const bool fades = limit.algorithm == WEIR_SLIDING_WINDOW;
        const uint64_t least = fades ? 2 * UNITS / STEP_PERIOD_S : UNITS;
        const uint64_t most = fades ? 4 * UNITS / STEP_PERIOD_S : UNITS;
        if (soon > 2 * UNITS / STEP_PERIOD_S || late < least || late > most) {
            fail_msg("%s: %" PRIu64 " units left after two seconds, %" PRIu64 " after a period", what, soon, late);
        }
        nodes_stop(&n);
    }
}

/* Lines of the log about a server's clock, by level. */
struct clock_lines {
    size_t warnings, remote;
};

static void count_clock_line(void *arg, weir_log_level level, const char *message)
{
    struct clock_lines *lines = arg;
    if (strstr(message, "its clock") != NULL) {
        lines->warnings += level == WEIR_LOG_WARNING;
        lines->remote += level != WEIR_LOG_WARNING;
    }
}

/* A node logs a clock when it is wrong, when it is wrong by an hour more or less, and when it is right again. */
static void test_a_wrong_clock_is_said_once_and_again_only_when_it_is_set_once_more(void **state)
{
    (void) state;
    static const struct {
        int64_t by_minutes; /* the clock is set */
        size_t warnings, remote;
    } steps[] = {{0, 0, 0}, {-120, 1, 0}, {-30, 1, 0}, {-40, 2, 0}, {100, 3, 0}, {70, 3, 1}, {30, 3, 1}, {-120, 4, 1}};
    struct run r;
    struct clock_lines lines = {0};
    run_begin(&r, &kinds[0], INTERVAL_MS);
    r.n.node[0].w->fleet->log = count_clock_line;
    r.n.node[0].w->fleet->log_arg = &lines;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        set_clock(&r, steps[i].by_minutes * (int64_t) (HOUR / 60), false);
        for (int times = 0; times < 200; times++) {
            move_clocks(&r, r.interval_ns / 5);
        }
        if (lines.warnings != steps[i].warnings || lines.remote != steps[i].remote) {
            fail_msg("step %zu: %zu warnings and %zu other lines", i, lines.warnings, lines.remote);
        }
    }
    nodes_stop(&r.n);
}

/*
 * A node has had answers at once, by a clock that does not move within a poll. Then Redis is slow, and the host polls
 * once in two hours. A round trip of two hours says nothing of the clock, however many there are.
 */
static void test_answers_that_wait_for_hours_to_be_read_move_no_clock(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UNITS, .period_ns = HOUR};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    struct fleet *fleet = n.node[0].w->fleet;
    for (int i = 0; i < 200; i++) {
        const bool slow = i >= 100;
        loopback_fleet_set_slow(n.fleet, slow ? SECOND / 10 : 0);
        fake_clock_advance(&n.fleet_clock, slow ? 2 * HOUR : SECOND / 5);
        fake_clock_advance(&n.node[0].clock, slow ? 2 * HOUR : SECOND / 5);
        for (int polls = 0; polls < 3; polls++) {
            assert_true(weir_poll(n.node[0].w) >= 0);
        }
        assert_in_range(fleet->clock.slew_left_ns + 1, 0, 2); /* rounding */
        assert_int_equal(fleet->clock.step_ns, 0);
    }
    assert_true(fleet->clock.known);
    assert_true(load_relaxed(&fleet->stats.clock_skew_ns) != 0); /* the slow answers were readings */
    nodes_stop(&n);
}

/*
 * A node opens, and its first answer is late by a part of the interval up to all of it; its host's clock is right, or
 * wrong by up to an hour. Fleet time is then right to the answer's delay, and a clock that was right has not moved.
 */
static void test_a_late_first_answer_moves_no_clock_that_may_be_right(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UNITS, .period_ns = HOUR};
    const weir_policy policy = policy_of(&limit);
    uint64_t rng = test_seed();
    for (int times = 0; times < 100; times++) {
        const uint64_t late_ns = MILLISECOND + random_below(&rng, SECOND - 100 * MILLISECOND); /* within its timeout */
        int64_t wrong_ns = (int64_t) (HOUR >> random_below(&rng, 30));
        wrong_ns = times % 3 == 0 ? 0 : (times % 3 == 1 ? wrong_ns : -wrong_ns);
        struct nodes n;
        nodes_init(&n, &policy, 1);
        loopback_fleet_set_slow(n.fleet, late_ns);
        node_open(&n, 0, wrong_ns);
        struct fleet *fleet = n.node[0].w->fleet;
        for (int i = 0; i < 2000 && !fleet->clock.known; i++) {
            fake_clock_advance(&n.fleet_clock, MILLISECOND);
            fake_clock_advance(&n.node[0].clock, MILLISECOND);
            assert_true(weir_poll(n.node[0].w) >= 0);
        }
        assert_true(fleet->clock.known);
        const struct fake_clock *clock = &n.node[0].clock;
        const int64_t error_ns =
            (int64_t) (clock->monotonic_ns + load_relaxed(&fleet->line->offset_ns) - n.fleet_clock.wall_ns) +
            fleet->clock.slew_left_ns;
        const uint64_t off_ns = (uint64_t) (error_ns < 0 ? -error_ns : error_ns);
        if (off_ns > (wrong_ns == 0 ? 0 : late_ns + 2 * MILLISECOND)) {
            fail_msg("an answer late by %" PRIu64 " ns, a clock wrong by %" PRId64
                     " ns: fleet time is wrong by %" PRId64 " ns",
                     late_ns, wrong_ns, error_ns);
        }
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_redis_whose_clock_is_set_far_off_and_right_again_changes_no_limit),
        cmocka_unit_test(test_a_step_that_the_hosts_clocks_made_as_well_gives_one_limit_more_at_most),
        cmocka_unit_test(test_nodes_that_restart_after_a_step_find_the_fleets_time),
        cmocka_unit_test(test_a_fleet_that_has_lost_its_data_may_begin_earlier),
        cmocka_unit_test(test_units_of_before_the_first_answer_outlive_the_step_of_the_clock),
        cmocka_unit_test(test_a_wrong_clock_is_said_once_and_again_only_when_it_is_set_once_more),
        cmocka_unit_test(test_answers_that_wait_for_hours_to_be_read_move_no_clock),
        cmocka_unit_test(test_a_late_first_answer_moves_no_clock_that_may_be_right),
    };
    return cmocka_run_group_tests_name("unit/fleet/fleet_clock", tests, NULL, NULL);
}
