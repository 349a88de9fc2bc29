/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes as processes of their own, so that they can be killed and stopped: this same program, started again with
 * FLEET_NODE, opens a weir and does what it is told over a pipe. What it admits it also counts in memory that the test
 * shares with it and that outlives it.
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

/* What a node does for a while, on threads of its own: checks of every policy in the mask. */
struct fleet_work {
    uint32_t for_ms;
    uint32_t threads; /* 1 to 4 */
    uint64_t rate;    /* checks a second of each thread and policy; 0: many */
    uint32_t policies;
    uint32_t keys;     /* how many different ones; half of the checks are of the first. 0: no key comes twice */
    bool moves;        /* after 100 ms they are others, and never come again, but for the first one */
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

/* Belongs first into main() of a test that starts nodes: runs the node and returns true where this process is one. */
bool fleet_node_main(int argc, char **argv, int *exit_code);

/* Starts a node whose weir is open; fails the test where that does not come about. */
void fleet_node_start(struct fleet_node *node, const struct fleet_config *config);

/* Orders, and the answer to the last one, which comes when it is done. At most 90 s, else the test fails. */
void fleet_node_work(const struct fleet_node *node, const struct fleet_work *work);
void fleet_node_check(const struct fleet_node *node, const struct fleet_checks *checks);
void fleet_node_sync(const struct fleet_node *node, uint32_t timeout_ms);
void fleet_node_look(const struct fleet_node *node); /* at its statistics */
void fleet_node_answer(const struct fleet_node *node, struct fleet_answer *answer);

/* What it has admitted so far, less refunds; whether it still runs or not. */
uint64_t fleet_node_admitted(const struct fleet_node *node, size_t policy);

/* Of its first FLEET_SECONDS; whether it still runs or not. */
struct fleet_second fleet_node_second(const struct fleet_node *node, int64_t wall_second);
int64_t fleet_wall_second(void);

/* Its memory that is present now, and that was at the most, bytes. */
size_t fleet_node_resident(const struct fleet_node *node);
size_t fleet_node_peak(const struct fleet_node *node);

void fleet_node_signal(const struct fleet_node *node, int signal);

/* weir_close, and the end; the test fails where that is not clean. Returns how long it took. */
uint64_t fleet_node_close(struct fleet_node *node);

/* Kills it (SIGKILL). What it admitted can still be asked. */
void fleet_node_kill(struct fleet_node *node);

/* Kills it where it still runs, and forgets it. For teardowns: asserts nothing. */
void fleet_node_drop(struct fleet_node *node);

#endif
