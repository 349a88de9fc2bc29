/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of transport/transport.h, asked of both implementations: the fleet in memory, and a real Redis.
 *
 * Guards: src/transport/redis/problem.c, src/transport/transport.h,
 * src/transport/redis/redis.c, src/transport/redis/batch.c, src/transport/redis/answer.c,
 * src/transport/loopback/loopback.c, src/transport/loopback/loopback_transport.c,
 * src/transport/loopback/network.c, src/transport/redis/scripts/heartbeat.lua, src/transport/redis/scripts/nodes.lua,
 * src/transport/redis/scripts/read_nodes.lua, src/transport/redis/scripts/read_authors.lua
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

/* One transport, and the server or fleet behind it. */
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
    struct transport_config config = {.url = url, .prefix = "weir", .timeout_ms = TIMEOUT_MS, .now_ns = transport_ns()};
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

/* Reports one record, and returns the answered report. */
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
    assert_int_equal(r.author_count, 10);
    assert_int_equal(r.sum, 10);
    assert_int_equal(r.sum_demand, 15);
    r = say(t, window("b.1", 7, 7));
    assert_int_equal(r.author_count, 7);
    assert_int_equal(r.sum, 17);
    assert_int_equal(r.sum_demand, 22);
    r = say(t, window("a.1", 10, 15)); /* again */
    assert_int_equal(r.sum, 17);
    r = say(t, window("a.1", 4, 20)); /* an older count with a newer demand */
    assert_int_equal(r.author_count, 10);
    assert_int_equal(r.sum, 17);
    assert_int_equal(r.sum_demand, 27);
    r = say(t, window("a.2", 5, 5)); /* another incarnation of the key on the same node */
    assert_int_equal(r.author_count, 5);
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

static void buckets_move_by_new_units(struct transport *t)
{
    struct report r = say(t, bucket("a.1", 100, 0, 0)); /* 2.5 us each */
    assert_int_equal(r.sum, 100);
    assert_int_equal(r.tat_answer_us, NOW_US + 250);
    r = say(t, bucket("a.1", 100, 0, 0)); /* again */
    assert_int_equal(r.tat_answer_us, NOW_US + 250);
    r = say(t, bucket("b.1", 40, 0, 0));
    assert_int_equal(r.sum, 140);
    assert_int_equal(r.author_count, 40);
    assert_int_equal(r.tat_answer_us, NOW_US + 350);
    r = say(t, bucket("c.1", 1000, 1000, 0)); /* counted before the record was lost: no debt */
    assert_int_equal(r.sum, 1140);
    assert_int_equal(r.tat_answer_us, NOW_US + 350);
    r = say(t, bucket("c.1", 1001, 1000, NOW_US + 900)); /* the later time wins, and the new unit is added to it */
    assert_int_equal(r.tat_answer_us, NOW_US + 903);
    /*
     * The answer is lost. Then the author has three units more, and its bucket is full at 1,100: at 1,090 without the
     * four units that are not acknowledged. The sum is one more, as the times of one unit and of three are rounded up.
     */
    r = say(t, bucket("c.1", 1004, 1000, NOW_US + 1090));
    assert_int_equal(r.tat_answer_us, NOW_US + 1101);
    r = say(t, bucket("c.1", 1005, 1000, 0)); /* a time of 0 is none: the new unit alone moves the bucket */
    assert_int_equal(r.tat_answer_us, NOW_US + 1104);
}

/*
 * A record is lost that three authors have seen at different times, and each author has had units since. In whatever
 * order the authors report, the bucket is at the latest of those times plus all the units. Which units each time is of
 * says whose units are new to it.
 */
static void lost_buckets_come_back_complete(struct transport *t)
{
    static const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const uint64_t seen_us[3] = {NOW_US + 1000, NOW_US + 1500, NOW_US + 1200};
    static const uint64_t known[3] = {2800, 3000, 2880};
    static const uint64_t units[3] = {400, 40, 200}; /* 2.5 us each */
    static const char *const authors[3] = {"a.1", "b.1", "c.1"};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct report r = {.status = 0};
        for (size_t j = 0; j < 3; j++) {
            const size_t by = orders[i][j];
            r = bucket(authors[by], 1000 + units[by], 1000, seen_us[by]);
            r.known = known[by];
            (void) snprintf(r.record, sizeof(r.record), "weir:{001}:b1s:p:lost%zu", i);
            r = say(t, r);
        }
        assert_int_equal(r.tat_answer_us, NOW_US + 1500 + 640 * 5 / 2);
        /* Afterwards the record moves by new units, as any other. */
        r = bucket("a.1", 1500, 1400, r.tat_answer_us);
        (void) snprintf(r.record, sizeof(r.record), "weir:{001}:b1s:p:lost%zu", i);
        r = say(t, r);
        assert_int_equal(r.tat_answer_us, NOW_US + 1500 + 740 * 5 / 2);
    }
}

static void heartbeats_count_nodes_and_notice_loss(struct bench *b)
{
    struct round round = {.node = "n1", .node_lifetime_ms = 5000, .first = true};
    const uint64_t before_ns = real_wall_ns(NULL);
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_in_range(round.fleet_wall_ns, before_ns - SECOND, real_wall_ns(NULL) + SECOND);
    assert_true(round.received_ns >= round.sent_ns);
    assert_false(round.lost_state);
    struct transport *other = connect_to(b); /* a transport is one node's */
    round = (struct round){.node = "n2", .node_lifetime_ms = 5000, .first = true};
    assert_int_equal(exchange(other, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(round.live_nodes, 2);
    round = (struct round){.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_false(round.lost_state);
    if (b->is_redis) {
        freeReplyObject(server_command(&b->server, "FLUSHALL"));
    } else {
        loopback_fleet_forget(b->fleet);
    }
    round = (struct round){.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_true(round.lost_state);
    other->ops->close(other);
    assert_int_equal(round.live_nodes, 1);
}

static struct report history(const char *author, struct history_report *told, uint64_t first, uint32_t units)
{
    struct report r = {.kind = REPORT_HISTORY, .demand = 7, .expire_ms = 60000, .history = told};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:l1s:p:history");
    (void) snprintf(r.author, sizeof(r.author), "%s", author);
    *told = (struct history_report){
        .first = first, .now_us = NOW_US, .period_us = 1000000, .limit = 100, .time_count = units};
    (void) snprintf(told->demand_record, sizeof(told->demand_record), "weir:{001}:l1s?p:history");
    for (uint32_t i = 0; i < units; i++) {
        told->times_us[i] = NOW_US - 1000 + (first + i) * 10;
    }
    return r;
}

static void histories_are_sets_of_units(struct transport *t)
{
    static struct history_report h;
    struct report r = say(t, history("a.1", &h, 0, 5));
    assert_int_equal(r.status, 0);
    assert_int_equal(r.author_count, 5);
    assert_int_equal(r.sum, 5);
    r = say(t, history("a.1", &h, 0, 5)); /* repeated */
    assert_int_equal(r.sum, 5);
    r = say(t, history("a.1", &h, 3, 4)); /* two units of four are new */
    assert_int_equal(r.sum, 7);
    r = say(t, history("b.1", &h, 0, 5)); /* the same numbers of another author are other units */
    assert_int_equal(r.author_count, 5);
    assert_int_equal(r.sum, 12);
    assert_int_equal(h.other_authors, 1);
    assert_int_equal(r.sum_demand, 7);
    r = history("a.1", &h, 7, 0);
    h.refund_from = 1;
    h.refund_to = 4;
    r = say(t, r);
    assert_int_equal(r.author_count, 4);
    assert_int_equal(r.sum, 9);
}

static void a_reset_counts_once(struct transport *t)
{
    struct report r = window("a.1", 10, 10);
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:f1s:p:reset");
    r = say(t, r);
    r.reset_us = NOW_US;
    r.reset_kept = 2;
    r = say(t, r);
    assert_int_equal(r.sum_refunds, 8);
    assert_int_equal(r.author_refunds, 8);
    r.count = 15;
    for (int repeated = 0; repeated < 3; repeated++) {
        r = say(t, r);
        assert_int_equal(r.sum, 15);
        assert_int_equal(r.sum_refunds, 8);
    }
    r.reset_us = NOW_US + 1; /* another one */
    r = say(t, r);
    assert_int_equal(r.sum_refunds, 13);
}

static void a_refused_record_costs_no_other(struct bench *b)
{
    struct report reports[3];
    for (size_t i = 0; i < 3; i++) {
        reports[i] = window("a.1", 5, 5);
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{001}:f1s:p:refused%zu", i);
    }
    if (b->is_redis) {
        freeReplyObject(server_command(&b->server, "SET %s x", reports[1].record));
    } else {
        loopback_fleet_refuse(b->fleet, "refused1", -EPROTO);
    }
    struct round round = {.reports = reports, .report_count = 3, .node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(reports[i].status, i == 1 ? -EPROTO : 0);
        assert_true(i == 1 || reports[i].sum == 5);
    }
    if (!b->is_redis) {
        loopback_fleet_refuse(b->fleet, NULL, 0);
    }
}

#define READ 4

/* A log that is read has the units of all, and nothing leaves it. */
static void read_log(struct transport *t)
{
    static struct history_report h;
    struct report told = history("a.1", &h, 0, 5);
    (void) snprintf(told.record, sizeof(told.record), "weir:{001}:l1s:p:read");
    (void) snprintf(h.demand_record, sizeof(h.demand_record), "weir:{001}:l1s?p:read");
    (void) say(t, told);
    for (int late = 0; late < 3; late++) {
        struct report r = told;
        r.author[0] = '\0';
        h.time_count = 0;
        h.now_us = NOW_US + (late == 1 ? h.period_us - 975 : 0); /* the first three have left then */
        struct round round = {.node = "nobody", .reads = true, .reports = &r, .report_count = 1};
        assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
        assert_int_equal(r.status, 0);
        assert_int_equal(r.sum, late == 1 ? 2 : 5);
        assert_int_equal(h.group_count, late == 1 ? 2 : 5);
        assert_int_equal(h.other_authors, 1);
        assert_int_equal(r.sum_demand, 7);
    }
}

/* Reports of nothing, of a window and a bucket that are there and of one each that is not. */
static void read_all(struct transport *t, struct report reports[READ], struct inspection asked[4])
{
    static const char *const names[READ] = {"weir:{001}:f1s:p:read", "weir:{001}:b1s:p:read", "weir:{001}:f1s:p:none",
                                            "weir:{001}:b1s:p:none"};
    for (size_t i = 0; i < READ; i++) {
        reports[i] = (struct report){.kind = i % 2 == 0 ? REPORT_WINDOW : REPORT_BUCKET,
                                     .now_us = NOW_US,
                                     .from_us = NOW_US,
                                     .unit_ps = 2500000,
                                     .expire_ms = 60000};
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "%s", names[i]);
    }
    asked[0] = (struct inspection){.kind = INSPECT_AUTHORS, .words = {names[0]}, .key_count = 1};
    asked[1] = (struct inspection){.kind = INSPECT_AUTHORS, .words = {names[2]}, .key_count = 1};
    asked[2] = (struct inspection){.kind = INSPECT_NODES, .words = {"weir:nodes"}, .key_count = 1};
    asked[3] = (struct inspection){.kind = INSPECT_AUTHORS, .words = {names[3]}, .key_count = 1};
    struct round round = {.node = "nobody",
                          .reads = true,
                          .reports = reports,
                          .report_count = READ,
                          .inspections = asked,
                          .inspection_count = 4};
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
}

/* Walks over the names of all servers. Returns the sum of what is in use of the records of one name. */
static int64_t use_of(struct transport *t, const char *name)
{
    int64_t units = 0;
    for (size_t shard = 0; t->ops->shard(t, shard) != NULL; shard++) {
        char cursor[24] = "0";
        do {
            struct inspection page = {
                .kind = INSPECT_PAGE, .words = {cursor, "weir:{*}:*:p:*", "20", "1760000000000000"}, .shard = shard};
            struct round round = {.node = "nobody", .reads = true, .inspections = &page, .inspection_count = 1};
            assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
            assert_int_equal(page.status, 0);
            assert_int_equal(page.all[0].number, 0);
            assert_int_equal(page.count % 2, 0);
            for (size_t i = 2; i < page.count; i += 2) {
                units += strcmp(page.all[i].text, name) == 0 ? page.all[i + 1].number : 0;
            }
            (void) snprintf(cursor, sizeof(cursor), "%s", page.all[1].text);
            inspection_free(&page);
        } while (strcmp(cursor, "0") != 0);
    }
    return units;
}

/* Reads a key as the hash of overrides. Returns how many fields it has; -1: it is no hash. */
static int64_t entries_of(struct transport *t, const char *key)
{
    struct inspection page = {.kind = INSPECT_ENTRIES, .words = {key, "0"}, .key_count = 1};
    struct round round = {.node = "nobody", .reads = true, .inspections = &page, .inspection_count = 1};
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(page.status, 0);
    const int64_t count = page.all[0].number == 0 ? (int64_t) page.count / 2 - 1 : -1;
    inspection_free(&page);
    return count;
}

static void reads(struct transport *t)
{
    struct report told = window("a.1", 10, 15);
    (void) snprintf(told.record, sizeof(told.record), "weir:{001}:f1s:p:read");
    (void) say(t, told);
    struct report owed = bucket("b.1", 40, 0, 0);
    (void) snprintf(owed.record, sizeof(owed.record), "weir:{001}:b1s:p:read");
    owed = say(t, owed);
    read_log(t);
    for (int times = 0; times < 2; times++) { /* what the first one would have written, the second one would read */
        struct report reports[READ];
        struct inspection asked[4];
        read_all(t, reports, asked);
        assert_int_equal(reports[0].status | reports[1].status | reports[2].status | reports[3].status, 0);
        assert_int_equal(reports[0].sum, 10);
        assert_int_equal(reports[0].sum_demand, 15);
        assert_int_equal(reports[1].sum, 40);
        assert_int_equal(reports[1].tat_answer_us, owed.tat_answer_us);
        assert_int_equal(reports[2].sum + reports[3].sum + reports[3].tat_answer_us, 0);
        assert_int_equal(asked[0].count, 6);
        assert_int_equal(asked[0].all[0].number, 0);
        assert_string_equal(asked[0].all[1].text, "a.1");
        assert_int_equal(asked[0].all[2].number, 10);
        assert_int_equal(asked[0].all[3].number, 15);
        assert_int_equal(asked[1].count, 1);
        assert_int_equal(asked[1].all[0].number, 2);
        assert_int_equal(asked[3].count, 1);
        assert_int_equal(asked[3].all[0].number, 2);
        assert_int_equal((asked[2].count - 4) % 4, 0);
        for (size_t i = 4; i < asked[2].count; i += 4) {
            assert_string_not_equal(asked[2].all[i].text, "nobody");
        }
        for (size_t i = 0; i < 4; i++) {
            inspection_free(&asked[i]);
        }
        assert_int_equal(use_of(t, "weir:{001}:f1s:p:read"), 10);
        assert_int_equal(use_of(t, "weir:{001}:b1s:p:read"), (owed.tat_answer_us - NOW_US) / 5 * 2);
        assert_int_equal(use_of(t, "weir:{001}:l1s:p:read"), 5);
        assert_int_equal(use_of(t, "weir:{001}:f1s:p:none"), 0);
        assert_int_equal(entries_of(t, "weir:{001}:f1s:p:none"), 0);
        assert_int_equal(entries_of(t, "weir:{001}:f1s:p:read"), 2);
        assert_int_equal(entries_of(t, "weir:nodes"), -1);
    }
}

static void set_override(struct bench *b, const char *field, const char *value)
{
    if (b->is_redis) {
        freeReplyObject(server_command(&b->server, "HSET weir:overrides %s %s", field, value));
    } else {
        loopback_fleet_set_override(b->fleet, field, value);
    }
}

static void overrides_are_answered_when_they_change(struct bench *b)
{
    struct round round = {.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_false(round.overrides_new); /* there are none */
    for (int change = 0; change < 2; change++) {
        set_override(b, "p:key", change == 0 ? "10/s" : "20/s");
        assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
        assert_true(round.overrides_new);
        assert_int_equal(round.override_count, 1);
        assert_string_equal(round.overrides[0].field, "p:key");
        assert_string_equal(round.overrides[0].value, change == 0 ? "10/s" : "20/s");
        overrides_drop(round.overrides, round.override_count);
        round.overrides = NULL;
        round.overrides_new = false;
        assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
        assert_false(round.overrides_new); /* the round has that version */
    }
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

static void a_hang_fails_the_round_and_its_reports_count_once(struct bench *b)
{
    (void) step_until(b->transport, false);
    struct report report = window("h.1", 3, 3);
    (void) snprintf(report.record, sizeof(report.record), "weir:{001}:f1s:p:hung");
    struct round round = {.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 5000};
    hung(b, true);
    const uint64_t before_ns = transport_ns();
    assert_int_equal(b->transport->ops->begin(b->transport, &round, before_ns), 0);
    assert_int_equal(step_until(b->transport, true), TRANSPORT_ROUND_FAILED);
    /* It fails with the first look after its time-out, and this is the next one. */
    assert_in_range(transport_ns() - before_ns, TIMEOUT_MS * MILLISECOND, TIMEOUT_MS * MILLISECOND + 2 * LOOK_MOST_NS);
    assert_non_null(b->transport->ops->problem(b->transport));
    hung(b, false);
    round = (struct round){.reports = &report, .report_count = 1, .node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(exchange(b->transport, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(report.sum, 3); /* even if the round that hung has taken effect */
    assert_null(b->transport->ops->problem(b->transport));
}

/* The numbers are those of the contract in transport/transport.h. exchange() asks for 2 in every round. */
static void the_contract(struct bench *b)
{
    b->transport = connect_to(b);
    windows_keep_the_larger_count(b->transport);          /* 2, 4 */
    histories_are_sets_of_units(b->transport);            /* 5 */
    a_reset_counts_once(b->transport);                    /* 6 */
    buckets_move_by_new_units(b->transport);              /* 7 */
    lost_buckets_come_back_complete(b->transport);        /* 7 */
    a_refused_record_costs_no_other(b);                   /* 8 */
    a_hang_fails_the_round_and_its_reports_count_once(b); /* 1, 3, 4 */
    heartbeats_count_nodes_and_notice_loss(b);            /* 9 */
    reads(b->transport);                                  /* 11 */
    overrides_are_answered_when_they_change(b);           /* 10 */
    b->transport->ops->close(b->transport);
}

static void test_the_loopback_fleet_keeps_the_rules(void **state)
{
    (void) state;
    struct bench b = {.fleet = loopback_fleet_new(real_wall_ns, NULL)};
    assert_non_null(b.fleet);
    the_contract(&b);
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
    the_contract(&b);
#ifdef REDIS_REPLY_MAP
    freeReplyObject(server_command(&b.server, "FLUSHALL"));
    b.options = "?protocol=3"; /* this hiredis can read it */
    the_contract(&b);
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
        assert_int_equal(reports[i].author_count, i + 1);
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
        assert_int_equal(reports[i].author_count, i + 1);
    }
    assert_true(b.transport->ops->counts(b.transport).connections == 1);
    b.transport->ops->close(b.transport);
    server_stop(&b.server);
}

/* Rounds fail while Redis answers with this error, and go on afterwards; nothing counts twice. */
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
    assert_int_equal(t->ops->begin(t, &round, transport_ns()), 0);
    assert_int_equal(step_until(t, true), TRANSPORT_ROUND_FAILED);
    assert_int_equal(t->ops->state(t), TRANSPORT_DOWN);
    if (t->ops->problem(t) == NULL || strstr(t->ops->problem(t), says) == NULL) {
        fail_msg("not \"%s\" but \"%s\"", says, t->ops->problem(t) != NULL ? t->ops->problem(t) : "nothing");
    }
    freeReplyObject(server_command(server, mend));
    said++;
    const struct report counts = say(t, window("e.1", said, said));
    assert_int_equal(counts.author_count, said);
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
    /* Another client's script that does not end. */
    freeReplyObject(server_command(&b.server, "CONFIG SET lua-time-limit 10"));
    (void) step_until(t, false);
    redisContext *busy = redisConnectUnix(b.server.socket);
    assert_int_equal(redisAppendCommand(busy, "EVAL %s 0", "while true do end"), REDIS_OK);
    int done = 0;
    assert_int_equal(redisBufferWrite(busy, &done), REDIS_OK);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (bool is_busy = false; !is_busy; assert_true(real_ns() < until_ns)) {
        redisReply *reply = server_command(&b.server, "PING");
        is_busy = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
    }
    struct round round = {.node = "n1", .node_lifetime_ms = 60000};
    assert_int_equal(t->ops->begin(t, &round, transport_ns()), 0);
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
        cmocka_unit_test(test_the_loopback_fleet_keeps_the_rules),
        cmocka_unit_test(test_redis_keeps_the_rules),
        cmocka_unit_test(test_a_thousand_reports_go_in_batches),
        cmocka_unit_test(test_errors_end_the_round_and_the_next_connection_goes_on),
    };
    return cmocka_run_group_tests_name("redis/transport", tests, NULL, NULL);
}
