/* SPDX-License-Identifier: Apache-2.0 */
/* The prefetches that bursts of keys and bursts of requests share. Names: burst_. */
#ifndef WEIR_CHECK_CHECK_BURST_H
#define WEIR_CHECK_CHECK_BURST_H

#include "weir/weir.h"

struct policy_set;
struct weir_thread;

/* Prefetches the cells of a key without a slot. Within an RCU section. */
void burst_prefetch_cells(const struct weir_thread *t, const struct policy_set *set, const weir_key *key);

#endif
