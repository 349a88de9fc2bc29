/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What another program may write into weir's records, field by field: the value costs that record, or nothing, and
 * never a round nor another record of one call. Also values in the set of nodes.
 *
 * Guards: src/transport/redis/answer.c, src/transport/redis/scripts/report_window.lua,
 * src/transport/redis/scripts/report_bucket.lua, src/transport/redis/scripts/report_history.lua,
 * src/transport/redis/scripts/heartbeat.lua
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/exchange.h"
#include "support/server.h"

#define TIMEOUT_MS 20000
#define LONG_SIZE  1000000
#define SUSPECT_MS 600

struct bench {
    unsigned pairs; /* reported so far */
    struct server server;
    struct transport *t;
};

static uint64_t wall_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

static uint64_t wall_us(void)
{
    return wall_ns() / 1000;
}

static struct transport *connect_to(const struct bench *b)
{
    char url[160];
    server_url(&b->server, false, url, sizeof(url));
    return open_redis(url, TIMEOUT_MS);
}

static void bench_start(struct bench *b)
{
    if (!server_available()) {
        skip();
    }
    b->pairs = 0;
    server_start(&b->server);
    b->t = connect_to(b);
}

static void bench_stop(struct bench *b)
{
    assert_int_equal(b->t->ops->counts(b->t).connections, 1); /* in all that time */
    b->t->ops->close(b->t);
    server_stop(&b->server);
}

static const char *const values[] = {
    "nan",
    "-nan",
    "inf",
    "-inf",
    "1e300",
    "1e-300",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "0x7fffffffffffffff",
    "0x1p80",
    "-1",
    "-9223372036854775808",
    "1.5",
    "",
    " ",
    "\n",
    "1 2",
    "1 2 3",
    "1 2 3 4",
    "-5 6 7",
    "9007199254740992 9007199254740992 9007199254740992 9007199254740992",
    "99999999999999999999 99999999999999999999 99999999999999999999",
    "-9007199254740992 1 9007199254740992",
    "9223372036854775807 1760000000000000", /* the time is the present one: see value_at */

    "1760000000000000 9223372036854775807",
    "1 99999999999999999999999999",
    "%s%n%d",
    NULL /* LONG_SIZE bytes */};

#define VALUES (sizeof(values) / sizeof(values[0]))

static char long_text[LONG_SIZE + 1];

/* So long a number, and in its place, the present time. */
#define THEN "1760000000000000"

static const char *value_at(size_t i, bool digits)
{
    static char value[200];
    memset(long_text, digits ? '9' : 'x', LONG_SIZE);
    if (values[i] == NULL) {
        return long_text;
    }
    (void) snprintf(value, sizeof(value), "%s", values[i]);
    char *then = strstr(value, THEN);
    if (then != NULL) {
        char now[24];
        (void) snprintf(now, sizeof(now), "%" PRIu64, wall_us());
        memcpy(then, now, strlen(THEN));
    }
    return value;
}

/* Two records in one call: one that is spoilt, and one that is not. */
struct pair {
    struct report reports[2];
    struct history_report histories[2];
};

static const char *const records[] = {"weir:{001}:x:p:spoilt", "weir:{001}:x:p:good"};
static const char *const hashes[] = {"weir:{001}:x?p:spoilt", "weir:{001}:x?p:good"};

static void pair_init(struct pair *pair, enum report_kind kind, uint64_t count)
{
    memset(pair, 0, sizeof(*pair));
    const uint64_t now_us = wall_us();
    for (size_t i = 0; i < 2; i++) {
        struct report *r = &pair->reports[i];
        *r = (struct report){.kind = kind,
                             .count = count,
                             .demand = count,
                             .now_us = now_us,
                             .from_us = now_us,
                             .unit_ps = 1000000000,
                             .expire_ms = 60000,
                             .author = "a.1"};
        (void) snprintf(r->record, sizeof(r->record), "%s", records[i]);
        if (kind == REPORT_HISTORY) {
            struct history_report *log = &pair->histories[i];
            r->history = log;
            (void) snprintf(log->demand_record, sizeof(log->demand_record), "%s", hashes[i]);
            log->now_us = now_us;
            log->period_us = 3600000000;
            log->limit = 100;
            log->first = count;
            log->time_count = 1;
            log->times_us[0] = now_us;
        }
    }
}

/* Reports the pair twice, with another count; the good record is answered as always. */
static void expect_one_spoilt_at_most(struct bench *b, enum report_kind kind, const char *what)
{
    for (uint64_t count = 5; count < 7; count++) {
        struct pair pair;
        pair_init(&pair, kind, count);
        /* Only new units of a record that was answered before are added without a look at the record. */
        const bool answered = count > 5 || b->pairs++ % 2 == 1;
        pair.reports[0].acked = pair.reports[1].acked = answered ? count - 1 : 0;
        struct round round = {.reports = pair.reports, .report_count = 2, .node = "n1", .node_lifetime_ms = 60000};
        if (exchange(b->t, &round) != TRANSPORT_ROUND_DONE) {
            fail_msg("kind %d, %.200s: %s", (int) kind, what, b->t->ops->problem(b->t));
        }
        const struct report *good = &pair.reports[1];
        const uint64_t units = kind == REPORT_HISTORY ? count - 4 : count;
        if (good->status != 0 || good->author_count != units || good->sum != units) {
            fail_msg("kind %d, %.200s: the other one is answered %d, %" PRIu64 " of %" PRIu64, (int) kind, what,
                     good->status, good->author_count, good->sum);
        }
        if (pair.reports[0].status != 0 && pair.reports[0].status != -EPROTO) {
            fail_msg("kind %d, %.200s: status %d", (int) kind, what, pair.reports[0].status);
        }
    }
    freeReplyObject(server_command(&b->server, "DEL %s %s %s %s", records[0], records[1], hashes[0], hashes[1]));
}

/* Of a record of every kind, and the hash beside a log. */
static void test_no_value_of_a_field_costs_another_record(void **state)
{
    (void) state;
    static const char *const fields[] = {"a.1", "sum", "tat:1000000000", "tat:9", "unit", "base", "b.1", "!reset", ""};
    struct bench b;
    bench_start(&b);
    for (int kind = REPORT_WINDOW; kind <= REPORT_HISTORY; kind++) {
        const char *name = kind == REPORT_HISTORY ? hashes[0] : records[0];
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
            for (size_t v = 0; v < 2 * VALUES; v++) {
                const char *value = value_at(v / 2, v % 2 == 1);
                if (v % 2 == 1) {
                    /* Beside it all is as usual. */
                    struct pair pair;
                    pair_init(&pair, (enum report_kind) kind, 3);
                    struct round round = {
                        .reports = pair.reports, .report_count = 1, .node = "n1", .node_lifetime_ms = 60000};
                    assert_int_equal(exchange(b.t, &round), TRANSPORT_ROUND_DONE);
                }
                freeReplyObject(server_command(&b.server, "HSET %s %s %b", name, fields[f], value, strlen(value)));
                char what[300];
                (void) snprintf(what, sizeof(what), "%s: \"%.200s\"", fields[f], value);
                expect_one_spoilt_at_most(&b, (enum report_kind) kind, what);
            }
        }
    }
    bench_stop(&b);
}

/* Every field at once, of random pieces of what fields are made of. */
static void test_no_mixture_of_fields_costs_another_record(void **state)
{
    (void) state;
    static const char *const pieces[] = {
        "0",   "9", "1760000000000000", "9007199254740992", "4503599627370496", " ", " ", "-", ".", "e", "inf",
        "nan", "0x"};
    static const char *const fields[] = {"a.1", "sum", "tat:1000000000", "tat:9", "unit", "base"};
    uint64_t rng = test_seed();
    struct bench b;
    bench_start(&b);
    for (int times = 0; times < 600; times++) {
        char what[700] = "";
        const enum report_kind kind = (enum report_kind)(times % 3);
        const char *name = kind == REPORT_HISTORY ? hashes[0] : records[0];
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
            char value[130] = "";
            for (uint64_t n = random_below(&rng, 8); n != 0; n--) {
                const size_t at = strlen(value);
                (void) snprintf(value + at, sizeof(value) - at, "%s",
                                pieces[random_below(&rng, sizeof(pieces) / sizeof(pieces[0]))]);
            }
            freeReplyObject(server_command(&b.server, "HSET %s %s %b", name, fields[f], value, strlen(value)));
            (void) snprintf(what + strlen(what), sizeof(what) - strlen(what), "%s=\"%s\" ", fields[f], value);
        }
        expect_one_spoilt_at_most(&b, kind, what);
    }
    bench_stop(&b);
}

static void test_no_score_of_a_member_costs_another_record(void **state)
{
    (void) state;
    static const char *const scores[] = {"9.3e18",           "1e300", "inf",    "-inf",  "9007199254740992",
                                         "9007199254740994", "-1",    "0",      "0.5",   "1760000000000000.25",
                                         "-9.3e18",          "4e15",  "1e-300", "9.2e18"};
    static const char *const members[] = {"!reset", "a.1:5", "a.1:x", "b.1:1", "x", "", "a.1:99999999999999999999",
                                          NULL};
    struct bench b;
    bench_start(&b);
    for (size_t m = 0; m < sizeof(members) / sizeof(members[0]); m++) {
        for (size_t s = 0; s < sizeof(scores) / sizeof(scores[0]); s++) {
            const char *member = members[m] != NULL ? members[m] : value_at(VALUES - 1, false);
            redisReply *reply =
                server_command(&b.server, "ZADD %s %s %b", records[0], scores[s], member, strlen(member));
            assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
            freeReplyObject(reply);
            char what[100];
            (void) snprintf(what, sizeof(what), "%.40s at %s", member, scores[s]);
            expect_one_spoilt_at_most(&b, REPORT_HISTORY, what);
        }
    }
    bench_stop(&b);
}

/* The next report removes what no node can have written: the key has its limit again. */
static void test_a_log_is_rid_of_what_no_node_can_have_written(void **state)
{
    (void) state;
    static const char *const commands[] = {"ZADD %s +inf !reset 1e300 b.1:1 9.3e18 b.1:2",
                                           "ZADD %s -inf !reset 0 b.1:1", "ZADD %s 9007199254740992 !reset"};
    struct bench b;
    bench_start(&b);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct pair pair;
        pair_init(&pair, REPORT_HISTORY, 1);
        struct round round = {.reports = pair.reports, .report_count = 2, .node = "n1", .node_lifetime_ms = 60000};
        assert_int_equal(exchange(b.t, &round), TRANSPORT_ROUND_DONE);
        freeReplyObject(server_command(&b.server, commands[i], records[0]));
        char demand[60];
        (void) snprintf(demand, sizeof(demand), "99999999999999999999 %" PRIu64, wall_us());
        freeReplyObject(server_command(&b.server, "HSET %s b.1 %s c.1 %s", hashes[0], demand, "7 9223372036854775807"));
        assert_int_equal(exchange(b.t, &round), TRANSPORT_ROUND_DONE);
        assert_int_equal(pair.reports[0].status, 0);
        assert_int_equal(pair.reports[0].author_count, 1);
        assert_int_equal(pair.reports[0].sum, 1);
        assert_int_equal(pair.reports[0].sum_demand, 0);
        assert_int_equal(pair.histories[0].reset_us, 0);
        assert_int_equal(pair.histories[0].other_authors, 0);
        redisReply *card = server_command(&b.server, "ZCARD %s", records[0]);
        assert_int_equal(card->integer, 1);
        freeReplyObject(card);
        freeReplyObject(server_command(&b.server, "FLUSHALL"));
    }
    bench_stop(&b);
}

static void test_a_record_of_another_type_costs_no_other(void **state)
{
    (void) state;
    static const char *const commands[] = {"SET %s 1",      "LPUSH %s 1",    "SADD %s 1", "ZADD %s 1 a.1",
                                           "HSET %s a.1 1", "XADD %s * a 1", "PFADD %s 1"};
    struct bench b;
    bench_start(&b);
    for (int kind = REPORT_WINDOW; kind <= REPORT_HISTORY; kind++) {
        for (size_t c = 0; c < sizeof(commands) / sizeof(commands[0]); c++) {
            freeReplyObject(server_command(&b.server, commands[c], records[0]));
            expect_one_spoilt_at_most(&b, (enum report_kind) kind, commands[c]);
            freeReplyObject(server_command(&b.server, commands[c], hashes[0]));
            expect_one_spoilt_at_most(&b, (enum report_kind) kind, commands[c]);
        }
    }
    bench_stop(&b);
}

/* A heartbeat of each of two nodes; none fails. */
static void beat(struct transport *t[2], struct round rounds[2], const char *what)
{
    for (size_t i = 0; i < 2; i++) {
        rounds[i] = (struct round){.node = i == 0 ? "n1" : "n2", .node_lifetime_ms = 60000, .suspect_ms = SUSPECT_MS};
        if (exchange(t[i], &rounds[i]) != TRANSPORT_ROUND_DONE) {
            fail_msg("%.200s: %s", what, t[i]->ops->problem(t[i]));
        }
    }
}

static long long card_of_nodes(const struct bench *b)
{
    redisReply *reply = server_command(&b->server, "ZCARD weir:nodes");
    const long long card = reply->integer;
    freeReplyObject(reply);
    return card;
}

static int64_t ahead_ms(const struct round *round)
{
    return ((int64_t) round->fleet_wall_ns - (int64_t) wall_ns()) / (int64_t) MILLISECOND;
}

/* Writes into the set of nodes; both go on, and in the end there is nothing in it but them. */
static void spoil_nodes(struct bench *b, struct transport *other, const char *script)
{
    struct transport *t[2] = {b->t, other};
    struct round rounds[2];
    beat(t, rounds, "before");
    beat(t, rounds, "before");
    redisReply *reply = server_command(&b->server, "EVAL %s 1 weir:nodes %s", script, long_text);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", script, reply->str);
    }
    freeReplyObject(reply);
    const uint64_t until_ns = real_ns() + 30 * SECOND;
    int times = 0;
    int forgot = 0;
    do {
        beat(t, rounds, script);
        forgot += rounds[0].lost_state + rounds[1].lost_state;
        assert_true(rounds[0].live_nodes <= 10000 && rounds[0].suspect_nodes <= 10000);
        if (ahead_ms(&rounds[0]) > 2000 || ahead_ms(&rounds[1]) > 2000) {
            fail_msg("%s: fleet time is %" PRId64 " ms ahead", script, ahead_ms(&rounds[0]));
        }
        times++;
        if (real_ns() > until_ns) {
            fail_msg("%s: %u nodes are live, %u suspect, and the set has %lld members", script, rounds[1].live_nodes,
                     rounds[1].suspect_nodes, card_of_nodes(b));
        }
    } while (times < 5 || card_of_nodes(b) != 3 || rounds[1].live_nodes != 2 || rounds[1].suspect_nodes != 0);
    if (forgot > 2) {
        fail_msg("%s: told all again %d times", script, forgot); /* once each, at the most */
    }
    beat(t, rounds, script);
    assert_false(rounds[0].lost_state || rounds[1].lost_state);
    freeReplyObject(server_command(&b->server, "DEL weir:nodes"));
}

#define AT(score, member) "redis.call('ZADD', KEYS[1], " score ", " member ")"
#define TIME              "local now = redis.call('TIME')[1] * 1000 "
#define MANY(count, what) "for i = 1, " count " do " what " end"

static void test_nothing_in_the_set_of_nodes_costs_a_round(void **state)
{
    (void) state;
    static const char *const scripts[] = {
        AT("'+inf'", "'!zz'"),
        AT("'+inf'", "'zzz'"),
        AT("'+inf'", "'!'"),
        AT("'+inf'", "'!!'"),
        AT("'+inf'", "'!1'"),
        AT("'+inf'", "'!9'"),
        AT("'+inf'", "'!99999999999999999999999999'"),
        AT("'+inf'", "'!99999999999999999999999999:1:1'"),
        AT("'+inf'", "'\\n'"),
        AT("'+inf'", "''"),
        AT("'+inf'", "'x:600:10000'"),
        AT("'+inf'", "'n1:600:60000'"),
        AT("'-inf'", "'n1:600:60000'"),
        AT("-5", "'n1:600:60000'"),
        AT("'-inf'", "'x'"),
        AT("-5", "'x:600:10000'"),
        AT("0", "'x:600:10000'"),
        AT("'1e300'", "'x'"),
        AT("'9.3e18'", "'x:600:10000'"),
        AT("'9007199254740992'", "'x'"),
        TIME AT("now", "'x'"),
        TIME AT("now", "'x:99999999999999999999999:1'"),
        TIME AT("now", "'x:1:99999999999999999999999'"),
        TIME AT("now + 1800000", "'x'"),
        TIME AT("now + 1800000", "'!x:600:1000'"),
        TIME AT("now - 700", "'x'"),
        AT("0", "ARGV[1]"),
        TIME AT("now", "ARGV[1]"),
        AT("'+inf'", "ARGV[1]"),
        AT("'+inf'", "'!' .. ARGV[1]"),
        MANY("40", AT("0", "string.rep('x', 600000) .. i")),
        MANY("40", AT("'+inf'", "string.rep('x', 600000) .. i")),
        MANY("5000", AT("0", "'x' .. i")),
        MANY("5000", AT("'+inf'", "'x' .. i")),
        MANY("5000", AT("'+inf'", "'!' .. i")),
        TIME MANY("200000", AT("now", "'x' .. i")),
        MANY("200000", AT("'+inf'", "'x' .. i")),
        MANY("200000", AT("0", "'x' .. i")),
        "redis.call('SET', KEYS[1], '1')",
        "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'a', '1')",
        "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], '1')",
        "redis.call('DEL', KEYS[1]) redis.call('SADD', KEYS[1], '1')",
        "redis.call('DEL', KEYS[1])",
        "redis.call('ZREMRANGEBYRANK', KEYS[1], -1, -1)",
        "redis.call('ZREMRANGEBYRANK', KEYS[1], 0, 0)",
    };
    struct bench b;
    bench_start(&b);
    struct transport *other = connect_to(&b);
    (void) value_at(VALUES - 1, false);
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        spoil_nodes(&b, other, scripts[i]);
    }
    assert_int_equal(other->ops->counts(other).connections, 1);
    other->ops->close(other);
    bench_stop(&b);
}

/* The set's own member can be made to say that fleet time is ahead: by no more than an hour, and not for ever. */
static void test_what_the_set_says_of_fleet_time_is_bounded(void **state)
{
    (void) state;
    static const char *const noted[] = {":99999999999999999999999:0",
                                        ":9007199254740992:9007199254740992",
                                        ":1800000000:9007199254740992", /* half an hour that would never end */
                                        ":1800000000:99999999999999999999999999",
                                        ":1800000000:1", /* over long ago */
                                        ":4000000000:1"};
    struct bench b;
    bench_start(&b);
    struct transport *other = connect_to(&b);
    for (size_t i = 0; i < sizeof(noted) / sizeof(noted[0]); i++) {
        struct transport *t[2] = {b.t, other};
        struct round rounds[2];
        beat(t, rounds, "before");
        redisReply *begun = server_command(&b.server, "ZRANGE weir:nodes -1 -1");
        char member[200];
        (void) snprintf(member, sizeof(member), "%s%s", begun->element[0]->str, noted[i]);
        freeReplyObject(server_command(&b.server, "ZREM weir:nodes %s", begun->element[0]->str));
        freeReplyObject(server_command(&b.server, "ZADD weir:nodes +inf %s", member));
        freeReplyObject(begun);
        for (int times = 0; times < 4; times++) {
            beat(t, rounds, member);
            assert_false(rounds[0].lost_state || rounds[1].lost_state);
            assert_in_range(ahead_ms(&rounds[1]) + 2000, 0, 4000);
        }
        assert_int_equal(card_of_nodes(&b), 3);
        freeReplyObject(server_command(&b.server, "DEL weir:nodes"));
        beat(t, rounds, "after");
    }
    other->ops->close(other);
    bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_value_of_a_field_costs_another_record),
        cmocka_unit_test(test_no_mixture_of_fields_costs_another_record),
        cmocka_unit_test(test_no_score_of_a_member_costs_another_record),
        cmocka_unit_test(test_a_log_is_rid_of_what_no_node_can_have_written),
        cmocka_unit_test(test_a_record_of_another_type_costs_no_other),
        cmocka_unit_test(test_nothing_in_the_set_of_nodes_costs_a_round),
        cmocka_unit_test(test_what_the_set_says_of_fleet_time_is_bounded),
    };
    return cmocka_run_group_tests_name("redis/hostile", tests, NULL, NULL);
}
