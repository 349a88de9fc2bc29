/* SPDX-License-Identifier: Apache-2.0 */
#include "burst.h"

#include <errno.h>

void burst_ready(struct burst *burst, size_t first, size_t end, bool with_address)
{
    for (size_t i = first; i < end; i++) {
        struct msghdr *header = &burst->messages[i].msg_hdr;
        burst->pieces[i] = (struct iovec){burst->packets[i], PACKET_SIZE};
        *header = (struct msghdr){.msg_iov = &burst->pieces[i], .msg_iovlen = 1};
        if (with_address) {
            header->msg_name = &burst->from[i].u;
            header->msg_namelen = sizeof(burst->from[i].u);
            header->msg_control = burst->locals[i].bytes;
            header->msg_controllen = sizeof(burst->locals[i].bytes);
        }
    }
}

size_t burst_send(int fd, struct mmsghdr *messages, size_t count)
{
    size_t done = 0;
    size_t sent = 0;
    bool retried = false;
    while (done < count) {
        const int n = sendmmsg(fd, messages + done, (unsigned) (count - done), MSG_NOSIGNAL);
        if (n > 0) {
            done += (size_t) n;
            sent += (size_t) n;
            retried = false;
            continue;
        }
        if (errno == EINTR) {
            continue;
        }
        if (errno == EAGAIN || errno == ENOBUFS) {
            break;
        }
        /* ECONNREFUSED is news of an earlier packet, and reading it clears it: this packet has not been tried yet. */
        if (errno == ECONNREFUSED && !retried) {
            retried = true;
            continue;
        }
        done++;
        retried = false;
    }
    return sent;
}
