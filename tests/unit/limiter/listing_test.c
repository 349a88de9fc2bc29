/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies in force, as weir_list_policies gives them to a program.
 *
 * Guards: src/limiter/list_policies.c, src/limiter/bucket_origin.c
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* All policies, as one text. */
struct listing {
    char text[8192];
    weir_policy_id ids[16];
    size_t count;
};

static void add(struct listing *listing, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct listing *listing, const char *format, ...)
{
    const size_t used = strlen(listing->text);
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(listing->text + used, sizeof(listing->text) - used, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && (size_t) n < sizeof(listing->text) - used);
}

static void add_policy(void *arg, const weir_policy_info *info)
{
    struct listing *listing = arg;
    const weir_policy *policy = info->policy;
    add(listing, "%s%s%s%s", policy->name, policy->mode == WEIR_SHADOW ? " shadow" : "",
        policy->scope == WEIR_SCOPE_PROCESS ? " process" : "", policy->hash_keys ? " hashed" : "");
    for (size_t i = 0; i < policy->limit_count; i++) {
        const weir_limit *limit = &policy->limits[i];
        add(listing, " %d:%" PRIu64 "/%" PRIu64 ":%" PRIu64 "+%" PRIu64 "c%d=%s", (int) limit->algorithm, limit->limit,
            limit->period_ns, limit->burst, limit->delay, (int) limit->calendar, limit->name);
    }
    add(listing, ";");
    if (listing->count < COUNT_OF(listing->ids)) {
        listing->ids[listing->count] = info->id;
    }
    listing->count++;
}

static struct listing list_of(const weir *w)
{
    struct listing listing = {.count = 0};
    const size_t count = weir_list_policies(w, add_policy, &listing);
    assert_int_equal(count, listing.count);
    assert_int_equal(weir_list_policies(w, NULL, NULL), listing.count);
    return listing;
}

static void expect_list(const weir *w, const char *text)
{
    const struct listing listing = list_of(w);
    assert_string_equal(listing.text, text);
}

static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 7, .calendar = WEIR_CALENDAR_MONTH, .name = "mo\"nth"},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 6, .calendar = WEIR_CALENDAR_DAY},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = SECOND},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 4, .period_ns = 2 * SECOND, .burst = 9, .delay = 3},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 3, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 2, .period_ns = MILLISECOND, .burst = 2},
};

static const weir_policy policies[] = {
    {.name = "z", .limits = limits, .limit_count = 4},
    {.name = "api/pro", .limits = limits + 4, .limit_count = 1, .mode = WEIR_SHADOW},
    {.name = "a", .limits = limits + 5, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS, .hash_keys = true},
};

#define LISTED                                                                                                         \
    "z 0:7/2678400000000000:7+0c2=mo\"nth 0:6/86400000000000:6+0c1=z-2 3:5/1000000000:5+0c0=z-3 "                      \
    "4:4/2000000000:9+3c0=z-4;api/pro shadow 1:3/3600000000000:3+0c0=api/pro;"                                         \
    "a process hashed 2:2/1000000:2+0c0=a;"

static void test_policies_are_told_with_what_was_left_to_a_default(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    expect_list(w, "");
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    const struct listing listing = list_of(w);
    assert_string_equal(listing.text, LISTED);
    for (size_t i = 0; i < listing.count; i++) {
        assert_int_equal(listing.ids[i], weir_find_policy(w, policies[i].name));
    }
    /* A list has the policies that are in force, and no earlier ones. */
    assert_int_equal(weir_set_policies(w, policies + 2, 1, NULL), 0);
    expect_list(w, "a process hashed 2:2/1000000:2+0c0=a;");
    assert_int_equal(weir_set_policies(w, NULL, 0, NULL), 0);
    expect_list(w, "");
    weir_close(w);
}

/* weir_set_policies takes a list as it is, and then the list is the same. */
static void put_again(void *arg, const weir_policy_info *info)
{
    weir *other = arg;
    assert_int_equal(weir_set_policies(other, info->policy, 1, NULL), 0);
    struct listing listing = {.count = 0};
    struct listing copy = {.count = 0};
    add_policy(&copy, info);
    assert_int_equal(weir_list_policies(other, add_policy, &listing), 1);
    assert_string_equal(listing.text, copy.text);
}

static void test_what_is_told_can_be_put_in_force(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    weir *other = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    assert_int_equal(weir_list_policies(w, put_again, other), COUNT_OF(policies));
    weir_close(other);
    weir_close(w);
}

static void test_a_refused_set_and_entries_change_nothing_of_the_list(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    const weir_policy bad = {.name = "z", .limits = limits, .limit_count = 5};
    assert_int_not_equal(weir_set_policies(w, &bad, 1, NULL), 0);
    expect_list(w, LISTED);
    assert_int_equal(weir_set_override(w, "z:k", "70 60 50 40", NULL), 0);
    assert_int_equal(weir_set_override(w, "a:k", "deny", NULL), 0);
    expect_list(w, LISTED);
    weir_close(w);
}

static void test_policies_of_a_file_are_told_of(void **state)
{
    (void) state;
    char path[] = "/tmp/weir_listing_XXXXXX";
    static const char text[] = "policies:\n"
                               "  - name: api\n"
                               "    mode: shadow\n"
                               "    limits: [{algorithm: token_bucket, limit: 100, period: 1s, burst: 20}]\n"
                               "    tiers:\n"
                               "      - name: free\n"
                               "        limits: [{algorithm: token_bucket, limit: 5, period: 1s}]\n";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    (void) close(fd);
    weir *w = open_or_fail(NULL);
    const int result = weir_load_policies(w, path, NULL);
    (void) unlink(path);
    assert_int_equal(result, 0);
    expect_list(w, "api shadow 3:100/1000000000:20+0c0=api;api/free shadow 3:5/1000000000:5+0c0=api/free;");
    weir_close(w);
}

static _Atomic uint64_t mixed_count;

/* While other threads change the policies, a list is of one set. */
static void *change_and_list(void *arg)
{
    weir *w = arg;
    for (size_t i = 0; i < 300; i++) {
        (void) weir_set_policies(w, policies, i % 2 != 0 ? COUNT_OF(policies) : 1, NULL);
        struct listing listing = {.count = 0};
        const size_t count = weir_list_policies(w, add_policy, &listing);
        const bool whole = count == COUNT_OF(policies) && strcmp(listing.text, LISTED) == 0;
        const bool first = count == 1 && strncmp(listing.text, LISTED, strlen(listing.text)) == 0;
        mixed_count += !whole && !first;
    }
    return NULL;
}

static void test_a_list_is_of_one_set_while_others_change_it(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    run_threads(3, change_and_list, w);
    assert_int_equal(mixed_count, 0);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies_are_told_with_what_was_left_to_a_default),
        cmocka_unit_test(test_what_is_told_can_be_put_in_force),
        cmocka_unit_test(test_a_refused_set_and_entries_change_nothing_of_the_list),
        cmocka_unit_test(test_policies_of_a_file_are_told_of),
        cmocka_unit_test(test_a_list_is_of_one_set_while_others_change_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
