/* SPDX-License-Identifier: Apache-2.0 */
/* See listen_socket.h. */
#include "listen_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "local.h"
#include "offload.h"

/* A socket that has left is served until nothing has come for so long: what the kernel was just giving it arrives
 * within microseconds. */
#define QUIET_NS UINT64_C(100000000)

/* It is closed after this long, whatever comes. */
#define LEAVE_NS UINT64_C(2000000000)

/* What a socket from elsewhere may lack. */
static int prepare_handed(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ? -errno : 0;
}

int listen_socket_open(struct listen_socket *socket, const struct address *address, int handed, bool offload)
{
    struct outbox *to_clients = calloc(1, sizeof(*to_clients));
    const int family = address->u.any.sa_family;
    int result = to_clients != NULL ? 0 : -ENOMEM;
    int fd = handed;
    if (result == 0 && handed < 0) {
        fd = address_bind_udp(address);
        result = fd < 0 ? -errno : 0;
    } else if (result == 0) {
        result = prepare_handed(fd);
    }
    const bool asks_local = address_is_any(address);
    if (result == 0 && asks_local && local_ask(fd, family) != 0) {
        result = -errno;
    }
    if (result != 0) {
        if (fd >= 0 && handed < 0) {
            (void) close(fd);
        }
        free(to_clients);
        return result;
    }
    outbox_open(to_clients, fd, family, offload && offload_can_send(fd));
    *socket = (struct listen_socket){.fd = fd,
                                     .asks_local = asks_local,
                                     .is_handed = handed >= 0,
                                     .merges = offload && offload_receive(fd),
                                     .address = *address,
                                     .to_clients = to_clients};
    if (!offload && handed >= 0) {
        offload_receive_alone(fd); /* whoever had the socket before may have asked for more */
    }
    return 0;
}

void listen_socket_steer_no_more(const struct listen_socket *socket)
{
    const int unused = 0;
    (void) setsockopt(socket->fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &unused, sizeof(unused));
}

void listen_socket_close(struct listen_socket *socket)
{
    if (socket->fd >= 0) {
        (void) close(socket->fd);
    }
    free(socket->to_clients);
    socket->fd = -1;
    socket->to_clients = NULL;
}

bool listen_socket_leave(struct listen_socket *socket, uint64_t now_ns)
{
    socket->left_ns = now_ns;
    socket->until_ns = now_ns + QUIET_NS;
    socket->has_left = address_leave(socket->fd, &socket->address) == 0;
    return socket->has_left;
}

bool listen_socket_is_done(struct listen_socket *socket, bool received, uint64_t now_ns)
{
    if (received && socket->has_left && now_ns - socket->left_ns < LEAVE_NS) {
        socket->until_ns = now_ns + QUIET_NS;
    }
    return now_ns >= socket->until_ns;
}
