/* SPDX-License-Identifier: Apache-2.0 */
/* See transparent.h. */
#include "transparent.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int set_transparent(int fd, int family)
{
    const int on = 1;
    return family == AF_INET ? setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on))
                             : setsockopt(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, &on, sizeof(on));
}

int transparent_allowed(int family)
{
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    const int result = set_transparent(fd, family) == 0 ? 0 : -errno;
    (void) close(fd);
    return result;
}

int transparent_bind(int fd, int family, const struct address *client)
{
    struct address from = *client;
    const int on = 1;
    if (from.u.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&client->u.v6.sin6_addr)) {
        memset(&from, 0, sizeof(from));
        from.u.v4.sin_family = AF_INET;
        from.u.v4.sin_port = client->u.v6.sin6_port;
        memcpy(&from.u.v4.sin_addr, &client->u.v6.sin6_addr.s6_addr[12], 4);
        from.length = sizeof(from.u.v4);
    }
    if (from.u.any.sa_family != family) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    /*
     * Another gateway of this host may have a socket for the client, while it ends and this one begins. And the client
     * may have the port of a listener, which has SO_REUSEPORT alone.
     */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 || set_transparent(fd, family) != 0) {
        return -1;
    }
    return bind(fd, &from.u.any, from.length);
}
