/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled policy set and compiled overrides are blocks without pointers: copies of the blocks at other addresses
 * decide as the blocks did, and no word of a block is an address.
 *
 * Guards: src/base/reference.h, src/policy/policy_set.c, src/policy/policy_set.h, src/policy/override_set.c,
 * src/policy/policy.h
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/record_hash.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "support/nodes.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Limits that set all fields. Their numbers are small: no number is an address by chance. */
static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = SECOND, .name = "a name"},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 30, .period_ns = 2 * SECOND},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 20, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 40, .period_ns = SECOND},
};
static const weir_limit smaller = {.algorithm = WEIR_FIXED_WINDOW, .limit = 4, .period_ns = SECOND};
static const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 5, .period_ns = SECOND};
static const weir_policy policies[] = {
    {.name = "p", .limits = limits, .limit_count = COUNT_OF(limits)},
    {.name = "q", .limits = &queue, .limit_count = 1},
    {.name = "p/pro", .limits = &smaller, .limit_count = 1},
    {.name = "secret", .limits = &smaller, .limit_count = 1, .hash_keys = true},
    {.name = "p/free", .limits = &smaller, .limit_count = 1},
};

static struct fake_clock fake;

static void set_override(weir *w, const char *name, const char *value)
{
    weir_error error;
    if (weir_set_override(w, name, value, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

/* A weir with overrides of all kinds: of a key, of a network, of a key's hash. */
static weir *open_weir(void)
{
    fake_clock_init(&fake, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &fake.clock;
    weir *w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    assert_int_equal(weir_set_key_form(w, "p", weir_address_form(64), NULL), 0);
    set_override(w, "p:198.51.100.0/24", "7 7 7 7");
    set_override(w, "p:198.51.100.128/25", "6 6 6 6");
    set_override(w, "p:198.51.100.9", "deny");
    set_override(w, "p/pro:198.51.100.9", "allow");
    unsigned char hash[RECORD_HASH_SIZE];
    char name[16 + 2 * RECORD_HASH_SIZE + 1] = "secret:~";
    record_hash_of(&w->record_hash, "known", 5, hash);
    name[strlen(name) + hex_write(name + strlen(name), hash, sizeof(hash))] = '\0';
    set_override(w, name, "2");
    return w;
}

/* A copy of a block, which is cleared in its old place. */
static void *copy_of(void *block, size_t size)
{
    void *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, block, size);
    memset(block, 0, size);
    return copy;
}

/* The blocks in their old places. */
struct old_blocks {
    struct policy_set *set;
    struct overrides *overrides;
};

/* Puts copies of the blocks in their place. No thread has used the blocks. */
static struct old_blocks move_blocks(weir *w)
{
    struct policy_set *set = process_policies(&w->limiter.process);
    const struct old_blocks old = {set, policy_set_overrides(set)};
    struct policy_set *copy = copy_of(old.set, old.set->size);
    reference_set(&copy->overrides, copy_of(old.overrides, overrides_size(old.overrides)));
    reference_set(&w->limiter.process.shared->policies, copy);
    return old;
}

/* What the calls of a program answered. */
struct answers {
    size_t count;
    uint64_t of[4000];
};

static void add_answer(struct answers *answers, uint64_t answer)
{
    assert_true(answers->count < COUNT_OF(answers->of));
    answers->of[answers->count++] = answer;
}

/* Uses a key up, under a policy; then refunds, charges, reserves and resets it. */
static void use_key(weir *w, weir_thread *const t[2], const char *policy, const void *bytes, size_t length,
                    struct answers *answers)
{
    const weir_key key = weir_make_key(w, weir_find_policy(w, policy), bytes, length);
    for (size_t i = 0; i < 50; i++) {
        weir_verdict verdict;
        add_answer(answers, weir_check(t[i % 2], &key, 1, &verdict));
        add_answer(answers, verdict.limit);
        add_answer(answers, verdict.remaining);
        if (i == 15) {
            weir_refund(t[0], &key, 2);
        }
    }
    uint64_t wait_ns = 0;
    add_answer(answers, weir_reserve(t[0], &key, 1, SECOND, &wait_ns));
    add_answer(answers, wait_ns);
    weir_charge(t[1], &key, 1);
    add_answer(answers, weir_peek(t[0], &key, 1, NULL));
    add_answer(answers, (uint64_t) weir_reset(w, &key));
    add_answer(answers, weir_peek(t[0], &key, 1, NULL));
}

static void use_all(weir *w, struct answers *answers)
{
    static const unsigned char addresses[][4] = {
        {198, 51, 100, 7}, {198, 51, 100, 9}, {198, 51, 100, 200}, {203, 0, 113, 1}};
    weir_thread *const t[2] = {weir_attach(w), weir_attach(w)};
    answers->count = 0;
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        use_key(w, t, "p", addresses[i], 4, answers);
        use_key(w, t, "p/pro", addresses[i], 4, answers);
        use_key(w, t, "q", addresses[i], 4, answers);
    }
    use_key(w, t, "secret", "known", 5, answers);
    use_key(w, t, "secret", "other", 5, answers);
    /* A tier's units are taken back for another tier of the group. */
    const weir_key pro = weir_make_key(w, weir_find_policy(w, "p/pro"), "\1\2\3\4", 4);
    const weir_key free_tier = weir_make_key(w, weir_find_policy(w, "p/free"), "\1\2\3\4", 4);
    for (size_t i = 0; i < 10; i++) {
        add_answer(answers, weir_check(t[0], i < 3 ? &pro : &free_tier, 1, NULL));
    }
}

static void test_copies_at_other_addresses_decide_as_the_blocks_did(void **state)
{
    (void) state;
    static struct answers expected, answers;
    weir *w = open_weir();
    use_all(w, &expected);
    weir_close(w);
    w = open_weir();
    const struct old_blocks old = move_blocks(w);
    use_all(w, &answers);
    assert_int_equal(answers.count, expected.count);
    for (size_t i = 0; i < answers.count; i++) {
        if (answers.of[i] != expected.of[i]) {
            fail_msg("answer %zu: %" PRIu64 ", not %" PRIu64, i, answers.of[i], expected.of[i]);
        }
    }
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0); /* frees the copies */
    weir_close(w);
    free(old.set);
    free(old.overrides);
}

/* Whether a number is an address of this process. */
static bool is_address(uint64_t number)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    bool found = false;
    char line[512];
    while (!found && fgets(line, sizeof(line), maps) != NULL) {
        uint64_t start = 0;
        uint64_t end = 0;
        char readable = '-';
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %c", &start, &end, &readable) == 3 && readable == 'r') {
            found = number >= start && number < end;
        }
    }
    (void) fclose(maps);
    return found;
}

/* Addresses among the words of a block. */
static size_t count_addresses(const void *block, size_t size)
{
    size_t count = 0;
    for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const unsigned char *) block + at, sizeof(word));
        /* Less is no address on any system, and most words are 0. */
        count += word > UINT16_MAX && is_address(word);
    }
    return count;
}

/* Clears what a copied policy may have of addresses: the rate tables, and the bytes that pad rules. */
static void clear_rules(struct policy *policy)
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        struct rule *rule = &policy->limits[i].rule;
        rule->rate_table = 0;
        memset(&rule->rate_id, 0, offsetof(struct rule, limit) - offsetof(struct rule, rate_id));
    }
}

static void test_no_word_of_a_block_is_an_address(void **state)
{
    (void) state;
    weir *w = open_weir();
    struct policy_set *set = process_policies(&w->limiter.process);
    if (set == NULL) {
        fail_msg("%s", "there is no set");
        return;
    }
    struct overrides *overrides = policy_set_overrides(set);
    const void *const here[] = {set};
    assert_int_equal(count_addresses(here, sizeof(here)), 1); /* a pointer is found */
    assert_int_equal(overrides_count(overrides), 5);
    for (size_t i = 0; i < overrides_count(overrides); i++) {
        clear_rules(overrides_at(overrides, i));
    }
    for (size_t i = 0; i < set->count; i++) {
        clear_rules(&set->policies[i]);
    }
    assert_int_equal(count_addresses(overrides, overrides_size(overrides)), 0);
    assert_int_equal(count_addresses(set, set->size), 0);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_at_other_addresses_decide_as_the_blocks_did),
        cmocka_unit_test(test_no_word_of_a_block_is_an_address),
    };
    return cmocka_run_group_tests_name("unit/policy/blocks", tests, NULL, NULL);
}
