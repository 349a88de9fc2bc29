/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of a key, for the sliding log: the time of every unit that passed, in plain memory.
 *
 * A unit that passed at t counts until t + period. The local units are in a ring, oldest first. The remote units are in
 * groups of (time, units), and each answer of the fleet replaces all groups. A request of `cost` passes when
 *
 *     local units in the window + remote units in the window + cost <= limit
 *
 * This takes one comparison for each unit that has left the window since the last history_expire: O(1) per unit that
 * passes. When more units than `capacity` were charged, the ring has the latest, and `dropped` counts the others.
 *
 * Invariants
 *   renumbered <= first <= end, and end - first <= capacity.
 *   Times of first .. end - 1 never decrease.
 *   remote = sum of the groups' units; times of the groups never decrease
 *
 * Each unit has a number: its index in the ring before wrapping. The node's name and the number, less `renumbered`,
 * identify the unit in the fleet. A refund removes the latest units, and their numbers are used again.
 *
 * A refund of dropped units moves the numbers that the ring has in the fleet down by as many. The fleet may have stored
 * the dropped units, by the numbers before those of the ring. So what is refunded in the fleet are the last numbers, as
 * ever, and all units of the ring are reported again, with their times.
 *
 * The state of the key's cell is a summary as of the last history_expire. The word a is the fleet time at which the
 * last unit will have left the window; 0: no unit is left. The word b is the number of units in the window.
 */
#ifndef WEIR_ALGORITHM_HISTORY_H
#define WEIR_ALGORITHM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "algorithm/rule.h"

/* The most groups of remote units. Of more, neighbours are joined, at the later time. */
#define HISTORY_GROUPS 64

struct history_group {
    uint64_t time_ns, units;
};

struct history {
    uint64_t first, end; /* numbers of local units in the window: first .. end - 1 */
    uint64_t remote;     /* units in the groups */
    uint32_t capacity;   /* of the ring; a power of two */
    uint32_t renumbered; /* a unit's number here, less its number in the fleet */
    uint16_t group_capacity, group_first, group_end;
    uint64_t counts;     /* the local units up to this number have been reported */
    uint64_t acked_most; /* before refunds, the units up to this number had been reported; a number in the fleet */
    uint64_t dropped;    /* units pushed out of the ring. They are counted until the first unit of the ring leaves the
                            window, and are refunded first */
};

/* The bytes of a history with these capacities. */
size_t history_size(uint32_t capacity, uint32_t group_capacity);

void history_init(struct history *history, uint32_t capacity, uint32_t group_capacity);

/* Copies `from` to the empty history `to`, whose capacities are at least as large. */
void history_copy(struct history *to, const struct history *from);

uint64_t *history_time(struct history *history, uint64_t number);

/* The number that a unit has in the fleet. */
static inline uint64_t history_fleet_number(const struct history *history, uint64_t number)
{
    return number - history->renumbered;
}

/* Removes the units that have left the window. */
void history_expire(struct history *history, const struct rule *rule, uint64_t now_ns);

/* The units in the window, as of the last history_expire. */
uint64_t history_units(const struct history *history);

/* Adds units at `now_ns`, or at the time of the last unit where that is later. A full ring drops its oldest units.
 */
void history_push(struct history *history, uint64_t now_ns, uint64_t units);

/* Removes up to `units` of the local units: the dropped ones first, then the latest. Returns how many were removed. */
uint64_t history_pop(struct history *history, uint64_t units);

/* Removes the local and remote units up to this time. */
void history_clear(struct history *history, uint64_t until_ns);

/* Restores the invariants after a change that was not ended, as its process died. */
void history_mend(struct history *history);

/*
 * Restores them in memory that may be damaged; the capacities are known to be right. No unit is of a time after
 * `now_ns` then. False: it makes no sense.
 */
bool history_salvage(struct history *history, uint64_t now_ns);

/* Replaces the remote units; the groups are in the order of time. */
void history_set_remote(struct history *history, const struct history_group *groups, size_t count);

/* The wait until `cost` fits, as of the last history_expire; 0: now; UINT64_MAX: never. */
uint64_t history_retry_after(struct history *history, const struct rule *rule, uint64_t now_ns, uint64_t cost);

/* The summary, as of the last history_expire. */
struct state history_summary(struct history *history, const struct rule *rule);

/* The functions below use the summary alone. */
struct state history_fresh(void);

/* When the last unit will have left the window: fleet time; 0: there is none. */
static inline uint64_t history_state_until(struct state s)
{
    return s.a;
}

/* The units of all nodes in the window, as of the last history_expire. */
static inline uint64_t history_state_count(struct state s)
{
    return s.b;
}
uint64_t history_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
uint64_t history_reset_after(struct state s, uint64_t now_ns);
/* See rule.h. */
struct usage history_usage(struct state s, uint64_t now_ns);
struct state history_resume(struct usage usage, uint64_t now_ns);
uint64_t history_state_retry_after(const struct rule *rule, struct state s, uint64_t now_ns,
                                   uint64_t cost); /* at most */

#endif
