/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that says it is a Redis, wherever it is: the library's sockets read from an input. Link with --wrap for
 * socket_open, connect, send and recv.
 */
#ifndef WEIR_TESTS_FUZZ_REDIS_SERVER_H
#define WEIR_TESTS_FUZZ_REDIS_SERVER_H

#include <sys/socket.h>

#include "fuzz.h"
#include "transport/redis/socket.h"

/* What the server sends yet, and how much of it comes at once. Behind it the connection is closed. */
static struct input server_sends;
static size_t server_piece = SIZE_MAX;

int __real_socket_open(struct socket *sock, const struct socket_target *target);
int __wrap_socket_open(struct socket *sock, const struct socket_target *target);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

/* No name is looked up. */
int __wrap_socket_open(struct socket *sock, const struct socket_target *target)
{
    static const struct socket_target nowhere = {.path = "/nowhere"};
    CHECK(target->path != NULL || (target->host[0] != '\0' && target->port != NULL));
    return __real_socket_open(sock, &nowhere);
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    (void) fd;
    (void) address;
    (void) size;
    return 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    (void) fd;
    (void) bytes;
    (void) flags;
    return (ssize_t) size;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    const size_t left = (size_t) (server_sends.end - server_sends.at);
    const size_t most = size < server_piece ? size : server_piece;
    const size_t given = left < most ? left : most;
    (void) fd;
    (void) flags;
    if (given != 0) {
        memcpy(bytes, server_sends.at, given);
    }
    server_sends.at += given;
    return (ssize_t) given;
}

#endif
