/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a weir over any transport. weir_open opens one over Redis; tests, simulators and benchmarks bring another.
 * Names: weir_open_, locks_.
 */
#ifndef WEIR_LIMITER_WEIR_OPEN_H
#define WEIR_LIMITER_WEIR_OPEN_H

#include "weir/weir.h"

struct transport;

/* Takes over the transport, also when it fails. NULL: no fleet. 0, or a negative errno with a sentence. */
int weir_open_on(const weir_options *options, struct transport *transport, weir **out, weir_error *error);

/* The locks of a process's own. 0, or a negative errno. */
int locks_init(weir *w);

#endif
