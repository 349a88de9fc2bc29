/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests on the fleet simulator share: runs from a seed, their checks, and the command of a run that fails.
 * Seeds are 1 and up, or from WEIR_TEST_SEED up; WEIR_FLEET_SEEDS says how many (the soak suite sets it).
 */
#ifndef WEIR_TESTS_RUNS_H
#define WEIR_TESTS_RUNS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "support/support.h"

/* How a seed and what is drawn from it fill in a run. */
typedef void (*fleet_draw_fn)(struct sim_options *options, struct sim_fault *faults, uint64_t *random);

static inline uint64_t first_seed(void)
{
    const char *text = getenv("WEIR_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

/* So many seeds as WEIR_FLEET_SEEDS says; else so many as usual, scaled by WEIR_DRAWS as all draws are. */
static inline unsigned seed_count(unsigned usual)
{
    const char *text = getenv("WEIR_FLEET_SEEDS");
    return text != NULL ? (unsigned) strtoul(text, NULL, 10) : test_draws(usual);
}

/* The run as options of weir-fleetsim, but for the policy. */
static inline void describe(const struct sim_options *o, char *out, size_t size)
{
    static const char *const patterns[SIM_PATTERNS] = {"even", "skew", "onoff", "move", "jump", "burst", "turns"};
    static const char *const names[] = {"partition",      "deaf",         "stuck",       "redis-hang",
                                        "redis-down",     "redis-empty",  "redis-flush", "redis-behind",
                                        "redis-rollback", "redis-refuse", "redis-slow",  "redis-clock",
                                        "kill",           "leave",        "join",        "clock"};
    int at = snprintf(
        out, size,
        "--seed %llu --nodes %u --interval %u --expected-nodes %u --seconds %g --quiet %g --demand %g --pattern %s",
        (unsigned long long) o->seed, o->nodes, o->interval_ms, o->expected_nodes, (double) o->length_ns / 1e9,
        (double) o->quiet_ns / 1e9, o->demand, patterns[o->pattern]);
    at += snprintf(out + at, size - (size_t) at,
                   " --delay %g-%g --loss %g --lost-answers %g --duplicates %g:%g --unsaid %g --drift %d",
                   (double) o->link.delay_min_ns / 1e6, (double) o->link.delay_max_ns / 1e6,
                   o->link.requests_lost_ppm / 1e6, o->link.answers_lost_ppm / 1e6, o->link.duplicates_ppm / 1e6,
                   (double) o->link.duplicate_delay_ns / 1e6, o->link.unsaid_ppm / 1e6, o->drift_ppm);
    for (size_t i = 0; i < o->fault_count && (size_t) at < size; i++) {
        const struct sim_fault *f = &o->faults[i];
        const double from = (double) f->from_ns / 1e9;
        at += snprintf(out + at, size - (size_t) at, " --%s ", names[f->kind]);
        switch (f->kind) {
        case SIM_CUT:
        case SIM_DEAF:
        case SIM_STUCK:
            at += snprintf(out + at, size - (size_t) at, "%u-%u@%g-%g", f->first, f->last, from,
                           (double) f->until_ns / 1e9);
            break;
        case SIM_HANG:
        case SIM_DOWN:
        case SIM_REFUSE:
            at += snprintf(out + at, size - (size_t) at, "%g-%g", from, (double) f->until_ns / 1e9);
            break;
        case SIM_SLOW:
            at += snprintf(out + at, size - (size_t) at, "%g-%g:%g", from, (double) f->until_ns / 1e9,
                           (double) f->by_ns / 1e6);
            break;
        case SIM_BEHIND:
        case SIM_ROLLBACK:
            at += snprintf(out + at, size - (size_t) at, "%g:%g", from, (double) f->behind_ns / 1e6);
            break;
        case SIM_KILL:
        case SIM_LEAVE:
        case SIM_JOIN:
            at += snprintf(out + at, size - (size_t) at, "%u-%u@%g", f->first, f->last, from);
            break;
        case SIM_CLOCK:
            at += snprintf(out + at, size - (size_t) at, "%u-%u=%g", f->first, f->last, (double) f->by_ns / 1e9);
            break;
        case SIM_FLEET_CLOCK:
            at += snprintf(out + at, size - (size_t) at, "%g=%g", from, (double) f->by_ns / 1e9);
            break;
        case SIM_EMPTY:
        case SIM_FLUSH:
        default:
            at += snprintf(out + at, size - (size_t) at, "%g", from);
            break;
        }
    }
}

/* Runs to the end; fails the test where it cannot be. */
static inline struct sim_result run_sim(const struct sim_options *options, struct sim_audit *audit)
{
    struct sim *sim = NULL;
    struct sim_result result;
    weir_error error;
    if (sim_open(options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    sim_run(sim);
    sim_get_result(sim, &result);
    if (audit != NULL) {
        sim_audit(sim, audit);
    }
    sim_close(sim);
    return result;
}

/* The bounds of a run of a policy with faults. */
struct demands {
    double worst;       /* admitted over limit, in any window; 0: not looked at. In bursts every node may take all */
    double recovered_s; /* every node has a good round so soon after the faults; 0: not looked at */
};

/* Runs with faults that `draw` draws, for every seed; conservation, liveness, and what is demanded besides. */
static inline void check_seeds(const weir_policy *policy, unsigned seeds, fleet_draw_fn draw, struct demands demands)
{
    const uint64_t first = first_seed();
    for (uint64_t seed = first; seed < first + seed_count(seeds); seed++) {
        struct sim_options options;
        struct sim_fault faults[SIM_FAULTS_MAX];
        struct sim_audit audit;
        char command[1200];
        uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
        sim_options_init(&options);
        memset(faults, 0, sizeof(faults));
        options.seed = seed;
        options.policies = policy;
        options.policy_count = 1;
        options.faults = faults;
        draw(&options, faults, &random);
        describe(&options, command, sizeof(command));
        const struct sim_result result = run_sim(&options, &audit);
        if (!audit.good) {
            fail_msg("policy %s, algorithm %d, limit %llu: %s (%llu lost, %llu invented); %s", policy->name,
                     (int) options.policies[0].limits[0].algorithm,
                     (unsigned long long) options.policies[0].limits[0].limit, audit.wrong,
                     (unsigned long long) audit.lost, (unsigned long long) audit.invented, command);
        }
        const double worst = options.pattern == SIM_BURST ? options.nodes : demands.worst;
        if (demands.worst > 0 && result.worst > worst) {
            fail_msg("policy %s: %.3f of the limit passed in a window, not %.3f at most; %s", policy->name,
                     result.worst, worst, command);
        }
        if (demands.recovered_s > 0 && (result.recovered_s < 0 || result.recovered_s > demands.recovered_s)) {
            fail_msg("policy %s: recovered after %.3f s (less than 0: never), not %.3f; %s", policy->name,
                     result.recovered_s, demands.recovered_s, command);
        }
        assert_true(audit.checked > 0);
    }
}

/* A run of one limit, whose seconds are looked at. */
struct seconds_run {
    struct sim_options options;
    weir_limit limit;
    weir_policy policy;
};

/* What the seconds of a run show; admitted units over the limit. */
struct run_seconds {
    double least; /* of what is due: what is asked, up to the limit, or a part of that */
    double most;
    double over; /* the most above what a bucket had left of its burst; `most` of other algorithms */
    size_t least_at, most_at, over_at;
};

/* What a second is due at the least, of what is asked, up to the limit. */
typedef double run_due_fn(const void *drawn, size_t second);

/* Fills in a run of `limit` units a second; its nodes, demand, length and faults are the caller's to set. */
static inline void seconds_run_init(struct seconds_run *run, uint64_t seed, weir_algorithm algorithm, uint64_t limit,
                                    uint64_t burst)
{
    run->limit = (weir_limit){.algorithm = algorithm,
                              .limit = limit,
                              .period_ns = SECOND,
                              .burst = algorithm == WEIR_TOKEN_BUCKET ? burst : 0};
    run->policy = (weir_policy){.name = "p", .limits = &run->limit, .limit_count = 1};
    sim_options_init(&run->options);
    run->options.seed = seed;
    run->options.policies = &run->policy;
    run->options.policy_count = 1;
    run->options.link.delay_min_ns = MILLISECOND / 10;
    run->options.link.delay_max_ns = 3 * MILLISECOND / 10;
}

/* Looks at the seconds of a run from `first` on. `due`: NULL, all that is asked, up to the limit. */
static inline struct run_seconds look_at_seconds(const struct sim *sim, const struct seconds_run *run, size_t first,
                                                 run_due_fn *due, const void *drawn)
{
    const double burst = (double) run->limit.burst / (double) run->limit.limit;
    struct run_seconds seconds = {.least = 1e9, .over = -1e9};
    double left = burst;
    for (size_t i = 0; i < sim_second_count(sim); i++) {
        const struct sim_second second = sim_get_second(sim, i);
        const double over = second.admitted - left;
        const double least =
            second.admitted / (second.asked < 1 ? second.asked : 1) / (due != NULL ? due(drawn, i) : 1);
        left = left + 1 - second.admitted;
        left = left < 0 ? 0 : left;
        left = left > burst ? burst : left;
        if (i >= first && least < seconds.least) {
            seconds.least = least;
            seconds.least_at = i;
        }
        if (i >= first && second.admitted > seconds.most) {
            seconds.most = second.admitted;
            seconds.most_at = i;
        }
        if (i >= first && over > seconds.over) {
            seconds.over = over;
            seconds.over_at = i;
        }
    }
    return seconds;
}

/* Runs to the end, and looks at the seconds. Fails the test where the run cannot be. */
static inline struct run_seconds run_seconds(const struct seconds_run *run, size_t first, run_due_fn *due,
                                             const void *drawn, struct sim_audit *audit)
{
    struct sim *sim = NULL;
    weir_error error;
    if (sim_open(&run->options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    sim_run(sim);
    const struct run_seconds seconds = look_at_seconds(sim, run, first, due, drawn);
    sim_audit(sim, audit);
    sim_close(sim);
    return seconds;
}

/* Prints the line of a seed where WEIR_FLEET_SEEDS asks for all lines, or where the seed does not hold its bounds. */
static inline void print_seconds(const struct seconds_run *run, const struct run_seconds *seconds,
                                 const struct sim_audit *audit, bool holds)
{
    static const char *const names[] = {"fixed", "sliding", "log", "bucket", "leaky"};
    if (holds && getenv("WEIR_FLEET_SEEDS") == NULL) {
        return;
    }
    char command[1200];
    describe(&run->options, command, sizeof(command));
    print_message("# %s%.3f in second %zu to %.3f in second %zu, %.3f beside what was left in second %zu%s; "
                  "--limit %s:%llu/1s:%llu %s\n",
                  holds ? "" : "WRONG: ", seconds->least, seconds->least_at, seconds->most, seconds->most_at,
                  seconds->over, seconds->over_at, audit->good ? "" : audit->wrong, names[run->limit.algorithm],
                  (unsigned long long) run->limit.limit, (unsigned long long) run->limit.burst, command);
}

/* One run of a seed. False: it does not hold what is demanded, and has said so. */
typedef bool fleet_run_fn(uint64_t seed, weir_algorithm algorithm);

/* Runs every seed, so that all that do not hold are told. */
static inline void expect_all_hold(fleet_run_fn run, weir_algorithm algorithm, unsigned seeds)
{
    size_t bad = 0;
    for (uint64_t i = 0; i < seed_count(seeds); i++) {
        bad += !run(first_seed() + i, algorithm);
    }
    assert_int_equal(bad, 0);
}

#endif
