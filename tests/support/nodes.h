/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process, on the in-memory fleet, each with a clock of its host, all moved by the test.
 *
 * Nodes are opened and closed one by one; those that are not open have no `w`.
 */
#ifndef WEIR_TESTS_NODES_H
#define WEIR_TESTS_NODES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/check.h"
#include "fleet/report.h"
#include "fleet/tuning.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "process/insert.h"
#include "support/support.h"
#include "thread/settle.h"
#include "transport/loopback/loopback.h"

#define NODES       3
#define INTERVAL_MS 200
#define STEP_MS     10
#define START_NS    (UINT64_C(1760000000) * SECOND)

/* Long enough for every open node to have spoken and heard, whatever the moment. */
#define TWO_INTERVALS (2 * INTERVAL_MS)

/* The same for news that can wait its turn. */
#define TURN_MS ((AGE_INTERVALS + 2 * SCAN_INTERVALS) * INTERVAL_MS)

/* And for a fleet that has forgotten everything to be told it again. */
#define HEAL_MS (6 * INTERVAL_MS)

/* For nodes that were without the fleet to hear of each other again. */
#define RETURN_MS (5 * INTERVAL_MS)

struct node {
    struct fake_clock clock; /* its host's: the wall clock may be wrong */
    weir *w;
    weir_thread *t;
    weir_key key;       /* "key" of the first policy */
    uint64_t used;      /* units that passed or were charged, less those given back */
    size_t error_lines; /* logged as errors */
    char error[400];    /* the last of them */
    size_t warnings;    /* likewise */
    char warning[600];
};

struct nodes {
    struct fake_clock fleet_clock;
    struct loopback_fleet *fleet;
    const weir_policy *policies;
    size_t policy_count;
    uint32_t expected_nodes;     /* 0: not told */
    size_t max_keys;             /* of every node; WEIR_TEST_MAX_KEYS, or 1,000, and then every cell has a note */
    bool cold;                   /* node_open does not look at the key: it is new when it is first asked for */
    bool loses_notes;            /* see notes_drop */
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

/* The inside: where a node keeps its key, of one limit. */
static inline uint32_t cell_at(const struct node *node, const struct policy **policy)
{
    *policy = check_policy(load_acquire(&node->w->limiter.process.policies), &node->key);
    assert_non_null(*policy);
    return table_find(&node->w->limiter.process.table, cell_hash(*policy, &node->key, 0));
}

/* The same, where the policy is not looked at. */
static inline uint32_t cell_of(const struct node *node)
{
    rcu_enter();
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    rcu_leave();
    return at;
}

/* The note of a cell, as the background thread gives it one. */
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
    node->clock.monotonic_ns += (uint64_t) i * 12345 * SECOND; /* hosts were not booted together */
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
    if (!n->cold) {
        /* Before it knows of other nodes: all of the limit is its own until it is told. */
        (void) look(node);
        rcu_enter();
        const struct policy *policy;
        const uint32_t at = cell_at(node, &policy);
        (void) sync_at(&node->w->limiter.process, at, &policy->limits[0].rule, tick_now(node->t, policy));
        rcu_leave();
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

static inline void nodes_stop(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        node_close(&n->node[i]);
    }
    loopback_fleet_free(n->fleet);
}

/* A host's clock that goes on by so much more whenever it is looked at: as if something took time. */
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

/* Every key loses its note between two rounds, where there is not one for every cell. */
static inline void notes_drop(weir *w)
{
    struct process *process = &w->limiter.process;
    for (uint32_t i = 0; !process->syncs.all && !w->fleet.schedule.under_way && i < process->syncs.count; i++) {
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
        /* Twice: a round of the in-memory fleet is answered in the step after. */
        for (int i = 0; i < 2 * NODES; i++) {
            weir *w = n->node[i / 2].w;
            assert_true(w == NULL || weir_poll(w) >= 0);
            if (w != NULL && n->loses_notes && done % (5 * (uint64_t) STEP_MS) == 0) {
                notes_drop(w);
            }
        }
    }
}

/* Opens all nodes, with right clocks, and lets them meet. */
static inline void nodes_meet(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        node_open(n, i, 0);
    }
    pass(n, 500); /* half an interval from the last round, and from the next one */
}

static inline void nodes_start(struct nodes *n, const weir_policy *policies, size_t count)
{
    nodes_init(n, policies, count);
    nodes_meet(n);
}

/* Nodes that have met before anybody used the key, or looked at it. */
static inline void nodes_start_cold(struct nodes *n, const weir_policy *policies, size_t count)
{
    nodes_init(n, policies, count);
    n->cold = true;
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

/* Every node asks for so much in each step of 10 ms. */
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

/* Asks for so many units, over some seconds: a node's share grows as it hears that the others no longer ask. */
static inline uint64_t ask_for_long(struct nodes *n, struct node *node, uint64_t times)
{
    uint64_t admitted = 0;
    for (int i = 0; i < 20 && admitted < times; i++) {
        admitted += ask(node, times - admitted);
        pass(n, INTERVAL_MS);
    }
    return admitted;
}

/* A node hears of a key only while it uses it: every open one uses a unit, if it can, and so much time passes. */
static inline void hear_within(struct nodes *n, uint64_t ms)
{
    for (int i = 0; i < NODES; i++) {
        if (n->node[i].w != NULL) {
            (void) ask(&n->node[i], 1);
        }
    }
    pass(n, ms);
}

/* The same where what they tell of may have to wait its turn. */
static inline void hear(struct nodes *n)
{
    hear_within(n, TURN_MS);
}

/* What this node thinks is left of the limit in force, by its own units and the others' as it has heard of them:
 * without what the estimate leaves to the others, and of no part. */
static inline uint64_t room(struct node *node)
{
    (void) look(node); /* brings a log up to date */
    struct limiter *limiter = &node->w->limiter;
    rcu_enter();
    tick_epoch(limiter);
    (void) settle_lapsed(limiter); /* what was granted and used counts */
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    const struct rule rule = policy_rule(&policy->limits[0]);
    const uint64_t left = rule_headroom(&rule, cell_state(dwcas_read(&limiter->process.table.cells[at].state)),
                                        tick_now(node->t, policy));
    rcu_leave();
    return left;
}

/*
 * Takes what a bucket was charged while it was served in part for what it is worth, as the fleet's answer does.
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
 * As if the fleet had just told a node of its key, and that nobody else asks for it: its state alone decides. What was
 * granted, or denied, is so still.
 */
static inline void know_all(struct node *node)
{
    struct process *process = &node->w->limiter.process;
    rcu_enter();
    const struct policy *policy = check_policy(load_acquire(&process->policies), &node->key);
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
    rcu_leave();
}

/* Asks where it is not the sharing that is looked at: whatever the state has room for passes. */
static inline uint64_t ask_freely(struct node *node, uint64_t times)
{
    struct limiter *limiter = &node->w->limiter;
    rcu_enter();
    tick_epoch(limiter);
    (void) settle_lapsed(limiter); /* by what it knew before */
    rcu_leave();
    know_all(node);
    return ask(node, times);
}

/* Whether a node goes by a part of its key's limit: the fleet has not told it of the key. */
static inline bool goes_by_part(const struct node *node)
{
    rcu_enter();
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    const struct rule *rule = &policy->limits[0].rule;
    const struct sync_full *sync = sync_at(&node->w->limiter.process, at, rule, tick_now(node->t, policy));
    /* A queue is always served in parts, where others use it as well. */
    const bool unanswered = rule_is_queue(rule) ? load_relaxed(&sync->allowance.since_ns) == 0
                                                : load_relaxed(&sync->allowance.fraction) != 0;
    const bool by_part = unanswered || load_relaxed(&sync->allowance.quota_unacked) != 0;
    rcu_leave();
    return by_part;
}

/* The node's key is in its next round, which comes as soon as one may. */
static inline void make_urgent(struct node *node)
{
    rcu_enter();
    struct process *process = &node->w->limiter.process;
    const struct policy *policy;
    const uint32_t at = cell_at(node, &policy);
    assert_int_not_equal(at, TABLE_NONE);
    bitmap_set(&process->table.urgent, at);
    store_relaxed(&process->urgent, 1);
    rcu_leave();
}

/* All tell all, and hear all: nobody uses anything, and no time passes. */
static inline void agree(struct nodes *n)
{
    for (int i = 0; i < 2 * NODES; i++) {
        struct node *node = &n->node[i % NODES];
        if (node->w == NULL) {
            continue;
        }
        rcu_enter();
        const struct policy *policy;
        const uint32_t at = cell_at(node, &policy);
        if (at != TABLE_NONE) {
            /* As if it had something to tell; and a window as if it had been asked for. */
            struct table *table = &node->w->limiter.process.table;
            table_set_dirty(table, at);
            const struct rule *rule = &policy->limits[0].rule;
            struct sync_full *sync = sync_at(&node->w->limiter.process, at, rule, tick_now(node->t, policy));
            store_relaxed(&sync->allowance.quota_unacked, !rule_is_bucket(rule) && !rule_has_history(rule));
        }
        rcu_leave();
        assert_int_equal(weir_sync(node->w, 5000), 0);
    }
}

static inline uint64_t fleet_sum(const struct nodes *n)
{
    return loopback_fleet_sum(n->fleet, ":p:key");
}

#endif
