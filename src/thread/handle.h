/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of threads: a handle that has a thread's token as its owner is given back when the thread ends without
 * weir_detach. A token is a multiple of TOKEN_STEP, and no two threads of a process ever have the same.
 */
#ifndef WEIR_THREAD_HANDLE_H
#define WEIR_THREAD_HANDLE_H

#include <stdint.h>

struct limiter;

/* The calling thread's token; HANDLE_UNBOUND where there is no way to learn of its end. */
uint64_t handle_token(void);

/* From this call on, handles of threads that end are given back. Before the first thread attaches. */
void handle_watch(struct limiter *limiter);
/* Ends that. When it returns, no ending thread is at a handle any more. */
void handle_unwatch(struct limiter *limiter);

#endif
