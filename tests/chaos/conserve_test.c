/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conservation: whatever happens to Redis or to the way to it, in the end the sums in Redis are what the nodes
 * admitted, to the unit. Three processes work before, during and after a fault; then each one syncs, and all records
 * are read.
 *
 * Guards: src/transport/redis/batch.c, src/transport/redis/server.c, src/fleet/keys/merge.c,
 * src/transport/redis/scripts/report_window.lua, src/transport/redis/scripts/report_bucket.lua,
 * src/transport/redis/scripts/report_history.lua
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "chaos/chaos.h"

#define NODES 3

/* Something happens while the nodes work for so long; it ends before they do. */
static void conserve(void **state, uint32_t for_ms, void (*happens)(struct chaos *c, uint32_t for_ms))
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    chaos_work(c, chaos_usual_work(c, 300));
    chaos_work_begin(c, chaos_usual_work(c, for_ms + 600));
    chaos_nap_ms(300);
    happens(c, for_ms);
    chaos_work_end(c);
    chaos_settle(c);
    const struct server *server = c->replica.pid > 0 ? &c->replica : &c->primary;
    chaos_compare(c, server);
    for (size_t i = 0; i < c->node_count; i++) {
        (void) fleet_node_close(&c->nodes[i]);
    }
    chaos_compare(c, server);
}

static void killed_and_empty(struct chaos *c, uint32_t for_ms)
{
    server_kill(&c->primary);
    chaos_nap_ms(for_ms);
    server_restart(&c->primary);
}

static void test_a_redis_that_is_killed_and_comes_back_empty(void **state)
{
    conserve(state, 300, killed_and_empty);
}

static void killed_again_and_again(struct chaos *c, uint32_t for_ms)
{
    const uint64_t until_ns = real_ns() + for_ms * MILLISECOND;
    uint64_t rng = c->seed;
    do {
        server_kill(&c->primary);
        chaos_nap_ms(random_below(&rng, 60));
        server_restart(&c->primary);
        chaos_nap_ms(random_below(&rng, 250));
    } while (real_ns() < until_ns);
}

static void test_a_redis_that_restarts_many_times_under_load(void **state)
{
    conserve(state, chaos_long_ms(4000, 30000), killed_again_and_again);
}

static void stopped(struct chaos *c, uint32_t for_ms)
{
    server_pause(&c->primary);
    chaos_nap_ms(for_ms);
    server_resume(&c->primary);
}

static void test_a_redis_that_hangs_and_goes_on(void **state)
{
    conserve(state, chaos_long_ms(3000, 10000), stopped);
}

static void sleeps(struct chaos *c, uint32_t for_ms)
{
    chaos_do(&c->primary, "DEBUG SLEEP %d", (int) for_ms / 1000);
}

static void test_a_redis_that_sleeps(void **state)
{
    conserve(state, 1000, sleeps);
}

static void flushed(struct chaos *c, uint32_t for_ms)
{
    for (int i = 0; i < 3; i++) {
        chaos_do(&c->primary, "FLUSHALL");
        chaos_nap_ms(for_ms / 3);
    }
}

static void test_a_redis_that_is_flushed(void **state)
{
    conserve(state, 600, flushed);
}

/* The proxy does this for a while, and must have done harm. */
static void proxied(const struct chaos *c, enum proxy_mode mode, uint32_t for_ms)
{
    const uint64_t before = proxy_harm(&c->proxy);
    proxy_set(&c->proxy, mode);
    chaos_nap_ms(for_ms);
    assert_true(proxy_harm(&c->proxy) > before);
    proxy_set(&c->proxy, PROXY_PASS);
    proxy_retarget(&c->proxy, NULL);
}

static void swallowed(struct chaos *c, uint32_t for_ms)
{
    proxied(c, PROXY_SWALLOW, for_ms);
}

static void test_replies_that_are_lost_after_redis_did_what_it_was_told(void **state)
{
    conserve(state, chaos_long_ms(3000, 20000), swallowed);
}

/* To the end: copies from a connection that was cut come after what was said last, on the next one. */
static void test_batches_that_arrive_twice_and_late(void **state)
{
    struct chaos *c = chaos_begin(state);
    proxy_delay(&c->proxy, 1000);
    proxy_set(&c->proxy, PROXY_DUPLICATE);
    chaos_nodes(c, NODES);
    const uint32_t for_ms = chaos_long_ms(2000, 10000);
    chaos_work_begin(c, chaos_usual_work(c, for_ms));
    chaos_nap_ms(for_ms - 150);
    proxy_retarget(&c->proxy, NULL);
    chaos_work_end(c);
    chaos_settle(c);
    assert_true(proxy_harm(&c->proxy) > 0);
    for (int i = 0; i < 12; i++) { /* and stay so while copies come in */
        chaos_compare(c, &c->primary);
        chaos_nap_ms(100);
    }
    for (size_t i = 0; i < c->node_count; i++) {
        (void) fleet_node_close(&c->nodes[i]);
    }
    chaos_nap_ms(1100);
    chaos_compare(c, &c->primary);
}

/* Whole records vanish and come again while copies of old reports are still on their way. */
static void duplicated_and_flushed(struct chaos *c, uint32_t for_ms)
{
    proxy_delay(&c->proxy, 250);
    proxy_set(&c->proxy, PROXY_DUPLICATE);
    chaos_nap_ms(for_ms / 2);
    chaos_do(&c->primary, "FLUSHALL");
    chaos_nap_ms(for_ms / 2);
    proxy_set(&c->proxy, PROXY_PASS);
    proxy_delay(&c->proxy, 0);
}

static void test_copies_of_old_reports_after_a_flush(void **state)
{
    conserve(state, 1000, duplicated_and_flushed);
}

static void in_flight(struct chaos *c, uint32_t for_ms)
{
    proxy_delay(&c->proxy, 250); /* five intervals; below the timeout */
    chaos_nap_ms(for_ms);
    proxy_delay(&c->proxy, 0);
}

static void test_what_is_admitted_while_a_report_is_in_flight(void **state)
{
    conserve(state, 1500, in_flight);
}

static void trickled(struct chaos *c, uint32_t for_ms)
{
    proxy_set(&c->proxy, PROXY_TRICKLE);
    chaos_nap_ms(for_ms);
    proxy_set(&c->proxy, PROXY_PASS);
}

static void test_replies_in_small_pieces(void **state)
{
    conserve(state, 1000, trickled);
}

static void flapping(struct chaos *c, uint32_t for_ms)
{
    for (uint32_t passed = 0; passed < for_ms; passed += 200) {
        proxy_set(&c->proxy, PROXY_CUT);
        chaos_nap_ms(100);
        proxy_set(&c->proxy, PROXY_PASS);
        chaos_nap_ms(100);
    }
}

static void test_a_connection_that_flaps(void **state)
{
    conserve(state, chaos_long_ms(2000, 10000), flapping);
}

static void black_hole(struct chaos *c, uint32_t for_ms)
{
    proxy_set(&c->proxy, PROXY_BLACKHOLE);
    chaos_nap_ms(for_ms);
    proxy_set(&c->proxy, PROXY_PASS);
}

static void test_a_network_that_swallows_everything(void **state)
{
    conserve(state, chaos_long_ms(2500, 10000), black_hole);
}

/* A replica that stopped following some time ago takes over. */
static void failed_over(struct chaos *c, uint32_t for_ms)
{
    server_start(&c->replica);
    chaos_do(&c->primary, "CONFIG SET repl-diskless-sync-delay 0");
    chaos_do(&c->replica, "REPLICAOF 127.0.0.1 %d", c->primary.port);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (chaos_sums(&c->replica, "fixed").sum == 0) {
        if (real_ns() > until_ns) {
            fail_msg("the replica has nothing");
        }
        chaos_nap_ms(10);
    }
    chaos_do(&c->replica, "REPLICAOF NO ONE");
    chaos_nap_ms(for_ms);
    const uint64_t behind = chaos_sums(&c->replica, "fixed").sum;
    assert_true(chaos_sums(&c->primary, "fixed").sum > behind);
    server_kill(&c->primary);
    proxy_retarget(&c->proxy, c->replica.socket);
}

static void test_a_failover_to_a_replica_that_lags(void **state)
{
    conserve(state, 800, failed_over);
}

/* What was saved some time ago comes back, and takes its time to load. */
static void from_an_old_file(struct chaos *c, uint32_t for_ms)
{
    chaos_do(&c->primary, "SAVE");
    const uint64_t then = chaos_sums(&c->primary, "fixed").sum;
    chaos_nap_ms(for_ms);
    assert_true(chaos_sums(&c->primary, "fixed").sum > then);
    server_kill(&c->primary);
    const char *const slowly[] = {"--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024", NULL};
    chaos_server(&c->primary, slowly, false);
}

static void test_a_redis_that_loads_an_old_file(void **state)
{
    conserve(state, 600, from_an_old_file);
}

/* Half of the records, and none of the heartbeats: Redis looks as it was. */
static void test_records_that_vanish_are_told_again_when_their_keys_are_used(void **state)
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    struct fleet_work work = chaos_usual_work(c, 500);
    work.policies = CHAOS_ALL & ~(1u << CHAOS_TIGHT); /* whose keys do not get to admit anything again */
    work.keys = 50;
    work.moves = false;
    chaos_work(c, work);
    chaos_settle(c);
    chaos_compare(c, &c->primary);
    redisReply *keys = chaos_command(&c->primary, "KEYS weir:{*");
    for (size_t i = 0; i < keys->elements; i += 2) {
        chaos_do(&c->primary, "DEL %s", keys->element[i]->str);
    }
    freeReplyObject(keys);
    chaos_work(c, work);
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

/* Redis itself evicts records, and may evict the heartbeats as well. */
static void test_records_that_redis_evicts_are_told_again_when_their_keys_are_used(void **state)
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    struct fleet_work work = chaos_usual_work(c, 500);
    work.policies = CHAOS_ALL & ~(1u << CHAOS_TIGHT);
    work.keys = 50;
    work.moves = false;
    chaos_work(c, work);
    chaos_settle(c);
    chaos_do(&c->primary, "CONFIG SET maxmemory-policy allkeys-random");
    uint64_t room = chaos_number(&c->primary, "memory", "used_memory");
    const size_t before = chaos_sums(&c->primary, "fixed").records;
    assert_true(before > 30);
    while (chaos_sums(&c->primary, "fixed").records > before / 2) {
        room -= 1000;
        chaos_do(&c->primary, "CONFIG SET maxmemory %llu", (unsigned long long) room);
    }
    assert_true(chaos_number(&c->primary, "stats", "evicted_keys") > 0);
    chaos_work(c, work); /* while Redis goes on to evict */
    chaos_do(&c->primary, "CONFIG SET maxmemory 0");
    chaos_work(c, work);
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

/* A node that does not run for longer than heartbeats live counts as failed, and then goes on. */
static void test_a_node_that_is_stopped_and_goes_on(void **state)
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    chaos_work(c, chaos_usual_work(c, 300));
    chaos_work_begin(c, chaos_usual_work(c, 1000));
    chaos_nap_ms(300);
    fleet_node_signal(&c->nodes[1], SIGSTOP);
    chaos_nap_ms(chaos_long_ms(6000, 20000));
    fleet_node_signal(&c->nodes[1], SIGCONT);
    chaos_work_end(c);
    chaos_work(c, chaos_usual_work(c, 300));
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

static void test_units_that_were_given_back(void **state)
{
    struct chaos *c = chaos_begin(state);
    chaos_policy(c, 2, WEIR_TOKEN_BUCKET, 1000, 24 * HOUR); /* what has refilled cannot be given back */
    c->config.policies[2].limit.burst = 200000;
    chaos_nodes(c, NODES);
    struct fleet_work work = chaos_usual_work(c, 1500);
    work.refund_percent = 20;
    chaos_work_begin(c, work);
    chaos_nap_ms(400);
    server_kill(&c->primary);
    server_restart(&c->primary);
    proxy_set(&c->proxy, PROXY_SWALLOW);
    chaos_nap_ms(800);
    proxy_set(&c->proxy, PROXY_PASS);
    proxy_retarget(&c->proxy, NULL);
    chaos_work_end(c);
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (chaos_main(argc, argv, &code)) {
        return code;
    }
    const struct CMUnitTest tests[] = {
        chaos_test(test_a_redis_that_is_killed_and_comes_back_empty),
        chaos_test(test_a_redis_that_restarts_many_times_under_load),
        chaos_test(test_a_redis_that_hangs_and_goes_on),
        chaos_test(test_a_redis_that_sleeps),
        chaos_test(test_a_redis_that_is_flushed),
        chaos_test(test_replies_that_are_lost_after_redis_did_what_it_was_told),
        chaos_test(test_batches_that_arrive_twice_and_late),
        chaos_test(test_copies_of_old_reports_after_a_flush),
        chaos_test(test_what_is_admitted_while_a_report_is_in_flight),
        chaos_test(test_replies_in_small_pieces),
        chaos_test(test_a_connection_that_flaps),
        chaos_test(test_a_network_that_swallows_everything),
        chaos_test(test_a_failover_to_a_replica_that_lags),
        chaos_test(test_a_redis_that_loads_an_old_file),
        chaos_test(test_records_that_vanish_are_told_again_when_their_keys_are_used),
        chaos_test(test_records_that_redis_evicts_are_told_again_when_their_keys_are_used),
        chaos_test(test_a_node_that_is_stopped_and_goes_on),
        chaos_test(test_units_that_were_given_back),
    };
    return cmocka_run_group_tests_name("chaos/conserve", tests, NULL, NULL);
}
