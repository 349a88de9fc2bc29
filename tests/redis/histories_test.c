/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The script of sliding logs. Random reports of several authors, repeated, of units given back and of resets, are
 * answered by Redis as by the commands of the fleet in memory, whatever becomes of the hash beside the set. What a
 * report reads of the set does not grow with it. And a backlog of many nodes gets shorter, whatever a round takes.
 *
 * Guards: src/transport/redis/scripts/report_history.lua, src/transport/loopback/commands.lua
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/server.h"
#include "transport/loopback/loopback.h"

#define TIMEOUT_MS 20000
#define AUTHORS    4
#define NOW_US     UINT64_C(1760000000000000)
#define NUMBER     1000000 /* of the first unit: so the names of an author's units sort as their numbers do */
#define LOSSES     5

static const char *const record = "weir:{001}:x:p:log";
static const char *const hash = "weir:{001}:x?p:log";

struct author {
    uint64_t first, end; /* units reported */
    uint64_t demand;
};

struct logs {
    struct server server;
    struct transport *redis, *memory;
    struct loopback_fleet *fleet;
    uint64_t rng, now_us, period_us, limit, reset_us;
    struct author authors[AUTHORS];
    bool asked_lost; /* what the authors were asked for is another sum in Redis now */
};

static void logs_start(struct logs *l, uint64_t limit, uint64_t period_us)
{
    if (!server_available()) {
        skip();
    }
    memset(l, 0, sizeof(*l));
    l->rng = test_seed();
    server_start(&l->server);
    char url[160];
    server_url(&l->server, false, url, sizeof(url));
    l->redis = open_redis(url, TIMEOUT_MS);
    l->fleet = loopback_fleet_new(real_wall_ns, NULL);
    assert_non_null(l->fleet);
    const struct transport_config config = {.timeout_ms = 1000};
    assert_int_equal(loopback_transport_open(l->fleet, &config, &l->memory, NULL), 0);
    l->now_us = NOW_US;
    l->limit = limit;
    l->period_us = period_us;
    for (int i = 0; i < AUTHORS; i++) {
        l->authors[i].first = l->authors[i].end = NUMBER;
    }
}

static void logs_stop(struct logs *l)
{
    l->memory->ops->close(l->memory);
    loopback_fleet_free(l->fleet);
    l->redis->ops->close(l->redis);
    server_stop(&l->server);
}

static void say(struct logs *l, const char *format, const char *name)
{
    freeReplyObject(server_command(&l->server, format, name));
}

/* A report of `count` new units, none of which has the time of another author's. */
static void report_by(struct logs *l, int by, uint32_t count, struct report *r, struct history_report *history)
{
    struct author *author = &l->authors[by];
    *r = (struct report){.kind = REPORT_HISTORY, .history = history, .expire_ms = 600000};
    memset(history, 0, sizeof(*history));
    (void) snprintf(r->record, sizeof(r->record), "%s", record);
    (void) snprintf(history->demand_record, sizeof(history->demand_record), "%s", hash);
    (void) snprintf(r->author, sizeof(r->author), "%c%x", 255 - (int) by, by); /* as other bytes as real names have */
    history->first = author->end;
    history->time_count = count;
    uint64_t time_us = l->now_us / AUTHORS * AUTHORS + (uint64_t) by;
    for (uint32_t i = 0; i < count; i++) {
        history->times_us[i] = time_us;
        time_us += random_below(&l->rng, 3) == 0 ? AUTHORS * random_below(&l->rng, 10) : 0;
    }
    author->end += count;
    author->demand += count + random_below(&l->rng, 5);
    r->demand = author->demand;
    r->count = author->end;
    l->now_us = time_us + 1;
    history->now_us = l->now_us;
    history->period_us = l->period_us;
    history->limit = l->limit;
}

static void expect_alike(const struct logs *l, const struct report *redis, const struct report *memory, size_t step)
{
    bool alike = redis->status == memory->status && redis->author_count == memory->author_count &&
                 redis->sum == memory->sum && redis->history->group_count == memory->history->group_count;
    for (uint32_t i = 0; i < redis->history->group_count && alike; i++) {
        alike = redis->history->groups[i].time_ns == memory->history->groups[i].time_ns &&
                redis->history->groups[i].units == memory->history->groups[i].units;
    }
    if (!l->asked_lost) {
        alike = alike && redis->sum_demand == memory->sum_demand &&
                redis->history->other_authors == memory->history->other_authors;
    }
    if (!alike) {
        fail_msg("step %zu: redis says %d, %" PRIu64 " of %" PRIu64 " in %" PRIu32 " groups, asked %" PRIu64
                 " of %" PRIu32 "; in memory %d, %" PRIu64 " of %" PRIu64 " in %" PRIu32 " groups, asked %" PRIu64
                 " of %" PRIu32,
                 step, redis->status, redis->author_count, redis->sum, redis->history->group_count, redis->sum_demand,
                 redis->history->other_authors, memory->status, memory->author_count, memory->sum,
                 memory->history->group_count, memory->sum_demand, memory->history->other_authors);
    }
}

/* Reports to both, and compares. */
static void tell(struct logs *l, const struct report *r, size_t step)
{
    struct history_report histories[2] = {*r->history, *r->history};
    struct report ours = *r;
    struct report theirs = *r;
    ours.history = &histories[0];
    theirs.history = &histories[1];
    struct round round = {.reports = &ours, .report_count = 1, .node = "n1", .node_lifetime_ms = 60000};
    if (exchange(l->redis, &round) != TRANSPORT_ROUND_DONE) {
        fail_msg("step %zu: %s", step, l->redis->ops->problem(l->redis));
    }
    round.reports = &theirs;
    assert_int_equal(exchange(l->memory, &round), TRANSPORT_ROUND_DONE);
    expect_alike(l, &ours, &theirs, step);
}

/* What may become of the hash: it stays, is lost, or is overwritten. */
static void spoil(struct logs *l, uint64_t how)
{
    static const char *const commands[LOSSES] = {"DEL %s", "HSET %s 000000000001.1 x",
                                                 "HSET %s 000000000002.1 7,1760000000000000,123456789",
                                                 "HINCRBY %s 000000000000.1 1", "HDEL %s 000000000003.1"};
    say(l, commands[how], hash);
    l->asked_lost = true;
}

static void random_reports(uint64_t limit, uint64_t period_us, bool spoils)
{
    static struct logs l;
    static struct history_report last;
    struct report repeated = {0};
    logs_start(&l, limit, period_us);
    for (size_t step = 0; step < 400; step++) {
        struct report r;
        struct history_report history;
        const int by = (int) random_below(&l.rng, AUTHORS);
        const uint64_t most = random_below(&l.rng, 8) == 0 ? REPORT_HISTORY_TIMES : 6;
        struct author *author = &l.authors[by];
        l.now_us += random_below(&l.rng, random_below(&l.rng, 30) == 0 ? 2 * period_us : period_us / 20 + 2);
        const uint64_t refunds =
            random_below(&l.rng, 6) == 0 ? random_below(&l.rng, author->end - author->first + 1) : 0;
        if (refunds != 0 && refunds < 20) {
            /* The latest units were refunded, and are not used again here. */
            report_by(&l, by, 0, &r, &history);
            author->end -= refunds;
            history.refund_from = author->end;
            history.refund_to = author->end + refunds;
            tell(&l, &r, step);
            continue;
        }
        report_by(&l, by, (uint32_t) random_below(&l.rng, most + 1), &r, &history);
        if (random_below(&l.rng, 25) == 0) {
            r.reset_us = l.now_us - random_below(&l.rng, period_us / 4 + 1);
        }
        if (spoils && random_below(&l.rng, 6) == 0) {
            spoil(&l, random_below(&l.rng, LOSSES));
        }
        tell(&l, &r, step);
        if (repeated.history != NULL && random_below(&l.rng, 5) == 0) {
            last.now_us = l.now_us;
            tell(&l, &repeated, step); /* late, and once more */
        }
        last = history;
        repeated = r;
        repeated.history = &last;
        /* Refunded units are no longer reported, so no report of them is repeated. */
        author->first = author->end;
    }
    logs_stop(&l);
}

static void test_random_reports_are_answered_as_in_memory(void **state)
{
    (void) state;
    random_reports(5, 1000000, false);
    random_reports(200, 1000000, false);
    random_reports(3000, 60000000, false);
}

static void test_what_becomes_of_the_hash_changes_no_count(void **state)
{
    (void) state;
    random_reports(5, 1000000, true);
    random_reports(200, 1000000, true);
    random_reports(3000, 60000000, true);
}

/* Members that a report's commands have read of the set, by what MONITOR shows: "ZRANGE" "key" "from" "to". */
static uint64_t members_read(redisContext *monitor, uint64_t units)
{
    uint64_t sum = 0;
    for (;;) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(monitor, (void **) &reply), REDIS_OK);
        const char *range = strstr(reply->str, "\"ZRANGE\" \"weir:{001}:x:p:log\"");
        const bool end = strstr(reply->str, "the end") != NULL;
        if (range != NULL) {
            long long from;
            long long to;
            assert_int_equal(sscanf(range, "\"ZRANGE\" \"%*[^\"]\" \"%lld\" \"%lld\"", &from, &to), 2);
            sum += to < 0 ? units : (uint64_t) (to - from + 1);
        }
        freeReplyObject(reply);
        if (end) {
            return sum;
        }
    }
}

/* Units of a log: many times what a report reads. */
#define LONG_LOG (SANITIZED ? 5000 : 20000)

static void test_what_a_report_reads_does_not_grow_with_the_log(void **state)
{
    (void) state;
    static struct logs l;
    logs_start(&l, LONG_LOG, 3600000000);
    struct report r;
    struct history_report history;
    for (size_t step = 0; step <= LONG_LOG / REPORT_HISTORY_TIMES + 1; step++) {
        report_by(&l, (int) step % AUTHORS, REPORT_HISTORY_TIMES, &r, &history);
        tell(&l, &r, step); /* more units than the limit: the last of these reports have the set trimmed */
    }
    redisContext *monitor = redisConnectUnix(l.server.socket);
    assert_non_null(monitor);
    freeReplyObject(redisCommand(monitor, "MONITOR"));
    for (size_t step = 0; step < 20; step++) {
        report_by(&l, (int) step % AUTHORS, 3, &r, &history);
        tell(&l, &r, step);
        say(&l, "ECHO %s", "the end");
        const uint64_t read = members_read(monitor, LONG_LOG);
        assert_in_range(read, HISTORY_GROUPS,
                        2 * HISTORY_GROUPS + 3); /* two for a group, and those that were taken out */
    }
    redisFree(monitor);
    logs_stop(&l);
}

#define DRAIN_WEIRS 6
#define DRAIN_LOGS  40
#define DRAIN_UNITS 3000 /* of a log */
#define DRAIN_MS    30000

/*
 * Many nodes report many units of many logs at once to a Redis that has lost all of them, and each waits 200 ms for an
 * answer. The time of the scripts must not make rounds fail: a round that failed is sent again from the beginning, so
 * the backlog would not get shorter.
 */
static void test_logs_that_were_lost_are_told_again_within_seconds(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 2 * DRAIN_UNITS, .period_ns = 366 * 24 * HOUR};
    const weir_policy policy = {.name = "log", .limits = &limit, .limit_count = 1};
    struct server server;
    weir *w[DRAIN_WEIRS];
    server_start(&server);
    char url[160];
    server_url(&server, false, url, sizeof(url));
    for (int i = 0; i < DRAIN_WEIRS; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.redis_url = url;
        options.sync_interval_ms = 200;
        options.redis_timeout_ms = 200;
        options.max_log_units = UINT64_C(1) << 20;
        w[i] = open_or_fail(&options);
        weir_error error;
        assert_int_equal(weir_set_policies(w[i], &policy, 1, &error), 0);
        weir_thread *t = weir_attach(w[i]);
        for (int k = 0; k < DRAIN_LOGS; k++) {
            char text[24];
            (void) snprintf(text, sizeof(text), "key%d", k);
            const weir_key key = weir_make_key(w[i], weir_find_policy(w[i], "log"), text, strlen(text));
            for (int unit = 0; unit < DRAIN_UNITS / DRAIN_WEIRS; unit++) {
                weir_charge(t, &key, 1);
            }
        }
        weir_detach(t);
    }
    static const char *const after[] = {"PING", "FLUSHALL"};
    for (size_t step = 0; step < 2; step++) {
        freeReplyObject(server_command(&server, after[step]));
        uint64_t units = 0;
        for (int waited = 0; waited < DRAIN_MS && units != DRAIN_LOGS * DRAIN_UNITS; waited += 200) {
            nap_ms(200);
            units = server_log_units(&server, "weir:*:log:*");
        }
        assert_int_equal(units, DRAIN_LOGS * DRAIN_UNITS);
    }
    for (int i = 0; i < DRAIN_WEIRS; i++) {
        weir_close(w[i]);
    }
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_reports_are_answered_as_in_memory),
        cmocka_unit_test(test_what_becomes_of_the_hash_changes_no_count),
        cmocka_unit_test(test_what_a_report_reads_does_not_grow_with_the_log),
        cmocka_unit_test(test_logs_that_were_lost_are_told_again_within_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
