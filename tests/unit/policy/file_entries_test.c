/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides of single keys in a policy file: what they do, where they stand, and the place that an error names.
 *
 * Guards: src/policy/file_entries.c, src/limiter/set_policies.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/nodes.h"

#define LIMIT 10

static const char good[] = "policies:\n"
                           "  - name: p\n"
                           "    limits: [{algorithm: fixed_window, limit: 10, period: 1h}]\n"
                           "  - name: two\n"
                           "    limits:\n"
                           "      - {algorithm: fixed_window, limit: 10, period: 1h}\n"
                           "      - {algorithm: token_bucket, limit: 100, period: 1h, burst: 20}\n";

static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    char path[64];
} d;

static int desk_open(void **state)
{
    (void) state;
    fake_clock_init(&d.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    (void) snprintf(d.path, sizeof(d.path), "/tmp/weir-entries-XXXXXX");
    const int fd = mkstemp(d.path);
    assert_true(fd >= 0);
    (void) close(fd);
    return weir_set_key_form(d.w, "p", weir_address_form(64), NULL);
}

static int desk_close(void **state)
{
    (void) state;
    weir_close(d.w);
    return unlink(d.path);
}

/* The good policies with these lines below them. */
static void write_file(const char *lines)
{
    FILE *file = fopen(d.path, "w");
    assert_non_null(file);
    (void) fputs(good, file);
    (void) fputs(lines, file);
    assert_int_equal(fclose(file), 0);
}

static int load(const char *lines, weir_error *error)
{
    write_file(lines);
    return weir_load_policies(d.w, d.path, error);
}

static void load_or_fail(const char *lines)
{
    weir_error error;
    if (load(lines, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

static uint64_t passes(const char *policy, const void *bytes, size_t length)
{
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, policy), bytes, length);
    uint64_t passed = 0;
    (void) weir_reset(d.w, &key);
    for (int i = 0; i < 100; i++) {
        passed += weir_check(d.t, &key, 1, NULL);
    }
    return passed;
}

static uint64_t passes_address(const char *address)
{
    struct in_addr bytes;
    assert_int_equal(inet_pton(AF_INET, address, &bytes), 1);
    return passes("p", &bytes, sizeof(bytes));
}

static void test_entries_of_a_file_hold_with_its_policies(void **state)
{
    (void) state;
    load_or_fail("overrides:\n"
                 "  p:198.51.100.7: allow\n"
                 "  \"p:198.51.100.0/24\": deny\n"
                 "  p:2001:db8::/64: 20\n"
                 "  two:partner: 50, 90/95\n"
                 "  two:other: \"7 8\"\n");
    assert_int_equal(passes_address("198.51.100.7"), 100);
    assert_int_equal(passes_address("198.51.100.8"), 0);
    assert_int_equal(passes_address("192.0.2.1"), LIMIT);
    assert_int_equal(passes("p", "\x20\x01\x0d\xb8\0\0\0\0", 8), 20);
    assert_int_equal(passes("two", "other", 5), 7);
    /* The next file has other overrides, and policies from a program have none. */
    load_or_fail("overrides: {p:198.51.100.8: 30}\n");
    assert_int_equal(passes_address("198.51.100.7"), LIMIT);
    assert_int_equal(passes_address("198.51.100.8"), 30);
    load_or_fail("overrides: {}\n");
    assert_int_equal(passes_address("198.51.100.8"), LIMIT);
    load_or_fail("overrides: {p:198.51.100.8: 30}\n");
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
    assert_int_equal(passes_address("198.51.100.8"), LIMIT);
}

static void test_an_entry_of_the_program_stands_above_the_files(void **state)
{
    (void) state;
    load_or_fail("overrides: {p:198.51.100.7: deny}\n");
    assert_int_equal(weir_set_override(d.w, "p:198.51.100.7", "25", NULL), 0);
    assert_int_equal(passes_address("198.51.100.7"), 25);
    load_or_fail("overrides: {p:198.51.100.7: deny}\n");
    assert_int_equal(passes_address("198.51.100.7"), 25);
    assert_int_equal(weir_set_override(d.w, "p:198.51.100.7", NULL, NULL), 0);
    assert_int_equal(passes_address("198.51.100.7"), 0);
    assert_int_equal(weir_set_override(d.w, "p:198.51.100.7", NULL, NULL), -ENOENT);
}

static void test_a_fault_is_said_to_be_where_it_is(void **state)
{
    (void) state;
    static const struct {
        const char *lines, *says;
    } bad[] = {
        {"overrides: deny\n", ":8:12: overrides is a mapping"},
        {"overrides:\n  - p:1.2.3.4\n", ":9:3: overrides is a mapping"},
        {"overrides: {p:198.51.100: deny}\n", ":8:13: policy \"p\" has no key \"198.51.100\"; give an address such as"},
        {"overrides:\n  two:a: 5 5\n  two:b: deny\n  nothing: deny\n", ":11:3: \"nothing\" names no policy"},
        {"overrides:\n  q:a: deny\n", ":9:3: there is no policy \"q\"; name one of the file"},
        {"overrides:\n  p:1.2.3.4:   many\n", ":9:16: \"many\" is no value for policy \"p\""},
        {"overrides:\n  two:a: 5\n", ":9:10: \"5\" is no value for policy \"two\""},
        {"overrides:\n  two:a: 5/6 7\n", ":9:10: policy \"two\": limit 1 has burst 6"},
        {"overrides:\n  two:a: [1, 2]\n", ":9:3: an entry is a name and a value"},
        {"overrides:\n  p:1.2.3.4: deny\n  two:x: deny\n  \"p:%01%02%03%04\": allow\n",
         ":11:3: p:1.2.3.4 is there twice, first at line 9"},
        {"override: {}\n", ":8:1: "},
    };
    load_or_fail("overrides: {p:198.51.100.7: deny}\n");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        weir_error error;
        assert_int_equal(load(bad[i].lines, &error), -EINVAL);
        if (strstr(error.message, bad[i].says) == NULL) {
            fail_msg("%s\"%s\" does not say \"%s\"", bad[i].lines, error.message, bad[i].says);
        }
        assert_int_equal(passes_address("198.51.100.7"), 0); /* as it was */
    }
}

/* Of many entries those of one name are found, and the first of them in the file is the first. */
static void test_an_entry_that_is_there_twice_is_found_among_many(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static char lines[100000];
    for (int round = 0; round < 20; round++) {
        const size_t count = 2 + random_below(&rng, 200);
        const size_t first = random_below(&rng, count - 1);
        const size_t second = first + 1 + random_below(&rng, count - first - 1);
        size_t used = (size_t) snprintf(lines, sizeof(lines), "overrides:\n");
        for (size_t i = 0; i < count; i++) {
            /* The same key, written in another way. */
            used += (size_t) snprintf(lines + used, sizeof(lines) - used,
                                      i == second ? "  two:%%6b%zu: deny\n" : "  two:k%zu: deny\n",
                                      i == second ? first : i);
        }
        char says[80];
        weir_error error;
        (void) snprintf(says, sizeof(says), ":%zu:3: two:k%zu is there twice, first at line %zu; leave one out",
                        9 + second, first, 9 + first);
        assert_int_equal(load(lines, &error), -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        assert_string_equal(strstr(error.message, ":"), says);
    }
}

static void test_a_file_has_at_most_ten_thousand_entries(void **state)
{
    (void) state;
    static char lines[400000];
    weir_error error;
    for (size_t count = 10000; count <= 10001; count++) {
        size_t used = (size_t) snprintf(lines, sizeof(lines), "overrides:\n");
        for (size_t i = 0; i < count; i++) {
            used += (size_t) snprintf(lines + used, sizeof(lines) - used, "  two:k%zu: 7 8\n", i);
        }
        assert_int_equal(load(lines, &error), count == 10000 ? 0 : -ENOSPC);
        assert_int_equal(passes("two", "k9999", 5), 7);
        assert_int_equal(passes("two", "k10000", 6), LIMIT);
    }
    assert_string_equal(strstr(error.message, ":"),
                        ":10009:3: there are more than 10000 entries; give fewer, or networks");
}

static void test_of_a_fleet_and_a_file_the_fleets_entry_is_in_force(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    weir_error error;
    (void) load("overrides: {\"p:%6b%65%79\": deny, \"p:%01\": deny}\n", &error);
    nodes_start(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(weir_load_policies(node->w, d.path, NULL), 0);
    assert_int_equal(ask(node, 5), 0);
    loopback_fleet_set_override(n.fleet, "p:key", "allow");
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(node, 50), 50);
    loopback_fleet_set_override(n.fleet, "p:key", NULL);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(node, 5), 0);
    nodes_stop(&n);
}

static int load_with(const char *name, uint64_t limit_units, weir_error *error)
{
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = limit_units, .period_ns = HOUR};
    const weir_policy policy = {.name = name, .limits = &limit, .limit_count = 1};
    return weir_load_policies_with(d.w, d.path, &policy, 1, error);
}

static void test_policies_of_a_program_stand_beside_those_of_a_file(void **state)
{
    (void) state;
    weir_error error;
    write_file("overrides: {mine:partner: 30, p:198.51.100.7: deny}\n");
    assert_int_equal(load_with("mine", 4, NULL), 0);
    assert_int_equal(passes("mine", "any", 3), 4);
    assert_int_equal(passes("mine", "partner", 7), 30);
    assert_int_equal(passes_address("198.51.100.7"), 0);
    assert_int_equal(passes_address("192.0.2.1"), LIMIT);
    /* Nothing changes where either list is refused. */
    assert_int_equal(load_with("p", 5, &error), -EINVAL);
    assert_non_null(strstr(error.message, ": policy \"p\" has the name of a policy of the program; rename one"));
    assert_ptr_equal(strstr(error.message, d.path), error.message);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = HOUR};
    const weir_policy several[] = {{.name = "one", .limits = &limit, .limit_count = 1},
                                   {.name = "other", .limits = &limit, .limit_count = 1},
                                   {.name = "two", .limits = &limit, .limit_count = 1}};
    assert_int_equal(weir_load_policies_with(d.w, d.path, several, 3, &error), -EINVAL);
    assert_non_null(strstr(error.message, ": policy \"two\" has the name of a policy of the program; rename one"));
    assert_int_equal(load_with("mine", 0, &error), -EINVAL);
    assert_non_null(strstr(error.message, "policy \"mine\""));
    write_file("unknown: 1\n");
    assert_int_equal(load_with("mine", 5, &error), -EINVAL);
    assert_non_null(strstr(error.message, ":8:1: "));
    assert_int_equal(weir_load_policies_with(d.w, NULL, NULL, 0, &error), -EINVAL);
    assert_non_null(strstr(error.message, "yaml_path"));
    assert_int_equal(weir_load_policies_with(d.w, d.path, NULL, 1, &error), -EINVAL);
    assert_int_equal(passes("mine", "partner", 7), 30);
    assert_int_equal(passes_address("198.51.100.7"), 0);
    load_or_fail("");
    assert_int_equal(weir_find_policy(d.w, "mine"), WEIR_NO_POLICY);
}

#define desk_test(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        desk_test(test_entries_of_a_file_hold_with_its_policies),
        desk_test(test_an_entry_of_the_program_stands_above_the_files),
        desk_test(test_a_fault_is_said_to_be_where_it_is),
        desk_test(test_policies_of_a_program_stand_beside_those_of_a_file),
        desk_test(test_an_entry_that_is_there_twice_is_found_among_many),
        desk_test(test_a_file_has_at_most_ten_thousand_entries),
        desk_test(test_of_a_fleet_and_a_file_the_fleets_entry_is_in_force),
    };
    return cmocka_run_group_tests_name("unit/policy/file_entries", tests, NULL, NULL);
}
