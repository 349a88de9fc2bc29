/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which packets of a burst may pass.
 *
 * A packet is checked by all enforced policies that concern it at once: all of them count it, or none does. What they
 * let pass is then held against the policies in shadow mode, one by one.
 *
 * An override of all policies ("*:198.51.100.0/24") is in the library one of each policy whose keys lie in its network.
 * Beside these, packets of a network that is allowed are checked by no other policy, and packets of one that is denied
 * are dropped here where no such policy is enforced.
 */
#ifndef WEIR_GATEWAY_DECISION_H
#define WEIR_GATEWAY_DECISION_H

#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "burst.h"
#include "kinds/packet_kind.h"
#include "network.h"
#include "record/record.h"
#include "xdp/xdp.h"

struct counters;
struct gateway;

/* What one thread decides with. */
struct decision {
    struct gateway *gateway;
    weir_thread *limits; /* NULL: nothing is limited */
    struct counters *counters;
    const struct burst *requests;
    const struct datagram *datagrams;
    uint64_t bursts, clock_cost_ns;
    uint32_t now;               /* seconds; set by the worker */
    struct xdp_view xdp;        /* what the kernel is told of denials */
    struct record_view *record; /* NULL: denied packets are not recorded */
    const struct address *listen;
    const struct in6_addr *locals; /* to which address of this host a message came; NULL: to `listen` */
    struct packet_kinds kinds;     /* those in force */
    uint32_t kinds_generation;
    size_t policy_count;                        /* whose kinds are in `kind_of_policy` */
    unsigned char kind_of_policy[POLICIES_MAX]; /* the number of the kind that a policy is for; or ANY_KIND, NO_KIND */
    uint32_t apart;                             /* a bit for each kind that not the same policies are for */
    bool has_free;                              /* a kind costs nothing */
    unsigned char packet_kinds[BURST_COUNT];    /* of the burst's packets; 0: of none */
    bool has_all;                               /* some of `of_all` are not 0 */
    uint16_t of_all[BURST_COUNT]; /* overrides of all policies, of the burst's packets: see find_of_all() */
    /* Of the packets of one family: */
    unsigned char places[BURST_COUNT]; /* in the burst */
    unsigned char denied_by[BURST_COUNT];
    weir_key keys[BURST_COUNT * WEIR_MAX_KEYS_AT_ONCE];
    uint64_t costs[BURST_COUNT * WEIR_MAX_KEYS_AT_ONCE];
    unsigned char bytes[BURST_COUNT * WEIR_MAX_KEYS_AT_ONCE][NETWORK_KEY_SIZE]; /* of the keys that are networks */
};

/* `requests` and `datagrams` are where bursts arrive. Measures what a reading of the clock costs. */
void decision_open(struct decision *d, struct gateway *gateway, struct counters *counters, const struct burst *requests,
                   const struct datagram *datagrams);

/* The packets of a burst of `count` that may pass, a bit each; counts them. */
uint64_t decision_make(struct decision *d, size_t count);

#endif
