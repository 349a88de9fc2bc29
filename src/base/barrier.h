/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asymmetric barrier: one thread pays, so that the others need no fence on their hot path.
 */
#ifndef WEIR_BASE_BARRIER_H
#define WEIR_BASE_BARRIER_H

#include <stdbool.h>

/* Registers the process, once. False: this kernel has no expedited membarrier (before Linux 4.14, or a sandbox). */
bool barrier_available(void);

/*
 * On return, every thread of the process that was running has passed a full memory barrier since the call began. A
 * thread that was not running passes one (the scheduler's) before it runs again. Costs an interrupt on every core that
 * runs a thread of this process: microseconds.
 */
void barrier_all_threads(void);

#endif
