/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which packets of a burst may pass.
 *
 * A packet is checked by all enforced policies that concern it at once: all of them count it, or none does. What they
 * let pass is then held against the policies in shadow mode, one by one.
 *
 * Packets of a network that an override of all policies denies are dropped here where no policy is enforced that obeys
 * it by itself: see packet_rules.h.
 */
#ifndef WEIR_GATEWAY_DECISION_H
#define WEIR_GATEWAY_DECISION_H

#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "burst.h"
#include "packet_rules.h"
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
    uint64_t offered;           /* packets of all bursts */
    uint32_t now;               /* seconds; set by the worker */
    struct xdp_view xdp;        /* what the kernel is told of denials */
    struct record_view *record; /* NULL: denied packets are not recorded */
    const struct address *listen;
    const struct in6_addr *locals; /* to which address of this host a message came; NULL: to `listen` */
    struct packet_rules rules;
    uint32_t kinds_generation;
    unsigned char packet_kinds[BURST_COUNT]; /* of the burst's packets; 0: of none */
    bool has_all;                            /* some of `of_all` are not 0 */
    uint16_t of_all[BURST_COUNT];            /* overrides of all policies, of the burst's packets: see packet_rules.h */
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

/* Counts the packets of all bursts as offered: once it is counted what became of them, here and on their way. */
void decision_publish(const struct decision *d);

#endif
