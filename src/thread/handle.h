/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread a handle belongs to. A thread that ends without weir_detach gives its handles back.
 *
 * weir_thread.owner is one of OWNER_* or the token of the thread that attached. A token is a multiple of TOKEN_STEP,
 * and no two threads of a process ever have the same.
 */
#ifndef WEIR_THREAD_HANDLE_H
#define WEIR_THREAD_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#define OWNER_FREE    UINT64_C(0) /* the place can be attached to */
#define OWNER_NONE    UINT64_C(1) /* attached, and bound to no thread: weir_unbind */
#define OWNER_LEAVING UINT64_C(2) /* being detached, by who set this */

struct limiter;
struct weir_thread;

/* The calling thread's token; OWNER_NONE where there is no way to learn of its end. */
uint64_t owner_token(void);

/* Ends the attachment. False: the handle is not attached, or somebody else is detaching it. True: the caller detaches.
 */
bool owner_claim(struct weir_thread *t);

/* Binds the handle to no thread. */
void owner_unbind(struct weir_thread *t);

/* From here on handles of threads that end are given back; before the first thread attaches. */
void owner_watch(struct limiter *limiter);
/* Until here. Returns when no ending thread is at a handle any more. */
void owner_forget(struct limiter *limiter);

#endif
