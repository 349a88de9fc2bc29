/* SPDX-License-Identifier: Apache-2.0 */
/* The outage mode of each policy: which limits hold while the fleet's news is old; see outage.c. */
#ifndef WEIR_FLEET_OUTAGE_H
#define WEIR_FLEET_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

struct fleet;
struct overrides;
struct policy_set;
struct process;

struct outage_state {
    bool began;       /* a policy has left OUTAGE_MODE_NONE since the last good round */
    uint64_t back_ns; /* first good round after the last outage, monotonic; 0: there was no outage */
};

/* Sets every policy's outage mode as of `monotonic_ns`. True: one has changed. Within an RCU section. */
bool outage_update(struct fleet *fleet, struct policy_set *set, uint64_t monotonic_ns);

/* Overrides of single keys take the modes of their policies. */
void outage_follow(const struct policy_set *set, struct overrides *overrides);

/* `set` is about to replace `old`: its policies take the modes of the old policies with the same name. NULL: none. */
void outage_keep(const struct process *process, struct policy_set *set, const struct policy_set *old);

#endif
