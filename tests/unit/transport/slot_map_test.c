/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slot map of a Cluster: when it is asked for, and what is made of the answer. There are no connections.
 *
 * Guards: src/transport/redis/slot_map.c
 */
#include "support/redis_scene.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"

#define NOW   (100 * SECOND)
#define FIRST 7000 /* port of the first server */

/* A transport that knows three servers, of which the first is a seed. */
static struct redis_transport *cluster_open(void)
{
    struct redis_transport *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    t->cluster = true;
    slot_map_open(t);
    for (int i = 0; i < 3; i++) {
        char port[8];
        (void) snprintf(port, sizeof(port), "%d", FIRST + i);
        assert_int_equal(server_at(t, "10.0.0.1", port, false)->index, i);
    }
    t->servers[0]->seed = true;
    return t;
}

static void cluster_close(struct redis_transport *t)
{
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            server_free(t, t->servers[i]);
        }
    }
    free(t);
}

static void test_keys_have_the_slots_of_the_specification(void **state)
{
    (void) state;
    assert_int_equal(slot_map_cluster_slot("123456789"), 0x31c3); /* check value of CRC-16/XMODEM */
    static const char *const same[][2] = {
        {"{user1000}.following", "user1000"},
        {"a{b}c", "b"},
        {"foo{{bar}}zap", "{bar"},
        {"foo{bar}{zap}", "bar"},
        {"{a", "{a"},
        {"}x{a}", "a"},
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        assert_int_equal(slot_map_cluster_slot(same[i][0]), slot_map_cluster_slot(same[i][1]));
    }
    assert_int_not_equal(slot_map_cluster_slot("foo{}{bar}"), slot_map_cluster_slot("bar")); /* {} is no tag */
    assert_int_not_equal(slot_map_cluster_slot("foo{}{bar}"), slot_map_cluster_slot("foo"));
}

static void test_the_transport_wakes_when_a_slot_map_is_due(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    t->slot_map_due_ns = 30 * SECOND;
    t->slot_map_earliest_ns = 7 * SECOND;
    assert_int_equal(slot_map_deadline(t), 30 * SECOND);
    t->slot_map_wanted = true;
    assert_int_equal(slot_map_deadline(t), 7 * SECOND); /* a seed can be connected */
    t->probe = t->servers[0];
    assert_int_equal(slot_map_deadline(t), UINT64_MAX); /* one is being connected */
    t->servers[2]->stage = SERVER_READY;
    assert_int_equal(slot_map_deadline(t), 7 * SECOND);
    t->probe = NULL;
    t->servers[2]->stage = SERVER_OFF;
    t->servers[0]->wanted = true; /* there is no seed that is not connected or connecting */
    assert_int_equal(slot_map_deadline(t), UINT64_MAX);
    /* An answer is awaited, which has a deadline of its own. */
    t->servers[1]->stage = SERVER_READY;
    t->slot_map_server = t->servers[1];
    assert_int_equal(slot_map_deadline(t), UINT64_MAX);
    t->slot_map_wanted = false;
    assert_int_equal(slot_map_deadline(t), UINT64_MAX);
    cluster_close(t);
}

static void test_a_cluster_is_ready_when_each_server_is_or_has_failed(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    t->slot_map_known = true;
    assert_false(slot_map_ready(t)); /* no server has slots */
    t->servers[1]->in_slot_map = t->servers[2]->in_slot_map = true;
    t->servers[1]->stage = SERVER_READY;
    assert_false(slot_map_ready(t)); /* the other one may come */
    t->servers[2]->failures = 1;
    assert_true(slot_map_ready(t));
    t->servers[2]->failures = 0;
    t->servers[2]->stage = SERVER_READY;
    assert_true(slot_map_ready(t));
    t->slot_map_known = false;
    assert_false(slot_map_ready(t));
    t->slot_map_known = true;
    t->servers[1]->stage = t->servers[2]->stage = SERVER_OFF;
    t->servers[1]->failures = t->servers[2]->failures = 3;
    assert_false(slot_map_ready(t));
    cluster_close(t);
}

/* {first, last, {host, port}}, and no host where that is NULL. */
static redisReply *range_reply(long long first, long long last, const char *host, long long port)
{
    redisReply *named = host != NULL ? text_reply(REDIS_REPLY_STRING, host) : text_reply(REDIS_REPLY_NIL, "");
    redisReply *where = array_reply(2, (redisReply *[]){named, number_reply(port)});
    return array_reply(3, (redisReply *[]){number_reply(first), number_reply(last), where});
}

static void take(struct redis_transport *t, size_t count, redisReply *const *ranges)
{
    redisReply *reply = array_reply(count, ranges);
    t->slot_map_server = t->servers[0];
    t->progressed = false;
    slot_map_take(t, t->servers[0], reply, NOW);
    assert_null(t->slot_map_server);
    assert_true(t->progressed);
    freeReplyObject(reply);
}

static void test_a_slot_map_names_the_servers_and_a_heartbeat_of_each(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    t->heartbeat_count = 1;
    (void) snprintf(t->prefix, sizeof(t->prefix), "weir");
    t->probe = t->servers[0];
    t->servers[0]->wanted = true;
    take(
        t, 2,
        (redisReply *[]){range_reply(0, 8000, "10.0.0.1", FIRST + 1), range_reply(8001, 16383, "10.0.0.1", FIRST + 2)});
    assert_true(t->slot_map_known && !t->slot_map_wanted && t->probe == NULL);
    assert_int_equal(t->slot_map_due_ns, NOW + 30 * SECOND);
    assert_int_equal(t->slot_map_earliest_ns, NOW + 100 * MILLISECOND);
    assert_ptr_equal(slot_map_owner(t, 0), t->servers[1]);
    assert_ptr_equal(slot_map_owner(t, 8000), t->servers[1]);
    assert_ptr_equal(slot_map_owner(t, 8001), t->servers[2]);
    assert_ptr_equal(slot_map_owner(t, 16383), t->servers[2]);
    assert_false(t->servers[0]->wanted || t->servers[0]->in_slot_map);
    assert_true(t->servers[1]->wanted && t->servers[1]->in_slot_map && t->servers[2]->wanted);
    /* One heartbeat on each server, under a key of its slots. */
    assert_int_equal(t->heartbeat_count, 3);
    bool has[3] = {false};
    for (size_t i = 1; i < 3; i++) {
        const struct heartbeat *heartbeat = &t->heartbeats[i];
        assert_int_equal(heartbeat->cluster_slot, slot_map_cluster_slot(heartbeat->key));
        has[slot_map_owner(t, heartbeat->cluster_slot)->index] = true;
    }
    assert_true(has[1] && has[2]);
    /* A second slot map adds none. What it does not name has no slots any more. */
    take(t, 1, (redisReply *[]){range_reply(0, 16383, "10.0.0.1", FIRST + 1)});
    assert_int_equal(t->heartbeat_count, 3);
    assert_ptr_equal(slot_map_owner(t, 16383), t->servers[1]);
    assert_false(t->servers[2]->wanted || t->servers[2]->in_slot_map);
    cluster_close(t);
}

static void test_a_server_without_a_host_is_where_the_teller_is(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    static const char *const unknown[] = {"", "?", NULL};
    for (size_t i = 0; i < 3; i++) {
        take(t, 1, (redisReply *[]){range_reply(0, 16383, unknown[i], FIRST + 2)});
        assert_ptr_equal(slot_map_owner(t, 5), t->servers[2]);
        assert_null(t->servers[3]);
    }
    cluster_close(t);
}

static void test_a_slot_map_with_gaps_is_asked_for_again_soon(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    t->servers[2]->failures = 1;
    redisReply *const broken[] = {
        range_reply(0, 16382, "10.0.0.1", FIRST),
        range_reply(-1, 16383, "10.0.0.1", FIRST),
        range_reply(0, 16384, "10.0.0.1", FIRST),
        range_reply(0, 16383, "10.0.0.1", 65536),
        range_reply(0, 16383, "10.0.0.1", 0),
        range_reply(0, 16383, "10.0.0.1", FIRST + 2),
        array_reply(2, (redisReply *[]){number_reply(0), number_reply(16383)}),
        array_reply(3, (redisReply *[]){number_reply(0), number_reply(16383), number_reply(1)}),
        array_reply(3, (redisReply *[]){number_reply(0), number_reply(16383),
                                        array_reply(1, (redisReply *[]){text_reply(REDIS_REPLY_STRING, "10.0.0.1")})}),
    };
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        /* The tag's slots must all have an owner that works; slot 16383 has no tag. */
        take(t, 1, (redisReply *[]){broken[i]});
        assert_int_equal(t->slot_map_wanted, i != 0);
        assert_int_equal(t->slot_map_earliest_ns, NOW + (i != 0 ? 300 : 100) * MILLISECOND);
        if (i != 0 && i != 5) {
            assert_null(slot_map_owner(t, 77));
        }
    }
    /* One bad range spoils no other. */
    take(t, 2, (redisReply *[]){range_reply(0, 9, "10.0.0.1", -1), range_reply(10, 16383, "10.0.0.1", FIRST)});
    assert_true(t->slot_map_wanted);
    assert_ptr_equal(slot_map_owner(t, 10), t->servers[0]);
    assert_null(slot_map_owner(t, 9));
    take(t, 0, NULL); /* a Cluster without slots */
    assert_string_equal(t->problem, "the Cluster serves no slots");
    assert_int_equal(t->slot_map_earliest_ns, NOW + 300 * MILLISECOND);
    assert_int_equal(t->servers[0]->failures, 0);
    redisReply *reply = text_reply(REDIS_REPLY_ERROR, "NOPERM no");
    slot_map_take(t, t->servers[0], reply, NOW);
    freeReplyObject(reply);
    assert_string_equal(t->problem, "NOPERM no (to CLUSTER SLOTS)");
    assert_int_equal(t->servers[0]->failures, 1);
    cluster_close(t);
}

static void test_a_redirection_holds_until_the_next_slot_map(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    uint16_t slot = 0;
    assert_ptr_equal(slot_map_redirect(t, t->servers[0], "MOVED 3999 10.0.0.1:7002", &slot), t->servers[2]);
    assert_int_equal(slot, 3999);
    assert_ptr_equal(slot_map_owner(t, 3999), t->servers[2]);
    assert_true(t->servers[2]->wanted && t->servers[2]->in_slot_map);
    assert_ptr_equal(slot_map_redirect(t, t->servers[0], "ASK 16383 :7001", &slot), t->servers[1]);
    assert_int_equal(slot, 16383);
    assert_null(slot_map_owner(t, 16383)); /* for one command */
    assert_true(t->servers[1]->wanted && !t->servers[1]->in_slot_map);
    struct server_conn *other = slot_map_redirect(t, t->servers[0], "MOVED 0 fd00::7:7003", &slot);
    assert_non_null(other);
    assert_string_equal(other->host, "fd00::7");
    assert_string_equal(other->port, "7003");
    assert_int_equal(slot, 0);
    static const char *const malformed[] = {"MOVED",
                                            "MOVED 16384 10.0.0.1:7001",
                                            "MOVED x 10.0.0.1:7001",
                                            "MOVED 5",
                                            "MOVED 5 10.0.0.1",
                                            "MOVED 5 10.0.0.1:0",
                                            "MOVED 5 a:65536",
                                            "MOVED 5x a:1"};
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        assert_null(slot_map_redirect(t, t->servers[0], malformed[i], &slot));
        assert_null(slot_map_owner(t, 5));
    }
    cluster_close(t);
}

static void test_a_lost_server_is_asked_no_more_and_makes_the_slot_map_old(void **state)
{
    (void) state;
    struct redis_transport *t = cluster_open();
    t->slot_map_server = t->probe = t->servers[0];
    t->servers[0]->wanted = true;
    slot_map_server_lost(t, t->servers[1]);
    assert_true(t->slot_map_wanted && t->slot_map_server == t->servers[0] && t->probe == t->servers[0]);
    t->slot_map_wanted = false;
    slot_map_server_lost(t, t->servers[0]);
    assert_true(t->slot_map_wanted && t->slot_map_server == NULL && t->probe == NULL);
    assert_false(t->servers[0]->wanted); /* another seed may be tried */
    t->cluster = t->slot_map_wanted = false;
    slot_map_refresh(t);
    assert_false(t->slot_map_wanted);
    cluster_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_have_the_slots_of_the_specification),
        cmocka_unit_test(test_the_transport_wakes_when_a_slot_map_is_due),
        cmocka_unit_test(test_a_cluster_is_ready_when_each_server_is_or_has_failed),
        cmocka_unit_test(test_a_slot_map_names_the_servers_and_a_heartbeat_of_each),
        cmocka_unit_test(test_a_server_without_a_host_is_where_the_teller_is),
        cmocka_unit_test(test_a_slot_map_with_gaps_is_asked_for_again_soon),
        cmocka_unit_test(test_a_redirection_holds_until_the_next_slot_map),
        cmocka_unit_test(test_a_lost_server_is_asked_no_more_and_makes_the_slot_map_old),
    };
    return cmocka_run_group_tests_name("unit/transport/slot_map", tests, NULL, NULL);
}
