/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process, on the in-memory fleet, each with a clock of its host, all moved by the test.
 *
 * Nodes are opened and closed one by one; those that are not open have no `w`.
 */
#ifndef WEIR_TESTS_NODES_H
#define WEIR_TESTS_NODES_H

#include <stdio.h>
#include <string.h>

#include "fleet/memory.h"
#include "support/support.h"
#include "weir.h"

#define NODES       3
#define INTERVAL_MS 200
#define STEP_MS     10
#define START_NS    (UINT64_C(1760000000) * SECOND)

/* Long enough for every open node to have spoken and heard, whatever the moment. */
#define TWO_INTERVALS (2 * INTERVAL_MS)

struct node {
    struct fake_clock clock; /* its host's: the wall clock may be wrong */
    weir *w;
    weir_thread *t;
    weir_key key;       /* "key" of the first policy */
    uint64_t used;      /* units that passed or were charged, less those given back */
    size_t error_lines; /* logged as errors */
    char error[400];    /* the last of them */
};

struct nodes {
    struct fake_clock fleet_clock;
    struct memory_fleet *fleet;
    const weir_policy *policies;
    size_t policy_count;
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
    }
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
    options.sync_interval_ms = INTERVAL_MS;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.log = node_logs;
    options.log_arg = node;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    assert_int_equal(memory_transport_open(n->fleet, &config, &transport, NULL), 0);
    weir_error error;
    if (weir_open_on(&options, transport, &node->w, &error) != 0 ||
        weir_set_policies(node->w, n->policies, n->policy_count, &error) != 0) {
        fail_msg("%s", error.message);
    }
    node->t = weir_attach(node->w);
    node->key = weir_make_key(node->w, weir_find_policy(node->w, n->policies[0].name), "key", 3);
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
    n->fleet = memory_fleet_new(nodes_wall, &n->fleet_clock);
    assert_non_null(n->fleet);
    n->policies = policies;
    n->policy_count = count;
}

static inline void nodes_stop(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        node_close(&n->node[i]);
    }
    memory_fleet_free(n->fleet);
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
            assert_true(n->node[i / 2].w == NULL || weir_poll(n->node[i / 2].w) >= 0);
        }
    }
}

/* All nodes, with right clocks, that have met. */
static inline void nodes_start(struct nodes *n, const weir_policy *policies, size_t count)
{
    nodes_init(n, policies, count);
    for (int i = 0; i < NODES; i++) {
        node_open(n, i, 0);
    }
    pass(n, 500);
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

static inline weir_verdict look(struct node *node)
{
    weir_verdict v;
    (void) weir_peek(node->t, &node->key, 1, &v);
    return v;
}

static inline uint64_t used_by_all(const struct nodes *n)
{
    uint64_t used = 0;
    for (int i = 0; i < NODES; i++) {
        used += n->node[i].used;
    }
    return used;
}

/* A node hears of a key only while it uses it: every open one uses a unit, if it can, and two intervals pass. */
static inline void hear(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        if (n->node[i].w != NULL) {
            (void) ask(&n->node[i], 1);
        }
    }
    pass(n, TWO_INTERVALS);
}

static inline uint64_t fleet_sum(const struct nodes *n)
{
    return memory_fleet_sum(n->fleet, ":p:key");
}

#endif
