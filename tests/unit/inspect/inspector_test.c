/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an inspector waits, over a transport of this test: for a round that has begun, in any case; not for a transport
 * that refuses or fails; and again where a round has failed at once. Nor does it read for ever.
 *
 * Guards: src/inspect/inspector.c, src/inspect/inspect_overrides.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspector.h"
#include "support/support.h"

/* What the transport does, and has done. */
static struct {
    uint64_t begins_after_ns, takes_ns; /* a round: it begins so long after the first step, and then takes so long */
    enum transport_event event;         /* what a round ends with */
    unsigned good_from;                 /* the round from which on it ends with DONE, from 1; 0: none */
    int status;                         /* of what is asked, in a round that ends with DONE */
    bool refuses, pages;
    uint64_t failures_a_step;
    uint64_t first_ns, begun_ns, failures;
    unsigned rounds;
    struct round *round; /* under way */
} stub;

/* A page of no entries behind which there is another one. */
static void asked_page(struct inspection *inspection)
{
    inspection->all = calloc(2, sizeof(*inspection->all));
    assert_non_null(inspection->all);
    inspection->all[1].text = strdup("1");
    inspection->count = 2;
}

static int stub_begin(struct transport *t, struct round *round, uint64_t now_ns)
{
    (void) t;
    if (stub.round != NULL || now_ns - stub.first_ns < stub.begins_after_ns) {
        return -ENOTCONN;
    }
    stub.round = round;
    stub.begun_ns = now_ns;
    stub.rounds++;
    return 0;
}

static enum transport_event stub_step(struct transport *t, uint64_t now_ns)
{
    (void) t;
    stub.first_ns = stub.first_ns != 0 ? stub.first_ns : now_ns;
    stub.failures += stub.failures_a_step;
    if (stub.round == NULL || now_ns - stub.begun_ns < stub.takes_ns) {
        return TRANSPORT_NOTHING;
    }
    const bool good = stub.good_from != 0 && stub.rounds >= stub.good_from;
    for (size_t i = 0; i < stub.round->inspection_count; i++) {
        stub.round->inspections[i].status = good ? 0 : stub.status;
    }
    if (stub.pages) {
        asked_page(&stub.round->inspections[0]);
    }
    stub.round = NULL;
    return good ? TRANSPORT_ROUND_DONE : stub.event;
}

static size_t stub_wait_for(const struct transport *t, struct pollfd *fds, uint64_t *deadline_ns)
{
    (void) t;
    (void) fds;
    *deadline_ns = 0; /* at once */
    return 0;
}

static const char *stub_problem(const struct transport *t)
{
    (void) t;
    return stub.refuses ? "it refuses" : NULL;
}

static const char *stub_server(const struct transport *t)
{
    (void) t;
    return "redis 10.0.0.5:6379";
}

static struct transport_counts stub_counts(const struct transport *t)
{
    (void) t;
    return (struct transport_counts){.failures = stub.failures};
}

static const char *stub_shard(const struct transport *t, size_t number)
{
    return number == 0 ? stub_server(t) : NULL;
}

static void stub_retry(struct transport *t, uint64_t now_ns)
{
    (void) t;
    (void) now_ns;
}

static bool stub_refused(const struct transport *t)
{
    (void) t;
    return stub.refuses;
}

static const struct transport_ops ops = {.begin = stub_begin,
                                         .step = stub_step,
                                         .wait_for = stub_wait_for,
                                         .problem = stub_problem,
                                         .server = stub_server,
                                         .counts = stub_counts,
                                         .shard = stub_shard,
                                         .retry = stub_retry,
                                         .refused = stub_refused};
static struct transport transport = {.ops = &ops};
static struct inspection asked;
static weir_error error;

/* One round over a stub that has not done anything yet. */
static int ask(bool partly, bool (*ends)(void))
{
    static weir_inspector in;
    in = (weir_inspector){.transport = &transport, .failures_most = 4, .ends = ends};
    struct round round = {.reads = true, .inspections = &asked, .inspection_count = 1};
    return inspector_round(&in, &round, partly, &error);
}

static void begin(void)
{
    memset(&stub, 0, sizeof(stub));
    stub.event = TRANSPORT_ROUND_FAILED;
}

static void test_a_round_that_has_begun_is_waited_for(void **state)
{
    (void) state;
    begin();
    stub.good_from = 1;
    stub.begins_after_ns = SECOND;
    stub.takes_ns = 5 * SECOND; /* longer than a transport may: past the time of the call */
    assert_int_equal(ask(false, NULL), 0);
    assert_true(stub.round == NULL && stub.rounds == 1);
}

static void test_a_round_that_cannot_begin_in_time_does_not_begin(void **state)
{
    (void) state;
    begin();
    stub.good_from = 1;
    stub.begins_after_ns = 100 * SECOND;
    const uint64_t begun_ns = real_ns();
    assert_int_equal(ask(false, NULL), -EIO);
    assert_true(stub.rounds == 0 && real_ns() - begun_ns > SECOND);
    assert_string_equal(error.message, "Redis at 10.0.0.5:6379: no answer");
}

static void test_a_round_that_fails_at_once_is_tried_again(void **state)
{
    (void) state;
    begin();
    stub.good_from = 3;
    const uint64_t begun_ns = real_ns();
    assert_int_equal(ask(false, NULL), 0);
    assert_int_equal(stub.rounds, 3);
    assert_true(real_ns() - begun_ns > SECOND / 10); /* in between connections can be made anew */
    begin();
    assert_int_equal(ask(false, NULL), -EIO);
    assert_int_equal(stub.rounds, 3); /* and then no more */
    begin();
    stub.takes_ns = SECOND;
    stub.good_from = 2;
    assert_int_equal(ask(false, NULL), -EIO);
    assert_int_equal(stub.rounds, 1); /* one that has taken long is not */
}

static void test_what_is_unanswered_matters_unless_a_part_is_enough(void **state)
{
    (void) state;
    begin();
    stub.event = TRANSPORT_ROUND_DONE;
    stub.status = -EAGAIN;
    assert_int_equal(ask(true, NULL), 0);
    assert_int_equal(stub.rounds, 1);
    begin();
    stub.event = TRANSPORT_ROUND_DONE;
    stub.status = -EAGAIN;
    assert_int_equal(ask(false, NULL), -EIO);
    assert_int_equal(stub.rounds, 3);
}

static void test_waiting_in_vain_ends(void **state)
{
    (void) state;
    begin();
    stub.begins_after_ns = 100 * SECOND;
    stub.refuses = true;
    const uint64_t begun_ns = real_ns();
    assert_int_equal(ask(false, NULL), -EIO);
    assert_string_equal(error.message, "Redis at 10.0.0.5:6379: it refuses");
    assert_int_equal(stub.first_ns, 0);
    begin();
    stub.begins_after_ns = 100 * SECOND;
    stub.failures_a_step = 1;
    assert_int_equal(ask(false, NULL), -EIO);
    assert_int_equal(stub.failures, 6); /* 4 for the hosts of the URL, and 2 for the server that is known */
    assert_true(real_ns() - begun_ns < 60 * SECOND && stub.rounds == 0);
}

static bool after_some_steps(void)
{
    return stub.rounds == 1;
}

static void test_a_signal_ends_the_wait(void **state)
{
    (void) state;
    begin();
    stub.good_from = 1;
    stub.takes_ns = 100 * SECOND;
    assert_int_equal(ask(false, after_some_steps), -EIO);
    assert_int_equal(stub.rounds, 1);
}

static void test_overrides_without_end_are_given_up(void **state)
{
    (void) state;
    static weir_inspector in;
    const weir_inspected_overrides *overrides;
    begin();
    stub.good_from = 1;
    stub.pages = true;
    in = (weir_inspector){.transport = &transport, .prefix = "weir", .failures_most = 4};
    assert_int_equal(weir_inspect_overrides(&in, &overrides, &error), -EPROTO);
    assert_null(overrides);
    assert_non_null(strstr(error.message, "weir:overrides"));
    assert_int_equal(stub.rounds, 2000);
    shelf_clear(&in.of_overrides);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_that_has_begun_is_waited_for),
        cmocka_unit_test(test_a_round_that_cannot_begin_in_time_does_not_begin),
        cmocka_unit_test(test_a_round_that_fails_at_once_is_tried_again),
        cmocka_unit_test(test_what_is_unanswered_matters_unless_a_part_is_enough),
        cmocka_unit_test(test_waiting_in_vain_ends),
        cmocka_unit_test(test_a_signal_ends_the_wait),
        cmocka_unit_test(test_overrides_without_end_are_given_up),
    };
    return cmocka_run_group_tests_name("unit/inspect/inspector", tests, NULL, NULL);
}
