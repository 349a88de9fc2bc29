/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread a handle belongs to. A thread that ends without weir_detach gives its handles back.
 *
 * weir_thread.owner is one of HANDLE_* or the token of the thread that attached. A token is a multiple of TOKEN_STEP,
 * and no two threads of a process ever have the same.
 */
#ifndef WEIR_THREAD_HANDLE_H
#define WEIR_THREAD_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#define HANDLE_FREE    UINT64_C(0) /* the place can be attached to */
#define HANDLE_UNBOUND UINT64_C(1) /* attached, and bound to no thread: weir_unbind */
#define HANDLE_LEAVING UINT64_C(2) /* being detached, by the thread that set this */

struct limiter;
struct weir_thread;

/* The calling thread's token; HANDLE_UNBOUND where there is no way to learn of its end. */
uint64_t handle_token(void);

/* Claims the handle for detaching it. False: it is not attached, or another thread is detaching it. */
bool handle_claim(struct weir_thread *t);

/* Binds the handle to no thread. */
void handle_unbind(struct weir_thread *t);

/* From this call on, handles of threads that end are given back. Before the first thread attaches. */
void handle_watch(struct limiter *limiter);
/* Ends that. When it returns, no ending thread is at a handle any more. */
void handle_unwatch(struct limiter *limiter);

#endif
