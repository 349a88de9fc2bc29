/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and records in odd states: of a wrong type, gone with their window, more than a table holds, used up, or held by
 * a process that has died.
 *
 * Guards: src/transport/redis/answer.c, src/process/evict.c, src/transport/redis/scripts/report_window.lua,
 * src/transport/redis/scripts/report_bucket.lua, src/transport/redis/scripts/report_history.lua
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/numbers.h"
#include "chaos/chaos.h"

#define MEBIBYTE ((size_t) 1 << 20)

static const char *const algorithms[] = {"fixed", "sliding", "bucket"};

#define ALGORITHMS 3

/* Everything of `limit` units a day, not to refill within a test. A node that does not run for some intervals, where
 * the machine is busy, is not in an outage. */
static struct chaos *begin_with_limit(void **state, size_t nodes, uint64_t limit)
{
    struct chaos *c = chaos_begin(state);
    c->config.outage_grace_ms = 20000;
    chaos_policy(c, 0, WEIR_FIXED_WINDOW, limit, 24 * HOUR);
    chaos_policy(c, 1, WEIR_SLIDING_WINDOW, limit, 24 * HOUR);
    chaos_policy(c, 2, WEIR_TOKEN_BUCKET, limit, 24 * HOUR);
    chaos_nodes(c, nodes);
    chaos_settle(c);
    return c;
}

/* Asks until `units` have passed: a node's fraction grows as the other nodes' demand falls. */
static uint64_t take_in_time(const struct chaos *c, size_t node, size_t policy, uint64_t cost, uint64_t times)
{
    uint64_t passed = 0;
    for (const uint64_t until_ns = real_ns() + 60 * SECOND; passed < times && real_ns() < until_ns;) {
        passed += chaos_ask(c, node, policy, 0, cost, (uint32_t) (times - passed)).allowed;
        chaos_nap_ms(passed < times ? 50 : 0);
    }
    return passed;
}

/* The name of a key's record. */
static void record_of(const struct server *server, const char *policy, uint32_t key, char *out, size_t size)
{
    redisReply *keys = chaos_command(server, "KEYS weir:{*:%s:key-%u*", policy, (unsigned) key);
    assert_int_equal(keys->type, REDIS_REPLY_ARRAY);
    assert_true(keys->elements >= 1);
    (void) snprintf(out, size, "%s", keys->element[0]->str);
    freeReplyObject(keys);
}

static void test_records_of_a_wrong_type_hurt_no_others_of_their_batch(void **state)
{
    enum { KEYS = 60, FIRST = 100 }; /* names of one length, none the beginning of another */
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, 2);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        for (uint32_t key = FIRST; key < FIRST + KEYS; key++) {
            (void) chaos_ask(c, 0, policy, key, 1, 1);
        }
    }
    chaos_settle(c);
    static const char *const spoilers[] = {"SET %s x EX 1000", "LPUSH %s x", "ZADD %s 1 x", "SADD %s x"};
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        for (uint32_t i = 0; i < 4; i++) {
            char record[300];
            record_of(&c->primary, algorithms[policy], FIRST + 7 * i, record, sizeof(record));
            chaos_do(&c->primary, "DEL %s", record);
            chaos_do(&c->primary, spoilers[i], record);
            chaos_do(&c->primary, "EXPIRE %s 1000", record);
        }
    }
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        for (uint32_t key = FIRST; key < FIRST + KEYS; key++) {
            (void) chaos_ask(c, key % 2, policy, key, 3, 2);
        }
    }
    chaos_settle(c);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        for (uint32_t key = FIRST; key < FIRST + KEYS; key++) {
            const bool spoiled = key < FIRST + 28 && (key - FIRST) % 7 == 0;
            char name[16];
            (void) snprintf(name, sizeof(name), "key-%u", (unsigned) key);
            const struct chaos_sums sums = chaos_key_sums(&c->primary, algorithms[policy], name);
            if (sums.sum != (spoiled ? 0 : 7)) {
                fail_msg("%s %s: %" PRIu64, algorithms[policy], name, sums.sum);
            }
        }
    }
    assert_true(chaos_stats(c, 0).rejected_report_count != 0);
    chaos_all_expire(&c->primary);
    /* After repair, keys that are used again are reported whole. */
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        for (uint32_t i = 0; i < 4; i++) {
            char record[300];
            record_of(&c->primary, algorithms[policy], FIRST + 7 * i, record, sizeof(record));
            chaos_do(&c->primary, "DEL %s", record);
            for (size_t node = 0; node < 2; node++) {
                (void) chaos_ask(c, node, policy, FIRST + 7 * i, 1, 1);
            }
        }
    }
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

static void test_a_cost_larger_than_what_remains_takes_nothing(void **state)
{
    struct chaos *c = begin_with_limit(state, 2, 100);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        assert_int_equal(take_in_time(c, 0, policy, 47, 2), 2);
        chaos_settle(c);
        assert_int_equal(take_in_time(c, 1, policy, 1, 1), 1);
        chaos_settle(c); /* now the second node knows 95 units */
        assert_int_equal(chaos_ask(c, 1, policy, 0, 10, 3).allowed, 0);
        assert_int_equal(chaos_ask(c, 1, policy, 0, 6, 3).allowed, 0);
        const struct fleet_answer never = chaos_ask(c, 1, policy, 0, 101, 1);
        assert_int_equal(never.allowed, 0);
        assert_true(never.verdict.retry_after_ns == UINT64_MAX);
        assert_int_equal(take_in_time(c, 1, policy, 5, 1), 1);
        assert_int_equal(chaos_ask(c, 1, policy, 0, 1, 3).allowed, 0);
        chaos_settle(c);
        assert_int_equal(chaos_key_sums(&c->primary, algorithms[policy], "key-0").sum, 100);
    }
    chaos_compare(c, &c->primary);
}

/* A new key admits an even share before a node's first news of it, and that is at least a unit. */
static void test_a_limit_smaller_than_the_number_of_nodes(void **state)
{
    enum { NODES = 4, LIMIT = 2 };
    struct chaos *c = begin_with_limit(state, NODES, LIMIT);
    for (size_t node = 0; node < NODES; node++) {
        fleet_node_check(&c->nodes[node], &(struct fleet_checks){.policy = 0, .key = 0, .times = 10, .cost = 1});
    }
    for (size_t node = 0; node < NODES; node++) {
        struct fleet_answer answer;
        fleet_node_answer(&c->nodes[node], &answer);
    }
    chaos_settle(c);
    const uint64_t admitted = chaos_admitted(c, 0);
    print_message("# %" PRIu64 " units of %d on %d nodes\n", admitted, LIMIT, NODES);
    assert_in_range(admitted, LIMIT, NODES);
    for (size_t node = 0; node < NODES; node++) {
        assert_int_equal(chaos_ask(c, node, 0, 0, 1, 10).allowed, 0);
    }
    chaos_compare(c, &c->primary);
}

static void test_a_rate_smaller_than_the_number_of_nodes(void **state)
{
    enum { NODES = 4, LIMIT = 2, SECONDS = 6 };
    struct chaos *c = chaos_begin(state);
    c->config.policy_count = ALGORITHMS;
    c->config.outage_grace_ms = 20000;
    chaos_policy(c, 0, WEIR_FIXED_WINDOW, LIMIT, SECOND);
    chaos_policy(c, 1, WEIR_SLIDING_WINDOW, LIMIT, SECOND);
    chaos_policy(c, 2, WEIR_TOKEN_BUCKET, LIMIT, SECOND);
    chaos_nodes(c, NODES);
    chaos_settle(c);
    struct fleet_work work = chaos_usual_work(c, SECONDS * 1000);
    work.threads = 1;
    work.rate = 20;
    work.policies = (1u << ALGORITHMS) - 1;
    work.keys = 1;
    work.moves = false;
    work.max_cost = 1;
    chaos_work(c, work);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        const uint64_t admitted = chaos_admitted(c, policy);
        print_message("# %s: %" PRIu64 " units in %d s of %d a second\n", algorithms[policy], admitted, SECONDS, LIMIT);
        /* A window may begin and another end within the time. */
        assert_in_range(admitted, LIMIT * SECONDS / 2, NODES * (SECONDS + 1));
    }
    chaos_all_expire(&c->primary);
}

/* A table that is too small for its keys counts what it may lose. What it has not lost is reported once. */
static void told_but_for_lost(const struct chaos *c, uint32_t policies)
{
    uint64_t admitted = 0;
    uint64_t counts = 0;
    uint64_t lost = 0;
    for (size_t policy = 0; policy < c->config.policy_count; policy++) {
        if ((policies & 1u << policy) != 0) {
            admitted += chaos_admitted(c, policy);
            counts += chaos_sums(&c->primary, c->config.policies[policy].name).sum;
        }
    }
    for (size_t node = 0; node < c->node_count; node++) {
        lost += chaos_stats(c, node).lost_report_count;
    }
    print_message("# %" PRIu64 " units admitted, %" PRIu64 " told, %" PRIu64 " reports lost\n", admitted, counts, lost);
    assert_true(counts > 0);
    assert_true(counts <= admitted);
    assert_true(counts + lost >= admitted); /* of one unit each */
    chaos_all_expire(&c->primary);
}

static void flood(void **state, bool outage)
{
    struct chaos *c = chaos_begin(state);
    c->config.max_keys = 1000;
    chaos_nodes(c, 2);
    /* A key that is used up stays used up, however many other keys come. */
    (void) take_in_time(c, 0, CHAOS_TIGHT, 1, CHAOS_TIGHT_LIMIT);
    assert_int_equal(chaos_ask(c, 0, CHAOS_TIGHT, 0, 1, CHAOS_TIGHT_LIMIT).allowed, 0);
    assert_int_equal(fleet_node_admitted(&c->nodes[0], CHAOS_TIGHT), CHAOS_TIGHT_LIMIT);
    chaos_settle(c);
    const size_t before = fleet_node_resident(&c->nodes[0]);
    if (outage) {
        proxy_set(&c->proxy, PROXY_CUT);
        chaos_wait_basis(c, 0, WEIR_BASIS_OUTAGE);
        chaos_wait_basis(c, 1, WEIR_BASIS_OUTAGE);
    }
    struct fleet_work work = chaos_usual_work(c, 1500);
    work.policies = 7;
    work.keys = 0;
    work.moves = false;
    work.max_cost = 1;
    work.rate = outage ? 0 : 2000;
    chaos_work(c, work);
    assert_int_equal(chaos_ask(c, 0, CHAOS_TIGHT, 0, 1, 10).allowed, 0);
    assert_true(fleet_node_resident(&c->nodes[0]) < before + 16 * MEBIBYTE);
    proxy_set(&c->proxy, PROXY_PASS);
    chaos_settle(c);
    const weir_stats stats = chaos_stats(c, 0);
    print_message("# of %" PRIu64 " checks %" PRIu64 " were denied, %" PRIu64 " for want of a place\n",
                  stats.allowed_count + stats.denied_count, stats.denied_count, stats.untracked_count);
    assert_true(stats.evicted_used_count + stats.evicted_unused_count > 1000);
    assert_true(stats.key_count <= stats.key_capacity);
    told_but_for_lost(c, CHAOS_ALL);
    assert_int_equal(chaos_ask(c, 0, CHAOS_TIGHT, 0, 1, 10).allowed, 0);
}

static void test_more_keys_in_an_outage_than_the_table_holds(void **state)
{
    flood(state, true);
}

static void test_keys_that_never_repeat(void **state)
{
    flood(state, false);
}

/* Units that a killed process had been granted, and had not used or not reported, stay the fleet's. */
static void test_a_node_that_is_killed_takes_no_units_along(void **state)
{
    enum { LIMIT = 20000 };
    struct chaos *c = begin_with_limit(state, 2, LIMIT);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        struct fleet_node *dies = &c->nodes[0];
        struct fleet_work work = chaos_usual_work(c, 60000);
        work.policies = 1u << policy;
        work.rate = 5000;
        work.keys = 1;
        work.moves = false;
        work.max_cost = 1;
        fleet_node_work(dies, &work);
        chaos_nap_ms(500);
        fleet_node_kill(dies);
        const uint64_t used = fleet_node_admitted(dies, policy);
        (void) chaos_ask(c, 1, policy, 0, 1, 1);
        chaos_settle(c);
        const uint64_t told_ns = real_ns();
        const uint64_t told = chaos_sums(&c->primary, algorithms[policy]).sum;
        const uint64_t counts = told - fleet_node_admitted(&c->nodes[1], policy);
        print_message("# %s: killed after %" PRIu64 " units, of which %" PRIu64 " were told\n", algorithms[policy],
                      used, counts);
        assert_true(used > 0);
        assert_true(counts <= used + work.threads); /* one each between its check and its count */
        assert_true(counts > used / 4);             /* all but the last interval's, with much to spare */
        assert_int_equal(take_in_time(c, 1, policy, 1, LIMIT - told), LIMIT - told);
        const uint64_t more = chaos_ask(c, 1, policy, 0, 1, 10).allowed;
        chaos_settle(c);
        const uint64_t sum = chaos_sums(&c->primary, algorithms[policy]).sum;
        /* A bucket refills a unit in four seconds. */
        const uint64_t refilled = policy == 2 ? 1 + (real_ns() - told_ns) / (4 * SECOND) : 0;
        assert_in_range(sum, LIMIT, LIMIT + refilled);
        assert_in_range(more, 0, refilled);
        fleet_node_drop(dies);
        fleet_node_start(dies, &c->config); /* another one, for the next round */
        chaos_settle(c);
    }
    chaos_all_expire(&c->primary);
}

#define WINDOW_S 3

static uint64_t wall_ms(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

static uint64_t window_now(void)
{
    return wall_ms() / (WINDOW_S * 1000);
}

/* Work in the middle of a window, so that all of it is of that one. Returns its number. */
static uint64_t work_in_window(const struct chaos *c, uint64_t admitted[FLEET_POLICIES])
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    struct fleet_work work = chaos_usual_work(c, 400);
    work.policies = (1u << ALGORITHMS) - 1;
    work.keys = 1;
    work.moves = false;
    uint64_t number;
    do { /* again, where a busy machine takes longer than the window */
        number = window_now() + 1;
        chaos_nap_ms(saturating_sub(number * WINDOW_S * 1000 + 300, wall_ms()));
        for (size_t policy = 0; policy < ALGORITHMS; policy++) {
            admitted[policy] = chaos_admitted(c, policy);
        }
        chaos_work(c, work);
    } while (window_now() != number && real_ns() < until_ns);
    assert_int_equal(window_now(), number);
    for (size_t policy = 0; policy < ALGORITHMS; policy++) {
        admitted[policy] = chaos_admitted(c, policy) - admitted[policy];
    }
    return number;
}

static uint64_t window_sum(const struct chaos *c, size_t policy, uint64_t number)
{
    char name[40];
    (void) snprintf(name, sizeof(name), "key-0:%" PRIu64, number);
    return chaos_key_sums(&c->primary, algorithms[policy], name).sum;
}

/* A window counts until the end of the one after it. */
static void expect_window_sum(const struct chaos *c, size_t policy, uint64_t number, uint64_t wanted)
{
    const uint64_t sum = window_sum(c, policy, number);
    if (window_now() <= number + 1) {
        assert_int_equal(sum, wanted);
    }
}

static void test_a_partition_longer_than_the_window(void **state)
{
    struct chaos *c = chaos_begin(state);
    uint64_t first[FLEET_POLICIES];
    uint64_t lost[FLEET_POLICIES];
    uint64_t last[FLEET_POLICIES];
    uint64_t after[FLEET_POLICIES];
    c->config.policy_count = ALGORITHMS;
    chaos_policy(c, 0, WEIR_FIXED_WINDOW, 1000000, WINDOW_S * SECOND);
    chaos_policy(c, 1, WEIR_SLIDING_WINDOW, 1000000, WINDOW_S * SECOND);
    chaos_policy(c, 2, WEIR_TOKEN_BUCKET, 1000000, WINDOW_S * SECOND);
    chaos_nodes(c, 2);
    chaos_settle(c);
    const uint64_t first_number = work_in_window(c, first);
    chaos_settle(c);
    for (size_t policy = 0; policy < 2; policy++) {
        expect_window_sum(c, policy, first_number, first[policy]);
    }
    proxy_set(&c->proxy, PROXY_BLACKHOLE);
    const uint64_t lost_number = work_in_window(c, lost);
    const uint64_t last_number = work_in_window(c, last);
    proxy_set(&c->proxy, PROXY_PASS);
    chaos_settle(c);
    for (size_t policy = 0; policy < 2; policy++) {
        expect_window_sum(c, policy, last_number, last[policy]);
        assert_true(window_sum(c, policy, lost_number) <= lost[policy]);
        assert_true(window_sum(c, policy, first_number) <= first[policy]);
    }
    const uint64_t after_number = work_in_window(c, after);
    chaos_settle(c);
    for (size_t policy = 0; policy < 2; policy++) {
        expect_window_sum(c, policy, after_number, after[policy]);
    }
    /* A bucket's counts go on for as long as its record lives, which is a minute longer than it takes to fill. */
    assert_int_equal(chaos_sums(&c->primary, "bucket").sum, chaos_admitted(c, 2));
    chaos_all_expire(&c->primary);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (chaos_main(argc, argv, &code)) {
        return code;
    }
    const struct CMUnitTest tests[] = {
        chaos_test(test_records_of_a_wrong_type_hurt_no_others_of_their_batch),
        chaos_test(test_a_cost_larger_than_what_remains_takes_nothing),
        chaos_test(test_a_limit_smaller_than_the_number_of_nodes),
        chaos_test(test_a_rate_smaller_than_the_number_of_nodes),
        chaos_test(test_more_keys_in_an_outage_than_the_table_holds),
        chaos_test(test_keys_that_never_repeat),
        chaos_test(test_a_node_that_is_killed_takes_no_units_along),
        chaos_test(test_a_partition_longer_than_the_window),
    };
    return cmocka_run_group_tests_name("chaos/keys", tests, NULL, NULL);
}
