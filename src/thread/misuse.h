/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WEIR_DEBUG=1: finds calls that weir.h does not allow, with a handle that was detached or is another thread's, within
 * another call (as from a signal handler), and after weir_close.
 *
 * A weir that is watched never has an epoch in which a slot answers. So every call takes its slow path, and the fast
 * path needs no look at all. A weir that is closed keeps its memory, so that what comes later is found.
 *
 * Without WEIR_DEBUG one misuse is found: a change of policies within a call of the same thread would wait for itself.
 */
#ifndef WEIR_THREAD_MISUSE_H
#define WEIR_THREAD_MISUSE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "thread/limiter.h"
#include "thread/thread.h"

/* Whether the program asks for it: WEIR_DEBUG is set, and not to 0. */
bool misuse_is_asked_for(void);

/* Looks at a call with a handle; says what is wrong by limiter.misused, each kind once. False: the call is to end. */
bool misuse_allows(const struct weir_thread *t, const char *call);

/* The begin of a call with a handle. False: the handle's weir is closed, so nothing may be touched. */
static inline bool misuse_begin(const struct weir_thread *t, const char *call)
{
    return likely(!t->is_watched) || misuse_allows(t, call);
}

/* misuse_allows() of a call without a handle. */
bool misuse_allows_without(struct limiter *limiter, const char *call);

/* misuse_begin() of a call without a handle. */
static inline bool misuse_begin_without(struct limiter *limiter, const char *call)
{
    return likely(!limiter->is_watched) || misuse_allows_without(limiter, call);
}

/* Whether the calling thread is within a read section of a handle of its own. */
bool misuse_is_within_call(const struct limiter *limiter);

/* A watched limiter is closed: its memory stays, for later calls to be found. */
void misuse_keep(struct limiter *limiter);

#endif
