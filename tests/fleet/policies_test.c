/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy that is changed to another rate and back within some intervals: on all nodes at one time, on one node after
 * the other, or on one node alone. Redis is there, gone, or comes back meanwhile.
 *
 * No unit is lost or counted twice. Meant: no second has more than 1.05 of the larger limit in force, and of a bucket
 * what the bucket had left of its burst. What misses that today is held to what it reaches (MORE_TODAY). From some
 * seconds after the changes and the outage on, no second has less than 0.9 of the limit.
 *
 * Drawn from the seed: the other rate, an eighth to twice the first; bursts of a twentieth of the limit to one
 * limit; 1 to 8 nodes; which nodes change when, and for how long; whether Redis is gone, and when.
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/policy/policy_set.c, src/limiter/set_policies.c
 */
#include <math.h>

#include "inside.h"
#include "runs.h"

/*
 * The limit is fixed, so that a unit is a small part of what a second is bounded by. What is drawn is what
 * docs/outages.md tells the bounds of; wider ranges would need wider bounds.
 */
#define LIMIT       2000
#define SEEDS       10
#define MOST        1.05
#define MORE_TODAY  0.03 /* what single seconds of buckets and of fixed windows reach today */
#define MORE_OF_LOG 0.05 /* units that passed at once leave a log at once, and then all nodes find equal room */
#define LEAST_PART  0.9
#define NODES_MOST  8
#define SETTLED_S   12
#define LENGTH_S    30

struct changes {
    uint64_t other, burst_divisor;
    struct sim_fault fault;
    size_t fault_count;
    unsigned nodes;
    uint64_t from_ns[NODES_MOST], until_ns[NODES_MOST]; /* when the other rate is in force; 0: never */
    uint64_t first_ns, last_ns;                         /* of all changes and of the outage */
};

static struct changes draw(uint64_t seed)
{
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct changes changes = {.nodes = 1 + (unsigned) random_below(&random, NODES_MOST)};
    changes.other = (uint64_t) (LIMIT * pow(2, (double) random_below(&random, 4001) / 1000 - 3));
    changes.burst_divisor = 1 + random_below(&random, 20);
    const uint64_t way = random_below(&random, 3);
    const uint64_t at_ns = 5 * SECOND + random_below(&random, SECOND);
    const uint64_t length_ns = (20 + random_below(&random, 1500)) * MILLISECOND;
    const uint64_t late_ms = random_below(&random, 1000);
    for (unsigned i = 0; i < (way == 0 ? 1 : changes.nodes); i++) {
        changes.from_ns[i] = at_ns + (way == 1 ? random_below(&random, late_ms + 1) * MILLISECOND : 0);
        changes.until_ns[i] = changes.from_ns[i] + length_ns;
    }
    changes.fault_count = random_below(&random, 3) != 0;
    const uint64_t gone_ns = at_ns + 2 * SECOND - random_below(&random, 4000) * MILLISECOND;
    changes.fault = (struct sim_fault){.kind = SIM_DOWN,
                                       .from_ns = gone_ns,
                                       .until_ns = gone_ns + 300 * MILLISECOND + random_below(&random, 3 * SECOND)};
    changes.first_ns = at_ns;
    changes.last_ns = at_ns + SECOND + length_ns;
    if (changes.fault_count != 0 && changes.last_ns < changes.fault.until_ns) {
        changes.last_ns = changes.fault.until_ns;
    }
    return changes;
}

static weir_limit limit_of_rate(const struct changes *changes, weir_algorithm algorithm, uint64_t units)
{
    const bool bucket = algorithm == WEIR_TOKEN_BUCKET;
    return (weir_limit){.algorithm = algorithm,
                        .limit = units,
                        .period_ns = SECOND,
                        .burst = bucket ? units / changes->burst_divisor : 0};
}

static void set_limit(struct sim_node *node, const weir_limit *limit)
{
    const weir_policy policy = {.name = "p", .limits = limit, .limit_count = 1};
    weir_error error;
    if (weir_set_policies(node->w, &policy, 1, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

/* Runs to the end, with the changes. */
static void run(struct sim *sim, const struct changes *changes, const weir_limit *first, const weir_limit *other)
{
    bool changed[NODES_MOST] = {false};
    do {
        const uint64_t now_ns = sim_now_ns(sim);
        for (unsigned i = 0; i < changes->nodes; i++) {
            const bool now = now_ns >= changes->from_ns[i] && now_ns < changes->until_ns[i];
            if (now != changed[i]) {
                set_limit(&sim->nodes[i], now ? other : first);
                changed[i] = now;
            }
        }
    } while (sim_step(sim));
}

struct seconds {
    double over, least; /* over: what a second had of the larger limit, without what the bucket had left */
    size_t over_at, least_at;
};

static struct seconds look(const struct sim *sim, const struct changes *changes, bool bucket)
{
    const double other = (double) changes->other / LIMIT;
    const double burst = bucket ? fmax(1, other) / (double) changes->burst_divisor : 0;
    double left = burst;
    struct seconds seconds = {.over = 0, .least = 1e9};
    for (size_t i = 0; i < sim_second_count(sim); i++) {
        const struct sim_second second = sim_get_second(sim, i);
        const bool changing = (i + 1) * SECOND > changes->first_ns && i * SECOND < changes->last_ns;
        const double limit = changing ? fmax(1, other) : 1;
        const double over = (second.admitted - left) / limit;
        left = fmin(burst, fmax(0, left + limit - second.admitted));
        const double fraction = second.admitted / fmin(second.asked, 1);
        if (i >= 3 && over > seconds.over) {
            seconds.over = over;
            seconds.over_at = i;
        }
        const bool settled = i * SECOND > changes->last_ns + SETTLED_S * SECOND;
        if (settled && fraction < seconds.least) {
            seconds.least = fraction;
            seconds.least_at = i;
        }
    }
    return seconds;
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    const struct changes changes = draw(seed);
    const weir_limit first = limit_of_rate(&changes, algorithm, LIMIT);
    const weir_limit other = limit_of_rate(&changes, algorithm, changes.other);
    const weir_policy policy = {.name = "p", .limits = &first, .limit_count = 1};
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.policies = &policy;
    options.policy_count = 1;
    options.nodes = changes.nodes;
    options.demand = 3;
    options.length_ns = LENGTH_S * SECOND;
    options.faults = &changes.fault;
    options.fault_count = changes.fault_count;
    options.link.delay_min_ns = MILLISECOND / 10;
    options.link.delay_max_ns = 3 * MILLISECOND / 10;
    struct sim *sim = NULL;
    weir_error error;
    if (sim_open(&options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    run(sim, &changes, &first, &other);
    const struct seconds seconds = look(sim, &changes, algorithm == WEIR_TOKEN_BUCKET);
    struct sim_audit audit;
    sim_audit(sim, &audit);
    sim_close(sim);
    const double highest = MOST + MORE_TODAY + (algorithm == WEIR_SLIDING_LOG ? MORE_OF_LOG : 0);
    const bool holds = audit.good && seconds.over <= highest && seconds.least >= LEAST_PART;
    if (!holds || getenv("WEIR_FLEET_SEEDS") != NULL) {
        char command[1200];
        describe(&options, command, sizeof(command));
        print_message("# %s%.3f in second %zu, %.3f beside what was left in second %zu%s; algorithm %d, burst %llu, "
                      "other %llu, first node from %.3f to %.3f, last until %.3f %s\n",
                      holds ? "" : "WRONG: ", seconds.least, seconds.least_at, seconds.over, seconds.over_at,
                      audit.good ? "" : audit.wrong, (int) algorithm, (unsigned long long) first.burst,
                      (unsigned long long) changes.other, (double) changes.from_ns[0] / 1e9,
                      (double) changes.until_ns[0] / 1e9, (double) changes.last_ns / 1e9, command);
    }
    return holds;
}

static void test_a_bucket_whose_rate_is_changed_and_changed_back_holds(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_TOKEN_BUCKET, SEEDS);
}

static void test_a_window_whose_limit_is_changed_and_changed_back_holds(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_FIXED_WINDOW, SEEDS);
}

static void test_a_window_that_slides_whose_limit_is_changed_and_changed_back_holds(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_WINDOW, SEEDS);
}

static void test_a_log_whose_limit_is_changed_and_changed_back_holds(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_LOG, SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bucket_whose_rate_is_changed_and_changed_back_holds),
        cmocka_unit_test(test_a_window_whose_limit_is_changed_and_changed_back_holds),
        cmocka_unit_test(test_a_window_that_slides_whose_limit_is_changed_and_changed_back_holds),
        cmocka_unit_test(test_a_log_whose_limit_is_changed_and_changed_back_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
