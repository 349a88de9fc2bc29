/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weir that processes share, under a clock that the test moves: who leads, and that each process sees what another
 * one has set. Weirs of one name in one process stand for the processes; they share what processes share.
 *
 * Guards: src/limiter/leader.c, src/limiter/shared_policies.c, src/limiter/configured_policies.c,
 * src/limiter/policy_lock.c, src/limiter/set_policies.c, src/limiter/key_overrides.c, src/limiter/weir_open.c,
 * src/limiter/weir_parts.c, src/limiter/join.c, src/named/named.c, src/limiter/list_policies.c,
 * src/limiter/denial_log.c, src/limiter/background.c, src/limiter/stats.c
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/configured_policies.h"
#include "limiter/leader.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"
#include "thread/joined.h"

#define START_NS (UINT64_C(1767225600) * SECOND)
#define WEIRS    3

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static char name[SEGMENT_NAME_SIZE];

static struct {
    struct fake_clock clock;
    weir *of[WEIRS];
    weir_thread *t[WEIRS];
    weir *alone; /* not shared: gets the same calls */
    weir_thread *u;
} d;

static weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_keys = 2000;
    options.max_threads = 4;
    options.max_log_units = 10000;
    options.redis_timeout_ms = 10;
    options.sync_interval_ms = 1000;
    return options;
}

static weir *open_one(const char *redis_url)
{
    weir_options options = some_options();
    options.max_processes = 4;
    options.redis_url = redis_url;
    return open_named(name, &options);
}

static int open_all(void **state)
{
    (void) state;
    memset(&d, 0, sizeof(d));
    fake_clock_init(&d.clock, START_NS);
    (void) weir_unlink(name);
    for (size_t i = 0; i < WEIRS; i++) {
        d.of[i] = open_one(NULL);
        d.t[i] = weir_attach(d.of[i]);
        assert_non_null(d.t[i]);
    }
    const weir_options options = some_options();
    d.alone = open_or_fail(&options);
    d.u = weir_attach(d.alone);
    return 0;
}

static int close_all(void **state)
{
    (void) state;
    for (size_t i = 0; i < WEIRS; i++) {
        weir_close(d.of[i]);
        d.of[i] = NULL;
    }
    weir_close(d.alone);
    d.alone = NULL;
    (void) weir_unlink(name);
    return 0;
}

/* Who leads */

static uint32_t leader(void)
{
    return load_relaxed(&d.of[0]->shared->leader);
}

static void let_pass(uint64_t ns)
{
    fake_clock_advance(&d.clock, ns);
}

static void test_the_first_leads_and_the_others_look_now_and_then(void **state)
{
    (void) state;
    assert_int_equal(leader(), d.of[0]->limiter.joined_as);
    for (uint64_t ms = 0; ms < 3000; ms += 10) {
        let_pass(10 * MILLISECOND);
        assert_in_range(weir_poll(d.of[0]), 0, 100);
        assert_int_equal(load_relaxed(&d.of[0]->shared->worked_ns), d.clock.monotonic_ns);
        for (size_t i = 1; i < WEIRS; i++) {
            assert_int_equal(weir_poll(d.of[i]), 4);
            assert_false(d.of[i]->leads);
        }
        assert_int_equal(leader(), d.of[0]->limiter.joined_as);
    }
    /* Nobody checks: there is no hurry. */
    const uint32_t epoch = load_relaxed(&d.of[0]->limiter.shared->line.epoch);
    store_relaxed(&d.of[0]->limiter.shared->line.epoch, EPOCH_ASLEEP);
    assert_int_equal(weir_poll(d.of[1]), 40);
    store_relaxed(&d.of[0]->limiter.shared->line.epoch, epoch);
    assert_int_equal(weir_poll(d.of[1]), 4);
}

/* A leader that has not worked for half a second is replaced, and knows it when it comes back. */
static void test_a_leader_that_does_not_work_is_replaced_after_half_a_second(void **state)
{
    (void) state;
    static const uint64_t early_ns[] = {0, 19 * MILLISECOND, 20 * MILLISECOND, 100 * MILLISECOND,
                                        500 * MILLISECOND - 1};
    (void) weir_poll(d.of[0]);
    const uint64_t worked_ns = d.clock.monotonic_ns;
    for (size_t i = 0; i < COUNT_OF(early_ns); i++) {
        let_pass(worked_ns + early_ns[i] - d.clock.monotonic_ns);
        assert_int_equal(weir_poll(d.of[1]), 4);
        assert_int_equal(leader(), d.of[0]->limiter.joined_as);
        assert_int_equal(load_relaxed(&d.of[0]->shared->worked_ns), worked_ns);
    }
    let_pass(1);
    (void) robust_mutex_lock(&d.of[0]->limiter.process,
                             &d.of[0]->shared->work_lock); /* the leader stands still in its work */
    assert_int_equal(weir_poll(d.of[1]), 4);
    assert_int_equal(leader(), d.of[0]->limiter.joined_as);
    robust_mutex_unlock(&d.of[0]->shared->work_lock);
    (void) weir_poll(d.of[1]);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
    assert_true(d.of[1]->leads);
    assert_int_equal(load_relaxed(&d.of[0]->shared->worked_ns), d.clock.monotonic_ns);
    assert_int_equal(weir_poll(d.of[0]), 4);
    assert_false(d.of[0]->leads);
    assert_int_equal(weir_poll(d.of[2]), 4);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
    /* The new one goes on from where the old one stopped: time moves for all. */
    let_pass(SECOND);
    (void) weir_poll(d.of[1]);
    assert_int_equal(load_relaxed(&d.of[2]->limiter.shared->line.now_ns), d.clock.wall_ns);
}

static void test_a_leader_that_leaves_is_replaced_at_the_next_look(void **state)
{
    (void) state;
    (void) weir_poll(d.of[0]);
    weir_close(d.of[0]);
    d.of[0] = d.of[2]; /* to read the leader by */
    d.of[2] = NULL;
    assert_int_equal(leader(), JOINED_NONE);
    let_pass(20 * MILLISECOND - 1); /* a leader that has just worked is not looked at */
    assert_int_equal(weir_poll(d.of[1]), 4);
    assert_int_equal(leader(), JOINED_NONE);
    let_pass(1);
    (void) weir_poll(d.of[1]);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
    weir_stats stats;
    weir_get_stats(d.of[1], &stats);
    assert_int_equal(stats.process_count, 2);
    /* One that does not lead leaves the leader where it is. */
    weir *other = open_one(NULL);
    weir_close(other);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
}

/* A leader's place that is free: it has left without a word, or another process has freed what it left. */
static void test_a_leader_without_a_place_is_replaced(void **state)
{
    (void) state;
    (void) weir_poll(d.of[0]);
    let_pass(20 * MILLISECOND);
    store_relaxed(&d.of[0]->shared->leader, 3); /* nobody is joined there */
    (void) weir_poll(d.of[1]);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
    /* And a process that has the place of a leader that died takes up the lead. */
    store_relaxed(&d.of[0]->shared->leader, d.of[2]->limiter.joined_as);
    let_pass(20 * MILLISECOND);
    assert_false(d.of[2]->leads);
    (void) weir_poll(d.of[2]);
    assert_true(d.of[2]->leads);
}

/* Of a fleet only the leader has a connection. */
static void test_the_transport_is_the_leaders(void **state)
{
    (void) state;
    (void) close_all(NULL);
    const char *url = "redis://127.0.0.1:1";
    d.of[0] = open_one(url);
    d.of[1] = open_one(url);
    assert_true(d.of[0]->has_fleet && d.of[1]->has_fleet);
    assert_non_null(d.of[0]->transport);
    assert_null(d.of[1]->transport);
    (void) weir_poll(d.of[0]);
    let_pass(500 * MILLISECOND);
    (void) weir_poll(d.of[1]);
    assert_non_null(d.of[1]->transport);
    assert_ptr_equal(d.of[1]->fleet->transport, d.of[1]->transport);
    (void) weir_poll(d.of[0]);
    assert_null(d.of[0]->transport);
    assert_int_equal(leader(), d.of[1]->limiter.joined_as);
    let_pass(SECOND);
    (void) weir_poll(d.of[0]);
    assert_non_null(d.of[0]->transport);
}

static struct {
    size_t count;
    char last[400];
} lines;

static void keep_line(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    if (level == WEIR_LOG_INFO && strstr(message, "den") != NULL) {
        lines.count++;
        (void) snprintf(lines.last, sizeof(lines.last), "%s", message);
    }
}

/* Polls one of them, in steps of 100 ms. */
static void poll_for(weir *w, uint64_t seconds)
{
    for (uint64_t i = 0; i < 10 * seconds; i++) {
        let_pass(100 * MILLISECOND);
        (void) weir_poll(w);
    }
}

static void deny(weir *w, weir_thread *t, uint64_t times)
{
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "greedy", 6);
    while (times > 0) {
        times -= !weir_check(t, &key, 1, NULL);
    }
}

/* A process that takes the lead logs the denials from then on: the one before it has logged the others. */
static void test_a_new_leader_logs_what_is_denied_from_then_on(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};
    weir_options options = some_options();
    options.max_processes = 4;
    options.log = keep_line;
    weir *w = open_named(name, &options);
    (void) set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    memset(&lines, 0, sizeof(lines));
    deny(d.of[0], d.t[0], 7);
    poll_for(d.of[0], 1); /* it puts the key into the list of the most denied */
    let_pass(500 * MILLISECOND);
    (void) weir_poll(w);
    assert_int_equal(leader(), w->limiter.joined_as);
    poll_for(w, 5);
    assert_int_equal(lines.count, 0);
    deny(d.of[0], d.t[0], 4);
    deny(d.of[1], d.t[1], 2);
    poll_for(w, 3);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.last, "policy p begins to deny: 6 checks in 2 s, most by p:greedy (6 units)");
    poll_for(w, 20);
    assert_int_equal(lines.count, 2);
    assert_string_equal(lines.last, "policy p denies no more: 6 checks in 1 s");
    weir_close(w);
}

/* What one has set, all have */

struct listing {
    char text[1 << 16];
    size_t used;
};

static void add(struct listing *listing, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct listing *listing, const char *format, ...)
{
    const size_t left = sizeof(listing->text) - listing->used;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(listing->text + listing->used, left, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && (size_t) n < left);
    listing->used += (size_t) n;
}

static void add_policy(void *arg, const weir_policy_info *info)
{
    struct listing *listing = arg;
    const weir_policy *p = info->policy;
    add(listing, "%u %s %d %d %d %d %d %u %u:", info->id, p->name, (int) p->mode, (int) p->scope, p->hash_keys,
        (int) p->on_outage, (int) p->on_long_outage, p->outage_grace_ms, p->long_outage_ms);
    for (size_t i = 0; i < p->limit_count; i++) {
        const weir_limit *limit = &p->limits[i];
        add(listing, " %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRIu64 " %s;", (int) limit->algorithm, limit->limit,
            limit->period_ns, limit->burst, (int) limit->calendar, limit->delay, limit->name);
    }
    add(listing, "\n");
}

static void add_override(void *arg, const weir_override *entry)
{
    add(arg, "%s=%s %d %d\n", entry->name, entry->value, entry->from_fleet, entry->in_force);
}

static const struct listing *list_of(weir *w, struct listing *listing)
{
    *listing = (struct listing){.used = 0};
    (void) weir_list_policies(w, add_policy, listing);
    (void) weir_list_overrides(w, add_override, listing);
    return listing;
}

static void expect_all_alike(void)
{
    static struct listing alone;
    static struct listing one;
    (void) list_of(d.alone, &alone);
    for (size_t i = 0; i < WEIRS; i++) {
        assert_string_equal(list_of(d.of[i], &one)->text, alone.text);
        weir_stats stats;
        weir_stats expected;
        weir_get_stats(d.of[i], &stats);
        weir_get_stats(d.alone, &expected);
        assert_int_equal(stats.override_count, expected.override_count);
    }
}

#define LONGEST_NAME "a_name_of_sixty-three_bytes/that_is_as_long_as_a_name_may_be___"

static const char *const names[] = {"a", "b", "b/pro", "c", LONGEST_NAME};

/* Random policies; some limits have a name of their own. Returns how many. */
static size_t draw_policies(uint64_t *rng, weir_policy policies[COUNT_OF(names)],
                            weir_limit limits[COUNT_OF(names)][WEIR_MAX_LIMITS])
{
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (draw_once_in(rng, 3)) {
            continue;
        }
        const size_t limit_count = 1 + random_below(rng, WEIR_MAX_LIMITS);
        const uint64_t first = random_below(rng, 5); /* each limit of a policy has another algorithm */
        for (size_t j = 0; j < limit_count; j++) {
            limits[count][j] = draw_weir_limit(rng, (weir_algorithm) ((first + j) % 5), 0);
            static const char *const of_limits[] = {NULL, "a limit with a name", LONGEST_NAME};
            limits[count][j].name = draw_one_of(rng, of_limits);
        }
        policies[count] = (weir_policy){.name = names[i],
                                        .limits = limits[count],
                                        .limit_count = limit_count,
                                        .mode = draw_once_in(rng, 4) ? WEIR_SHADOW : WEIR_ENFORCE,
                                        .scope = draw_once_in(rng, 2) ? WEIR_SCOPE_FLEET : WEIR_SCOPE_PROCESS,
                                        .hash_keys = draw_once_in(rng, 3),
                                        .on_outage = (weir_outage) random_below(rng, 4),
                                        .on_long_outage = (weir_outage) random_below(rng, 4),
                                        .outage_grace_ms = (uint32_t) random_below(rng, 10000),
                                        .long_outage_ms = (uint32_t) random_below(rng, 10000)};
        count++;
    }
    return count;
}

static void set_policies(weir *w, uint64_t *rng)
{
    weir_policy policies[COUNT_OF(names)];
    weir_limit limits[COUNT_OF(names)][WEIR_MAX_LIMITS];
    const size_t count = draw_policies(rng, policies, limits);
    assert_int_equal(weir_set_policies(w, policies, count, NULL), 0);
    assert_int_equal(weir_set_policies(d.alone, policies, count, NULL), 0);
}

static char path[64];

static void write_file(uint64_t number)
{
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    (void) fprintf(out,
                   "policies:\n  - name: b\n    limits: [{algorithm: token_bucket, limit: %" PRIu64
                   ", period: 1s}]\noverrides:\n  \"b:one\": \"%" PRIu64 "\"\n  \"b:two\": deny\n",
                   number + 10, number + 3);
    assert_int_equal(fclose(out), 0);
}

/* One change, made to a weir of those that share, and to the one alone. */
static void change(uint64_t *rng, weir *w)
{
    static const char *const entries[] = {"a:k", "b:k", "b/pro:k", "b:one", "nobody:k", "c:a%20key"};
    static const char *const values[] = {"allow", "deny", "7", "7/5", "7 7", NULL, NULL};
    const uint64_t kind = random_below(rng, 6);
    if (kind == 0) {
        set_policies(w, rng);
    } else if (kind == 1) {
        write_file(random_below(rng, 100));
        weir_error error;
        if (weir_load_policies(w, path, &error) != 0) {
            fail_msg("%s", error.message);
        }
        assert_int_equal(weir_load_policies(d.alone, path, NULL), 0);
    } else {
        const char *entry = draw_one_of(rng, entries);
        const char *value = draw_one_of(rng, values);
        weir_error errors[2];
        const int result = weir_set_override(w, entry, value, &errors[0]);
        assert_int_equal(weir_set_override(d.alone, entry, value, &errors[1]), result);
        assert_string_equal(errors[0].message, errors[1].message);
    }
}

/* A check of a key by each, at once: all four passes are those of one weir alone that gets all of them. */
static void check_all_alike(uint64_t *rng)
{
    static const char *const keys[] = {"k", "one", "two", "a key", "other"};
    const char *policy = draw_one_of(rng, names);
    const char *key = draw_one_of(rng, keys);
    for (size_t i = 0; i < WEIRS; i++) {
        const weir_key own = weir_make_key(d.of[i], weir_find_policy(d.of[i], policy), key, strlen(key));
        const weir_key alone = weir_make_key(d.alone, weir_find_policy(d.alone, policy), key, strlen(key));
        const uint64_t cost = random_below(rng, 20);
        weir_verdict v;
        weir_verdict expected;
        assert_int_equal(own.policy, alone.policy);
        assert_int_equal(weir_check(d.t[i], &own, cost, &v), weir_check(d.u, &alone, cost, &expected));
        assert_int_equal(v.would_deny, expected.would_deny);
        assert_int_equal(v.limit, expected.limit);
    }
}

static void test_what_one_has_set_all_have(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    (void) snprintf(path, sizeof(path), "/tmp/weir_shared_%d.yaml", (int) getpid());
    for (unsigned round = 0; round < test_draws(200); round++) {
        change(&rng, d.of[random_below(&rng, WEIRS)]);
        if (draw_once_in(&rng, 2)) {
            expect_all_alike();
        }
        for (int i = 0; i < 5; i++) {
            check_all_alike(&rng);
        }
        if (draw_once_in(&rng, 3)) {
            let_pass(draw_magnitude(&rng, MILLISECOND, 60 * SECOND));
            for (size_t i = 0; i < WEIRS; i++) {
                (void) weir_poll(d.of[i]);
            }
            (void) weir_poll(d.alone);
        }
    }
    (void) unlink(path);
    expect_all_alike();
    /* One that comes later has them too, and one that comes when all have closed. */
    weir_close(d.of[1]);
    d.of[1] = open_one(NULL);
    expect_all_alike();
    for (size_t i = 0; i < WEIRS; i++) {
        weir_close(d.of[i]);
        d.of[i] = NULL;
    }
    for (size_t i = 0; i < WEIRS; i++) {
        d.of[i] = open_one(NULL);
    }
    expect_all_alike();
}

static const weir_limit ten_a_day = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

/* Whichever process asks, and also when one of them has left. */
static void test_the_statistics_of_a_policy_are_those_of_all_processes(void **state)
{
    (void) state;
    static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = HOUR};
    const weir_policy_id p = set_one_policy(d.of[0], &limit, 1, WEIR_SCOPE_PROCESS);
    for (size_t i = 0; i < WEIRS; i++) {
        const weir_key key = weir_make_key(d.of[i], p, "k", 1);
        for (int times = 0; times < 3; times++) {
            (void) weir_check(d.t[i], &key, 1, NULL);
        }
    }
    for (size_t i = 0; i < WEIRS; i++) {
        weir_policy_stats stats;
        assert_int_equal(weir_get_policy_stats(d.of[i], p, &stats, sizeof(stats)), 0);
        assert_int_equal(stats.allowed_count, 5);
        assert_int_equal(stats.denied_count, 3 * WEIRS - 5);
        assert_true(stats.limit_count == 1 && stats.limits[0].limit == 5 && stats.limits[0].period_ns == HOUR);
        if (i == 0) {
            weir_close(d.of[0]);
            d.of[0] = NULL;
        }
    }
}

static void test_an_opener_goes_on_from_those_that_have_closed(void **state)
{
    (void) state;
    (void) set_one_policy(d.of[0], &ten_a_day, 1, WEIR_SCOPE_PROCESS);
    const weir_key key = weir_make_key(d.of[0], weir_find_policy(d.of[0], "p"), "k", 1);
    for (size_t i = 0; i < WEIRS; i++) {
        assert_true(weir_check(d.t[i], &key, 2, NULL));
        weir_close(d.of[i]);
        d.of[i] = NULL;
    }
    let_pass(HOUR);
    d.of[0] = open_one(NULL);
    assert_int_equal(leader(), JOINED_NONE);
    assert_int_equal(load_relaxed(&d.of[0]->limiter.shared->line.now_ns), d.clock.wall_ns); /* time has gone on */
    weir_stats stats;
    weir_get_stats(d.of[0], &stats);
    assert_int_equal(stats.process_count, 1);
    assert_int_equal(stats.thread_count, 0);
    const weir_key same = weir_make_key(d.of[0], weir_find_policy(d.of[0], "p"), "k", 1);
    assert_int_equal(same.hash, key.hash);
    weir_thread *t = weir_attach(d.of[0]);
    weir_verdict v;
    assert_true(weir_check(t, &same, 3, &v));
    assert_true(v.remaining <= 1 && v.reset_after_ns == 23 * HOUR);
    assert_false(weir_check(t, &same, 2, &v));
    assert_int_equal(v.retry_after_ns, 23 * HOUR);
}

static void keep_warning(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    if (level == WEIR_LOG_WARNING) {
        lines.count++;
        (void) snprintf(lines.last, sizeof(lines.last), "%s", message);
    }
}

static void test_it_is_said_once_that_an_old_segment_was_given_up(void **state)
{
    (void) state;
    static const char mark[16] = "weir segment";
    static const char *const why[] = {[REPLACED_HALF] = "the segment was left half made by a process that died",
                                      [REPLACED_BROKEN] = "the segment could not be repaired"};
    char other[SEGMENT_NAME_SIZE];
    segment_name(other, "replaced");
    const int fd = shm_open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, mark, sizeof(mark)), sizeof(mark));
    assert_int_equal(close(fd), 0);
    weir_options options = some_options();
    options.log = keep_warning;
    weir *w = open_named(other, &options);
    for (enum named_replaced replaced = REPLACED_HALF; replaced <= REPLACED_BROKEN; replaced++) {
        char says[sizeof(lines.last)];
        assert_true(w->named.replaced == replaced || replaced == REPLACED_BROKEN);
        w->named.replaced = replaced;
        memset(&lines, 0, sizeof(lines));
        assert_true(weir_poll(w) >= 0);
        assert_true(weir_poll(w) >= 0);
        assert_int_equal(lines.count, 1);
        (void) snprintf(says, sizeof(says), "%s: %s, and a new segment was made: all limits begin anew", other,
                        why[replaced]);
        assert_string_equal(lines.last, says);
    }
    /* Without a log nobody is told, also not later. */
    w->named.replaced = REPLACED_HALF;
    w->options.log = NULL;
    assert_true(weir_poll(w) >= 0);
    assert_int_equal(w->named.replaced, REPLACED_NONE);
    weir_close(w);
    (void) weir_unlink(other);
}

/* After exec its places still have the process's id and its start, but nobody uses them. */
static void test_a_process_that_called_exec_counts_as_gone_wherever_it_was_entered(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.max_processes = 4;
    char other[SEGMENT_NAME_SIZE];
    segment_name(other, "exec");
    for (uint32_t places = 0; places <= 3; places++) {
        weir *w = open_named(other, &options);
        (void) set_one_policy(w, &ten_a_day, 1, WEIR_SCOPE_PROCESS);
        for (uint32_t i = 0; i < places; i++) {
            assert_int_equal(joined_enter(&w->limiter), i + 1);
        }
        weir_stats stats;
        weir_get_stats(w, &stats);
        assert_int_equal(stats.process_count, 1 + places);
        weir *second = places < 3 ? open_named(other, &options) : NULL; /* they count while a mapping is there */
        weir_get_stats(w, &stats);
        assert_int_equal(stats.process_count, places < 3 ? 2 + places : 4);
        weir_close(second);
        weir_close(w);
        w = open_named(other, &options);
        weir_get_stats(w, &stats);
        assert_int_equal(stats.process_count, 1);
        assert_int_equal(load_relaxed(&w->shared->leader), JOINED_NONE); /* it was entered alone */
        assert_int_equal(weir_find_policy(w, "p"), 1);
        weir_close(w);
        assert_int_equal(weir_unlink(other), 0);
    }
}

/* Policies and rates may come to 100 MiB, of which the system has only what is used. */
static void test_what_may_be_needed_later_takes_no_memory_before(void **state)
{
    (void) state;
    struct stat about;
    const int fd = shm_open(name, O_RDONLY, 0);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(close(fd), 0);
    assert_in_range(about.st_blocks * 512, 1, 16 << 20);
}

static void test_an_opener_with_other_options_is_told_of_which_segment(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.max_processes = 4;
    options.max_keys++;
    options.shared_name = name;
    weir *w = NULL;
    weir_error error;
    char says[sizeof(error.message)];
    assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    (void) snprintf(says, sizeof(says),
                    "\"%s\": options: max_keys is 2001, and the segment was made with 2000; give all processes the "
                    "same, or remove the segment with weir_unlink",
                    name);
    assert_string_equal(error.message, says);
    assert_int_equal(weir_open(&options, &w, NULL), -EINVAL);
    assert_null(w);
}

/* The copy of configured policies that each process makes has texts of its own, and no other fields. */
static void test_configured_policies_are_copied_whole(void **state)
{
    (void) state;
    static struct listing listed[3];
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(100); round++) {
        weir_policy policies[COUNT_OF(names)];
        weir_limit limits[COUNT_OF(names)][WEIR_MAX_LIMITS];
        const size_t count = draw_policies(&rng, policies, limits);
        struct configured_policies *copy = configured_policies_copy(policies, count);
        size_t size = 0;
        const void *bytes = configured_policies_bytes(copy, &size);
        void *moved = malloc(size);
        assert_non_null(moved);
        memcpy(moved, bytes, size);
        struct configured_policies *again = NULL;
        assert_int_equal(configured_policies_from_bytes(moved, size, &again), 0);
        memset(moved, 0xa5, size);
        free(moved);
        assert_int_equal(configured_policies_count(copy), count);
        assert_int_equal(configured_policies_count(again), count);
        for (size_t i = 0; i < count; i++) {
            const weir_policy *const all[] = {&policies[i], configured_policies_at(copy, i),
                                              configured_policies_at(again, i)};
            for (size_t j = 0; j < 3; j++) {
                listed[j] = (struct listing){.used = 0};
                add_policy(&listed[j], &(weir_policy_info){0, all[j]});
                assert_string_equal(listed[j].text, listed[0].text);
                assert_true(j == 0 || (all[j]->name != all[j - 1]->name && all[j]->limits != all[j - 1]->limits));
                for (size_t k = 0; j != 0 && k < all[j]->limit_count; k++) {
                    const char *limit_name = all[j]->limits[k].name;
                    assert_true(limit_name == NULL || limit_name != all[j - 1]->limits[k].name);
                }
            }
        }
        assert_null(configured_policies_at(copy, count));
        configured_policies_free(copy);
        assert_null(configured_policies_at(again, count));
        configured_policies_free(again);
    }
    size_t size = 1;
    assert_null(configured_policies_bytes(NULL, &size));
    assert_int_equal(size, 0);
    struct configured_policies *none;
    assert_int_equal(configured_policies_from_bytes(NULL, 0, &none), 0);
    assert_null(none);
    assert_int_equal(configured_policies_count(NULL), 0);
    assert_null(configured_policies_at(NULL, 0));
}

/* What all processes keep of the sources has room for 32 MiB: more is refused, and nothing is written past that. */
static void test_sources_that_are_too_long_to_share_are_refused(void **state)
{
    (void) state;
    weir *w = d.of[0];
    const size_t sizes[] = {33 << 20, (32 << 20) - 1, 1 << 20};
    char *field = malloc(sizes[0] + 1);
    assert_non_null(field);
    char value[] = "deny";
    struct override_text text = {.field = field, .value = value};
    const struct override_list own = w->overrides[OVERRIDES_OWN];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        memset(field, 'x', sizes[i]);
        field[sizes[i]] = '\0';
        w->overrides[OVERRIDES_OWN] = (struct override_list){&text, 1};
        const struct policy_set *set = process_policies(&w->limiter.process);
        const int result = shared_policies_prepare(w, set, NULL);
        w->overrides[OVERRIDES_OWN] = own;
        assert_int_equal(result, sizes[i] < 32 << 19 ? 0 : -ENOMEM);
    }
    free(field);
    assert_int_equal(weir_set_override(d.of[1], "p:k", "deny", NULL), -ENOENT); /* all go on */
    expect_all_alike();
}

/* Deaths, and children */

/* Holds the lock of policy changes, and ends so. */
static int die_with_the_lock(void *arg)
{
    weir *w = arg;
    return weir_join(w, NULL) == 0 && robust_mutex_lock(&w->limiter.process, &w->shared->policy_lock) == ROBUST_TAKEN
               ? 0
               : 1;
}

static void test_what_a_process_left_half_changed_is_put_in_force_anew(void **state)
{
    (void) state;
    (void) set_one_policy(d.of[1], &ten_a_day, 1, WEIR_SCOPE_PROCESS);
    expect_end(start_independent(die_with_the_lock, d.of[0]));
    const struct policy_set *before = process_policies(&d.of[0]->limiter.process);
    assert_int_equal(load_relaxed(&d.of[0]->shared->half_changed), 0);
    assert_int_equal(weir_find_policy(d.of[2], "p"), 1);
    assert_int_equal(load_relaxed(&d.of[0]->shared->half_changed), 1);
    (void) robust_mutex_lock(&d.of[0]->limiter.process,
                             &d.of[0]->shared->policy_lock); /* somebody changes policies: next time */
    let_pass(SECOND);
    (void) weir_poll(d.of[0]);
    assert_int_equal(load_relaxed(&d.of[0]->shared->half_changed), 1);
    robust_mutex_unlock(&d.of[0]->shared->policy_lock);
    let_pass(SECOND);
    (void) weir_poll(d.of[0]);
    assert_int_equal(load_relaxed(&d.of[0]->shared->half_changed), 0);
    assert_true(process_policies(&d.of[0]->limiter.process) != before);
    assert_int_equal(weir_find_policy(d.of[2], "p"), 1);
    weir_stats stats;
    const uint32_t cursor = d.of[0]->repair_cursor;
    let_pass(10 * MILLISECOND - 1);
    (void) weir_poll(d.of[0]);
    assert_int_equal(d.of[0]->repair_cursor, cursor);
    for (int i = 0; i < 4; i++) { /* one place is looked at each time */
        let_pass(10 * MILLISECOND);
        (void) weir_poll(d.of[0]);
    }
    weir_get_stats(d.of[0], &stats);
    assert_int_equal(stats.process_count, WEIRS);
}

static int expect_refused(weir *w, int code, const char *says)
{
    weir_error error = {.code = 0};
    const int result = weir_join(w, &error);
    return result == code && error.code == code && strcmp(error.message, says) == 0 ? 0 : 1;
}

/* A child that is refused may only close. */
static int join_elsewhere(void *arg)
{
    weir *w = arg;
    const char *says = "this process is in another PID namespace than the opener, so they cannot tell each other's "
                       "death; fork it without CLONE_NEWPID, or open a weir of its own";
    const uint64_t own = w->limiter.pid_namespace;
    w->limiter.pid_namespace = own + 1;
    if (own != 0 && expect_refused(w, -EXDEV, says) != 0) {
        return 1;
    }
    w->limiter.pid_namespace = 0; /* not known */
    const int result = weir_join(w, NULL);
    weir_close(w);
    return result == 0 ? 0 : 2;
}

static int join_and_look(void *arg)
{
    weir *w = arg;
    weir_error error = {.code = 1};
    const int parents = w->poll_set.epoll_fd;
    const size_t descriptors = count_descriptors();
    const uint64_t now_ns = load_relaxed(&w->limiter.shared->line.now_ns);
    const int result = weir_join(w, &error);
    if (count_descriptors() != descriptors - 1 || load_relaxed(&w->limiter.shared->line.now_ns) != now_ns) {
        return 5; /* it has given up the parent's one, and keeps no lock */
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    if (parents < 0 || w->poll_set.epoll_fd >= 0 || fcntl(parents, F_GETFD) >= 0) {
        return 4;
    }
    if (result != 0 || error.code != 0 || stats.process_count != 4 || w->leads || w->has_thread || w->wake_fd != -1) {
        return 1;
    }
    if (expect_refused(w, -EINVAL,
                       "this process has joined already, or has opened the weir; join once in each forked child") !=
        0) {
        return 2;
    }
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    const bool passes = t != NULL && weir_check(t, &key, 4, NULL);
    weir_close(w);
    return passes ? 0 : 3;
}

static int be_one_too_many(void *arg)
{
    return expect_refused(arg, -ENOSPC, "4 processes are joined, as many as may be; raise max_processes");
}

static void test_children_join_or_are_told_why_not(void **state)
{
    (void) state;
    (void) set_one_policy(d.of[0], &ten_a_day, 1, WEIR_SCOPE_PROCESS);
    assert_int_equal(
        expect_refused(d.alone, -EINVAL, "the weir is not shared by processes; open it with options.shared"), 0);
    assert_int_equal(
        expect_refused(d.of[0], -EINVAL,
                       "this process has joined already, or has opened the weir; join once in each forked child"),
        0);
    const int fd = weir_poll_fd(d.of[1]);
    assert_true(weir_poll(d.of[0]) >= 0 && weir_poll(d.of[1]) >= 0);
    assert_false(d.of[1]->leads);
    assert_int_equal(d.of[1]->poll_set.watched_count, 0); /* it has no connection to wait for */
    expect_end(start_independent(join_elsewhere, d.of[0]));
    expect_end(start_independent(join_and_look, d.of[1]));
    weir *fourth = open_one(NULL);
    expect_end(start_independent(be_one_too_many, d.of[0]));
    weir_close(fourth);
    weir_stats stats;
    weir_get_stats(d.of[0], &stats);
    assert_int_equal(stats.process_count, WEIRS);
    assert_int_equal(weir_poll_fd(d.of[1]), fd);
    const weir_key key = weir_make_key(d.of[0], weir_find_policy(d.of[0], "p"), "k", 1);
    assert_true(weir_check(d.t[0], &key, 6, NULL));
    assert_false(weir_check(d.t[0], &key, 1, NULL));
}

int main(void)
{
    segment_name(name, "shared");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_first_leads_and_the_others_look_now_and_then, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_leader_that_does_not_work_is_replaced_after_half_a_second, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(test_a_leader_that_leaves_is_replaced_at_the_next_look, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_leader_without_a_place_is_replaced, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_the_transport_is_the_leaders, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_new_leader_logs_what_is_denied_from_then_on, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_what_one_has_set_all_have, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_the_statistics_of_a_policy_are_those_of_all_processes, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(test_an_opener_goes_on_from_those_that_have_closed, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_it_is_said_once_that_an_old_segment_was_given_up, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_what_may_be_needed_later_takes_no_memory_before, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_process_that_called_exec_counts_as_gone_wherever_it_was_entered,
                                        open_all, close_all),
        cmocka_unit_test_setup_teardown(test_an_opener_with_other_options_is_told_of_which_segment, open_all,
                                        close_all),
        cmocka_unit_test(test_configured_policies_are_copied_whole),
        cmocka_unit_test_setup_teardown(test_sources_that_are_too_long_to_share_are_refused, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_what_a_process_left_half_changed_is_put_in_force_anew, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(test_children_join_or_are_told_why_not, open_all, close_all),
    };
    const int failed = cmocka_run_group_tests_name("unit/limiter/shared", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
