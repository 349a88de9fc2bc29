/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread: what is due, when; and waiting for a round of the fleet. */
#ifndef WEIR_LIMITER_BACKGROUND_H
#define WEIR_LIMITER_BACKGROUND_H

#include "limiter/weir_private.h"

int background_start(weir *w); /* 0, or a negative errno value */
void background_stop(weir *w); /* joins it, where there is one */

/* Without a thread: everything that is due; returns the monotonic time at which something is due again. */
uint64_t background_poll(weir *w, uint64_t monotonic_ns);

/* weir_sync by the background thread: waits for it. */
int background_sync_there(weir *w, uint32_t timeout_ms);

/* weir_sync by the caller, where no background thread runs. `closing`: gives up at once where Redis is out of reach. */
int background_sync_here(weir *w, uint32_t timeout_ms, bool closing);

#endif
