/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which denials a tracer is told of, by keys' entries and by reservations: each once, with its numbers, and no other
 * call. The linker's --wrap leads the events here (tests/meson.build).
 *
 * Guards: src/check/denial.h, src/check/reserve.c, src/check/all_table.c, src/check/check.c
 */
#include <string.h>

#include "check/denial.h"
#include "policy/policy.h"
#include "support/two_handles.h"

/* A tracer raises it. A build without probes has none. */
extern unsigned short weir_deny_semaphore __attribute__((weak, visibility("hidden")));

/* The last event, and how many there were. */
static struct {
    unsigned count;
    weir_policy_id policy;
    char key[32];
    uint64_t cost, retry_after_ns;
    size_t limit_index;
} e;

void __wrap_denial_trace(const struct policy *policy, const weir_key *key, uint64_t cost, size_t limit_index,
                         uint64_t retry_after_ns);

void __wrap_denial_trace(const struct policy *policy, const weir_key *key, uint64_t cost, size_t limit_index,
                         uint64_t retry_after_ns)
{
    e.count++;
    e.policy = policy->id;
    assert_true(key->length < sizeof(e.key));
    memset(e.key, 0, sizeof(e.key));
    memcpy(e.key, key->data, key->length);
    e.cost = cost;
    e.limit_index = limit_index;
    e.retry_after_ns = retry_after_ns;
}

static void expect_events(unsigned count, const char *policy, const char *key, uint64_t cost, uint64_t retry_after_ns)
{
    assert_int_equal(e.count, count);
    if (count != 0) {
        assert_int_equal(e.policy, weir_find_policy(d.w, policy));
        assert_string_equal(e.key, key);
        assert_int_equal(e.cost, cost);
        assert_int_equal(e.retry_after_ns, retry_after_ns);
        assert_int_equal(e.limit_index, 0);
    }
    e.count = 0;
}

static int open_traced(void **state)
{
    (void) state;
    static const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 2};
    static const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = 24 * HOUR};
    static const weir_policy policies[] = {
        {.name = "p", .limits = &window, .limit_count = 1},
        {.name = "shadow", .limits = &window, .limit_count = 1, .mode = WEIR_SHADOW},
        {.name = "queue", .limits = &queue, .limit_count = 1},
    };
    if (&weir_deny_semaphore == NULL) {
        return 0;
    }
    open_two_handles(policies, COUNT_OF(policies));
    weir_deny_semaphore = 1;
    e.count = 0;
    return 0;
}

static int close_traced(void **state)
{
    if (&weir_deny_semaphore != NULL) {
        weir_deny_semaphore = 0;
    }
    return close_two_handles(state);
}

static void test_a_denial_by_an_entry_is_told_once_and_nothing_else_is(void **state)
{
    (void) state;
    if (&weir_deny_semaphore == NULL) {
        skip();
    }
    const weir_key foe = key_of("p", "foe");
    const weir_key friend = key_of("p", "friend");
    const weir_key other = key_of("p", "other");
    const weir_key shadow = key_of("shadow", "foe");
    uint64_t wait_ns;
    assert_int_equal(weir_set_override(d.w, "p:foe", "deny", NULL), 0);
    assert_int_equal(weir_set_override(d.w, "p:friend", "allow", NULL), 0);
    assert_int_equal(weir_set_override(d.w, "shadow:foe", "deny", NULL), 0);
    for (int times = 0; times < 3; times++) {
        assert_false(weir_check(d.t, &foe, 3, NULL));
        expect_events(1, "p", "foe", 3, NEVER);
        assert_true(!weir_reserve(d.t, &foe, 2, 0, &wait_ns) && wait_ns == NEVER);
        expect_events(1, "p", "foe", 2, NEVER);
        assert_true(weir_check(d.t, &shadow, 4, NULL));
        expect_events(1, "shadow", "foe", 4, NEVER);
        assert_true(weir_reserve(d.t, &shadow, 4, 0, &wait_ns) && wait_ns == 0);
        expect_events(1, "shadow", "foe", 4, NEVER);
        assert_false(weir_check_all(d.t, (const weir_key[]){friend, foe, other}, (const uint64_t[]){1, 7, 1}, 3, NULL));
        expect_events(1, "p", "foe", 7, NEVER);
        assert_false(weir_peek(d.t, &foe, 1, NULL));
        assert_true(weir_check(d.t, &friend, 1, NULL) && weir_reserve(d.t, &friend, 1, 0, NULL));
        assert_true(weir_check_all(d.t, (const weir_key[]){friend, other}, NULL, 2, NULL));
        weir_charge(d.t, &foe, 1);
        weir_refund(d.t, &foe, 1);
        expect_events(0, NULL, NULL, 0, 0);
    }
    weir_deny_semaphore = 0;
    assert_false(weir_check(d.t, &foe, 3, NULL) || weir_reserve(d.t, &foe, 2, 0, &wait_ns) ||
                 weir_check_all(d.t, &foe, NULL, 1, NULL));
    expect_events(0, NULL, NULL, 0, 0);
}

static void test_each_refused_reservation_is_told_with_its_wait(void **state)
{
    (void) state;
    if (&weir_deny_semaphore == NULL) {
        skip();
    }
    const weir_key place = key_of("queue", "k");
    const weir_key unit = key_of("p", "k");
    uint64_t wait_ns;
    assert_true(weir_reserve(d.t, &place, 1, NEVER, NULL) && weir_reserve(d.t, &place, 1, NEVER, NULL));
    weir_charge(d.t, &unit, 5);
    expect_events(0, NULL, NULL, 0, 0);
    for (int times = 0; times < 4; times++) { /* the first refusal is counted another way than the next ones */
        assert_true(!weir_reserve(d.t, &place, 1, NEVER, &wait_ns) && wait_ns == 200 * MILLISECOND);
        expect_events(1, "queue", "k", 1, wait_ns);
        assert_true(!weir_reserve(d.t, &place, 0, NEVER, &wait_ns) && wait_ns == 200 * MILLISECOND);
        expect_events(1, "queue", "k", 0, wait_ns);
        assert_true(!weir_reserve(d.t, &place, 3, NEVER, &wait_ns) && wait_ns == NEVER);
        expect_events(1, "queue", "k", 3, NEVER);
        assert_true(!weir_reserve(d.t, &unit, 2, NEVER, &wait_ns) && wait_ns != 0 && wait_ns < 24 * HOUR);
        expect_events(1, "p", "k", 2, wait_ns);
    }
    weir_deny_semaphore = 0;
    assert_false(weir_reserve(d.t, &place, 1, NEVER, NULL) || weir_reserve(d.t, &unit, 1, NEVER, NULL));
    expect_events(0, NULL, NULL, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_denial_by_an_entry_is_told_once_and_nothing_else_is, open_traced,
                                        close_traced),
        cmocka_unit_test_setup_teardown(test_each_refused_reservation_is_told_with_its_wait, open_traced, close_traced),
    };
    return cmocka_run_group_tests_name("unit/check/denial_events", tests, NULL, NULL);
}
