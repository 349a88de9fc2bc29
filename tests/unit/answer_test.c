/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the transport makes of a script's answer. Numbers that no script of weir's answers cost the record that they are
 * of; an answer of another shape, the connection.
 */
#include <errno.h>
#include <string.h>

#include "support/support.h"
#include "transport/redis/state.h"

#define COUNT   3 /* records of a batch */
#define NUMBERS 80

/* A transport with one batch under way, and room for its answer. */
struct scene {
    struct redis_transport t;
    struct peer peer;
    struct batch batch;
    struct round round;
    struct report reports[COUNT];
    struct log_news logs[COUNT];
    uint32_t order[COUNT];
    redisReply integers[NUMBERS], arrays[COUNT], whole;
    redisReply *elements[NUMBERS], *outer[COUNT];
};

static void scene_init(struct scene *s, enum script script)
{
    memset(s, 0, sizeof(*s));
    s->peer.stage = PEER_READY;
    s->peer.link.fd = -1;
    s->peer.index = PEERS_MAX - 1;
    s->batch = (struct batch){.script = script, .state = BATCH_SENT, .count = COUNT};
    s->round = (struct round){.reports = s->reports, .report_count = COUNT, .node = "n"};
    s->t.peers[s->peer.index] = &s->peer;
    s->t.round = &s->round;
    s->t.batches = &s->batch;
    s->t.batch_count = s->t.batch_size = s->t.round_open = 1;
    s->t.order = s->order;
    for (uint32_t i = 0; i < COUNT; i++) {
        s->order[i] = i;
        s->reports[i].status = 1;
        s->reports[i].log = &s->logs[i];
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        s->integers[i].type = REDIS_REPLY_INTEGER;
        s->integers[i].integer = (long long) i + 100;
        s->elements[i] = &s->integers[i];
    }
}

/* Answers each record with so many numbers, of which the first is the status. */
static void scene_answer(struct scene *s, size_t each)
{
    const bool logs = s->batch.script == SCRIPT_LOG;
    for (size_t i = 0; i < COUNT; i++) {
        s->integers[i * each].integer = 0;
        s->arrays[i].type = REDIS_REPLY_ARRAY;
        s->arrays[i].element = &s->elements[i * each];
        s->arrays[i].elements = each;
        s->outer[i] = &s->arrays[i];
    }
    s->whole.type = REDIS_REPLY_ARRAY;
    s->whole.element = logs ? s->outer : s->elements;
    s->whole.elements = logs ? COUNT : COUNT * each;
}

static const struct {
    enum script script;
    size_t each;
} kinds[] = {{SCRIPT_WINDOW, 6}, {SCRIPT_BUCKET, 7}, {SCRIPT_LOG, 6}, {SCRIPT_LOG, 10}};

static void test_a_number_no_script_answers_costs_its_record_alone(void **state)
{
    (void) state;
    static const long long odd[] = {-1, INT64_MIN, INT64_MAX, (INT64_C(1) << 53) + 1};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t at = 0; at < COUNT * kinds[k].each; at++) {
            for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
                struct scene s;
                scene_init(&s, kinds[k].script);
                scene_answer(&s, kinds[k].each);
                s.integers[at].integer = odd[i];
                answer_batch(&s.t, &s.peer, 0, &s.whole, SECOND);
                assert_int_equal(s.peer.stage, PEER_READY);
                assert_int_equal(s.batch.state, BATCH_DONE);
                assert_int_equal(s.t.round_open, 0);
                assert_int_equal(s.t.problem[0], '\0');
                for (size_t n = 0; n < COUNT; n++) {
                    const bool refused = n == at / kinds[k].each;
                    assert_int_equal(s.reports[n].status, refused ? -EPROTO : 0);
                    assert_true(refused || s.reports[n].mine == 100 + n * kinds[k].each + 1);
                }
            }
        }
    }
}

static void test_an_answer_of_another_shape_costs_the_connection(void **state)
{
    (void) state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int shape = 0; shape < 4; shape++) {
            struct scene s;
            scene_init(&s, kinds[k].script);
            scene_answer(&s, kinds[k].each);
            if (shape == 0) {
                s.whole.elements--;
            } else if (shape == 1) {
                s.integers[2 * kinds[k].each + 1].type = REDIS_REPLY_STRING;
            } else if (shape == 2) {
                s.whole.type = REDIS_REPLY_STATUS;
            } else {
                s.elements[kinds[k].each] = &s.arrays[0];
                s.whole.element = s.elements;
                s.outer[1] = &s.integers[0];
            }
            answer_batch(&s.t, &s.peer, 0, &s.whole, SECOND);
            assert_int_equal(s.peer.stage, PEER_OFF);
            assert_int_equal(s.batch.state, BATCH_LOST);
            assert_int_equal(s.reports[0].status, -EAGAIN);
            assert_non_null(strstr(s.t.problem, "not weir's"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_number_no_script_answers_costs_its_record_alone),
        cmocka_unit_test(test_an_answer_of_another_shape_costs_the_connection),
    };
    return cmocka_run_group_tests_name("unit/answer", tests, NULL, NULL);
}
