/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transport must do, asked of both: the in-memory fleet and a real Redis with its scripts.
 *
 * Guards: src/transport/transport.h, src/transport/redis/redis.c, src/transport/redis/batch.c,
 * src/transport/redis/answer.c, src/transport/loopback/loopback.c, src/transport/loopback/network.c,
 * src/transport/redis/scripts/heartbeat.lua
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "support/exchange.h"
#include "support/server.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"
#include "transport/redis/redis.h"

#define TIMEOUT_MS 1500 /* of a machine that others work on, too */

/* One of the two, and what stands behind it. */
struct bench {
    struct loopback_fleet *fleet;
    struct server server;
    struct transport *transport;
    bool is_redis;
    const char *options; /* of the URL; NULL: none */
};

static struct transport *connect_to(struct bench *b)
{
    char url[160];
    struct transport *t = NULL;
    struct transport_config config = {.url = url, .prefix = "weir", .timeout_ms = TIMEOUT_MS, .now_ns = real_ns()};
    weir_error error = {0};
    if (b->is_redis) {
        server_url(&b->server, false, url, sizeof(url));
        const size_t length = strlen(url);
        (void) snprintf(url + length, sizeof(url) - length, "%s", b->options != NULL ? b->options : "");
        assert_int_equal(redis_transport_open(&config, &t, &error), 0);
    } else {
        assert_int_equal(loopback_transport_open(b->fleet, &config, &t, &error), 0);
    }
    return t;
}

/* Says one thing of one record, and returns what comes back. */
static struct report say(struct transport *t, struct report report)
{
    struct round round = {.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
    return report;
}

static void windows_keep_the_larger_count(struct transport *t)
{
    struct report r = say(t, window("a.1", 10, 15));
    assert_int_equal(r.status, 0);
    assert_int_equal(r.mine, 10);
    assert_int_equal(r.sum, 10);
    assert_int_equal(r.sum_demand, 15);
    r = say(t, window("b.1", 7, 7));
    assert_int_equal(r.mine, 7);
    assert_int_equal(r.sum, 17);
    assert_int_equal(r.sum_demand, 22);
    r = say(t, window("a.1", 10, 15)); /* again */
    assert_int_equal(r.sum, 17);
    r = say(t, window("a.1", 4, 20)); /* overtaken by a later one; its demand is news */
    assert_int_equal(r.mine, 10);
    assert_int_equal(r.sum, 17);
    assert_int_equal(r.sum_demand, 27);
    r = say(t, window("a.2", 5, 5)); /* another stay of the key on the same node */
    assert_int_equal(r.mine, 5);
    assert_int_equal(r.sum, 22);
    r = say(t, window("a.1", UINT64_C(9000000000000000), 0)); /* near 2^53, and no digit is lost */
    assert_int_equal(r.sum, UINT64_C(9000000000000012));
}

#define NOW_US UINT64_C(1760000000000000)

static struct report bucket(const char *author, uint64_t count, uint64_t acked, uint64_t tat_us)
{
    struct report r = {.kind = REPORT_BUCKET,
                       .count = count,
                       .demand = count,
                       .acked = acked,
                       .tat_us = tat_us,
                       .now_us = NOW_US,
                       .from_us = NOW_US,
                       .unit_ps = 2500000,
                       .expire_ms = 60000};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:b1s:p:bucket");
    (void) snprintf(r.author, sizeof(r.author), "%s", author);
    return r;
}

static void buckets_move_by_news(struct transport *t)
{
    struct report r = say(t, bucket("a.1", 100, 0, 0)); /* 2.5 us each */
    assert_int_equal(r.sum, 100);
    assert_int_equal(r.tat_answer_us, NOW_US + 250);
    r = say(t, bucket("a.1", 100, 0, 0)); /* again */
    assert_int_equal(r.tat_answer_us, NOW_US + 250);
    r = say(t, bucket("b.1", 40, 0, 0));
    assert_int_equal(r.sum, 140);
    assert_int_equal(r.mine, 40);
    assert_int_equal(r.tat_answer_us, NOW_US + 350);
    r = say(t, bucket("c.1", 1000, 1000, 0)); /* counted before the record was lost: no debt */
    assert_int_equal(r.sum, 1140);
    assert_int_equal(r.tat_answer_us, NOW_US + 350);
    r = say(t, bucket("c.1", 1001, 1000, NOW_US + 900)); /* the later time wins, and what is new comes on top */
    assert_int_equal(r.tat_answer_us, NOW_US + 903);
}

/*
 * A record is lost that three authors have seen at different times, and each has had units since. In whatever order
 * they tell, the bucket is at the latest of those times and all the units.
 */
static void lost_buckets_come_back_whole(struct transport *t)
{
    static const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const uint64_t seen_us[3] = {NOW_US + 1000, NOW_US + 1500, NOW_US + 1200};
    static const uint64_t news[3] = {400, 40, 200}; /* 2.5 us each */
    static const char *const authors[3] = {"a.1", "b.1", "c.1"};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct report r = {.status = 0};
        for (size_t j = 0; j < 3; j++) {
            const size_t by = orders[i][j];
            r = bucket(authors[by], 1000 + news[by], 1000, seen_us[by]);
            (void) snprintf(r.record, sizeof(r.record), "weir:{001}:b1s:p:lost%zu", i);
            r = say(t, r);
        }
        assert_int_equal(r.tat_answer_us, NOW_US + 1500 + 640 * 5 / 2);
        /* From now on it is a record like any other. */
        r = bucket("a.1", 1500, 1400, r.tat_answer_us);
        (void) snprintf(r.record, sizeof(r.record), "weir:{001}:b1s:p:lost%zu", i);
        r = say(t, r);
        assert_int_equal(r.tat_answer_us, NOW_US + 1500 + 740 * 5 / 2);
    }
}

static void heartbeats_count_nodes_and_notice_loss(struct bench *b)
{
    struct round round = {.node = "n1", .node_lifetime_ms = 5000, .first = true};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    const uint64_t now_ns = real_wall_ns(NULL);
    assert_in_range(round.fleet_wall_ns, now_ns - 2 * SECOND, now_ns + SECOND);
    assert_true(round.received_ns >= round.sent_ns);
    assert_false(round.forgot);
    struct transport *other = connect_to(b); /* a transport is one node's */
    round = (struct round){.node = "n2", .node_lifetime_ms = 5000, .first = true};
    assert_int_equal(exchange(other, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(round.live_nodes, 2);
    round = (struct round){.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_false(round.forgot);
    if (b->is_redis) {
        freeReplyObject(server_command(&b->server, "FLUSHALL"));
    } else {
        loopback_fleet_forget(b->fleet);
    }
    round = (struct round){.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_true(round.forgot);
    other->ops->close(other);
    assert_int_equal(round.live_nodes, 1);
}

static void hung(struct bench *b, bool hangs)
{
    if (!b->is_redis) {
        loopback_fleet_set_hung(b->fleet, hangs);
    } else if (hangs) {
        server_pause(&b->server);
    } else {
        server_resume(&b->server);
    }
}

static void a_hang_fails_the_round_and_what_it_said_counts_once(struct bench *b)
{
    (void) step_until(b->transport, false);
    struct report report = window("h.1", 3, 3);
    (void) snprintf(report.record, sizeof(report.record), "weir:{001}:f1s:p:hung");
    struct round round = {.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 5000};
    hung(b, true);
    assert_int_equal(b->transport->ops->begin(b->transport, &round, real_ns()), 0);
    const uint64_t before_ns = real_ns();
    assert_int_equal(step_until(b->transport, true), TRANSPORT_ROUND_FAILED);
    assert_in_range(real_ns() - before_ns, TIMEOUT_MS * MILLISECOND / 2, TIMEOUT_MS * MILLISECOND + SECOND);
    assert_non_null(b->transport->ops->problem(b->transport));
    hung(b, false);
    round = (struct round){.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(report.sum, 3); /* also where the hung one was worked off after all */
    assert_null(b->transport->ops->problem(b->transport));
}

static void all_of_it(struct bench *b)
{
    b->transport = connect_to(b);
    windows_keep_the_larger_count(b->transport);
    buckets_move_by_news(b->transport);
    lost_buckets_come_back_whole(b->transport);
    a_hang_fails_the_round_and_what_it_said_counts_once(b);
    heartbeats_count_nodes_and_notice_loss(b);
    b->transport->ops->close(b->transport);
}

static void test_the_in_memory_fleet_keeps_the_rules(void **state)
{
    (void) state;
    struct bench b = {.fleet = loopback_fleet_new(real_wall_ns, NULL)};
    assert_non_null(b.fleet);
    all_of_it(&b);
    loopback_fleet_free(b.fleet);
}

static void test_redis_keeps_the_rules(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct bench b = {.is_redis = true};
    server_start(&b.server);
    all_of_it(&b);
#ifdef REDIS_REPLY_MAP
    freeReplyObject(server_command(&b.server, "FLUSHALL"));
    b.options = "?protocol=3"; /* this hiredis can read it */
    all_of_it(&b);
#endif
    server_stop(&b.server);
}

static void test_a_thousand_reports_go_in_batches(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct report reports[1203];
    struct bench b = {.is_redis = true};
    server_start(&b.server);
    b.transport = connect_to(&b);
    for (size_t i = 0; i < 1203; i++) {
        reports[i] = i % 2 == 0 ? window("a.1", i + 1, i + 1) : bucket("a.1", i + 1, 0, 0);
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{%03zx}:p:%zu", i % 1024, i);
    }
    struct round round = {.reports = reports, .report_count = 1203, .node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b.transport, &round), TRANSPORT_ROUND_DONE);
    for (size_t i = 0; i < 1203; i++) {
        assert_int_equal(reports[i].status, 0);
        assert_int_equal(reports[i].mine, i + 1);
    }
    assert_true(round.sent_size > 100000);
    /* Scripts that are gone come back within the round. */
    freeReplyObject(server_command(&b.server, "SCRIPT FLUSH"));
    assert_int_equal(exchange(b.transport, &round), TRANSPORT_ROUND_DONE);
    const size_t sent_with_scripts = round.sent_size;
    assert_int_equal(exchange(b.transport, &round), TRANSPORT_ROUND_DONE);
    assert_true(round.sent_size < sent_with_scripts);
    for (size_t i = 0; i < 1203; i++) {
        assert_int_equal(reports[i].status, 0);
        assert_int_equal(reports[i].mine, i + 1);
    }
    assert_true(b.transport->ops->counts(b.transport).connections == 1);
    b.transport->ops->close(b.transport);
    server_stop(&b.server);
}

/* Rounds fail while Redis answers like this, and go on afterwards; nothing is told twice. */
static void refuses(struct server *server, struct transport *t, const char *spoil, const char *mend, const char *says)
{
    static uint64_t said;
    said++;
    (void) say(t, window("e.1", said, said));
    redisReply *reply = server_command(server, spoil);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    said++;
    struct report report = window("e.1", said, said);
    struct round round = {.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 60000};
    (void) step_until(t, false);
    assert_int_equal(t->ops->begin(t, &round, real_ns()), 0);
    assert_int_equal(step_until(t, true), TRANSPORT_ROUND_FAILED);
    assert_int_equal(t->ops->state(t), TRANSPORT_DOWN);
    if (t->ops->problem(t) == NULL || strstr(t->ops->problem(t), says) == NULL) {
        fail_msg("not \"%s\" but \"%s\"", says, t->ops->problem(t) != NULL ? t->ops->problem(t) : "nothing");
    }
    freeReplyObject(server_command(server, mend));
    said++;
    const struct report counts = say(t, window("e.1", said, said));
    assert_int_equal(counts.mine, said);
    assert_int_equal(counts.sum, said);
    assert_null(t->ops->problem(t));
}

static void test_errors_end_the_round_and_the_next_connection_goes_on(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct bench b = {.is_redis = true};
    server_start(&b.server);
    b.transport = connect_to(&b);
    struct transport *t = b.transport;
    refuses(&b.server, t, "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS");
    refuses(&b.server, t, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM");
    freeReplyObject(server_command(&b.server, "CONFIG SET replica-serve-stale-data no"));
    refuses(&b.server, t, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "MASTERDOWN");
    freeReplyObject(server_command(&b.server, "CONFIG SET replica-serve-stale-data yes"));
    refuses(&b.server, t, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY");
    refuses(&b.server, t, "ACL SETUSER default -evalsha", "ACL SETUSER default +evalsha", "NOPERM");
    /* A script of somebody else's that does not end. */
    freeReplyObject(server_command(&b.server, "CONFIG SET lua-time-limit 10"));
    (void) step_until(t, false);
    redisContext *busy = redisConnectUnix(b.server.socket);
    assert_int_equal(redisAppendCommand(busy, "EVAL %s 0", "while true do end"), REDIS_OK);
    int done = 0;
    assert_int_equal(redisBufferWrite(busy, &done), REDIS_OK);
    const uint64_t until_ns = real_ns() + 10 * SECOND;
    for (bool is_busy = false; !is_busy; assert_true(real_ns() < until_ns)) {
        redisReply *reply = server_command(&b.server, "PING");
        is_busy = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
    }
    struct round round = {.node = "n1", .node_lifetime_ms = 60000};
    assert_int_equal(t->ops->begin(t, &round, real_ns()), 0);
    assert_int_equal(step_until(t, true), TRANSPORT_ROUND_FAILED);
    assert_non_null(strstr(t->ops->problem(t), "BUSY"));
    freeReplyObject(server_command(&b.server, "SCRIPT KILL"));
    redisFree(busy);
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
    t->ops->close(t);
    server_stop(&b.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_in_memory_fleet_keeps_the_rules),
        cmocka_unit_test(test_redis_keeps_the_rules),
        cmocka_unit_test(test_a_thousand_reports_go_in_batches),
        cmocka_unit_test(test_errors_end_the_round_and_the_next_connection_goes_on),
    };
    return cmocka_run_group_tests_name("redis/transport", tests, NULL, NULL);
}
