/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of a round: how it is cut, where each part is sent, and what the errors of servers lead to. There are no
 * connections: the test says which servers are ready, and reads the commands that are queued for them.
 *
 * Guards: src/transport/redis/batch.c, src/transport/redis/answer.c, src/transport/redis/slot_map.c
 */
#include <errno.h>

#include "support/redis_scene.h"
#include "transport/redis/answer.h"
#include "transport/redis/batch.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"
#include "transport/redis/topology.h"

#define NOW     SCENE_NOW
#define REPORTS 1100

/* A round of a transport whose servers are ready. */
static struct {
    struct redis_transport *t;
    struct round round;
    struct report *reports;
    struct history_report history;
} s;

static void scene_end(void)
{
    s.t->round = NULL;
    scene_close(s.t);
    free(s.reports);
}

static struct report *add_report(enum report_kind kind, const char *record)
{
    struct report *report = &s.reports[s.round.report_count++];
    report->kind = kind;
    report->history = kind == REPORT_HISTORY ? &s.history : NULL;
    report->unit_ps = report->expire_ms = 1;
    report->status = 1;
    (void) snprintf(report->record, sizeof(report->record), "%s", record);
    (void) snprintf(report->author, sizeof(report->author), "n-1");
    return report;
}

static void scene_begin(const char *url)
{
    memset(&s, 0, sizeof(s));
    s.t = scene_open(url);
    s.reports = calloc(REPORTS, sizeof(*s.reports));
    assert_non_null(s.reports);
    s.round = (struct round){.reports = s.reports, .node = "n"};
    s.t->round = &s.round;
    topology_step(s.t, NOW);
    if (s.t->primary != NULL) {
        s.t->primary->stage = SERVER_READY;
    }
}

/* The slots of "{a}" (15495) and of all tags above 10000 are served by the second server, the others by the first. */
static void cluster_begin(void)
{
    scene_begin("redis+cluster://a:1,b:2");
    for (int i = 0; i < 2; i++) {
        s.t->servers[i]->stage = SERVER_READY;
        s.t->servers[i]->wanted = s.t->servers[i]->in_slot_map = true;
    }
    for (int i = 0; i < CLUSTER_SLOTS; i++) {
        s.t->slot_owner[i] = i > 10000;
    }
    s.t->slot_map_known = true;
    s.t->slot_map_wanted = false;
}

/* A round of one window, whose heartbeat, question for the overrides and window are batches 0, 1 and 2. */
static struct batch *begin_one(bool cluster)
{
    if (cluster) {
        cluster_begin();
    } else {
        scene_begin("redis://a");
    }
    (void) add_report(REPORT_WINDOW, "weir:{a}:1");
    assert_int_equal(batch_queue(s.t, NOW), 0);
    assert_int_equal(s.t->batch_count, 3);
    assert_int_equal(s.t->batches[2].state, BATCH_SENT);
    (void) queued(s.t->servers[0]);
    (void) (s.t->servers[1] != NULL ? queued(s.t->servers[1]) : "");
    return &s.t->batches[2];
}

static void answer_error(struct server_conn *server, uint32_t number, const char *text)
{
    redisReply *reply = text_reply(REDIS_REPLY_ERROR, text);
    batch_answer(s.t, server, number, reply, NOW);
    freeReplyObject(reply);
}

static void answer_sum(struct server_conn *server, uint32_t number, long long sum)
{
    redisReply *reply = array_reply(1, (redisReply *[]){number_reply(sum)});
    batch_answer(s.t, server, number, reply, NOW);
    freeReplyObject(reply);
}

static void expect_batch(uint32_t number, enum script script, uint32_t first, uint32_t count)
{
    const struct batch *batch = &s.t->batches[number];
    assert_int_equal(batch->script, script);
    assert_int_equal(batch->first, first);
    assert_int_equal(batch->count, count);
    assert_int_equal(batch->state, BATCH_SENT);
    assert_false(batch->asking || batch->with_source || batch->tries != 0);
}

static void test_a_round_is_cut_into_calls_that_redis_can_bear(void **state)
{
    (void) state;
    scene_begin("redis://a");
    for (int i = 0; i < 33; i++) {
        (void) add_report(REPORT_HISTORY, "h");
        (void) add_report(REPORT_BUCKET, "b");
    }
    for (int i = 0; i < 1001; i++) {
        (void) add_report(REPORT_WINDOW, "w");
    }
    struct redis_transport *t = s.t;
    t->has_time = t->has_first_time = true;
    t->lost_count = 7;
    assert_int_equal(batch_queue(t, NOW), 0);
    assert_int_equal(t->batch_count, 9);
    expect_batch(0, SCRIPT_HEARTBEAT, 0, 0);
    expect_batch(1, SCRIPT_OVERRIDES, 0, 0);
    expect_batch(2, SCRIPT_WINDOW, 0, 500);
    expect_batch(3, SCRIPT_WINDOW, 500, 500);
    expect_batch(4, SCRIPT_WINDOW, 1000, 1);
    expect_batch(5, SCRIPT_BUCKET, 1001, 33);
    expect_batch(6, SCRIPT_HISTORY, 1034, 16);
    expect_batch(7, SCRIPT_HISTORY, 1050, 16);
    expect_batch(8, SCRIPT_HISTORY, 1066, 1);
    assert_int_equal(t->open_count, 9);
    assert_int_equal(t->waiting_count + t->lost_count, 0);
    assert_false(t->has_time || t->has_first_time);
    for (uint32_t i = 0; i < s.round.report_count; i++) {
        assert_int_equal(t->report_order[i], i < 1001 ? 66 + i : i < 1034 ? 2 * (i - 1001) + 1 : 2 * (i - 1034));
    }
    /* The server has the calls in this order. */
    assert_int_equal(t->primary->call_count, 9);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(t->primary->calls[i].kind, CALL_BATCH);
        assert_int_equal(t->primary->calls[i].batch, i);
        assert_int_equal(t->batches[i].sequence, i + 1);
    }
    scene_end();
}

static void test_a_round_tells_limits_where_the_caller_says_so(void **state)
{
    (void) state;
    scene_begin("redis://a");
    (void) add_report(REPORT_WINDOW, "w");
    s.round.limits.told = true;
    assert_int_equal(batch_queue(s.t, NOW), 0);
    assert_int_equal(s.t->batch_count, 4);
    expect_batch(2, SCRIPT_LIMITS, 0, 0);
    expect_batch(3, SCRIPT_WINDOW, 0, 1);
    scene_end();
}

/* Each report is in one batch, with reports of its kind and its slot alone, as many as a batch may have. */
static void test_in_a_cluster_the_keys_of_a_call_share_a_slot(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned draw = test_draws(30); draw != 0; draw--) {
        cluster_begin();
        const uint64_t tags = draw_between(&rng, 1, 40);
        const size_t count = (size_t) random_below(&rng, REPORTS);
        for (size_t i = 0; i < count; i++) {
            char record[32];
            (void) snprintf(record, sizeof(record), "weir:{%03x}:k", (unsigned) random_below(&rng, tags));
            (void) add_report((enum report_kind) random_below(&rng, 3), record);
        }
        struct redis_transport *t = s.t;
        assert_int_equal(batch_queue(t, NOW), 0);
        unsigned *seen = calloc(count + 1, sizeof(*seen));
        for (uint32_t n = 2; n < t->batch_count; n++) {
            const struct batch *batch = &t->batches[n];
            assert_in_range(batch->count, 1, batch->script == SCRIPT_HISTORY ? 16 : 500);
            for (uint32_t i = batch->first; i < batch->first + batch->count; i++) {
                const struct report *report = &s.reports[t->report_order[i]];
                assert_int_equal(slot_map_cluster_slot(report->record), batch->cluster_slot);
                assert_int_equal(report->kind, batch->script - SCRIPT_WINDOW);
                assert_true(i == batch->first || t->report_order[i - 1] < t->report_order[i]);
                seen[t->report_order[i]]++;
            }
            assert_int_equal(batch->server, t->slot_owner[batch->cluster_slot]);
            /* The next one has another kind or slot, or this one was full. */
            assert_true(n + 1 == t->batch_count || batch[1].script != batch->script ||
                        batch[1].cluster_slot > batch->cluster_slot ||
                        (batch[1].cluster_slot == batch->cluster_slot &&
                         batch->count == (batch->script == SCRIPT_HISTORY ? 16 : 500)));
        }
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(seen[i], 1);
        }
        free(seen);
        scene_end();
    }
}

static void test_each_primary_has_a_heartbeat_and_one_has_the_overrides(void **state)
{
    (void) state;
    cluster_begin();
    s.t->heartbeats[1] = (struct heartbeat){.key = "weir:{a}:nodes", .cluster_slot = slot_map_cluster_slot("{a}")};
    s.t->heartbeat_count = 2;
    assert_int_equal(batch_queue(s.t, NOW), 0);
    assert_int_equal(s.t->batch_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const char *const keys[] = {"weir:nodes", "weir:{a}:nodes", "weir:overrides"};
        expect_batch(i, i < 2 ? SCRIPT_HEARTBEAT : SCRIPT_OVERRIDES, i < 2 ? i : 0, 0);
        assert_int_equal(s.t->batches[i].cluster_slot, slot_map_cluster_slot(keys[i]));
        assert_int_equal(s.t->batches[i].server, slot_map_cluster_slot(keys[i]) > 10000);
    }
    scene_end();
}

/* Reading them takes Redis long if there are more than are answered. */
static void test_overrides_that_are_too_many_are_asked_for_every_five_seconds(void **state)
{
    (void) state;
    scene_begin("redis://a");
    s.t->overrides_ns = NOW;
    static const struct {
        uint64_t left_out, at_ns;
        size_t batches;
    } cases[] = {{0, NOW, 2}, {1, NOW, 1}, {1, NOW + 5 * SECOND - 1, 1}, {1, NOW + 5 * SECOND, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        s.t->overrides_left_out = cases[i].left_out;
        assert_int_equal(batch_queue(s.t, cases[i].at_ns), 0);
        assert_int_equal(s.t->batch_count, cases[i].batches);
    }
    scene_end();
}

/* What becomes of a report whose slot's server is in some state: a window of the second server. */
static void test_a_batch_waits_for_a_server_that_may_come_and_for_no_other(void **state)
{
    (void) state;
    static const struct {
        enum server_stage stage;
        bool owned, wanted;
        unsigned failures;
        enum batch_state state;
    } cases[] = {
        {SERVER_READY, true, true, 0, BATCH_SENT},       {SERVER_READY, true, true, 1, BATCH_SENT},
        {SERVER_OFF, true, true, 0, BATCH_WAITING},      {SERVER_CONNECTING, true, true, 0, BATCH_WAITING},
        {SERVER_GREETING, true, true, 0, BATCH_WAITING}, {SERVER_GREETING, true, true, 1, BATCH_LOST},
        {SERVER_OFF, true, false, 0, BATCH_LOST},        {SERVER_READY, false, true, 0, BATCH_LOST},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cluster_begin();
        struct server_conn *owner = s.t->servers[1];
        owner->stage = cases[i].stage;
        owner->wanted = cases[i].wanted;
        owner->failures = cases[i].failures;
        if (!cases[i].owned) {
            memset(&s.t->slot_owner[10001], SERVER_NONE, CLUSTER_SLOTS - 10001);
        }
        const struct report *other = add_report(REPORT_WINDOW, "weir:{b}:1"); /* of the first server */
        const struct report *report = add_report(REPORT_WINDOW, "weir:{a}:1");
        assert_int_equal(batch_queue(s.t, NOW), 0);
        const uint32_t last = (uint32_t) s.t->batch_count - 1;
        const struct batch *batch = &s.t->batches[last];
        assert_int_equal(batch->cluster_slot, 15495);
        assert_int_equal(batch->state, cases[i].state);
        assert_int_equal(report->status, cases[i].state == BATCH_LOST ? -EAGAIN : 1);
        assert_int_equal(other->status, 1);
        assert_int_equal(s.t->slot_map_wanted, !cases[i].owned);
        size_t lost = 0;
        size_t waiting = 0;
        for (uint32_t n = 0; n < s.t->batch_count; n++) {
            lost += s.t->batches[n].state == BATCH_LOST;
            waiting += s.t->batches[n].state == BATCH_WAITING;
        }
        assert_int_equal(s.t->lost_count, lost);
        assert_int_equal(s.t->waiting_count, waiting);
        assert_int_equal(s.t->open_count, s.t->batch_count - lost);
        if (cases[i].state == BATCH_WAITING) {
            batch_send_waiting(s.t, NOW);
            assert_int_equal(batch->state, BATCH_WAITING);
            assert_int_equal(s.t->waiting_count, waiting);
            (void) queued(owner);
            owner->stage = SERVER_READY;
            batch_send_waiting(s.t, NOW);
            assert_int_equal(batch->state, BATCH_SENT);
            assert_int_equal(batch->server, 1);
            assert_int_equal(s.t->waiting_count, 0);
            assert_non_null(strstr(queued(owner), "weir:{a}:1"));
            batch_send_waiting(s.t, NOW); /* once */
            assert_string_equal(queued(owner), "");
        }
        scene_end();
    }
}

static void test_a_batch_whose_server_fails_while_it_waits_is_lost(void **state)
{
    (void) state;
    cluster_begin();
    s.t->servers[1]->stage = SERVER_CONNECTING;
    const struct report *report = add_report(REPORT_WINDOW, "weir:{a}:1");
    assert_int_equal(batch_queue(s.t, NOW), 0);
    server_drop(s.t, s.t->servers[1], NOW);
    batch_send_waiting(s.t, NOW);
    assert_int_equal(s.t->batches[2].state, BATCH_LOST);
    assert_int_equal(report->status, -EAGAIN);
    assert_int_equal(s.t->waiting_count, 0);
    scene_end();
}

static void test_an_answer_ends_its_batch_once(void **state)
{
    (void) state;
    struct batch *batch = begin_one(false);
    struct server_conn *server = s.t->primary;
    server->answered = false;
    answer_sum(server, 2, 5);
    assert_int_equal(batch->state, BATCH_DONE);
    assert_int_equal(s.reports[0].sum, 5);
    assert_int_equal(s.t->open_count, 2);
    assert_true(server->answered);
    answer_sum(server, 2, 6); /* none is awaited */
    batch_lost(s.t, 2);
    assert_int_equal(s.reports[0].sum, 5);
    assert_int_equal(s.reports[0].status, 0);
    assert_int_equal(s.t->open_count, 2);
    assert_int_equal(s.t->lost_count, 0);
    batch_lost(s.t, 0);
    batch_lost(s.t, 0);
    assert_int_equal(s.t->open_count, 1);
    assert_int_equal(s.t->lost_count, 1);
    /* The round has ended. */
    s.t->round = NULL;
    batch_lost(s.t, 1);
    answer_error(server, 1, "ERR");
    assert_int_equal(s.t->batches[1].state, BATCH_SENT);
    assert_int_equal(server->stage, SERVER_READY);
    scene_end();
}

/* Errors that cost the connection or not, and the sentence for the log. The reports are sent in another round. */
static void test_an_error_that_cannot_be_mended_loses_the_batch(void **state)
{
    (void) state;
    static const char rights[] = "(docs/redis.md lists the rights that are needed)";
    static const struct {
        const char *text, *problem;
        bool cluster, dropped, maps, names_rights;
    } cases[] = {
        {"ERR something", "ERR something", false, true, false, false},
        {"OOM command not allowed", "OOM command not allowed", true, true, false, false},
        {"NOPERM this user", "NOPERM this user ", false, true, false, true},
        {"ERR the ACL failure in script", "ERR the ACL failure in script ", false, true, false, true},
        {"ERR The user executing the script", "ERR The user executing the script ", false, true, false, true},
        {"ERR Error running script (call to f_1): @user_script:12: @user_script: 12: -OOM no", "OOM no", false, true,
         false, false},
        {"ERR Error running script (call to f_1): @user_script: 7: NOPERM no", "NOPERM no ", false, true, false, true},
        {"ERR Error @user_script: 7: x", "ERR Error @user_script: 7: x", false, true, false, false},
        {"CROSSSLOT keys", "CROSSSLOT keys", true, true, false, false},
        {"CLUSTERDOWN Hash slot not served", "CLUSTERDOWN Hash slot not served", true, false, true, false},
        {"CLUSTERDOWN Hash slot not served", "CLUSTERDOWN Hash slot not served", false, false, false, false},
        {"MOVED 15495", "", true, false, true, false},
        {"ASK 15495", "", true, false, true, false},
        {"MOVEDx", "MOVEDx", true, true, false, false},
        {"ASKED", "ASKED", true, true, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct batch *batch = begin_one(cases[i].cluster);
        struct server_conn *server = s.t->servers[batch->server];
        answer_error(server, 2, cases[i].text);
        assert_int_equal(batch->state, BATCH_LOST);
        assert_int_equal(s.reports[0].status, -EAGAIN);
        assert_int_equal(s.t->open_count, 2);
        assert_int_equal(s.t->lost_count, 1);
        char problem[200];
        (void) snprintf(problem, sizeof(problem), "%s%s", cases[i].problem, cases[i].names_rights ? rights : "");
        assert_string_equal(s.t->problem, problem);
        assert_int_equal(server->dropped, cases[i].dropped);
        assert_int_equal(s.t->slot_map_wanted, cases[i].maps);
        assert_int_equal(s.t->cluster, cases[i].cluster);
        scene_end();
    }
}

/* Its user may not run INFO, which would have said so. */
static void test_an_error_of_a_cluster_tells_that_it_is_one(void **state)
{
    (void) state;
    static const char *const errors[] = {"MOVED 15495 10.0.0.1:7000", "CROSSSLOT keys"};
    for (size_t i = 0; i < 2; i++) {
        const struct batch *batch = begin_one(false);
        struct server_conn *server = s.t->primary;
        answer_error(server, 2, errors[i]);
        assert_true(s.t->cluster && s.t->slot_map_wanted && s.t->probe == server);
        assert_int_equal(batch->state, BATCH_LOST);
        assert_int_equal(server->stage, SERVER_READY);
        assert_string_equal(s.t->problem, "");
        scene_end();
    }
}

/* The script goes along until the server has it: with the first batch that lacks it, and not with those behind. */
static void test_a_script_that_a_server_lacks_is_sent_once(void **state)
{
    (void) state;
    scene_begin("redis://a");
    for (int i = 0; i < 1000; i++) {
        (void) add_report(REPORT_WINDOW, "w");
    }
    (void) add_report(REPORT_BUCKET, "b");
    assert_int_equal(batch_queue(s.t, NOW), 0);
    struct server_conn *server = s.t->primary;
    assert_int_equal(server->sequence, 5); /* heartbeat, overrides, two of windows, bucket */
    s.t->progressed = false;
    server->socket.out_length = 0;
    answer_error(server, 2, "NOSCRIPT No matching script");
    assert_true(s.t->batches[2].with_source && s.t->batches[2].state == BATCH_SENT);
    assert_int_equal(s.t->batches[2].sequence, 6);
    assert_int_equal(server->sourced_at[SCRIPT_WINDOW], 6);
    assert_int_equal(server->sourced_at[SCRIPT_BUCKET], 0);
    answer_error(server, 3, "NOSCRIPT No matching script");
    assert_false(s.t->batches[3].with_source); /* the server will have it by then */
    assert_int_equal(s.t->batches[3].sequence, 7);
    answer_error(server, 4, "NOSCRIPT No matching script");
    assert_true(s.t->batches[4].with_source);
    assert_int_equal(server->sourced_at[SCRIPT_BUCKET], 8);
    /* The server has forgotten it again. */
    answer_error(server, 3, "NOSCRIPT No matching script");
    assert_true(s.t->batches[3].with_source);
    assert_int_equal(server->sourced_at[SCRIPT_WINDOW], 9);
    assert_int_equal(s.t->open_count, 5);
    assert_int_equal(s.t->lost_count, 0);
    scene_end();
}

static void test_a_batch_is_repeated_eight_times_at_most(void **state)
{
    (void) state;
    for (int error = 0; error < 3; error++) {
        const char *const errors[] = {"NOSCRIPT", "MOVED 15495 b:2", "TRYAGAIN"};
        const struct batch *batch = begin_one(true);
        for (int i = 0; i < 9; i++) {
            assert_int_equal(batch->state, BATCH_SENT);
            assert_int_equal(s.t->lost_count, 0);
            answer_error(s.t->servers[1], 2, errors[error]);
        }
        assert_int_equal(batch->state, BATCH_LOST);
        assert_int_equal(s.t->lost_count, 1);
        assert_int_equal(s.reports[0].status, -EAGAIN);
        assert_int_equal(s.t->servers[1]->stage, SERVER_READY);
        scene_end();
    }
}

static void test_a_redirected_batch_goes_where_it_is_sent(void **state)
{
    (void) state;
    struct batch *batch = begin_one(true);
    struct server_conn *from = s.t->servers[1];
    struct server_conn *to = s.t->servers[0];
    answer_error(from, 2, "MOVED 15495 a:1");
    assert_string_equal(queued(from), "");
    const char *sent = queued(to);
    assert_ptr_equal(strstr(sent, "EVALSHA "), sent);
    assert_non_null(strstr(sent, "weir:{a}:1"));
    assert_true(batch->state == BATCH_SENT && batch->server == 0 && s.t->slot_map_wanted && !batch->asking);
    assert_int_equal(s.t->slot_owner[15495], 0);
    /* ASK holds for one call. */
    s.t->slot_map_wanted = false;
    answer_error(to, 2, "ASK 15495 b:2");
    sent = queued(from);
    assert_ptr_equal(strstr(sent, "ASKING\nEVALSHA "), sent);
    assert_int_equal(from->calls[from->call_count - 2].kind, CALL_ASKING);
    assert_int_equal(from->calls[from->call_count - 1].kind, CALL_BATCH);
    assert_true(batch->state == BATCH_SENT && batch->server == 1 && !s.t->slot_map_wanted && !batch->asking);
    assert_int_equal(batch->sequence, from->sequence);
    assert_int_equal(s.t->slot_owner[15495], 0);
    answer_error(from, 2, "NOSCRIPT");
    assert_string_equal(queued(from), "");
    sent = queued(to);
    assert_ptr_equal(strstr(sent, "EVAL "), sent); /* to the owner */
    assert_int_equal(s.t->open_count, 3);
    /* A server that is not connected yet. */
    answer_error(to, 2, "MOVED 15495 10.0.0.1:7");
    assert_int_equal(batch->state, BATCH_WAITING);
    assert_int_equal(s.t->waiting_count, 1);
    assert_true(s.t->servers[2]->wanted);
    scene_end();
}

/* Each report in a batch of its own, while a slot moves and its keys are on two servers. */
static void test_a_batch_on_two_servers_is_split(void **state)
{
    (void) state;
    cluster_begin();
    for (int i = 0; i < 3; i++) {
        (void) add_report(REPORT_WINDOW, i == 1 ? "weir:{a}:one" : "weir:{a}:other");
    }
    assert_int_equal(batch_queue(s.t, NOW), 0);
    assert_int_equal(s.t->batch_count, 3);
    s.t->batches[2].tries = 4;
    (void) queued(s.t->servers[1]);
    answer_error(s.t->servers[1], 2, "TRYAGAIN Multiple keys");
    assert_int_equal(s.t->batch_count, 6);
    assert_int_equal(s.t->open_count, 5);
    assert_int_equal(s.t->batches[2].state, BATCH_DONE);
    for (uint32_t i = 0; i < 3; i++) {
        const struct batch *part = &s.t->batches[3 + i];
        assert_int_equal(part->script, SCRIPT_WINDOW);
        assert_int_equal(part->state, BATCH_SENT);
        assert_int_equal(part->first, i);
        assert_int_equal(part->count, 1);
        assert_int_equal(part->cluster_slot, 15495);
        assert_int_equal(part->tries, 5);
        answer_sum(s.t->servers[1], 3 + i, 10 + i);
        assert_int_equal(s.reports[i].sum, 10 + i);
    }
    assert_int_equal(s.t->open_count, 2);
    assert_int_equal(s.t->lost_count, 0);
    scene_end();
}

static void test_a_round_that_has_expired_drops_the_servers_that_owe_an_answer(void **state)
{
    (void) state;
    cluster_begin();
    (void) add_report(REPORT_WINDOW, "weir:{a}:1");
    struct server_conn *waits = s.t->servers[0];
    struct server_conn *owes = s.t->servers[1];
    s.t->heartbeats[0].cluster_slot = 0;
    waits->stage = SERVER_CONNECTING;
    assert_int_equal(batch_queue(s.t, NOW), 0);
    struct server_conn *asked = server_at(s.t, "10.0.0.3", "1", false); /* for the slot map, which has its own time */
    struct call calls[1] = {{.kind = CALL_SLOT_MAP}};
    asked->calls = calls;
    asked->call_count = asked->call_size = 1;
    asked->stage = SERVER_READY;
    assert_true(owes->call_count >= 1);
    assert_int_equal(s.t->batches[0].state, BATCH_WAITING);
    batch_expire(s.t, NOW);
    assert_int_equal(s.t->open_count, 0);
    assert_int_equal(s.t->lost_count, s.t->batch_count);
    assert_int_equal(s.reports[0].status, -EAGAIN);
    assert_true(owes->dropped && !waits->dropped && !asked->dropped);
    assert_string_equal(s.t->problem, "no answer after 1000 ms");
    assert_string_equal(s.t->problem_server, "redis b:2");
    asked->call_count = 0;
    asked->calls = NULL;
    scene_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_is_cut_into_calls_that_redis_can_bear),
        cmocka_unit_test(test_a_round_tells_limits_where_the_caller_says_so),
        cmocka_unit_test(test_in_a_cluster_the_keys_of_a_call_share_a_slot),
        cmocka_unit_test(test_each_primary_has_a_heartbeat_and_one_has_the_overrides),
        cmocka_unit_test(test_overrides_that_are_too_many_are_asked_for_every_five_seconds),
        cmocka_unit_test(test_a_batch_waits_for_a_server_that_may_come_and_for_no_other),
        cmocka_unit_test(test_a_batch_whose_server_fails_while_it_waits_is_lost),
        cmocka_unit_test(test_an_answer_ends_its_batch_once),
        cmocka_unit_test(test_an_error_that_cannot_be_mended_loses_the_batch),
        cmocka_unit_test(test_an_error_of_a_cluster_tells_that_it_is_one),
        cmocka_unit_test(test_a_script_that_a_server_lacks_is_sent_once),
        cmocka_unit_test(test_a_batch_is_repeated_eight_times_at_most),
        cmocka_unit_test(test_a_redirected_batch_goes_where_it_is_sent),
        cmocka_unit_test(test_a_batch_on_two_servers_is_split),
        cmocka_unit_test(test_a_round_that_has_expired_drops_the_servers_that_owe_an_answer),
    };
    return cmocka_run_group_tests_name("unit/transport/batch", tests, NULL, NULL);
}
