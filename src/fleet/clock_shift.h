/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the states of all keys when fleet time is stepped: a sweep over the table. */
#ifndef WEIR_FLEET_CLOCK_SHIFT_H
#define WEIR_FLEET_CLOCK_SHIFT_H

#include <stdbool.h>
#include <stdint.h>

struct fleet;
struct policy_set;

struct clock_shift {
    uint32_t cells_done; /* cells already visited; the number of cells: nothing to do */
};

/*
 * Moves the states of the next slice of cells by `delta_ns`. `now_ns`: by the time before the step. True: that was the
 * last slice.
 */
bool clock_shift_step(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns);

#endif
