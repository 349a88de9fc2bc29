/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N nodes hold their rate, whatever the burst: what a fleet admits in the long run beside one limiter that sees every
 * request (sim_result.of_one), above the limit and below it.
 *
 * WEIR_FLEET_SEEDS: so many seeds of each row, and a table of least, median and most. WEIR_RATES_ALL: longer, and of 2
 * and 8 nodes as well. WEIR_RATES_ONLY: rows whose name contains it.
 *
 * Guards: src/fleet/keys/demand_learn.c, src/fleet/keys/bucket_level.c,
 * src/process/allowance.c, src/algorithm/bucket.c, apps/fleetsim/sim.c
 */
#include "runs.h"

#define SEEDS_MOST 1000

/* Admitted, as a part of what one limiter would admit. */
#define LEAST_ABOVE 0.97
#define MOST        1.02
#define LEAST_BELOW 0.995
#define MOST_OF_LOG 1.03 /* units that pass at once leave the window at once, and then all nodes find equal room */

struct row {
    const char *name;
    weir_limit limit;
    unsigned nodes;
    enum sim_pattern pattern;
    double demand;
    uint64_t length_s;
    double least, most; /* 0: no bound; the row misses its goal */
};

struct figures {
    double reached[SEEDS_MOST];
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Units beyond the limit in a window, or beyond rate * T + burst in any stretch of whole seconds. */
static double beyond(const struct sim *sim, const struct row *row, const struct sim_result *result)
{
    const weir_limit *limit = &row->limit;
    if (limit->algorithm != WEIR_TOKEN_BUCKET && limit->algorithm != WEIR_LEAKY_BUCKET) {
        return (result->most - 1) * (double) limit->limit;
    }
    const double burst = (double) (limit->burst != 0 ? limit->burst : limit->limit);
    const double rate = (double) limit->limit * 1e9 / (double) limit->period_ns;
    double most = 0;
    double above = 0; /* of the stretch that ends here and is the furthest above the rate */
    for (size_t i = 0; i < sim_second_count(sim); i++) {
        above += (sim_get_second(sim, i).admitted - 1) * rate;
        above = above > 0 ? above : 0;
        most = above > most ? above : most;
    }
    return most - burst;
}

/* Few units pass at once, of many in a second; an empty queue has room for one. */
static bool tight(const weir_limit *limit)
{
    const bool queue = limit->algorithm == WEIR_LEAKY_BUCKET && limit->delay == 0;
    return limit->limit >= 1000 && (queue || (limit->burst != 0 && limit->burst <= 20));
}

static struct sim_result run_row(const struct row *row, uint64_t seed, double *over)
{
    const weir_policy policy = {.name = "p", .limits = &row->limit, .limit_count = 1};
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.policies = &policy;
    options.policy_count = 1;
    options.nodes = row->nodes;
    options.demand = row->demand;
    options.pattern = row->pattern;
    options.length_ns = row->length_s * SECOND;
    /* All requests of a step come at once: of a burst of one unit, one unit would pass in each step. */
    options.step_ns = tight(&row->limit) ? SECOND / 4000 : options.step_ns;
    options.link.delay_min_ns = MILLISECOND / 10;
    options.link.delay_max_ns = 3 * MILLISECOND / 10;
    struct sim *sim = NULL;
    weir_error error;
    if (sim_open(&options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    sim_run(sim);
    struct sim_result result;
    sim_get_result(sim, &result);
    *over = beyond(sim, row, &result);
    sim_close(sim);
    return result;
}

static bool wanted(const char *name)
{
    const char *only = getenv("WEIR_RATES_ONLY");
    return only == NULL || strstr(name, only) != NULL;
}

/* False: a run is outside the row's bounds, or beyond the limit by more than `units`. */
static bool check_row(const struct row *row, unsigned seeds, double units)
{
    static struct figures figures;
    char name[120];
    static const char *const patterns[SIM_PATTERNS] = {"even", "skew", "onoff", "move", "jump", "burst", "turns"};
    (void) snprintf(name, sizeof(name), "%s, %u nodes, %s, %.1f", row->name, row->nodes, patterns[row->pattern],
                    row->demand);
    if (!wanted(name)) {
        return true;
    }
    bool good = true;
    double most_over = -1e9;
    const unsigned count = seed_count(seeds) < SEEDS_MOST ? seed_count(seeds) : SEEDS_MOST;
    for (unsigned i = 0; i < count; i++) {
        double over;
        const struct sim_result result = run_row(row, first_seed() + i, &over);
        /* One limiter of a burst of a unit or so denies what comes at once, which several need not. So of what it
         * admits there is a least, where all is to pass; else such bursts are held to demand as a flow. */
        const bool flows = tight(&row->limit);
        const double reached = flows ? result.of_flow : result.of_one;
        const double least_of = flows && row->demand > 1 ? result.of_flow : result.of_one;
        figures.reached[i] = reached;
        most_over = over > most_over ? over : most_over;
        const bool holds = (row->least == 0 || least_of >= row->least) && (row->most == 0 || reached <= row->most) &&
                           (units == 0 || over <= units);
        if (!holds) {
            print_message("# %s, seed %llu: %.4f of one limiter's, not %.3f to %.3f; %.1f units beyond\n", name,
                          (unsigned long long) (first_seed() + i), reached, row->least, row->most, over);
        }
        good = good && holds;
    }
    if (count > seeds) {
        qsort(figures.reached, count, sizeof(double), by_value);
        print_message("# row | %s | %.4f | %.4f | %.4f | %.1f\n", name, figures.reached[0], figures.reached[count / 2],
                      figures.reached[count - 1], most_over);
    }
    return good;
}

static const struct {
    const char *name;
    weir_limit limit;
} kinds[] = {
    {"bucket, burst 1", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 1}},
    {"bucket, burst 5", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 5}},
    {"bucket, burst 20", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 20}},
    {"bucket, burst 100", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 100}},
    {"bucket, burst 1000", {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND}},
    {"leaky, burst 20", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 20}},
    {"leaky, burst 1000", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 1000, .period_ns = SECOND, .delay = 1000}},
    {"fixed", {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = SECOND}},
    {"sliding", {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000, .period_ns = SECOND}},
    {"log", {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = SECOND}},
};

/*
 * Every kind on so many nodes. What slides, and is asked for by turns, has no later second in which it could make good
 * what was left to a node that has just fallen silent; and a bucket that is asked for too much again refills once more
 * for the time that the news is old. docs/accuracy.md has both bounds.
 */
#define LEAST_OF_TURNS 0.92
#define MOST_OF_TURNS  1.035

static double most_of(const weir_limit *limit, enum sim_pattern pattern)
{
    const bool bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    return limit->algorithm == WEIR_SLIDING_LOG ? MOST_OF_LOG : bucket && pattern == SIM_ONOFF ? MOST_OF_TURNS : MOST;
}

static double least_of(const weir_limit *limit, enum sim_pattern pattern, double least)
{
    if (pattern != SIM_ONOFF || least == LEAST_BELOW) {
        return least;
    }
    const bool slides = limit->algorithm == WEIR_SLIDING_WINDOW || limit->algorithm == WEIR_SLIDING_LOG;
    return slides ? LEAST_OF_TURNS : least;
}

static void check_kinds(double demand, double least)
{
    const bool all = getenv("WEIR_RATES_ALL") != NULL;
    static const unsigned nodes[] = {4, 2, 8};
    static const enum sim_pattern patterns[] = {SIM_EVEN, SIM_SKEW, SIM_ONOFF};
    size_t bad = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t n = 0; n < (all ? 3 : 1); n++) {
            for (size_t i = 0; i < 3; i++) {
                const struct row row = {.name = kinds[k].name,
                                        .limit = kinds[k].limit,
                                        .nodes = nodes[n],
                                        .pattern = patterns[i],
                                        .demand = demand,
                                        .length_s = all ? 22 : 8,
                                        .least = least_of(&kinds[k].limit, patterns[i], least),
                                        .most = most_of(&kinds[k].limit, patterns[i])};
                bad += !check_row(&row, 1, 0);
            }
        }
    }
    assert_int_equal(bad, 0);
}

static void test_above_the_limit_the_rate_is_the_limit(void **state)
{
    (void) state;
    check_kinds(3.0, LEAST_ABOVE);
}

static void test_below_the_limit_all_but_a_few_pass(void **state)
{
    (void) state;
    check_kinds(0.9, LEAST_BELOW);
}

static void test_rates_and_bursts_that_were_asked_about(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {"1000/s, burst 20",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 20},
         1,
         SIM_EVEN,
         0.9,
         12,
         LEAST_BELOW,
         MOST},
        {"1000/s, burst 20",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 20},
         4,
         SIM_EVEN,
         0.9,
         12,
         LEAST_BELOW,
         MOST},
        {"5000/s, burst 40",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5000, .period_ns = SECOND, .burst = 40},
         8,
         SIM_EVEN,
         0.9,
         12,
         LEAST_BELOW,
         MOST},
        {"5000/s, burst 40",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5000, .period_ns = SECOND, .burst = 40},
         8,
         SIM_EVEN,
         3.0,
         12,
         LEAST_ABOVE,
         MOST},
        {"200/s, burst 10",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 200, .period_ns = SECOND, .burst = 10},
         4,
         SIM_EVEN,
         0.9,
         12,
         LEAST_BELOW,
         MOST},
        {"200/s, burst 10",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 200, .period_ns = SECOND, .burst = 10},
         4,
         SIM_EVEN,
         3.0,
         12,
         LEAST_ABOVE,
         MOST},
        {"queue 10/s, burst 1",
         {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 1},
         1,
         SIM_EVEN,
         0.8,
         60,
         LEAST_BELOW,
         MOST},
        {"50000/s, burst 400",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 50000, .period_ns = SECOND, .burst = 400},
         8,
         SIM_SKEW,
         0.9,
         6,
         LEAST_BELOW,
         MOST},
        {"50000/s, burst 400",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 50000, .period_ns = SECOND, .burst = 400},
         8,
         SIM_SKEW,
         3.0,
         6,
         LEAST_ABOVE,
         MOST},
    };
    size_t bad = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bad += !check_row(&rows[i], 1, 0);
    }
    assert_int_equal(bad, 0);
}

/* Where a node's part of an interval is less than a few units: no more than one unit for each other node beyond. */
static void test_slow_rates_let_a_unit_pass_beside_at_each_node(void **state)
{
    (void) state;
    enum { SLOW_NODES = 4 };
    static const weir_algorithm algorithms[] = {WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET, WEIR_FIXED_WINDOW,
                                                WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG};
    static const char *const names[] = {"bucket", "leaky", "fixed", "sliding", "log"};
    static const double demands[] = {3.0, 0.9};
    size_t bad = 0;
    for (size_t a = 0; a < 5; a++) {
        for (size_t d = 0; d < 2; d++) {
            for (size_t p = 0; p < 2; p++) {
                char name[40];
                const struct row row = {
                    .name = name,
                    .limit = {.algorithm = algorithms[a], .limit = 10, .period_ns = p == 0 ? SECOND : 60 * SECOND},
                    .nodes = SLOW_NODES,
                    .pattern = SIM_EVEN,
                    .demand = demands[d],
                    .length_s = p == 0 ? 30 : 300};
                (void) snprintf(name, sizeof(name), "%s, 10 in %s", names[a], p == 0 ? "a second" : "a minute");
                /* A fixed window and a log miss the bound by a unit in some seeds of a hundred. */
                const double missed = algorithms[a] == WEIR_FIXED_WINDOW || algorithms[a] == WEIR_SLIDING_LOG;
                bad += !check_row(&row, 1, SLOW_NODES - 1 + missed + 1e-6);
            }
        }
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_above_the_limit_the_rate_is_the_limit),
        cmocka_unit_test(test_below_the_limit_all_but_a_few_pass),
        cmocka_unit_test(test_rates_and_bursts_that_were_asked_about),
        cmocka_unit_test(test_slow_rates_let_a_unit_pass_beside_at_each_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
