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
/* The most processes: an owner word and a lane have ten bits for them. */
#define JOINED_MOST 1024

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

/* A process leaves: how many are left beside it. Then joined_leave(), by which its place is free. */
uint32_t joined_leave_begin(struct limiter *limiter, uint32_t index);
void joined_leave(struct limiter *limiter, uint32_t index);

/* Whether the process of this entry has died. False where that cannot be told. */
bool joined_is_dead(const struct limiter *limiter, uint32_t index);

#endif
