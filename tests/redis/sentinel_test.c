/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentinels, several hosts, and users with few rights: which server is asked, which is passed over, and what the log
 * says.
 *
 * Guards: src/transport/redis/topology.c, src/transport/redis/server.c, src/transport/redis/greeting.c
 */
#include <stdio.h>
#include <string.h>

#include "support/cluster.h"
#include "support/exchange.h"
#include "support/support.h"

#define TIMEOUT_MS 300

/* A Sentinel that takes `port` for the port of the primary "p". */
static void sentinel_start(struct server *server, int port, int quorum, const char *password)
{
    server_init(server);
    server->sentinel = true;
    server->password = password;
    char path[128];
    (void) snprintf(path, sizeof(path), "%s/sentinel.conf", server->directory);
    FILE *conf = fopen(path, "w");
    assert_non_null(conf);
    (void) fprintf(conf,
                   "port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\nsentinel monitor p 127.0.0.1 %d %d\n"
                   "sentinel down-after-milliseconds p 500\nsentinel failover-timeout p 3000\n",
                   server->port, server->socket, server->directory, port, quorum);
    if (password != NULL) {
        (void) fprintf(conf, "requirepass %s\n", password);
    }
    (void) fclose(conf);
    server_launch(server);
}

static void replicate(struct server *replica, const struct server *primary)
{
    server_must(replica, "CONFIG SET repl-diskless-sync-delay 0");
    server_must(primary, "CONFIG SET repl-diskless-sync-delay 0");
    server_must(replica, "REPLICAOF 127.0.0.1 %d", primary->port);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (bool up = false; !up; nap_ms(5)) {
        redisReply *reply = server_command(replica, "INFO replication");
        up = strstr(reply->str, "master_link_status:up") != NULL;
        freeReplyObject(reply);
        assert_true(real_ns() < until_ns);
    }
}

/* Reports a count until it is accepted. Returns whether the fleet had lost its data meanwhile. */
static bool tell(struct transport *t, uint64_t count)
{
    bool forgot = false;
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (;;) {
        struct report report = window("a.1", count, count);
        struct round round = {.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 60000};
        while (t->ops->state(t) != TRANSPORT_READY && real_ns() < until_ns) {
            (void) t->ops->step(t, transport_ns());
            nap_ms(2);
        }
        if (real_ns() >= until_ns) {
            fail_msg("not told: %s", t->ops->problem(t) != NULL ? t->ops->problem(t) : "no problem");
        }
        if (exchange(t, &round) == TRANSPORT_ROUND_DONE) {
            assert_int_equal(report.status, 0);
            assert_int_equal(report.author_count, count);
            return forgot || round.lost_state;
        }
    }
}

static void test_a_failover_is_followed(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server primary;
    struct server replica;
    struct server sentinel;
    server_start(&primary);
    server_start(&replica);
    replicate(&replica, &primary);
    sentinel_start(&sentinel, primary.port, 1, NULL);
    char url[200];
    (void) snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:1,127.0.0.1:%d/p", sentinel.port);
    struct transport *t = open_redis(url, TIMEOUT_MS);
    assert_false(tell(t, 5));
    assert_int_equal(server_sum(&primary, "weir:*"), 5);
    /* The Sentinel knows of the replica from the primary's INFO. */
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (bool known = false; !known; nap_ms(20)) {
        redisReply *reply = server_command(&sentinel, "SENTINEL CKQUORUM p");
        redisReply *replicas = server_command(&sentinel, "SENTINEL REPLICAS p");
        known = reply->type == REDIS_REPLY_STATUS && replicas->elements == 1;
        freeReplyObject(replicas);
        freeReplyObject(reply);
        assert_true(real_ns() < until_ns);
    }
    server_kill(&primary);
    assert_true(tell(t, 9)); /* another server than the one that was named */
    assert_int_equal(server_sum(&replica, "weir:*"), 9);
    assert_null(t->ops->problem(t));
    /* A switch that leaves the old primary as it is, and connected: only the Sentinel announces it. */
    struct server other;
    server_start(&other);
    server_must(&sentinel, "SENTINEL REMOVE p");
    server_must(&sentinel, "SENTINEL MONITOR p 127.0.0.1 %d 1", other.port);
    const uint64_t switch_until_ns = real_ns() + 60 * SECOND;
    for (uint64_t count = 10; server_sum(&other, "weir:*") == 0; count++) {
        (void) tell(t, count);
        assert_true(real_ns() < switch_until_ns);
        nap_ms(20);
    }
    t->ops->close(t);
    server_stop(&other);
    server_stop(&sentinel);
    server_stop(&replica);
    server_stop(&primary);
}

static void test_sentinels_that_name_a_replica_or_nobody_are_passed_over(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server primary;
    struct server replica;
    struct server sentinels[4];
    server_start(&primary);
    server_start(&replica);
    replicate(&replica, &primary);
    sentinel_start(&sentinels[0], 1, 2, "secret");            /* names a dead one */
    sentinel_start(&sentinels[1], replica.port, 2, "secret"); /* a replica */
    sentinel_start(&sentinels[2], primary.port, 2, "secret");
    server_must(&sentinels[2], "SENTINEL REMOVE p"); /* no server */
    sentinel_start(&sentinels[3], primary.port, 2, "secret");
    char url[300];
    int length = snprintf(url, sizeof(url), "redis+sentinel://");
    for (int i = 0; i < 4; i++) {
        length += snprintf(url + length, sizeof(url) - (size_t) length, "%s127.0.0.1:%d", i != 0 ? "," : "",
                           sentinels[i].port);
    }
    (void) snprintf(url + length, sizeof(url) - (size_t) length, "/p?sentinel_password=secret");
    struct transport *t = open_redis(url, TIMEOUT_MS);
    (void) tell(t, 5);
    assert_int_equal(server_sum(&primary, "weir:*"), 5);
    t->ops->close(t);
    for (int i = 0; i < 4; i++) {
        server_stop(&sentinels[i]);
    }
    server_stop(&replica);
    server_stop(&primary);
}

static void test_of_several_hosts_the_primary_is_found(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server primary;
    struct server replica;
    server_start(&primary);
    server_start(&replica);
    replicate(&replica, &primary);
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d", replica.port, primary.port);
    struct transport *t = open_redis(url, TIMEOUT_MS);
    assert_false(tell(t, 5));
    assert_int_equal(server_sum(&primary, "weir:*"), 5);
    server_kill(&primary);
    server_must(&replica, "REPLICAOF NO ONE");
    assert_true(tell(t, 6));
    assert_int_equal(server_sum(&replica, "weir:*"), 6);
    t->ops->close(t);
    server_stop(&replica);
    server_stop(&primary);
}

/* The rights that docs/redis.md lists: for every kind of server, and beyond that for Clusters and for several hosts. */
#define RIGHTS                                                                                                         \
    "-@all ~weir:* +eval +evalsha +info +select +time +hget +hgetall +hmget +hset +hincrby +hdel +hscan +hlen "        \
    "+hstrlen +zadd "                                                                                                  \
    "+zrem +zscore +zcard +zcount +zrange +zremrangebyscore +zremrangebyrank +pexpire +pttl +exists +del +role"

static struct transport *open_as_user(const struct server *server, const char *rights)
{
    server_must(server, "ACL SETUSER ann reset on >secret %s", rights);
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://ann:secret@127.0.0.1:%d/1", server->port);
    return open_redis(url, TIMEOUT_MS);
}

/* A round with every script. */
static enum transport_event say_everything(struct transport *t)
{
    static struct history_report log;
    log = (struct history_report){.demand_record = "weir:{001}?p",
                                  .first = 1,
                                  .now_us = UINT64_C(1760000000000000),
                                  .period_us = 1000000,
                                  .limit = 10,
                                  .time_count = 2,
                                  .refund_from = 1,
                                  .refund_to = 2,
                                  .times_us = {UINT64_C(1760000000000000), UINT64_C(1760000000000001)}};
    struct report reports[3] = {window("a.1", 5, 5), window("a.1", 5, 5), window("a.1", 5, 5)};
    reports[0].refunds = 1;
    reports[0].reset_us = 5;
    reports[1].kind = REPORT_BUCKET;
    reports[1].from_us = UINT64_C(1760000000000000);
    reports[1].unit_ps = 1000000;
    reports[1].refunds = 1;
    reports[1].reset_us = 5;
    reports[2].kind = REPORT_HISTORY;
    reports[2].history = &log;
    reports[2].reset_us = 5;
    for (size_t i = 0; i < 3; i++) {
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{001}:p:%zu", i);
    }
    struct round round = {.reports = reports, .report_count = 3, .node = "n1", .node_lifetime_ms = 5000};
    const enum transport_event event = exchange(t, &round);
    overrides_drop(round.overrides, round.override_count);
    for (size_t i = 0; i < 3 && event == TRANSPORT_ROUND_DONE; i++) {
        assert_int_equal(reports[i].status, 0);
    }
    return event;
}

static void test_a_user_with_the_rights_that_are_documented_is_enough(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    struct transport *t = open_as_user(&server, RIGHTS);
    server_must(&server, "CONFIG RESETSTAT");
    assert_int_equal(say_everything(t), TRANSPORT_ROUND_DONE);
    assert_int_equal(say_everything(t), TRANSPORT_ROUND_DONE);
    t->ops->close(t);
    /* Without INFO the node does not know which server it speaks to, and goes on. */
    t = open_as_user(&server, RIGHTS " -info");
    assert_int_equal(say_everything(t), TRANSPORT_ROUND_DONE);
    t->ops->close(t);
    server_stop(&server);
}

static void test_a_right_that_is_missing_is_named(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static const char *const missing[] = {"evalsha", "hset", "zadd", "pexpire"};
    struct server server;
    server_start(&server);
    for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
        char rights[400];
        (void) snprintf(rights, sizeof(rights), "%s -%s", RIGHTS, missing[i]);
        struct transport *t = open_as_user(&server, rights);
        assert_int_equal(say_everything(t), TRANSPORT_ROUND_FAILED);
        const char *problem = t->ops->problem(t);
        assert_non_null(problem);
        /* Redis 6.2 does not say which command it was, where it is a script's. */
        if (strstr(problem, "docs/redis.md") == NULL ||
            (strstr(problem, missing[i]) == NULL && strstr(problem, "executing the script") == NULL)) {
            fail_msg("without %s: %s", missing[i], problem);
        }
        t->ops->close(t);
    }
    /* Names of another prefix, and a wrong password. */
    struct transport *t = open_as_user(&server, RIGHTS " resetkeys ~other:*");
    assert_int_equal(say_everything(t), TRANSPORT_ROUND_FAILED);
    assert_non_null(strstr(t->ops->problem(t), "NOPERM"));
    t->ops->close(t);
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://ann:hunter2@127.0.0.1:%d", server.port);
    t = open_redis(url, TIMEOUT_MS);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (t->ops->problem(t) == NULL && real_ns() < until_ns) {
        (void) t->ops->step(t, transport_ns());
        nap_ms(1);
    }
    assert_non_null(t->ops->problem(t));
    assert_non_null(strstr(t->ops->problem(t), "WRONGPASS"));
    assert_null(strstr(t->ops->problem(t), "hunter2"));
    t->ops->close(t);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failover_is_followed),
        cmocka_unit_test(test_sentinels_that_name_a_replica_or_nobody_are_passed_over),
        cmocka_unit_test(test_of_several_hosts_the_primary_is_found),
        cmocka_unit_test(test_a_user_with_the_rights_that_are_documented_is_enough),
        cmocka_unit_test(test_a_right_that_is_missing_is_named),
    };
    return cmocka_run_group_tests_name("redis/sentinel", tests, NULL, NULL);
}
