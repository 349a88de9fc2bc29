/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over the whole table, in slices that do not delay the ticks. Each cell is pinned while it is visited; checks
 * go on beside it.
 */
#ifndef WEIR_FLEET_KEYS_SWEEP_H
#define WEIR_FLEET_KEYS_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

struct rule;
struct sync_full;
struct fleet;
struct policy_set;

/* What a sweep is for. */
struct sweep {
    struct fleet *fleet;
    const struct policy_set *set;
    const bool *groups; /* by group id: visits the cells of these alone; NULL: of any */
    uint64_t now_ns;
    int64_t delta_ns;  /* clock_shift.c */
    uint64_t began_ns; /* clock_shift.c: no key was used here before it; 0: not wanted */
};

typedef void (*sweep_visit)(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule);

/* Visits cells from *cursor on, for at most SWEEP_SLICE_NS. True: that was the last of the table. */
bool sweep_slice(const struct sweep *sweep, uint32_t *cursor, sweep_visit visit);

#endif
