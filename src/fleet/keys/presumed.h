/* SPDX-License-Identifier: Apache-2.0 */
/* What is presumed of nodes that fell silent: they are cut off and go on by their share, or they have failed. */
#ifndef WEIR_FLEET_KEYS_PRESUMED_H
#define WEIR_FLEET_KEYS_PRESUMED_H

#include <stdbool.h>
#include <stdint.h>

struct demand_stats;
struct rule;
struct fleet;
struct sync_full;

/* The fraction of all demand that silent nodes have; below FRACTION_WHOLE. */
uint32_t presumed_fraction(const struct demand_stats *demand);
/* Whether the last answer showed that the nodes that were silent have failed. */
bool presumed_failed(const struct fleet *fleet, const struct demand_stats *demand);
/*
 * Whether silent nodes have asked for their whole share of a log since they fell silent. They then have that share of
 * any period, whenever its units leave. So the share is held for them, and the estimate is of the other nodes alone. A
 * node that was away itself does not know which nodes are silent.
 */
bool presumed_held(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                   uint64_t kept);
/*
 * Units of silent nodes that count in a log now, in the form of allowance.level. `kept`: units from before the silence
 * that count until the next answer. Nobody has had the room that these still take.
 */
uint64_t presumed_in_log(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                         uint64_t kept);
/* Units of silent nodes that count in a window now, in the form of allowance.level. */
uint64_t presumed_in_window(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                            uint64_t start_ns);
/*
 * Units of silent nodes that count in a fixed window now; this node may have been away itself. `remote`: units of the
 * other nodes that the answer has brought. Goes by the last answer's allowance, until the new one is stored.
 */
uint64_t presumed_in_fixed(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                           uint64_t start_ns, uint64_t remote);

#endif
