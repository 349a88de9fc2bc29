/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asymmetric barrier: one thread pays, so that the others need no fence on their hot path.
 */
#ifndef WEIR_BASE_BARRIER_H
#define WEIR_BASE_BARRIER_H

#include <stdbool.h>

/* Whose threads pass a barrier: those of this process, or of every process that has registered for it. */
enum barrier_reach { BARRIER_OWN, BARRIER_JOINED };

/*
 * Registers the process, once for each reach. False: this kernel has no expedited membarrier of this reach (before
 * Linux 4.14, or 4.16 for BARRIER_JOINED, or in a sandbox).
 */
bool barrier_available(enum barrier_reach reach);

/*
 * On return, every thread in reach that was running has passed a full memory barrier since the call began. A thread
 * that was not running passes one (the scheduler's) before it runs again. Costs an interrupt on every core that runs a
 * thread in reach: microseconds.
 */
void barrier_all_threads(enum barrier_reach reach);

#endif
