/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is made of valid policies and overrides: the numbers, names and ids that checks and records go by.
 *
 * Guards: src/policy/policy.c, src/policy/policy.h, src/policy/policy_names.c, src/policy/policy_set.c,
 * src/policy/policy_set.h, src/policy/rate_list.c, src/policy/rate_list.h, src/policy/override_set.c
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/record_hash.h"
#include "policy/override_set.h"
#include "policy/policy_set.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ORIGIN_NS       (UINT64_C(1760000000) * SECOND)
#define NAME_63         "a23456789a123456789a123456789a123456789a123456789a123456789a123"

/* What outlives the sets of a process. */
struct process {
    struct policy_names names;
    struct policy_context context;
    struct hash_secret secret;
    uint64_t key_masks[WEIR_MAX_POLICIES + 1];
};

static struct process *process_new(void)
{
    struct process *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->names.rates = calloc(1, sizeof(*p->names.rates));
    assert_non_null(p->names.rates);
    for (size_t i = 0; i <= WEIR_MAX_POLICIES; i++) {
        p->key_masks[i] = hash_mix(i + 1);
    }
    memset(&p->secret, 7, sizeof(p->secret));
    p->names.key_masks = p->key_masks;
    p->context = (struct policy_context){.tick_ns = MILLISECOND, .origin_ns = ORIGIN_NS, .names = &p->names};
    return p;
}

static void process_free(struct process *p)
{
    policy_names_free(&p->names);
    free(p->names.rates);
    free(p);
}

static struct policy_set *compile(struct process *p, const weir_policy *policies, size_t count)
{
    struct policy_set *set = NULL;
    weir_error error;
    if (policy_set_compile(policies, count, &p->context, &set, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return set;
}

/* The only policy of a set of one. */
static struct policy *compile_one(struct process *p, const weir_limit *limits, size_t count)
{
    const weir_policy policy = {.name = "p", .limits = limits, .limit_count = count};
    return compile(p, &policy, 1)->policies;
}

static void free_one(struct policy *policy)
{
    policy_set_free((struct policy_set *) (void *) ((unsigned char *) policy - offsetof(struct policy_set, policies)));
}

#define DAY_NS (24 * HOUR)

static void test_a_label_is_the_letter_and_the_period_in_its_largest_unit(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        weir_calendar calendar;
        uint64_t period_ns;
        const char *label;
    } all[] = {
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_NONE, SECOND, "f1s"},
        {WEIR_SLIDING_WINDOW, WEIR_CALENDAR_NONE, 500 * MILLISECOND, "s500ms"},
        {WEIR_TOKEN_BUCKET, WEIR_CALENDAR_NONE, 60 * SECOND, "b1m"},
        {WEIR_LEAKY_BUCKET, WEIR_CALENDAR_NONE, 2 * HOUR, "q2h"},
        {WEIR_SLIDING_LOG, WEIR_CALENDAR_NONE, 366 * DAY_NS, "l366d"},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_NONE, 90 * SECOND, "f90s"},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_NONE, 1500000, "f1500us"},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_NONE, 31622400 * SECOND - 1, "f31622399999999999ns"},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_DAY, 0, "f1d"},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_MONTH, 0, "fmonth"},
    };
    struct process *p = process_new();
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const weir_limit limit = {
            .algorithm = all[i].algorithm, .limit = 5, .period_ns = all[i].period_ns, .calendar = all[i].calendar};
        struct policy *policy = compile_one(p, &limit, 1);
        assert_string_equal(policy->limits[0].label, all[i].label);
        free_one(policy);
    }
    process_free(p);
}

static void test_a_limit_is_the_same_one_while_its_algorithm_and_period_are(void **state)
{
    (void) state;
    static const weir_limit limits[][2] = {
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = DAY_NS, .name = "other"},
         {.algorithm = WEIR_FIXED_WINDOW, .limit = 6, .calendar = WEIR_CALENDAR_DAY}},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = SECOND},
         {.algorithm = WEIR_TOKEN_BUCKET, .limit = 7, .period_ns = SECOND, .burst = 9}},
        /* These are others. */
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = 31 * DAY_NS},
         {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .calendar = WEIR_CALENDAR_MONTH}},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = SECOND},
         {.algorithm = WEIR_SLIDING_WINDOW, .limit = 5, .period_ns = SECOND}},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = SECOND},
         {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = SECOND + 1}},
    };
    struct process *p = process_new();
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        struct policy *left = compile_one(p, &limits[i][0], 1);
        struct policy *right = compile_one(p, &limits[i][1], 1);
        assert_int_equal(left->limits[0].limit_hash == right->limits[0].limit_hash, i < 2);
        free_one(left);
        free_one(right);
    }
    process_free(p);
}

static void test_a_policy_has_the_fields_that_it_was_given(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 20, .delay = 7, .name = "first"},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 30, .period_ns = SECOND}};
    static const weir_policy policies[] = {{.name = "p", .limits = &limits[1], .limit_count = 1},
                                           {.name = NAME_63,
                                            .limits = limits,
                                            .limit_count = 2,
                                            .mode = WEIR_SHADOW,
                                            .scope = WEIR_SCOPE_PROCESS,
                                            .hash_keys = true,
                                            .on_outage = WEIR_OUTAGE_OPEN,
                                            .on_long_outage = WEIR_OUTAGE_CLOSED,
                                            .outage_grace_ms = 11,
                                            .long_outage_ms = 12},
                                           {.name = "q/pro/x", .limits = limits, .limit_count = 1}};
    struct process *p = process_new();
    struct policy_set *set = compile(p, policies, 3);
    const struct policy *policy = &set->policies[1];
    assert_string_equal(policy->name, NAME_63);
    assert_string_equal(policy->base, NAME_63);
    assert_true(policy->mode == WEIR_SHADOW && policy->scope == WEIR_SCOPE_PROCESS && policy->hash_keys);
    assert_true(policy->on_outage == WEIR_OUTAGE_OPEN && policy->on_long_outage == WEIR_OUTAGE_CLOSED);
    assert_true(policy->outage_grace_ms == 11 && policy->long_outage_ms == 12 && policy->limit_count == 2);
    assert_true(policy->override == OVERRIDE_NONE && load_relaxed(&policy->outage_mode) == OUTAGE_MODE_NONE);
    assert_int_equal(load_relaxed(&policy->basis), WEIR_BASIS_PROCESS);
    assert_int_equal(policy->group_key_mask, 0); /* it is its own group */
    assert_true(policy->set_is_odd);
    assert_string_equal(policy->limits[0].name, "first");
    /* The longest name loses its end, not the number of the limit. */
    char name[WEIR_MAX_NAME + 1];
    (void) snprintf(name, sizeof(name), "%.61s-2", NAME_63);
    assert_string_equal(policy->limits[1].name, name);
    assert_string_equal(set->policies[0].limits[0].name, "p");
    const struct policy_limit *limit = &policy->limits[0];
    const struct rule rule = policy_rule(limit);
    assert_true(limit->per_period == 10 && rule.limit == 20 && rule.ahead == 7 && rule.origin_ns == ORIGIN_NS);
    assert_true(rule.unit == SECOND / 10 * 64 && rule.tolerance == 20 * rule.unit && rule.rate_id == 1);
    assert_true(limit->rule.limit == 20 && limit->rule.unit == rule.unit && limit->rule.tolerance == rule.tolerance);
    assert_true(policy->limits[1].per_period == 30 && policy_rule(&policy->limits[1]).history_max == 30);
    const struct policy *tier = &set->policies[2];
    assert_string_equal(tier->base, "q");
    assert_int_equal(tier->group_key_mask, p->key_masks[tier->id] ^ p->key_masks[tier->group]);
    assert_int_not_equal(tier->group_key_mask, 0);
    policy_set_free(set);
    p->names.key_masks = NULL;
    set = compile(p, policies, 3);
    assert_false(set->policies[2].set_is_odd); /* sets are told apart from the one before */
    assert_int_equal(set->policies[2].group_key_mask, 0);
    policy_set_free(set);
    process_free(p);
}

/* The outage mode sets them. */
static void test_a_rule_has_the_numbers_in_force_and_all_else_as_configured(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .delay = 3};
    struct process *p = process_new();
    struct policy *policy = compile_one(p, &limit, 1);
    struct policy_limit *now = &policy->limits[0];
    const struct rule was = policy_rule(now);
    store_relaxed(&now->limit_now, 11);
    store_relaxed(&now->unit_now, 12);
    store_relaxed(&now->tolerance_now, 13);
    store_relaxed(&now->history_max, 14);
    const struct rule rule = policy_rule(now);
    assert_true(rule.limit == 11 && rule.unit == 12 && rule.tolerance == 13 && rule.history_max == 14);
    assert_true(rule.algorithm == was.algorithm && rule.period_ns == was.period_ns && rule.ahead == was.ahead);
    assert_true(rule.origin_ns == was.origin_ns && rule.rate_id == was.rate_id && rule.rate_table == was.rate_table);
    assert_true(now->rule.limit == 10 && now->rule.unit == was.unit && now->rule.tolerance == was.tolerance);
    free_one(policy);
    process_free(p);
}

static void test_short_periods_go_by_the_clock_and_queues_grant_nothing(void **state)
{
    (void) state;
    static const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = SECOND};
    static const struct {
        weir_limit limit;
        bool fine_clock, grants;
    } all[] = {
        /* Eight ticks are enough. */
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = 8 * MILLISECOND}, false, true},
        {{.algorithm = WEIR_SLIDING_WINDOW, .limit = 5, .period_ns = 8 * MILLISECOND - 1}, true, true},
        {{.algorithm = WEIR_SLIDING_LOG, .limit = 5, .period_ns = HOUR}, true, true},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 4, .period_ns = 8 * MILLISECOND}, false, true},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 4, .period_ns = 8 * MILLISECOND - 4}, true, true},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 4, .period_ns = MILLISECOND, .burst = 32}, false, true},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 4, .period_ns = MILLISECOND, .burst = 31}, true, true},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 5, .period_ns = HOUR}, true, false},
    };
    struct process *p = process_new();
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        /* One of several is enough, wherever it stands. */
        const weir_limit limits[][2] = {{all[i].limit, window}, {window, all[i].limit}};
        for (size_t j = 0; j < 2; j++) {
            struct policy *policy = compile_one(p, limits[j], 2);
            assert_int_equal(policy->fine_clock, all[i].fine_clock);
            assert_int_equal(policy->grants, all[i].grants);
            free_one(policy);
        }
    }
    process_free(p);
}

static void test_an_override_has_its_own_numbers_and_all_else_of_its_policy(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 20, .delay = 7},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 30, .calendar = WEIR_CALENDAR_MONTH},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 40, .period_ns = SECOND, .name = "log"},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND}};
    static const uint64_t numbers[] = {5, 60, 50, 400};
    static const uint64_t bursts[] = {0, 9, 9, 80};
    struct process *p = process_new();
    struct policy *like = compile_one(p, limits, 4);
    struct policy out;
    policy_override(&out, like, numbers, bursts, &p->names, MILLISECOND);
    for (size_t i = 0; i < 4; i++) {
        const struct policy_limit *limit = &out.limits[i];
        const struct policy_limit *was = &like->limits[i];
        struct rule rule = policy_rule(limit);
        assert_int_equal(limit->per_period, numbers[i]);
        assert_int_equal(rule.limit, i == 3 ? 80 : numbers[i]); /* a burst is a bucket's; 0: as the limit */
        assert_int_equal(limit->rule.limit, rule.limit);
        assert_int_equal(limit->limit_hash, was->limit_hash);
        assert_string_equal(limit->name, was->name);
        assert_true(rule.algorithm == was->rule.algorithm && rule.period_ns == was->rule.period_ns);
        assert_true(rule.calendar == was->rule.calendar && rule.origin_ns == ORIGIN_NS);
        assert_int_equal(rule.history_max, rule.limit > was->rule.limit ? rule.limit : was->rule.limit);
    }
    const struct rule queue = policy_rule(&out.limits[0]);
    assert_true(queue.unit == SECOND / 5 * 64 && queue.tolerance == 5 * queue.unit && queue.ahead == 7);
    assert_true(queue.rate_id == 2 && queue.rate_table == like->limits[0].rule.rate_table); /* its rate is a new one */
    assert_int_equal(policy_rule(&out.limits[3]).unit, SECOND / 400 * 64);
    assert_true(out.fine_clock && !out.grants && out.id == like->id && out.group == like->group);
    policy_override(&out, like, NULL, NULL, &p->names, MILLISECOND); /* always allowed, or denied */
    assert_memory_equal((void *) &out, (void *) like, sizeof(out));
    free_one(like);
    /* Whether the clock is needed follows from its own numbers. */
    const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 8};
    like = compile_one(p, &bucket, 1);
    policy_override(&out, like, (const uint64_t[]){1000}, (const uint64_t[]){7}, &p->names, MILLISECOND);
    assert_true(!like->fine_clock && out.fine_clock);
    free_one(like);
    process_free(p);
}

static void test_names_keep_their_ids_and_tiers_share_a_group(void **state)
{
    (void) state;
    static const char *const groups[][2] = {{"a", "a"},   {"a/b", "a"},     {"a/b/c", "a"}, {"a/", "a"},
                                            {"/a", "/a"}, {"/a/b", "/a/b"}, {"ab", "ab"},   {NAME_63, NAME_63}};
    for (size_t i = 0; i < COUNT_OF(groups); i++) {
        char group[WEIR_MAX_NAME + 1];
        policy_names_group(group, groups[i][0]);
        assert_string_equal(group, groups[i][1]);
    }
    struct process *p = process_new();
    struct policy_names *names = &p->names;
    assert_int_equal(policy_names_find(names, "a"), WEIR_NO_POLICY);
    assert_int_equal(policy_names_add(names, "a"), 1);
    assert_int_equal(policy_names_add(names, NAME_63), 2);
    assert_int_equal(policy_names_add(names, "a"), 1);
    assert_int_equal(policy_names_find(names, NAME_63), 2);
    assert_int_equal(policy_names_find(names, ""), WEIR_NO_POLICY);
    assert_int_equal(names->count, 2);
    static const struct {
        const char *name;
        size_t count;
    } added[] = {{"a", 0}, {"a/b", 1}, {"b", 1}, {"b/c", 2}, {"/a", 1}};
    weir_policy all[COUNT_OF(added)];
    for (size_t i = 0; i < COUNT_OF(added); i++) {
        all[i] = (weir_policy){.name = added[i].name};
        assert_int_equal(policy_names_count_new(names, &all[i], 1), added[i].count);
    }
    assert_int_equal(policy_names_count_new(names, all, COUNT_OF(all)), 5);
    process_free(p);
}

static void test_a_form_is_of_a_policy_and_its_tiers(void **state)
{
    (void) state;
    struct process *p = process_new();
    struct policy_names *names = &p->names;
    const weir_key_form *addresses = weir_address_form(64);
    const weir_key_form *whole = weir_address_form(128);
    assert_null(policy_names_form(names, "a"));
    assert_int_equal(policy_names_set_form(names, "a", addresses), 0);
    assert_int_equal(policy_names_set_form(names, "b/pro", whole), 0);
    assert_ptr_equal(policy_names_form(names, "a"), addresses);
    assert_ptr_equal(policy_names_form(names, "a/pro"), addresses);
    assert_ptr_equal(policy_names_form(names, "b"), whole);
    assert_null(policy_names_form(names, "c"));
    assert_int_equal(policy_names_set_form(names, "a", whole), 0);
    assert_ptr_equal(policy_names_form(names, "a"), whole);
    assert_int_equal(policy_names_set_form(names, "a", NULL), 0);
    assert_null(policy_names_form(names, "a/pro"));
    assert_ptr_equal(policy_names_form(names, "b"), whole);
    assert_int_equal(names->count, 0); /* a form is no use of a name */
    process_free(p);
}

static const weir_limit second_log = {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = SECOND};
static const weir_limit greater_log = {.algorithm = WEIR_SLIDING_LOG, .limit = 50, .period_ns = SECOND};
static const weir_limit minute_log = {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = 60 * SECOND};

static uint64_t history_max(const struct policy_set *set, size_t policy, size_t limit)
{
    return load_relaxed(&set->policies[policy].limits[limit].history_max);
}

/* A policy has room for four limits. Those that it has not are zeros, and are found by no number, 0 among them. */
static void expect_nothing_behind_the_limits(struct policy_set *set)
{
    static const struct policy_limit none;
    const struct policy *policy = NULL;
    for (size_t i = 0; i < set->count; i++) {
        assert_null(policy_set_limit(set, set->policies[i].group, 0, &policy));
        policy_set_raise_history_max(set, set->policies[i].group, 0, 99);
        for (size_t j = set->policies[i].limit_count; j < WEIR_MAX_LIMITS; j++) {
            assert_memory_equal((void *) &set->policies[i].limits[j], (void *) &none, sizeof(none));
        }
    }
}

static void test_a_set_finds_policies_by_id_and_group_and_limits_by_their_id(void **state)
{
    (void) state;
    const weir_limit two[] = {greater_log, minute_log};
    const weir_policy policies[] = {{.name = "p/pro", .limits = &second_log, .limit_count = 1},
                                    {.name = "q", .limits = &second_log, .limit_count = 1},
                                    {.name = "p", .limits = two, .limit_count = 2},
                                    {.name = "p/free", .limits = &minute_log, .limit_count = 1}};
    struct process *p = process_new();
    struct policy_set *set = compile(p, policies, 4);
    const struct policy *all = set->policies;
    assert_int_equal(set->count, 4);
    assert_true(set->size == sizeof(*set) + 4 * sizeof(*all) && set->overrides.distance == 0);
    /* The group's name comes first: its number is that of the tiers' group. */
    assert_true(all[0].group == 1 && all[0].id == 2 && all[1].id == 3 && all[1].group == 3);
    assert_true(all[2].id == 1 && all[2].group == 1 && all[3].id == 4 && all[3].group == 1);
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(policy_set_by_id(set, all[i].id), &all[i]);
    }
    assert_null(policy_set_by_id(set, WEIR_NO_POLICY));
    assert_null(policy_set_by_id(set, 5));
    assert_null(policy_set_by_id(set, WEIR_MAX_POLICIES + 1));
    assert_null(policy_set_group(set, WEIR_MAX_POLICIES + 1));
    assert_ptr_equal(policy_set_group(set, 1), &all[0]); /* in the order of the set */
    assert_ptr_equal(policy_set_next(set, &all[0]), &all[2]);
    assert_ptr_equal(policy_set_next(set, &all[2]), &all[3]);
    assert_null(policy_set_next(set, &all[3]));
    assert_ptr_equal(policy_set_group(set, 3), &all[1]);
    assert_null(policy_set_next(set, &all[1]));
    const struct policy *policy = NULL;
    const uint32_t minute = POLICY_LIMIT_ID(all[3].limits[0].limit_hash);
    const uint32_t second = POLICY_LIMIT_ID(all[1].limits[0].limit_hash);
    assert_ptr_equal(policy_set_limit(set, 1, minute, &policy), &all[2].limits[1]); /* the first that has it */
    assert_ptr_equal(policy, &all[2]);
    assert_ptr_equal(policy_set_limit(set, 1, second, &policy), &all[0].limits[0]);
    assert_ptr_equal(policy, &all[0]);
    assert_null(policy_set_limit(set, 3, minute, &policy));
    assert_null(policy_set_limit(set, 4, second, &policy));
    expect_nothing_behind_the_limits(set);
    /* Tiers share a history: it keeps as many units as the greatest of them lets pass. */
    assert_int_equal(history_max(set, 0, 0), 50);
    assert_int_equal(history_max(set, 2, 0), 50);
    assert_int_equal(history_max(set, 1, 0), 10);
    assert_int_equal(history_max(set, 2, 1), 20);
    policy_set_raise_history_max(set, 1, all[2].limits[1].limit_hash, 19);
    assert_int_equal(history_max(set, 3, 0), 20);
    policy_set_raise_history_max(set, 1, all[2].limits[1].limit_hash, 70);
    assert_true(history_max(set, 3, 0) == 70 && history_max(set, 2, 1) == 70 && history_max(set, 2, 0) == 50);
    /* And as under the greatest one so far. */
    const weir_policy less[] = {{.name = "q", .limits = &second_log, .limit_count = 1},
                                {.name = "p/free", .limits = &second_log, .limit_count = 1},
                                {.name = "p/pro", .limits = &minute_log, .limit_count = 1}};
    struct policy_set *next = compile(p, less, 3);
    policy_set_keep_histories(next, set);
    assert_true(history_max(next, 0, 0) == 10 && history_max(next, 1, 0) == 50 && history_max(next, 2, 0) == 70);
    assert_true(next->policies[0].id == 3 && next->policies[1].id == 4 && next->policies[2].id == 2);
    expect_nothing_behind_the_limits(next);
    policy_set_free(set);
    policy_set_free(next);
    policy_set_free(NULL);
    process_free(p);
}

static void test_there_are_at_most_1023_names_since_open(void **state)
{
    (void) state;
    struct process *p = process_new();
    char name[WEIR_MAX_NAME + 1];
    for (int i = 0; i < WEIR_MAX_POLICIES - 2; i++) {
        (void) snprintf(name, sizeof(name), "n%d", i);
        (void) policy_names_add(&p->names, name);
    }
    weir_policy policies[] = {{.name = "x/y", .limits = &second_log, .limit_count = 1},
                              {.name = "z", .limits = &second_log, .limit_count = 1}};
    struct policy_set *set = NULL;
    weir_error error;
    assert_int_equal(policy_set_compile(policies, 2, &p->context, &set, &error), -ENOSPC);
    assert_string_equal(error.message, "more than 1023 different policy names since open; reopen, or reuse names");
    assert_true(set == NULL && p->names.count == WEIR_MAX_POLICIES - 2 && p->names.set_count == 0);
    set = compile(p, policies, 1);
    assert_int_equal(p->names.count, WEIR_MAX_POLICIES);
    assert_int_equal(set->policies[0].id, WEIR_MAX_POLICIES);
    assert_ptr_equal(policy_set_by_id(set, WEIR_MAX_POLICIES), &set->policies[0]);
    policy_set_free(set);
    policy_set_free(compile(p, policies, 1)); /* no name is new */
    process_free(p);
}

static void test_a_limit_has_255_rates_and_each_keeps_its_number(void **state)
{
    (void) state;
    struct process *p = process_new();
    struct rate_list *list = p->names.rates;
    struct rule rule = {.algorithm = WEIR_TOKEN_BUCKET};
    for (uint64_t i = 0; i < 300; i++) {
        rule = (struct rule){.algorithm = WEIR_TOKEN_BUCKET, .unit = 1000 + i};
        rate_list_find(list, 3, 77, &rule);
        assert_int_equal(rule.rate_id, i < 255 ? i + 1 : 0);
        assert_int_equal(rate_table_unit(rule.rate_table, rule.rate_id), i < 255 ? 1000 + i : 0);
    }
    rule.unit = 1007;
    rate_list_find(list, 3, 77, &rule);
    assert_int_equal(rule.rate_id, 8);
    assert_int_equal(list->count, 1);
    /* Another group, and another limit of the group. */
    const uint64_t table = rule.rate_table;
    rate_list_find(list, 4, 77, &rule);
    assert_true(rule.rate_id == 1 && rule.rate_table != table && list->count == 2);
    rule.unit = 5;
    rate_list_find(list, 3, 78, &rule);
    assert_true(rule.rate_id == 1 && rate_table_unit(rule.rate_table, 1) == 5 && list->count == 3);
    assert_true(list->limits[2].group == 3 && list->limits[2].limit_hash == 78);
    /* Without room, or without a list, no rate is known. */
    list->count = RATE_LISTS - 1;
    rule = (struct rule){.unit = 5};
    rate_list_find(list, 9, 9, &rule);
    assert_true(rule.rate_id == 1 && list->count == RATE_LISTS);
    rule = (struct rule){.unit = 5, .rate_table = 1};
    rate_list_find(list, 10, 9, &rule);
    assert_true(rule.rate_id == 0 && rule.rate_table == 0 && list->count == RATE_LISTS);
    rule = (struct rule){.unit = 5, .rate_table = 1};
    rate_list_find(NULL, 3, 77, &rule);
    assert_true(rule.rate_id == 0 && rule.rate_table == 0);
    /* What has to be present. */
    list->count = 2;
    const size_t one = sizeof(struct limit_rates);
    assert_int_equal(rate_list_size(list, 3), offsetof(struct rate_list, limits) + 5 * one);
    assert_int_equal(rate_list_size(list, RATE_LISTS), offsetof(struct rate_list, limits) + RATE_LISTS * one);
    process_free(p);
}

/* Overrides */

static struct override_text text_of(const char *field, const char *value)
{
    const struct override_text text = {strdup(field), strdup(value), true};
    assert_true(text.field != NULL && text.value != NULL);
    return text;
}

static const struct policy *find_override(struct process *p, const struct overrides *overrides, const char *policy,
                                          const char *bytes, size_t length)
{
    struct record_hash record_hash;
    record_hash_init(&record_hash, NULL);
    const weir_policy_id id = policy_names_find(&p->names, policy);
    const uint64_t hash = hash_keyed(&p->secret, bytes, length) ^ p->key_masks[id];
    const weir_key key = {.hash = hash, .data = bytes, .length = (uint32_t) length, .policy = id};
    return overrides_find(overrides, &key, &p->secret, &record_hash);
}

static void test_of_overrides_the_first_that_has_not_ended_is_in_force(void **state)
{
    (void) state;
    const weir_policy policies[] = {{.name = "p", .limits = &second_log, .limit_count = 1},
                                    {.name = "q", .limits = &second_log, .limit_count = 1}};
    struct process *p = process_new();
    struct policy_set *set = compile(p, policies, 2);
    assert_int_equal(policy_names_set_form(&p->names, "q", weir_address_form(64)), 0);
    /* 2026-01-01 is in 1767225600 s. */
    struct override_context context = {.set = set,
                                       .names = &p->names,
                                       .secret = &p->secret,
                                       .tick_ns = MILLISECOND,
                                       .now_ns = UINT64_C(1767225600) * SECOND};
    struct override_text first[] = {
        text_of("p:a", "60"),         text_of("p:b", "deny until 2026-01-01"), /* just ended */
        text_of("r:a", "deny"),                                                /* there is no such policy */
        text_of("p:c", "many"),       text_of("p:d", "allow until 2026-01-01T00:00:01Z"),
        text_of("no policy", "deny"),
    };
    struct override_text second[] = {text_of("p:a", "deny"), text_of("p:b", "allow until 2026-02-01"),
                                     text_of("q:198.51.100.0/24", "7"), text_of("q:198.51.100.0/28", "deny"),
                                     text_of("q:2001:db8::/32", "8")};
    static const bool in_force[] = {true, false, false, false, true, false};
    static const bool second_in_force[] = {false, true, true, true, true};
    const struct override_list lists[] = {{first, COUNT_OF(first)}, {second, COUNT_OF(second)}};
    struct overrides *overrides = NULL;
    struct override_faults faults;
    assert_int_equal(overrides_compile(&context, lists, 2, &overrides, &faults), 0);
    assert_int_equal(faults.count, 2);
    assert_ptr_equal(faults.first, &first[3]);
    assert_string_equal(faults.error.message, "\"many\" is no value for policy \"p\"; give \"allow\", \"deny\" or a "
                                              "number for each of its limits (1), such as \"200/50 10000\"");
    for (size_t i = 0; i < COUNT_OF(first); i++) {
        assert_int_equal(first[i].compiled, in_force[i]);
    }
    for (size_t i = 0; i < COUNT_OF(second); i++) {
        assert_int_equal(second[i].compiled, second_in_force[i]);
    }
    assert_int_equal(overrides_count(overrides), 6);
    assert_int_equal(overrides_until_ns(overrides), UINT64_C(1767225601) * SECOND); /* the first end */
    assert_true(overrides_size(overrides) < overrides_size_most() / 100);           /* of eleven texts */
    const struct policy *found = find_override(p, overrides, "p", "a", 1);
    assert_ptr_equal(found, overrides_at(overrides, 0));
    assert_true(found->override == OVERRIDE_NONE && found->limits[0].rule.limit == 60);
    assert_int_equal(history_max(set, 0, 0), 60); /* the history keeps as many */
    assert_int_equal(history_max(set, 1, 0), 10);
    assert_int_equal(find_override(p, overrides, "p", "d", 1)->override, OVERRIDE_ALLOW);
    assert_int_equal(find_override(p, overrides, "p", "b", 1)->override, OVERRIDE_ALLOW);
    assert_null(find_override(p, overrides, "p", "c", 1));
    assert_null(find_override(p, overrides, "q", "a", 1));
    assert_int_equal(find_override(p, overrides, "q", "\xc6\x33\x64\x0f", 4)->override, OVERRIDE_DENY);
    assert_int_equal(find_override(p, overrides, "q", "\xc6\x33\x64\x10", 4)->limits[0].rule.limit, 7);
    assert_null(find_override(p, overrides, "q", "\xc6\x33\x65\x0f", 4));
    assert_int_equal(find_override(p, overrides, "q", "\x20\x01\x0d\xb8\1\2\3\4", 8)->limits[0].rule.limit, 8);
    assert_null(find_override(p, overrides, "q", "\x20\x01\x0d\xb8", 4)); /* an address of 4 bytes */
    overrides_free(overrides);
    /* Of nothing nothing is made. */
    assert_int_equal(overrides_compile(&context, lists, 0, &overrides, &faults), 0);
    assert_null(overrides);
    assert_int_equal(faults.count, 0);
    assert_int_equal(overrides_count(NULL), 0);
    assert_int_equal(overrides_until_ns(NULL), UINT64_MAX);
    /* Without an end. */
    assert_int_equal(overrides_compile(&context, &(struct override_list){second, 1}, 1, &overrides, &faults), 0);
    assert_int_equal(overrides_until_ns(overrides), UINT64_MAX);
    assert_true(second[0].compiled); /* there is none before it now */
    overrides_free(overrides);
    for (size_t i = 0; i < COUNT_OF(first); i++) {
        free(first[i].field);
        free(first[i].value);
    }
    for (size_t i = 0; i < COUNT_OF(second); i++) {
        free(second[i].field);
        free(second[i].value);
    }
    policy_set_free(set);
    process_free(p);
}

/* How often the keys of overrides were hashed. The linker's --wrap leads the calls here. */
static size_t hashed;

uint64_t __real_hash_keyed(const struct hash_secret *secret, const void *data, size_t length);
uint64_t __wrap_hash_keyed(const struct hash_secret *secret, const void *data, size_t length);

uint64_t __wrap_hash_keyed(const struct hash_secret *secret, const void *data, size_t length)
{
    hashed++;
    return __real_hash_keyed(secret, data, length);
}

static void test_a_key_is_looked_for_once_in_the_networks_of_each_size_the_smallest_first(void **state)
{
    (void) state;
    static const char *const networks[] = {"10.0.0.0/8",    "11.0.0.0/8",    "10.1.0.0/16", "10.2.0.0/16",
                                           "10.1.2.0/24",   "10.1.3.0/24",   "10.1.2.0/25", "2001:db8::/32",
                                           "2001:db9::/32", "2001:d00::/24", "12.0.0.0/8",  "10.1.4.0/24"};
    const weir_policy policies[] = {{.name = "q", .limits = &second_log, .limit_count = 1},
                                    {.name = "p", .limits = &second_log, .limit_count = 1}};
    struct process *p = process_new();
    struct policy_set *set = compile(p, policies, 2);
    struct override_text texts[2 * COUNT_OF(networks)];
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char field[40];
        char value[8];
        const char *policy = policies[i % 2].name;
        assert_int_equal(policy_names_set_form(&p->names, policy, weir_address_form(64)), 0);
        (void) snprintf(field, sizeof(field), "%s:%s", policy, networks[i / 2]);
        (void) snprintf(value, sizeof(value), "%zu", 100 + i);
        texts[i] = text_of(field, value);
    }
    const struct override_context context = {
        .set = set, .names = &p->names, .secret = &p->secret, .tick_ns = MILLISECOND, .now_ns = ORIGIN_NS};
    struct overrides *overrides = NULL;
    struct override_faults faults;
    assert_int_equal(
        overrides_compile(&context, &(struct override_list){texts, COUNT_OF(texts)}, 1, &overrides, &faults), 0);
    assert_int_equal(overrides_count(overrides), COUNT_OF(texts));
    /* The network that is found, and in how many sizes the key was looked for: of its length, of its policy. */
    static const struct {
        const char *bytes;
        size_t length, found, sizes;
    } all[] = {{"\x0a\x01\x02\x05", 4, 6, 1},
               {"\x0a\x01\x02\x85", 4, 4, 2},
               {"\x0a\x01\x04\x85", 4, 11, 2},
               {"\x0a\x01\x05\x85", 4, 2, 3},
               {"\x0a\x02\x05\x85", 4, 3, 3},
               {"\x0a\x03\x05\x85", 4, 0, 4},
               {"\x0b\x03\x05\x85", 4, 1, 4},
               {"\x0d\x03\x05\x85", 4, SIZE_MAX, 4},
               {"\x20\x01\x0d\xb9\0\0\0\1", 8, 8, 1},
               {"\x20\x01\x0d\xba\0\0\0\1", 8, 9, 2},
               {"\x20\x02\x0d\xba\0\0\0\1", 8, SIZE_MAX, 2},
               {"\x20\x02\x0d", 3, SIZE_MAX, 0}};
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        hashed = 0;
        const struct policy *found =
            find_override(p, overrides, policies[i % 2].name, all[i / 2].bytes, all[i / 2].length);
        assert_int_equal(hashed - 1, all[i / 2].sizes); /* once for the key itself */
        assert_int_equal(found != NULL, all[i / 2].found != SIZE_MAX);
        if (found != NULL) {
            assert_int_equal(found->limits[0].rule.limit, 100 + 2 * all[i / 2].found + i % 2);
        }
    }
    overrides_free(overrides);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        free(texts[i].field);
        free(texts[i].value);
    }
    policy_set_free(set);
    process_free(p);
}

static size_t size_of_overrides(const struct override_context *context, struct override_text *texts, size_t count)
{
    struct overrides *overrides = NULL;
    struct override_faults faults;
    const struct override_list lists[] = {{texts, count / 2}, {texts + count / 2, count - count / 2}};
    assert_int_equal(overrides_compile(context, lists, 2, &overrides, &faults), 0);
    const size_t size = overrides_size(overrides);
    overrides_free(overrides);
    return size;
}

/* More than twice as many slots, of four bytes; and as much again for each entry. */
static void test_the_block_of_overrides_grows_with_their_number(void **state)
{
    (void) state;
    const weir_policy policy = {.name = "p", .limits = &second_log, .limit_count = 1};
    struct process *p = process_new();
    struct policy_set *set = compile(p, &policy, 1);
    const struct override_context context = {
        .set = set, .names = &p->names, .secret = &p->secret, .tick_ns = MILLISECOND, .now_ns = ORIGIN_NS};
    struct override_text texts[40];
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        texts[i] = (struct override_text){.field = (char *) (uintptr_t) "p:k", .value = (char *) (uintptr_t) "deny"};
    }
    const size_t one = size_of_overrides(&context, texts, 1);
    const size_t each = size_of_overrides(&context, texts, 2) - one;
    assert_in_range(each, sizeof(struct policy), sizeof(struct policy) + 200);
    for (size_t count = 1; count <= COUNT_OF(texts); count++) {
        size_t slots = 16;
        while (slots <= 2 * count) {
            slots *= 2;
        }
        assert_int_equal(size_of_overrides(&context, texts, count), one + (count - 1) * each + (slots - 16) * 4);
    }
    policy_set_free(set);
    process_free(p);
}

static void test_ten_thousand_overrides_are_taken_and_the_rest_is_left_out(void **state)
{
    (void) state;
    const weir_policy policy = {.name = "p", .limits = &second_log, .limit_count = 1};
    struct process *p = process_new();
    struct policy_set *set = compile(p, &policy, 1);
    const struct override_context context = {
        .set = set, .names = &p->names, .secret = &p->secret, .tick_ns = MILLISECOND, .now_ns = ORIGIN_NS};
    const size_t count = OVERRIDES_MAX + 2;
    struct override_text *texts = calloc(count, sizeof(*texts));
    assert_non_null(texts);
    char field[32];
    for (size_t i = 0; i < count; i++) {
        (void) snprintf(field, sizeof(field), "p:%zu", i);
        texts[i] = text_of(field, "deny");
    }
    /* They are counted over all lists. */
    const struct override_list lists[] = {{texts, 5}, {texts + 5, count - 5}};
    struct overrides *overrides = NULL;
    struct override_faults faults;
    assert_int_equal(overrides_compile(&context, lists, 2, &overrides, &faults), 0);
    assert_int_equal(overrides_count(overrides), OVERRIDES_MAX);
    assert_int_equal(overrides_size(overrides), overrides_size_most());
    for (size_t i = 0; i < count; i++) {
        (void) snprintf(field, sizeof(field), "%zu", i);
        assert_int_equal(texts[i].compiled, i < OVERRIDES_MAX);
        assert_int_equal(find_override(p, overrides, "p", field, strlen(field)) != NULL, i < OVERRIDES_MAX);
    }
    overrides_free(overrides);
    overrides_drop(texts, count);
    overrides_drop(NULL, 3);
    policy_set_free(set);
    process_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_label_is_the_letter_and_the_period_in_its_largest_unit),
        cmocka_unit_test(test_a_limit_is_the_same_one_while_its_algorithm_and_period_are),
        cmocka_unit_test(test_a_policy_has_the_fields_that_it_was_given),
        cmocka_unit_test(test_a_rule_has_the_numbers_in_force_and_all_else_as_configured),
        cmocka_unit_test(test_short_periods_go_by_the_clock_and_queues_grant_nothing),
        cmocka_unit_test(test_an_override_has_its_own_numbers_and_all_else_of_its_policy),
        cmocka_unit_test(test_names_keep_their_ids_and_tiers_share_a_group),
        cmocka_unit_test(test_a_form_is_of_a_policy_and_its_tiers),
        cmocka_unit_test(test_a_set_finds_policies_by_id_and_group_and_limits_by_their_id),
        cmocka_unit_test(test_there_are_at_most_1023_names_since_open),
        cmocka_unit_test(test_a_limit_has_255_rates_and_each_keeps_its_number),
        cmocka_unit_test(test_of_overrides_the_first_that_has_not_ended_is_in_force),
        cmocka_unit_test(test_a_key_is_looked_for_once_in_the_networks_of_each_size_the_smallest_first),
        cmocka_unit_test(test_the_block_of_overrides_grows_with_their_number),
        cmocka_unit_test(test_ten_thousand_overrides_are_taken_and_the_rest_is_left_out),
    };
    return cmocka_run_group_tests_name("unit/policy/compile", tests, NULL, NULL);
}
