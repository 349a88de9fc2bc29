/* SPDX-License-Identifier: Apache-2.0 */
/* The demand of all nodes for a key, learned from two answers of the fleet. */
#ifndef WEIR_FLEET_KEYS_DEMAND_LEARN_H
#define WEIR_FLEET_KEYS_DEMAND_LEARN_H

#include <stdbool.h>
#include <stdint.h>

struct report;
struct rule;
struct sync_full;
struct fleet;

/* The answer to learn from. */
struct demand_span {
    const struct rule *rule;
    const struct report *report;
    uint64_t start_ns; /* when the present window began; 0: there are no windows */
    bool with_before;  /* the window before was reported too */
};

/* Learns demand, where enough time has passed since the last answer to tell a rate. */
void demand_learn(const struct fleet *fleet, struct sync_full *sync, const struct demand_span *span);

/*
 * Notes a first contact: a key that was not used before, or not for a while. Returns whether the other nodes' first
 * reports are awaited.
 */
bool demand_learn_first_contact(const struct fleet *fleet, struct sync_full *sync, const struct demand_span *span);

/* Whether this node joined so lately that other nodes may not know what it is asked for. */
bool demand_learn_node_is_new(const struct fleet *fleet);

#endif
