/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet within one process that tests and simulations go by: what its network does to messages; and what the
 * scripts answer there to heartbeats and to reports of logs, under a clock of the test's.
 *
 * Guards: src/transport/loopback/network.c, src/transport/loopback/loopback.c,
 * src/transport/loopback/loopback_transport.c, src/transport/loopback/script_host.c,
 * src/transport/redis/scripts/heartbeat.lua, src/transport/redis/scripts/report_history.lua
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"
#include "transport/loopback/network.h"

#define T0_MS    INT64_C(1760000000000)
#define HOUR_MS  INT64_C(3600000)
#define YEAR_MS  (365 * 24 * HOUR_MS)
#define LIFE_MS  10000
#define DOUBT_MS 600
#define NONE     INT64_MIN /* a time that is not told */

static uint64_t ns_of(int64_t ms)
{
    return ms == NONE ? 0 : (uint64_t) (T0_MS + ms) * MILLISECOND;
}

enum does { BEATS, ASKS, LEAVES };

/* One heartbeat and its answer. All times are milliseconds after T0. */
struct beat {
    const char *node; /* NULL: the end; "": a new fleet */
    enum does does;
    int64_t clock, told, host; /* the fleet's clock; fleet time by the node; the clock of its host */
    int64_t time, last;        /* fleet time, the node's heartbeat before */
    uint32_t live, suspect;
    int64_t watermark;
};

/* A time as the script is told it. */
static const char *us_of(char text[24], int64_t ms)
{
    (void) snprintf(text, 24, "%llu", (unsigned long long) (ns_of(ms) / 1000));
    return text;
}

static redisReply *heartbeat(struct script_host *host, const struct beat *b)
{
    static const char *const does[] = {[BEATS] = "0", [LEAVES] = "1", [ASKS] = "2"};
    char member[32], told[24], host_time[24];
    (void) snprintf(member, sizeof(member), "%s:%d:%d", b->node, DOUBT_MS, LIFE_MS);
    const char *words[] = {"EVAL", "",      "1",           "weir:nodes",         member,
                           "600",  "10000", does[b->does], us_of(told, b->told), us_of(host_time, b->host)};
    size_t lengths[10];
    for (size_t i = 0; i < 10; i++) {
        lengths[i] = strlen(words[i]);
    }
    redisReply *reply =
        script_host_call(host, SCRIPT_HEARTBEAT, &(struct command){10, words, lengths}, ns_of(b->clock));
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 8);
    return reply;
}

static void play(const struct beat *beats)
{
    struct script_host *host = script_host_open();
    assert_non_null(host);
    for (size_t i = 0; beats[i].node != NULL; i++) {
        const struct beat *b = &beats[i];
        if (b->node[0] == '\0') {
            script_host_clear(host, "");
            continue;
        }
        redisReply *reply = heartbeat(host, b);
        long long answer[8];
        for (size_t n = 0; n < 8; n++) {
            answer[n] = reply->element[n]->integer;
        }
        freeReplyObject(reply);
        const long long time = answer[0] * 1000 + answer[1] / 1000 - T0_MS;
        const long long last = answer[2] == 0 ? NONE : answer[2] - T0_MS;
        if (time != b->time || last != b->last || answer[3] != b->live || answer[4] != b->suspect ||
            answer[5] - T0_MS != b->watermark || answer[7] != b->time - b->clock) {
            fail_msg("beat %zu: time %lld, last %lld, live %lld, suspect %lld, watermark %lld, ahead %lld", i, time,
                     last, answer[3], answer[4], answer[5] - T0_MS, answer[7]);
        }
    }
    script_host_close(host);
}

static void test_a_node_is_live_then_suspect_then_gone(void **state)
{
    (void) state;
    static const struct beat beats[] = {
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"b", BEATS, 100, 100, NONE, 100, NONE, 2, 0, 0},
        {"b", BEATS, 600, 600, NONE, 600, 100, 2, 0, 0},
        {"b", BEATS, 601, 601, NONE, 601, 600, 1, 1, 0},
        {"b", BEATS, 10000, 10000, NONE, 10000, 601, 1, 1, 0},
        {"b", BEATS, 10001, 10001, NONE, 10001, 10000, 1, 0, 10001},
        /* A heartbeat is of the time that the node tells: not beyond fleet time, and never earlier than before. */
        {"b", BEATS, 10100, 10050, NONE, 10100, 10001, 1, 0, 10050},
        {"b", BEATS, 10200, 10020, NONE, 10200, 10050, 1, 0, 10050},
        {"b", BEATS, 10300, 10900, NONE, 10300, 10050, 1, 0, 10300},
        {"b", BEATS, 10400, NONE, NONE, 10400, 10300, 1, 0, 10400},
        /* A node that asks has no heartbeat, or the one that it had. A node is live to itself, however old that is. */
        {"c", ASKS, 10500, 10500, NONE, 10500, NONE, 2, 0, 10400},
        {"c", BEATS, 10600, 10600, NONE, 10600, NONE, 2, 0, 10400},
        {"c", ASKS, 12000, 12000, NONE, 12000, 10600, 1, 1, 10400},
        {"c", ASKS, 20600, 20600, NONE, 20600, 10600, 1, 0, 10600},
        {"b", BEATS, 20600, 20600, NONE, 20600, NONE, 1, 1, 10600},
        /* A node that leaves is gone, and does not count itself. */
        {"b", LEAVES, 20601, 20601, NONE, 20601, 20600, 0, 0, 20601},
        {"c", BEATS, 20700, 20700, NONE, 20700, NONE, 1, 0, 20700},
        {"d", LEAVES, 20700, 20700, NONE, 20700, NONE, 1, 0, 20700},
        {"c", LEAVES, 20701, 20701, NONE, 20701, 20700, 0, 0, 20701},
        {NULL},
    };
    play(beats);
}

/* scripts/heartbeat.lua: fleet time does not step back, and is ahead until the clock has caught up, 1/256 slower. */
static void test_a_clock_that_steps_back_takes_no_time_back(void **state)
{
    (void) state;
    static const struct beat beats[] = {
        {"a", BEATS, 100000, 100000, NONE, 100000, NONE, 1, 0, 100000},
        {"a", BEATS, 90000, 100200, NONE, 100200, 100000, 1, 0, 100200}, /* the node knows how much time has passed */
        {"a", BEATS, 92560, 102750, NONE, 102750, 100200, 1, 0, 102750}, /* 10 ms of 10,200 have gone */
        {"a", BEATS, 95120, 105300, NONE, 105300, 102750, 1, 0, 105300}, /* by the time it was noted */
        {"a", BEATS, 94864, 105200, NONE, 105300, 105300, 1, 0, 105300}, /* back again; the node does not know more */
        {"a", LEAVES, 97424, NONE, NONE, 107850, 105300, 0, 0, 107850},
        {"b", BEATS, 97680, NONE, NONE, 108105, NONE, 1, 0, 108105}, /* the last node has noted the time */
        {"b", LEAVES, 97680, NONE, NONE, 108105, 108105, 0, 0, 108105},
        {"b", BEATS, 97679, NONE, NONE, 108105, NONE, 1, 0, 108105}, /* not before what was noted */
        {""},
        /* More than its lifetime is no knowledge. */
        {"a", BEATS, 100000, 100000, NONE, 100000, NONE, 1, 0, 100000},
        {"a", BEATS, 90000, 109999, NONE, 109999, 100000, 1, 0, 109999},
        {""},
        {"a", BEATS, 100000, 100000, NONE, 100000, NONE, 1, 0, 100000},
        {"a", BEATS, 90000, 110000, NONE, 100000, 100000, 1, 0, 100000},
        {""},
        /* The whole offset goes in 256 times its length; then there is none. */
        {"a", BEATS, 1000, 1000, NONE, 1000, NONE, 1, 0, 1000},
        {"a", BEATS, 0, NONE, NONE, 1000, 1000, 1, 0, 1000},
        {"a", BEATS, 255744, NONE, NONE, 255745, 1000, 1, 0, 255745},
        {"a", BEATS, 256000, NONE, NONE, 256000, 255745, 1, 0, 256000},
        {"a", BEATS, 300000, NONE, NONE, 300000, 256000, 1, 0, 300000},
        {NULL},
    };
    play(beats);
}

/* Of the node that tells the time, or of the clock of its host. */
static void test_a_step_of_more_than_an_hour_needs_a_witness(void **state)
{
    (void) state;
    static const struct beat beats[] = {
        /* Back: by the node's time, or by the other nodes' heartbeats. */
        {"a", BEATS, 2 * HOUR_MS, NONE, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {"a", BEATS, 0, 2 * HOUR_MS + 5, NONE, 2 * HOUR_MS + 5, 2 * HOUR_MS, 1, 0, 2 * HOUR_MS + 5},
        {""},
        {"a", BEATS, 2 * HOUR_MS, NONE, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {"b", BEATS, 0, NONE, NONE, 2 * HOUR_MS, NONE, 2, 0, 2 * HOUR_MS}, /* all heartbeats are ahead */
        {""},
        /* No node has made a heartbeat that far ahead: this one is of now. */
        {"a", BEATS, 2 * HOUR_MS, NONE, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {"b", BEATS, 0, 10, NONE, 0, NONE, 2, 0, 0},
        {"b", BEATS, 5, 5, NONE, 5, 0, 2, 0, 0},
        {""},
        {"a", BEATS, 2 * HOUR_MS, NONE, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {"b", BEATS, 0, HOUR_MS, NONE, 0, NONE, 2, 0, 0}, /* an hour is no witness */
        {""},
        {"a", BEATS, 2 * HOUR_MS, NONE, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {"b", BEATS, 0, HOUR_MS + 1, NONE, 2 * HOUR_MS, NONE, 2, 0, 2 * HOUR_MS},
        {""},
        {"a", BEATS, HOUR_MS, NONE, NONE, HOUR_MS, NONE, 1, 0, HOUR_MS},
        {"b", BEATS, 0, 10, NONE, HOUR_MS, NONE, 2, 0, HOUR_MS}, /* an hour needs no witness */
        {""},
        {"a", BEATS, 101 * YEAR_MS, NONE, NONE, 101 * YEAR_MS, NONE, 1, 0, 101 * YEAR_MS},
        {"b", BEATS, 0, NONE, NONE, 0, NONE, 2, 0, 0}, /* nor does anything make it a hundred years */
        {""},
        /* Forward: fleet time follows, and the heartbeats with it. */
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"b", BEATS, 100, NONE, NONE, 100, NONE, 2, 0, 0},
        {"b", BEATS, 200 + 2 * HOUR_MS, 200, NONE, 200 + 2 * HOUR_MS, 100, 2, 0, 2 * HOUR_MS},
        {""},
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, HOUR_MS, 50, NONE, HOUR_MS, 0, 1, 0, HOUR_MS}, /* the node was away for an hour */
        {""},
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, 1 + HOUR_MS, NONE, NONE, 1 + HOUR_MS, 0, 1, 0, 1 + HOUR_MS},
        {""},
        /* The host's clock says that the fleet's is wrong: fleet time goes on without it, and the offset stays. */
        {"a", BEATS, 0, NONE, 0, 0, NONE, 1, 0, 0},
        {"a", BEATS, 2 * HOUR_MS, 100, 100, 100, 0, 1, 0, 100},
        {"a", BEATS, 2 * HOUR_MS + 256, 356, 356, 356, 100, 1, 0, 356},
        /* Until one agrees with it: then fleet time follows. */
        {"a", BEATS, 2 * HOUR_MS + 356, 456, HOUR_MS + 356, 2 * HOUR_MS + 356, 356, 1, 0, 2 * HOUR_MS + 256},
        {"a", BEATS, 2 * HOUR_MS + 400, NONE, NONE, 2 * HOUR_MS + 400, 2 * HOUR_MS + 256, 1, 0, 2 * HOUR_MS + 400},
        {""},
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, 2 * HOUR_MS, 100, HOUR_MS, 2 * HOUR_MS, 0, 1, 0, 2 * HOUR_MS - 100},
        {""},
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, 2 * HOUR_MS, 100, HOUR_MS - 1, 100, 0, 1, 0, 100},
        {""},
        /* Nor does it follow for more than two years. By then the set has expired: the node's own time is all there is.
         */
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, 2 * YEAR_MS, 0, NONE, 2 * YEAR_MS, NONE, 1, 0, 2 * YEAR_MS},
        {""},
        {"a", BEATS, 0, NONE, NONE, 0, NONE, 1, 0, 0},
        {"a", BEATS, 2 * YEAR_MS + 1, 0, NONE, 0, NONE, 1, 0, 0},
        /* The clock is back where it was: within an hour of it there is no offset. */
        {"a", BEATS, HOUR_MS, 5, NONE, HOUR_MS, 0, 1, 0, HOUR_MS},
        {"a", BEATS, HOUR_MS + 1, NONE, NONE, HOUR_MS + 1, NONE, 1, 0, HOUR_MS + 1},
        {NULL},
    };
    play(beats);
}

static void test_a_set_that_is_new_begins_where_its_first_node_is(void **state)
{
    (void) state;
    static const struct beat beats[] = {
        {"a", BEATS, 0, 50, NONE, 0, NONE, 1, 0, 0}, /* a guess may be so far ahead */
        {""},
        {"a", BEATS, 0, 51, NONE, 51, NONE, 1, 0, 51},
        {"a", BEATS, 256, NONE, NONE, 306, 51, 1, 0, 306},
        {""},
        {"a", BEATS, 0, 100 * YEAR_MS, NONE, 100 * YEAR_MS, NONE, 1, 0, 100 * YEAR_MS},
        {""},
        {"a", BEATS, 0, 101 * YEAR_MS, NONE, 0, NONE, 1, 0, 0},
        {""},
        /* Behind only where it cannot follow. */
        {"a", BEATS, 2 * HOUR_MS, 0, NONE, 2 * HOUR_MS, NONE, 1, 0, 2 * HOUR_MS},
        {""},
        {"a", BEATS, 2 * HOUR_MS, 0, 0, 0, NONE, 1, 0, 0},
        {""},
        {"a", BEATS, HOUR_MS, 0, 2 * HOUR_MS + 1, HOUR_MS, NONE, 1, 0, HOUR_MS}, /* an hour is not so much */
        {""},
        {"a", BEATS, 3 * YEAR_MS, 0, NONE, 0, NONE, 1, 0, 0},
        {NULL},
    };
    play(beats);
}

/* A fleet with two nodes, under one clock. Times are milliseconds after T0, and the first are 0. */
static struct {
    int64_t now_ms;
    struct loopback_fleet *fleet;
    struct transport *t[2];
    struct round rounds[2];
    struct report reports[2];
    uint64_t refunds; /* of the reports that follow */
} f;

static uint64_t fleet_clock(void *arg)
{
    (void) arg;
    return ns_of(f.now_ms);
}

/* The nodes' own clock begins elsewhere. */
static uint64_t node_ns(void)
{
    return (uint64_t) (5000 + f.now_ms) * MILLISECOND;
}

static void fleet_begin(const struct loopback_link *link)
{
    memset(&f, 0, sizeof(f));
    f.fleet = loopback_fleet_new(fleet_clock, NULL);
    assert_non_null(f.fleet);
    loopback_fleet_seed(f.fleet, 42);
    loopback_fleet_set_link(f.fleet, link);
    for (int i = 0; i < 2; i++) {
        const struct transport_config config = {.timeout_ms = 1000, .now_ns = node_ns()};
        assert_int_equal(loopback_transport_open(f.fleet, &config, &f.t[i], NULL), 0);
    }
}

static void fleet_end(void)
{
    for (int i = 0; i < 2; i++) {
        if (f.t[i] != NULL) {
            f.t[i]->ops->close(f.t[i]);
        }
    }
    loopback_fleet_free(f.fleet);
}

/* Begins a round of a node: one window with so many units. */
static int begin_round(int i, uint64_t count)
{
    f.reports[i] = (struct report){.kind = REPORT_WINDOW, .count = count, .demand = count, .expire_ms = 60000};
    f.reports[i].refunds = f.refunds;
    f.reports[i].status = 1;
    (void) snprintf(f.reports[i].record, sizeof(f.reports[i].record), "weir:{001}:f1s:p:window");
    (void) snprintf(f.reports[i].author, sizeof(f.reports[i].author), "%d", i);
    f.rounds[i] = (struct round){.reports = &f.reports[i], .report_count = 1, .node_lifetime_ms = LIFE_MS};
    f.rounds[i].node = i == 0 ? "n0" : "n1";
    return f.t[i]->ops->begin(f.t[i], &f.rounds[i], node_ns());
}

static enum transport_event step_at(int i, int64_t now_ms)
{
    f.now_ms = now_ms;
    return f.t[i]->ops->step(f.t[i], node_ns());
}

/* By when a node wants to be stepped, in milliseconds of the fleet; -1: never. */
static int64_t due_ms(int i)
{
    uint64_t deadline_ns = UINT64_MAX;
    assert_int_equal(f.t[i]->ops->wait_for(f.t[i], NULL, &deadline_ns), 0);
    return deadline_ns == UINT64_MAX ? -1 : (int64_t) (deadline_ns / MILLISECOND) - 5000;
}

static struct loopback_counts counts(void)
{
    struct loopback_counts counts;
    loopback_fleet_get_counts(f.fleet, &counts);
    return counts;
}

static void test_a_round_takes_its_way_to_the_fleet_and_back(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_min_ns = 30 * MILLISECOND, .delay_max_ns = 30 * MILLISECOND});
    assert_int_equal(due_ms(0), -1);
    assert_int_equal(f.t[0]->ops->state(f.t[0]), TRANSPORT_READY);
    assert_string_equal(f.t[0]->ops->server(f.t[0]), "fleet in memory");
    assert_int_equal(begin_round(0, 5), 0);
    assert_int_equal(f.t[0]->ops->state(f.t[0]), TRANSPORT_BUSY);
    assert_int_equal(f.t[0]->ops->begin(f.t[0], &f.rounds[1], node_ns()), -EBUSY);
    assert_int_equal(due_ms(0), 30);
    assert_int_equal(step_at(0, 29), TRANSPORT_NOTHING);
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 0);
    assert_int_equal(step_at(1, 30), TRANSPORT_NOTHING); /* whoever is stepped */
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 5);
    assert_int_equal(due_ms(0), 60);
    assert_int_equal(step_at(0, 59), TRANSPORT_NOTHING);
    assert_int_equal(f.reports[0].status, 1);
    assert_int_equal(step_at(0, 60), TRANSPORT_ROUND_DONE);
    assert_int_equal(f.reports[0].status, 0);
    assert_int_equal(f.reports[0].sum, 5);
    const struct round *round = &f.rounds[0];
    assert_int_equal(round->sent_ns, 5000 * MILLISECOND);
    assert_int_equal(round->received_ns, 5060 * MILLISECOND);
    assert_int_equal(round->fleet_wall_ns, ns_of(30));
    assert_int_equal(round->ahead_ns, 0);
    assert_int_equal(round->live_nodes, 1);
    assert_int_equal(round->suspect_nodes, 0);
    assert_int_equal(round->watermark_ns, ns_of(30));
    assert_false(round->overrides_new);
    assert_int_equal(due_ms(0), -1);
    const struct loopback_counts c = counts();
    assert_true(c.rounds == 1 && c.reports == 1 && c.applied == 1);
    assert_int_equal(c.size, round->sent_size);
    assert_int_equal(c.lost + c.duplicated + c.answers_lost, 0);
    const struct transport_counts own = f.t[0]->ops->counts(f.t[0]);
    assert_true(own.attempts == 1 && own.connections == 1 && own.failures == 0);
    assert_int_equal(loopback_fleet_record_count(f.fleet), 1);
    assert_int_equal(loopback_fleet_sum(f.fleet, "q:"), 0);
    f.now_ms = 60031; /* it has expired */
    assert_int_equal(loopback_fleet_record_count(f.fleet), 0);
    fleet_end();
}

/* What a fault does to a round that begins at 0 and is answered at once, if it is, and to those after it. */
static void test_what_each_fault_does(void **state)
{
    (void) state;
    static const struct loopback_link all_requests = {.requests_lost_ppm = 1000000};
    static const struct loopback_link all_answers = {.answers_lost_ppm = 1000000};
    static const struct loopback_link all_twice = {.duplicates_ppm = 1000000};
    static const struct loopback_link all_unsaid = {.unsaid_ppm = 1000000};
    static const struct loopback_link none = {.delay_min_ns = 0};
    static const struct {
        const char *fault;
        const struct loopback_link *link;
        enum transport_event event; /* in the first step; NOTHING: the round fails after a second */
        uint64_t applied, lost, answers_lost, duplicated, sum;
        int status;
    } cases[] = {
        {"none", &none, TRANSPORT_ROUND_DONE, 1, 0, 0, 0, 5, 0},
        {"requests", &all_requests, TRANSPORT_NOTHING, 0, 1, 0, 0, 0, -EAGAIN},
        {"answers", &all_answers, TRANSPORT_NOTHING, 1, 0, 1, 0, 5, -EAGAIN},
        {"twice", &all_twice, TRANSPORT_ROUND_DONE, 2, 0, 0, 1, 5, 0},
        {"unsaid", &all_unsaid, TRANSPORT_ROUND_DONE, 1, 0, 0, 0, 0, -EAGAIN},
        {"cut", &none, TRANSPORT_NOTHING, 0, 1, 0, 0, 0, -EAGAIN},
        {"deaf", &none, TRANSPORT_NOTHING, 1, 0, 1, 0, 5, -EAGAIN},
        {"stuck", &none, TRANSPORT_NOTHING, 0, 0, 0, 0, 0, -EAGAIN},
        {"hung", &none, TRANSPORT_NOTHING, 0, 0, 0, 0, 0, -EAGAIN},
        {"lose", &none, TRANSPORT_ROUND_FAILED, 1, 0, 1, 0, 5, -EAGAIN},
        {"refuse", &none, TRANSPORT_ROUND_DONE, 1, 0, 0, 0, 0, -EPROTO},
        {"refuse another", &none, TRANSPORT_ROUND_DONE, 1, 0, 0, 0, 5, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fleet_begin(&none);
        struct transport *t = f.t[0];
        loopback_transport_set_link(t, cases[i].link);
        const char *const fault = cases[i].fault;
        loopback_transport_set_cut(t, strcmp(fault, "cut") == 0);
        loopback_transport_set_deaf(t, strcmp(fault, "deaf") == 0);
        loopback_transport_set_stuck(t, strcmp(fault, "stuck") == 0);
        loopback_fleet_set_hung(f.fleet, strcmp(fault, "hung") == 0);
        loopback_fleet_lose_answers(f.fleet, strcmp(fault, "lose") == 0);
        loopback_fleet_refuse(f.fleet, strcmp(fault, "refuse") == 0 ? "f1s" : "nothing", -EPROTO);
        assert_int_equal(begin_round(0, 5), 0);
        assert_int_equal(step_at(0, 0), cases[i].event);
        if (cases[i].event == TRANSPORT_NOTHING) {
            assert_int_equal(due_ms(0), 1000);
            assert_int_equal(step_at(0, 999), TRANSPORT_NOTHING);
            assert_int_equal(step_at(0, 1000), TRANSPORT_ROUND_FAILED);
        }
        const bool failed = cases[i].event != TRANSPORT_ROUND_DONE;
        assert_int_equal(t->ops->counts(t).failures, failed);
        assert_int_equal(t->ops->problem(t) != NULL, failed);
        assert_int_equal(t->ops->state(t), TRANSPORT_READY);
        const struct loopback_counts c = counts();
        if (c.applied != cases[i].applied || c.lost != cases[i].lost || c.answers_lost != cases[i].answers_lost ||
            c.duplicated != cases[i].duplicated || loopback_fleet_sum(f.fleet, "p:") != cases[i].sum ||
            f.reports[0].status != cases[i].status) {
            fail_msg("%s: applied %u, lost %u, answers lost %u, twice %u, sum %u, status %d", fault,
                     (unsigned) c.applied, (unsigned) c.lost, (unsigned) c.answers_lost, (unsigned) c.duplicated,
                     (unsigned) loopback_fleet_sum(f.fleet, "p:"), f.reports[0].status);
        }
        /* Without the fault the next round is answered, and takes the problem away. */
        loopback_transport_set_link(t, &none);
        loopback_transport_set_cut(t, false);
        loopback_transport_set_deaf(t, false);
        loopback_transport_set_stuck(t, false);
        loopback_fleet_set_hung(f.fleet, false);
        loopback_fleet_lose_answers(f.fleet, false);
        loopback_fleet_refuse(f.fleet, NULL, 0);
        assert_int_equal(begin_round(0, 7), 0);
        assert_int_equal(step_at(0, f.now_ms), TRANSPORT_ROUND_DONE);
        assert_null(t->ops->problem(t));
        assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 7);
        fleet_end();
    }
}

static void test_a_fleet_that_is_down_takes_no_rounds_and_loses_those_under_way(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.backs_off = true});
    struct transport *t = f.t[0];
    assert_int_equal(begin_round(0, 5), 0);
    loopback_fleet_set_down(f.fleet, true);
    assert_int_equal(step_at(0, 0), TRANSPORT_ROUND_FAILED);
    assert_string_equal(t->ops->problem(t), "the fleet went down");
    assert_int_equal(t->ops->state(t), TRANSPORT_DOWN);
    assert_int_equal(counts().lost, 1);
    assert_int_equal(begin_round(0, 5), -ENOTCONN);
    /* Attempts come at waits that double, by a half to the whole of them. */
    int64_t wait_ms = 50;
    for (unsigned failures = 1; failures < 10; failures++) {
        const int64_t due = due_ms(0);
        assert_in_range(due - f.now_ms, wait_ms / 2 - 1, wait_ms);
        assert_int_equal(t->ops->counts(t).failures, failures);
        assert_int_equal(step_at(0, due - 1), TRANSPORT_NOTHING);
        assert_int_equal(t->ops->counts(t).failures, failures);
        assert_int_equal(step_at(0, due + 1), TRANSPORT_NOTHING);
        assert_int_equal(t->ops->counts(t).attempts, failures + 1);
        assert_string_equal(t->ops->problem(t), "the fleet is down");
        wait_ms = 2 * wait_ms < 3000 ? 2 * wait_ms : 3000;
    }
    loopback_fleet_set_down(f.fleet, false);
    assert_int_equal(t->ops->state(t), TRANSPORT_DOWN); /* until the next attempt */
    (void) step_at(0, due_ms(0) + 1);
    assert_int_equal(t->ops->state(t), TRANSPORT_READY);
    assert_int_equal(begin_round(0, 5), 0);
    assert_int_equal(step_at(0, f.now_ms), TRANSPORT_ROUND_DONE);
    assert_null(t->ops->problem(t));
    /* The next failure is the first again. */
    loopback_fleet_set_down(f.fleet, true);
    (void) step_at(0, f.now_ms);
    assert_in_range(due_ms(0) - f.now_ms, 24, 50);
    fleet_end();
}

static void test_what_a_dead_path_holds_arrives_when_the_path_is_back(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    loopback_transport_set_stuck(f.t[0], true);
    assert_int_equal(begin_round(0, 5), 0);
    assert_int_equal(step_at(0, 1000), TRANSPORT_ROUND_FAILED);
    assert_int_equal(begin_round(0, 7), 0); /* a later message is lost */
    assert_int_equal(counts().lost, 1);
    assert_int_equal(step_at(0, 2000), TRANSPORT_ROUND_FAILED);
    loopback_transport_set_stuck(f.t[0], false);
    loopback_fleet_run(f.fleet);
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 5);
    assert_int_equal(counts().answers_lost, 0); /* nobody waits for it */
    /* A node that is closed has sent what it has sent; one that is dead begins no round. */
    loopback_transport_set_stuck(f.t[0], true);
    assert_int_equal(begin_round(0, 9), 0);
    f.t[0]->ops->close(f.t[0]);
    f.t[0] = NULL;
    loopback_fleet_run(f.fleet);
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 9);
    assert_int_equal(begin_round(1, 1), 0);
    loopback_transport_kill(f.t[1]);
    assert_int_equal(step_at(1, 2000), TRANSPORT_ROUND_FAILED);
    assert_string_equal(f.t[1]->ops->problem(f.t[1]), "the node is dead");
    assert_int_equal(f.t[1]->ops->state(f.t[1]), TRANSPORT_DOWN);
    assert_int_equal(begin_round(1, 2), -ENOTCONN);
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 10); /* its request arrived */
    fleet_end();
}

/* Delays are drawn alike for each seed, and within their bounds; requests take effect in the order of arrival. */
static void test_delays_are_drawn_from_the_seed(void **state)
{
    (void) state;
    uint64_t first[40];
    for (int run = 0; run < 2; run++) {
        fleet_begin(&(struct loopback_link){.delay_min_ns = 10 * MILLISECOND, .delay_max_ns = 20 * MILLISECOND});
        uint64_t least = UINT64_MAX;
        uint64_t most = 0;
        for (int i = 0; i < 40; i++) {
            assert_int_equal(begin_round(0, 5), 0);
            const uint64_t delay_ns =
                ((struct loopback_transport *) (void *) f.t[0])->request->due_ns - ns_of(f.now_ms);
            assert_in_range(delay_ns, 10 * MILLISECOND, 20 * MILLISECOND);
            least = delay_ns < least ? delay_ns : least;
            most = delay_ns > most ? delay_ns : most;
            assert_true(run == 0 || first[i] == delay_ns);
            first[i] = delay_ns;
            assert_int_equal(step_at(0, f.now_ms + 20), TRANSPORT_NOTHING);
            assert_int_equal(step_at(0, f.now_ms + 20), TRANSPORT_ROUND_DONE);
        }
        assert_true(least < 12 * MILLISECOND && most > 18 * MILLISECOND);
        fleet_end();
    }
    fleet_begin(&(struct loopback_link){.delay_min_ns = 30 * MILLISECOND, .delay_max_ns = 30 * MILLISECOND});
    loopback_transport_set_link(f.t[1], &(struct loopback_link){.delay_max_ns = 1});
    assert_int_equal(begin_round(0, 5), 0);
    assert_int_equal(begin_round(1, 7), 0);
    loopback_fleet_set_slow(f.fleet, 100 * MILLISECOND);
    assert_int_equal(step_at(0, 31), TRANSPORT_NOTHING);
    assert_int_equal(step_at(1, 130), TRANSPORT_NOTHING); /* the answers are sent later */
    assert_int_equal(step_at(1, 132), TRANSPORT_ROUND_DONE);
    assert_int_equal(f.reports[1].sum, 7); /* its request was first */
    assert_int_equal(step_at(0, 160), TRANSPORT_NOTHING);
    assert_int_equal(step_at(0, 161), TRANSPORT_ROUND_DONE);
    assert_int_equal(f.reports[0].sum, 12);
    fleet_end();
}

static void test_the_clock_of_messages_does_not_step_back_with_the_fleets(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_min_ns = 30 * MILLISECOND, .delay_max_ns = 30 * MILLISECOND});
    assert_int_equal(begin_round(0, 5), 0);
    f.now_ms = -100;
    assert_int_equal(begin_round(1, 7), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(((struct loopback_transport *) (void *) f.t[i])->request->due_ns, ns_of(30));
    }
    fleet_end();
}

/* In a fleet without delays a round takes effect in the step of its own node. */
static void test_without_delays_a_round_waits_for_its_own_node(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    assert_int_equal(begin_round(0, 5), 0);
    assert_int_equal(begin_round(1, 7), 0);
    assert_int_equal(step_at(1, 0), TRANSPORT_ROUND_DONE);
    assert_int_equal(f.reports[1].sum, 7);
    assert_int_equal(loopback_fleet_sum(f.fleet, "p:"), 7);
    assert_int_equal(step_at(0, 0), TRANSPORT_ROUND_DONE);
    assert_int_equal(f.reports[0].sum, 12);
    fleet_end();
}

/* What the rounds of node 0 say after its data was lost or put back: a round before, the loss, and a round after. */
static void test_a_loss_is_told_once(void **state)
{
    (void) state;
    static const struct {
        const char *loss;
        bool first, leaves, lost;
        uint64_t sum;
    } cases[] = {
        {"none", false, false, false, 6},     {"forget", false, false, true, 6}, {"forget", true, false, false, 6},
        {"forget", false, true, false, 6},    {"flush", false, false, true, 6},  {"other run", false, false, true, 12},
        {"same run", false, false, true, 12},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
        assert_int_equal(begin_round(0, 2), 0);
        assert_int_equal(step_at(0, 0), TRANSPORT_ROUND_DONE);
        assert_int_equal(begin_round(1, 6), 0);
        assert_int_equal(step_at(1, 0), TRANSPORT_ROUND_DONE);
        struct loopback_snapshot *snapshot = loopback_fleet_snapshot(f.fleet);
        assert_non_null(snapshot);
        f.now_ms = 100;
        assert_int_equal(begin_round(0, 4), 0);
        f.rounds[0].first = true;
        assert_int_equal(step_at(0, 100), TRANSPORT_ROUND_DONE);
        assert_int_equal(loopback_fleet_sum(f.fleet, ""), 10);
        if (strcmp(cases[i].loss, "forget") == 0) {
            loopback_fleet_forget(f.fleet);
        } else if (strcmp(cases[i].loss, "flush") == 0) {
            loopback_fleet_flush(f.fleet);
        } else if (strstr(cases[i].loss, "run") != NULL) {
            loopback_fleet_restore(f.fleet, snapshot, cases[i].loss[0] == 's');
            assert_int_equal(loopback_fleet_sum(f.fleet, ""), 8);
            assert_int_equal(loopback_fleet_record_count(f.fleet), 1);
        }
        loopback_snapshot_free(snapshot);
        f.now_ms = 200;
        for (int round = 0; round < 2; round++) {
            assert_int_equal(begin_round(0, 6), 0);
            f.rounds[0].first = cases[i].first;
            f.rounds[0].leaves = cases[i].leaves;
            assert_int_equal(step_at(0, 200), TRANSPORT_ROUND_DONE);
            assert_int_equal(f.rounds[0].lost_state, cases[i].lost && round == 0);
        }
        assert_int_equal(loopback_fleet_sum(f.fleet, ""), i == 0 ? 12 : cases[i].sum);
        fleet_end();
    }
    loopback_snapshot_free(NULL);
}

static void test_overrides_are_answered_where_the_version_is_another(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    static char huge[OVERRIDE_SIZE_MAX + 2];
    memset(huge, 'x', sizeof(huge) - 1);
    /* The version that the node has, what is set before, and what is answered. */
    static const struct {
        const char *version, *field, *value;
        bool is_new;
        size_t count;
        uint64_t left_out;
        const char *answered;
    } cases[] = {
        {"", NULL, NULL, false, 0, 0, ""},          {"v7", NULL, NULL, true, 0, 0, "none"},
        {"", "p:a", "limit 1", true, 1, 0, "v1"},   {"v1", NULL, NULL, false, 0, 0, "v1"},
        {"v1", "p:b", "limit 2", true, 2, 0, "v2"}, {"v2", "p:a", "limit 3", true, 2, 0, "v3"},
        {"v3", "p:b", NULL, true, 1, 0, "v4"},      {"v4", "p:c", huge, true, 1, 1, "v5"},
        {"v5", "p:c", huge + 5, true, 2, 0, "v6"}, /* the longest that is taken */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].field != NULL) {
            loopback_fleet_set_override(f.fleet, cases[i].field, cases[i].value);
        }
        f.now_ms += 6000; /* they are asked for every five seconds while some are left out */
        f.rounds[0] = (struct round){.node = "n0", .node_lifetime_ms = LIFE_MS};
        (void) strcpy(f.rounds[0].overrides_version, cases[i].version);
        assert_int_equal(f.t[0]->ops->begin(f.t[0], &f.rounds[0], node_ns()), 0);
        assert_int_equal(step_at(0, f.now_ms), TRANSPORT_ROUND_DONE);
        const struct round *round = &f.rounds[0];
        assert_int_equal(round->overrides_new, cases[i].is_new);
        assert_string_equal(round->overrides_version, cases[i].answered);
        if (cases[i].is_new) {
            assert_int_equal(round->override_count, cases[i].count);
            assert_int_equal(round->overrides_left_out, cases[i].left_out);
            bool found = cases[i].field == NULL || cases[i].value == NULL || cases[i].left_out != 0;
            for (size_t n = 0; n < round->override_count; n++) {
                found = found || (strcmp(round->overrides[n].field, cases[i].field) == 0 &&
                                  strcmp(round->overrides[n].value, cases[i].value) == 0);
            }
            assert_true(found);
            overrides_drop(round->overrides, round->override_count);
        }
    }
    fleet_end();
}

/* As the protocol has them: "*2\r\n$4\r\nEVAL\r\n..." */
static void test_the_size_of_a_round_is_that_of_its_words(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    static const uint64_t counts[] = {0, 9, 10, 1760000000000000};
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        assert_int_equal(begin_round(0, counts[n]), 0);
        const struct message *message = ((struct loopback_transport *) (void *) f.t[0])->request;
        char text[24];
        size_t size = 0;
        for (size_t i = 0; i < message->count; i++) {
            const struct command *command = &message->calls[i].words->command;
            size += (size_t) snprintf(text, sizeof(text), "*%d\r\n", command->argc);
            for (int w = 0; w < command->argc; w++) {
                size +=
                    (size_t) snprintf(text, sizeof(text), "$%zu\r\n\r\n", command->lengths[w]) + command->lengths[w];
            }
        }
        assert_int_equal(message->count, 3); /* heartbeat, overrides, windows */
        assert_int_equal(f.rounds[0].sent_size, size);
        assert_int_equal(step_at(0, 0), TRANSPORT_ROUND_DONE);
    }
    fleet_end();
}

/* What is told of each author, as a sum and by name. */
static void add_author(void *arg, const char *record, const char *author, uint64_t count, uint64_t refunds)
{
    uint64_t *sums = arg;
    assert_non_null(strstr(record, "window"));
    sums[author[0] - '0'] += 1000 * count + refunds;
}

static void test_each_author_of_a_record_is_listed_until_the_record_expires(void **state)
{
    (void) state;
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    f.refunds = 2;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(begin_round(i, 5 + (uint64_t) i), 0);
        assert_int_equal(step_at(i, 0), TRANSPORT_ROUND_DONE);
    }
    uint64_t sums[2] = {0, 0};
    loopback_fleet_each(f.fleet, add_author, sums);
    assert_int_equal(sums[0], 5002);
    assert_int_equal(sums[1], 6002);
    assert_int_equal(loopback_fleet_sum(f.fleet, "window"), 7);
    f.now_ms = 60000;
    loopback_fleet_each(f.fleet, add_author, sums);
    assert_int_equal(sums[0], 10004);
    f.now_ms = 60001;
    loopback_fleet_each(f.fleet, add_author, sums);
    assert_int_equal(sums[0], 10004);
    assert_int_equal(loopback_fleet_sum(f.fleet, "window"), 0);
    fleet_end();
}

static void test_ten_thousand_records_are_kept_apart(void **state)
{
    (void) state;
    static struct report reports[10000];
    fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
    struct loopback_snapshot *snapshot = NULL;
    for (unsigned pass = 0; pass < 3; pass++) {
        for (unsigned i = 0; i < 10000; i++) {
            reports[i] = (struct report){.kind = REPORT_WINDOW, .count = i + 1, .demand = i + 1, .expire_ms = 60000};
            (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{001}:record %u", i);
            (void) snprintf(reports[i].author, sizeof(reports[i].author), "%u", pass);
        }
        f.rounds[0] =
            (struct round){.reports = reports, .report_count = 10000, .node = "n0", .node_lifetime_ms = LIFE_MS};
        assert_int_equal(f.t[0]->ops->begin(f.t[0], &f.rounds[0], node_ns()), 0);
        assert_int_equal(step_at(0, 0), TRANSPORT_ROUND_DONE);
        for (unsigned i = 0; i < 10000; i++) {
            assert_int_equal(reports[i].status, 0);
            assert_int_equal(reports[i].sum, (pass + 1) * (i + 1));
        }
        snapshot = pass == 1 ? loopback_fleet_snapshot(f.fleet) : snapshot;
    }
    assert_int_equal(loopback_fleet_record_count(f.fleet), 10000);
    assert_int_equal(loopback_fleet_sum(f.fleet, ""), 3 * 50005000);
    loopback_fleet_restore(f.fleet, snapshot, true);
    loopback_snapshot_free(snapshot);
    assert_int_equal(loopback_fleet_record_count(f.fleet), 10000);
    assert_int_equal(loopback_fleet_sum(f.fleet, ""), 2 * 50005000);
    fleet_end();
}

/* Applies one report, at a time of the fleet's clock. */
static void apply(struct report *report, int64_t now_ms)
{
    f.now_ms = now_ms;
    f.rounds[0] = (struct round){.reports = report, .report_count = 1, .node = "n0", .node_lifetime_ms = LIFE_MS};
    assert_int_equal(f.t[0]->ops->begin(f.t[0], &f.rounds[0], node_ns()), 0);
    assert_int_equal(step_at(0, now_ms), TRANSPORT_ROUND_DONE);
    assert_int_equal(report->status, 0);
}

#define MODEL_UNITS 4000
#define AUTHORS     3

/* A sliding log in the plainest form: all units that were ever told of, and which of them count. */
struct model {
    size_t count;
    struct model_unit {
        unsigned author;
        uint64_t number, time_us;
        bool counts;
    } units[MODEL_UNITS];
    uint64_t reset_us;
    uint64_t demand[AUTHORS], told_us[AUTHORS]; /* told_us 0: never */
};

static void model_apply(struct model *m, unsigned author, const struct report *report)
{
    const struct history_report *h = report->history;
    m->reset_us = report->reset_us > m->reset_us ? report->reset_us : m->reset_us;
    for (size_t i = 0; i < m->count; i++) {
        struct model_unit *unit = &m->units[i];
        const bool again = unit->number >= h->first && unit->number < h->first + h->time_count;
        const bool refunded = unit->number >= h->refund_from && unit->number < h->refund_to;
        unit->counts = unit->counts && (unit->author != author || !(again || refunded));
    }
    for (uint32_t i = 0; i < h->time_count; i++) {
        assert_true(m->count < MODEL_UNITS);
        m->units[m->count++] = (struct model_unit){author, h->first + i, h->times_us[i], true};
    }
    size_t live = 0;
    for (size_t i = 0; i < m->count; i++) {
        struct model_unit *unit = &m->units[i];
        unit->counts = unit->counts && unit->time_us > h->now_us - h->period_us && unit->time_us > m->reset_us;
        live += unit->counts;
    }
    for (; live > h->limit; live--) { /* the earliest one */
        struct model_unit *first = NULL;
        for (size_t i = 0; i < m->count; i++) {
            struct model_unit *unit = &m->units[i];
            first = unit->counts && (first == NULL || unit->time_us < first->time_us) ? unit : first;
        }
        first->counts = false;
    }
    m->demand[author] = report->demand;
    m->told_us[author] = h->now_us;
}

static uint64_t model_units(const struct model *m, unsigned author, uint64_t until_us)
{
    uint64_t units = 0;
    for (size_t i = 0; i < m->count; i++) {
        units += m->units[i].counts && (author == AUTHORS || m->units[i].author == author) &&
                 m->units[i].time_us <= until_us;
    }
    return units;
}

static void test_a_log_is_the_set_of_its_units(void **state)
{
    (void) state;
    static struct model m;
    static struct history_report history;
    uint64_t rng = test_seed();
    for (unsigned draw = test_draws(20); draw != 0; draw--) {
        fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
        memset(&m, 0, sizeof(m));
        const uint64_t limit = draw_between(&rng, 1, 400);
        uint64_t now_us = (uint64_t) T0_MS * 1000;
        uint64_t next[AUTHORS] = {0, 0, 0};
        for (int i = 0; i < 40; i++) {
            const unsigned author = (unsigned) random_below(&rng, AUTHORS);
            now_us += draw_once_in(&rng, 10) ? 120000000 : random_below(&rng, 20000000);
            history = (struct history_report){.now_us = now_us, .period_us = 60000000, .limit = limit};
            struct report report = {.kind = REPORT_HISTORY, .demand = random_below(&rng, 1000)};
            report.history = &history;
            report.expire_ms = 1000000000;
            (void) strcpy(report.record, "weir:{001}:log");
            (void) strcpy(history.demand_record, "weir:{001}:?log");
            (void) snprintf(report.author, sizeof(report.author), "%u", author);
            const uint64_t back = random_below(&rng, next[author] + 1);
            history.first = draw_once_in(&rng, 3) ? next[author] - back : next[author];
            history.time_count = (uint32_t) random_below(&rng, 60);
            for (uint32_t u = 0; u < history.time_count; u++) {
                history.times_us[u] = now_us - 5000000 + u / 3 * 1000;
            }
            next[author] =
                history.first + history.time_count > next[author] ? history.first + history.time_count : next[author];
            history.refund_to = draw_once_in(&rng, 4) ? history.first : 0;
            history.refund_from = history.refund_to - random_below(&rng, history.refund_to + 1);
            report.reset_us = draw_once_in(&rng, 12) ? now_us - 4990000 : 0;
            model_apply(&m, author, &report);
            apply(&report, (int64_t) (now_us / 1000) - T0_MS);
            const uint64_t units = model_units(&m, AUTHORS, UINT64_MAX);
            assert_int_equal(report.sum, units);
            assert_int_equal(report.author_count, model_units(&m, author, UINT64_MAX));
            assert_int_equal(history.reset_us, m.reset_us > now_us - 60000000 ? m.reset_us : 0);
            assert_int_equal(loopback_fleet_sum(f.fleet, "log"), units);
            /* The demand of those that have reported within two minutes. */
            uint64_t demand = 0;
            uint32_t others = 0;
            for (unsigned a = 0; a < AUTHORS; a++) {
                if (a != author && m.told_us[a] != 0 && m.told_us[a] + 120000000 > now_us) {
                    demand += m.demand[a];
                    others++;
                }
            }
            assert_int_equal(report.sum_demand, demand);
            assert_int_equal(history.other_authors, others);
            /* At most 64 groups of one size, but for units of one time; the time of a group is that of its last unit.
             */
            const uint64_t each = units > 64 ? (units + 63) / 64 : 1;
            uint64_t all = 0;
            assert_true(history.group_count <= HISTORY_GROUPS);
            for (uint32_t g = 0; g < history.group_count; g++) {
                all += history.groups[g].units;
                assert_int_equal(model_units(&m, AUTHORS, history.groups[g].time_ns), all);
                assert_true(model_units(&m, AUTHORS, history.groups[g].time_ns - 1) < all);
                assert_true(g + 1 == history.group_count || history.groups[g].units >= each);
                assert_true(history.groups[g].units < each + 200);
            }
            assert_int_equal(all, units);
            assert_true(history.group_count >= (units + each + 199) / (each + 200));
        }
        fleet_end();
    }
}

/* A bucket's record lives until the bucket is full, and as long as the report says beyond that. */
static void test_a_bucket_is_kept_until_it_is_full_and_longer(void **state)
{
    (void) state;
    static const uint64_t units[] = {0, 1, 1000};
    for (size_t i = 0; i < 3; i++) {
        fleet_begin(&(struct loopback_link){.delay_max_ns = 0});
        struct report report = {.kind = REPORT_BUCKET, .count = units[i], .demand = units[i], .expire_ms = 500};
        report.unit_ps = UINT64_C(20000000000); /* 20 ms */
        report.now_us = report.from_us = (uint64_t) T0_MS * 1000;
        (void) strcpy(report.record, "weir:{001}:bucket");
        (void) strcpy(report.author, "0");
        apply(&report, 0);
        assert_int_equal(report.tat_answer_us, units[i] != 0 ? ((uint64_t) T0_MS + 20 * units[i]) * 1000 : 0);
        f.now_ms = 20 * (int64_t) units[i] + 500;
        assert_int_equal(loopback_fleet_record_count(f.fleet), 1);
        f.now_ms++;
        assert_int_equal(loopback_fleet_record_count(f.fleet), 0);
        fleet_end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_node_is_live_then_suspect_then_gone),
        cmocka_unit_test(test_a_clock_that_steps_back_takes_no_time_back),
        cmocka_unit_test(test_a_step_of_more_than_an_hour_needs_a_witness),
        cmocka_unit_test(test_a_set_that_is_new_begins_where_its_first_node_is),
        cmocka_unit_test(test_a_round_takes_its_way_to_the_fleet_and_back),
        cmocka_unit_test(test_what_each_fault_does),
        cmocka_unit_test(test_a_fleet_that_is_down_takes_no_rounds_and_loses_those_under_way),
        cmocka_unit_test(test_what_a_dead_path_holds_arrives_when_the_path_is_back),
        cmocka_unit_test(test_delays_are_drawn_from_the_seed),
        cmocka_unit_test(test_the_clock_of_messages_does_not_step_back_with_the_fleets),
        cmocka_unit_test(test_without_delays_a_round_waits_for_its_own_node),
        cmocka_unit_test(test_a_loss_is_told_once),
        cmocka_unit_test(test_overrides_are_answered_where_the_version_is_another),
        cmocka_unit_test(test_the_size_of_a_round_is_that_of_its_words),
        cmocka_unit_test(test_each_author_of_a_record_is_listed_until_the_record_expires),
        cmocka_unit_test(test_ten_thousand_records_are_kept_apart),
        cmocka_unit_test(test_a_log_is_the_set_of_its_units),
        cmocka_unit_test(test_a_bucket_is_kept_until_it_is_full_and_longer),
    };
    return cmocka_run_group_tests_name("unit/transport/loopback", tests, NULL, NULL);
}
