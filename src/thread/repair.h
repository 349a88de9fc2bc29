/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that has died leaves in a shared limiter: handles with grants and pinned cells, locks of slots, open
 * read sections, and its place among the joined ones. The leader's background thread looks for the dead in turn; the
 * background thread of any process looks at all of them where a call waits for long (process_shared.stalled).
 */
#ifndef WEIR_THREAD_REPAIR_H
#define WEIR_THREAD_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

struct limiter;

/* Looks at the next joined process, and repairs what it left if it has died. *cursor: of the caller. */
void repair_next(struct limiter *limiter, uint32_t *cursor);

/* Looks at all of them. By one thread of a process. */
void repair_all(struct limiter *limiter);

/*
 * Frees the locks of dead processes that calls may wait for without end, and does nothing else. By any thread, also
 * within a read section. `arg`: the limiter. True: there are dead processes, and maybe locks that only a repair frees.
 */
bool repair_locks(void *arg);

#endif
