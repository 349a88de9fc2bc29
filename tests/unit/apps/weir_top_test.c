/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of weir top: numbers and ages in few characters, sums over nodes, the order of the tables, and what is
 * marked as wrong.
 *
 * Guards: apps/weir/top/top_view.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/weir/top/top_view.h"
#include "support/support.h"

const struct top_policy *top_status_policy(const struct top_status *status, const char *name)
{
    for (size_t i = 0; i < status->policy_count; i++) {
        if (strcmp(status->policies[i].name, name) == 0) {
            return &status->policies[i];
        }
    }
    return NULL;
}

/* Two seconds lie between the two readings. */
double top_rate(const struct top_node *node, uint64_t now, uint64_t before)
{
    return node->has_before ? (double) (now - before) / 2 : -1;
}

static void check_line(const struct top_view *view, size_t at, enum style style, const char *wanted)
{
    assert_true(at < view->count);
    char text[VIEW_LINE_SIZE];
    (void) snprintf(text, sizeof(text), "%s", view->lines[at].text);
    for (size_t length = strlen(text); length > 0 && text[length - 1] == ' '; length--) {
        text[length - 1] = '\0';
    }
    assert_string_equal(text, wanted);
    assert_int_equal(view->lines[at].style, style);
}

static void test_numbers_and_ages_have_few_characters(void **state)
{
    (void) state;
    static const struct {
        uint64_t units;
        const char *number;
        uint64_t age_ms;
        const char *age;
    } rows[] = {
        {0, "0", 0, "0 ms"},
        {1, "1", 9999, "9999 ms"},
        {9, "9", 10000, "10 s"},
        {10, "10", 10999, "10 s"},
        {9999, "9999", 599999, "599 s"},
        {10000, "10.0k", 600000, "10 min"},
        {99949, "99.9k", 659999, "10 min"},
        {100000, "100k", 660000, "11 min"},
        {999499, "999k", 1, "1 ms"},
        {1000000, "1.0M", 1, "1 ms"},
        {100000000, "100M", 1, "1 ms"},
        {1000000000, "1.0G", 1, "1 ms"},
        {25000000000000, "25.0T", 1, "1 ms"},
        {250000000000000, "250T", 1, "1 ms"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const weir_inspected_node node = {.id = "n", .age_ns = rows[i].age_ms * 1000000, .state = WEIR_NODE_LIVE};
        const weir_inspected_fleet fleet = {.nodes = &node, .node_count = 1};
        const weir_inspected_records read = {.fleet = &fleet};
        struct sample_record record = {.key = "k", .policy = "p", .limit = "l", .units = rows[i].units};
        static struct fleet_sample sample;
        struct top_view view = {NULL, 0, 0, false};
        char line[200];
        sample = (struct fleet_sample){.read = &read, .records = &record, .record_count = 1};
        top_view_fleet(&view, &sample);
        (void) snprintf(line, sizeof(line), "%-16s %-8s %10s", "n", "live", rows[i].age);
        check_line(&view, 2, STYLE_PLAIN, line);
        assert_string_equal(view.lines[6].text + strlen(view.lines[6].text) - strlen(rows[i].number), rows[i].number);
        assert_int_equal(view.lines[6].text[strlen(view.lines[6].text) - strlen(rows[i].number) - 1], ' ');
        top_view_free(&view);
    }
}

static void test_a_fleet_has_its_nodes_its_lost_shards_and_its_hottest_records(void **state)
{
    (void) state;
    static struct fleet_sample sample;
    const weir_inspected_node nodes[] = {{.id = "a", .age_ns = 50000000, .state = WEIR_NODE_LIVE},
                                         {.id = "b", .age_ns = 70000000000, .state = WEIR_NODE_FAILED},
                                         {.id = "c", .age_ns = 100000000, .state = WEIR_NODE_LIVE}};
    const weir_inspected_server servers[] = {{.server = "redis:1"}, {.server = "redis:2", .error = "no answer"}};
    const weir_inspected_fleet fleet = {.nodes = nodes, .node_count = 3};
    static weir_inspected_use uses[77];
    weir_inspected_records read = {
        .fleet = &fleet, .uses = uses, .use_count = 77, .servers = servers, .server_count = 1};
    struct sample_record records[300];
    struct top_view view = {NULL, 0, 0, false};
    for (unsigned i = 0; i < 300; i++) {
        records[i] = (struct sample_record){.limit = "10s", .policy = "api", .units = 1000 - i};
        (void) snprintf(records[i].key, sizeof(records[i].key), "key%u", i);
    }
    sample = (struct fleet_sample){.read = &read, .records = records, .record_count = 2};
    top_view_fleet(&view, &sample);
    check_line(&view, 0, STYLE_NAME, "Nodes: 2 live of 3, in Redis at redis:1");
    check_line(&view, 1, STYLE_NAME, "node             state     heartbeat");
    check_line(&view, 2, STYLE_PLAIN, "a                live          50 ms");
    check_line(&view, 3, STYLE_BAD, "b                failed         70 s");
    check_line(&view, 4, STYLE_PLAIN, "c                live         100 ms");
    check_line(&view, 5, STYLE_PLAIN, "");
    check_line(&view, 6, STYLE_NAME, "Hottest records, of a sample: 77 read");
    assert_non_null(strstr(view.lines[8].text, "key0 "));
    assert_non_null(strstr(view.lines[8].text, "api                      10s              1000"));
    assert_int_equal(view.count, 10);
    read.server_count = 2;
    top_view_clear(&view);
    top_view_fleet(&view, &sample);
    check_line(&view, 0, STYLE_NAME, "Nodes: 2 live of 3, in a Cluster of 2 shards");
    check_line(&view, 1, STYLE_BAD, "a shard is not read: no answer");
    assert_int_equal(view.count, 11);
    read.server_count = 1;
    sample.record_count = 300;
    top_view_clear(&view);
    top_view_fleet(&view, &sample);
    const size_t shown = view.count - 8;
    assert_true(shown >= 10 && shown < 300 && !view.no_memory);
    top_view_clear(&view);
    sample.record_count = shown - 1;
    top_view_fleet(&view, &sample);
    assert_int_equal(view.count - 8, shown - 1);
    sample.read = NULL; /* the last reading had no answer: the records are those of the one before */
    top_view_clear(&view);
    top_view_fleet(&view, &sample);
    assert_int_equal(view.count, shown - 1 + 3);
    top_view_free(&view);
    assert_true(view.lines == NULL && view.count == 0);
}

/* Two nodes that share a policy, one of which is in an outage there; one that does not answer; one just begun. */
static struct top_policy before_a[] = {{.name = "api", .allowed = 100, .denied = 10},
                                       {.name = "b", .allowed = 0, .denied = 0}};
static struct top_policy now_a[] = {
    {.name = "api", .mode = "enforce", .basis = "fleet", .allowed = 300, .denied = 30, .would_deny = 4},
    {.name = "b", .mode = "shadow", .basis = "process", .allowed = 6, .denied = 0, .would_deny = 8}};
static struct top_policy now_b[] = {
    {.name = "b", .mode = "shadow", .basis = "outage", .outage_mode = "local", .allowed = 100, .denied = 60},
    {.name = "c", .mode = "enforce", .basis = "process", .allowed = 40, .denied = 2}};
static struct top_key keys_a[] = {{.policy = "api", .key = "x", .denied_units = 5, .error_units = 1, .nodes = 1},
                                  {.policy = "api", .key = "y", .denied_units = 20, .error_units = 2, .nodes = 1}};
static struct top_key keys_b[] = {{.policy = "b", .key = "x", .denied_units = 7, .error_units = 0, .nodes = 1},
                                  {.policy = "api", .key = "x", .denied_units = 15, .error_units = 3, .nodes = 1},
                                  {.policy = "b", .key = "z", .denied_units = 7, .error_units = 0, .nodes = 1}};

static struct top_node nodes_of[] = {
    {.up = true,
     .has_now = true,
     .has_before = true,
     .now = {.name = "one",
             .link = "up",
             .fleet_age_ms = 120,
             .live_nodes = 3,
             .sync_errors = 9,
             .key_count = 12000,
             .allowed = 306,
             .denied = 30},
     .before = {.sync_errors = 8, .allowed = 100, .denied = 10}},
    {.up = true,
     .has_now = true,
     .has_before = true,
     .now = {.name = "two",
             .link = "up",
             .fleet_age_ms = -1,
             .live_nodes = 1,
             .key_count = 5,
             .allowed = 140,
             .denied = 62}},
    {.up = false, .has_now = true, .error = "refused", .now = {.name = "three"}},
    {.up = false},
    {.up = true, .has_now = true, .now = {.name = "five", .link = "none", .fleet_age_ms = 9, .key_count = 1}},
    {.up = true, .has_now = true, .now = {.name = "six", .link = "down", .fleet_age_ms = 9}},
};

static void begin(void)
{
    for (size_t i = 0; i < 6; i++) {
        static const char *const addresses[] = {"host0:1", "host1:1", "host2:1", "host3:1", "host4:1", "host5:1"};
        nodes_of[i].address = addresses[i];
    }
    nodes_of[0].before.policies = before_a;
    nodes_of[0].before.policy_count = 2;
    nodes_of[0].now.policies = nodes_of[2].now.policies = now_a;
    nodes_of[0].now.policy_count = nodes_of[2].now.policy_count = 2;
    nodes_of[1].now.policies = now_b;
    nodes_of[1].now.policy_count = 2;
    nodes_of[0].now.keys = nodes_of[2].now.keys = keys_a;
    nodes_of[0].now.key_count_listed = nodes_of[2].now.key_count_listed = 2;
    nodes_of[1].now.keys = keys_b;
    nodes_of[1].now.key_count_listed = 3;
}

static void test_nodes_are_told_with_their_sums_and_those_that_are_not_well_are_marked(void **state)
{
    (void) state;
    const struct top_nodes nodes = {.all = nodes_of, .count = 6};
    struct top_view view = {NULL, 0, 0, false};
    begin();
    top_view_nodes(&view, &nodes, SORT_DENIED);
    check_line(&view, 0, STYLE_NAME, "Nodes: 4 of 6 answer");
    check_line(
        &view, 1, STYLE_NAME,
        "address                name             redis    sync nodes errors/s outage   admit/s   deny/s    keys");
    check_line(
        &view, 2, STYLE_PLAIN,
        "host0:1                one              up     120 ms     3      0.5 none         103       10   12.0k");
    check_line(
        &view, 3, STYLE_BAD,
        "host1:1                two              up      never     1        0 local         70       31       5");
    check_line(&view, 4, STYLE_BAD, "host2:1                three            unreachable: refused");
    check_line(&view, 5, STYLE_BAD, "host3:1                                 unreachable: not asked yet");
    check_line(
        &view, 6, STYLE_PLAIN,
        "host4:1                five             none        -     0        - none           -        -       1");
    check_line(
        &view, 7, STYLE_BAD,
        "host5:1                six              down     9 ms     0        - none           -        -       0");
    check_line(&view, 8, STYLE_PLAIN, "");
    top_view_free(&view);
}

static void test_policies_are_sums_over_nodes_in_the_order_that_is_wanted(void **state)
{
    (void) state;
    static const char *const head =
        "name                             mode    nodes outage            offer/s  admit/s   deny/s  would/s";
    static const char *const api =
        "api                              enforce     1 none                  110      100       10        2";
    static const char *const b =
        "b                                shadow      2 local on 1             83       53       30        4";
    static const char *const c =
        "c                                enforce     1 none                   21       20        1        0";
    static const struct {
        const char *name, *rows[3];
    } orders[SORT_COUNT] = {{"Policies, by denied", {b, api, c}},
                            {"Policies, by offered", {api, b, c}},
                            {"Policies, by name", {api, b, c}}};
    const struct top_nodes nodes = {.all = nodes_of, .count = 6};
    begin();
    for (unsigned sort = 0; sort < SORT_COUNT; sort++) {
        struct top_view view = {NULL, 0, 0, false};
        char title[40];
        top_view_nodes(&view, &nodes, (enum top_sort) sort);
        check_line(&view, 9, STYLE_NAME, orders[sort].name);
        check_line(&view, 10, STYLE_NAME, head);
        for (size_t i = 0; i < 3; i++) {
            check_line(&view, 11 + i, orders[sort].rows[i] == b ? STYLE_BAD : STYLE_PLAIN, orders[sort].rows[i]);
        }
        (void) snprintf(title, sizeof(title), "Policies, by %s", top_sort_name((enum top_sort) sort));
        assert_string_equal(title, orders[sort].name);
        check_line(&view, 14, STYLE_PLAIN, "");
        top_view_free(&view);
    }
    /* A rate that is not known is no part of a sum, and of none that are known there is none. */
    struct top_view view = {NULL, 0, 0, false};
    nodes_of[1].has_before = false;
    top_view_nodes(&view, &nodes, SORT_NAME);
    check_line(&view, 12, STYLE_BAD,
               "b                                shadow      2 local on 1              3        3        0        4");
    check_line(&view, 13, STYLE_PLAIN,
               "c                                enforce     1 none                    -        -        -        -");
    nodes_of[1].has_before = true;
    top_view_free(&view);
    /* What is offered includes what is denied. */
    static struct top_policy both[] = {{.name = "a", .allowed = 140, .denied = 40},
                                       {.name = "b", .allowed = 120, .denied = 80}};
    struct top_node one = {.address = "a", .up = true, .has_before = true};
    const struct top_nodes alone = {.all = &one, .count = 1};
    one.now.policies = both;
    one.now.policy_count = 2;
    for (unsigned turned = 0; turned < 2; turned++) {
        top_view_nodes(&view, &alone, SORT_OFFERED);
        assert_int_equal(view.lines[6].text[0], 'b');
        assert_int_equal(view.lines[7].text[0], 'a');
        top_view_free(&view);
        const struct top_policy first = both[0];
        both[0] = both[1];
        both[1] = first;
    }
}

static void test_keys_of_all_nodes_are_added_up(void **state)
{
    (void) state;
    const struct top_nodes nodes = {.all = nodes_of, .count = 6};
    struct top_view view = {NULL, 0, 0, false};
    size_t count;
    begin();
    struct top_key *keys = top_keys_merge(&nodes, &count);
    static const struct {
        const char *policy, *key;
        uint64_t denied, error;
        unsigned nodes;
    } wanted[] = {{"api", "x", 20, 4, 2}, {"api", "y", 20, 2, 1}, {"b", "x", 7, 0, 1}, {"b", "z", 7, 0, 1}};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(keys[i].policy, wanted[i].policy);
        assert_string_equal(keys[i].key, wanted[i].key);
        assert_int_equal(keys[i].denied_units, wanted[i].denied);
        assert_int_equal(keys[i].error_units, wanted[i].error);
        assert_int_equal(keys[i].nodes, wanted[i].nodes);
    }
    free(keys);
    top_view_nodes(&view, &nodes, SORT_NAME);
    check_line(&view, 15, STYLE_NAME, "Keys that are denied most: units, halved every minute");
    assert_int_equal(view.count, 21);
    assert_non_null(strstr(view.lines[17].text, " api                            20        4     2"));
    assert_int_equal(strncmp(view.lines[17].text, "x ", 2), 0);
    top_view_clear(&view);
    const struct top_nodes none = {.all = nodes_of + 2, .count = 2};
    top_view_nodes(&view, &none, SORT_NAME);
    check_line(&view, view.count - 1, STYLE_PLAIN, "none");
    top_view_clear(&view);
    top_view_help(&view);
    check_line(&view, 0, STYLE_NAME, "Keys");
    assert_int_equal(view.count, 14);
    assert_int_equal(view.lines[13].style, STYLE_PLAIN);
    for (size_t i = view.count; i < 500; i += 14) { /* as many lines as there are */
        top_view_help(&view);
    }
    check_line(&view, 14 * 20, STYLE_NAME, "Keys");
    top_view_free(&view);
}

static void test_there_is_room_for_all_that_a_node_has(void **state)
{
    (void) state;
    enum { MANY = 2000 };
    static struct top_key keys[MANY];
    static struct top_policy policies[MANY];
    struct top_node node = {.address = "a", .up = true, .now = {.keys = keys, .key_count_listed = MANY}};
    const struct top_nodes nodes = {.all = &node, .count = 1};
    struct top_view view = {NULL, 0, 0, false};
    size_t count;
    node.now.policies = policies;
    node.now.policy_count = MANY;
    for (unsigned i = 0; i < MANY; i++) {
        (void) snprintf(keys[i].key, sizeof(keys[i].key), "%u", i);
        (void) snprintf(policies[i].name, sizeof(policies[i].name), "%u", i);
    }
    struct top_key *merged = top_keys_merge(&nodes, &count);
    assert_int_equal(count, MANY);
    free(merged);
    top_view_nodes(&view, &nodes, SORT_NAME);
    assert_int_equal(view.count, 3 + 1 + 2 + MANY + 1 + 2 + 100);
    top_view_free(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_and_ages_have_few_characters),
        cmocka_unit_test(test_a_fleet_has_its_nodes_its_lost_shards_and_its_hottest_records),
        cmocka_unit_test(test_nodes_are_told_with_their_sums_and_those_that_are_not_well_are_marked),
        cmocka_unit_test(test_policies_are_sums_over_nodes_in_the_order_that_is_wanted),
        cmocka_unit_test(test_keys_of_all_nodes_are_added_up),
        cmocka_unit_test(test_there_is_room_for_all_that_a_node_has),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_top", tests, NULL, NULL);
}
