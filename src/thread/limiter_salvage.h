/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener makes of a limiter's memory that nobody else has: process/process_salvage.h, and what threads have
 * left. What has passed on their grants is charged, and no thread holds anything then.
 */
#ifndef WEIR_THREAD_LIMITER_SALVAGE_H
#define WEIR_THREAD_LIMITER_SALVAGE_H

#include <stdint.h>

struct limiter;
struct policy_set;

/*
 * First, before this process enters: nobody is joined, and no section is open. All calls of a process that joins wait
 * until limiter_salvage_end().
 */
void limiter_salvage_begin(struct limiter *limiter);

/*
 * `set`: the policies in force, compiled anew; fleet time and monotonic time. Time goes on (tick.h). 0; -ENOSPC: there
 * is no room for what must be there already.
 */
int limiter_salvage(struct limiter *limiter, const struct policy_set *set, uint64_t now_ns, uint64_t monotonic_ns);

void limiter_salvage_end(struct limiter *limiter);

#endif
