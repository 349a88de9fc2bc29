/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that misbehaves in every way: checks go on, limits go by the outage mode, the log says what is wrong once
 * per change, and neither weir_open nor weir_close waits until Redis is well.
 *
 * Guards: src/transport/redis/redis.c, src/transport/redis/server.c, src/transport/redis/greeting.c,
 * src/transport/redis/socket.c,
 * src/fleet/link_health.c, src/limiter/background.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/support.h"

#define INTERVAL_MS 30
#define TIMEOUT_MS  200

/* Where a Redis that is slow on a busy machine is not what is tried. */
#define PATIENT_MS  60000
#define PATIENCE_NS (PATIENT_MS * MILLISECOND)

struct log {
    pthread_mutex_t lock;
    size_t count;
    char lines[64][300];
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    (void) level;
    (void) pthread_mutex_lock(&log->lock);
    if (log->count < 64) {
        (void) snprintf(log->lines[log->count], sizeof(log->lines[0]), "%s", message);
    }
    log->count++;
    (void) pthread_mutex_unlock(&log->lock);
}

static size_t lines_with(struct log *log, const char *part)
{
    size_t found = 0;
    (void) pthread_mutex_lock(&log->lock);
    for (size_t i = 0; i < log->count && i < 64; i++) {
        found += strstr(log->lines[i], part) != NULL;
    }
    (void) pthread_mutex_unlock(&log->lock);
    return found;
}

/* Lines that say what the line before them says. */
static size_t lines_said_again(struct log *log)
{
    size_t again = 0;
    (void) pthread_mutex_lock(&log->lock);
    for (size_t i = 1; i < log->count && i < 64; i++) {
        again += strcmp(log->lines[i], log->lines[i - 1]) == 0;
    }
    (void) pthread_mutex_unlock(&log->lock);
    return again;
}

/* Waits until a line is in the log. */
static void wait_for_line(struct log *log, const char *part)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (lines_with(log, part) == 0) {
        if (real_ns() > until_ns) {
            fail_msg("the log never said \"%s\"; it said \"%s\"", part, log->count != 0 ? log->lines[0] : "");
        }
        nap_ms(5);
    }
}

/* Waits until verdicts rest on `basis`; returns the last one. */
static weir_verdict wait_for_basis(weir_thread *t, const weir_key *key, weir_basis basis)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    weir_verdict v;
    for (;;) {
        (void) weir_peek(t, key, 1, &v);
        if (v.basis == basis) {
            return v;
        }
        if (real_ns() > until_ns) {
            fail_msg("verdicts rest on %d, not on %d", (int) v.basis, (int) basis);
        }
        nap_ms(5);
    }
}

static weir *open_with(const char *url, uint32_t timeout_ms, struct log *log)
{
    *log = (struct log){.lock = PTHREAD_MUTEX_INITIALIZER};
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = INTERVAL_MS;
    options.redis_timeout_ms = timeout_ms;
    options.node_name = "the \"node\"";
    options.log = keep;
    options.log_arg = log;
    return open_or_fail(&options);
}

/* Waits for so many attempts more to connect. */
static void wait_for_attempts(const weir *w, uint64_t more)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    weir_stats stats;
    weir_get_stats(w, &stats);
    for (const uint64_t before = stats.connection_attempt_count; stats.connection_attempt_count < before + more;) {
        assert_true(real_ns() < until_ns);
        nap_ms(5);
        weir_get_stats(w, &stats);
    }
}

/* Opens on a bad Redis, limits in the outage mode local, closes. `says`: a part of the one line in the log.
 */
static void limits_without(const char *url, const char *says)
{
    struct log log;
    const size_t threads = count_threads();
    const size_t descriptors = count_descriptors();
    weir *w = open_with(url, TIMEOUT_MS, &log);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .on_outage = WEIR_OUTAGE_LOCAL};
    weir_error error;
    assert_int_equal(weir_set_policies(w, &policy, 1, &error), 0);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    uint64_t admitted = 0;
    for (int i = 0; i < 60; i++) {
        admitted += weir_check(t, &key, 1, NULL);
    }
    wait_for_line(&log, says);
    const weir_verdict v = wait_for_basis(t, &key, WEIR_BASIS_OUTAGE);
    assert_int_equal(v.limit, 100);
    for (int i = 0; i < 1000; i++) {
        admitted += weir_check(t, &key, 1, NULL);
    }
    assert_int_equal(admitted, 100);
    wait_for_attempts(w, 2);
    assert_int_equal(lines_said_again(&log), 0); /* an attempt that ended otherwise may have come in between */
    weir_detach(t);
    weir_close(w); /* though Redis still has not answered as it should */
    expect_no_more_threads(threads);
    /* A fake server, which is in this process, closes its end of the connection when it notices. */
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (count_descriptors() != descriptors && real_ns() < until_ns) {
        nap_ms(1);
    }
    assert_int_equal(count_descriptors(), descriptors);
}

static void test_limiting_goes_on_without_any_redis(void **state)
{
    (void) state;
    weir_close(open_or_fail(NULL)); /* what the first thread of a process brings with it is not ours */
    limits_without("unix:///nonexistent/redis.sock", "cannot connect");
    limits_without("redis://127.0.0.1:1", "cannot connect: Connection refused");
}

static void with_fake(const char *answer, size_t size, bool closes, const char *says)
{
    struct fake_server fake;
    char url[64];
    fake_server_start(&fake, answer, size, closes);
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fake.port);
    limits_without(url, says);
    fake_server_stop(&fake);
}

#define WITH_FAKE(answer, says) with_fake(answer, sizeof(answer) - 1, false, says)

static void test_limiting_goes_on_while_redis_does_not_answer(void **state)
{
    (void) state;
    with_fake(NULL, 0, false, "no answer");
    with_fake(NULL, 0, true, "connection lost");
}

static void test_limiting_goes_on_while_redis_answers_errors(void **state)
{
    (void) state;
    WITH_FAKE("-LOADING Redis is loading the dataset in memory\r\n", "LOADING");
    WITH_FAKE("-NOAUTH Authentication required.\r\n", "NOAUTH");
    WITH_FAKE("-BUSY Redis is busy running a script.\r\n", "BUSY");
}

static void test_limiting_goes_on_while_redis_answers_garbage(void **state)
{
    (void) state;
    WITH_FAKE("HTTP/1.1 400 Bad Request\r\n\r\n", "not Redis's protocol");
    WITH_FAKE("+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n", "not weir's");
    WITH_FAKE("*1000\r\n$5\r\nhello\r\n", "no answer");
    WITH_FAKE("*1000000\r\n$5\r\nhello\r\n", "not Redis's protocol"); /* longer than any that is asked for */
    WITH_FAKE(":1\r\n*-1\r\n$-1\r\n", "not weir's");
}

/* A real server and a node on it whose first sync is done. */
struct setup {
    struct server server;
    struct log log;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
    weir_key key;
};

static void setup_start(struct setup *s, const char *password, uint32_t timeout_ms)
{
    char url[160];
    server_start_with(&s->server, password, false);
    server_url(&s->server, password != NULL, url, sizeof(url));
    const uint64_t begun_ns = real_ns();
    s->w = open_with(url, timeout_ms, &s->log);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    s->policy = set_one_policy(s->w, &limit, 1, WEIR_SCOPE_FLEET);
    s->t = weir_attach(s->w);
    s->key = weir_make_key(s->w, s->policy, "good", 4);
    assert_true(weir_check(s->t, &s->key, 1, NULL));
    assert_int_equal(weir_sync(s->w, PATIENT_MS), 0);
    const weir_verdict v = wait_for_basis(s->t, &s->key, WEIR_BASIS_FLEET);
    assert_true(v.fleet_age_ns <= real_ns() - begun_ns);
}

static void setup_stop(struct setup *s)
{
    weir_detach(s->t);
    weir_close(s->w);
    server_stop(&s->server);
}

static void do_command(const struct server *server, const char *command)
{
    redisReply *reply = server_command(server, command);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static void test_a_password_is_used(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, "secret", PATIENT_MS);
    assert_int_equal(server_sum(&s.server, "weir:*:p:good:*"), 1);
    wait_for_line(&s.log, "joined the fleet as node");
    wait_for_line(&s.log, "(the _node_)");
    static char metrics[65536];
    assert_in_range(weir_write_metrics(s.w, metrics, sizeof(metrics)), 1000, sizeof(metrics) - 1);
    assert_non_null(strstr(metrics, "name=\"the _node_\"} 1\n"));
    assert_non_null(strstr(metrics, "weir_redis_up 1\n"));
    assert_non_null(strstr(metrics, "weir_outage_mode{policy=\"p\",mode=\"fleet\"} 1\n"));
    setup_stop(&s);
}

static void test_a_record_of_a_wrong_type_hurts_no_other(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, NULL, PATIENT_MS);
    redisReply *keys = server_command(&s.server, "KEYS weir:*:good:*");
    assert_int_equal(keys->elements, 1);
    freeReplyObject(server_command(&s.server, "DEL %s", keys->element[0]->str));
    freeReplyObject(server_command(&s.server, "SET %s spoiled", keys->element[0]->str));
    const weir_key other = weir_make_key(s.w, s.policy, "other", 5);
    for (int i = 0; i < 7; i++) {
        assert_true(weir_check(s.t, &s.key, 1, NULL));
        assert_true(weir_check(s.t, &other, 1, NULL));
    }
    assert_int_equal(weir_sync(s.w, PATIENT_MS), 0);
    assert_int_equal(server_sum(&s.server, "weir:*:other:*"), 7);
    wait_for_line(&s.log, " rejected 1 of");
    wait_for_line(&s.log, keys->element[0]->str);
    weir_stats stats;
    weir_get_stats(s.w, &stats);
    assert_true(stats.rejected_report_count >= 1);
    freeReplyObject(keys);
    setup_stop(&s);
}

/* One command makes Redis refuse, another mends it; what was admitted in between arrives. */
static void refuses_for_a_while(const char *spoil, const char *mend, const char *says)
{
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, NULL, PATIENT_MS);
    do_command(&s.server, spoil);
    for (int i = 0; i < 9; i++) {
        assert_true(weir_check(s.t, &s.key, 1, NULL));
    }
    wait_for_line(&s.log, says);
    const weir_verdict v = wait_for_basis(s.t, &s.key, WEIR_BASIS_OUTAGE);
    assert_int_equal(v.limit, 1000);
    for (int i = 0; i < 10; i++) {
        assert_true(weir_check(s.t, &s.key, 1, NULL));
    }
    assert_int_equal(lines_said_again(&s.log), 0);
    do_command(&s.server, mend);
    wait_for_line(&s.log, "answering again");
    assert_int_equal(weir_sync(s.w, PATIENT_MS), 0);
    assert_int_equal(weir_sync(s.w, PATIENT_MS), 0);
    assert_int_equal(server_sum(&s.server, "weir:*:p:good:*"), 20);
    setup_stop(&s);
}

static void test_a_read_only_replica_is_an_outage(void **state)
{
    (void) state;
    refuses_for_a_while("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY");
}

static void test_a_full_redis_is_an_outage(void **state)
{
    (void) state;
    refuses_for_a_while("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM");
}

static void test_a_hung_redis_is_an_outage_and_close_does_not_wait_for_it(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, NULL, TIMEOUT_MS);
    server_pause(&s.server);
    assert_true(weir_check(s.t, &s.key, 1, NULL));
    wait_for_line(&s.log, "no answer after");
    (void) wait_for_basis(s.t, &s.key, WEIR_BASIS_OUTAGE);
    setup_stop(&s);
}

/* Redis answers when weir_open has returned and checks have been made: the answer is held back until then. */
static void test_opening_and_checking_wait_for_no_answer(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    struct proxy proxy;
    struct log log;
    char url[160];
    server_start(&server);
    proxy_start(&proxy, server.socket);
    proxy_set(&proxy, PROXY_BLACKHOLE);
    proxy_url(&proxy, url, sizeof(url));
    const uint64_t begun_ns = real_ns();
    weir *w = open_with(url, PATIENT_MS, &log);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    for (int i = 0; i < 10; i++) {
        assert_true(weir_check(t, &key, 1, NULL));
    }
    assert_true(real_ns() - begun_ns < PATIENCE_NS / 2); /* who waits for the answer waits for the time-out */
    proxy_set(&proxy, PROXY_PASS);
    wait_for_line(&log, "joined the fleet as node");
    assert_int_equal(weir_sync(w, PATIENT_MS), 0);
    assert_int_equal(server_sum(&server, "weir:*:p:k:*"), 10);
    weir_detach(t);
    weir_close(w);
    proxy_stop(&proxy);
    server_stop(&server);
}

static void test_a_redis_that_comes_back_empty_counts_as_one_loss(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, NULL, PATIENT_MS);
    for (uint64_t losses = 1; losses <= 2; losses++) {
        server_kill(&s.server);
        (void) wait_for_basis(s.t, &s.key, WEIR_BASIS_OUTAGE);
        server_restart(&s.server);
        (void) wait_for_basis(s.t, &s.key, WEIR_BASIS_FLEET);
        for (int i = 0; i < 10; i++) {
            assert_int_equal(weir_sync(s.w, PATIENT_MS), 0);
        }
        weir_stats stats;
        weir_get_stats(s.w, &stats);
        assert_int_equal(stats.redis_lost_state_count, losses);
        assert_int_equal(lines_with(&s.log, "has lost its data"), 1); /* one in ten minutes */
        assert_int_equal(server_sum(&s.server, "weir:*:p:good:*"), 1);
    }
    setup_stop(&s);
}

static void test_close_reports_what_is_left(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct setup s;
    setup_start(&s, NULL, PATIENT_MS);
    for (int i = 0; i < 500; i++) {
        assert_true(weir_check(s.t, &s.key, 1, NULL));
    }
    weir_close(s.w); /* with a thread attached, and at once */
    assert_int_equal(server_sum(&s.server, "weir:*:p:good:*"), 501);
    server_stop(&s.server);
}

/* Nodes in Redis's list of them, which has one member more that says when the list was begun. */
static long long nodes_listed(const struct server *server)
{
    redisReply *reply = server_command(server, "ZCARD weir:nodes");
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    const long long listed = reply->integer - 1;
    freeReplyObject(reply);
    return listed;
}

/* A node with one policy, "p". */
static weir *open_patient(const char *url)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = INTERVAL_MS;
    options.redis_timeout_ms = PATIENT_MS;
    weir *w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    (void) set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET);
    assert_int_equal(weir_sync(w, PATIENT_MS), 0);
    return w;
}

static void test_a_node_that_closes_leaves_the_list_at_once(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    char url[160];
    server_start(&server);
    server_url(&server, false, url, sizeof(url));
    weir *stays = open_patient(url);
    assert_int_equal(nodes_listed(&server), 1);
    for (int idle = 0; idle < 2; idle++) {
        weir *goes = open_patient(url);
        if (idle) {
            nap_ms(400); /* it sleeps, and speaks less often */
        }
        assert_int_equal(nodes_listed(&server), 2);
        weir_close(goes);
        assert_int_equal(nodes_listed(&server), 1);
        /* The other one hears of it with its next round, long before a node without a heartbeat is given up. */
        assert_int_equal(weir_sync(stays, PATIENT_MS), 0);
        weir_stats stats;
        weir_get_stats(stays, &stats);
        assert_int_equal(stats.live_nodes, 1);
    }
    weir_close(stays);
    assert_int_equal(nodes_listed(&server), 0);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limiting_goes_on_without_any_redis),
        cmocka_unit_test(test_limiting_goes_on_while_redis_does_not_answer),
        cmocka_unit_test(test_limiting_goes_on_while_redis_answers_errors),
        cmocka_unit_test(test_limiting_goes_on_while_redis_answers_garbage),
        cmocka_unit_test(test_a_password_is_used),
        cmocka_unit_test(test_a_record_of_a_wrong_type_hurts_no_other),
        cmocka_unit_test(test_a_read_only_replica_is_an_outage),
        cmocka_unit_test(test_a_full_redis_is_an_outage),
        cmocka_unit_test(test_a_hung_redis_is_an_outage_and_close_does_not_wait_for_it),
        cmocka_unit_test(test_opening_and_checking_wait_for_no_answer),
        cmocka_unit_test(test_a_redis_that_comes_back_empty_counts_as_one_loss),
        cmocka_unit_test(test_close_reports_what_is_left),
        cmocka_unit_test(test_a_node_that_closes_leaves_the_list_at_once),
    };
    return cmocka_run_group_tests_name("redis/faults", tests, NULL, NULL);
}
