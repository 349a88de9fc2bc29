/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of one node to a fleet within one process, and the faults of its path to the fleet. */
#ifndef WEIR_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H
#define WEIR_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H

#include "transport/transport.h"
#include "weir/weir.h"

struct loopback_fleet;

/* A link model: what happens to one node's messages. Probabilities are per million. */
struct loopback_link {
    uint64_t delay_min_ns, delay_max_ns; /* of each message, request or answer */
    uint32_t requests_lost_ppm;          /* never arrive */
    uint32_t answers_lost_ppm;           /* the request takes effect, the answer is lost */
    uint32_t duplicates_ppm;             /* requests that arrive a second time, later by up to duplicate_delay_ns */
    uint64_t duplicate_delay_ns;         /* above the sync interval: after newer requests */
    uint32_t unsaid_ppm;                 /* single reports that are not applied, with the status -EAGAIN */
    bool backs_off;                      /* after a failure the next round waits, as a connection to Redis does */
};

int loopback_transport_open(struct loopback_fleet *fleet, const struct transport_config *config, struct transport **out,
                            weir_error *error);

void loopback_transport_set_link(struct transport *transport, const struct loopback_link *link);

/* The node is cut off: no message arrives, and the node is not told. */
void loopback_transport_set_cut(struct transport *transport, bool cut);

/* The node's answers are lost; its requests arrive. */
void loopback_transport_set_deaf(struct transport *transport, bool deaf);

/* The path is dead. The first message stays in it and arrives when the path is back; later messages are lost. */
void loopback_transport_set_stuck(struct transport *transport, bool stuck);

/* The node is dead: its rounds no longer begin. Messages that were sent arrive. weir_close then reports nothing and
 * does not wait. */
void loopback_transport_kill(struct transport *transport);

#endif
