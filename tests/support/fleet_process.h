/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes as processes of their own, so that a test can kill and stop them. A node is this program, started again with
 * FLEET_NODE: it opens a weir and takes orders from a pipe. The node counts what it admits in memory that it shares
 * with the test, and that outlives the node.
 */
#ifndef WEIR_TESTS_FLEET_PROCESS_H
#define WEIR_TESTS_FLEET_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "weir/weir.h"

#define FLEET_POLICIES 5
#define FLEET_SECONDS  400

struct fleet_policy {
    char name[24];
    weir_limit limit;
    weir_outage on_outage;
};

struct fleet_config {
    char url[160];
    uint32_t interval_ms, timeout_ms;
    uint32_t outage_grace_ms; /* of every policy; as in weir_policy */
    size_t max_keys;          /* 0: the default */
    uint32_t expected_nodes;  /* as in weir_options */
    struct fleet_policy policies[FLEET_POLICIES];
    size_t policy_count;
};

/* The work of a node for a while, on threads of its own: checks of every policy in the mask. */
struct fleet_work {
    uint32_t for_ms;
    uint32_t threads; /* 1 to 4 */
    uint64_t rate;    /* checks a second of each thread and policy; 0: many */
    uint32_t policies;
    uint32_t keys;     /* how many different ones; half of the checks are of the first. 0: no key comes twice */
    bool moves;        /* after 100 ms all keys but the first one are new, and the old ones never come again */
    uint32_t max_cost; /* costs are 1 to this */
    uint32_t refund_percent;
    uint32_t catch_up_ms; /* a thread that did not run for longer leaves out what it missed beyond. 0: it leaves out
                             nothing */
    uint64_t seed;
};

/* Checks by a thread that stays attached. */
struct fleet_checks {
    size_t policy;
    uint32_t key; /* its name is "key-NUMBER" */
    uint32_t times;
    uint64_t cost; /* 0: asks, and takes nothing */
};

struct fleet_answer {
    int result;       /* of weir_sync */
    uint64_t allowed; /* checks, since the last answer */
    weir_verdict verdict;
    weir_stats stats;
};

/* What a node did in one second of the wall clock, in units; and the longest a thread of its work did not run, beside
 * the pauses it takes. */
struct fleet_second {
    uint32_t offered[FLEET_POLICIES], admitted[FLEET_POLICIES];
    uint32_t late_ms;
};

struct fleet_shared;

struct fleet_node {
    pid_t pid; /* 0: not running */
    int to, from;
    struct fleet_shared *shared; /* NULL: never started */
};

/* The first call in main() of a test that starts nodes. Where this process is a node, runs it and returns true. */
bool fleet_node_main(int argc, char **argv, int *exit_code);

/* Starts a node and waits until its weir is open, or fails the test. */
void fleet_node_start(struct fleet_node *node, const struct fleet_config *config);

/* Gives an order, and waits for its answer, which comes when the order is done. After 90 s the test fails. */
void fleet_node_work(const struct fleet_node *node, const struct fleet_work *work);
void fleet_node_check(const struct fleet_node *node, const struct fleet_checks *checks);
void fleet_node_sync(const struct fleet_node *node, uint32_t timeout_ms);
void fleet_node_look(const struct fleet_node *node); /* asks for the node's statistics */
void fleet_node_answer(const struct fleet_node *node, struct fleet_answer *answer);

/* What the node has admitted so far, less refunds; also after the node has ended. */
uint64_t fleet_node_admitted(const struct fleet_node *node, size_t policy);

/* What the node did in its first FLEET_SECONDS; also after the node has ended. */
struct fleet_second fleet_node_second(const struct fleet_node *node, int64_t wall_second);
int64_t fleet_wall_second(void);

/* The memory of the node in bytes: resident now, and at its most. */
size_t fleet_node_resident(const struct fleet_node *node);
size_t fleet_node_peak(const struct fleet_node *node);

void fleet_node_signal(const struct fleet_node *node, int signal);

/* Closes the weir and ends the node, or fails the test. Returns how long that took. */
uint64_t fleet_node_close(struct fleet_node *node);

/* Kills the node (SIGKILL). What it admitted can still be read. */
void fleet_node_kill(struct fleet_node *node);

/* Kills the node if it runs. For teardowns: asserts nothing. */
void fleet_node_drop(struct fleet_node *node);

#endif
