/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides of single keys, more or longer ones than are read; and a Redis that is full and evicts. Neither costs a
 * round, and the log says once what is left out.
 *
 * Guards: src/transport/redis/scripts/overrides.lua, src/transport/redis/answer.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server.h"
#include "support/support.h"

#define INTERVAL_MS 30
#define TIMEOUT_MS  60000 /* a round that takes long on a busy machine is not what is tried here */
#define WAIT_NS     (60 * SECOND)
#define LINES       64

struct log {
    pthread_mutex_t lock;
    size_t count;
    char lines[LINES][500];
};

struct site {
    struct server server;
    struct log log;
    weir *w;
    weir_thread *t;
    uint64_t errors; /* before there was a connection */
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    (void) pthread_mutex_lock(&log->lock);
    if (level != WEIR_LOG_INFO || strstr(message, "read again") != NULL) {
        (void) snprintf(log->lines[log->count % LINES], sizeof(log->lines[0]), "%s", message);
        log->count++;
    }
    (void) pthread_mutex_unlock(&log->lock);
}

static size_t lines_with(struct log *log, const char *part)
{
    size_t found = 0;
    (void) pthread_mutex_lock(&log->lock);
    for (size_t i = 0; i < log->count && i < LINES; i++) {
        found += strstr(log->lines[i], part) != NULL;
    }
    (void) pthread_mutex_unlock(&log->lock);
    return found;
}

static void must(const struct server *server, const char *command)
{
    redisReply *reply = server_command(server, command);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", command, reply->str);
    }
    freeReplyObject(reply);
}

/* Runs a script that fills weir:overrides. */
static void fill(const struct server *server, const char *script)
{
    redisReply *reply = server_command(server, "EVAL %s 1 weir:overrides", script);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", script, reply->str);
    }
    freeReplyObject(reply);
}

static weir *join(const struct server *server, struct log *log, uint64_t period_ns)
{
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = period_ns};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    char url[160];
    server_url(server, false, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = INTERVAL_MS;
    options.redis_timeout_ms = TIMEOUT_MS;
    options.log = log != NULL ? keep : NULL;
    options.log_arg = log;
    weir *w = open_or_fail(&options);
    weir_error error;
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

static void site_open(struct site *site)
{
    if (!server_available()) {
        skip();
    }
    memset(&site->log, 0, sizeof(site->log));
    (void) pthread_mutex_init(&site->log.lock, NULL);
    server_start(&site->server);
    /* By itself Redis refuses all calls once a script, such as one of fill, has run for 5 s. */
    must(&site->server, "CONFIG SET lua-time-limit 0");
    site->w = join(&site->server, &site->log, HOUR);
    site->t = weir_attach(site->w);
    assert_int_equal(weir_sync(site->w, 60000), 0);
    weir_stats stats;
    weir_get_stats(site->w, &stats);
    site->errors = stats.sync_error_count;
}

static void site_close(struct site *site)
{
    weir_close(site->w);
    server_stop(&site->server);
}

static weir_stats stats_of(const weir *w)
{
    weir_stats stats;
    weir_get_stats(w, &stats);
    return stats;
}

/* Waits until so many entries are in force, and for ten rounds more, none of which fails. */
static void expect_entries(struct site *site, uint64_t least, uint64_t most)
{
    const uint64_t until_ns = real_ns() + WAIT_NS;
    for (;;) {
        const weir_stats stats = stats_of(site->w);
        if (stats.override_count >= least && stats.override_count <= most) {
            break;
        }
        if (real_ns() > until_ns) {
            fail_msg("%" PRIu64 " entries are in force, of %" PRIu64 " rounds %" PRIu64 " failed; the log says \"%s\"",
                     stats.override_count, stats.sync_count, stats.sync_error_count, site->log.lines[0]);
        }
        nap_ms(5);
    }
    const uint64_t had = stats_of(site->w).sync_count;
    while (stats_of(site->w).sync_count < had + 10) {
        assert_true(real_ns() < until_ns);
        nap_ms(5);
    }
    const weir_stats stats = stats_of(site->w);
    assert_int_equal(stats.sync_error_count, site->errors);
    assert_int_equal(stats.connection_count, 1);
    assert_in_range(stats.override_count, least, most);
    assert_int_equal(lines_with(&site->log, "limiting goes on without it"), 0); /* nothing is wrong */
}

static void expect_metric(const struct site *site, const char *name, uint64_t value)
{
    static char metrics[65536];
    char line[100];
    assert_in_range(weir_write_metrics(site->w, metrics, sizeof(metrics)), 1, sizeof(metrics) - 1);
    (void) snprintf(line, sizeof(line), "\n%s %" PRIu64 "\n", name, value);
    if (strstr(metrics, line) == NULL) {
        fail_msg("no line%s", line);
    }
}

/* Takes everything out, and waits until that is noticed. */
static void expect_end(struct site *site, size_t times)
{
    must(&site->server, "DEL weir:overrides");
    expect_entries(site, 0, 0);
    assert_int_equal(lines_with(&site->log, " not read, as"),
                     times); /* one line each time, however many rounds there were */
    assert_int_equal(lines_with(&site->log, "all entries are read again"), times);
    expect_metric(site, "weir_overrides_left_out", 0);
}

static bool is_denied(const struct site *site, const char *key)
{
    const weir_key k = weir_make_key(site->w, weir_find_policy(site->w, "p"), key, strlen(key));
    return !weir_check(site->t, &k, 1, NULL);
}

static void test_of_too_many_entries_ten_thousand_hold_and_no_round_fails(void **state)
{
    (void) state;
    static const char *const scripts[] = {
        "for i = 1, 200000 do redis.call('HSET', KEYS[1], 'p:key' .. 1000000000000 + i, 'deny') end",
        /* The version changes nothing of it. */
        "redis.call('HSET', KEYS[1], 'version', '7') "
        "for i = 1, 30000 do redis.call('HSET', KEYS[1], 'p:key' .. i, 'deny') end"};
    static const uint64_t left_out[] = {190000, 20000};
    struct site site;
    site_open(&site);
    for (size_t i = 0; i < 2; i++) {
        fill(&site.server, scripts[i]);
        expect_entries(&site, 10000, 10000);
        expect_metric(&site, "weir_overrides", 10000);
        expect_metric(&site, "weir_overrides_left_out", left_out[i]);
        char said[32];
        (void) snprintf(said, sizeof(said), ": %" PRIu64 " entries", left_out[i]);
        assert_int_equal(lines_with(&site.log, said), 1);
        expect_end(&site, i + 1);
    }
    site_close(&site);
}

static void test_long_entries_are_left_out_and_the_others_hold(void **state)
{
    (void) state;
    static const char *const scripts[] = {
        "for i = 1, 20 do redis.call('HSET', KEYS[1], 'p:' .. i .. string.rep('x', 600000), 'deny', "
        "'p:' .. i, string.rep('x', 600000)) end",
        "redis.call('HSET', KEYS[1], 'p:long', string.rep('x', 20000000), 'version', string.rep('1', 5000000), "
        "'p:' .. string.rep('x', 4096), 'deny')"};
    struct site site;
    site_open(&site);
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        must(&site.server, "HSET weir:overrides p:a deny p:b 7 p:c deny");
        expect_entries(&site, 3, 3);
        fill(&site.server, scripts[i]);
        const uint64_t until_ns = real_ns() + WAIT_NS;
        while (lines_with(&site.log, "are not read") != i + 1) {
            assert_true(real_ns() < until_ns);
            nap_ms(5);
        }
        expect_entries(&site, 3, 3);
        assert_true(is_denied(&site, "a"));
        assert_true(is_denied(&site, "c"));
        assert_false(is_denied(&site, "d"));
        expect_end(&site, i + 1);
    }
    site_close(&site);
}

static void test_of_many_megabytes_two_are_read(void **state)
{
    (void) state;
    struct site site;
    site_open(&site);
    fill(&site.server, "for i = 1, 6000 do redis.call('HSET', KEYS[1], 'p:' .. i, '7' .. string.rep(' ', 3980)) end");
    expect_entries(&site, (2 << 20) / 4000, (2 << 20) / 3980);
    expect_end(&site, 1);
    site_close(&site);
}

static void test_a_hash_that_is_scanned_in_one_piece_is_cut_all_the_same(void **state)
{
    (void) state;
    struct site site;
    site_open(&site);
    must(&site.server, "CONFIG SET hash-max-ziplist-entries 1000000"); /* 6.2's name, which later ones know as well */
    must(&site.server, "CONFIG SET hash-max-ziplist-value 1000000");
    /* Few: to add one to such a hash Redis goes through all there are. */
    fill(&site.server, "for i = 1, 700 do redis.call('HSET', KEYS[1], 'p:' .. i, '7' .. string.rep(' ', 3980)) end");
    expect_entries(&site, (2 << 20) / 4000, (2 << 20) / 3980);
    expect_metric(&site, "weir_overrides_left_out", 700 - stats_of(site.w).override_count);
    expect_end(&site, 1);
    site_close(&site);
}

static void test_a_user_who_may_not_scan_has_entries_all_the_same(void **state)
{
    (void) state;
    struct site site;
    site_open(&site);
    must(&site.server, "ACL SETUSER default -hscan -hlen -hstrlen");
    must(&site.server, "HSET weir:overrides p:a deny version 1");
    expect_entries(&site, 1, 1);
    assert_true(is_denied(&site, "a"));
    must(&site.server, "HDEL weir:overrides version");
    must(&site.server, "HSET weir:overrides p:b deny");
    expect_entries(&site, 2, 2);
    fill(&site.server, "for i = 1, 30000 do redis.call('HSET', KEYS[1], 'p:' .. i, 'deny') end");
    expect_entries(&site, 10000, 10000);
    expect_end(&site, 1);
    site_close(&site);
}

static long long info_number(const struct server *server, const char *section, const char *field)
{
    redisReply *reply = server_command(server, "INFO %s", section);
    const char *at = strstr(reply->str, field);
    const long long number = at != NULL ? strtoll(at + strlen(field), NULL, 10) : -1;
    freeReplyObject(reply);
    return number;
}

/* Evictions of what expires next begin with records, of which there are more; never with the list of nodes. */
static void test_a_full_redis_that_evicts_what_expires_next_is_not_taken_for_empty(void **state)
{
    (void) state;
    struct site site;
    site_open(&site);
    weir *other = join(&site.server, &site.log, 60 * SECOND);
    weir_thread *t = weir_attach(other);
    must(&site.server, "HSET weir:overrides p:a deny");
    expect_entries(&site, 1, 1);
    char command[100];
    (void) snprintf(command, sizeof(command), "CONFIG SET maxmemory %lld",
                    info_number(&site.server, "memory", "used_memory:") + (2 << 20));
    must(&site.server, "CONFIG SET maxmemory-policy volatile-ttl");
    must(&site.server, command);
    const uint64_t until_ns = real_ns() + WAIT_NS;
    const uint64_t rounds = stats_of(other).sync_count;
    char filler[2000];
    memset(filler, 'x', sizeof(filler));
    uint64_t i = 0;
    while (info_number(&site.server, "stats", "evicted_keys:") < 2000 || stats_of(other).sync_count < rounds + 40) {
        char name[24];
        assert_true(real_ns() < until_ns);
        (void) snprintf(name, sizeof(name), "k%" PRIu64, i % 200);
        const weir_key key = weir_make_key(other, weir_find_policy(other, "p"), name, strlen(name));
        (void) weir_check(t, &key, 100000, NULL);
        /* What others keep there: it lives longer than records do. */
        freeReplyObject(server_command(&site.server, "SET filler:%d %b EX 3600", (int) i, filler, sizeof(filler)));
        i++;
    }
    while (stats_of(site.w).live_nodes != 2 || stats_of(other).live_nodes != 2) {
        assert_true(real_ns() < until_ns);
        nap_ms(5);
    }
    /* Records in use were evicted, which their node has missed; but not all there was. */
    assert_int_equal(stats_of(site.w).redis_lost_state_count, 0);
    assert_int_equal(lines_with(&site.log, "has lost its data"), 0);
    assert_true(is_denied(&site, "a"));
    redisReply *reply = server_command(&site.server, "PTTL weir:nodes");
    assert_true(reply->integer > 23LL * 3600 * 1000);
    freeReplyObject(reply);
    weir_close(other);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_too_many_entries_ten_thousand_hold_and_no_round_fails),
        cmocka_unit_test(test_long_entries_are_left_out_and_the_others_hold),
        cmocka_unit_test(test_of_many_megabytes_two_are_read),
        cmocka_unit_test(test_a_hash_that_is_scanned_in_one_piece_is_cut_all_the_same),
        cmocka_unit_test(test_a_user_who_may_not_scan_has_entries_all_the_same),
        cmocka_unit_test(test_a_full_redis_that_evicts_what_expires_next_is_not_taken_for_empty),
    };
    return cmocka_run_group_tests_name("redis/overrides", tests, NULL, NULL);
}
