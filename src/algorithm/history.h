/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sliding window log: the time of every unit that passed, on plain memory.
 *
 * A unit that passed at t counts until t + period. The node's own units lie in a ring, oldest first; units of other
 * nodes in groups of (time, units), replaced whole with each answer of the fleet. A request of `cost` passes when
 *
 *     own units in the window + others' units in the window + cost <= limit
 *
 * which takes one comparison per unit that has left the window since the last look: O(1) per unit that passes. Of more
 * than `capacity` units (when more was charged than the limit) the latest are remembered, and of the others their
 * number.
 *
 * Invariants
 *   first <= end, end - first <= capacity; times of first .. end - 1 never decrease
 *   others = sum of the groups' units; times of the groups never decrease
 *
 * Each unit has a number, its index in the ring before that is wrapped: with the node's name it is the unit's name in
 * the fleet. Giving units back takes the latest ones away and uses their numbers again.
 *
 * The state of the key's cell is a summary: a is when the last unit will have left the window (fleet time; 0: there is
 * none), b how many units were in the window at the last look.
 */
#ifndef WEIR_ALGORITHM_HISTORY_H
#define WEIR_ALGORITHM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "algorithm/rule.h"

/* Most groups that others' units are kept in; of more, neighbours are joined, at the later time. */
#define HISTORY_GROUPS 64

struct history_group {
    uint64_t time_ns, units;
};

struct history {
    uint64_t first, end; /* numbers of own units in the window: first .. end - 1 */
    uint64_t remote;     /* units in the groups */
    uint32_t capacity;   /* of the ring; a power of two */
    uint32_t group_capacity, group_first, group_end;
    uint64_t counts;     /* the fleet has had own units up to this number */
    uint64_t acked_most; /* and, before some were given back, up to this one */
    uint64_t dropped; /* units that were pushed out of the ring: no later than the first in it, and counted until that
                         leaves the window. Of what is given back they go first */
};

/* Bytes of a log with a ring of this capacity. */
size_t history_size(uint32_t capacity, uint32_t group_capacity);

void history_init(struct history *history, uint32_t capacity, uint32_t group_capacity);

/* Makes an empty log `to` of at least the capacities hold what `from` holds. */
void history_copy(struct history *to, const struct history *from);

uint64_t *history_time(struct history *history, uint64_t number);

/* Drops what has left the window. */
void history_expire(struct history *history, const struct rule *rule, uint64_t now_ns);

/* Units in the window, as of the last history_expire. */
uint64_t history_units(const struct history *history);

/* Adds units at `now_ns`, or at the last unit's time where that is later. Where the ring is full the oldest are lost.
 */
void history_push(struct history *history, uint64_t now_ns, uint64_t units);

/* Takes away the latest of the own units, those that were pushed out first; returns how many there were. */
uint64_t history_pop(struct history *history, uint64_t units);

/* Takes away the own and others' units up to this time. */
void history_clear(struct history *history, uint64_t until_ns);

/* Replaces the others' units: groups in the order of time. */
void history_set_remote(struct history *history, const struct history_group *groups, size_t count);

/* The wait until `cost` fits, as of the last history_expire; 0: now; UINT64_MAX: never. */
uint64_t history_retry_after(struct history *history, const struct rule *rule, uint64_t now_ns, uint64_t cost);

/* The summary, as of the last history_expire. */
struct state history_summary(struct history *history, const struct rule *rule);

/* Of the summary alone. */
struct state history_fresh(void);

/* When the last unit of a summary leaves the window; fleet time. */
static inline uint64_t history_state_until(struct state s)
{
    return s.a;
}

/* Units in the window, everybody's. */
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
