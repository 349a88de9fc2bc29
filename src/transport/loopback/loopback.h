/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet within one process: the transport for simulations and for tests under a fake clock, and the network between
 * it and the nodes.
 *
 * Without a link model a round is answered in the step after the one that began it. With one, requests and answers take
 * their time, get lost, or come twice; all of it is drawn from the fleet's seed, so it repeats exactly.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_LOOPBACK_H
#define WEIR_TRANSPORT_LOOPBACK_LOOPBACK_H

#include "transport/transport.h"
#include "weir/weir.h"

/* What the nodes share, in place of a Redis. Thread-safe. */
struct loopback_fleet;

/* `wall_ns` is the shared clock, which also decides what has expired. NULL: out of memory. */
struct loopback_fleet *loopback_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg);
void loopback_fleet_free(struct loopback_fleet *fleet); /* after its transports are closed */

/* The time by which messages travel, where the shared clock is not to be trusted with that; it never steps back. */
void loopback_fleet_set_network_clock(struct loopback_fleet *fleet, uint64_t (*network_ns)(void *arg), void *arg);
void loopback_fleet_seed(struct loopback_fleet *fleet, uint64_t seed);

/* What befalls the messages of one node. Parts are of a million. */
struct loopback_link {
    uint64_t delay_min_ns, delay_max_ns; /* of each message, request or answer */
    uint32_t requests_lost_ppm;          /* never arrive */
    uint32_t answers_lost_ppm;           /* the request has taken effect */
    uint32_t duplicates_ppm;             /* requests that arrive once more, later by up to: */
    uint64_t duplicate_delay_ns;         /* where it is above the interval, after newer ones */
    uint32_t unsaid_ppm;                 /* single reports that are not applied, with the status -EAGAIN */
    bool backs_off;                      /* after a failure the next round waits, as a connection to Redis does */
};

/* Of all transports opened from now on. */
void loopback_fleet_set_link(struct loopback_fleet *fleet, const struct loopback_link *link);
void loopback_transport_set_link(struct transport *transport, const struct loopback_link *link);

/* Cut off: nothing that is sent arrives, and nobody is told. */
void loopback_transport_set_cut(struct transport *transport, bool cut);

/* The answers alone do not arrive. */
void memory_transport_set_deaf(struct transport *transport, bool deaf);

/* The path is dead: what is sent first stays in it and arrives when the path is back; all that follows is lost. */
void memory_transport_set_stuck(struct transport *transport, bool stuck);

/* The node is dead: nothing is begun any more. What it has sent arrives. weir_close then says nothing and waits for
 * nothing. */
void loopback_transport_kill(struct transport *transport);

/* What can befall a fleet. */
void loopback_fleet_set_down(struct loopback_fleet *fleet, bool down);     /* refuses; rounds under way fail */
void loopback_fleet_set_hung(struct loopback_fleet *fleet, bool hung);     /* what arrives is worked off afterwards */
void loopback_fleet_lose_answers(struct loopback_fleet *fleet, bool lose); /* rounds take effect, then fail */
void loopback_fleet_set_slow(struct loopback_fleet *fleet, uint64_t delay_ns); /* so much later are answers sent */
void loopback_fleet_forget(struct loopback_fleet *fleet);                      /* comes back empty, as another run */
void loopback_fleet_flush(struct loopback_fleet *fleet);                       /* is emptied, and runs on */

/* Reports of records whose name contains `part` are answered with `status` and not taken; NULL: all are taken. */
void loopback_fleet_refuse(struct loopback_fleet *fleet, const char *part, int status);

/* What a fleet remembers now; NULL: out of memory. */
struct loopback_snapshot;
struct loopback_snapshot *loopback_fleet_snapshot(struct loopback_fleet *fleet);
void loopback_snapshot_free(struct loopback_snapshot *snapshot); /* NULL is allowed */

/* Comes back as it was then, as another run or (a rollback nobody is told of) the same. False: out of memory; it has
 * come back empty. */
bool loopback_fleet_restore(struct loopback_fleet *fleet, const struct loopback_snapshot *snapshot, bool same_run);

/* Sets the entry of a key; `value` NULL: takes it away. */
void loopback_fleet_set_override(struct loopback_fleet *fleet, const char *field, const char *value);

/* Sums over the records whose name contains `part`, less what was given back; for tests. */
uint64_t loopback_fleet_sum(const struct loopback_fleet *fleet, const char *part);
uint64_t loopback_fleet_record_count(const struct loopback_fleet *fleet);

/* Calls for each author of each record, or for each unit of a log. It must not call into the same fleet. */
typedef void (*loopback_record_fn)(void *arg, const char *record, const char *author, uint64_t count, uint64_t refunds);
void loopback_fleet_each(const struct loopback_fleet *fleet, loopback_record_fn call, void *arg);

/* So far. A round that arrives twice is applied twice. */
struct loopback_counts {
    uint64_t rounds, reports, size; /* sent by the nodes; bytes as Redis would be sent them */
    uint64_t applied, lost, duplicated, answers_lost;
};
void loopback_fleet_get_counts(const struct loopback_fleet *fleet, struct loopback_counts *counts);

/* Works off what has arrived, as every step of a transport does. */
void loopback_fleet_run(struct loopback_fleet *fleet);

int loopback_transport_open(struct loopback_fleet *fleet, const struct transport_config *config, struct transport **out,
                            weir_error *error);

#endif
