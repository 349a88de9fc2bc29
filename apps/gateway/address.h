/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them: 127.0.0.1:7000, [::1]:7000, host:7000, and :7000 for every address of this host. */
#ifndef WEIR_GATEWAY_ADDRESS_H
#define WEIR_GATEWAY_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } u;
    socklen_t length;
};

/* The longest name of a host, and a terminator. */
#define ADDRESS_HOST_SIZE 256

/* The longest text of an address: a host, brackets and a port. */
#define ADDRESS_TEXT_SIZE (ADDRESS_HOST_SIZE + 8)

#define ADDRESS_MALFORMED 1 /* no error of getaddrinfo, which are negative */

/*
 * Splits a text into host, without brackets, and port; an empty host stands for every address. False: the text is no
 * address.
 */
bool address_split(const char *text, char host[ADDRESS_HOST_SIZE], uint16_t *port);

/*
 * Looks an address up for sockets of `type`; of those of a name it is the first of IPv4, or else of IPv6, as the
 * host's resolver orders them.
 * 0; ADDRESS_MALFORMED; or an error of getaddrinfo. Blocks while a name is looked up.
 */
int address_find(const char *text, int type, struct address *out);

/* What address_find's result means, for people. */
const char *address_problem(int result);

/* address_find for UDP. False: there is none. */
bool address_parse(const char *text, struct address *out);

/* Stands for every address of this host. */
bool address_is_any(const struct address *address);

/* Returns the address without its port. One of IPv4 is in its mapped form, as ::ffff:198.51.100.7 is. */
static inline struct in6_addr address_mapped(const struct address *address)
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (address->u.any.sa_family != AF_INET) {
        return address->u.v6.sin6_addr;
    }
    memcpy(&mapped.s6_addr[12], &address->u.v4.sin_addr, 4);
    return mapped;
}

/* Returns the port, in network byte order. */
static inline in_port_t address_port(const struct address *address)
{
    return address->u.any.sa_family == AF_INET ? address->u.v4.sin_port : address->u.v6.sin6_port;
}

bool address_is_same(const struct address *a, const struct address *b);

/* Writes an address in numbers: 127.0.0.1:7000, [::1]:7000, and :7000 for every address of IPv4 and IPv6. */
void address_print(const struct address *address, char out[ADDRESS_TEXT_SIZE]);

/* A bound, non-blocking UDP socket that shares its address with others (SO_REUSEPORT); -1: errno says why not. */
int address_bind_udp(const struct address *address);

/*
 * Takes a socket of address_bind_udp out of those that share its address: the kernel gives it no new packets, what it
 * has stays, and it can still send. 0, or -1: errno says why not.
 */
int address_leave(int fd, const struct address *address);

#endif
