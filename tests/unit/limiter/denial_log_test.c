/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log says of policies that deny, on a clock that the test moves: when, how often, of which keys.
 *
 * Guards: src/limiter/denial_log.c, src/check/check_all.c, src/check/all_table.c
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/nodes.h"

#define LINES 64

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

struct server {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    size_t count; /* lines */
    uint64_t times_ms[LINES];
    char lines[LINES][700];
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct server *p = arg;
    if (strstr(message, " no longer in force") != NULL) {
        return; /* of policies that a test takes away: unit/limiter/required */
    }
    assert_int_equal(level, WEIR_LOG_INFO);
    assert_true(p->count < LINES);
    p->times_ms[p->count] = (p->clock.wall_ns - START_NS) / MILLISECOND;
    (void) snprintf(p->lines[p->count++], sizeof(p->lines[0]), "%s", message);
}

static void server_open(struct server *p, bool quiet)
{
    memset(p, 0, sizeof(*p));
    fake_clock_init(&p->clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &p->clock.clock;
    options.max_keys = 2000;
    options.max_threads = 2;
    options.log = keep;
    options.log_arg = p;
    options.no_denial_log = quiet;
    p->w = open_or_fail(&options);
    p->t = weir_attach(p->w);
}

static void server_close(struct server *p)
{
    weir_detach(p->t);
    weir_close(p->w);
}

static void set_policies(weir *w, const weir_policy *policies, size_t count)
{
    weir_error error;
    if (weir_set_policies(w, policies, count, &error) != 0) {
        fail_msg("weir_set_policies: %s", error.message);
    }
}

static weir_policy_id set_policy(struct server *p, weir_mode mode)
{
    const weir_policy policy = {.name = "api", .limits = &ten, .limit_count = 1, .mode = mode};
    set_policies(p->w, &policy, 1);
    return weir_find_policy(p->w, "api");
}

/* Moves time in steps, as a loop that polls. */
static void let_pass(struct server *p, uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 50) {
        fake_clock_advance(&p->clock, 50 * MILLISECOND);
        assert_true(weir_poll(p->w) >= 0);
    }
}

/* Makes exactly `count` checks that are denied. */
static void deny_bytes(struct server *p, weir_policy_id policy, const void *bytes, size_t size, uint64_t times,
                       uint64_t cost)
{
    const weir_key key = weir_make_key(p->w, policy, bytes, size);
    uint64_t denied = 0;
    for (uint64_t i = 0; denied < times; i++) {
        assert_true(i < times + 20);
        weir_verdict v;
        denied += !weir_check(p->t, &key, cost, &v) || v.would_deny;
    }
}

static void deny(struct server *p, weir_policy_id policy, const char *key, uint64_t times)
{
    deny_bytes(p, policy, key, strlen(key), times, 1);
}

static void is_line(const struct server *p, size_t i, uint64_t ms, const char *line)
{
    assert_true(i < p->count);
    assert_string_equal(p->lines[i], line);
    assert_int_equal(p->times_ms[i], ms);
}

static void test_a_policy_that_denies_is_told_of_when_it_begins_while_it_lasts_and_when_it_is_over(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy_id id = set_policy(&p, WEIR_ENFORCE);
    /* What a handle counts that nobody has attached is no denial. */
    assert_int_equal(load_relaxed(&p.w->limiter.shared->thread_high), 1);
    store_relaxed(&p.w->limiter.threads[1].tallies[id].denied, 77);
    let_pass(&p, 3000);
    assert_int_equal(p.count, 0);
    deny(&p, id, "greedy", 40);
    deny(&p, id, "other", 1);
    let_pass(&p, 1000); /* the first step that can see it is at 4 s: there is one each second from weir_open on */
    assert_int_equal(p.count, 0);
    let_pass(&p, 1000);
    is_line(&p, 0, 5000,
            "policy api begins to deny: 41 checks in 2 s, most by api:greedy (40 units), api:other (1 units)");
    for (int i = 0; i < 20; i++) {
        let_pass(&p, 1000);
        deny(&p, id, "greedy", 10);
    }
    is_line(&p, 1, 15000, "policy api denies: 90 checks in 10 s, most by api:greedy (90 units)");
    is_line(&p, 2, 25000, "policy api denies: 100 checks in 10 s, most by api:greedy (100 units)");
    assert_int_equal(p.count, 3);
    let_pass(&p, 30000);
    is_line(&p, 3, 35000, "policy api denies: 10 checks in 10 s, most by api:greedy (10 units)");
    is_line(&p, 4, 45000, "policy api denies no more: 241 checks in 23 s");
    assert_int_equal(p.count, 5);
    let_pass(&p, 600000);
    assert_int_equal(p.count, 5); /* no denial, no line */
    deny(&p, id, "third", 2);
    let_pass(&p, 2000);
    is_line(&p, 5, 657000, "policy api begins to deny: 2 checks in 2 s, most by api:third (2 units)");
    server_close(&p);
}

static void test_of_several_keys_the_policy_without_room_is_told_of(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_limit wide = {.algorithm = WEIR_FIXED_WINDOW, .limit = 15, .period_ns = 24 * HOUR};
    const weir_policy policies[] = {{.name = "api", .limits = &ten, .limit_count = 1},
                                    {.name = "all", .limits = &wide, .limit_count = 1}};
    set_policies(p.w, policies, 2);
    const weir_policy_id api = weir_find_policy(p.w, "api");
    weir_key keys[2] = {weir_make_key(p.w, api, "greedy", 6), weir_make_key(p.w, weir_find_policy(p.w, "all"), "", 0)};
    for (int i = 0; i < 60; i++) { /* by the table at first, then by slots; with and without a verdict */
        weir_verdict v;
        assert_int_equal(weir_check_all(p.t, keys, NULL, 2, i % 2 == 0 ? &v : NULL), i < 10);
    }
    let_pass(&p, 3000);
    is_line(&p, 0, 2000, "policy api begins to deny: 50 checks in 2 s, most by api:greedy (50 units)");
    let_pass(&p, 20000);
    is_line(&p, 1, 12000, "policy api denies no more: 50 checks in 1 s");
    assert_int_equal(p.count, 2);
    keys[0] = weir_make_key(p.w, api, "polite", 6);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(weir_check_all(p.t, keys, NULL, 2, NULL), i < 5);
    }
    let_pass(&p, 3000);
    is_line(&p, 2, 25000, "policy all begins to deny: 25 checks in 2 s");
    let_pass(&p, 20000);
    assert_int_equal(p.count, 4);
    server_close(&p);
}

static void test_a_policy_in_shadow_mode_would_deny(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy_id id = set_policy(&p, WEIR_SHADOW);
    deny(&p, id, "greedy", 30);
    let_pass(&p, 3000);
    is_line(&p, 0, 2000, "policy api would begin to deny: 30 checks in 2 s, most by api:greedy (30 units)");
    deny(&p, id, "greedy", 5);
    let_pass(&p, 20000);
    is_line(&p, 1, 12000, "policy api would deny: 5 checks in 10 s, most by api:greedy (5 units)");
    is_line(&p, 2, 22000, "policy api would deny no more: 35 checks in 4 s");
    assert_int_equal(p.count, 3);
    server_close(&p);
}

static void test_a_policy_whose_mode_changes_goes_on_with_the_other_words(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    weir_policy_id id = set_policy(&p, WEIR_SHADOW);
    deny(&p, id, "greedy", 30);
    let_pass(&p, 3000);
    id = set_policy(&p, WEIR_ENFORCE);
    deny(&p, id, "greedy", 5);
    let_pass(&p, 20000);
    is_line(&p, 0, 2000, "policy api would begin to deny: 30 checks in 2 s, most by api:greedy (30 units)");
    is_line(&p, 1, 12000, "policy api denies: 5 checks in 10 s, most by api:greedy (5 units)");
    is_line(&p, 2, 22000, "policy api denies no more: 5 checks and would deny 30 in 4 s");
    assert_int_equal(p.count, 3);
    server_close(&p);
}

static void test_tiers_are_told_of_with_their_policy(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy policies[] = {
        {.name = "api/free", .limits = &ten, .limit_count = 1},
        {.name = "api/pro", .limits = &ten, .limit_count = 1, .mode = WEIR_SHADOW},
        {.name = "login", .limits = &ten, .limit_count = 1},
    };
    set_policies(p.w, policies, 3);
    deny(&p, weir_find_policy(p.w, "api/free"), "a", 20);
    deny(&p, weir_find_policy(p.w, "api/pro"), "b", 10);
    deny(&p, weir_find_policy(p.w, "login"), "c", 3);
    let_pass(&p, 2000);
    is_line(
        &p, 0, 2000,
        "policy api begins to deny: 20 checks and would deny 10 in 2 s, most by api:a (20 units), api:b (10 units)");
    is_line(&p, 1, 2000, "policy login begins to deny: 3 checks in 2 s, most by login:c (3 units)");
    assert_int_equal(p.count, 2);
    /* A policy that is removed writes no further line. */
    set_policies(p.w, policies, 2);
    let_pass(&p, 10000);
    is_line(&p, 2, 12000, "policy api denies no more: 20 checks and would deny 10 in 1 s");
    is_line(&p, 3, 12000, "policy login denies no more: 3 checks in 1 s");
    server_close(&p);
}

static void test_a_policy_that_comes_later_is_told_of_as_well(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy policies[] = {{.name = "api", .limits = &ten, .limit_count = 1},
                                    {.name = "login/free", .limits = &ten, .limit_count = 1},
                                    {.name = "login", .limits = &ten, .limit_count = 1}};
    for (size_t count = 0; count <= 3; count++) {
        set_policies(p.w, policies, count);
        let_pass(&p, 2000);
    }
    deny(&p, weir_find_policy(p.w, "login/free"), "a", 2);
    deny(&p, weir_find_policy(p.w, "login"), "b", 3);
    deny(&p, weir_find_policy(p.w, "api"), "c", 4);
    let_pass(&p, 2000);
    is_line(&p, 0, 10000, "policy api begins to deny: 4 checks in 2 s, most by api:c (4 units)");
    is_line(&p, 1, 10000, "policy login begins to deny: 5 checks in 2 s, most by login:b (3 units), login:a (2 units)");
    assert_int_equal(p.count, 2);
    server_close(&p);
}

static void test_lines_of_a_policy_are_ten_seconds_apart_whatever_comes_and_count_every_denial(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int run = 0; run < 20; run++) {
        struct server p;
        server_open(&p, false);
        const weir_policy_id id = set_policy(&p, WEIR_ENFORCE);
        uint64_t denied = 0;
        /* Bursts after pauses of 0 to 20 s; also just after the line that the denials are over. */
        for (uint64_t at = 0; at < 300000;) {
            const uint64_t pause = random_below(&rng, 400) * 50;
            const uint64_t more = random_below(&rng, 5);
            deny(&p, id, "greedy", more);
            denied += more;
            let_pass(&p, pause);
            at += pause;
        }
        let_pass(&p, 40000);
        uint64_t counts = 0;
        uint64_t all = 0;
        bool on = false;
        assert_true(p.count >= 4);
        for (size_t i = 0; i < p.count; i++) {
            assert_true(i == 0 || p.times_ms[i] - p.times_ms[i - 1] >= 10000);
            const unsigned long long checks = strtoull(strchr(p.lines[i], ':') + 1, NULL, 10);
            if (strstr(p.lines[i], "no more") != NULL) {
                assert_true(on);
                on = false;
                all += checks;
            } else {
                assert_true(on == (strstr(p.lines[i], "begins") == NULL));
                on = true;
                counts += checks;
            }
        }
        assert_false(on);
        assert_int_equal(counts, denied);
        assert_int_equal(all, denied);
        server_close(&p);
    }
}

static void test_only_keys_with_a_good_part_are_named_and_at_most_three(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy_id id = set_policy(&p, WEIR_ENFORCE);
    for (int i = 0; i < 500; i++) {
        char key[16];
        (void) snprintf(key, sizeof(key), "k%d", i);
        deny(&p, id, key, 1);
    }
    let_pass(&p, 2000);
    is_line(&p, 0, 2000, "policy api begins to deny: 500 checks in 2 s, by many keys");
    for (int i = 0; i < 5; i++) {
        deny(&p, id, (const char *const[]){"a", "b", "c", "d", "e"}[i], (uint64_t) (100 - i));
    }
    deny(&p, id, "little", 5);
    let_pass(&p, 10000);
    is_line(&p, 1, 12000,
            "policy api denies: 495 checks in 10 s, most by api:a (100 units), api:b (99 units), api:c (98 units)");
    server_close(&p);
}

static void test_keys_are_escaped_as_entries_name_them(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy_id id = set_policy(&p, WEIR_ENFORCE);
    static const char hostile[] = "a b\n\x1b[2J\xff\"}\\%";
    static const char longer[] = "a key that is longer than what is kept of one";
    deny_bytes(&p, id, hostile, sizeof(hostile) - 1, 20, 1);
    deny_bytes(&p, id, longer, sizeof(longer) - 1, 10, 1);
    let_pass(&p, 2000);
    weir_offender top[2];
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 2);
    assert_string_equal(top[0].key, "a%20b%0a%1b[2J%ff\"%7d\\%25");
    char line[700];
    (void) snprintf(line, sizeof(line),
                    "policy api begins to deny: 30 checks in 2 s, most by api:%s (20 units), api:%s (10 units)",
                    top[0].key, top[1].key);
    is_line(&p, 0, 2000, line);
    server_close(&p);
}

static void test_checks_and_units_are_told_apart_and_what_has_no_key_names_none(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, false);
    const weir_policy_id id = set_policy(&p, WEIR_ENFORCE);
    deny_bytes(&p, id, "bytes", 5, 20, 4);
    let_pass(&p, 2000);
    is_line(&p, 0, 2000, "policy api begins to deny: 20 checks in 2 s, most by api:bytes (80 units)");
    deny_bytes(&p, id, NULL, 0, 7, 1); /* a limit for all together */
    let_pass(&p, 10000);
    is_line(&p, 1, 12000, "policy api denies: 7 checks in 10 s");
    deny_bytes(&p, id, "never", 5, 9, 11); /* the request can never pass, so no list has its key */
    let_pass(&p, 10000);
    is_line(&p, 2, 22000, "policy api denies: 9 checks in 10 s");
    server_close(&p);
}

static void test_nothing_is_said_where_the_host_does_not_want_it(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, true);
    deny(&p, set_policy(&p, WEIR_ENFORCE), "greedy", 30);
    let_pass(&p, 30000);
    assert_int_equal(p.count, 0);
    server_close(&p);
}

/* Names that the linker gives. A try for the policy lock that is to fail, counted from 1; 0: none is. */
bool __real_policy_lock_try(weir *w);
bool __wrap_policy_lock_try(weir *w);
static size_t refused_try;

bool __wrap_policy_lock_try(weir *w)
{
    return (refused_try == 0 || --refused_try != 0) && __real_policy_lock_try(w);
}

static void test_a_line_waits_where_policies_are_changed_at_the_moment(void **state)
{
    (void) state;
    static const struct {
        size_t count;              /* of lines at 2 s */
        uint64_t api_ms, login_ms; /* when the lines come */
    } rows[] = {{2, 2000, 2000},
                {0, 2050, 2050}, /* the look itself waits for the next turn */
                {1, 3000, 2000}, /* a line, for the next look */
                {1, 2000, 3000}};
    for (size_t refused = 0; refused < 4; refused++) {
        struct server p;
        server_open(&p, false);
        const weir_policy policies[] = {{.name = "api", .limits = &ten, .limit_count = 1},
                                        {.name = "login", .limits = &ten, .limit_count = 1}};
        set_policies(p.w, policies, 2);
        deny(&p, weir_find_policy(p.w, "api"), "a", 40);
        deny(&p, weir_find_policy(p.w, "login"), "b", 3);
        let_pass(&p, 1950);
        refused_try = refused;
        let_pass(&p, 50);
        assert_int_equal(refused_try, 0);
        assert_int_equal(p.count, rows[refused].count);
        let_pass(&p, 1000);
        assert_int_equal(p.count, 2);
        const size_t api = rows[refused].api_ms > rows[refused].login_ms ? 1 : 0;
        is_line(&p, api, rows[refused].api_ms,
                api == 0 ? "policy api begins to deny: 40 checks in 2 s, most by api:a (40 units)"
                         : "policy api begins to deny: 40 checks in 3 s, most by api:a (40 units)");
        is_line(&p, 1 - api, rows[refused].login_ms,
                rows[refused].login_ms < 3000
                    ? "policy login begins to deny: 3 checks in 2 s, most by login:b (3 units)"
                    : "policy login begins to deny: 3 checks in 3 s, most by login:b (3 units)");
        server_close(&p);
    }
}

/* A weir with a thread of its own, while others check and change its policies. */
struct busy {
    weir *w;
    _Atomic uint64_t ready, stop, lines, checks;
};

static void count_line(void *arg, weir_log_level level, const char *message)
{
    struct busy *busy = arg;
    (void) level;
    if (strncmp(message, "policy api ", 11) == 0) {
        (void) add_relaxed(&busy->checks, strtoull(strchr(message, ':') + 1, NULL, 10));
        (void) add_relaxed(&busy->lines, 1);
    }
}

static void *check_or_change(void *arg)
{
    struct busy *busy = arg;
    const uint64_t number = threads_meet(&busy->ready, 3);
    const weir_policy policies[] = {{.name = "api", .limits = &ten, .limit_count = 1},
                                    {.name = "api/free", .limits = &ten, .limit_count = 1}};
    weir_thread *t = number == 0 ? NULL : weir_attach(busy->w);
    const weir_policy_id id = weir_find_policy(busy->w, "api");
    while (load_relaxed(&busy->stop) == 0) {
        if (t == NULL) {
            set_policies(busy->w, policies, 1 + load_relaxed(&busy->lines) % 2);
            continue;
        }
        const weir_key key = weir_make_key(busy->w, id, "greedy", 6);
        (void) weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return NULL;
}

static void *wait_for_a_line(void *arg)
{
    struct busy *busy = arg;
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (load_relaxed(&busy->lines) == 0 && real_ns() < until_ns) {
        const struct timespec pause = {.tv_nsec = 10000000};
        (void) nanosleep(&pause, NULL);
    }
    store_relaxed(&busy->stop, 1);
    return NULL;
}

static void test_a_line_comes_while_policies_change_and_threads_check(void **state)
{
    (void) state;
    struct busy busy = {0};
    weir_options options = WEIR_OPTIONS_INIT;
    options.log = count_line;
    options.log_arg = &busy;
    busy.w = open_or_fail(&options);
    const weir_policy policy = {.name = "api", .limits = &ten, .limit_count = 1};
    set_policies(busy.w, &policy, 1);
    pthread_t waits;
    assert_int_equal(pthread_create(&waits, NULL, wait_for_a_line, &busy), 0);
    run_threads(3, check_or_change, &busy);
    (void) pthread_join(waits, NULL);
    assert_true(load_relaxed(&busy.lines) > 0 && load_relaxed(&busy.checks) > 0);
    weir_close(busy.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_policy_that_denies_is_told_of_when_it_begins_while_it_lasts_and_when_it_is_over),
        cmocka_unit_test(test_of_several_keys_the_policy_without_room_is_told_of),
        cmocka_unit_test(test_a_policy_in_shadow_mode_would_deny),
        cmocka_unit_test(test_a_policy_whose_mode_changes_goes_on_with_the_other_words),
        cmocka_unit_test(test_tiers_are_told_of_with_their_policy),
        cmocka_unit_test(test_a_policy_that_comes_later_is_told_of_as_well),
        cmocka_unit_test(test_lines_of_a_policy_are_ten_seconds_apart_whatever_comes_and_count_every_denial),
        cmocka_unit_test(test_only_keys_with_a_good_part_are_named_and_at_most_three),
        cmocka_unit_test(test_keys_are_escaped_as_entries_name_them),
        cmocka_unit_test(test_checks_and_units_are_told_apart_and_what_has_no_key_names_none),
        cmocka_unit_test(test_a_line_waits_where_policies_are_changed_at_the_moment),
        cmocka_unit_test(test_a_line_comes_while_policies_change_and_threads_check),
        cmocka_unit_test(test_nothing_is_said_where_the_host_does_not_want_it),
    };
    return cmocka_run_group_tests_name("unit/limiter/denial_log", tests, NULL, NULL);
}
