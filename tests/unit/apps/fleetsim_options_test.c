/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of weir-fleetsim's command line: each sets its own part of what is run, and nothing else.
 *
 * Guards: apps/fleetsim/options.c
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../apps/fleetsim/options.h"
#include "support/support.h"

static struct command parsed; /* in one place: it points into itself */

void sim_options_init(struct sim_options *options)
{
    memset(options, 0, sizeof(*options));
    options->seed = 77;
    options->nodes = 6;
    options->length_ns = 30 * SECOND;
    options->link.backs_off = true;
}

/* Parses words, split at spaces, behind the program's name. */
static struct command parse(const char *words)
{
    static char text[4000];
    char *argv[200] = {"weir-fleetsim"};
    int argc = 1;
    (void) snprintf(text, sizeof(text), "%s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        argv[argc++] = word;
    }
    optind = 0;
    options_parse(argc, argv, &parsed);
    return parsed;
}

/* Holds all of it against another, but the limit: its bytes between the fields may be any. */
static bool is_same(struct command *got, const struct command *wanted)
{
    got->limit = wanted->limit;
    got->policy = wanted->policy;
    return memcmp(got, wanted, sizeof(*got)) == 0;
}

#define AT(field, kind) offsetof(struct command, field), kind, sizeof(((struct command *) NULL)->field)

static void test_each_number_is_kept_in_its_unit_and_nothing_else_is_changed(void **state)
{
    (void) state;
    static const struct {
        const char *words;
        size_t offset;
        enum { WHOLE, BROKEN } kind;
        size_t size;
        double wanted;
    } rows[] = {
        {"--nodes=1", AT(sim.nodes, WHOLE), 1},
        {"--nodes=1024", AT(sim.nodes, WHOLE), 1024},
        {"--expected-nodes=0", AT(sim.expected_nodes, WHOLE), 0},
        {"--expected-nodes=65535", AT(sim.expected_nodes, WHOLE), 65535},
        {"--interval=10", AT(sim.interval_ms, WHOLE), 10},
        {"--interval=60000", AT(sim.interval_ms, WHOLE), 60000},
        {"--timeout=10", AT(sim.timeout_ms, WHOLE), 10},
        {"--timeout=60000", AT(sim.timeout_ms, WHOLE), 60000},
        {"--quiet=0", AT(sim.quiet_ns, WHOLE), 0},
        {"--quiet=1.5", AT(sim.quiet_ns, WHOLE), 1.5e9},
        {"--quiet=1000000", AT(sim.quiet_ns, WHOLE), 1e15},
        {"--step=0.1", AT(sim.step_ns, WHOLE), 1e5},
        {"--step=100", AT(sim.step_ns, WHOLE), 1e8},
        {"--demand=0.000001", AT(sim.demand, BROKEN), 1e-6},
        {"--demand=1000000", AT(sim.demand, BROKEN), 1e6},
        {"--jump-at=2.5", AT(sim.jump_ns, WHOLE), 2.5e9},
        {"--jump-at=1000000", AT(sim.jump_ns, WHOLE), 1e15},
        {"--between=1", AT(sim.between, BROKEN), 1},
        {"--between=0.25", AT(sim.between, BROKEN), 0.25},
        {"--keys=1", AT(sim.keys, WHOLE), 1},
        {"--keys=100000", AT(sim.keys, WHOLE), 100000},
        {"--zipf=0", AT(sim.zipf, BROKEN), 0},
        {"--zipf=10", AT(sim.zipf, BROKEN), 10},
        {"--cost=1", AT(sim.cost, WHOLE), 1},
        {"--cost=1000000000000", AT(sim.cost, WHOLE), 1e12},
        {"--seed=0", AT(sim.seed, WHOLE), 0},
        {"--seed=9007199254740992", AT(sim.seed, WHOLE), 9007199254740992.0},
        {"--pattern=even", AT(sim.pattern, WHOLE), SIM_EVEN},
        {"--pattern=skew", AT(sim.pattern, WHOLE), SIM_SKEW},
        {"--pattern=onoff", AT(sim.pattern, WHOLE), SIM_ONOFF},
        {"--pattern=move", AT(sim.pattern, WHOLE), SIM_MOVE},
        {"--pattern=jump", AT(sim.pattern, WHOLE), SIM_JUMP},
        {"--pattern=burst", AT(sim.pattern, WHOLE), SIM_BURST},
        {"--pattern=turns", AT(sim.pattern, WHOLE), SIM_TURNS},
        {"--lost-answers=0.5", AT(sim.link.answers_lost_ppm, WHOLE), 500000},
        {"--lost-answers=1", AT(sim.link.answers_lost_ppm, WHOLE), 1000000},
        {"--unsaid=0.0000019", AT(sim.link.unsaid_ppm, WHOLE), 2},
        {"--unsaid=1", AT(sim.link.unsaid_ppm, WHOLE), 1000000},
        {"--drift=0", AT(sim.drift_ppm, WHOLE), 0},
        {"--drift=100000", AT(sim.drift_ppm, WHOLE), 100000},
        {"--delay=0-60000", AT(sim.link.delay_max_ns, WHOLE), 6e10},
        {"--seeds=1", AT(seeds, WHOLE), 1},
        {"--seeds=1000", AT(seeds, WHOLE), 1000},
        {"--json", AT(json, WHOLE), 1},
        {"--by-second", AT(by_second, WHOLE), 1},
        {"--verbose", AT(verbose, WHOLE), 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char words[200];
        struct command wanted = parse("--limit=fixed:10/1s");
        const uint64_t whole = (uint64_t) rows[i].wanted;
        memcpy((char *) &wanted + rows[i].offset,
               rows[i].kind == BROKEN ? (const void *) &rows[i].wanted : (const void *) &whole, rows[i].size);
        (void) snprintf(words, sizeof(words), "--limit=fixed:10/1s %s", rows[i].words);
        struct command got = parse(words);
        if (!is_same(&got, &wanted)) {
            fail_msg("%s", rows[i].words);
        }
    }
    struct command wanted = parse("--limit=fixed:10/1s");
    assert_true(wanted.seeds == 1 && wanted.sim.zipf == 1 && wanted.sim.seed == 77 &&
                wanted.sim.jump_ns == 15 * SECOND);
    wanted.sim.length_ns = 500 * MILLISECOND;
    wanted.sim.jump_ns = 250 * MILLISECOND;
    struct command got = parse("--limit=fixed:10/1s --seconds=0.5");
    assert_true(is_same(&got, &wanted));
    assert_true(parse("--limit=fixed:10/1s --seconds=1000000").sim.length_ns == 1000000 * SECOND);
    static const struct {
        const char *words;
        struct loopback_link link;
    } links[] = {
        {"--delay=2.5", {.delay_min_ns = 2500000, .delay_max_ns = 2500000}},
        {"--delay=60000", {.delay_min_ns = UINT64_C(60000000000), .delay_max_ns = UINT64_C(60000000000)}},
        {"--delay=7-7", {.delay_min_ns = 7000000, .delay_max_ns = 7000000}},
        {"--loss=0.25", {.requests_lost_ppm = 250000, .answers_lost_ppm = 250000}},
        {"--duplicates=0.5", {.duplicates_ppm = 500000, .duplicate_delay_ns = 500000000}},
        {"--duplicates=0.1:0", {.duplicates_ppm = 100000}},
        {"--duplicates=1:1000000", {.duplicates_ppm = 1000000, .duplicate_delay_ns = UINT64_C(1000000000000)}},
    };
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        char words[200];
        (void) snprintf(words, sizeof(words), "--limit=fixed:10/1s %s", links[i].words);
        wanted = parse("--limit=fixed:10/1s");
        wanted.sim.link = links[i].link;
        wanted.sim.link.backs_off = true;
        got = parse(words);
        assert_true(is_same(&got, &wanted));
    }
}

static void test_a_limit_has_its_algorithm_its_period_and_its_burst(void **state)
{
    (void) state;
    static const struct {
        const char *words;
        weir_limit limit;
    } rows[] = {
        {"fixed:1/1s", {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 1000000000}},
        {"sliding:4000000000000/ms",
         {.algorithm = WEIR_SLIDING_WINDOW, .limit = UINT64_C(4000000000000), .period_ns = 1000000}},
        {"log:5/0.5m", {.algorithm = WEIR_SLIDING_LOG, .limit = 5, .period_ns = UINT64_C(30000000000)}},
        {"bucket:50/2h:200",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 50, .period_ns = UINT64_C(7200000000000), .burst = 200}},
        {"bucket:50/9d:1",
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 50, .period_ns = UINT64_C(777600000000000), .burst = 1}},
        {"leaky:7/s", {.algorithm = WEIR_LEAKY_BUCKET, .limit = 7, .period_ns = 1000000000, .delay = 7}},
        {"leaky:7/0.001ms:4000000000000",
         {.algorithm = WEIR_LEAKY_BUCKET,
          .limit = 7,
          .period_ns = 1000,
          .burst = UINT64_C(4000000000000),
          .delay = UINT64_C(4000000000000)}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char words[200];
        (void) snprintf(words, sizeof(words), "--limit %s", rows[i].words);
        const struct command got = parse(words);
        assert_true(got.limit.algorithm == rows[i].limit.algorithm && got.limit.limit == rows[i].limit.limit);
        assert_true(got.limit.period_ns == rows[i].limit.period_ns && got.limit.burst == rows[i].limit.burst);
        assert_true(got.limit.delay == rows[i].limit.delay);
        assert_true(got.limit_given && got.sim.policy_count == 1 && got.sim.policy == 0);
        assert_true(got.sim.policies == &parsed.policy && got.policy.limits == &parsed.limit);
        assert_int_equal(got.policy.limit_count, 1);
        assert_string_equal(got.policy.name, "limit");
    }
}

static void test_a_fault_has_its_nodes_and_its_time(void **state)
{
    (void) state;
    static const struct {
        const char *words;
        struct sim_fault fault;
    } rows[] = {
        {"--partition=2@10-20", {SIM_CUT, 2, 2, 10 * SECOND, 20 * SECOND, 0, 0}},
        {"--partition=0-1023@0-1000000", {SIM_CUT, 0, 1023, 0, 1000000 * SECOND, 0, 0}},
        {"--deaf=3-3@1.5-1.5", {SIM_DEAF, 3, 3, 1500 * MILLISECOND, 1500 * MILLISECOND, 0, 0}},
        {"--stuck=1-2@7-8", {SIM_STUCK, 1, 2, 7 * SECOND, 8 * SECOND, 0, 0}},
        {"--kill=4@0.25", {SIM_KILL, 4, 4, 250 * MILLISECOND, 0, 0, 0}},
        {"--leave=1-5@2", {SIM_LEAVE, 1, 5, 2 * SECOND, 0, 0, 0}},
        {"--join=1023@3", {SIM_JOIN, 1023, 1023, 3 * SECOND, 0, 0, 0}},
        {"--clock=0-2=-30.5", {SIM_CLOCK, 0, 2, 0, 0, 0, -INT64_C(30500000000)}},
        {"--clock=1=10000000", {SIM_CLOCK, 1, 1, 0, 0, 0, INT64_C(10000000000000000)}},
        {"--redis-empty=1", {SIM_EMPTY, 0, 0, SECOND, 0, 0, 0}},
        {"--redis-flush=2", {SIM_FLUSH, 0, 0, 2 * SECOND, 0, 0, 0}},
        {"--redis-behind=30:500", {SIM_BEHIND, 0, 0, 30 * SECOND, 0, 500 * MILLISECOND, 0}},
        {"--redis-rollback=3:0.5", {SIM_ROLLBACK, 0, 0, 3 * SECOND, 0, 500000, 0}},
        {"--redis-hang=1-2", {SIM_HANG, 0, 0, SECOND, 2 * SECOND, 0, 0}},
        {"--redis-down=3-4", {SIM_DOWN, 0, 0, 3 * SECOND, 4 * SECOND, 0, 0}},
        {"--redis-refuse=5-6", {SIM_REFUSE, 0, 0, 5 * SECOND, 6 * SECOND, 0, 0}},
        {"--redis-slow=7-8:60000", {SIM_SLOW, 0, 0, 7 * SECOND, 8 * SECOND, 0, INT64_C(60000000000)}},
        {"--redis-clock=9=-10000000", {SIM_FLEET_CLOCK, 0, 0, 9 * SECOND, 0, 0, -INT64_C(10000000000000000)}},
    };
    char all[4000] = "--limit=fixed:10/1s";
    size_t length = strlen(all);
    const size_t count = sizeof(rows) / sizeof(rows[0]);
    for (size_t i = 0; i < SIM_FAULTS_MAX; i++) { /* as many as there may be */
        length += (size_t) snprintf(all + length, sizeof(all) - length, " %s", rows[i % count].words);
    }
    const struct command got = parse(all);
    assert_int_equal(got.sim.fault_count, SIM_FAULTS_MAX);
    assert_ptr_equal(got.sim.faults, parsed.faults);
    for (size_t i = 0; i < SIM_FAULTS_MAX; i++) {
        assert_memory_equal(&got.faults[i], &rows[i % count].fault, sizeof(got.faults[i]));
    }
}

static void test_the_policy_that_is_asked_is_the_first_or_the_one_that_is_named(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-fleetsim-XXXXXX", words[200];
    const int fd = mkstemp(path);
    static const char policies[] = "policies:\n"
                                   "  - {name: one, limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n"
                                   "  - {name: two, limits: [{algorithm: fixed_window, limit: 2, period: 1s}]}\n"
                                   "  - {name: three, limits: [{algorithm: fixed_window, limit: 3, period: 1s}]}\n";
    assert_true(fd >= 0 && write(fd, policies, strlen(policies)) == (ssize_t) strlen(policies));
    (void) close(fd);
    static const char *const names[] = {"", "--policy=one", "--policy=two", "--policy=three"};
    for (size_t i = 0; i < 4; i++) {
        (void) snprintf(words, sizeof(words), "--policies=%s %s", path, names[i]);
        const struct command got = parse(words);
        assert_int_equal(got.sim.policy_count, 3);
        assert_int_equal(got.sim.policy, i == 0 ? 0 : i - 1);
        assert_string_equal(got.sim.policies[2].name, "three");
        assert_false(got.limit_given);
        policy_file_free(parsed.file);
    }
    (void) unlink(path);
    const struct command got = parse("--reference=rows.txt --only=rows");
    assert_string_equal(got.reference, "rows.txt");
    assert_string_equal(got.only, "rows");
    assert_null(got.sim.policies);
    for (size_t i = 0; i < SIM_PATTERNS; i++) {
        (void) snprintf(words, sizeof(words), "--limit=fixed:1/s --pattern=%s", pattern_name((enum sim_pattern) i));
        assert_int_equal(parse(words).sim.pattern, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_number_is_kept_in_its_unit_and_nothing_else_is_changed),
        cmocka_unit_test(test_a_limit_has_its_algorithm_its_period_and_its_burst),
        cmocka_unit_test(test_a_fault_has_its_nodes_and_its_time),
        cmocka_unit_test(test_the_policy_that_is_asked_is_the_first_or_the_one_that_is_named),
    };
    return cmocka_run_group_tests_name("unit/apps/fleetsim_options", tests, NULL, NULL);
}
