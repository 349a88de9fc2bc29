/* SPDX-License-Identifier: Apache-2.0 */
/* The demand of all nodes for a key, learned from two answers of the fleet. */
#ifndef WEIR_FLEET_DEMAND_LEARN_H
#define WEIR_FLEET_DEMAND_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "process/sync_state.h"
#include "transport/transport.h"

struct fleet;

/* Learns demand, where enough time has passed since the last answer to tell a rate. */
void demand_learn(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                  const struct report *report, uint64_t start_ns, bool with_before);
/* Notes a first contact; returns whether the key still waits for the other nodes' first reports. */
bool demand_first_contact(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                          const struct report *report, uint64_t start_ns);

#endif
