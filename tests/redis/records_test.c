/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in a real Redis: after quiet, the sum of every record is what the nodes let pass and charged, less what
 * was given back, and the set of a log is its live units; whatever Redis has lost in between. And what an operator
 * writes there: entries of single keys.
 *
 * Guards: src/fleet/keys/report.c, src/fleet/keys/merge.c, src/transport/redis/scripts/report_window.lua,
 * src/transport/redis/scripts/report_bucket.lua, src/transport/redis/scripts/report_history.lua,
 * src/transport/redis/scripts/overrides.lua, src/base/digits.h
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server.h"
#include "support/support.h"

#define WEIRS       3
#define THREADS     2
#define KEYS        10
#define KINDS       5
#define LOG         2
#define INTERVAL_MS 50
#define TIMEOUT_MS  20000 /* a round that takes long on a busy machine is not what is tried here */
#define GRACE_MS    60000 /* and is no outage */
#define WAIT_NS     (60 * SECOND)
#define CLOCKS_MS   500 /* the nodes' clocks agree to within a round trip, which is long on a busy machine */
#define LONG_NS     (366 * 24 * HOUR)

/* Costs are mostly 1, and at most a packet. Those of logs are small: a log is not charged past its limit here. */
#define COST_MOST 100

/* So long that nothing refills, and no unit leaves its window, while a test lasts. */
static const weir_limit limits[KINDS] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = LONG_NS},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000000, .period_ns = LONG_NS},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 20000, .period_ns = LONG_NS},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000000, .period_ns = LONG_NS},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 1000000, .period_ns = LONG_NS, .delay = 1000000},
};
static const char *const names[KINDS] = {"fixed", "sliding", "log", "token", "leaky"};

struct site {
    struct server server;
    weir *w[WEIRS];
    weir_thread *t[WEIRS]; /* the test's own */
};

static weir *connect_weir(const struct server *server, const weir_policy *policies, size_t count, uint32_t interval_ms)
{
    char url[160];
    server_url(server, false, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = interval_ms;
    options.redis_timeout_ms = TIMEOUT_MS;
    weir *w = open_or_fail(&options);
    weir_error error;
    if (weir_set_policies(w, policies, count, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

static void site_open_with(struct site *site, const weir_policy *policies, size_t count, uint32_t interval_ms)
{
    server_start(&site->server);
    for (int i = 0; i < WEIRS; i++) {
        site->w[i] = connect_weir(&site->server, policies, count, interval_ms);
        site->t[i] = weir_attach(site->w[i]);
    }
    for (int i = 0; i < WEIRS; i++) {
        assert_int_equal(weir_sync(site->w[i], 60000), 0);
    }
}

static void site_open(struct site *site)
{
    weir_policy policies[KINDS];
    for (size_t k = 0; k < KINDS; k++) {
        policies[k] = (weir_policy){.name = names[k],
                                    .limits = &limits[k],
                                    .limit_count = 1,
                                    .on_outage = WEIR_OUTAGE_LOCAL,
                                    .outage_grace_ms = GRACE_MS};
    }
    site_open_with(site, policies, KINDS, INTERVAL_MS);
}

static void site_close(struct site *site)
{
    for (int i = 0; i < WEIRS; i++) {
        weir_close(site->w[i]);
    }
    server_stop(&site->server);
}

/* Twice: the first may still learn that Redis has lost everything. */
static void quiet(struct site *site)
{
    for (int i = 0; i < 2 * WEIRS; i++) {
        assert_int_equal(weir_sync(site->w[i % WEIRS], 60000), 0);
    }
}

static weir_key key_of(const weir *w, const char *policy, const char *text)
{
    const weir_policy_id id = weir_find_policy(w, policy);
    assert_int_not_equal(id, WEIR_NO_POLICY);
    return weir_make_key(w, id, text, strlen(text));
}

/* So many requests of the most units there can be are more than 2^63 units. ThreadSanitizer takes a minute for them. */
#ifdef __SANITIZE_THREAD__
#define MANY_DENIALS 22000
#else
#define MANY_DENIALS 2200000
#endif

/*
 * A limit of 10^12 (bytes), all used; other nodes are denied that much some thousand times over. The limit stays used,
 * also for a node that joins then, and no round fails, however much was denied.
 */
static void test_what_is_denied_a_thousand_times_over_gives_no_fresh_budget(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static const weir_algorithm kinds[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET};
    const uint64_t limit = 1000000000000;
    for (size_t a = 0; a < 2; a++) {
        const weir_limit of = {.algorithm = kinds[a], .limit = limit, .period_ns = LONG_NS};
        const weir_policy policy = {.name = "bytes", .limits = &of, .limit_count = 1, .outage_grace_ms = GRACE_MS};
        struct site site;
        site_open_with(&site, &policy, 1, INTERVAL_MS);
        const weir_key used = key_of(site.w[0], "bytes", "key");
        const weir_key denied = key_of(site.w[1], "bytes", "key");
        weir_charge(site.t[0], &used, limit);
        quiet(&site);
        (void) weir_check(site.t[1], &denied, limit, NULL); /* from here on it hears of the key */
        nap_ms(6 * INTERVAL_MS);
        for (int times = 0; times < 9200; times++) {
            assert_false(weir_check(site.t[1], &denied, limit, NULL));
        }
        quiet(&site);
        for (int times = 0; times < MANY_DENIALS; times++) {
            (void) weir_check(site.t[1], &denied, WEIR_MAX_UNITS, NULL);
        }
        quiet(&site);
        weir *joins = connect_weir(&site.server, &policy, 1, INTERVAL_MS);
        weir_thread *t = weir_attach(joins);
        const weir_key key = key_of(joins, "bytes", "key");
        assert_int_equal(weir_sync(joins, 60000), 0);
        /* From its first check on it wants to know. */
        const uint64_t until_ns = real_ns() + WAIT_NS;
        while (weir_check(t, &key, 1, NULL)) {
            if (real_ns() > until_ns) {
                fail_msg("%s: a node that joins has a fresh budget", a == 0 ? "window" : "bucket");
            }
            nap_ms(10);
        }
        uint64_t taken = 0;
        for (int i = 0; i < 1000; i++) {
            taken += weir_check(t, &key, limit / 1000, NULL) ? limit / 1000 : 0;
        }
        if (taken != 0) {
            fail_msg("%s: %" PRIu64 " units passed that were used up", a == 0 ? "window" : "bucket", taken);
        }
        for (int i = 0; i < WEIRS; i++) {
            weir_stats stats;
            weir_get_stats(site.w[i], &stats);
            assert_int_equal(stats.sync_error_count, 0);
            assert_int_equal(stats.redis_lost_state_count, 0);
        }
        weir_close(joins);
        site_close(&site);
    }
}

/* The one record whose name matches. */
static void record_name(const struct server *server, const char *pattern, char name[400])
{
    redisReply *keys = server_command(server, "KEYS %s", pattern);
    assert_int_equal(keys->elements, 1);
    (void) snprintf(name, 400, "%s", keys->element[0]->str);
    freeReplyObject(keys);
}

static uint64_t units_of(const struct server *server, size_t kind)
{
    char pattern[64];
    (void) snprintf(pattern, sizeof(pattern), "weir:*:%s:*", names[kind]);
    return kind == LOG ? server_log_units(server, pattern) : server_sum(server, pattern);
}

static void all_but_overrides_expire(const struct server *server)
{
    redisReply *keys = server_command(server, "KEYS *");
    assert_true(keys->elements > 1);
    for (size_t i = 0; i < keys->elements; i++) {
        const char *name = keys->element[i]->str;
        const long long ttl_ms = server_number(server, "PTTL %s", name);
        if (strcmp(name, "weir:overrides") != 0 && ttl_ms <= 0) {
            fail_msg("%s stays for ever", name);
        }
    }
    freeReplyObject(keys);
}

/* A thread that does some of everything, and gives back no more than it has. */
struct worker {
    const weir *w;
    weir_thread *t;
    uint64_t seed;
    uint64_t used[KINDS];
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    uint64_t rng = worker->seed;
    uint64_t mine[KINDS][KEYS] = {{0}};
    weir_key keys[KINDS][KEYS];
    static const char texts[KEYS][4] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < KEYS; i++) {
            keys[k][i] = weir_make_key(worker->w, weir_find_policy(worker->w, names[k]), texts[i], 2);
        }
    }
    for (int times = 0; times < 10000; times++) {
        const size_t k = random_below(&rng, KINDS);
        const size_t i = random_below(&rng, 2) == 0 ? 0 : random_below(&rng, KEYS);
        const uint64_t cost = k == LOG ? draw_between(&rng, 1, 3) : draw_cost(&rng, COST_MOST);
        switch (random_below(&rng, 8)) {
        case 0:
            weir_charge(worker->t, &keys[k][i], cost);
            mine[k][i] += cost;
            break;
        case 1:
        case 2:
        case 3:
            if (mine[k][i] >= cost) {
                weir_refund(worker->t, &keys[k][i], cost);
                mine[k][i] -= cost;
            }
            break;
        default:
            mine[k][i] += weir_check(worker->t, &keys[k][i], cost, NULL) ? cost : 0;
            break;
        }
        if (times % 100 == 0) {
            nap_ms(1);
        }
    }
    for (size_t k = 0; k < KINDS; k++) {
        worker->used[k] = 0;
        for (size_t i = 0; i < KEYS; i++) {
            worker->used[k] += mine[k][i];
        }
    }
    return NULL;
}

/* Lets all threads work for a while, and adds up what they used. */
static void work_all(struct site *site, uint64_t seed, uint64_t used[KINDS], void (*meanwhile)(struct site *site))
{
    struct worker workers[WEIRS * THREADS];
    pthread_t threads[WEIRS * THREADS];
    for (size_t i = 0; i < WEIRS * THREADS; i++) {
        weir *w = site->w[i % WEIRS];
        workers[i] = (struct worker){.w = w, .t = weir_attach(w), .seed = seed + i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    if (meanwhile != NULL) {
        meanwhile(site);
    }
    for (size_t i = 0; i < WEIRS * THREADS; i++) {
        (void) pthread_join(threads[i], NULL);
        weir_detach(workers[i].t);
        for (size_t k = 0; k < KINDS; k++) {
            used[k] += workers[i].used[k];
        }
    }
}

static void expect_units(const struct site *site, const uint64_t used[KINDS])
{
    for (size_t k = 0; k < KINDS; k++) {
        assert_true(used[k] > 100);
        const uint64_t there = units_of(&site->server, k);
        if (there != used[k]) {
            fail_msg("%s: %" PRIu64 " in redis, %" PRIu64 " were used", names[k], there, used[k]);
        }
    }
}

static void test_after_quiet_redis_has_what_was_used_less_what_was_given_back(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    uint64_t used[KINDS] = {0};
    site_open(&site);
    work_all(&site, test_seed(), used, NULL);
    quiet(&site);
    expect_units(&site, used);
    all_but_overrides_expire(&site.server);
    freeReplyObject(server_command(&site.server, "FLUSHALL"));
    quiet(&site); /* and no node has used a unit since */
    expect_units(&site, used);
    all_but_overrides_expire(&site.server);
    site_close(&site);
}

static void full_sync(struct site *site)
{
    for (int times = 0; times < 2; times++) {
        nap_ms(60);
        freeReplyObject(server_command(&site->server, "FLUSHALL"));
    }
}

static void test_units_are_whole_after_redis_was_flushed_in_the_middle(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    uint64_t used[KINDS] = {0};
    site_open(&site);
    work_all(&site, test_seed(), used, full_sync);
    quiet(&site);
    expect_units(&site, used);
    site_close(&site);
}

/* Waits until a node's key has room for so many units. */
static void wait_for_room(const struct site *site, int i, uint64_t units)
{
    const weir_key key = key_of(site->w[i], "p", "key");
    const uint64_t until_ns = real_ns() + WAIT_NS;
    weir_verdict v;
    do {
        nap_ms(10);
        (void) weir_peek(site->t[i], &key, 1, &v);
    } while (v.remaining != units && real_ns() < until_ns);
    assert_int_equal(v.remaining, units);
}

/* Asks for single units until one is denied. */
static uint64_t take_all(weir_thread *t, const weir_key *key)
{
    uint64_t units = 0;
    while (weir_check(t, key, 1, NULL)) {
        units++;
    }
    return units;
}

static void test_the_set_of_a_log_is_trimmed_and_expires(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 500, .period_ns = 2 * SECOND};
    const weir_policy policy = {
        .name = "p", .limits = &limit, .limit_count = 1, .on_outage = WEIR_OUTAGE_LOCAL, .outage_grace_ms = 100};
    char name[400];
    site_open_with(&site, &policy, 1, INTERVAL_MS);
    server_pause(&site.server);
    for (int i = 0; i < WEIRS; i++) {
        wait_for_room(&site, i, 500); /* all are alone, and let 500 pass */
    }
    const uint64_t begun_ns = real_ns();
    for (int i = 0; i < WEIRS; i++) {
        const weir_key key = key_of(site.w[i], "p", "key");
        const uint64_t taken = take_all(site.t[i], &key);
        assert_true(taken == 500 || (taken > 500 && real_ns() - begun_ns > limit.period_ns));
    }
    server_resume(&site.server);
    quiet(&site);
    if (real_ns() - begun_ns < SECOND) {
        record_name(&site.server, "weir:*:p:key", name);
        assert_int_equal(server_number(&site.server, "ZCARD %s", name), 500);
        assert_in_range(server_number(&site.server, "PTTL %s", name), 1, 3000);
    }
    const weir_key key = key_of(site.w[0], "p", "key");
    uint64_t asked_ns;
    long long there;
    do { /* once more where the machine stood still until the units had left the log again */
        nap_ms((long) (limit.period_ns / MILLISECOND) + CLOCKS_MS);
        asked_ns = real_ns();
        assert_true(weir_check(site.t[0], &key, 7, NULL));
        quiet(&site);
        record_name(&site.server, "weir:*:p:key", name);
        there = server_number(&site.server, "ZCARD %s", name);
    } while (real_ns() - asked_ns >= limit.period_ns);
    assert_int_equal(there, 7);
    site_close(&site);
}

static void expect_kind(const struct site *site, size_t kind, uint64_t units)
{
    const uint64_t there = units_of(&site->server, kind);
    if (there != units) {
        fail_msg("%s: %" PRIu64 " in redis and not %" PRIu64, names[kind], there, units);
    }
}

/* A request that passes. */
static void take(const struct site *site, int i, size_t kind, const weir_key *key, uint64_t cost)
{
    if (!weir_check(site->t[i], key, cost, NULL)) {
        fail_msg("%s: weir %d denies %" PRIu64 " units", names[kind], i, cost);
    }
}

static void reset(const struct site *site, int i, size_t kind, const weir_key *key)
{
    const int result = weir_reset(site->w[i], key);
    if (result != 0) {
        fail_msg("%s: the reset says %d", names[kind], result);
    }
}

static void take_everywhere(struct site *site, size_t kind, const char *text, uint64_t cost)
{
    for (int i = 0; i < WEIRS; i++) {
        const weir_key key = key_of(site->w[i], names[kind], text);
        take(site, i, kind, &key, cost);
    }
}

static void test_a_reset_clears_the_records_of_a_key_and_of_no_other(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    site_open(&site);
    for (size_t k = 0; k < KINDS; k++) {
        take_everywhere(&site, k, "key", 40);
        take_everywhere(&site, k, "other", 4);
    }
    quiet(&site);
    for (size_t k = 0; k < KINDS; k++) {
        const weir_key key = key_of(site.w[1], names[k], "key");
        expect_kind(&site, k, 132);
        reset(&site, 1, k, &key);
        expect_kind(&site, k, 12);
        nap_ms(CLOCKS_MS);
        take_everywhere(&site, k, "key", 1);
        quiet(&site);
        expect_kind(&site, k, 15);
        const weir_key there = key_of(site.w[2], names[k], "key");
        weir_verdict v;
        (void) weir_peek(site.t[2], &there, 1, &v);
        /* Three units were used; of the rest some are left to the other nodes, which ask as well. */
        if (v.remaining < limits[k].limit / WEIRS / 2 || v.remaining >= limits[k].limit) {
            fail_msg("%s: %" PRIu64 " are left of %" PRIu64, names[k], v.remaining, limits[k].limit);
        }
    }
    all_but_overrides_expire(&site.server);
    freeReplyObject(server_command(&site.server, "FLUSHALL"));
    quiet(&site);
    for (size_t k = 0; k < KINDS; k++) {
        expect_kind(&site, k, 15);
    }
    site_close(&site);
}

static void test_units_a_node_uses_right_after_its_reset_stay(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    site_open(&site);
    for (size_t k = 0; k < KINDS; k++) {
        const weir_key key = key_of(site.w[0], names[k], "key");
        for (int times = 0; times < 50; times++) {
            take(&site, 0, k, &key, 2);
            reset(&site, 0, k, &key);
            take(&site, 0, k, &key, 1);
            assert_int_equal(weir_sync(site.w[0], 60000), 0);
            expect_kind(&site, k, 1);
        }
    }
    site_close(&site);
}

static void test_a_record_of_a_wrong_type_is_refused_alone(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    char name[400];
    site_open(&site);
    for (size_t k = 0; k < KINDS; k++) {
        const weir_key key = key_of(site.w[0], names[k], "key");
        take(&site, 0, k, &key, 5);
    }
    quiet(&site);
    record_name(&site.server, "weir:*:log:key", name);
    freeReplyObject(server_command(&site.server, "SET %s nonsense", name));
    freeReplyObject(server_command(&site.server, "SET weir:overrides nonsense"));
    weir_stats before;
    weir_get_stats(site.w[0], &before);
    for (size_t k = 0; k < KINDS; k++) {
        const weir_key key = key_of(site.w[0], names[k], "key");
        const weir_key other = key_of(site.w[0], names[k], "other");
        take(&site, 0, k, &key, 5);
        take(&site, 0, k, &other, 3);
    }
    quiet(&site);
    weir_stats after;
    weir_get_stats(site.w[0], &after);
    assert_true(after.rejected_report_count > before.rejected_report_count);
    assert_int_equal(after.sync_error_count, before.sync_error_count);
    for (size_t k = 0; k < KINDS; k++) {
        if (k != LOG) {
            expect_kind(&site, k, 13);
        }
    }
    assert_int_equal(server_log_units(&site.server, "weir:*:log:other"), 3);
    freeReplyObject(server_command(&site.server, "DEL %s weir:overrides", name));
    const weir_key key = key_of(site.w[0], "log", "key");
    assert_true(weir_check(site.t[0], &key, 1, NULL)); /* it says so with its next report */
    quiet(&site);
    assert_int_equal(server_log_units(&site.server, "weir:*:log:key"), 11);
    site_close(&site);
}

static uint64_t limit_seen(const struct site *site, int i)
{
    const weir_key key = key_of(site->w[i], "p", "key");
    weir_verdict v;
    (void) weir_peek(site->t[i], &key, 1, &v);
    return v.limit;
}

static uint64_t rounds_of(const struct site *site, int i)
{
    weir_stats stats;
    weir_get_stats(site->w[i], &stats);
    return stats.sync_count;
}

/*
 * Waits until the key has this limit on every weir. A weir that does not have it after so many rounds more will not get
 * it, however slow the machine is; `within` 0: however many rounds that takes.
 */
static void wait_for_limit(const struct site *site, uint64_t limit, uint64_t within)
{
    const uint64_t until_ns = real_ns() + WAIT_NS;
    for (int i = 0; i < WEIRS; i++) {
        const uint64_t first = rounds_of(site, i);
        for (;;) {
            const uint64_t rounds = rounds_of(site, i) - first;
            const uint64_t seen = limit_seen(site, i);
            if (seen == limit) {
                break;
            }
            if ((within != 0 && rounds > within) || real_ns() > until_ns) {
                fail_msg("weir %d has %" PRIu64 " and not %" PRIu64 " after %" PRIu64 " rounds", i, seen, limit,
                         rounds);
            }
            nap_ms(1);
        }
    }
}

static const weir_limit limit_300 = {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = LONG_NS};
static const weir_policy policy_300 = {
    .name = "p", .limits = &limit_300, .limit_count = 1, .outage_grace_ms = GRACE_MS};

/* One round may be under way when an entry is written. The one after it reads the entry, and is due in an interval. */
#define ROUNDS_MOST 2

static void test_entries_written_by_hand_are_in_force_within_two_intervals(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    site_open_with(&site, &policy_300, 1, INTERVAL_MS);
    assert_int_equal(limit_seen(&site, 0), 300);
    freeReplyObject(server_command(&site.server, "HSET weir:overrides p:key 200 p:other deny p:%s 1", "bad%"));
    wait_for_limit(&site, 200, ROUNDS_MOST);
    for (int i = 0; i < WEIRS; i++) {
        const weir_key other = key_of(site.w[i], "p", "other");
        assert_false(weir_check(site.t[i], &other, 1, NULL));
        weir_stats stats;
        weir_get_stats(site.w[i], &stats);
        assert_int_equal(stats.override_count, 2);
    }
    freeReplyObject(server_command(&site.server, "HSET weir:overrides p:key 250"));
    wait_for_limit(&site, 250, ROUNDS_MOST);
    assert_int_equal(server_number(&site.server, "PTTL %s", "weir:overrides"), -1); /* the operator's, and stays */
    all_but_overrides_expire(&site.server);
    freeReplyObject(server_command(&site.server, "DEL weir:overrides"));
    wait_for_limit(&site, 300, ROUNDS_MOST);
    for (int i = 0; i < WEIRS; i++) {
        const weir_key other = key_of(site.w[i], "p", "other");
        assert_true(weir_check(site.t[i], &other, 1, NULL));
    }
    site_close(&site);
}

static void test_entries_with_a_version_are_read_when_that_changes(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site site;
    site_open_with(&site, &policy_300, 1, INTERVAL_MS);
    freeReplyObject(server_command(&site.server, "HSET weir:overrides version 1 p:key 200"));
    wait_for_limit(&site, 200, 0);
    weir_stats stats;
    weir_get_stats(site.w[0], &stats);
    assert_int_equal(stats.override_count, 1); /* the version is no entry */
    freeReplyObject(server_command(&site.server, "HSET weir:overrides p:key 100"));
    for (int times = 0; times < 3; times++) {
        quiet(&site);
    }
    for (int i = 0; i < WEIRS; i++) {
        assert_int_equal(limit_seen(&site, i), 200);
    }
    freeReplyObject(server_command(&site.server, "HSET weir:overrides version 2"));
    wait_for_limit(&site, 100, 0);
    freeReplyObject(server_command(&site.server, "HDEL weir:overrides version"));
    freeReplyObject(server_command(&site.server, "HSET weir:overrides p:key 50"));
    wait_for_limit(&site, 50, 0);
    freeReplyObject(server_command(&site.server, "SET weir:overrides nonsense")); /* none, then */
    wait_for_limit(&site, 300, 0);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_denied_a_thousand_times_over_gives_no_fresh_budget),
        cmocka_unit_test(test_after_quiet_redis_has_what_was_used_less_what_was_given_back),
        cmocka_unit_test(test_units_are_whole_after_redis_was_flushed_in_the_middle),
        cmocka_unit_test(test_the_set_of_a_log_is_trimmed_and_expires),
        cmocka_unit_test(test_a_reset_clears_the_records_of_a_key_and_of_no_other),
        cmocka_unit_test(test_units_a_node_uses_right_after_its_reset_stay),
        cmocka_unit_test(test_a_record_of_a_wrong_type_is_refused_alone),
        cmocka_unit_test(test_entries_written_by_hand_are_in_force_within_two_intervals),
        cmocka_unit_test(test_entries_with_a_version_are_read_when_that_changes),
    };
    return cmocka_run_group_tests_name("redis/records", tests, NULL, NULL);
}
