/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-copy-update: the adapter to liburcu's "bulletproof" flavour. Its threads need not register, which a library
 * cannot ask of its host's threads; and the host may use any flavour of its own beside it.
 *
 * What this file relies on: rcu_synchronize returns after every read section that was open at the call has ended, and
 * is a full barrier. ThreadSanitizer cannot see into liburcu's assembly, so rcu.c announces the ordering to it.
 *
 * Fork. A child has none of the parent's threads, but a copy of liburcu's list of them. The child would wait for ever
 * for a thread of the parent that was in a read section. So liburcu's handlers run around every fork() of the process,
 * from the loading of this library to its unloading; afterwards the child's list has only the thread that forked.
 *
 * The handlers are registered that early because a fork takes locks in the reverse order of registration. A host may
 * hold a lock of its own while it calls weir, and take that lock for a fork too; then both orders agree. A fork waits
 * for the end of a grace period, so a thread must not fork within a read section. A host that uses this flavour of
 * liburcu itself must not run its handlers a second time.
 */
#ifndef WEIR_THREAD_RCU_H
#define WEIR_THREAD_RCU_H

/* Whether RCU can be used in a child after fork: 0, or a negative errno value. */
int rcu_ready(void);

void rcu_enter(void);
void rcu_leave(void);
void rcu_synchronize(void); /* blocks; must not be called within a read section */

#endif
