/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include <stdint.h>
#include <string.h>

static const unsigned char signature[12] = {0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a};

#define VERSION_2_PROXY 0x21
#define DATAGRAM_IPV4   0x12
#define DATAGRAM_IPV6   0x22

static const void *ipv4_of(const struct address *address)
{
    return address->u.any.sa_family == AF_INET ? (const unsigned char *) &address->u.v4.sin_addr
                                               : address->u.v6.sin6_addr.s6_addr + 12;
}

static const void *port_of(const struct address *address)
{
    return address->u.any.sa_family == AF_INET ? &address->u.v4.sin_port : &address->u.v6.sin6_port;
}

size_t proxy_header(const struct address *from, const struct address *asked, unsigned char out[PROXY_HEADER_MAX])
{
    const bool is_ipv4 = from->u.any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&from->u.v6.sin6_addr);
    const size_t size = is_ipv4 ? 4 : 16;
    unsigned char *at = out;
    memcpy(at, signature, sizeof(signature));
    at += sizeof(signature);
    *at++ = VERSION_2_PROXY;
    *at++ = is_ipv4 ? DATAGRAM_IPV4 : DATAGRAM_IPV6;
    *at++ = 0;
    *at++ = (unsigned char) (2 * size + 4);
    memcpy(at, is_ipv4 ? ipv4_of(from) : from->u.v6.sin6_addr.s6_addr, size);
    at += size;
    memcpy(at, is_ipv4 ? ipv4_of(asked) : asked->u.v6.sin6_addr.s6_addr, size);
    at += size;
    memcpy(at, port_of(from), 2);
    memcpy(at + 2, port_of(asked), 2);
    return (size_t) (at + 4 - out);
}
