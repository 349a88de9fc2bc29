/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that have other limits under one name and one prefix are told of each other, in both logs, once for each
 * change; nodes that agree never are.
 *
 * Guards: src/fleet/agreement.c, src/fleet/round.c, src/transport/loopback/network.c
 */
#include <string.h>

#include "support/nodes.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit thousand[] = {
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 50}};
static const weir_limit hundred[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND},
                                     {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .calendar = WEIR_CALENDAR_MONTH}};
static const weir_policy large = {.name = "api", .limits = thousand, .limit_count = 1};
static const weir_policy small = {.name = "api", .limits = hundred, .limit_count = 2};

struct log {
    size_t warnings, infos;
    char warning[900], info[900];
};

static struct nodes n;
static struct log logs[NODES];

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    if (level == WEIR_LOG_WARNING) {
        log->warnings++;
        (void) snprintf(log->warning, sizeof(log->warning), "%s", message);
    } else {
        log->infos += strstr(message, "the same limits again") != NULL;
    }
}

static void open_one(int i, const weir_policy *policies, size_t count)
{
    n.policies = policies;
    n.policy_count = count;
    n.expected_nodes = NODES;
    node_open(&n, i, 0);
    n.node[i].w->fleet->log = keep;
    n.node[i].w->fleet->log_arg = &logs[i];
    (void) snprintf(n.node[i].w->fleet->name, sizeof(n.node[i].w->fleet->name), "edge-%d", i);
}

static int begin(void **state)
{
    (void) state;
    memset(logs, 0, sizeof(logs));
    nodes_init(&n, &large, 1);
    return 0;
}

static int end(void **state)
{
    (void) state;
    nodes_stop(&n);
    return 0;
}

#define ROLLS                                                                                                          \
    " under the same prefix \"weir\", so the smaller one denies what the other lets pass. While new limits are "       \
    "rolled "                                                                                                          \
    "out this ends by itself; else give each application a prefix of its own"

static void expect_both_told(size_t lines)
{
    assert_int_equal(logs[0].warnings, lines);
    assert_int_equal(logs[1].warnings, lines);
    assert_string_equal(logs[0].warning,
                        "policy api: this node has token_bucket 1000 per 1s burst 50, and node edge-1 has token_bucket "
                        "100 per 1s, fixed_window 5 per month" ROLLS);
    assert_string_equal(logs[1].warning,
                        "policy api: this node has token_bucket 100 per 1s, fixed_window 5 per month, and node edge-0 "
                        "has token_bucket 1000 per 1s burst 50" ROLLS);
}

static uint64_t differences(int i)
{
    return load_relaxed(&n.node[i].w->fleet->stats.limit_differences);
}

static void test_two_programs_of_one_prefix_are_told_of_each_other_once(void **state)
{
    (void) state;
    open_one(0, &large, 1);
    pass(&n, 10000);
    open_one(1, &small, 1);
    pass(&n, 5000);
    expect_both_told(1);
    assert_true(differences(0) == 1 && differences(1) == 1);
    pass(&n, 200000); /* told again and again, and said once */
    expect_both_told(1);
    /* The other one ends: nothing differs, and that is said. */
    node_close(&n.node[1]);
    pass(&n, 5000);
    assert_true(logs[0].infos == 1 && logs[0].warnings == 1 && differences(0) == 0);
}

static void test_a_rolling_deploy_is_told_until_all_agree(void **state)
{
    (void) state;
    open_one(0, &large, 1);
    open_one(1, &large, 1);
    pass(&n, 40000);
    assert_int_equal(logs[0].warnings + logs[1].warnings, 0);
    assert_int_equal(weir_set_policies(n.node[1].w, &small, 1, NULL), 0);
    pass(&n, 35000);
    expect_both_told(1);
    assert_int_equal(weir_set_policies(n.node[0].w, &small, 1, NULL), 0);
    pass(&n, 65000);
    assert_true(logs[0].infos == 1 && logs[1].infos == 1);
    assert_true(differences(0) == 0 && differences(1) == 0);
    expect_both_told(1);
    /* And back, which is another change. */
    assert_int_equal(weir_set_policies(n.node[0].w, &large, 1, NULL), 0);
    pass(&n, 35000);
    expect_both_told(2);
}

static void test_a_node_that_was_killed_is_told_of_no_longer_than_it_may_be_late(void **state)
{
    (void) state;
    open_one(0, &large, 1);
    open_one(1, &small, 1);
    pass(&n, 5000);
    expect_both_told(1);
    weir *killed = n.node[1].w;
    n.node[1].w = NULL; /* it has no more turns */
    pass(&n, 150000);
    assert_true(logs[0].infos == 1 && differences(0) == 0);
    n.node[1].w = killed;
}

static void test_other_names_and_what_is_not_shared_are_no_difference(void **state)
{
    (void) state;
    static const weir_policy first[] = {
        {.name = "api", .limits = thousand, .limit_count = 1},
        {.name = "own", .limits = thousand, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
        {.name = "apia", .limits = thousand, .limit_count = 1}};
    static const weir_policy second[] = {
        {.name = "own", .limits = hundred, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
        {.name = "api", .limits = thousand, .limit_count = 1, .mode = WEIR_SHADOW},
        {.name = "ap", .limits = hundred, .limit_count = 1},
        {.name = "apia/pro", .limits = hundred, .limit_count = 1}};
    open_one(0, first, COUNT_OF(first));
    open_one(1, second, COUNT_OF(second));
    pass(&n, 40000);
    assert_int_equal(logs[0].warnings + logs[1].warnings, 0);
    assert_true(differences(0) == 0 && differences(1) == 0);
}

/* More policies than a round tells: those that have no room are told by nobody, and nothing is cut in two. */
static void test_a_set_of_many_policies_is_told_as_far_as_there_is_room(void **state)
{
    (void) state;
    static char names[1000][16];
    static weir_policy policies[1000];
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        (void) snprintf(names[i], sizeof(names[i]), "policy-%zu", i);
        policies[i] = (weir_policy){.name = names[i], .limits = thousand, .limit_count = 1};
    }
    open_one(0, policies, COUNT_OF(policies));
    pass(&n, 3000);
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        policies[i].limits = hundred;
    }
    open_one(1, policies, COUNT_OF(policies));
    pass(&n, 5000);
    assert_true(differences(0) > 50 && differences(0) < 100);
    assert_int_equal(differences(1), differences(0));
    assert_int_equal(logs[0].warnings, 9); /* eight, and how many more */
    assert_non_null(strstr(logs[0].warning, " more differences of limits; weir doctor lists them"));
    pass(&n, 100000);
    assert_true(logs[0].warnings < 30); /* of the others each is told once, eight a time */
}

static void test_rounds_without_a_change_tell_nothing(void **state)
{
    (void) state;
    open_one(0, &large, 1);
    open_one(1, &large, 1);
    pass(&n, 40000);
    unsigned told = 0;
    for (int i = 0; i < 2000; i++) {
        pass(&n, STEP_MS);
        told += n.node[0].w->fleet->round.limits.told;
    }
    assert_true(told <= 20 * INTERVAL_MS / STEP_MS / 10); /* of a hundred rounds one at most */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_programs_of_one_prefix_are_told_of_each_other_once, begin, end),
        cmocka_unit_test_setup_teardown(test_a_rolling_deploy_is_told_until_all_agree, begin, end),
        cmocka_unit_test_setup_teardown(test_a_node_that_was_killed_is_told_of_no_longer_than_it_may_be_late, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_other_names_and_what_is_not_shared_are_no_difference, begin, end),
        cmocka_unit_test_setup_teardown(test_a_set_of_many_policies_is_told_as_far_as_there_is_room, begin, end),
        cmocka_unit_test_setup_teardown(test_rounds_without_a_change_tell_nothing, begin, end),
    };
    return cmocka_run_group_tests_name("unit/fleet/agreement", tests, NULL, NULL);
}
