/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A halt of all read sections: the process that halts them is alone with the table, and repairs what dead processes
 * left.
 */
#ifndef WEIR_THREAD_RCU_HALT_H
#define WEIR_THREAD_RCU_HALT_H

#include <stdbool.h>
#include <stdint.h>

struct limiter;
struct weir_thread;

/*
 * Waits until no other thread is in a section, but for the dead: dead[i] tells of the process with index i. Gives up
 * after 2 ms. False: another process halts the sections, or the wait was too long. rcu_halt_end() ends the halt.
 */
bool rcu_halt(struct limiter *limiter, const bool *dead);
void rcu_halt_end(struct limiter *limiter);

/* The sections of a process that has died have ended: of a handle of that process, and of its callers without one. */
void rcu_halt_forget(struct weir_thread *t);
void rcu_halt_forget_lanes(struct limiter *limiter, uint32_t process);

#endif
