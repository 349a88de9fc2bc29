/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them: 127.0.0.1:7000, [::1]:7000, :7000 (every address of this host). */
#ifndef WEIR_GATEWAY_ADDRESS_H
#define WEIR_GATEWAY_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } u;
    socklen_t length;
};

/* False: it is none. */
bool address_parse(const char *text, struct address *out);

/* Stands for every address of this host. */
bool address_is_any(const struct address *address);

bool address_is_same(const struct address *a, const struct address *b);

/* A bound, non-blocking UDP socket that shares its address with others (SO_REUSEPORT); -1: errno says why not. */
int address_bind_udp(const struct address *address);

/*
 * Takes a socket of address_bind_udp out of those that share its address: the kernel gives it no new packets, what it
 * has stays, and it can still send. 0, or -1: errno says why not.
 */
int address_leave(int fd, const struct address *address);

#endif
