/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Room for a burst while the thread is busy with the one before. */
#define SOCKET_BUFFER (4 << 20)

bool address_parse(const char *text, struct address *out)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    memset(out, 0, sizeof(*out));
    if (colon == NULL || (size_t) (colon - text) >= sizeof(host)) {
        return false;
    }
    char *end = NULL;
    errno = 0;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || errno != 0 || port == 0 || port > 65535 || colon[1] == '-' ||
        colon[1] == '+') {
        return false;
    }
    (void) snprintf(host, sizeof(host), "%.*s", (int) (colon - text), text);
    const size_t length = strlen(host);
    if (host[0] == '[' && length > 2 && host[length - 1] == ']') {
        host[length - 1] = '\0';
        out->u.v6.sin6_family = AF_INET6;
        out->u.v6.sin6_port = htons((uint16_t) port);
        out->length = sizeof(out->u.v6);
        return inet_pton(AF_INET6, host + 1, &out->u.v6.sin6_addr) == 1;
    }
    if (length == 0) {
        out->u.v6.sin6_family = AF_INET6;
        out->u.v6.sin6_port = htons((uint16_t) port);
        out->u.v6.sin6_addr = in6addr_any;
        out->length = sizeof(out->u.v6);
        return true;
    }
    out->u.v4.sin_family = AF_INET;
    out->u.v4.sin_port = htons((uint16_t) port);
    out->length = sizeof(out->u.v4);
    return inet_pton(AF_INET, host, &out->u.v4.sin_addr) == 1;
}

bool address_is_any(const struct address *address)
{
    return address->u.any.sa_family == AF_INET ? address->u.v4.sin_addr.s_addr == htonl(INADDR_ANY)
                                               : IN6_IS_ADDR_UNSPECIFIED(&address->u.v6.sin6_addr);
}

bool address_is_same(const struct address *a, const struct address *b)
{
    if (a->u.any.sa_family != b->u.any.sa_family) {
        return false;
    }
    if (a->u.any.sa_family == AF_INET) {
        return a->u.v4.sin_addr.s_addr == b->u.v4.sin_addr.s_addr && a->u.v4.sin_port == b->u.v4.sin_port;
    }
    return IN6_ARE_ADDR_EQUAL(&a->u.v6.sin6_addr, &b->u.v6.sin6_addr) && a->u.v6.sin6_port == b->u.v6.sin6_port &&
           a->u.v6.sin6_scope_id == b->u.v6.sin6_scope_id;
}

int address_bind_udp(const struct address *address)
{
    const int fd = socket(address->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    const int on = 1;
    const int off = 0;
    const int size = SOCKET_BUFFER;
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    if (address->u.any.sa_family == AF_INET6) {
        (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* IPv4 as well */
    }
    if (bind(fd, &address->u.any, address->length) != 0) {
        const int error = errno;
        (void) close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/*
 * A connected socket gets packets of its peer alone. The peer is the socket's own address, which no client can have,
 * and which there is a way to from any address of this host. Linux 5.4 and later pass over connected sockets when they
 * choose among those that share an address; earlier ones may still choose them.
 */
int address_leave(int fd, const struct address *address)
{
    struct address peer = *address;
    if (address_is_any(address)) {
        if (address->u.any.sa_family == AF_INET) {
            peer.u.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        } else {
            peer.u.v6.sin6_addr = in6addr_loopback;
        }
    }
    return connect(fd, &peer.u.any, peer.length);
}
