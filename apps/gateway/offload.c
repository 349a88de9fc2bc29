/* SPDX-License-Identifier: Apache-2.0 */
#include "offload.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>

bool offload_receive(int fd)
{
    const int on = 1;
    return setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) == 0;
}

void offload_receive_alone(int fd)
{
    const int off = 0;
    (void) setsockopt(fd, IPPROTO_UDP, UDP_GRO, &off, sizeof(off));
}

bool offload_can_send(int fd)
{
    const int off = 0; /* as the socket is already: only the segment size of each message counts */
    return setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof(off)) == 0;
}

size_t offload_segment_of(struct msghdr *message, size_t size)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(c), sizeof(segment));
            return segment > 0 && (size_t) segment < size ? (size_t) segment : size;
        }
    }
    return size;
}

void offload_segment_set(struct msghdr *message, struct packet_control *control, size_t size)
{
    const uint16_t segment = (uint16_t) size;
    const size_t used = message->msg_control != NULL ? message->msg_controllen : 0;
    struct cmsghdr *c = (struct cmsghdr *) (void *) (control->bytes + used);
    memset(c, 0, CMSG_SPACE(sizeof(segment)));
    *c = (struct cmsghdr){CMSG_LEN(sizeof(segment)), IPPROTO_UDP, UDP_SEGMENT};
    memcpy(CMSG_DATA(c), &segment, sizeof(segment));
    message->msg_control = control->bytes;
    message->msg_controllen = used + CMSG_SPACE(sizeof(segment));
}
