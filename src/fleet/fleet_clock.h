/* SPDX-License-Identifier: Apache-2.0 */
/* Fleet time: the node's monotonic clock plus an offset that follows the fleet's clock; see fleet_clock.c. */
#ifndef WEIR_FLEET_FLEET_CLOCK_H
#define WEIR_FLEET_FLEET_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct fleet;

struct fleet_clock {
    uint64_t best_rtt_ns;
    uint64_t least_rtt_ns;   /* of all samples; 0: none yet */
    int64_t best_error_ns;   /* fleet's clock - our fleet time, by the sample with the least round trip */
    unsigned samples;        /* since the best was last chosen */
    int64_t slew_left_ns;    /* still to be slewed */
    int64_t step_ns;         /* by which the states of all keys are being moved; 0: no step is under way */
    bool readers_drained;    /* no check is under way that began before the step */
    bool known;              /* fleet time is the fleet's; before that, a guess by the host's wall clock */
    int64_t logged_ahead_ns; /* how far fleet time was ahead of Redis's clock in the last log line; 0: no line */
    bool (*move_origin)(void *arg, int64_t delta_ns); /* moves the origin of bucket times in all rules; false: retry */
    void *move_arg;
};

/* Takes the sample of the round that has just been answered. */
void fleet_clock_sample(struct fleet *fleet, uint64_t monotonic_ns);

/* Logs once that fleet time and Redis's clock are far apart. */
void fleet_clock_report(struct fleet *fleet);

/* Goes on with a step that is under way. Not within an RCU section. */
void fleet_clock_step(struct fleet *fleet, uint64_t monotonic_ns);

/* Slews by as much as `elapsed_ns` allows. */
void fleet_clock_slew(struct fleet *fleet, uint64_t elapsed_ns);

#endif
