/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet of one key, of which the fleet has answered: without a table, a transport or other nodes. The test says what
 * was known, and calls the functions that take in an answer or make a report.
 */
#ifndef WEIR_TESTS_ONE_ANSWER_H
#define WEIR_TESTS_ONE_ANSWER_H

#include <math.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "fleet/state.h"
#include "process/process.h"
#include "support/support.h"
#include "thread/limiter.h"

#define INTERVAL_MS 200
#define NOW_MS      UINT64_C(1000000000)
#define NOW_NS      (NOW_MS * MILLISECOND)

static inline uint64_t ago(double ms)
{
    return NOW_NS - (uint64_t) (ms * (double) MILLISECOND);
}

/* A rate of so many units a second. */
static inline uint64_t rate_of(double units)
{
    return (uint64_t) (units * (UINT64_C(1) << RATE_BITS));
}

/* A key of a limit of 1000 units a minute (a bucket's: a second), of which one answer has been learned. */
static struct {
    struct limiter limiter;
    struct fleet fleet;
    struct sync_full sync;
    struct refund_ledger ledger;
    struct cell cell;
    struct report report;
    struct history_report history;
    struct rule rule;
} k;

static const weir_limit fixed = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 60 * SECOND};
static const weir_limit sliding = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000, .period_ns = 60 * SECOND};
static const weir_limit log_limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = 60 * SECOND};
static const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 1000};

static inline const weir_limit *limit_named(char kind)
{
    return kind == 'f' ? &fixed : kind == 's' ? &sliding : kind == 'l' ? &log_limit : &bucket;
}

static inline void set_state(struct state state)
{
    store_relaxed(&k.cell.state.a, state.a);
    store_relaxed(&k.cell.state.b, state.b);
}

static inline void begin(const weir_limit *limit)
{
    memset(&k, 0, sizeof(k));
    struct fleet *fleet = &k.fleet;
    k.limiter.process.interval_ns = INTERVAL_MS * MILLISECOND;
    fleet->limiter = &k.limiter;
    fleet->process = &k.limiter.process;
    fleet->interval_ms = INTERVAL_MS;
    fleet->opened_ns = 1;
    fleet->gather.now_ns = fleet->news.good_ns = NOW_NS; /* fleet time, and the monotonic clock */
    fleet->news.age_ns = INTERVAL_MS / 2 * MILLISECOND;
    membership_open(&fleet->membership, 1, INTERVAL_MS * MILLISECOND, SECOND);
    fleet->membership.live = fleet->membership.most = 2;
    fleet->membership.spoken_ns = fleet->membership.watermark_ns = NOW_NS;
    k.sync.ledger = &k.ledger;
    allowance_clear(&k.sync.allowance);
    store_relaxed(&k.sync.allowance.since_ns, ago(300));
    k.report.history = &k.history;
    k.rule = rule_make(limit, 1);
    set_state(rule_fresh(&k.rule, NOW_NS));
    struct demand_stats *demand = &k.sync.demand;
    demand->rates = (struct demand_rates){.local_rate = rate_of(700), .remote_rate = rate_of(400), .known = true};
    demand->learned_ns = ago(INTERVAL_MS);
    demand->first_ns = demand->changed_ns = 1;
    demand->own = 1000;
    k.report.count = 1140;
}

static inline bool is_near(uint64_t rate, double units)
{
    return fabs((double) rate - units * 65536) <= 65536; /* to one unit a second */
}

/* A bucket's time, by the rule of k, so many milliseconds after now; a unit of the bucket takes one. */
static inline uint64_t after(double ms)
{
    return bucket_time(&k.rule, NOW_NS) + (uint64_t) (int64_t) (ms * (double) (MILLISECOND << BUCKET_FRACTION_BITS));
}

/* Sets the allowance of the last answer, 300 ms ago: the others have `rate` a second, and a half at most. */
static inline void last_answer(double level_ms, uint64_t seen, double rate)
{
    struct allowance *allowance = &k.sync.allowance;
    store_relaxed(&allowance->level, after(level_ms));
    store_relaxed(&allowance->seen, seen);
    store_relaxed(&allowance->remote_rate, rate_of(rate));
    store_relaxed(&allowance->remote_fraction, (uint32_t) (FRACTION_WHOLE / 2));
}

#endif
