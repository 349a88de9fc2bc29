/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the transport makes of a script's answer. Numbers that no script of weir's answers cost the record that they are
 * of; an answer of another shape, the connection.
 *
 * Guards: src/transport/redis/answer.c, src/transport/redis/batch.c
 */
#include <errno.h>

#include "support/redis_scene.h"
#include "transport/redis/answer.h"
#include "transport/redis/batch.h"

#define COUNT   3 /* records of a batch */
#define NUMBERS 80

/* A transport with one batch under way, and room for its answer. */
struct scene {
    struct redis_transport t;
    struct server_conn server;
    struct batch batch;
    struct round round;
    struct report reports[COUNT];
    struct history_report histories[COUNT];
    uint32_t order[COUNT];
    redisReply integers[NUMBERS], arrays[COUNT], whole;
    redisReply *elements[NUMBERS], *outer[COUNT];
};

static void scene_init(struct scene *s, enum script script)
{
    memset(s, 0, sizeof(*s));
    s->server.stage = SERVER_READY;
    s->server.socket.fd = -1;
    s->server.index = SERVERS_MAX - 1;
    s->batch = (struct batch){.script = script, .state = BATCH_SENT, .count = COUNT};
    s->round = (struct round){.reports = s->reports, .report_count = COUNT, .node = "n"};
    s->t.servers[s->server.index] = &s->server;
    s->t.round = &s->round;
    s->t.batches = &s->batch;
    s->t.batch_count = s->t.batch_size = s->t.open_count = 1;
    s->t.report_order = s->order;
    for (uint32_t i = 0; i < COUNT; i++) {
        s->order[i] = i;
        s->reports[i].status = 1;
        s->reports[i].history = &s->histories[i];
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        s->integers[i].type = REDIS_REPLY_INTEGER;
        s->integers[i].integer = (long long) i + 100;
        s->elements[i] = &s->integers[i];
    }
}

/* Answers each record with so many numbers, of which the first is `first`, if that is not above 0. */
static void scene_answer(struct scene *s, size_t each, long long first)
{
    const bool histories = s->batch.script == SCRIPT_HISTORY;
    for (size_t i = 0; i < COUNT; i++) {
        if (first <= 0) {
            s->integers[i * each].integer = first;
        }
        s->arrays[i].type = REDIS_REPLY_ARRAY;
        s->arrays[i].element = &s->elements[i * each];
        s->arrays[i].elements = each;
        s->outer[i] = &s->arrays[i];
        s->reports[i].kind = s->batch.script == SCRIPT_BUCKET ? REPORT_BUCKET : REPORT_WINDOW;
        s->reports[i].count = 7;
    }
    s->whole.type = REDIS_REPLY_ARRAY;
    s->whole.element = histories ? s->outer : s->elements;
    s->whole.elements = histories ? COUNT : COUNT * each;
}

/* The answers of each script: so many numbers for a record. `first`: the status, or -1 of a report that was merged; 1:
 * the first number is a sum. */
static const struct {
    enum script script;
    size_t each;
    long long first;
} kinds[] = {{SCRIPT_WINDOW, 6, -1}, {SCRIPT_BUCKET, 7, -1}, {SCRIPT_WINDOW, 1, 1},
             {SCRIPT_BUCKET, 2, 1},  {SCRIPT_HISTORY, 6, 0}, {SCRIPT_HISTORY, 10, 0}};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void test_a_number_no_script_answers_costs_its_record_alone(void **state)
{
    (void) state;
    static const long long odd[] = {-1, -2, -3, -4, INT64_MIN, INT64_MAX, INT64_MAX - 1022};
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t at = 0; at < COUNT * kinds[k].each; at++) {
            for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
                /* In these places -1 to -3 say how many numbers follow: the next test. */
                const bool is_first = at % kinds[k].each == 0;
                if (is_first && (kinds[k].first == -1 || (kinds[k].first == 1 && odd[i] >= -3 && odd[i] < 0))) {
                    continue;
                }
                struct scene s;
                scene_init(&s, kinds[k].script);
                scene_answer(&s, kinds[k].each, kinds[k].first);
                s.integers[at].integer = odd[i];
                batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
                assert_int_equal(s.server.stage, SERVER_READY);
                assert_int_equal(s.batch.state, BATCH_DONE);
                assert_int_equal(s.t.open_count, 0);
                assert_int_equal(s.t.problem[0], '\0');
                for (size_t n = 0; n < COUNT; n++) {
                    const bool refused = n == at / kinds[k].each;
                    const uint64_t expected = kinds[k].first == 1 ? 7 : 100 + n * kinds[k].each + 1;
                    assert_int_equal(s.reports[n].status, refused ? -EPROTO : 0);
                    assert_true(refused || s.reports[n].author_count == expected);
                    assert_true(refused || kinds[k].first != 1 ||
                                s.reports[n].sum == (uint64_t) (100 + n * kinds[k].each));
                }
            }
        }
    }
}

/* Answers of all three forms in one batch. */
static void test_each_report_is_answered_in_the_form_that_its_record_needs(void **state)
{
    (void) state;
    static const long long window[] = {-2, 50, -1, 1, 2, 3, 4, 5};
    static const long long bucket[] = {-2, 50, 60, -1, 1, 2, 3, 4, 5, 6};
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        const bool is_bucket = kind == REPORT_BUCKET;
        struct scene s;
        scene_init(&s, is_bucket ? SCRIPT_BUCKET : SCRIPT_WINDOW);
        scene_answer(&s, 1, 1);
        s.whole.elements = is_bucket ? sizeof(bucket) / sizeof(bucket[0]) : sizeof(window) / sizeof(window[0]);
        for (size_t i = 0; i < s.whole.elements; i++) {
            s.integers[i].integer = is_bucket ? bucket[i] : window[i];
        }
        batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
        assert_int_equal(s.batch.state, BATCH_DONE);
        assert_int_equal(s.reports[0].status, -EPROTO);
        const struct report *plain = &s.reports[1];
        assert_int_equal(plain->status, 0);
        assert_int_equal(plain->author_count, 7);
        assert_int_equal(plain->sum, 50);
        assert_int_equal(plain->sum_demand, 50);
        assert_int_equal(plain->author_refunds + plain->sum_refunds, 0);
        assert_int_equal(plain->tat_answer_us, is_bucket ? 60 : 0);
        const struct report *merged = &s.reports[2];
        assert_int_equal(merged->status, 0);
        assert_int_equal(merged->author_count, 1);
        assert_int_equal(merged->sum, 2);
        assert_int_equal(merged->sum_demand, 3);
        assert_int_equal(merged->author_refunds, 4);
        assert_int_equal(merged->sum_refunds, 5);
        assert_int_equal(merged->tat_answer_us, is_bucket ? 6 : 0);
    }
}

/* -3 stands before the answer of a record that had nothing of the author. */
static void test_a_record_that_had_nothing_of_the_author_is_told(void **state)
{
    (void) state;
    static const long long window[] = {50, -3, 51, -3, -1, 1, 2, 3, 4, 5};
    static const long long bucket[] = {50, 60, -3, 51, 61, -3, -1, 1, 2, 3, 4, 5, 6};
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        const bool is_bucket = kind == REPORT_BUCKET;
        const size_t count = is_bucket ? sizeof(bucket) / sizeof(bucket[0]) : sizeof(window) / sizeof(window[0]);
        for (size_t cut = 0; cut < 2; cut++) {
            struct scene s;
            scene_init(&s, is_bucket ? SCRIPT_BUCKET : SCRIPT_WINDOW);
            scene_answer(&s, 1, 1);
            s.whole.elements = count - cut;
            for (size_t i = 0; i < count; i++) {
                s.integers[i].integer = is_bucket ? bucket[i] : window[i];
            }
            batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
            assert_int_equal(s.batch.state, cut == 0 ? BATCH_DONE : BATCH_LOST);
            for (size_t i = 0; i < COUNT && cut == 0; i++) {
                assert_int_equal(s.reports[i].status, 0);
                assert_int_equal(s.reports[i].is_new, i != 0);
            }
            assert_true(cut != 0 || (s.reports[0].sum == 50 && s.reports[1].sum == 51 && s.reports[2].sum == 2));
            assert_true(cut != 0 || (s.reports[1].author_count == 7 && s.reports[2].author_count == 1));
            assert_true(cut != 0 || s.reports[2].tat_answer_us == (is_bucket ? 6 : 0));
        }
    }
}

static void test_an_answer_of_another_shape_costs_the_connection(void **state)
{
    (void) state;
    for (size_t k = 0; k < KINDS; k++) {
        for (int shape = 0; shape < 6; shape++) {
            if (shape >= 4 && kinds[k].script == SCRIPT_HISTORY) {
                continue;
            }
            struct scene s;
            scene_init(&s, kinds[k].script);
            scene_answer(&s, kinds[k].each, kinds[k].first);
            if (shape == 0) {
                s.whole.elements--;
            } else if (shape == 1) {
                s.integers[COUNT * kinds[k].each - 1].type = REDIS_REPLY_STRING;
            } else if (shape == 2) {
                s.whole.type = REDIS_REPLY_STATUS;
            } else if (shape == 3) {
                s.elements[kinds[k].each] = &s.arrays[0];
                s.whole.element = s.elements;
                s.outer[1] = &s.integers[0];
            } else if (shape == 4) {
                s.integers[kinds[k].each].integer = kinds[k].first == -1 ? 5 : -1; /* another form than what follows */
            } else {
                s.whole.elements++;
            }
            batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
            assert_int_equal(s.server.stage, SERVER_OFF);
            assert_int_equal(s.batch.state, BATCH_LOST);
            assert_int_equal(s.reports[0].status, -EAGAIN);
            assert_non_null(strstr(s.t.problem, "not weir's"));
        }
    }
}

#define NOW_MS      UINT64_C(1760000000000)
#define LIFETIME_MS 10000

/* One round of a node: fleet time by the node, and what the server answers. True: the server has lost what it knew. */
static bool heartbeat(struct scene *s, uint64_t told_ms, bool asks, uint64_t now_ms, uint64_t last_ms)
{
    const uint64_t answer[] = {now_ms / 1000, now_ms % 1000 * 1000, last_ms, 1, 0, now_ms, 12345, 0};
    s->batch.state = BATCH_SENT;
    s->t.open_count = 1;
    s->t.lost_state = false;
    s->round.fleet_ns = told_ms * MILLISECOND;
    s->round.node_lifetime_ms = LIFETIME_MS;
    s->round.asks = asks;
    s->whole = (redisReply){.type = REDIS_REPLY_ARRAY, .element = s->elements, .elements = 8};
    for (size_t i = 0; i < 8; i++) {
        s->integers[i].integer = (long long) answer[i];
    }
    batch_answer(&s->t, &s->server, 0, &s->whole, SECOND);
    assert_int_equal(s->batch.state, BATCH_DONE);
    return s->t.lost_state;
}

/*
 * All times are after NOW_MS. A round leaves a heartbeat in the server; the next round's answer has the heartbeat's
 * time.
 */
static void test_a_server_whose_heartbeat_is_older_than_the_one_made_has_lost_something(void **state)
{
    (void) state;
    static const struct {
        uint64_t told_ms, last_ms; /* the first round: at 5,000 */
        bool asks;
        int64_t next_ms, next_last_ms; /* the second round: when, and its answer; below 0: there is no heartbeat */
        bool lost;
    } cases[] = {
        {4000, 100, false, 6000, 4000, false},  /* the heartbeat stands where the node said */
        {4000, 100, false, 6000, 3999, true},   /* a copy of an earlier time */
        {4000, 100, false, 6000, 4500, false},  /* a later one is this node's, too */
        {4000, 100, false, 6000, -1, true},     /* none, and the node has not failed */
        {4000, 100, false, 14000, -1, true},    /* nor has it just at the end of its lifetime */
        {4000, 100, false, 14001, -1, false},   /* the others have taken it away */
        {4000, 100, false, 3999, 3000, false},  /* the server's clock went back */
        {4000, 4600, false, 6000, 4600, false}, /* what stands there is later than what the node said, and stays */
        {4000, 4600, false, 6000, 4599, true},  /* so that is what must not be lost */
        {5900, 100, false, 6000, 5000, false},  /* no heartbeat is later than the server's clock */
        {5900, 100, false, 6000, 4999, true},
        {4000, 100, true, 6000, 100, false}, /* a node that asks leaves its heartbeat as it was */
        {4000, 100, true, 6000, 99, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        scene_init(&s, SCRIPT_HEARTBEAT);
        s.batch.count = 0;
        assert_false(heartbeat(&s, NOW_MS + cases[i].told_ms, cases[i].asks, NOW_MS + 5000, NOW_MS + cases[i].last_ms));
        const uint64_t now_ms = NOW_MS + (uint64_t) cases[i].next_ms;
        const uint64_t last_ms = cases[i].next_last_ms < 0 ? 0 : NOW_MS + (uint64_t) cases[i].next_last_ms;
        if (heartbeat(&s, now_ms, false, now_ms, last_ms) != cases[i].lost) {
            fail_msg("case %zu: a loss is %s", i, cases[i].lost ? "not seen" : "seen where there is none");
        }
    }
}

/* The reply to the question for overrides. A text that begins with ':' stands for a number. */
static redisReply *entries(size_t count, const char *const *words)
{
    redisReply *elements[8];
    for (size_t i = 0; i < count; i++) {
        elements[i] = words[i][0] == ':' ? number_reply(strtoll(words[i] + 1, NULL, 10))
                                         : text_reply(REDIS_REPLY_STRING, words[i]);
    }
    return array_reply(count, elements);
}

static void test_overrides_are_taken_where_they_are_others(void **state)
{
    (void) state;
    static const char longest[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    static const struct {
        const char *had; /* the node's version */
        size_t count;
        const char *words[6];
        bool good, is_new;
        size_t entries;
        uint64_t left_out; /* known then; 5 before */
        const char *version;
    } cases[] = {
        {"v1", 1, {"v1"}, true, false, 0, 5, "v1"},
        {"v1", 1, {"v2"}, true, true, 0, 5, "v2"}, /* there are none any more */
        {"", 2, {"v2", ":0"}, true, false, 0, 0, ""},
        {"", 2, {"v2", ":3"}, true, true, 0, 3, "v2"},
        {"v1", 4, {"v2", ":3", "p:a", "limit 1"}, true, true, 1, 3, "v2"},
        {"v1", 4, {"v1", ":3", "p:a", "limit 1"}, true, false, 0, 3, "v1"},
        {"", 6, {"v2", ":0", "p:a", "limit 1", "p:b", "limit 2"}, true, true, 2, 0, "v2"},
        {"", 2, {longest, ":1"}, true, true, 0, 1, "012345678901234567890123456789012345678901234567890123456789012"},
        {"", 0, {""}, false, false, 0, 5, ""},
        {"", 3, {"v2", ":0", "p:a"}, false, false, 0, 5, ""},
        {"", 2, {"v2", "0"}, false, false, 0, 5, ""},
        {"", 2, {"v2", ":-1"}, false, false, 0, 5, ""},
        {"", 2, {":2", ":0"}, false, false, 0, 5, ""},
        {"", 4, {"v2", ":0", ":7", "limit 1"}, false, false, 0, 5, ""},
        {"", 4, {"v2", ":0", "p:a", ":1"}, false, false, 0, 5, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        scene_init(&s, SCRIPT_OVERRIDES);
        s.batch.count = 0;
        s.t.overrides_left_out = 5;
        (void) strcpy(s.round.overrides_version, cases[i].had);
        redisReply *reply = entries(cases[i].count, cases[i].words);
        batch_answer(&s.t, &s.server, 0, reply, 3 * SECOND);
        freeReplyObject(reply);
        const struct round *round = &s.round;
        assert_int_equal(s.batch.state, cases[i].good ? BATCH_DONE : BATCH_LOST);
        assert_int_equal(s.server.stage, cases[i].good ? SERVER_READY : SERVER_OFF);
        assert_int_equal(s.t.overrides_left_out, cases[i].left_out);
        assert_int_equal(s.t.overrides_ns, cases[i].good ? 3 * SECOND : 0);
        assert_int_equal(round->overrides_new, cases[i].is_new);
        assert_string_equal(round->overrides_version, cases[i].version);
        assert_int_equal(round->override_count, cases[i].entries);
        if (cases[i].is_new) {
            assert_int_equal(round->overrides_left_out, cases[i].left_out);
            for (size_t n = 0; n < cases[i].entries; n++) {
                assert_string_equal(round->overrides[n].field, cases[i].words[2 + 2 * n]);
                assert_string_equal(round->overrides[n].value, cases[i].words[3 + 2 * n]);
            }
            overrides_drop(round->overrides, round->override_count);
        }
    }
    /* Byte 0 is malformed in an entry, and does not cut it short. */
    struct scene s;
    scene_init(&s, SCRIPT_OVERRIDES);
    redisReply *reply = entries(4, (const char *const[]){"v2", ":0", "p:ab", "limit 1"});
    reply->element[2]->str[2] = reply->element[3]->str[6] = '\0';
    batch_answer(&s.t, &s.server, 0, reply, SECOND);
    freeReplyObject(reply);
    assert_string_equal(s.round.overrides[0].field, "p:%b");
    assert_string_equal(s.round.overrides[0].value, "limit %");
    overrides_drop(s.round.overrides, s.round.override_count);
}

/* The others' limits: kept where the version is another one, whatever bytes they have; else nothing is. */
static void test_limits_of_others_are_a_version_and_texts(void **state)
{
    (void) state;
    static const struct {
        const char *had;
        size_t count;
        const char *words[4];
        bool good, news;
    } cases[] = {
        {"", 1, {"17"}, true, true},
        {"17", 1, {"17"}, true, false},
        {"16", 3, {"17", "a\napi x\n", "b\n"}, true, true},
        {"", 0, {""}, false, false},
        {"", 2, {"17", ":1"}, false, false},
        {"", 2, {":17", "a"}, false, false},
        {"", 1, {"123456789012345678901234"}, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        scene_init(&s, SCRIPT_LIMITS);
        s.batch.count = 0;
        s.round.limits = (struct round_limits){.told = true};
        (void) strcpy(s.round.limits.version, cases[i].had);
        redisReply *reply = entries(cases[i].count, cases[i].words);
        batch_answer(&s.t, &s.server, 0, reply, SECOND);
        freeReplyObject(reply);
        assert_int_equal(s.batch.state, cases[i].good ? BATCH_DONE : BATCH_LOST);
        assert_int_equal(s.round.limits.news, cases[i].news);
        if (cases[i].news) {
            assert_string_equal(s.round.limits.version, cases[i].words[0]);
            assert_int_equal(s.round.limits.other_count, cases[i].count - 1);
            for (size_t n = 1; n < cases[i].count; n++) {
                assert_string_equal(s.round.limits.others[n - 1].value, cases[i].words[n]);
            }
            overrides_drop(s.round.limits.others, s.round.limits.other_count);
        }
    }
    struct scene s;
    scene_init(&s, SCRIPT_LIMITS);
    s.round.limits = (struct round_limits){.told = true};
    redisReply *reply = entries(2, (const char *const[]){"17", "abc"});
    reply->element[1]->str[1] = '\0';
    batch_answer(&s.t, &s.server, 0, reply, SECOND);
    freeReplyObject(reply);
    assert_string_equal(s.round.limits.others[0].value, "a?c");
    overrides_drop(s.round.limits.others, s.round.limits.other_count);
}

/* A heartbeat's answer, with the time that this heartbeat record knows. */
static bool take_time(struct scene *s, uint32_t record, long long seconds, const char *identity, long long created)
{
    const long long answer[] = {seconds, 5, 0, 3, 2, 1234, created, -7};
    s->batch = (struct batch){.script = SCRIPT_HEARTBEAT, .state = BATCH_SENT, .first = record};
    s->t.open_count = 1;
    s->t.lost_state = false;
    (void) strcpy(s->server.identity, identity);
    s->whole = (redisReply){.type = REDIS_REPLY_ARRAY, .element = s->elements, .elements = 8};
    for (size_t i = 0; i < 8; i++) {
        s->integers[i].integer = answer[i];
    }
    batch_answer(&s->t, &s->server, 0, &s->whole, (uint64_t) seconds * SECOND);
    return s->batch.state == BATCH_DONE;
}

/* Of a Cluster, whose primaries have a heartbeat record each; the first is the fleet's. */
static void test_fleet_time_is_that_of_the_fleets_record(void **state)
{
    (void) state;
    static const struct {
        uint32_t records[3];
        long long seconds; /* of the answer that counts; they come with 1, 2, 3 */
    } cases[] = {{{0, 1, 2}, 1}, {{1, 0, 2}, 2}, {{1, 2, 0}, 3}, {{1, 2, 3}, 1}, {{0, 0, 1}, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        scene_init(&s, SCRIPT_HEARTBEAT);
        for (int n = 0; n < 3; n++) {
            assert_true(take_time(&s, cases[i].records[n], n + 1, "", 7));
        }
        const uint64_t seconds = (uint64_t) cases[i].seconds;
        assert_int_equal(s.round.fleet_wall_ns, seconds * SECOND + 5000);
        assert_int_equal(s.round.received_ns, seconds * SECOND);
        assert_int_equal(s.round.ahead_ns, -7 * (int64_t) MILLISECOND);
        assert_int_equal(s.t.live_nodes, 3);
        assert_int_equal(s.t.suspect_nodes, 2);
        assert_int_equal(s.t.watermark_ms, 1234);
        assert_true(s.t.has_time);
    }
}

static void test_another_server_or_another_record_has_lost_what_was_there(void **state)
{
    (void) state;
    static const struct {
        const char *identity;
        long long created;
        bool cluster, still_there, leaves, lost;
    } cases[] = {
        {"a b ", 7, false, false, false, false}, {"a b ", 8, false, false, false, true},
        {"c d ", 7, false, false, false, true},  {"c d ", 7, false, false, true, false}, /* it is about to leave */
        {"c d ", 7, true, false, false, true},   {"c d ", 7, true, true, false, false},  /* its slots have moved */
        {"c d ", 8, true, true, false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        struct server_conn other = {.stage = SERVER_READY, .in_slot_map = true, .identity = "a b "};
        scene_init(&s, SCRIPT_HEARTBEAT);
        s.round.asks = true; /* else the heartbeat that is made would have to be there */
        s.t.cluster = cases[i].cluster;
        assert_true(take_time(&s, 0, 1, "a b ", 7));
        assert_false(s.t.lost_state); /* a first answer has nothing to compare with */
        s.t.servers[3] = cases[i].still_there ? &other : NULL;
        s.round.leaves = cases[i].leaves;
        assert_true(take_time(&s, 0, 2, cases[i].identity, cases[i].created));
        assert_int_equal(s.t.lost_state, cases[i].lost);
        assert_true(take_time(&s, 0, 3, cases[i].identity, cases[i].created));
        assert_false(s.t.lost_state); /* once */
    }
}

static void test_a_clock_that_is_a_hundred_years_off_is_no_clock(void **state)
{
    (void) state;
    const long long most = INT64_C(3155760000) * 1000;
    const long long ahead[] = {most, -most, most + 1, -most - 1};
    for (size_t i = 0; i < 4; i++) {
        struct scene s;
        scene_init(&s, SCRIPT_HEARTBEAT);
        s.batch.count = 0;
        s.whole = (redisReply){.type = REDIS_REPLY_ARRAY, .element = s.elements, .elements = 8};
        s.integers[7].integer = ahead[i];
        batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
        assert_int_equal(s.batch.state, i < 2 ? BATCH_DONE : BATCH_LOST);
        assert_int_equal(s.round.ahead_ns, i < 2 ? ahead[i] * (int64_t) MILLISECOND : 0);
    }
}

static void test_a_time_that_nanoseconds_have_no_room_for_is_no_time(void **state)
{
    (void) state;
    /* The seconds, the microseconds and the earliest heartbeat: the most of each, and one more. */
    static const struct {
        size_t number;
        long long most;
    } times[] = {{0, 9223372035}, {1, 999999}, {5, 9223372036854}};
    for (size_t i = 0; i < 6; i++) {
        struct scene s;
        scene_init(&s, SCRIPT_HEARTBEAT);
        s.batch.count = 0;
        s.whole = (redisReply){.type = REDIS_REPLY_ARRAY, .element = s.elements, .elements = 8};
        for (size_t j = 0; j < 8; j++) {
            s.integers[j].integer = 0;
        }
        s.integers[times[i / 2].number].integer = times[i / 2].most + (i % 2 != 0);
        batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
        assert_int_equal(s.batch.state, i % 2 == 0 ? BATCH_DONE : BATCH_LOST);
    }
}

static void test_a_log_is_answered_with_its_groups(void **state)
{
    (void) state;
    struct scene s;
    scene_init(&s, SCRIPT_HISTORY);
    scene_answer(&s, 10, 0);
    batch_answer(&s.t, &s.server, 0, &s.whole, SECOND);
    for (size_t i = 0; i < COUNT; i++) {
        const struct report *report = &s.reports[i];
        const uint64_t at = 100 + 10 * i;
        assert_int_equal(report->status, 0);
        assert_int_equal(report->author_count, at + 1);
        assert_int_equal(report->sum, at + 2);
        assert_int_equal(s.histories[i].reset_us, at + 3);
        assert_int_equal(report->sum_demand, at + 4);
        assert_int_equal(s.histories[i].other_authors, at + 5);
        assert_int_equal(s.histories[i].group_count, 2);
        for (size_t g = 0; g < 2; g++) {
            assert_int_equal(s.histories[i].groups[g].time_ns, at + 6 + 2 * g);
            assert_int_equal(s.histories[i].groups[g].units, at + 7 + 2 * g);
        }
    }
    /* At most 64 groups. */
    for (size_t groups = HISTORY_GROUPS; groups <= HISTORY_GROUPS + 1; groups++) {
        redisReply *numbers[6 + 2 * (HISTORY_GROUPS + 1)];
        for (size_t i = 0; i < 6 + 2 * groups; i++) {
            numbers[i] = number_reply(i == 0 ? 0 : 9);
        }
        redisReply *whole = array_reply(1, (redisReply *[]){array_reply(6 + 2 * groups, numbers)});
        scene_init(&s, SCRIPT_HISTORY);
        s.batch.count = 1;
        batch_answer(&s.t, &s.server, 0, whole, SECOND);
        freeReplyObject(whole);
        assert_int_equal(s.batch.state, groups == HISTORY_GROUPS ? BATCH_DONE : BATCH_LOST);
    }
}

static void test_the_cause_of_an_error_in_a_script_comes_after_its_place(void **state)
{
    (void) state;
    static const char *const cases[][2] = {
        {"OOM command not allowed", "OOM command not allowed"},
        {"ERR Error running script (call to f_12): @user_script:7: @user_script: 17: -OOM no", "OOM no"},
        {"ERR Error running script (call to f_12): @user_script: 17: NOPERM no", "NOPERM no"},
        {"ERR Error running script without a place", "ERR Error running script without a place"},
        {"ERR other @user_script: 17: x", "ERR other @user_script: 17: x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(answer_cause(cases[i][0]), cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_of_others_are_a_version_and_texts),
        cmocka_unit_test(test_a_number_no_script_answers_costs_its_record_alone),
        cmocka_unit_test(test_each_report_is_answered_in_the_form_that_its_record_needs),
        cmocka_unit_test(test_a_record_that_had_nothing_of_the_author_is_told),
        cmocka_unit_test(test_an_answer_of_another_shape_costs_the_connection),
        cmocka_unit_test(test_a_server_whose_heartbeat_is_older_than_the_one_made_has_lost_something),
        cmocka_unit_test(test_overrides_are_taken_where_they_are_others),
        cmocka_unit_test(test_fleet_time_is_that_of_the_fleets_record),
        cmocka_unit_test(test_another_server_or_another_record_has_lost_what_was_there),
        cmocka_unit_test(test_a_clock_that_is_a_hundred_years_off_is_no_clock),
        cmocka_unit_test(test_a_time_that_nanoseconds_have_no_room_for_is_no_time),
        cmocka_unit_test(test_a_log_is_answered_with_its_groups),
        cmocka_unit_test(test_the_cause_of_an_error_in_a_script_comes_after_its_place),
    };
    return cmocka_run_group_tests_name("unit/transport/answer", tests, NULL, NULL);
}
