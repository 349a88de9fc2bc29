/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of the way to an address: the route, and the neighbour that is next on it. By netlink. */
#ifndef WEIR_GATEWAY_XSK_ROUTE_H
#define WEIR_GATEWAY_XSK_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "../address.h"
#include "frame.h"

struct route_asker {
    int fd; /* a netlink socket */
    uint32_t sequence;
};

/* The next hop on the way to an address. */
struct route_hop {
    unsigned char mac[FRAME_MAC_SIZE];
    uint32_t mtu; /* what the route says of it; 0: nothing */
};

/* 0 or a negative errno value. */
int route_open(struct route_asker *asker);
void route_close(struct route_asker *asker);

/*
 * Asks for the way to an address. False: it does not leave by the interface with this index, the address is one of this
 * host, or the neighbour's address of Ethernet is not known now. Of a neighbour that has not been heard of for a while
 * the kernel is told that it is used, so that the kernel asks it. Waits for the kernel, which answers at once.
 */
bool route_find(struct route_asker *asker, const struct address *to, unsigned interface, struct route_hop *out);

#endif
