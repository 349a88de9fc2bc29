/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that is full, and evicts, with a neighbour that writes 2,000 values a second.
 *
 * With allkeys-lru the nodes evict no more than the neighbour does, also where the nodes' set is lost again and again
 * and they know more keys than Redis has room for; records in use stay. With volatile-ttl they are what goes first, and
 * the nodes say so. A record that is gone is reported again by all that use it.
 *
 * Guards: src/fleet/keys/gather.c, src/fleet/round.c, src/transport/redis/scripts/counts.lua
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/policies.h"
#include "support/server.h"
#include "support/support.h"

#define NODES       3
#define INTERVAL_MS 50
#define PACE        2000  /* values of the neighbour in a second */
#define WRITES      10000 /* that are measured */
#define VALUE_SIZE  200
#define MEMORY      "4000000" /* some 9,000 of these values */
#define COLD_KEYS   12000
#define HOT_KEYS    200
#define PACES_MOST  3
#define TURN_MS     5
#define TURNS_KEPT  20 /* the nodes' set lives for so many turns */
#define PATIENCE_NS (20 * SECOND)

struct site {
    struct server server;
    redisContext *link; /* the neighbour's */
    uint64_t written;   /* by the neighbour */
    bool expires;       /* the neighbour's values: in an hour */
    weir *w[NODES];
    weir_thread *t[NODES];
    weir_policy_id policies[2]; /* the same on each node */
    uint64_t admitted, rng;
    bool loses; /* the nodes' set is lost now and then */
    uint64_t turns;
};

static void site_open(struct site *s, const char *eviction, bool expires)
{
    const char *const arguments[] = {"--maxmemory", MEMORY, "--maxmemory-policy", eviction, NULL};
    memset(s, 0, sizeof(*s));
    s->expires = expires;
    s->rng = test_seed();
    server_init(&s->server);
    s->server.arguments = eviction != NULL ? arguments : NULL;
    server_launch(&s->server);
    s->link = redisConnectUnix(s->server.socket);
    assert_true(s->link != NULL && s->link->err == 0);
}

static void open_nodes(struct site *s, const weir_policy *policies, size_t count)
{
    char url[128];
    server_url(&s->server, false, url, sizeof(url));
    for (int i = 0; i < NODES; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.redis_url = url;
        options.sync_interval_ms = INTERVAL_MS;
        options.redis_timeout_ms = 20000; /* rounds of a busy machine are slow, and none is to fail */
        options.expected_nodes = NODES;
        s->w[i] = open_or_fail(&options);
        weir_error error;
        assert_int_equal(weir_set_policies(s->w[i], policies, count, &error), 0);
        s->t[i] = weir_attach(s->w[i]);
        assert_non_null(s->t[i]);
        for (size_t j = 0; j < count; j++) {
            s->policies[j] = weir_find_policy(s->w[i], policies[j].name);
        }
    }
}

static void site_close(struct site *s)
{
    for (int i = 0; i < NODES && s->w[i] != NULL; i++) {
        weir_detach(s->t[i]);
        weir_close(s->w[i]);
    }
    redisFree(s->link);
    server_stop(&s->server);
}

static weir_stats stats_of(const struct site *s, int node)
{
    weir_stats stats;
    weir_get_stats(s->w[node], &stats);
    return stats;
}

static uint64_t evicted_keys(const struct site *s)
{
    redisReply *reply = server_command(&s->server, "INFO stats");
    const char *at = strstr(reply->str, "evicted_keys:");
    assert_non_null(at);
    const uint64_t evicted = strtoull(at + strlen("evicted_keys:"), NULL, 10);
    freeReplyObject(reply);
    return evicted;
}

static uint64_t count_names(const struct site *s, const char *pattern)
{
    redisReply *reply = server_command(&s->server, "KEYS %s", pattern);
    const uint64_t count = reply->elements;
    freeReplyObject(reply);
    return count;
}

static void write_values(struct site *s, uint64_t count)
{
    static const char value[VALUE_SIZE] = "value";
    for (uint64_t i = 0; i < count; i++) {
        const char *format = s->expires ? "SET neighbour:%llu %b EX 3600" : "SET neighbour:%llu %b";
        (void) redisAppendCommand(s->link, format, (unsigned long long) s->written++, value, sizeof(value));
    }
    for (uint64_t i = 0; i < count; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(s->link, (void **) &reply), REDIS_OK);
        freeReplyObject(reply); /* or refused: some servers are full */
    }
}

static void use(struct site *s, int node, size_t policy, uint64_t name, uint64_t units)
{
    char text[32];
    const int length = snprintf(text, sizeof(text), "key-%" PRIu64, name);
    const weir_key key = weir_make_key(s->w[node], s->policies[policy], text, (size_t) length);
    for (uint64_t i = 0; i < units; i++) {
        s->admitted += weir_check(s->t[node], &key, 1, NULL);
    }
}

/* What is due of the neighbour's values, and a turn of each node's traffic, until so many values are written. */
static void live(struct site *s, uint64_t writes)
{
    const uint64_t begun_ns = real_ns();
    uint64_t done = 0;
    while (done < writes) {
        nap_ms(TURN_MS);
        const uint64_t due = (real_ns() - begun_ns) * PACE / SECOND;
        const uint64_t now = (due < writes ? due : writes) - done;
        write_values(s, now);
        done += now;
        for (int i = 0; i < NODES && s->w[i] != NULL; i++) {
            use(s, i, random_below(&s->rng, 2), random_below(&s->rng, HOT_KEYS), 3);
        }
        if (s->loses && ++s->turns % TURNS_KEPT == 0) {
            freeReplyObject(server_command(&s->server, "DEL weir:nodes"));
        }
    }
}

static uint64_t evicted_by(struct site *s, uint64_t writes)
{
    const uint64_t before = evicted_keys(s);
    live(s, writes);
    return evicted_keys(s) - before;
}

static void fill(struct site *s)
{
    while (evicted_keys(s) == 0) {
        write_values(s, 1000);
    }
}

/* Near their limits, so that each use is reported. */
static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = HOUR},
                                    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 60 * SECOND}};
static const weir_policy policies[] = {{.name = "fixed", .limits = &limits[0], .limit_count = 1},
                                       {.name = "bucket", .limits = &limits[1], .limit_count = 1}};

static void test_nodes_evict_no_more_than_their_neighbour(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct site s;
    site_open(&s, "allkeys-lru", false);
    fill(&s);
    const uint64_t alone = evicted_by(&s, WRITES);
    open_nodes(&s, policies, 2);
    for (uint64_t name = 0; name < COLD_KEYS; name++) {
        use(&s, (int) (name % NODES), 0, HOT_KEYS + name, 1);
    }
    s.loses = true;
    /* The nodes find their pace: each resync is slower than the one before. On a busy machine they come to that later.
     */
    uint64_t beside = UINT64_MAX;
    for (int times = 0; times < PACES_MOST && beside > 2 * alone; times++) {
        live(&s, WRITES);
        beside = evicted_by(&s, WRITES);
    }
    const uint64_t records = count_names(&s, "weir:*:key-?") + count_names(&s, "weir:*:key-??");
    printf("# evicted: %" PRIu64 " by the neighbour alone, %" PRIu64 " beside nodes, who have %" PRIu64
           " records in use\n",
           alone, beside, records);
    assert_in_range(alone, WRITES / 2, 2 * WRITES);
    assert_true(beside <= 2 * alone);
    for (int i = 0; i < NODES; i++) {
        const weir_stats stats = stats_of(&s, i);
        assert_int_equal(stats.sync_error_count, 0);
        assert_true(stats.redis_lost_state_count > 0);
    }
    site_close(&s);
}

/* What has the shortest time to live goes first, and that is what nodes have reported. They miss it. */
static void test_volatile_ttl_evicts_records_first(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    uint64_t records[2];
    for (int ttl = 0; ttl < 2; ttl++) {
        struct site s;
        site_open(&s, ttl != 0 ? "volatile-ttl" : "allkeys-lru", true);
        fill(&s);
        open_nodes(&s, &policies[1], 1);
        for (uint64_t name = 0; name < HOT_KEYS; name++) {
            use(&s, (int) (name % NODES), 0, name, 3);
        }
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        uint64_t lost = 0;
        do {
            for (uint64_t name = 0; name < HOT_KEYS; name++) {
                use(&s, (int) (name % NODES), 0, name, 1);
            }
            write_values(&s, 200);
            nap_ms(INTERVAL_MS);
            lost = stats_of(&s, 0).redis_lost_state_count;
        } while ((s.written < 2 * WRITES || (ttl != 0 && lost == 0)) && real_ns() < until_ns);
        write_values(&s, 2000); /* while no key is used */
        records[ttl] = count_names(&s, "weir:{*}:*");
        assert_true(ttl == 0 || lost != 0);
        assert_int_equal(stats_of(&s, 0).sync_error_count, 0);
        site_close(&s);
    }
    printf("# records of %d keys in use: %" PRIu64 " with allkeys-lru, %" PRIu64 " with volatile-ttl\n", HOT_KEYS,
           records[0], records[1]);
    assert_true(records[0] > records[1]);
}

static uint64_t sum_of(const struct site *s, weir_algorithm algorithm)
{
    return algorithm == WEIR_SLIDING_LOG ? server_log_units(&s->server, "weir:{*}:*:p:key-0")
                                         : server_sum(&s->server, "weir:{*}:*:p:key-0*");
}

static void expect_all_there(const struct site *s, weir_algorithm algorithm)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (sum_of(s, algorithm) != s->admitted && real_ns() < until_ns) {
        nap_ms(INTERVAL_MS);
    }
    assert_int_equal(sum_of(s, algorithm), s->admitted);
}

static void test_a_record_that_is_gone_is_reported_again_by_all_that_use_it(void **state)
{
    const weir_limit *limit = *state;
    if (!server_available()) {
        skip();
    }
    struct site s;
    site_open(&s, NULL, false);
    const weir_policy policy = policy_of(limit);
    open_nodes(&s, &policy, 1);
    for (int times = 0; times < 3; times++) {
        for (int i = 0; i < NODES; i++) {
            use(&s, i, 0, 0, 20);
        }
        expect_all_there(&s, limit->algorithm);
        assert_int_equal(s.admitted, (uint64_t) (20 * NODES * (times + 1)));
        redisReply *names = server_command(&s.server, "KEYS weir:{*}:*key-0*");
        assert_true(names->elements >= 1);
        for (size_t i = 0; i < names->elements && times < 2; i++) {
            freeReplyObject(server_command(&s.server, "DEL %s", names->element[i]->str));
        }
        freeReplyObject(names);
    }
    uint64_t lost = 0;
    for (int i = 0; i < NODES; i++) {
        lost += stats_of(&s, i).redis_lost_state_count;
    }
    assert_true(lost != 0);
    site_close(&s);
}

int main(void)
{
    static weir_limit every[ALGORITHMS];
    for (size_t a = 0; a < ALGORITHMS; a++) {
        every[a] = limit_of(algorithms[a], 3000); /* no node is near its share */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_evict_no_more_than_their_neighbour),
        cmocka_unit_test(test_volatile_ttl_evicts_records_first),
        OVER_ALL(test_a_record_that_is_gone_is_reported_again_by_all_that_use_it, every),
    };
    return cmocka_run_group_tests_name("redis/eviction", tests, NULL, NULL);
}
