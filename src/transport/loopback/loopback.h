/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet within one process, for simulations and for tests under a fake clock: the data that its nodes share, and the
 * network between the fleet and its nodes.
 *
 * Without a link model a round is answered in the step after the one that began it. With a link model requests and
 * answers are delayed, lost or duplicated. All of that is drawn from the fleet's seed, so a run repeats exactly.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_LOOPBACK_H
#define WEIR_TRANSPORT_LOOPBACK_LOOPBACK_H

#include "transport/loopback/loopback_transport.h"

/* The data that the nodes share, in place of a Redis. Thread-safe. */
struct loopback_fleet;

/* `wall_ns` is the fleet's clock, by which records expire as well. NULL: out of memory. */
struct loopback_fleet *loopback_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg);
void loopback_fleet_free(struct loopback_fleet *fleet); /* after its transports are closed */

/* The clock by which messages travel, for tests in which the fleet's clock steps. It never steps back. */
void loopback_fleet_set_network_clock(struct loopback_fleet *fleet, uint64_t (*network_ns)(void *arg), void *arg);
void loopback_fleet_seed(struct loopback_fleet *fleet, uint64_t seed);

/* The link model of all transports opened from now on. */
void loopback_fleet_set_link(struct loopback_fleet *fleet, const struct loopback_link *link);

/* Faults of the fleet. */
void loopback_fleet_set_down(struct loopback_fleet *fleet, bool down); /* refuses rounds; rounds under way fail */
void loopback_fleet_set_hung(struct loopback_fleet *fleet,
                             bool hung); /* requests that arrive meanwhile are applied afterwards */
void loopback_fleet_lose_answers(struct loopback_fleet *fleet, bool lose);     /* rounds take effect, then fail */
void loopback_fleet_set_slow(struct loopback_fleet *fleet, uint64_t delay_ns); /* answers are sent later by this much */
void loopback_fleet_forget(struct loopback_fleet *fleet); /* loses its data, and comes back as another run */
void loopback_fleet_flush(struct loopback_fleet *fleet);  /* loses its data, and the run goes on */
/* Loses the records whose names contain `part`, as a Redis that evicts. */
void loopback_fleet_evict(struct loopback_fleet *fleet, const char *part);

/* Answers reports of records whose name contains `part` with `status`, and does not apply them; NULL: no more. */
void loopback_fleet_refuse(struct loopback_fleet *fleet, const char *part, int status);

/* A copy of the fleet's data, which is freed before the fleet; NULL: out of memory. */
struct loopback_snapshot;
struct loopback_snapshot *loopback_fleet_snapshot(struct loopback_fleet *fleet);
void loopback_snapshot_free(struct loopback_snapshot *snapshot); /* NULL is allowed */

/* Puts the data of a snapshot back, as another run or as the same one (a rollback that nodes have to notice by the
 * data). */
void loopback_fleet_restore(struct loopback_fleet *fleet, const struct loopback_snapshot *snapshot, bool same_run);

/* Sets the override of a key; `value` NULL removes it. */
void loopback_fleet_set_override(struct loopback_fleet *fleet, const char *field, const char *value);

/* The sum over the records whose name contains `part`, less refunds. */
uint64_t loopback_fleet_sum(const struct loopback_fleet *fleet, const char *part);
uint64_t loopback_fleet_record_count(const struct loopback_fleet *fleet);

/* Calls `call` for each author of each record, or for each unit of a sliding log. It must not call into the same fleet.
 */
typedef void (*loopback_record_fn)(void *arg, const char *record, const char *author, uint64_t count, uint64_t refunds);
void loopback_fleet_each(const struct loopback_fleet *fleet, loopback_record_fn call, void *arg);

/* Counters since the fleet was made. A round that arrives twice is applied twice. */
struct loopback_counts {
    uint64_t rounds, reports, size; /* sent by the nodes; `size` in bytes as Redis would be sent them */
    uint64_t applied, lost, duplicated, answers_lost;
};
void loopback_fleet_get_counts(const struct loopback_fleet *fleet, struct loopback_counts *counts);

/* Applies the messages that have arrived, as every step of a transport does. */
void loopback_fleet_run(struct loopback_fleet *fleet);

#endif
