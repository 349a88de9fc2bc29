/* SPDX-License-Identifier: Apache-2.0 */
/* Read sections of callers without a handle, which count in lanes that several of them share; see rcu.h. Names: rcu_.
 */
#ifndef WEIR_THREAD_RCU_LANE_H
#define WEIR_THREAD_RCU_LANE_H

struct limiter;

/* A read section of a caller without a handle. Returns what ends it; sections may be nested. */
unsigned rcu_enter_lane(struct limiter *limiter);
void rcu_leave_lane(struct limiter *limiter, unsigned lane);

#endif
