/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of this host's addresses a packet came to. A socket on every address (":7000") would answer from whatever
 * address routing prefers, and a client takes no answer from an address it did not ask: replies leave from the address
 * that was asked. A socket on one address knows its own, and none of this costs it anything.
 */
#ifndef WEIR_GATEWAY_LOCAL_H
#define WEIR_GATEWAY_LOCAL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "burst.h"

/* Asks the kernel for the address with every packet. 0, or -1: errno says why not. */
int local_ask(int fd, int family);

/* The address a received message came to; IPv4 in its mapped form; all zero: not told. */
struct in6_addr local_of(struct msghdr *message);

/* Makes a message leave from `local`; all zero: from where routing prefers. `family` is the socket's. */
void local_set(struct msghdr *message, struct packet_control *control, int family, const struct in6_addr *local);

#endif
