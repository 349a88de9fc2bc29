/* SPDX-License-Identifier: Apache-2.0 */
#include "burst.h"

#include <errno.h>

#include "offload.h"

void burst_ready(struct burst *burst, size_t first, size_t end, bool with_address)
{
    for (size_t i = first; i < end; i++) {
        struct msghdr *header = &burst->messages[i].msg_hdr;
        burst->pieces[i] = (struct iovec){burst->packets[i], PACKET_SIZE};
        *header = (struct msghdr){.msg_iov = &burst->pieces[i],
                                  .msg_iovlen = 1,
                                  .msg_control = burst->controls[i].bytes,
                                  .msg_controllen = sizeof(burst->controls[i].bytes)};
        if (with_address) {
            header->msg_name = &burst->from[i].u;
            header->msg_namelen = sizeof(burst->from[i].u);
        }
    }
}

size_t burst_receive(struct burst *burst, int fd, size_t first, int *error)
{
    const int got = recvmmsg(fd, &burst->messages[first], (unsigned) (BURST_COUNT - first), MSG_DONTWAIT, NULL);
    const size_t count = got > 0 ? (size_t) got : 0;
    if (count == 0 && error != NULL) {
        *error = got < 0 ? errno : EAGAIN;
    }
    for (size_t i = first; i < first + count; i++) {
        burst->from[i].length = burst->messages[i].msg_hdr.msg_namelen;
        burst->segments[i] = offload_segment_of(&burst->messages[i].msg_hdr, burst->messages[i].msg_len);
    }
    return count;
}

size_t burst_split(struct burst *burst, size_t end, struct burst_cursor *cursor, struct datagram *out)
{
    size_t count = 0;
    while (count < BURST_COUNT && cursor->message < end) {
        const size_t i = cursor->message;
        const size_t left = burst->messages[i].msg_len - cursor->offset;
        const size_t size = left < burst->segments[i] ? left : burst->segments[i];
        out[count++] = (struct datagram){burst->packets[i] + cursor->offset, size, i};
        cursor->offset += size;
        /* A datagram without a byte is one as well. */
        if (cursor->offset == burst->messages[i].msg_len) {
            *cursor = (struct burst_cursor){.message = i + 1};
        }
    }
    return count;
}
