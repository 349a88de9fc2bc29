/* SPDX-License-Identifier: Apache-2.0 */
#include "local.h"

#include <string.h>

int local_ask(int fd, int family)
{
    const int on = 1;
    return family == AF_INET ? setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on))
                             : setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
}

struct in6_addr local_of(struct msghdr *message)
{
    struct in6_addr local = in6addr_any;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            return info.ipi6_addr;
        }
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            local.s6_addr[10] = local.s6_addr[11] = 0xff;
            memcpy(&local.s6_addr[12], &info.ipi_spec_dst, 4);
            return local;
        }
    }
    return local;
}

void local_set(struct msghdr *message, struct packet_control *control, int family, const struct in6_addr *local)
{
    if (IN6_IS_ADDR_UNSPECIFIED(local)) {
        message->msg_control = NULL;
        message->msg_controllen = 0;
        return;
    }
    memset(control, 0, sizeof(*control));
    struct cmsghdr *c = (struct cmsghdr *) (void *) control->bytes;
    message->msg_control = control->bytes;
    if (family == AF_INET) {
        struct in_pktinfo info = {.ipi_ifindex = 0};
        memcpy(&info.ipi_spec_dst, &local->s6_addr[12], 4);
        *c = (struct cmsghdr){CMSG_LEN(sizeof(info)), IPPROTO_IP, IP_PKTINFO};
        memcpy(CMSG_DATA(c), &info, sizeof(info));
        message->msg_controllen = CMSG_SPACE(sizeof(info));
    } else {
        const struct in6_pktinfo info = {.ipi6_addr = *local};
        *c = (struct cmsghdr){CMSG_LEN(sizeof(info)), IPPROTO_IPV6, IPV6_PKTINFO};
        memcpy(CMSG_DATA(c), &info, sizeof(info));
        message->msg_controllen = CMSG_SPACE(sizeof(info));
    }
}
