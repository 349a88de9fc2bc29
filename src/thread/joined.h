/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that use one limiter: the one that opened it, and those that joined since. A limiter that is not shared
 * has one.
 *
 * A process is known by its id and the time it was started, so another process that gets the id later is not taken for
 * it. The system says both in /proc.
 */
#ifndef WEIR_THREAD_JOINED_H
#define WEIR_THREAD_JOINED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOINED_NONE UINT32_MAX
/* What a limiter knows of a process. It has no pointers, as struct limiter_shared. */
struct joined_process {
    _Atomic int32_t pid;      /* 0: the place is free */
    _Atomic uint32_t leaving; /* 1: the process is about to leave */
    _Atomic uint64_t started; /* clock ticks since boot, as /proc/PID/stat has it; 0: not known, or not yet */
};

struct limiter;

/* The number of this process's PID namespace; 0: not known. Ids of two namespaces say nothing of each other. */
uint64_t joined_pid_namespace(void);

/* Enters the calling process. Returns its index, or JOINED_NONE: all places are taken. */
uint32_t joined_enter(struct limiter *limiter);

/* Processes that have ever been joined have lower indices: a walk over places ends here. */
uint32_t joined_high(const struct limiter *limiter);
/*
 * Enters the calling process in a place that no living one has, where no other process can enter: what a dead one has
 * left there is this process's from now on, as the place tells.
 */
void joined_take_place(struct limiter *limiter, uint32_t index);

/* A process leaves: how many are left beside it. Then joined_leave(), by which its place is free. */
uint32_t joined_leave_begin(struct limiter *limiter, uint32_t index);
void joined_leave(struct limiter *limiter, uint32_t index);

/*
 * Whether the process of this entry has died. False where that cannot be told, and of a free entry. True of an entry
 * that there is not: memory that is damaged names it.
 */
bool joined_is_dead(const struct limiter *limiter, uint32_t index);

/*
 * Whether a process has this place and may live; for an opener, which looks longer. The time when a process was started
 * is known soon after it has entered, where the system tells it at all: an entry without one is damaged, or its process
 * has died at that moment.
 */
bool joined_lives(const struct limiter *limiter, uint32_t index);

/*
 * A number that no other process has in this memory: of its place, its id and its start (process.ticket). It has
 * entered.
 */
uint64_t joined_ticket(const struct limiter *limiter, uint32_t index);

/* Whether the process of a ticket has died, or has left, or there never was one. `arg`: the limiter. */
bool joined_has_died(void *arg, uint64_t ticket);

#endif
