/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet within one process: the transport for simulations and for tests under a fake clock.
 */
#ifndef WEIR_FLEET_MEMORY_H
#define WEIR_FLEET_MEMORY_H

#include "fleet/transport.h"
#include "weir/weir.h"

/* What the nodes share, in place of a Redis. Thread-safe. */
struct memory_fleet;

/* `wall_ns` is the shared clock, which also decides what has expired. NULL: out of memory. */
struct memory_fleet *memory_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg);
void memory_fleet_free(struct memory_fleet *fleet); /* after its transports are closed */

/* What can befall a fleet. */
void memory_fleet_set_down(struct memory_fleet *fleet, bool down);     /* refuses; rounds under way fail */
void memory_fleet_set_hung(struct memory_fleet *fleet, bool hung);     /* rounds are not answered until they time out */
void memory_fleet_lose_answers(struct memory_fleet *fleet, bool lose); /* rounds take effect, then fail */
void memory_fleet_forget(struct memory_fleet *fleet);                  /* comes back empty, as another run */

/* Sets the entry of a key; `value` NULL: takes it away. */
void memory_fleet_set_override(struct memory_fleet *fleet, const char *field, const char *value);

/* Sums over the records whose name contains `part`, less what was given back; for tests. */
uint64_t memory_fleet_sum(const struct memory_fleet *fleet, const char *part);
uint64_t memory_fleet_record_count(const struct memory_fleet *fleet);

int memory_transport_open(struct memory_fleet *fleet, const struct transport_config *config, struct transport **out,
                          weir_error *error);

#endif
