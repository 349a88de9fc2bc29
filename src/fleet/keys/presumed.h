/* SPDX-License-Identifier: Apache-2.0 */
/* What is presumed of nodes that fell silent: they are cut off and go on by their share, or they have failed. */
#ifndef WEIR_FLEET_KEYS_PRESUMED_H
#define WEIR_FLEET_KEYS_PRESUMED_H

#include <stdbool.h>
#include <stdint.h>

struct demand_stats;
struct rule;
struct fleet;

/* The fraction of all demand that silent nodes have; below FRACTION_WHOLE. */
uint32_t presumed_fraction(const struct demand_stats *demand);
/* Whether the last answer showed that the nodes that were silent have failed. */
bool presumed_failed(const struct fleet *fleet, const struct demand_stats *demand);
/* Units of silent nodes that count in a window or log now, in the form of allowance.level. */
uint64_t presumed_in_window(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                            uint64_t start_ns);

#endif
