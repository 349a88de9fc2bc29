/* SPDX-License-Identifier: Apache-2.0 */
/* A server that says it is a Redis: the library's socket reads from an input. Link with --wrap for connect and recv. */
#ifndef WEIR_TESTS_FUZZ_REDIS_SERVER_H
#define WEIR_TESTS_FUZZ_REDIS_SERVER_H

#include <errno.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/redis/socket.h"

/* What the server sends yet, and how much of it comes at once. */
static struct input server_sends;
static size_t server_piece;

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    (void) fd;
    (void) address;
    (void) size;
    return 0;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    const size_t left = (size_t) (server_sends.end - server_sends.at);
    const size_t most = size < server_piece ? size : server_piece;
    const size_t given = left < most ? left : most;
    (void) fd;
    (void) flags;
    if (given == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, server_sends.at, given);
    server_sends.at += given;
    return (ssize_t) given;
}

/* Connects a socket to the server. The caller gives it to socket_free(). */
static inline void server_open(struct socket *sock, struct input sends, size_t piece)
{
    static const struct socket_target target = {.path = "/nowhere"};
    socket_init(sock);
    server_sends = sends;
    server_piece = piece;
    CHECK(socket_open(sock, &target) == 0);
}

#endif
