/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process, on the in-memory fleet. Each node has a clock of its host, and the test moves all
 * clocks. Nodes are opened and closed one by one; a node that is not open has no `w`.
 */
#ifndef WEIR_TESTS_NODES_H
#define WEIR_TESTS_NODES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "check/check.h"
#include "fleet/keys/report.h"
#include "fleet/tuning.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "process/insert.h"
#include "process/sync_pool.h"
#include "support/support.h"
#include "thread/rcu.h"
#include "thread/settle_pass.h"
#include "transport/loopback/loopback.h"

#define NODES       3
#define INTERVAL_MS 200
#define STEP_MS     10
#define START_NS    (UINT64_C(1760000000) * SECOND)

/* In this time every open node has had two rounds. */
#define TWO_INTERVALS (2 * INTERVAL_MS)

/* In this time the scan has come to every cell, and its report has been sent. */
#define SCAN_MS ((AGE_INTERVALS + 2 * SCAN_INTERVALS) * INTERVAL_MS)

/* In this time a first resync is over: a fleet that has lost its data has every count again. */
#define RESYNC_MS (6 * INTERVAL_MS)

/* In this time nodes that were without the fleet go by its answers again. */
#define RETURN_MS (5 * INTERVAL_MS)

struct node {
    struct fake_clock clock; /* the host's; its wall clock may be wrong */
    weir *w;
    weir_thread *t;
    weir_key key;       /* "key" of the first policy */
    uint64_t used;      /* units that passed or were charged, less refunds */
    size_t error_lines; /* lines of the log at the level of errors */
    char error[400];    /* the last error */
    size_t warnings;    /* lines of the log at the level of warnings */
    char warning[600];
};

struct nodes {
    struct fake_clock fleet_clock;
    struct loopback_fleet *fleet;
    const weir_policy *policies;
    size_t policy_count;
    uint32_t expected_nodes; /* as in weir_options */
    size_t max_keys; /* of every node: WEIR_TEST_MAX_KEYS, or 1,000. With 1,000 every cell has a full sync state */
    bool key_is_new; /* node_open does not peek at the key: the first check finds a new key */
    bool demotes_sync_states;    /* see sync_states_demote */
    uint32_t interval_ms[NODES]; /* 0: INTERVAL_MS */
    struct node node[NODES];
};

static inline uint64_t nodes_wall(void *arg)
{
    return ((const struct fake_clock *) arg)->wall_ns;
}

static inline void node_logs(void *arg, weir_log_level level, const char *message)
{
    struct node *node = arg;
    if (level == WEIR_LOG_ERROR) {
        node->error_lines++;
        (void) snprintf(node->error, sizeof(node->error), "%s", message);
    } else if (level == WEIR_LOG_WARNING) {
        node->warnings++;
        (void) snprintf(node->warning, sizeof(node->warning), "%s", message);
    }
}

static inline weir_verdict look(struct node *node)
{
    weir_verdict v;
    (void) weir_peek(node->t, &node->key, 1, &v);
    return v;
}

/* The cell of a node's key, whose policy has one limit; reads the library's inside. */
static inline uint32_t cell_at(const struct node *node, const struct policy **policy)
{
    *policy = check_policy(&node->w->limiter.process, process_policies(&node->w->limiter.process), &node->key);
    assert_non_null(*policy);
    return table_find(&node->w->limiter.process.table, cell_hash(*policy, &node->key, 0));
}

/* As cell_at, for a caller that needs no policy. */
static inline uint32_t cell_of(const struct node *node)
{
    rcu_enter(node->t);
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    rcu_leave(node->t);
    return at;
}

/* The full sync state of a cell, given as the background thread gives it. */
static inline struct sync_full *sync_at(struct process *process, uint32_t at, const struct rule *rule, uint64_t now_ns)
{
    struct sync_full room;
    struct sync_full *sync = sync_load(process, at, rule, now_ns, &room);
    sync = sync != &room ? sync : sync_promote(process, at, &room, 0);
    assert_non_null(sync);
    return sync;
}

/* wrong_ns: how far ahead of the fleet's clock the node's wall clock is. */
static inline void node_open(struct nodes *n, int i, int64_t wrong_ns)
{
    struct node *node = &n->node[i];
    memset(node, 0, sizeof(*node));
    fake_clock_init(&node->clock, n->fleet_clock.wall_ns + (uint64_t) wrong_ns);
    node->clock.monotonic_ns += (uint64_t) i * 12345 * SECOND; /* hosts are not booted at one time */
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &node->clock.clock;
    options.sync_interval_ms = n->interval_ms[i] != 0 ? n->interval_ms[i] : INTERVAL_MS;
    options.max_keys = n->max_keys;
    options.expected_nodes = n->expected_nodes;
    options.max_threads = 2;
    options.log = node_logs;
    options.log_arg = node;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    assert_int_equal(loopback_transport_open(n->fleet, &config, &transport, NULL), 0);
    weir_error error;
    if (weir_open_on(&options, transport, &node->w, &error) != 0 ||
        weir_set_policies(node->w, n->policies, n->policy_count, &error) != 0) {
        fail_msg("%s", error.message);
    }
    node->t = weir_attach(node->w);
    node->key = weir_make_key(node->w, weir_find_policy(node->w, n->policies[0].name), "key", 3);
    if (!n->key_is_new) {
        /* Before the node knows of other nodes: all of the limit is its own until the fleet answers. */
        (void) look(node);
        rcu_enter(node->t);
        const struct policy *policy;
        const uint32_t at = cell_at(node, &policy);
        (void) sync_at(&node->w->limiter.process, at, &policy->limits[0].rule, tick_now(node->t, policy));
        rcu_leave(node->t);
    }
}

static inline void node_close(struct node *node)
{
    weir_close(node->w);
    node->w = NULL;
}

/* A fleet, and no node yet. */
static inline void nodes_init(struct nodes *n, const weir_policy *policies, size_t count)
{
    memset(n, 0, sizeof(*n));
    fake_clock_init(&n->fleet_clock, START_NS);
    n->fleet = loopback_fleet_new(nodes_wall, &n->fleet_clock);
    assert_non_null(n->fleet);
    n->policies = policies;
    n->policy_count = count;
    const char *max_keys = getenv("WEIR_TEST_MAX_KEYS");
    n->max_keys = max_keys != NULL ? strtoull(max_keys, NULL, 10) : 1000;
}

/* Redis is gone: else weir_close waits for answers that the clock of the test does not bring. */
static inline void nodes_stop(struct nodes *n)
{
    loopback_fleet_set_down(n->fleet, true);
    for (int i = 0; i < NODES; i++) {
        node_close(&n->node[i]);
    }
    loopback_fleet_free(n->fleet);
}

/* A host's clock that goes on by `by_ns` whenever it is read, as if each step of the code took that long. */
struct creep {
    const struct fake_clock *clock;
    uint64_t by_ns, crept_ns;
};

static inline uint64_t creeping_ns(void *arg)
{
    struct creep *creep = arg;
    creep->crept_ns += creep->by_ns;
    return creep->clock->monotonic_ns + creep->crept_ns;
}

static inline void creep_begin(struct creep *creep, struct node *node, uint64_t by_ns)
{
    *creep = (struct creep){.clock = &node->clock, .by_ns = by_ns};
    node->w->clock.monotonic_ns = creeping_ns;
    node->w->clock.arg = creep;
}

/* Takes the full sync state of every key between two rounds, where there are fewer full sync states than cells. */
static inline void sync_states_demote(weir *w)
{
    struct process *process = &w->limiter.process;
    for (uint32_t i = 0; !process->syncs.all && !w->fleet->schedule.under_way && i < process->syncs.count; i++) {
        (void) sync_demote(process, i);
    }
}

/* Lets time pass in steps of 10 ms. */
static inline void pass(struct nodes *n, uint64_t ms)
{
    for (uint64_t done = 0; done < ms; done += STEP_MS) {
        fake_clock_advance(&n->fleet_clock, STEP_MS * MILLISECOND);
        for (int i = 0; i < NODES; i++) {
            fake_clock_advance(&n->node[i].clock, STEP_MS * MILLISECOND);
        }
        /* Twice: the in-memory fleet answers a round in the step after it. */
        for (int i = 0; i < 2 * NODES; i++) {
            weir *w = n->node[i / 2].w;
            assert_true(w == NULL || weir_poll(w) >= 0);
            if (w != NULL && n->demotes_sync_states && done % (5 * (uint64_t) STEP_MS) == 0) {
                sync_states_demote(w);
            }
        }
    }
}

/* Lets a resync end that is not the first one, and so is slower. */
static inline void pass_resync(struct nodes *n)
{
    pass(n, 2 * RESYNC_MS);
    for (int i = 0; i < NODES; i++) {
        while (n->node[i].w != NULL && n->node[i].w->fleet->gather.resync_left != 0) {
            pass(n, INTERVAL_MS);
        }
    }
    pass(n, TWO_INTERVALS);
}

/* Opens all nodes, with right clocks, and lets them meet. */
static inline void nodes_meet(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        node_open(n, i, 0);
    }
    pass(n, 500); /* half an interval after the last round, and before the next one */
}

static inline void nodes_start(struct nodes *n, const weir_policy *policies, size_t count)
{
    nodes_init(n, policies, count);
    nodes_meet(n);
}

/* Nodes that have met before any node used the key, or peeked at it. */
static inline void nodes_start_with_new_key(struct nodes *n, const weir_policy *policies, size_t count)
{
    nodes_init(n, policies, count);
    n->key_is_new = true;
    nodes_meet(n);
}

static inline uint64_t ask(struct node *node, uint64_t times)
{
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < times; i++) {
        admitted += weir_check(node->t, &node->key, 1, NULL);
    }
    node->used += admitted;
    return admitted;
}

/* Every node asks for `each` units in each step of 10 ms. */
static inline void ask_all(struct nodes *n, uint64_t ms, const uint64_t each[NODES])
{
    for (uint64_t done = 0; done < ms; done += STEP_MS) {
        for (int i = 0; i < NODES; i++) {
            (void) ask(&n->node[i], each[i]);
        }
        pass(n, STEP_MS);
    }
}

static inline void give_back(struct node *node, uint64_t units)
{
    weir_refund(node->t, &node->key, units);
    node->used -= units;
}

static inline void charge(struct node *node, uint64_t units)
{
    weir_charge(node->t, &node->key, units);
    node->used += units;
}

static inline uint64_t used_by_all(const struct nodes *n)
{
    uint64_t used = 0;
    for (int i = 0; i < NODES; i++) {
        used += n->node[i].used;
    }
    return used;
}

/* Asks for `times` units over some seconds: a node's fraction grows as the other nodes' demand falls. */
static inline uint64_t ask_for_long(struct nodes *n, struct node *node, uint64_t times)
{
    uint64_t admitted = 0;
    for (int i = 0; i < 20 && admitted < times; i++) {
        admitted += ask(node, times - admitted);
        pass(n, INTERVAL_MS);
    }
    return admitted;
}

/*
 * A node gets answers for a key only while the node uses it. So every open node uses a unit, if it can, and `ms` pass.
 */
static inline void hear_within(struct nodes *n, uint64_t ms)
{
    for (int i = 0; i < NODES; i++) {
        if (n->node[i].w != NULL) {
            (void) ask(&n->node[i], 1);
        }
    }
    pass(n, ms);
}

/* As hear_within, for reports that may have to wait for the scan. */
static inline void hear(struct nodes *n)
{
    hear_within(n, SCAN_MS);
}

/*
 * What this node counts as left of the limit in force, after local units and the remote units of its last answer.
 * Neither an estimate nor a fraction reduces it.
 */
static inline uint64_t room(struct node *node)
{
    (void) look(node); /* a peek brings a log up to date */
    struct limiter *limiter = &node->w->limiter;
    rcu_enter(node->t);
    tick_epoch(limiter);
    (void) settle_lapsed(limiter); /* charges the units that passed on grants */
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    const struct rule rule = policy_rule(&policy->limits[0]);
    const uint64_t left = rule_headroom(&rule, cell_state(dwcas_read(&limiter->process.table.cells[at].state)),
                                        tick_now(node->t, policy));
    rcu_leave(node->t);
    return left;
}

/*
 * Charges a bucket what its units are worth at the full rate, as the fleet's answer does. The bucket was charged at the
 * rate of a fraction.
 */
static inline void serve_whole(struct cell *cell, const struct sync_full *sync, const struct rule *rule,
                               uint64_t now_ns)
{
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state state = cell_state(value);
    const uint64_t since = (bucket_total(state) - sync->demand.known_total) & BUCKET_TOTAL_MASK;
    const uint64_t refunds = load_relaxed(&sync->ledger->refunds[0]) - sync->demand.known_refunds;
    const uint64_t now_time = bucket_time(rule, now_ns);
    const uint64_t known_time = since != 0 ? max_u64(sync->demand.known_time, now_time) : sync->demand.known_time;
    const uint64_t whole = saturating_sub(known_time + since * rule->unit, refunds * rule->unit);
    if (whole < state.a) {
        state.a = whole;
        assert_true(dwcas_swap(&cell->state, &value, cell_value(state, value)));
    }
}

/*
 * Makes a node go by its state alone, as if the fleet had just answered that no other node asks for the key. Grants and
 * cached denials stay.
 */
static inline void know_all(struct node *node)
{
    struct process *process = &node->w->limiter.process;
    rcu_enter(node->t);
    const struct policy *policy = check_policy(process, process_policies(process), &node->key);
    assert_non_null(policy);
    const uint64_t now_ns = tick_now(node->t, policy);
    uint32_t cells[WEIR_MAX_LIMITS];
    assert_true(insert_locate(process, policy, &node->key, now_ns, cells));
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule *rule = &policy->limits[i].rule;
        struct sync_full *sync = sync_at(process, cells[i], rule, now_ns);
        if (rule_is_bucket(rule) && load_relaxed(&sync->allowance.fraction) != 0) {
            serve_whole(&process->table.cells[cells[i]], sync, rule, now_ns);
        }
        store_relaxed(&sync->allowance.since_ns, now_ns);
        store_relaxed(&sync->allowance.remote_rate, 0);
        store_relaxed(&sync->allowance.fraction, 0);
        store_relaxed(&sync->allowance.level, 0);
        store_relaxed(&sync->allowance.flags, 0);
        store_relaxed(&sync->allowance.quota_unacked, 0);
    }
    rcu_leave(node->t);
}

/* Asks in a test that is not about sharing: all that the state has room for passes. */
static inline uint64_t ask_freely(struct node *node, uint64_t times)
{
    struct limiter *limiter = &node->w->limiter;
    rcu_enter(node->t);
    tick_epoch(limiter);
    (void) settle_lapsed(limiter); /* by the allowance before know_all */
    rcu_leave(node->t);
    know_all(node);
    return ask(node, times);
}

/* Whether a node goes by a fraction of its key's limit: the fleet has not answered of the key. */
static inline bool goes_by_fraction(const struct node *node)
{
    rcu_enter(node->t);
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    const struct rule *rule = &policy->limits[0].rule;
    const struct sync_full *sync = sync_at(&node->w->limiter.process, at, rule, tick_now(node->t, policy));
    /* A queue that other nodes use as well always goes by a fraction. */
    const bool unanswered = rule_is_queue(rule) ? load_relaxed(&sync->allowance.since_ns) == 0
                                                : load_relaxed(&sync->allowance.fraction) != 0;
    const bool by_part = unanswered || load_relaxed(&sync->allowance.quota_unacked) != 0;
    rcu_leave(node->t);
    return by_part;
}

/* Marks the node's key as urgent: the next round reports it, and comes as soon as a round may. */
static inline void make_urgent(struct node *node)
{
    rcu_enter(node->t);
    struct process *process = &node->w->limiter.process;
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    bitmap_set(&process->table.urgent, at);
    store_relaxed(&process->shared->urgent, 1);
    rcu_leave(node->t);
}

/* Marks the node's cell as changed, and a window as asked for: the next round reports the key. */
static inline void mark_as_asked(struct node *node)
{
    rcu_enter(node->t);
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    if (at != TABLE_NONE) {
        struct process *process = &node->w->limiter.process;
        table_set_dirty(&process->table, at);
        const struct rule *rule = &policy->limits[0].rule;
        struct sync_full *sync = sync_at(process, at, rule, tick_now(node->t, policy));
        store_relaxed(&sync->allowance.quota_unacked, !rule_is_bucket(rule) && !rule_has_history(rule));
    }
    rcu_leave(node->t);
}

/* Every node reports all units and gets the answers. No node uses a unit, and no time passes. */
static inline void agree(struct nodes *n)
{
    for (int i = 0; i < 2 * NODES; i++) {
        struct node *node = &n->node[i % NODES];
        if (node->w != NULL) {
            mark_as_asked(node);
            assert_int_equal(weir_sync(node->w, 60000), 0);
        }
    }
}

static inline uint64_t fleet_sum(const struct nodes *n)
{
    return loopback_fleet_sum(n->fleet, ":p:key");
}

#endif
