/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server a transport goes to: seeds in turn, and the primary that a Sentinel names. There are no connections: the
 * test says which servers are ready and which are lost.
 *
 * Guards: src/transport/redis/topology.c, src/transport/redis/problem.c, src/transport/redis/server.c
 */
#include "support/redis_scene.h"
#include "transport/redis/problem.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"
#include "transport/redis/topology.h"

#define NOW      SCENE_NOW
#define QUESTION "SENTINEL GET-MASTER-ADDR-BY-NAME main\n"

static void ready(struct redis_transport *t, struct server_conn *server)
{
    server->stage = SERVER_READY;
    topology_server_ready(t, server, NOW);
}

static void lose(struct redis_transport *t, struct server_conn *server)
{
    server_drop(t, server, NOW);
    topology_server_lost(t, server, NOW);
}

static void test_the_hosts_of_a_url_have_their_turns(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a,b,c");
    for (size_t i = 0; i < 3; i++) {
        assert_true(t->servers[i]->seed && t->servers[i]->next_try_ns == NOW && !t->servers[i]->wanted);
    }
    topology_step(t, NOW);
    assert_ptr_equal(t->primary, t->servers[0]);
    assert_true(t->primary->wanted && !t->servers[1]->wanted && !t->servers[2]->wanted);
    assert_false(topology_ready(t));
    topology_step(t, NOW);
    assert_ptr_equal(t->primary, t->servers[0]);
    t->servers[1]->next_try_ns = NOW + 1;
    lose(t, t->servers[0]);
    assert_null(t->primary);
    assert_false(t->servers[0]->wanted || topology_ready(t));
    topology_step(t, NOW);
    assert_ptr_equal(t->primary, t->servers[2]); /* its attempt is due first */
    ready(t, t->primary);
    assert_true(topology_ready(t));
    assert_ptr_equal(topology_owner(t, 77), t->servers[2]);
    assert_int_equal(topology_deadline(t), UINT64_MAX);
    lose(t, t->servers[1]); /* another one's loss changes nothing */
    assert_ptr_equal(t->primary, t->servers[2]);
    scene_close(t);
}

static void test_a_replica_is_taken_only_where_no_other_host_is_named(void **state)
{
    (void) state;
    static const struct {
        const char *url;
        bool replica, dropped;
    } cases[] = {{"redis://a", true, false}, {"redis://a,b", true, true}, {"redis://a,b", false, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_transport *t = scene_open(cases[i].url);
        topology_step(t, NOW);
        t->primary->replica = cases[i].replica;
        ready(t, t->primary);
        assert_int_equal(topology_ready(t), !cases[i].dropped);
        assert_int_equal(t->servers[0]->dropped, cases[i].dropped);
        assert_string_equal(t->problem, cases[i].dropped ? "is a replica, not a primary" : "");
        if (cases[i].dropped) {
            assert_string_equal(t->problem_server, "redis a:6379");
        }
        scene_close(t);
    }
}

static void test_a_server_of_a_cluster_makes_it_one(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a");
    topology_step(t, NOW);
    struct server_conn *server = t->primary;
    server->cluster = server->replica = true;
    ready(t, server);
    assert_true(t->cluster && t->slot_map_wanted && t->probe == server && t->primary == NULL && server->wanted);
    assert_false(topology_ready(t));
    assert_null(topology_owner(t, 77));
    assert_int_equal(topology_deadline(t), 0);
    topology_step(t, NOW);
    assert_string_equal(queued(server), "CLUSTER SLOTS\n");
    assert_null(t->primary);
    t->slot_owner[77] = server->index;
    assert_ptr_equal(topology_owner(t, 77), server);
    t->slot_map_known = server->in_slot_map = true;
    assert_true(topology_ready(t));
    t->slot_map_wanted = false;
    server->call_count = 0;
    topology_server_lost(t, server, NOW);
    assert_true(t->slot_map_wanted && t->probe == NULL && server->wanted);
    scene_close(t);
    t = scene_open("redis+cluster://a,b");
    assert_true(t->cluster);
    topology_step(t, NOW);
    t->probe->replica = true;
    ready(t, t->probe); /* a replica knows the slot map as well */
    assert_int_equal(t->probe->stage, SERVER_READY);
    scene_close(t);
    /* A Sentinel's primary does not become one. */
    t = scene_open("redis+sentinel://a/main");
    t->candidate = server_at(t, "10.0.0.1", "7000", false);
    t->candidate->cluster = true;
    ready(t, t->candidate);
    assert_false(t->cluster);
    assert_non_null(t->primary);
    scene_close(t);
}

static void test_servers_that_are_not_wanted_are_freed_between_rounds(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a,b");
    struct round round = {0};
    for (int i = 2; i < 6; i++) {
        assert_int_equal(server_at(t, "10.0.0.1", (const char[]){(char) ('0' + i), '\0'}, false)->index, i);
    }
    t->servers[1]->stage = t->servers[2]->stage = SERVER_READY;
    t->servers[3]->wanted = true;
    t->servers[4]->call_count = 1;
    t->round = &round;
    topology_step(t, NOW);
    for (int i = 1; i < 6; i++) {
        assert_non_null(t->servers[i]);
    }
    t->round = NULL;
    topology_step(t, NOW);
    assert_int_equal(t->servers[1]->stage, SERVER_OFF); /* a seed is kept, without a connection */
    assert_null(t->servers[2]);
    assert_non_null(t->servers[3]);
    assert_non_null(t->servers[4]); /* an answer is awaited */
    assert_null(t->servers[5]);
    t->servers[4]->call_count = 0;
    scene_close(t);
}

/* The reply of a Sentinel. */
static void tell(struct redis_transport *t, redisReply *reply)
{
    t->progressed = false;
    topology_take_primary(t, t->sentinel, reply, NOW);
    freeReplyObject(reply);
}

static redisReply *address(const char *host, const char *port)
{
    return array_reply(2, (redisReply *[]){text_reply(REDIS_REPLY_STRING, host), text_reply(REDIS_REPLY_STRING, port)});
}

/* A transport whose first Sentinel is ready, and has been asked. */
static struct redis_transport *ask(void)
{
    struct redis_transport *t = scene_open("redis+sentinel://a,b/main");
    topology_step(t, NOW);
    assert_ptr_equal(t->sentinel, t->servers[0]);
    assert_true(t->sentinel->wanted && t->sentinel->sentinel && !t->servers[1]->wanted);
    assert_int_equal(topology_deadline(t), UINT64_MAX); /* the connection has a deadline of its own */
    assert_string_equal(queued(t->sentinel), "");
    ready(t, t->sentinel);
    assert_int_equal(topology_deadline(t), 0);
    topology_step(t, NOW);
    assert_string_equal(queued(t->sentinel), QUESTION);
    assert_int_equal(t->sentinel->calls[0].kind, CALL_PRIMARY);
    assert_int_equal(topology_deadline(t), UINT64_MAX);
    topology_step(t, NOW);
    assert_string_equal(queued(t->sentinel), ""); /* one question at a time */
    t->sentinel->call_count = 0;
    return t;
}

/* As above, and it has named a primary, which is ready. */
static struct redis_transport *ask_and_connect(void)
{
    struct redis_transport *t = ask();
    tell(t, address("10.0.0.1", "7000"));
    ready(t, t->candidate);
    return t;
}

static void test_a_sentinel_is_asked_each_second(void **state)
{
    (void) state;
    struct redis_transport *t = ask();
    tell(t, address("10.0.0.1", "7000"));
    struct server_conn *named = t->candidate;
    assert_true(t->progressed && named->wanted && !named->sentinel && !named->seed);
    assert_string_equal(named->name, "redis 10.0.0.1:7000");
    assert_int_equal(named->next_try_ns, 0);
    assert_null(t->primary);
    assert_int_equal(t->sentinel_due_ns, NOW + SECOND);
    assert_int_equal(topology_deadline(t), UINT64_MAX); /* none is asked while what it named may become the primary */
    topology_step(t, NOW + SECOND);
    assert_string_equal(queued(t->sentinel), "");
    t->sentinel->failures = 3;
    ready(t, named);
    assert_true(t->primary == named && t->candidate == NULL && topology_ready(t));
    assert_int_equal(t->sentinel->failures, 0);
    assert_int_equal(topology_deadline(t), NOW + SECOND);
    topology_step(t, NOW + SECOND - 1);
    assert_string_equal(queued(t->sentinel), "");
    topology_step(t, NOW + SECOND);
    assert_string_equal(queued(t->sentinel), QUESTION);
    t->sentinel->call_count = 0;
    t->sentinel->failures = 3;
    tell(t, address("10.0.0.1", "7000"));
    assert_true(t->primary == named && t->candidate == NULL && !t->progressed);
    assert_int_equal(t->sentinel->failures, 0);
    assert_int_equal(t->counts.failures, 0);
    scene_close(t);
}

static void test_the_old_primary_serves_until_the_new_one_is_known_to_be_one(void **state)
{
    (void) state;
    struct redis_transport *t = ask_and_connect();
    struct server_conn *old = t->primary;
    tell(t, address("10.0.0.1", "7001"));
    struct server_conn *next = t->candidate;
    assert_true(next != old && t->primary == old && old->wanted && topology_ready(t));
    old->call_count = 1; /* a batch is under way */
    ready(t, next);
    assert_true(t->primary == next && !old->wanted && old->stage == SERVER_READY);
    old->call_count = 0;
    tell(t, address("10.0.0.1", "7002"));
    ready(t, t->candidate);
    assert_false(next->wanted);
    assert_int_equal(next->stage, SERVER_OFF);
    /* One that says it is a replica is passed over, and the Sentinel as well. */
    tell(t, address("10.0.0.1", "7003"));
    struct server_conn *replica = t->candidate;
    struct server_conn *teller = t->sentinel;
    replica->replica = true;
    old = t->primary;
    ready(t, replica);
    assert_ptr_equal(t->primary, old);
    assert_true(replica->dropped);
    assert_string_equal(t->problem, "is a replica, not a primary");
    t->sentinel_due_ns = NOW + SECOND;
    topology_server_lost(t, replica, NOW);
    assert_true(t->candidate == NULL && !replica->wanted && teller->dropped && t->primary == old);
    assert_int_equal(t->sentinel_due_ns, NOW);
    t->sentinel_asked = true;
    topology_server_lost(t, teller, NOW);
    assert_true(t->sentinel == NULL && !t->sentinel_asked && t->primary == old);
    topology_step(t, NOW);
    assert_ptr_equal(t->sentinel, t->servers[1]);
    scene_close(t);
}

static void test_a_lost_primary_is_asked_for_at_once(void **state)
{
    (void) state;
    struct redis_transport *t = ask_and_connect();
    struct server_conn *primary = t->primary;
    assert_int_equal(t->sentinel_due_ns, NOW + SECOND);
    lose(t, primary);
    assert_true(t->primary == NULL && !primary->wanted && t->sentinel == t->servers[0] && !t->sentinel->dropped);
    assert_int_equal(topology_deadline(t), NOW);
    topology_step(t, NOW);
    assert_string_equal(queued(t->sentinel), QUESTION);
    t->sentinel->call_count = 0;
    /* The same server again: it is tried soon, however long it would have waited. */
    primary = server_at(t, "10.0.0.1", "7000", false);
    primary->next_try_ns = NOW + 3 * SECOND;
    tell(t, address("10.0.0.1", "7000"));
    assert_ptr_equal(t->candidate, primary);
    assert_int_equal(primary->next_try_ns, NOW + 200 * MILLISECOND);
    primary->next_try_ns = NOW + 1;
    tell(t, address("10.0.0.1", "7000"));
    assert_int_equal(primary->next_try_ns, NOW + 1);
    /* A candidate that is lost while no Sentinel is connected. */
    t->sentinel = NULL;
    t->sentinel_due_ns = NOW + SECOND;
    topology_server_lost(t, primary, NOW);
    assert_null(t->candidate);
    assert_int_equal(t->sentinel_due_ns, NOW);
    scene_close(t);
}

static void test_a_sentinel_that_knows_nothing_is_left(void **state)
{
    (void) state;
    char host[URL_FIELD_SIZE + 1];
    memset(host, 'h', URL_FIELD_SIZE);
    host[URL_FIELD_SIZE] = '\0';
    redisReply *const useless[] = {
        text_reply(REDIS_REPLY_ERROR, "NOPERM no\nright"),
        text_reply(REDIS_REPLY_NIL, ""),
        text_reply(REDIS_REPLY_STRING, "10.0.0.1"),
        array_reply(1, (redisReply *[]){text_reply(REDIS_REPLY_STRING, "10.0.0.1")}),
        array_reply(3, (redisReply *[]){text_reply(REDIS_REPLY_STRING, "10.0.0.1"),
                                        text_reply(REDIS_REPLY_STRING, "7000"), text_reply(REDIS_REPLY_STRING, "")}),
        array_reply(2, (redisReply *[]){number_reply(1), text_reply(REDIS_REPLY_STRING, "7000")}),
        array_reply(2, (redisReply *[]){text_reply(REDIS_REPLY_STRING, "10.0.0.1"), number_reply(7000)}),
        address(host, "7000"),
        address("10.0.0.1", "70000000"),
    };
    for (size_t i = 0; i < sizeof(useless) / sizeof(useless[0]); i++) {
        struct redis_transport *t = ask();
        tell(t, useless[i]);
        assert_true(t->sentinel->dropped && !t->sentinel_asked && t->candidate == NULL);
        assert_int_equal(t->sentinel_due_ns, NOW + SECOND);
        assert_string_equal(t->problem, i == 0 ? "NOPERM no\\x0aright" : "knows no primary named \"main\"");
        assert_string_equal(t->problem_server, "redis sentinel a:26379");
        scene_close(t);
    }
    /* The longest that are taken. */
    struct redis_transport *t = ask();
    tell(t, address(host + 1, "7000000"));
    assert_string_equal(t->candidate->host, host + 1);
    assert_string_equal(t->candidate->port, "7000000");
    /* There is no room for one more server. */
    for (int i = 0; i < SERVERS_MAX; i++) {
        char port[8];
        (void) snprintf(port, sizeof(port), "%d", i);
        (void) server_at(t, "10.0.0.1", port, false);
    }
    struct server_conn *before = t->candidate;
    tell(t, address("10.0.0.2", "7000"));
    assert_true(t->candidate == before && !t->sentinel->dropped && !t->progressed);
    scene_close(t);
}

static void test_the_first_problem_stays_until_its_server_has_another(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a,b");
    problem_set(t, t->servers[1], "%s %d", "wrong", 7);
    assert_string_equal(t->problem, "wrong 7");
    assert_string_equal(t->problem_server, "redis b:6379");
    problem_set(t, t->servers[0], "of another");
    problem_set(t, NULL, "of none");
    assert_string_equal(t->problem, "wrong 7");
    assert_string_equal(t->base.ops->server(&t->base), "redis b:6379");
    problem_set(t, t->servers[1], "next\r\n");
    assert_string_equal(t->base.ops->problem(&t->base), "next\\x0d\\x0a");
    t->problem[0] = '\0';
    assert_null(t->base.ops->problem(&t->base));
    problem_set(t, NULL, "of none");
    assert_string_equal(t->problem, "of none");
    assert_string_equal(t->problem_server, "redis");
    problem_set(t, t->servers[0], "of one");
    assert_string_equal(t->problem, "of none");
    problem_set(t, NULL, "%0300d", 0);
    assert_int_equal(strlen(t->problem), sizeof(t->problem) - 1);
    scene_close(t);
}

static void test_a_server_is_its_host_its_port_and_its_office(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a");
    static const struct {
        const char *host, *port;
        bool sentinel;
        const char *name;
    } cases[] = {
        {"a", "6379", false, "redis a:6379"},
        {"a", "6380", false, "redis a:6380"},
        {"b", "6379", false, "redis b:6379"},
        {"a", "6379", true, "redis sentinel a:6379"},
        {"fd00::7", "1", false, "redis [fd00::7]:1"},
        {"with\nline", "1", true, "redis sentinel with\\x0aline:1"},
        {"01234567890123456789012345678901234567890123456789012345678901234567890123456789abc", "1", false,
         "redis 01234567890123456789012345678901234567890123456789012345678901234567890123456789:1"},
    };
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < count; i++) {
            const struct server_conn *server = server_at(t, cases[i].host, cases[i].port, cases[i].sentinel);
            assert_int_equal(server->index, i);
            assert_ptr_equal(t->servers[i], server);
            assert_string_equal(server->name, cases[i].name);
            assert_string_equal(server->host, cases[i].host);
            assert_string_equal(server->port, cases[i].port);
            assert_int_equal(server->sentinel, cases[i].sentinel);
            assert_int_equal(server->seed, i == 0);
            assert_int_equal(server->socket.fd, -1);
            assert_true(server->stage == SERVER_OFF && !server->wanted);
        }
    }
    /* The first free place; and there are no more than there are places. */
    server_free(t, t->servers[2]);
    assert_int_equal(server_at(t, "c", "1", false)->index, 2);
    for (size_t i = count; i < SERVERS_MAX; i++) {
        char port[8];
        (void) snprintf(port, sizeof(port), "%zu", i);
        assert_int_equal(server_at(t, "d", port, false)->index, i);
    }
    assert_null(server_at(t, "e", "1", false));
    assert_non_null(server_at(t, "c", "1", false));
    scene_close(t);
}

static void test_the_seed_that_is_due_first_is_next(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://a,b,c,d");
    static const uint64_t due[] = {5, 3, 3, 9};
    static const size_t order[] = {1, 2, 0, 3};
    for (size_t i = 0; i < 4; i++) {
        t->servers[i]->next_try_ns = due[i];
    }
    server_at(t, "e", "1", false)->next_try_ns = 1; /* not named in the URL */
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(server_next_seed(t), t->servers[order[i]]);
        t->servers[order[i]]->wanted = true;
    }
    assert_null(server_next_seed(t));
    scene_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_is_its_host_its_port_and_its_office),
        cmocka_unit_test(test_the_seed_that_is_due_first_is_next),
        cmocka_unit_test(test_the_hosts_of_a_url_have_their_turns),
        cmocka_unit_test(test_a_replica_is_taken_only_where_no_other_host_is_named),
        cmocka_unit_test(test_a_server_of_a_cluster_makes_it_one),
        cmocka_unit_test(test_servers_that_are_not_wanted_are_freed_between_rounds),
        cmocka_unit_test(test_a_sentinel_is_asked_each_second),
        cmocka_unit_test(test_the_old_primary_serves_until_the_new_one_is_known_to_be_one),
        cmocka_unit_test(test_a_lost_primary_is_asked_for_at_once),
        cmocka_unit_test(test_a_sentinel_that_knows_nothing_is_left),
        cmocka_unit_test(test_the_first_problem_stays_until_its_server_has_another),
    };
    return cmocka_run_group_tests_name("unit/transport/topology", tests, NULL, NULL);
}
