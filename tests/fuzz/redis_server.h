/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that says it is a Redis, wherever it is: the library's sockets read from an input. Link with --wrap for
 * socket_open, connect, send and recv.
 */
#ifndef WEIR_TESTS_FUZZ_REDIS_SERVER_H
#define WEIR_TESTS_FUZZ_REDIS_SERVER_H

#include <errno.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/redis/socket.h"

/* What the server sends yet, and how much of it comes at once. Behind it the connection is closed. */
static struct input server_sends;
static size_t server_piece = SIZE_MAX;

/*
 * A server that answers when it is asked: what it sends ends at the next '|' then, and what it is first asked it
 * answers by this. NULL: it sends all at once.
 * server_ended: it has closed a connection.
 */
static const char *server_greets;
static bool server_ended;
static unsigned server_idle = 0; /* readings in vain since it was asked */

/* It is read in vain so often before it closes the connection: what it was to answer is not there. */
#define SERVER_IDLE_MOST 20

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
    server_idle = 0;
    return (ssize_t) size;
}

/* What is sent next: all, or up to the next mark, but so many bytes at most. */
static struct input server_piece_next(size_t most)
{
    struct input next = server_sends;
    if (server_greets != NULL && *server_greets != '\0') {
        next = (struct input){(const uint8_t *) server_greets, (const uint8_t *) server_greets + strlen(server_greets)};
        server_greets = "";
        return next;
    }
    const uint8_t *mark =
        server_greets != NULL && next.at != next.end ? memchr(next.at, '|', (size_t) (next.end - next.at)) : NULL;
    next.end = mark != NULL ? mark : next.end;
    if ((size_t) (next.end - next.at) > most) {
        next.end = next.at + most;
        server_idle = 0; /* the rest comes without a question */
    }
    server_sends.at = next.end == mark ? next.end + 1 : next.end;
    return next;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    (void) fd;
    (void) flags;
    if (server_greets != NULL && server_idle++ != 0 && server_idle < SERVER_IDLE_MOST) {
        errno = EAGAIN;
        return -1;
    }
    const struct input next = server_greets != NULL && server_idle >= SERVER_IDLE_MOST
                                  ? (struct input){NULL, NULL}
                                  : server_piece_next(size < server_piece ? size : server_piece);
    const size_t given = (size_t) (next.end - next.at);
    CHECK(given <= size);
    server_ended = server_ended || given == 0;
    if (given != 0) {
        memcpy(bytes, next.at, given);
    }
    return (ssize_t) given;
}

#endif
