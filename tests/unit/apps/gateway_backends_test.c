/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of backends in force, and the views of workers: what a change does to sessions, health and places, in one
 * thread; and drawn changes while threads look.
 *
 * Guards: apps/gateway/backends/backends.c, apps/gateway/backends/view.c, apps/gateway/backends/health.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/gateway/backends/view.h"
#include "../apps/gateway/log.h"
#include "support/support.h"

#define WORKERS 3

static struct backends backends;
static struct backend_reports reports[WORKERS];
static struct backend_reports *reporters[WORKERS];
static struct backends_view views[WORKERS];
static char problem[256];

static struct backend_choice choice(unsigned n)
{
    struct backend_choice out = {.weight = 1};
    (void) snprintf(out.text, sizeof(out.text), "10.0.%u.%u:7", n / 256, n % 256);
    out.address.length = sizeof(out.address.u.v4);
    out.address.u.v4.sin_family = AF_INET;
    out.address.u.v4.sin_addr.s_addr = htonl(0x0a000000 + n);
    out.address.u.v4.sin_port = htons(7);
    return out;
}

static struct address client(unsigned n)
{
    struct address address = choice(n).address;
    address.u.v4.sin_addr.s_addr = htonl(0xc0a80000 + n);
    return address;
}

/* Puts `count` backends from `first` on in force. */
static int replace(unsigned first, unsigned count)
{
    struct backend_choice choices[BACKENDS_MAX];
    for (unsigned i = 0; i < count; i++) {
        choices[i] = choice(first + i);
    }
    const bool has_room = backends_have_room(&backends, choices, count);
    const int result = backends_replace(&backends, choices, count, problem, sizeof(problem));
    assert_true(has_room == (result != -EAGAIN) || result == 0); /* workers may have left places in between */
    return result;
}

static int begin(void **arg)
{
    (void) arg;
    log_start(WEIR_LOG_ERROR, LOG_TEXT);
    memset(reports, 0, sizeof(reports));
    for (unsigned i = 0; i < WORKERS; i++) {
        reporters[i] = &reports[i];
    }
    backends_init(&backends, NULL, reporters, WORKERS);
    assert_int_equal(replace(0, 3), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        view_init(&views[i], &backends, &reports[i]);
    }
    return 0;
}

static void update_all(void)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        (void) view_update(&views[i]);
        view_settled(&views[i]);
    }
}

/* The number of the backend that a client goes to. */
static unsigned chosen(unsigned n)
{
    const struct address address = client(n);
    const uint8_t place = view_choose(&views[0], &address);
    return ntohl(view_backend(&views[0], place)->address.u.v4.sin_addr.s_addr) - 0x0a000000;
}

static uint8_t place_of(unsigned n)
{
    for (unsigned i = 0; i < BACKEND_PLACES; i++) {
        if (strcmp(backends.places[i].text, choice(n).text) == 0) {
            return (uint8_t) i;
        }
    }
    fail_msg("backend %u has no place", n);
    return 0;
}

static void test_a_view_costs_nothing_while_nothing_changes(void **arg)
{
    (void) arg;
    assert_false(view_update(&views[0]));
    backends_changed(&backends);
    assert_true(view_update(&views[0]));
    assert_false(view_update(&views[0]));
}

static void test_a_backend_that_is_down_gets_no_session_and_keeps_none(void **arg)
{
    (void) arg;
    unsigned before[300];
    for (unsigned n = 0; n < 300; n++) {
        before[n] = chosen(n);
    }
    view_note_refusals(&views[1], place_of(1), 1, EPERM, 10); /* this host's firewall: no news of the backend */
    assert_false(view_update(&views[0]));
    view_note_refusals(&views[1], place_of(1), 1, ECONNREFUSED, 10);
    assert_true(view_update(&views[0]));
    assert_true(views[0].stays[place_of(0)] && !views[0].stays[place_of(1)] && !views[0].is_gone[place_of(1)]);
    for (unsigned n = 0; n < 300; n++) {
        assert_true(chosen(n) != 1 && (before[n] == 1 || chosen(n) == before[n]));
    }
    view_note_replies(&views[1], place_of(1), 1, 10); /* under way when it was refused */
    assert_false(view_update(&views[0]));
    view_note_replies(&views[1], place_of(1), 1, 11);
    assert_true(view_update(&views[0]));
    for (unsigned n = 0; n < 300; n++) {
        assert_int_equal(chosen(n), before[n]);
    }
    view_note_refusals(&views[1], place_of(1), 1, ECONNREFUSED, 12);
    view_note_sent(&views[1], place_of(1), 0, 13); /* no packet, */
    view_note_sent(&views[1], place_of(1), 1, 12); /* and one of the second of the refusal */
    assert_int_equal(atomic_load(&backends.places[place_of(1)].health.tried_at), 0);
    view_note_sent(&views[1], place_of(1), 1, 14);
    view_note_sent(&views[1], place_of(1), 1, 15);
    assert_int_equal(atomic_load(&backends.places[place_of(1)].health.tried_at), 14);
    view_note_replies(&views[1], place_of(1), 1, 15);
    assert_true(view_update(&views[0]));
    backends.has_probes = true; /* then answers to these alone end a refusal */
    view_note_refusals(&views[1], place_of(1), 1, ECONNREFUSED, 20);
    view_note_replies(&views[1], place_of(1), 1, 22);
    assert_true(view_update(&views[0]));
    assert_true(chosen(0) != 1 && !views[0].stays[place_of(1)]);
    backends.has_probes = false;
}

static void test_where_all_are_down_all_are_as_if_up(void **arg)
{
    (void) arg;
    unsigned before[300];
    for (unsigned n = 0; n < 300; n++) {
        before[n] = chosen(n);
    }
    for (unsigned i = 0; i < 3; i++) {
        view_note_refusals(&views[0], place_of(i), 1, EHOSTUNREACH, 10);
    }
    assert_true(view_update(&views[0]));
    assert_true(backends_all_down(&backends));
    for (unsigned n = 0; n < 300; n++) {
        assert_int_equal(chosen(n), before[n]);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(views[0].stays[place_of(i)]);
    }
}

static void test_a_backend_that_drains_keeps_sessions_and_gets_none(void **arg)
{
    (void) arg;
    struct backend_choice choices[3] = {choice(0), choice(1), choice(2)};
    choices[1].drain = true;
    assert_int_equal(backends_replace(&backends, choices, 3, problem, sizeof(problem)), 0);
    update_all();
    assert_true(views[0].stays[place_of(1)]);
    for (unsigned n = 0; n < 300; n++) {
        assert_int_not_equal(chosen(n), 1);
    }
    view_note_refusals(&views[0], place_of(1), 1, ECONNREFUSED, 10);
    update_all();
    assert_false(views[0].stays[place_of(1)]);
    choices[0].drain = choices[2].drain = true;
    assert_int_equal(backends_replace(&backends, choices, 3, problem, sizeof(problem)), 0);
    update_all();
    const struct address address = client(1);
    assert_int_equal(view_choose(&views[0], &address), BACKEND_NONE);
}

static void test_a_backend_that_stays_keeps_its_place_its_counts_and_its_health(void **arg)
{
    (void) arg;
    view_note_sent(&views[1], place_of(2), 7, 10);
    assert_int_equal(atomic_load(&backends.places[place_of(2)].health.tried_at), 0); /* it refuses nothing */
    view_note_session(&views[1], place_of(2), 1);
    view_note_refusals(&views[1], place_of(2), 1, ECONNREFUSED, 10);
    const uint8_t place = place_of(2);
    assert_int_equal(replace(2, 5), 0);
    update_all();
    assert_int_equal(place_of(2), place);
    assert_int_equal(health_reasons(&backends.places[place].health), BACKEND_REFUSES);
    const struct backend_sums sums = backends_sums(&backends, place);
    assert_true(sums.sent == 7 && sums.sessions == 1 && sums.refused == 1);
    assert_true(views[0].is_gone[place_of(0)] && !views[0].stays[place_of(0)]);
}

static void test_a_place_is_given_away_when_all_workers_have_left_it(void **arg)
{
    (void) arg;
    view_note_sent(&views[0], place_of(0), 5, 10);
    assert_int_equal(replace(1000, BACKENDS_MAX), 0);
    assert_int_equal(replace(2000, BACKENDS_MAX - 3), 0); /* the rest of the places */
    assert_int_equal(replace(3000, 1), -EAGAIN);
    assert_string_not_equal(problem, "");
    (void) view_update(&views[0]);
    view_settled(&views[0]);
    assert_int_equal(replace(3000, 1), -EAGAIN); /* two workers have not been there */
    assert_false(view_update(&views[0]));        /* what was refused has changed nothing */
    update_all();
    assert_int_equal(replace(3000, BACKENDS_MAX), 0);
    update_all();
    for (unsigned i = 0; i < BACKENDS_MAX; i++) {
        assert_int_equal(backends_sums(&backends, place_of(3000 + i)).sent, 0); /* nothing of who had the place */
    }
}

static void test_lists_that_cannot_be(void **arg)
{
    (void) arg;
    static struct backend_choice choices[BACKENDS_MAX + 1];
    for (unsigned i = 0; i <= BACKENDS_MAX; i++) {
        choices[i] = choice(i);
    }
    assert_int_equal(backends_replace(&backends, choices, 0, problem, sizeof(problem)), -EINVAL);
    assert_int_equal(backends_replace(&backends, choices, BACKENDS_MAX + 1, problem, sizeof(problem)), -EINVAL);
    choices[5] = choice(3);
    assert_int_equal(backends_replace(&backends, choices, 6, problem, sizeof(problem)), -EINVAL);
    assert_non_null(strstr(problem, "10.0.0.3:7 is given twice"));
    assert_false(view_update(&views[0]));
}

/* Lists of the threads' test: list n is the backends from 100 n on, n + 1 of them. No two have a backend in common. */
#define LISTS  16
#define ROUNDS 20000

static _Atomic bool stopping;
static _Atomic unsigned torn_views;

/* A worker: its view is always one of the lists, whole, and what it reads of a place is of a backend of that list. */
static void *look(void *arg)
{
    struct backends_view *view = arg;
    unsigned torn = 0;
    while (!atomic_load(&stopping)) {
        if (!view_update(view)) {
            continue;
        }
        torn += view->count == 0;
        const unsigned list = view->count - 1;
        for (unsigned i = 0; i < view->count; i++) {
            const struct backend *backend = view_backend(view, view->candidates[i].place);
            const unsigned n = ntohl(backend->address.u.v4.sin_addr.s_addr) - 0x0a000000;
            torn += n < 100 * list || n > 100 * list + list || view->candidates[i].weight != list + 1;
        }
        view_settled(view);
    }
    (void) atomic_fetch_add(&torn_views, torn);
    return NULL;
}

/* Backends go down and come up all the time, so views are read anew while a list is being changed. */
static void *change_health(void *arg)
{
    (void) arg;
    while (!atomic_load(&stopping)) {
        backends_changed(&backends);
    }
    return NULL;
}

static void test_views_are_whole_lists_while_lists_change(void **arg)
{
    (void) arg;
    pthread_t threads[WORKERS + 1];
    uint64_t state = test_seed() | 1;
    struct backend_choice choices[LISTS];
    unsigned changes = 0;
    atomic_store(&stopping, false);
    choices[0] = choice(0);
    assert_int_equal(backends_replace(&backends, choices, 1, problem, sizeof(problem)), 0);
    update_all();
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, look, &views[i]), 0);
    }
    assert_int_equal(pthread_create(&threads[WORKERS], NULL, change_health, NULL), 0);
    while (changes < ROUNDS) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const unsigned list = (unsigned) (state >> 33) % LISTS;
        for (unsigned i = 0; i <= list; i++) {
            choices[i] = choice(100 * list + i);
            choices[i].weight = list + 1;
        }
        const int result = backends_replace(&backends, choices, list + 1, problem, sizeof(problem));
        assert_true(result == 0 || result == -EAGAIN);
        changes += result == 0;
    }
    atomic_store(&stopping, true);
    for (unsigned i = 0; i <= WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&torn_views), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_view_costs_nothing_while_nothing_changes, begin),
        cmocka_unit_test_setup(test_a_backend_that_is_down_gets_no_session_and_keeps_none, begin),
        cmocka_unit_test_setup(test_where_all_are_down_all_are_as_if_up, begin),
        cmocka_unit_test_setup(test_a_backend_that_drains_keeps_sessions_and_gets_none, begin),
        cmocka_unit_test_setup(test_a_backend_that_stays_keeps_its_place_its_counts_and_its_health, begin),
        cmocka_unit_test_setup(test_a_place_is_given_away_when_all_workers_have_left_it, begin),
        cmocka_unit_test_setup(test_lists_that_cannot_be, begin),
        cmocka_unit_test_setup(test_views_are_whole_lists_while_lists_change, begin),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_backends", tests, NULL, NULL);
}
