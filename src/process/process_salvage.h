/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener makes of the memory of the process layer that nobody else has: a process may have died in it at any
 * instruction, or somebody may have written to the file. So every lock is free then, and every number that leads to a
 * place in memory, or bounds a loop, is in range. What is kept of a key beyond that is not looked at.
 *
 * All may be done again by another opener, where this one dies.
 */
#ifndef WEIR_PROCESS_PROCESS_SALVAGE_H
#define WEIR_PROCESS_PROCESS_SALVAGE_H

#include <stdint.h>

struct policy_set;
struct process;

/*
 * First: all but what slots that are to be settled need. `set`: the policies in force, compiled anew; `now_ns`: fleet
 * time. The process is in no other one's memory, and has its lock_word.
 */
void process_salvage(struct process *process, const struct policy_set *set, uint64_t now_ns, uint64_t monotonic_ns);

/* Then, when each settling was resolved that had begun (settling.h): the locks of logs, and what cells count as held.
 */
void process_salvage_held(struct process *process);

#endif
