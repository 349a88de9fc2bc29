/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-copy-update. Adapter to liburcu's "bulletproof" flavour: threads need not register, which a library cannot
 * ask of its host's threads, and the host may use any flavour of its own beside it.
 *
 * What we rely on: rcu_synchronize returns after every read section that was open when it was called has ended, and
 * is a full barrier. liburcu's assembly is opaque to ThreadSanitizer, so its edges are told to it here.
 */
#ifndef WEIR_BASE_RCU_H
#define WEIR_BASE_RCU_H

void rcu_enter(void);
void rcu_leave(void);
void rcu_synchronize(void); /* blocks; not within a read section */

#endif
