/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets to a backend that have the client's address, which is none of this host's (IP_TRANSPARENT, Linux 2.6.28;
 * IPV6_TRANSPARENT, Linux 2.6.37). The backend's packets to that address must be routed to this host, and there to its
 * sockets: docs/gateway.md has the commands.
 */
#ifndef WEIR_GATEWAY_BACKENDS_TRANSPARENT_H
#define WEIR_GATEWAY_BACKENDS_TRANSPARENT_H

#include "../address.h"

/* Whether this process may have such sockets: 0, or a negative errno value (-EPERM: CAP_NET_ADMIN is missing). */
int transparent_allowed(int family);

/*
 * Binds a socket of a family to a client's address and port. A client of IPv4 fits a socket of IPv4 alone, mapped into
 * IPv6 or not. 0, or -1: errno says why not; EAFNOSUPPORT: the client does not fit.
 */
int transparent_bind(int fd, int family, const struct address *client);

#endif
