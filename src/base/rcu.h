/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-copy-update. Adapter to liburcu's "bulletproof" flavour: threads need not register, which a library cannot
 * ask of its host's threads, and the host may use any flavour of its own beside it.
 *
 * What we rely on: rcu_synchronize returns after every read section that was open when it was called has ended, and
 * is a full barrier. liburcu's assembly is opaque to ThreadSanitizer, so its edges are told to it here.
 *
 * Fork: a child has none of the parent's threads, but a copy of liburcu's list of them. Without more a thread of the
 * parent that was in a read section would be waited for in the child for ever. So liburcu's handlers are run around
 * every fork() of the process, from when this library is loaded until it is unloaded: the child's list has the thread
 * that forked and no other. They are registered that early because a fork takes locks in the reverse order of
 * registration: a host that holds a lock of its own while it calls weir, and takes that lock for a fork as well, does
 * so in one order. A fork waits for the end of a grace period that is under way; so a thread does not fork within a
 * read section. A host that uses this flavour of liburcu itself must not run its handlers a second time.
 */
#ifndef WEIR_BASE_RCU_H
#define WEIR_BASE_RCU_H

/* Whether a child after fork can use this: 0, or a negative errno value. */
int rcu_ready(void);

void rcu_enter(void);
void rcu_leave(void);
void rcu_synchronize(void); /* blocks; not within a read section */

#endif
