/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weir that processes share: opened by one (weir_open_shared), joined by those that it forks later. What all of them
 * use lies in memory that they share. A process has its own background thread, handles of its threads, connection and
 * locks, and leads for as long as it does the background work for all (leader.h).
 */
#ifndef WEIR_LIMITER_JOIN_H
#define WEIR_LIMITER_JOIN_H

#include "weir/weir.h"

/*
 * Joins in a forked child, before any other call on `w`. 0; -EINVAL: `w` is not shared, or this process has joined;
 * -ENOSPC: all places are taken; -EAGAIN: no background thread could be started.
 */
int join_enter(weir *w, weir_error *error);

#endif
