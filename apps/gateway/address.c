/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Room for a burst while the thread is busy with the one before. */
#define SOCKET_BUFFER (4 << 20)

bool address_split(const char *text, char host[ADDRESS_HOST_SIZE], uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t) (colon - text) >= ADDRESS_HOST_SIZE) {
        return false;
    }
    char *end = NULL;
    errno = 0;
    const unsigned long number = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || errno != 0 || number == 0 || number > 65535) {
        return false;
    }
    const char *first = text;
    const char *last = colon;
    if (*first == '[') {
        if (colon - text < 3 || colon[-1] != ']') {
            return false;
        }
        first++;
        last--;
    } else if (memchr(text, ':', (size_t) (colon - text)) != NULL) {
        return false; /* an IPv6 address without its brackets */
    }
    memcpy(host, first, (size_t) (last - first));
    host[last - first] = '\0';
    *port = (uint16_t) number;
    return true;
}

int address_find(const char *text, int type, struct address *out)
{
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    memset(out, 0, sizeof(*out));
    if (!address_split(text, host, &port)) {
        return ADDRESS_MALFORMED;
    }
    if (*host == '\0') {
        out->u.v6.sin6_family = AF_INET6;
        out->u.v6.sin6_port = htons(port);
        out->u.v6.sin6_addr = in6addr_any;
        out->length = sizeof(out->u.v6);
        return 0;
    }
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = type};
    struct addrinfo *found = NULL;
    const int result = getaddrinfo(host, NULL, &hints, &found);
    if (result != 0 || found == NULL) {
        return result != 0 ? result : EAI_NONAME;
    }
    const struct addrinfo *chosen = found;
    for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
        if (one->ai_family == AF_INET) {
            chosen = one;
            break;
        }
    }
    memcpy(&out->u, chosen->ai_addr, chosen->ai_addrlen);
    out->length = chosen->ai_addrlen;
    freeaddrinfo(found);
    *(out->u.any.sa_family == AF_INET ? &out->u.v4.sin_port : &out->u.v6.sin6_port) = htons(port);
    return 0;
}

bool address_parse(const char *text, struct address *out)
{
    return address_find(text, SOCK_DGRAM, out) == 0;
}

const char *address_problem(int result)
{
    return result == ADDRESS_MALFORMED
               ? "is no address; give one such as 127.0.0.1:7000, [::1]:7000, :7000 or host:7000"
               : gai_strerror(result);
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

void address_print(const struct address *address, char out[ADDRESS_TEXT_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->u.any.sa_family == AF_INET) {
        (void) inet_ntop(AF_INET, &address->u.v4.sin_addr, host, sizeof(host));
        (void) snprintf(out, ADDRESS_TEXT_SIZE, "%s:%u", host, ntohs(address->u.v4.sin_port));
    } else if (address_is_any(address)) {
        (void) snprintf(out, ADDRESS_TEXT_SIZE, ":%u", ntohs(address->u.v6.sin6_port));
    } else {
        (void) inet_ntop(AF_INET6, &address->u.v6.sin6_addr, host, sizeof(host));
        (void) snprintf(out, ADDRESS_TEXT_SIZE, "[%s]:%u", host, ntohs(address->u.v6.sin6_port));
    }
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
