/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of the PROXY protocol, version 2, for datagrams: the client's address, and the address that the client
 * sent to. The header stands before the payload of each datagram to the backend, as a datagram says nothing of earlier
 * ones. Source: "The PROXY protocol, versions 1 & 2", section 2.2, of the HAProxy project.
 */
#ifndef WEIR_GATEWAY_PROXY_H
#define WEIR_GATEWAY_PROXY_H

#include <stddef.h>

#include "address.h"

#define PROXY_HEADER_MAX 52 /* IPv6; of IPv4 it is 28 bytes */

/* Writes it for packets of `from` that came to `asked`, of the same family; mapped IPv4 is IPv4. Returns its size. */
size_t proxy_header(const struct address *from, const struct address *asked, unsigned char out[PROXY_HEADER_MAX]);

#endif
