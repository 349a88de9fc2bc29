/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node with a Redis decides as one without, check by check: the same calls to two weirs under one clock, one of
 * them alone in a fleet. Over everything a user can set, with a Redis that is slow, gone, empty or behind.
 *
 * Compared of every verdict: allowed, limit, limit_index, remaining, retry_after_ns; of a reservation its wait. Not
 * compared: basis and fleet_age_ns, which tell of the fleet; reset_after_ns, which leaves out what of a grant is not
 * settled yet, and a fleet settles at other moments.
 *
 * What is inherent is taken out, and no more:
 *   - time. Redis's clock is read to half a round trip, and slewed to. The weir without a fleet follows the other's;
 *   - quotas by calendar. A key that the fleet has not told of passes a 64th (docs/policies.md): keys of such policies
 *     are used once, and the fleet is given the time to answer, before anything is compared;
 *   - units of the same microsecond as a reset are reset: none are used in it;
 *   - a Redis that hangs for years (HUNG_MOST_NS).
 * Known to differ: a reset that was not answered in time. Its answer may come yet, and units as many as it gave back
 * are given back once more. There a case ends.
 *
 * Case `n` of a run is drawn from the seed and n; every step from the case and its number alone, so that steps can be
 * left out: of a case that fails as many as can be are, and the rest is told.
 * WEIR_PROPERTY_CASES: how many cases; WEIR_PROPERTY_CASE: only this one.
 *
 * Guards: src/check/direct_charge.c, src/check/renew_grant.c, src/process/allowance.c, src/fleet/keys/merge.c,
 * src/fleet/round.c
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "check/check.h"
#include "check/reset.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "policy/validate.h"
#include "process/insert.h"
#include "process/sync_state.h"
#include "sim.h"
#include "support/support.h"
#include "thread/limiter.h"
#include "thread/rcu.h"
#include "transport/loopback/loopback.h"

#define CASES    (SLOWED ? 500 : 1500)
#define STEPS    60
#define POLICIES 2
#define KEYS     2
#define START_NS (UINT64_C(1760000000) * SECOND)

/* Requests of one step, at most. */
#define REQUESTS 40

/* A case is over by then: a bucket's time ends nine years after its rule began. */
#define MOST_NS (UINT64_C(5) * 365 * 24 * HOUR)

/*
 * A Redis that hung works off its queue, and fleet time goes by the clocks that the queue tells. After more than two
 * years (FOLLOW_MOST_US of heartbeat.lua) fleet time does not follow Redis's clock again.
 */
#define HUNG_MOST_NS (UINT64_C(700) * 24 * HOUR)

/* Moments at which both are polled while a step lets time pass. */
#define POLLS 6

/* The step in which it is seen, and what. */
struct difference {
    bool found;
    int step;
    char what[400];
};

struct play {
    bool counts; /* prints what it does */
    struct fake_clock clock;
    struct loopback_fleet *fleet;
    struct loopback_snapshot *snapshot;
    struct transport *transport;
    struct loopback_link link;
    uint32_t interval_ms, timeout_ms;
    weir_limit limits[POLICIES][WEIR_MAX_LIMITS];
    weir_policy policies[POLICIES];
    double demand; /* over the first limit's rate */
    bool faults;
    bool hung;        /* Redis hangs */
    uint64_t hung_ns; /* time that has passed since it began to hang */
    weir *shared, *alone;
    weir_thread *shared_thread, *alone_thread;
    weir_key shared_keys[POLICIES][KEYS], alone_keys[POLICIES][KEYS];
    struct difference difference;
    bool over; /* from here on they may differ: see the head */
    int step;
};

static double fraction(uint64_t *rng)
{
    return (double) (random_next(rng) >> 11) / 9007199254740992.0; /* 2^53 */
}

/* From least to most, each magnitude as likely. */
static double spread(uint64_t *rng, double least, double most)
{
    return least * pow(most / least, fraction(rng));
}

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

static uint64_t at_once(const weir_limit *limit)
{
    return is_bucket(limit) && limit->burst != 0 ? limit->burst : limit->limit;
}

static double period_s(const weir_limit *limit)
{
    return limit->calendar == WEIR_CALENDAR_NONE  ? (double) limit->period_ns / 1e9
           : limit->calendar == WEIR_CALENDAR_DAY ? 86400.0
                                                  : 30.0 * 86400;
}

static weir_limit one_limit(uint64_t *rng, uint64_t period_ns)
{
    weir_limit limit = {.algorithm = (weir_algorithm) random_below(rng, 5), .period_ns = period_ns};
    const double least = 1.0 / 3600;
    const double rate = spread(rng, least, limit.algorithm == WEIR_SLIDING_LOG ? 1e4 : 1e8);
    const double units = rate * (double) period_ns / 1e9;
    limit.limit = units < 1 ? 1 : units > 4e12 ? (uint64_t) 4e12 : (uint64_t) units;
    if (limit.algorithm == WEIR_SLIDING_LOG && limit.limit > 3000) {
        limit.limit = 1 + random_below(rng, 3000);
    }
    if (is_bucket(&limit) && random_below(rng, 3) != 0) {
        limit.burst = (uint64_t) spread(rng, 1, 10 * (double) limit.limit);
        limit.burst = limit.burst > WEIR_MAX_UNITS ? WEIR_MAX_UNITS : limit.burst;
    }
    if (limit.algorithm == WEIR_LEAKY_BUCKET && random_below(rng, 2) == 0) {
        limit.delay = random_below(rng, at_once(&limit) + 1);
    }
    if (limit.algorithm == WEIR_FIXED_WINDOW && random_below(rng, 8) == 0) {
        limit.calendar = random_below(rng, 2) == 0 ? WEIR_CALENDAR_DAY : WEIR_CALENDAR_MONTH;
        limit.period_ns = 0;
    }
    return limit;
}

static void draw_policy(struct play *p, uint64_t *rng, size_t i)
{
    static const uint64_t periods[] = {
        MILLISECOND, 7 * MILLISECOND, 100 * MILLISECOND, SECOND, UINT64_C(1234567891), 10 * SECOND, 60 * SECOND,
        HOUR,        24 * HOUR,       72 * HOUR};
    static const char *const names[POLICIES] = {"p", "q"};
    const size_t count = sizeof(periods) / sizeof(periods[0]);
    weir_policy *policy = &p->policies[i];
    *policy = (weir_policy){.name = names[i], .limits = p->limits[i]};
    policy->limit_count = random_below(rng, 3) != 0 ? 1 : 2 + random_below(rng, 3);
    policy->on_outage = random_below(rng, 3) == 0 ? WEIR_OUTAGE_LOCAL : WEIR_OUTAGE_SHARE;
    policy->on_long_outage = random_below(rng, 3) == 0 ? WEIR_OUTAGE_LOCAL : WEIR_OUTAGE_SHARE;
    policy->outage_grace_ms = random_below(rng, 2) == 0 ? (uint32_t) spread(rng, 1, 20000) : 0;
    policy->long_outage_ms = random_below(rng, 2) == 0 ? (uint32_t) spread(rng, 1, 20000) : 0;
    const size_t first = random_below(rng, count);
    for (size_t l = 0; l < policy->limit_count; l++) {
        p->limits[i][l] = one_limit(rng, periods[(first + 3 * l) % count]);
    }
}

static void draw_policies(struct play *p, uint64_t *rng)
{
    for (size_t i = 0; i < POLICIES; i++) {
        do {
            draw_policy(p, rng, i);
        } while (validate_policies(&p->policies[i], 1, NULL, NULL) != 0); /* two limits may be alike */
    }
}

static bool has_calendar(const struct play *p)
{
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t l = 0; l < p->policies[i].limit_count; l++) {
            if (p->limits[i][l].calendar != WEIR_CALENDAR_NONE) {
                return true;
            }
        }
    }
    return false;
}

static uint64_t wall_now(void *arg)
{
    return ((const struct fake_clock *) arg)->wall_ns;
}

static uint64_t monotonic_now(void *arg)
{
    return ((const struct fake_clock *) arg)->monotonic_ns;
}

/* What the one knows of Redis's clock the other follows. */
static void share_time(struct play *p)
{
    struct limiter *limiter = &p->alone->limiter;
    const struct tick_line *line = &p->shared->limiter.shared->line;
    const uint64_t offset_ns = load_relaxed(&line->offset_ns);
    if (load_relaxed(&line->now_ns) != load_relaxed(&limiter->shared->line.now_ns)) {
        tick_set_offset(limiter, p->clock.monotonic_ns, offset_ns, false);
    }
    store_relaxed(&limiter->shared->line.offset_ns, offset_ns);
}

/* Three times: a round that is begun may be answered within the same moment. */
static void poll_both(struct play *p)
{
    for (int i = 0; i < 3; i++) {
        assert_true(weir_poll(p->shared) >= 0);
        assert_true(weir_poll(p->alone) >= 0);
        share_time(p);
    }
}

static void pass(struct play *p, uint64_t ns, uint64_t polls)
{
    ns = min_u64(ns, START_NS + MOST_NS - min_u64(p->clock.wall_ns, START_NS + MOST_NS));
    ns = p->hung ? min_u64(ns, HUNG_MOST_NS - p->hung_ns) : ns;
    p->hung_ns = p->hung ? p->hung_ns + ns : 0;
    for (uint64_t i = 0; i < polls; i++) {
        fake_clock_advance(&p->clock, ns / polls);
        poll_both(p);
    }
}

static weir *open_one(struct play *p, struct transport *transport, weir_thread **thread, weir_key keys[POLICIES][KEYS])
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &p->clock.clock;
    options.sync_interval_ms = p->interval_ms;
    options.redis_timeout_ms = p->timeout_ms;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 200000;
    weir *w = NULL;
    weir_error error;
    if (weir_open_on(&options, transport, &w, &error) != 0 ||
        weir_set_policies(w, p->policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
    *thread = weir_attach(w);
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t k = 0; k < KEYS; k++) {
            keys[i][k] = weir_make_key(w, weir_find_policy(w, p->policies[i].name), &"abc"[k], 1);
        }
    }
    return w;
}

static bool told_of(const struct play *p, const weir_key *key)
{
    const struct process *process = &p->shared->limiter.process;
    bool counts = true;
    rcu_enter(p->shared_thread);
    const struct policy *policy = check_policy(process, process_policies(process), key);
    for (size_t l = 0; l < policy->limit_count; l++) {
        const uint32_t at = table_find(&process->table, cell_hash(policy, key, l));
        const struct sync_full *sync = at != TABLE_NONE ? sync_of(&process->syncs, at) : NULL;
        counts = counts && (policy->limits[l].rule.calendar == WEIR_CALENDAR_NONE ||
                            (sync != NULL && load_relaxed(&sync->allowance.since_ns) != 0));
    }
    rcu_leave(p->shared_thread);
    return counts;
}

static bool all_told(const struct play *p)
{
    bool counts = true;
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t k = 0; k < KEYS; k++) {
            counts = counts && told_of(p, &p->shared_keys[i][k]);
        }
    }
    return counts;
}

static void use_all(struct play *p)
{
    for (size_t i = 0; i < POLICIES; i++) {
        for (size_t k = 0; k < KEYS; k++) {
            if (weir_check(p->shared_thread, &p->shared_keys[i][k], 1, NULL)) {
                weir_charge(p->alone_thread, &p->alone_keys[i][k], 1);
            }
        }
    }
}

/* Both have used every key, and the fleet has told of it. */
static void use_keys(struct play *p)
{
    for (int i = 0; i < 200 && !all_told(p); i++) {
        use_all(p);
        pass(p, p->interval_ms * MILLISECOND / 2, 1);
        pass(p, 2 * p->link.delay_max_ns, 2);
    }
    p->over = !all_told(p); /* a Redis that never answers in time */
}

/*
 * The first answer comes after delays that are alike, at a moment at which it is looked for: a first reading of the
 * clock that is off by more than 20 ms moves the keys' states with the time, and only those of the one would be moved.
 */
static void play_begin(struct play *p, uint64_t *rng)
{
    draw_policies(p, rng);
    fake_clock_init(&p->clock, START_NS + random_below(rng, 1000 * SECOND));
    p->fleet = loopback_fleet_new(wall_now, &p->clock);
    assert_non_null(p->fleet);
    loopback_fleet_set_network_clock(p->fleet, monotonic_now, &p->clock);
    loopback_fleet_seed(p->fleet, random_next(rng));
    p->interval_ms = (uint32_t) spread(rng, 10, 10000);
    const uint64_t delay_ns =
        random_below(rng, 3) == 0 ? 0 : (uint64_t) (spread(rng, 0.001, 1.5) * p->interval_ms * (double) MILLISECOND);
    p->link = (struct loopback_link){.delay_min_ns = delay_ns, .delay_max_ns = delay_ns};
    loopback_fleet_set_link(p->fleet, &p->link);
    p->timeout_ms = 10 + (uint32_t) (3 * delay_ns / MILLISECOND) + (uint32_t) spread(rng, 1, 5000);
    p->timeout_ms = p->timeout_ms > 60000 ? 60000 : p->timeout_ms;
    p->demand = spread(rng, 0.05, 10);
    p->faults = random_below(rng, 2) == 0;
    const struct transport_config config = {.timeout_ms = p->timeout_ms};
    assert_int_equal(loopback_transport_open(p->fleet, &config, &p->transport, NULL), 0);
    p->shared = open_one(p, p->transport, &p->shared_thread, p->shared_keys);
    p->alone = open_one(p, NULL, &p->alone_thread, p->alone_keys);
    const bool calendar = has_calendar(p);
    /* Down from the start: then without delays, so that the first reading is right whenever it comes. */
    if (p->faults && delay_ns == 0 && !calendar && random_below(rng, 4) == 0) {
        loopback_fleet_set_down(p->fleet, true);
        return;
    }
    poll_both(p);
    pass(p, 2 * delay_ns, 2);
    assert_true(p->shared->fleet->clock.known);
    if (calendar) {
        use_keys(p);
    }
    p->link.delay_min_ns = random_below(rng, 2) == 0 ? delay_ns : random_below(rng, delay_ns + 1);
    p->link.backs_off = random_below(rng, 2) == 0;
    if (p->faults && random_below(rng, 3) == 0) {
        p->link.requests_lost_ppm = (uint32_t) random_below(rng, 300000);
        p->link.answers_lost_ppm = (uint32_t) random_below(rng, 300000);
        p->link.duplicates_ppm = (uint32_t) random_below(rng, 300000);
        p->link.duplicate_delay_ns = random_below(rng, 3 * p->interval_ms + 1) * MILLISECOND;
        p->link.unsaid_ppm = (uint32_t) random_below(rng, 300000);
    }
    loopback_transport_set_link(p->transport, &p->link);
}

static void play_end(struct play *p)
{
    loopback_transport_kill(p->transport); /* closing waits for nothing */
    weir_close(p->shared);
    weir_close(p->alone);
    loopback_snapshot_free(p->snapshot);
    loopback_fleet_free(p->fleet);
}

static void differ(struct play *p, const char *call, size_t policy, size_t key, uint64_t cost, const weir_verdict *s,
                   const weir_verdict *a)
{
    p->difference.found = true;
    p->difference.step = p->step;
    (void) snprintf(p->difference.what, sizeof(p->difference.what),
                    "%s of key %zu of policy %zu, cost %" PRIu64 ", at %.6f s: with a fleet %s, limit %u (%" PRIu64
                    "), %" PRIu64 " left, retry %" PRIu64 ", reset %" PRIu64
                    ", basis %d; without %s, limit %u (%" PRIu64 "), %" PRIu64 " left, retry %" PRIu64
                    ", reset %" PRIu64,
                    call, key, policy, cost, (double) (p->clock.wall_ns - START_NS) / 1e9,
                    s->allowed ? "allowed" : "denied", s->limit_index, s->limit, s->remaining, s->retry_after_ns,
                    s->reset_after_ns, (int) s->basis, a->allowed ? "allowed" : "denied", a->limit_index, a->limit,
                    a->remaining, a->retry_after_ns, a->reset_after_ns);
}

static bool same(const weir_verdict *s, const weir_verdict *a)
{
    return s->allowed == a->allowed && s->limit_index == a->limit_index && s->limit == a->limit &&
           s->remaining == a->remaining && s->retry_after_ns == a->retry_after_ns;
}

/* False: they have decided differently. */
static bool check_both(struct play *p, size_t policy, size_t key, uint64_t cost, bool peek)
{
    weir_verdict s;
    weir_verdict a;
    const weir_key *keys[] = {&p->shared_keys[policy][key], &p->alone_keys[policy][key]};
    (void) (peek ? weir_peek : weir_check)(p->shared_thread, keys[0], cost, &s);
    (void) (peek ? weir_peek : weir_check)(p->alone_thread, keys[1], cost, &a);
    if (!same(&s, &a)) {
        differ(p, peek ? "peek" : "check", policy, key, cost, &s, &a);
        return false;
    }
    return true;
}

static void reserve_both(struct play *p, uint64_t *rng, size_t policy, size_t key, uint64_t cost)
{
    const uint64_t patience[] = {0, MILLISECOND, 100 * MILLISECOND, 10 * SECOND, UINT64_MAX};
    const uint64_t most_ns = patience[random_below(rng, 5)];
    weir_verdict s = {.allowed = false};
    weir_verdict a = {.allowed = false};
    s.allowed = weir_reserve(p->shared_thread, &p->shared_keys[policy][key], cost, most_ns, &s.retry_after_ns);
    a.allowed = weir_reserve(p->alone_thread, &p->alone_keys[policy][key], cost, most_ns, &a.retry_after_ns);
    if (!same(&s, &a)) {
        differ(p, "reservation", policy, key, cost, &s, &a);
    }
}

static void check_all_both(struct play *p, uint64_t *rng, uint64_t cost)
{
    weir_key shared[3];
    weir_key alone[3];
    uint64_t costs[3];
    const size_t count = 1 + random_below(rng, 3);
    for (size_t i = 0; i < count; i++) {
        const size_t policy = random_below(rng, POLICIES);
        const size_t key = random_below(rng, KEYS);
        shared[i] = p->shared_keys[policy][key];
        alone[i] = p->alone_keys[policy][key];
        costs[i] = 1 + random_below(rng, cost);
    }
    weir_verdict s;
    weir_verdict a;
    (void) weir_check_all(p->shared_thread, shared, costs, count, &s);
    (void) weir_check_all(p->alone_thread, alone, costs, count, &a);
    if (!same(&s, &a)) {
        differ(p, "check of all", s.key_index, count, costs[0], &s, &a);
    }
}

/* Whether the fleet is told of a reset later. */
static bool outage_now(const struct play *p, size_t policy, size_t key)
{
    rcu_enter(p->shared_thread);
    const struct process *process = &p->shared->limiter.process;
    const struct policy *its = check_policy(process, process_policies(process), &p->shared_keys[policy][key]);
    const bool fleet = load_relaxed(&its->outage_mode) == OUTAGE_MODE_NONE;
    rcu_leave(p->shared_thread);
    return !fleet || load_relaxed(&p->shared->fleet->stats.link) != WEIR_LINK_UP;
}

/* weir_reset, with the time it waits for an answer passing for both. */
static void reset_both(struct play *p, size_t policy, size_t key)
{
    struct fleet *fleet = p->shared->fleet;
    const bool reachable = load_relaxed(&fleet->stats.link) == WEIR_LINK_UP;
    for (size_t i = 0; i < p->policies[policy].limit_count && outage_now(p, policy, key); i++) {
        p->over = p->over || is_bucket(&p->limits[policy][i]);
    }
    assert_int_equal(reset_key(&p->shared->limiter, &p->shared_keys[policy][key], reachable), 0);
    if (reachable) {
        const uint64_t request = fleet_wait_begin(fleet);
        for (int i = 0; i < 40 && load_acquire(&fleet->sync_calls.served) < request; i++) {
            pass(p, p->timeout_ms * MILLISECOND / 40, 1);
        }
        if (load_acquire(&fleet->sync_calls.served) < request) {
            assert_int_equal(reset_key(&p->shared->limiter, &p->shared_keys[policy][key], false), 0);
            p->over = true;
        }
        fleet_wait_end(fleet);
    }
    assert_int_equal(weir_reset(p->alone, &p->alone_keys[policy][key]), 0);
    pass(p, MILLISECOND, 1); /* Redis has times in us, up: what comes in that of a reset is reset */
}

/* Traffic of one key for a while, in requests of one size. */
static void serve(struct play *p, uint64_t *rng, size_t policy, size_t key)
{
    const weir_limit *limit = &p->limits[policy][0];
    const double rate = (double) limit->limit / period_s(limit);
    /* So that something of the limit is used, and not only all of it at once. */
    const double least = spread(rng, 0.1, 20) / rate;
    double span_s = random_below(rng, 2) == 0 ? least : spread(rng, 0.001, 3 * period_s(limit) + 0.001);
    span_s = span_s < 0.0005 ? 0.0005 : span_s;
    const double units = p->demand * rate * span_s;
    const uint64_t requests = units < REQUESTS ? (uint64_t) (units + fraction(rng)) : REQUESTS;
    const uint64_t cost = units < REQUESTS ? 1 : (uint64_t) (units / REQUESTS);
    const uint64_t parts = 1 + random_below(rng, POLLS);
    if (p->counts) {
        print_message("#   %3d: %" PRIu64 " requests of %" PRIu64 " of key %zu of policy %zu, in %.6f s and %" PRIu64
                      " parts\n",
                      p->step, requests, cost, key, policy, span_s, parts);
    }
    for (uint64_t i = 0; i < parts; i++) {
        for (uint64_t r = requests * i / parts; r < requests * (i + 1) / parts; r++) {
            if (!check_both(p, policy, key, cost, false)) {
                return;
            }
        }
        pass(p, (uint64_t) (span_s * 1e9) / parts, 1 + random_below(rng, 2));
    }
}

static void pause_both(struct play *p, uint64_t *rng)
{
    const weir_limit *limit = &p->limits[random_below(rng, POLICIES)][0];
    double most_s = 30.0 * p->interval_ms / 1e3;
    switch (random_below(rng, 4)) {
    case 0:
        most_s = 3 * period_s(limit);
        break;
    case 1:
        most_s = 3 * period_s(limit) * (double) at_once(limit) / (double) limit->limit;
        break;
    default:
        break;
    }
    const double s = spread(rng, 0.0001, most_s < 0.001 ? 0.001 : most_s);
    const uint64_t polls = 1 + random_below(rng, 20);
    if (p->counts) {
        print_message("#   %3d: a pause of %.6f s, polled %" PRIu64 " times\n", p->step, s, polls);
    }
    pass(p, (uint64_t) (s * 1e9), polls);
}

static void change_redis(struct play *p, uint64_t *rng)
{
    static const char *const names[] = {
        "down", "up", "hung", "cut", "empty", "flushed", "remembered", "as it was", "as it was, unsaid", "slow"};
    const size_t what = random_below(rng, sizeof(names) / sizeof(names[0]));
    if (p->counts) {
        print_message("#   %3d: redis is %s\n", p->step, names[what]);
    }
    if (what == 1 || what == 0 || (what <= 3 && p->shared->fleet->clock.known)) {
        loopback_fleet_set_down(p->fleet, what == 0);
        loopback_fleet_set_hung(p->fleet, what == 2);
        p->hung = what == 2;
        loopback_fleet_set_slow(p->fleet, 0);
        loopback_transport_set_cut(p->transport, what == 3);
    } else if (what == 4) {
        loopback_fleet_forget(p->fleet);
    } else if (what == 5) {
        loopback_fleet_flush(p->fleet);
    } else if (what == 6) {
        loopback_snapshot_free(p->snapshot);
        p->snapshot = loopback_fleet_snapshot(p->fleet);
    } else if (what <= 8 && p->snapshot != NULL) {
        (void) loopback_fleet_restore(p->fleet, p->snapshot, what == 8);
    } else if (what == 9 && p->shared->fleet->clock.known) {
        loopback_fleet_set_slow(p->fleet, random_below(rng, 2 * p->interval_ms + 1) * MILLISECOND);
    }
}

static uint64_t one_cost(const struct play *p, uint64_t *rng, size_t policy)
{
    const uint64_t most = at_once(&p->limits[policy][0]);
    switch (random_below(rng, 8)) {
    case 0:
        return most + random_below(rng, 3);
    case 1:
    case 2:
        return random_below(rng, most + 1);
    case 3:
        return (uint64_t) spread(rng, 1, (double) most);
    case 4:
        return 0;
    default:
        return 1;
    }
}

static void adjust_both(struct play *p, size_t policy, size_t key, uint64_t cost, bool refund)
{
    (refund ? weir_refund : weir_charge)(p->shared_thread, &p->shared_keys[policy][key], cost);
    (refund ? weir_refund : weir_charge)(p->alone_thread, &p->alone_keys[policy][key], cost);
}

static void play_step(struct play *p, uint64_t *rng)
{
    static const char *const names[] = {"peek", "check", "check of all", "reservation", "refund", "charge", "reset"};
    const size_t policy = random_below(rng, POLICIES);
    const size_t key = random_below(rng, KEYS);
    const uint64_t kind = random_below(rng, 40);
    if (kind >= 16) {
        serve(p, rng, policy, key);
        return;
    }
    if (kind >= 12) {
        pause_both(p, rng);
        return;
    }
    if (kind >= 11) {
        if (p->faults) {
            change_redis(p, rng);
        }
        return;
    }
    uint64_t cost = one_cost(p, rng, policy);
    const size_t call = kind < 3                    ? kind
                        : kind < 5                  ? 3
                        : kind < 8                  ? 4
                        : kind < 10                 ? 5
                        : random_below(rng, 3) == 0 ? 6
                                                    : 1;
    if (p->counts) {
        print_message("#   %3d: %s of key %zu of policy %zu, cost %" PRIu64 "\n", p->step, names[call], key, policy,
                      cost);
    }
    switch (call) {
    case 0:
    case 1:
        (void) check_both(p, policy, key, cost, call == 0);
        break;
    case 2:
        check_all_both(p, rng, cost != 0 ? cost : 1);
        break;
    case 3:
        reserve_both(p, rng, policy, key, cost);
        break;
    case 4:
    case 5:
        adjust_both(p, policy, key, cost, call == 4);
        break;
    default:
        reset_both(p, policy, key);
        break;
    }
}

static void tell_case(const struct play *p)
{
    static const char *const algorithms[] = {"fixed", "sliding", "log", "token", "leaky"};
    static const char *const calendars[] = {"", " by day", " by month"};
    print_message("# interval %u ms, timeout %u ms, delays %.3f to %.3f ms, demand %.3f, lost %u and %u, twice %u, "
                  "unsaid %u of a million\n",
                  p->interval_ms, p->timeout_ms, (double) p->link.delay_min_ns / 1e6,
                  (double) p->link.delay_max_ns / 1e6, p->demand, p->link.requests_lost_ppm, p->link.answers_lost_ppm,
                  p->link.duplicates_ppm, p->link.unsaid_ppm);
    for (size_t i = 0; i < POLICIES; i++) {
        const weir_policy *policy = &p->policies[i];
        print_message("# policy %zu: on_outage %d, on_long_outage %d, grace %u ms, long %u ms\n", i,
                      (int) policy->on_outage, (int) policy->on_long_outage, policy->outage_grace_ms,
                      policy->long_outage_ms);
        for (size_t l = 0; l < policy->limit_count; l++) {
            const weir_limit *limit = &p->limits[i][l];
            print_message("#   %s %" PRIu64 " per %.3f s%s, burst %" PRIu64 ", delay %" PRIu64 "\n",
                          algorithms[limit->algorithm], limit->limit, period_s(limit), calendars[limit->calendar],
                          limit->burst, limit->delay);
        }
    }
}

/* Plays a case up to step `end`, without those that are left out. */
static struct difference play_case(uint64_t seed, const bool *left_out, int end, bool counts)
{
    struct play p = {.counts = counts};
    uint64_t rng = seed;
    entropy_seed(seed); /* names of nodes, and secrets */
    play_begin(&p, &rng);
    if (counts) {
        tell_case(&p);
    }
    for (p.step = 0; p.step < end && !p.difference.found && !p.over; p.step++) {
        uint64_t of_step = seed ^ (uint64_t) (p.step + 1) * UINT64_C(0x9e3779b97f4a7c15);
        if (!left_out[p.step]) {
            play_step(&p, &of_step);
        }
    }
    play_end(&p);
    return p.difference;
}

/* Leaves out what it can, in ever smaller pieces, so that there still is a difference. */
static void shrink(uint64_t seed, struct difference *difference, bool left_out[STEPS])
{
    for (int size = STEPS / 2; size > 0; size /= 2) {
        for (int from = 0; from < difference->step; from += size) {
            bool fewer[STEPS];
            memcpy(fewer, left_out, sizeof(fewer));
            for (int i = from; i < from + size && i < difference->step; i++) {
                fewer[i] = true;
            }
            const struct difference found = play_case(seed, fewer, difference->step + 1, false);
            if (found.found) {
                memcpy(left_out, fewer, sizeof(fewer));
                *difference = found;
            }
        }
    }
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

static void test_one_node_with_a_redis_decides_as_one_without(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    const uint64_t first = number_from("WEIR_PROPERTY_CASE", 0);
    const bool one = getenv("WEIR_PROPERTY_CASE") != NULL;
    const uint64_t end = one ? first + 1 : number_from("WEIR_PROPERTY_CASES", CASES);
    size_t bad = 0;
    for (uint64_t i = first; i < end && bad < 5; i++) {
        uint64_t of_case = seed + i * UINT64_C(0xd1342543de82ef95);
        const uint64_t case_seed = random_next(&of_case);
        bool left_out[STEPS] = {false};
        struct difference difference = play_case(case_seed, left_out, STEPS, false);
        if (!difference.found) {
            continue;
        }
        bad++;
        print_message("# case %" PRIu64 ": WEIR_TEST_SEED=%" PRIu64 " WEIR_PROPERTY_CASE=%" PRIu64 ", step %d\n", i,
                      seed, i, difference.step);
        shrink(case_seed, &difference, left_out);
        difference = play_case(case_seed, left_out, difference.step + 1, true);
        print_message("#   %3d: %s\n", difference.step, difference.what);
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node_with_a_redis_decides_as_one_without),
    };
    return cmocka_run_group_tests_name("property/one_node", tests, NULL, NULL);
}
