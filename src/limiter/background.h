/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread: its schedule, and waiting for a sync. */
#ifndef WEIR_LIMITER_BACKGROUND_H
#define WEIR_LIMITER_BACKGROUND_H

#include "weir/weir.h"

int background_start(weir *w); /* 0, or a negative errno value */
/* Ends the thread and waits for that; without a thread does nothing. wake_fd stays open. */
void background_stop(weir *w);

struct limiter;

/* For limiter.misused: to the log, or to standard error where there is none, as WEIR_DEBUG asks for it. */
void background_misused(struct limiter *limiter, const char *sentence);

/* For limiter.looked: says once that nobody has polled for long. */
void background_looked(struct limiter *limiter, uint64_t monotonic_ns);

/* Without a background thread: does what is due, and returns the monotonic time of the next work. */
uint64_t background_poll(weir *w, uint64_t monotonic_ns);

/* weir_sync where the background thread does the sync: the caller waits. */
int background_sync_there(weir *w, uint32_t timeout_ms);

/* weir_sync where the caller does the sync. `closing`: returns at once where Redis cannot be reached. */
int background_sync_here(weir *w, uint32_t timeout_ms, bool closing);

#endif
