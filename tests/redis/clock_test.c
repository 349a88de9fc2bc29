/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heartbeat's script: fleet time when Redis's clock is set, when the set of nodes is lost, and which nodes are
 * live.
 *
 * Guards: src/transport/redis/scripts/heartbeat.lua
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/exchange.h"
#include "support/server.h"

#define TIMEOUT_MS 5000

#define LEEWAY_NS (INT64_C(100) * (int64_t) MILLISECOND)

/* When the clock was read that the next expectation goes by; 0: not yet. */
static uint64_t read_ns;

static void clock_is_read(void)
{
    read_ns = read_ns != 0 ? read_ns : real_ns();
}

/* How far a time may be behind: a busy machine's round takes a while. */
static int64_t leeway_ns(void)
{
    const int64_t passed_ns = read_ns != 0 ? (int64_t) (real_ns() - read_ns) : 0;
    read_ns = 0;
    return LEEWAY_NS + passed_ns;
}

/* A heartbeat, and how far fleet time is then ahead of this machine's clock, which is Redis's. */
static int64_t beat(struct transport *t, const char *node, uint64_t fleet_ns, struct round *round)
{
    clock_is_read();
    *round = (struct round){.node = node, .node_lifetime_ms = 10000, .suspect_ms = 600, .fleet_ns = fleet_ns};
    assert_int_equal(exchange(t, round), TRANSPORT_ROUND_DONE);
    return (int64_t) (round->fleet_wall_ns - real_wall_ns(NULL));
}

/* The set's own member. */
static void begun_text(const struct server *server, char text[80])
{
    redisReply *reply = server_command(server, "ZRANGE weir:nodes -1 -1");
    assert_int_equal(reply->elements, 1);
    (void) snprintf(text, 80, "%s", reply->element[0]->str);
    freeReplyObject(reply);
    assert_int_equal(text[0], '!');
}

/* As if the server's clock had gone back by so much: the latest heartbeat is as much ahead of it. */
static void set_back(const struct server *server, int64_t by_ms)
{
    clock_is_read();
    const long long then_ms = (long long) (real_wall_ns(NULL) / MILLISECOND) + by_ms;
    freeReplyObject(server_command(server, "ZADD weir:nodes %lld other:600:10000", then_ms));
}

static void expect_ahead(int64_t ahead_ns, int64_t by_ns, int64_t waited_ns)
{
    if (ahead_ns < by_ns - leeway_ns() - waited_ns / 256 || ahead_ns > by_ns + LEEWAY_NS / 100) {
        fail_msg("fleet time is %" PRId64 " ns ahead, not %" PRId64, ahead_ns, by_ns);
    }
}

static void test_fleet_time_does_not_go_back_with_the_clock(void **state)
{
    (void) state;
    static const int64_t steps_ms[] = {2000, 25000, 3500000};
    for (size_t i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
        struct server server;
        struct transport *up = redis_start(&server, TIMEOUT_MS);
        struct round round;
        char before[80];
        char after[80];
        for (int times = 0; times < 50; times++) {
            expect_ahead(beat(up, "up", real_wall_ns(NULL), &round), 0, 0);
        }
        begun_text(&server, before);
        assert_null(strchr(before, ':')); /* an offset of some microseconds is none */
        set_back(&server, steps_ms[i]);
        const uint64_t set_ns = real_ns();
        const int64_t step_ns = steps_ms[i] * (int64_t) MILLISECOND;
        /* The node's own time says how long ago the latest heartbeat was; another one's would not do. */
        const uint64_t own_ns = i == 0 ? set_ns : real_wall_ns(NULL) + (uint64_t) step_ns + 300 * MILLISECOND;
        const int64_t since_ns = i == 0 ? 0 : 300 * (int64_t) MILLISECOND;
        expect_ahead(beat(up, "up", own_ns, &round), step_ns + since_ns, 0);
        assert_false(round.lost_state);
        begun_text(&server, after);
        assert_int_equal(strncmp(before, after, strlen(before)), 0); /* begun when it was */
        assert_int_equal(after[strlen(before)], ':');
        struct transport *joins = open_redis_on(&server, TIMEOUT_MS);
        uint64_t last_ns = 0;
        char noted[80];
        for (int times = 0; times < 200;
             times++) { /* a node that joins finds the same time, and fleet time never goes back */
            struct transport *t = times % 2 == 0 ? joins : up;
            const int64_t ahead_ns = beat(t, times % 2 == 0 ? "joins" : "up", 0, &round);
            expect_ahead(ahead_ns, step_ns + since_ns, (int64_t) (real_ns() - set_ns));
            assert_false(round.lost_state);
            assert_true(times != 0 || round.live_nodes + round.suspect_nodes == 3);
            assert_true(round.fleet_wall_ns >= last_ns);
            last_ns = round.fleet_wall_ns;
            begun_text(&server, noted);
            assert_string_equal(noted, after); /* nothing is written meanwhile */
        }
        set_back(&server, steps_ms[i] + 5000); /* once more */
        expect_ahead(beat(up, "up", 0, &round), step_ns + 5 * (int64_t) SECOND, 0);
        assert_false(round.lost_state);
        /* More than an hour has to have a witness: one member alone is none, and no loss. */
        for (int times = 0; times < 2; times++) {
            freeReplyObject(server_command(&server, "ZREM weir:nodes other:600:10000"));
            set_back(&server, INT64_C(7200000) + 2 * steps_ms[i]);
            const uint64_t mine_ns = times == 0 ? 0 : real_wall_ns(NULL) + (uint64_t) step_ns;
            expect_ahead(beat(up, "up", mine_ns, &round), step_ns + 5 * (int64_t) SECOND, (int64_t) SECOND);
            assert_false(round.lost_state);
        }
        joins->ops->close(joins);
        redis_stop(&server, up);
    }
}

/* The set's own member says that fleet time is so far ahead of the clock: as if that had just been set. */
static void write_ahead(const struct server *server, int64_t ahead_us)
{
    char text[80];
    clock_is_read();
    begun_text(server, text);
    freeReplyObject(server_command(server, "ZREM weir:nodes %s", text));
    text[1 + strspn(text + 1, "0123456789")] = '\0';
    freeReplyObject(server_command(server, "ZADD weir:nodes +inf %s:%lld:%lld", text, (long long) ahead_us,
                                   (long long) (real_wall_ns(NULL) / 1000)));
}

static void expect_near(int64_t ahead_ns, int64_t by_ns)
{
    const int64_t most_ns = leeway_ns();
    assert_in_range(ahead_ns - by_ns + most_ns, 0, 2 * most_ns);
}

static int64_t beat_with_host(struct transport *t, const char *node, uint64_t fleet_ns, uint64_t host_ns,
                              struct round *round)
{
    const uint64_t before_ns = real_ns();
    clock_is_read();
    *round = (struct round){
        .node = node, .node_lifetime_ms = 10000, .suspect_ms = 600, .fleet_ns = fleet_ns, .wall_ns = host_ns};
    assert_int_equal(exchange(t, round), TRANSPORT_ROUND_DONE);
    const int64_t ahead_ns = (int64_t) (round->fleet_wall_ns - real_wall_ns(NULL));
    const int64_t most_ns = LEEWAY_NS + (int64_t) (real_ns() - before_ns);
    assert_true(ahead_ns - round->ahead_ns < most_ns && round->ahead_ns - ahead_ns < most_ns);
    return ahead_ns;
}

/* Steps of more than an hour, both ways, and what is taken for such a step. */
static void test_a_step_of_the_clock_that_has_a_witness_moves_no_fleet_time(void **state)
{
    (void) state;
    static const int64_t steps_s[] = {3700, 86400, 31536000, INT64_C(30) * 31536000};
    for (size_t i = 0; i < sizeof(steps_s) / sizeof(steps_s[0]); i++) {
        const int64_t step_ns = steps_s[i] * (int64_t) SECOND;
        struct server server;
        struct transport *t = redis_start(&server, TIMEOUT_MS);
        struct round round;
        (void) beat_with_host(t, "up", real_wall_ns(NULL), real_wall_ns(NULL), &round);
        /* Back: the heartbeats, and this node's own time, are as much later. */
        freeReplyObject(server_command(&server, "ZREM weir:nodes up:600:10000"));
        set_back(&server, steps_s[i] * 1000);
        const uint64_t late_ns = real_wall_ns(NULL) + (uint64_t) step_ns + 300 * MILLISECOND;
        expect_ahead(beat_with_host(t, "up", late_ns, real_wall_ns(NULL), &round),
                     step_ns + 300 * (int64_t) MILLISECOND, 0);
        assert_int_equal(round.live_nodes, 2);
        expect_ahead(beat_with_host(t, "joins", 0, real_wall_ns(NULL), &round), step_ns + 300 * (int64_t) MILLISECOND,
                     SECOND);
        /* Also a node that comes when all others have left. */
        static const char *const names[] = {"up", "joins", "other"};
        for (size_t n = 0; n < 3; n++) {
            round = (struct round){.node = names[n], .node_lifetime_ms = 10000, .suspect_ms = 600, .leaves = true};
            assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
        }
        write_ahead(&server, 2 * steps_s[i] * 1000000);
        expect_ahead(beat_with_host(t, "new", 0, real_wall_ns(NULL), &round), 2 * step_ns, SECOND);
        /* Forward: as if fleet time had been behind the clock before; the host's clock says which is right. */
        freeReplyObject(server_command(&server, "DEL weir:nodes"));
        (void) beat_with_host(t, "up", 0, real_wall_ns(NULL), &round);
        freeReplyObject(server_command(&server, "ZREM weir:nodes up:600:10000"));
        set_back(&server, -steps_s[i] * 1000);
        read_ns = real_ns();
        const uint64_t early_ns = real_wall_ns(NULL) - (uint64_t) step_ns;
        const int64_t stays_ns = beat_with_host(t, "up", early_ns, early_ns, &round);
        expect_near(stays_ns, -step_ns);
        assert_int_equal(round.live_nodes, 2);
        const bool follows = steps_s[i] <= 2 * 365 * 86400;
        const uint64_t still_early_ns = real_wall_ns(NULL) - (uint64_t) step_ns;
        expect_near(beat_with_host(t, "up", still_early_ns, real_wall_ns(NULL), &round), follows ? 0 : -step_ns);
        assert_int_equal(round.live_nodes, 2);
        assert_false(round.lost_state);
        redis_stop(&server, t);
    }
}

static void test_a_set_that_is_lost_begins_where_the_first_node_is(void **state)
{
    (void) state;
    static const int64_t ahead_ms[] = {0, 10, 3000, 3000000, 3700000, 86400000, -5000};
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    struct round round;
    for (size_t i = 0; i < sizeof(ahead_ms) / sizeof(ahead_ms[0]); i++) {
        freeReplyObject(server_command(&server, "FLUSHALL"));
        const int64_t by_ns = ahead_ms[i] * (int64_t) MILLISECOND;
        const bool goes_on = ahead_ms[i] >= 3000;
        expect_ahead(beat(t, "n1", real_wall_ns(NULL) + (uint64_t) by_ns, &round), goes_on ? by_ns : 0, 0);
        assert_true(i == 0 || round.lost_state);
        expect_ahead(beat(t, "n1", real_wall_ns(NULL) + UINT64_C(60) * SECOND, &round), goes_on ? by_ns : 0, SECOND);
        assert_false(round.lost_state); /* once fleet time is there no node's guess counts */
    }
    /* An offset that is gone is taken away. */
    freeReplyObject(server_command(&server, "FLUSHALL"));
    (void) beat(t, "n1", real_wall_ns(NULL) + 60 * MILLISECOND, &round);
    char text[80];
    begun_text(&server, text);
    assert_non_null(strchr(text, ':'));
    const long long noted_us = (long long) (real_wall_ns(NULL) / 1000) - 20000000;
    *strchr(text, ':') = '\0';
    freeReplyObject(server_command(&server, "DEL weir:nodes"));
    freeReplyObject(server_command(&server, "ZADD weir:nodes +inf %s:60000:%lld", text, noted_us));
    expect_ahead(beat(t, "n2", 0, &round), 0, 0);
    char after[80];
    begun_text(&server, after);
    assert_string_equal(after, text);
    assert_int_equal(round.live_nodes, 1);
    redis_stop(&server, t);
}

/* A node is suspect, and has failed, by its own interval and lifetime, whichever node asks. */
static void test_a_node_that_speaks_seldom_is_not_taken_for_dead(void **state)
{
    (void) state;
    static const struct {
        int64_t quiet_ms; /* those below a threshold leave 20 s to a machine that stands still */
        uint32_t live, suspect;
    } cases[] = {{500, 2, 0}, {100000, 2, 0}, {160000, 2, 0}, {181000, 1, 1}, {1180000, 1, 1}, {1201000, 1, 0}};
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct round round;
        freeReplyObject(server_command(&server, "DEL weir:nodes"));
        const long long then_ms = (long long) (real_wall_ns(NULL) / MILLISECOND) - cases[i].quiet_ms;
        freeReplyObject(server_command(&server, "ZADD weir:nodes %lld slow:180000:1200000", then_ms));
        for (int times = 0; times < 3; times++) {
            (void) beat(t, "fast", 0, &round);
            assert_int_equal(round.live_nodes, cases[i].live);
            assert_int_equal(round.suspect_nodes, cases[i].suspect);
            assert_false(times != 0 && round.lost_state);
        }
    }
    redis_stop(&server, t);
}

/* A node that has just started knows no fleet time: the heartbeats of all others are its witness. */
static void test_a_step_back_has_the_heartbeats_of_all_nodes_for_a_witness(void **state)
{
    (void) state;
    static const int64_t steps_s[] = {3700, 86400, 31536000};
    for (size_t i = 0; i < sizeof(steps_s) / sizeof(steps_s[0]); i++) {
        for (int all = 0; all < 2; all++) {
            struct server server;
            struct transport *t = redis_start(&server, TIMEOUT_MS);
            struct round round;
            (void) beat(t, "up", 0, &round);
            if (all != 0) {
                freeReplyObject(server_command(&server, "ZREM weir:nodes up:600:10000"));
            }
            set_back(&server, steps_s[i] * 1000);
            const int64_t ahead_ns = all != 0 ? steps_s[i] * (int64_t) SECOND : 0;
            expect_ahead(beat(t, "joins", 0, &round), ahead_ns, 0);
            assert_int_equal(round.live_nodes, all != 0 ? 2 : 3);
            redis_stop(&server, t);
        }
    }
}

/* Of nodes that have all left, the set keeps until when they were there: the time goes on from then. */
static void test_the_last_node_that_leaves_notes_the_time(void **state)
{
    (void) state;
    static const int64_t back_ms[] = {2000, 25000, 86400000};
    for (size_t i = 0; i < sizeof(back_ms) / sizeof(back_ms[0]); i++) {
        struct server server;
        struct transport *t = redis_start(&server, TIMEOUT_MS);
        struct round round;
        (void) beat(t, "last", real_wall_ns(NULL), &round);
        const int64_t before_us = (int64_t) (real_wall_ns(NULL) / 1000);
        round = (struct round){.node = "last", .node_lifetime_ms = 10000, .suspect_ms = 600, .leaves = true};
        assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
        char text[80];
        begun_text(&server, text);
        long long begun_us;
        long long ahead_us;
        long long noted_us;
        assert_int_equal(sscanf(text, "!%lld:%lld:%lld", &begun_us, &ahead_us, &noted_us), 3);
        assert_in_range(noted_us, before_us, (int64_t) (real_wall_ns(NULL) / 1000));
        /* As if the clock had been set back since. */
        freeReplyObject(server_command(&server, "ZREM weir:nodes %s", text));
        read_ns = real_ns();
        freeReplyObject(server_command(&server, "ZADD weir:nodes +inf !%lld:%lld:%lld", begun_us, ahead_us,
                                       (long long) (real_wall_ns(NULL) / 1000) + back_ms[i] * 1000));
        expect_ahead(beat(t, "joins", 0, &round), back_ms[i] * (int64_t) MILLISECOND, 0);
        redis_stop(&server, t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fleet_time_does_not_go_back_with_the_clock),
        cmocka_unit_test(test_a_step_of_the_clock_that_has_a_witness_moves_no_fleet_time),
        cmocka_unit_test(test_a_step_back_has_the_heartbeats_of_all_nodes_for_a_witness),
        cmocka_unit_test(test_the_last_node_that_leaves_notes_the_time),
        cmocka_unit_test(test_a_set_that_is_lost_begins_where_the_first_node_is),
        cmocka_unit_test(test_a_node_that_speaks_seldom_is_not_taken_for_dead),
    };
    return cmocka_run_group_tests_name("redis/clock", tests, NULL, NULL);
}
